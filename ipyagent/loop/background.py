"""Work behind a turn: it runs on the agent thread after the turn and never holds up the next one.

One piece at a time. While one runs, of all that is asked for only the newest is kept and runs after
it. Stopping a turn does not touch it; letting go of the session ends it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

from ipyagent.errors import JournalError

PATIENCE = 3.0
"""Seconds that letting go of a session waits for its background work to end."""

TICK = 0.1
"""Seconds after which one who waits long hears an interrupt, on any system and whichever thread got it."""


class Background:
    """The background work of one session."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._next: Callable[[], Awaitable[None]] | None = None
        self._ended = threading.Event()
        self._ended.set()
        self._lock = threading.Lock()  # the end, and who is to be told of it
        self._then: Callable[[], None] | None = None
        self._thread = 0
        self._closed = False

    def __repr__(self) -> str:
        waiting = ", one more waits" if self._next is not None else ""
        return f"<Background {'at work' if self.busy else 'idle'}{waiting}>"

    @property
    def busy(self) -> bool:
        """Whether something runs."""
        return not self._ended.is_set()

    def ask(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have `work()` done: now, or once what runs has ended, in place of what waits already.
        Called on the agent thread."""
        if self._closed:
            return
        self._next = work
        if self._task is None or self._task.done():
            self._ended.clear()
            self._thread = threading.get_ident()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ipyagent background")
            self._task.add_done_callback(self._on_end)

    def ask_from_outside(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Awaitable[None]]) -> bool:
        """`ask`, on the loop of the agent thread, from any other thread; whether it was taken."""
        taken = threading.Event()

        def ask() -> None:
            try:
                self.ask(work)
            finally:
                taken.set()

        try:
            loop.call_soon_threadsafe(ask)
        except RuntimeError:  # the loop is closed: nothing runs on it any more
            return False
        return taken.wait(PATIENCE)

    def wait(self, timeout: float) -> bool:
        """Wait until nothing runs, `timeout` seconds at most; whether it is so. Not for the agent thread."""
        return self._ended.wait(timeout)

    async def ended(self, seconds: float) -> None:
        """Wait until nothing runs, `seconds` at most. On the agent thread."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait((self._task,), timeout=seconds)

    def end_with(self, call: Callable[[], None]) -> None:
        """Take nothing more, and `call()` once all that was taken is done: now, or on the agent thread."""
        self._closed = True
        with self._lock:
            if not self._ended.is_set():
                self._then = call
                return
        call()

    def finish(self, seconds: float) -> bool:
        """Take nothing more, and let what was taken come to its end, `seconds` at most; then end it. Whether
        it came to its end by itself. An interrupt ends the waiting. Not for the agent thread."""
        self._closed = True
        until = time.monotonic() + seconds
        try:
            while not self._ended.wait(min(TICK, max(0.0, until - time.monotonic()))):
                if time.monotonic() >= until:
                    return False
            return True
        finally:
            self.close()

    def close(self) -> None:
        """End what runs, take nothing more. From any thread; waits a little, but for the agent thread."""
        self._closed, self._next = True, None
        task = self._task
        if task is None or self._ended.is_set():
            return
        if threading.get_ident() == self._thread:
            task.cancel()
            return
        try:
            task.get_loop().call_soon_threadsafe(task.cancel)
        except RuntimeError:  # the loop is closed: nothing runs on it any more
            return
        self._ended.wait(PATIENCE)

    async def _run(self) -> None:
        while (work := self._next) is not None:
            self._next = None
            try:
                await work()
            except JournalError:  # the disk is full or the session was let go: the next turn meets it
                self._next = None
            except Exception as problem:  # noqa: BLE001 - a bug of ours: whoever minds the loop tells it
                told = {"message": "background work failed", "exception": problem, "task": asyncio.current_task()}
                asyncio.get_running_loop().call_exception_handler(told)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return
        try:
            while (then := self._last_word()) is not None:
                then()
        finally:
            self._ended.set()

    def _last_word(self) -> Callable[[], None] | None:
        """Who is to be told of the end; with nobody left it has come."""
        with self._lock:
            then, self._then = self._then, None
            if then is None:
                self._ended.set()
            return then
