"""What is to be done when the process ends, while threads and sockets can still be begun: atexit comes too late."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def at_exit(owner: T, end: Callable[[T], None]) -> None:
    """Call `end(owner)` when this process ends, unless the owner is gone by then; Ctrl-C ends it."""
    known, process = weakref.ref(owner), os.getpid()

    def run() -> None:
        found = known()
        if found is not None and os.getpid() == process:
            try:
                end(found)
            except KeyboardInterrupt:
                return  # the user does not want to wait: it has ended

    register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(run)
    except RuntimeError:
        return  # the process ends already
