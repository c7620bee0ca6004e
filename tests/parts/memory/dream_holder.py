"""A process of its own that takes locks of memory directories, or dreams in them up to some point.

`python dream_holder.py hold FOLDER` writes "there" and stays until its parent kills it; `race COUNT FOLDER` lets so
many processes want one lock at once, and each writes what came of it; `die FOLDER …` dreams in each folder in a
process that kills itself at the phase after which the folder is named.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipyagent.errors import MemoryRefused
from ipyagent.parts.memory.dream_workspace import DreamWorkspace
from ipyagent.parts.memory.store import MemoryStore, WriteResult
from ipyagent.parts.memory.transaction import DreamLock


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(MemoryStore):
    """Dies before it does for the second time what `where` says."""

    def __init__(self, folder: Path, where: str) -> None:
        super().__init__(folder, "project")
        self._where, self._left = where, 2

    def _count(self, name: str) -> None:
        self._left -= name == self._where
        if not self._left and name == self._where:
            die()

    def write(self, *args: Any, **kwargs: Any) -> WriteResult:
        self._count("writing")
        return super().write(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> WriteResult:
        self._count("deleting")
        return super().delete(*args, **kwargs)

    def snapshot(self) -> Path:
        made = super().snapshot()
        if self._where == "snapshot":
            die()
        return made


def dream(folder: Path) -> None:
    where = folder.name
    store = Mortal(folder, where)
    lock = DreamLock(folder, store.lock).acquire()
    if where == "taken":
        die()
    staging = DreamWorkspace.make(store)
    if where == "copied":
        die()
    for name in ("a.md", "b.md"):
        staging.copy.change(name, lambda text: text + "\nDreamed.\n", by="dream")
    for name in ("c.md", "d.md"):
        staging.copy.delete(name, by="dream")
    if where == "dreamed":
        die()
    staging.commit("session", staging.changes())
    assert lock
    die()


def want(folder: Path, begin: int, end: int) -> None:
    lock = DreamLock(folder, MemoryStore(folder, "project").lock)
    os.close(end)
    os.read(begin, 1)  # until all are there
    try:
        lock.acquire()
    except MemoryRefused as problem:
        os.write(1, f"{problem.reason}\n".encode())
    else:
        os.write(1, b"there\n")
        time.sleep(60)


def in_a_process(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    return child


def race(count: int, folder: Path) -> None:
    begin, end = os.pipe()
    children = {in_a_process(lambda: want(folder, begin, end)) for _ in range(count)}
    os.close(end)
    while len(children) > 1:  # whoever has it stays
        children.discard(os.wait()[0])
    for child in children:
        os.kill(child, signal.SIGKILL)


def main(how: str, *given: str) -> None:
    os.fsync = lambda _: None  # type: ignore[assignment] # a killed process takes nothing from the system
    if how == "die":
        for folder in map(Path, given):
            os.waitpid(in_a_process(lambda folder=folder: dream(folder)), 0)  # type: ignore[misc]
    elif how == "race":
        race(int(given[0]), Path(given[1]))
    else:
        folder = Path(given[0])
        with DreamLock(folder, MemoryStore(folder, "project").lock).acquire():
            print("there", flush=True)
            time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
