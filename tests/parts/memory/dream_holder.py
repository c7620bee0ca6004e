"""A process of its own that takes the lock of a memory directory, or dreams in it up to some point, and stays
there: its parent kills it. `python dream_holder.py FOLDER WHERE`; it writes "there" when it is there."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipyagent.parts.memory.dream_workspace import DreamWorkspace
from ipyagent.parts.memory.store import MemoryStore, WriteResult
from ipyagent.parts.memory.transaction import DreamLock


def stay() -> None:
    print("there", flush=True)
    time.sleep(60)


class Halting(MemoryStore):
    """Halts before it does for the second time what `where` says."""

    def __init__(self, folder: Path, where: str) -> None:
        super().__init__(folder, "project")
        self._where, self._left = where, 2

    def _count(self, name: str) -> None:
        self._left -= name == self._where
        if not self._left and name == self._where:
            stay()

    def write(self, *args: Any, **kwargs: Any) -> WriteResult:
        self._count("writing")
        return super().write(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> WriteResult:
        self._count("deleting")
        return super().delete(*args, **kwargs)

    def snapshot(self) -> Path:
        made = super().snapshot()
        if self._where == "snapshot":
            stay()
        return made


def dream(folder: Path, where: str) -> None:
    store = Halting(folder, where)
    taken = DreamLock(folder, store.lock).acquire()
    if where == "taken":
        stay()
    staging = DreamWorkspace.make(store)
    if where == "copied":
        stay()
    for name in ("a.md", "b.md"):
        staging.copy.change(name, lambda text: text + "\nDreamed.\n", by="dream")
    for name in ("c.md", "d.md"):
        staging.copy.delete(name, by="dream")
    if where == "dreamed":
        stay()
    staging.commit("session", staging.changes())
    if where == "committed":
        stay()
    taken.succeed()
    staging.drop()
    stay()


def race(folder: Path, begin: float) -> None:
    from ipyagent.errors import MemoryRefused

    lock = DreamLock(folder, MemoryStore(folder, "project").lock)
    time.sleep(max(0.0, begin - time.time()))
    try:
        lock.acquire()
    except MemoryRefused as problem:
        print(problem.reason, flush=True)
    else:
        stay()


if __name__ == "__main__":
    place, where = Path(sys.argv[1]), sys.argv[2]
    work: Callable[[], None] = (lambda: race(place, float(where[5:]))) if where.startswith("race ") else (
        lambda: dream(place, where)
    )
    work()
