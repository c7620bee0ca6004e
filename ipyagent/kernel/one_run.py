"""In one process the code of one agent runs at a time: what it prints is taken from streams that all threads share.

Models and tools of several agents work side by side; only their runs of code wait for one another. Code that
asks further agents of this process to work lends them its turn meanwhile, so that nobody waits for himself.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

_LOOK = 0.01
"""Seconds between two looks whether it is one's turn."""
_PATIENCE = 0.2
"""Seconds that code waits to have its turn back; whoever still has it swallows interrupts."""


class InterruptibleRunner:
    """Whose turn it is, by the thread that runs the code; one thread may take it within its own turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._owner: int | None = None
        self._depth = 0

    def __repr__(self) -> str:
        return f"<InterruptibleRunner {'free' if self._owner is None else f'of thread {self._owner}'}>"

    @asynccontextmanager
    async def turn(self, thread: int) -> AsyncIterator[None]:
        """The turn of the thread with this identity; waits for it and can be cancelled meanwhile."""
        while not self._take(thread):
            await asyncio.sleep(_LOOK)
        try:
            yield
        finally:
            self._give_back(thread)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Others may take the turn of this thread within, if it has it."""
        me, depth = threading.get_ident(), 0
        with self._lock:
            if self._owner == me:
                depth, self._owner, self._depth = self._depth, None, 0
        try:
            yield
        finally:
            until = time.monotonic() + _PATIENCE
            while depth and not self._take(me, depth) and time.monotonic() < until:
                time.sleep(_LOOK)

    def _take(self, thread: int, depth: int = 1) -> bool:
        with self._lock:
            if self._pid != os.getpid():  # a fork while another thread ran code: that thread is not here
                self._pid, self._owner, self._depth = os.getpid(), None, 0
            if self._owner not in (None, thread):
                return False
            self._owner, self._depth = thread, self._depth + depth
            return True

    def _give_back(self, thread: int) -> None:
        with self._lock:
            if self._owner == thread:
                self._depth -= 1
                if self._depth <= 0:
                    self._owner, self._depth = None, 0


ONE_RUN = InterruptibleRunner()
"""The process's own."""
