"""Work off the agent thread that a cancelled call stops: the worker asks `Stop.check` between
its steps, and a worker changes nothing outside itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """Raised inside a worker whose call was cancelled."""


class Stop:
    """Set once, when the call is cancelled."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises Stopped when the call was cancelled."""
        if self._event.is_set():
            raise Stopped


async def in_worker(work: Callable[[Stop], T]) -> T:
    """The result of `work` in a thread. Cancelling returns at once; the thread ends at its next
    `check`."""
    stop = Stop()
    try:
        return await asyncio.to_thread(work, stop)
    except asyncio.CancelledError:
        stop.set()
        raise
