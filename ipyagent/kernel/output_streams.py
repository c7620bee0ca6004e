"""Standard output where it is no ordinary stream: missing, sealed, or read from a pipe by ipykernel."""

from __future__ import annotations

import io
import selectors
import time
from typing import Any

from ipyagent.kernel.output import OutputLog


class Tapped(io.TextIOBase):
    """A stand-in for a missing or sealed standard stream."""

    def __init__(self, log: OutputLog) -> None:
        self._log = log

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._log.write(text)
        return len(text)

    def close(self) -> None:
        """Stay open."""


def drain(stream: Any) -> None:
    """Let ipykernel's watcher thread read what child processes wrote: it is milliseconds behind."""
    descriptor = getattr(stream, "_fid", None)
    if descriptor is None:
        return
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline and readable(descriptor):
        time.sleep(0.001)
    time.sleep(0.002)


def readable(source: Any, seconds: float = 0.0) -> bool:
    """Whether a descriptor, or something with one, can be read within so long; `select.select` knows none above
    1023."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(source, selectors.EVENT_READ)
        return bool(waiting.select(seconds))
