"""One writer at a time in a memory directory, and nothing half done: before it touches a file a writer leaves
a note of its name, which it removes when the index is true again. Whoever comes after a killed writer finds
the note and finishes for it. The lock is the system's own, which dies with its holder, see `locks`.
"""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from ipyagent.errors import MemoryRefused
from ipyagent.locks import Lock, LockHeld
from ipyagent.memory.confined import SandboxedDir
from ipyagent.memory.history import HISTORY, NEW

SECONDS = 30.0
ALL = "*"
"""Stands for every file in a note."""
_LOCK = f"{HISTORY}/lock"
_NOTE = f"{HISTORY}/unfinished.json"
_IGNORE = f"{HISTORY}/.gitignore"
STOP: ContextVar[threading.Event | None] = ContextVar("ipyagent_memory_stop", default=None)
"""Set by whoever no longer wants the work of this context: it waits for no lock, and begins no further write."""
STOPPED = "stopped"
"""The reason of the refusal that ends such work."""


class StoreLock:
    """The lock of one memory directory. `finish` makes the index true for the names that a killed writer left."""

    def __init__(
        self, files: SandboxedDir, finish: Callable[[list[str]], object], prepare: Callable[[], object] | None = None
    ) -> None:
        self._files = files
        self._finish = finish
        self._prepare = prepare
        self._held = threading.local()

    def __repr__(self) -> str:
        return f"<StoreLock of {self._files.root}>"

    @contextmanager
    def lock(self, seconds: float = SECONDS) -> Iterator[None]:
        """Reentrant in a thread. Raises MemoryRefused "busy" after so many seconds."""
        depth = self._depth()
        lock = None if depth else self._acquired(seconds)
        self._held.depth = depth + 1
        try:
            if lock is not None:
                self._recover()
            yield
        finally:
            self._held.depth = depth
            if lock is not None:
                lock.release()

    def begin(self, *names: str) -> None:
        """Leave the note of what is about to change. Raises MemoryRefused when the work was stopped; from here on it
        goes to its end."""
        _refuse_stopped()
        self._files.replace(_NOTE, json.dumps(names).encode(), f"{NEW}/note", durable=False)

    def end(self) -> None:
        """Remove the note."""
        self._files.remove(_NOTE)

    def look(self) -> None:
        """Finish what a killed writer left, if there is any; a living one is left alone."""
        with suppress(MemoryRefused):  # reading goes on: whoever writes is told
            if self._files.status(_NOTE) is not None and not self._depth():
                with self.lock(0.0):
                    pass

    def _depth(self) -> int:
        """How many times this thread holds the lock."""
        depth: int = self._held.__dict__.get("depth", 0)
        return depth

    def _acquired(self, seconds: float) -> Lock:
        root = self._files.root
        if not root.is_dir() and self._prepare is not None:
            self._prepare()
        status = self._files.make(_LOCK)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise MemoryRefused(f"{root / _LOCK} is a link or a folder; remove it", reason="link")
        lock = Lock(root / _LOCK, seconds=seconds, poll=0.004)
        try:
            stop = STOP.get()
            lock.acquire(stop.is_set if stop is not None else lambda: False)
        except LockHeld:
            _refuse_stopped()
            told = f"another process has held the lock of {root} for {seconds:.0f} s; try again"
            raise MemoryRefused(told, reason="busy") from None
        except OSError as problem:
            raise MemoryRefused(
                f"{root} cannot be locked ({problem}): fix its permissions, or name another folder", reason="disk"
            ) from None
        return lock

    def _recover(self) -> None:
        note = self._files.read(_NOTE)
        for left in self._files.names(NEW):
            self._files.remove(f"{NEW}/{left}")
        if self._files.status(_IGNORE) is None:  # the history is no part of what a project's memory gives to others
            self._files.replace(_IGNORE, b"*\n", f"{NEW}/ignore", durable=False)
        if note is None:
            return
        try:
            names = [str(name) for name in json.loads(note)]
        except (ValueError, TypeError):
            names = [ALL]
        self._finish(names)
        self.end()


def _refuse_stopped() -> None:
    stop = STOP.get()
    if stop is not None and stop.is_set():
        raise MemoryRefused("stopped before anything was written", reason=STOPPED)
