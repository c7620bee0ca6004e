"""One writer at a time in a memory directory, and nothing half done: before it touches a file a writer leaves
a note of its name, which it removes when the index is true again. Whoever comes after a killed writer finds
the note and finishes for it. The lock is the system's own, which dies with its holder, see `locks`. What a memory
was before each change is kept: a version is the file that was replaced, under a second name in
`.history/versions/<name>/`; only without hard links is it copied."""

from __future__ import annotations

import json
import os
import platform
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

import msgspec

from ipyagent.errors import MemoryRefused
from ipyagent.locks import Lock, LockHeld, ProcessIdentity
from ipyagent.parts.memory.safe_paths import SandboxedDir

HISTORY = ".history"
NEW = f"{HISTORY}/new"
"""Where files are written before they take their place."""
VERSIONS = f"{HISTORY}/versions"
_ENTRY = re.compile(r"(\d{6,})\.(\d+)\.([a-z0-9-]*)\.([a-z]+)\.md")


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A memory as it was before a change. `revision` names it within the memory's history, `time` (Unix) is
    when it was replaced, `by` who did and `change` how ("changed", "deleted", "renamed", "restored" …); `size`
    in bytes."""

    revision: str
    name: str
    time: float
    by: str
    change: str
    size: int


class _Entry(NamedTuple):
    number: int
    millis: int
    by: str
    change: str
    file: str


class MemoryHistory:
    """The versions of one store's memories; the newest `most` of each are kept."""

    def __init__(self, files: SandboxedDir, most: int) -> None:
        self._files = files
        self._most = most

    def add(self, name: str, content: bytes, *, by: str, change: str, copy: bool = False) -> str:
        """Keep the present file of a memory; returns the revision. `copy`: the file itself goes on being used,
        so a second name for it would not do."""
        there = self._entries(name)
        number = there[-1].number + 1 if there else 1
        who = re.sub(r"[^a-z0-9-]", "", by.lower())[:20]
        how = re.sub(r"[^a-z]", "", change.lower())[:20] or "changed"
        entry = f"{VERSIONS}/{name}/{number:06d}.{int(time.time() * 1000)}.{who}.{how}.md"
        if copy or not self._files.keep(name, entry):
            self._files.replace(entry, content, f"{NEW}/version", durable=False)
        for old in there[: max(0, len(there) + 1 - self._most)]:
            self._files.remove(f"{VERSIONS}/{name}/{old.file}")
        return f"{number:06d}"

    def versions(self, name: str) -> list[Version]:
        """Newest first."""
        made = []
        for number, millis, by, change, file in reversed(self._entries(name)):
            status = self._files.status(f"{VERSIONS}/{name}/{file}")
            if status is not None:
                revision, size = f"{number:06d}", status.st_size
                made.append(Version(revision=revision, name=name, time=millis / 1000, by=by, change=change, size=size))
        return made

    def read(self, name: str, revision: str) -> bytes:
        """The content of a version. Raises MemoryRefused "missing"."""
        for entry in self._entries(name):
            if f"{entry.number:06d}" == revision:
                content = self._files.read(f"{VERSIONS}/{name}/{entry.file}")
                if content is not None:
                    return content
        raise MemoryRefused(f"{name} has no version {revision!r}; see %memory history {name}", reason="missing")

    def move(self, old: str, new: str) -> None:
        """The versions of a renamed memory go along, behind those that the new name has of an earlier one."""
        there = self._entries(new)
        number = there[-1].number if there else 0
        moved = self._entries(old)
        for entry in moved:
            number += 1
            file = entry.file.partition(".")[2]
            self._files.move(f"{VERSIONS}/{old}/{entry.file}", f"{VERSIONS}/{new}/{number:06d}.{file}")
        for entry in there[: max(0, len(there) + len(moved) - self._most)]:
            self._files.remove(f"{VERSIONS}/{new}/{entry.file}")

    def _entries(self, name: str) -> list[_Entry]:
        """Oldest first."""
        found = filter(None, map(_ENTRY.fullmatch, self._files.names(f"{VERSIONS}/{name}")))
        return sorted(_Entry(int(each[1]), int(each[2]), each[3], each[4], each[0]) for each in found)


# ---- Copies of a whole memory directory, byte for byte, under `.history/snapshots/`; the newest few are kept. A
# copy is made under another name and renamed when it is whole. Used under the store's lock.

SNAPSHOTS = f"{HISTORY}/snapshots"
SNAPSHOTS_KEPT = 5
_NAME = re.compile(r"\d{8}-\d{6}-\d{3,}")
_HALF = "half-made"


def take_snapshot(files: SandboxedDir) -> Path:
    """Copy all files but hidden ones; returns the folder of the copy."""
    copy = f"{SNAPSHOTS}/{_HALF}"
    if _HALF in files.names(SNAPSHOTS):  # its maker was killed
        files.remove_tree(copy)
    with files.spot(f"{copy}/x", make=True):
        pass
    for _ in copied(files, copy):
        pass
    there = sorted(filter(_NAME.fullmatch, files.names(SNAPSHOTS)), key=_number)
    number = _number(there[-1]) + 1 if there else 1
    made = f"{SNAPSHOTS}/{time.strftime('%Y%m%d-%H%M%S')}-{number:03d}"
    files.move(copy, made)
    for old in there[: max(0, len(there) + 1 - SNAPSHOTS_KEPT)]:
        files.remove_tree(f"{SNAPSHOTS}/{old}")
    return files.root / made


def copied(files: SandboxedDir, into: str) -> Iterator[tuple[str, bytes]]:
    """Copy all files but hidden ones into a folder of theirs; each that was copied, with its content."""
    for name, status in list(files.walk()):
        content = files.read(name)
        if content is not None:
            files.replace(f"{into}/{name}", content, f"{NEW}/copy", durable=False)
            files.touch(f"{into}/{name}", status.st_mtime_ns)
            yield name, content


def snapshot_path(files: SandboxedDir, snapshot: Path) -> str:
    """The name of a snapshot's folder. Raises MemoryRefused when it is none of this store's."""
    name = f"{SNAPSHOTS}/{snapshot.name}"
    if not _NAME.fullmatch(snapshot.name) or snapshot != files.root / name:
        raise MemoryRefused(f"{snapshot} is no snapshot of {files.root}; see %memory history", reason="place")
    if snapshot.name not in files.names(SNAPSHOTS):
        raise MemoryRefused(
            f"the snapshot {snapshot.name} is gone, the last {SNAPSHOTS_KEPT} are kept; see %memory history",
            reason="missing",
        )
    return name


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


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
        lock, stop = Lock(root / _LOCK, seconds=seconds, poll=0.004), STOP.get()
        try:
            _acquire(lock, self._files, _LOCK, stop.is_set if stop is not None else lambda: False)
        except LockHeld:
            _refuse_stopped()
            told = f"another process has held the lock of {root} for {seconds:.0f} s; try again"
            raise MemoryRefused(told, reason="busy") from None
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


def _acquire(lock: Lock, files: SandboxedDir, name: str, stopped: Callable[[], bool] = lambda: False) -> None:
    """Take the lock of a file of the history, its folders made. Raises LockHeld, MemoryRefused."""
    status = files.make(name)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise MemoryRefused(f"{files.root / name} is a link or a folder; remove it", reason="link")
    try:
        lock.acquire(stopped)
    except LockHeld:
        raise
    except OSError as problem:
        raise MemoryRefused(
            f"{files.root} cannot be locked ({problem}): fix its permissions, or name another folder", reason="disk"
        ) from None


def _refuse_stopped() -> None:
    stop = STOP.get()
    if stop is not None and stop.is_set():
        raise MemoryRefused("stopped before anything was written", reason=STOPPED)


# ---- `.consolidate-lock`: its time of change IS the time of the last consolidation, and nothing sets it but one that
# came to its end. Whoever is at it holds a lock in the history, which dies with its holder, see `locks`: a dream that
# fails or is killed leaves nothing to put back.

NAME = ".consolidate-lock"
_DREAMS = f"{HISTORY}/dreaming"
TRY = 0.1
"""Seconds that the lock is tried for: another who looks whether it is held holds it for a moment."""


class DreamLock:
    """The lock of whoever tidies one memory directory; as a context it is let go of at the end. `guard` is the store's
    lock, held for moments only."""

    def __init__(self, folder: Path, guard: Callable[[], AbstractContextManager[None]]) -> None:
        self.path = folder / NAME
        self._files = SandboxedDir(folder)
        self._guard = guard
        self._lock = Lock(folder / _DREAMS, seconds=TRY)

    def __repr__(self) -> str:
        return f"<DreamLock {self.path}>"

    def __enter__(self) -> DreamLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def last(self) -> float:
        """Unix time of the last consolidation, 0.0 for never: one `stat`. A file that is not empty is the lock of an
        earlier version whose dream was killed: its time is none."""
        try:
            status = os.lstat(self.path)
            return 0.0 if status.st_size else status.st_mtime
        except OSError:  # where it cannot be read it cannot be taken either
            return 0.0

    def holder(self) -> ProcessIdentity | None:
        """Who tidies now; None for nobody, an identity without a pid for somebody who is not known. Raises
        MemoryRefused where a link stands in the way."""
        if self._files.status(_DREAMS) is None:  # nobody ever did: looking makes no file
            return None
        try:
            with self._lock:
                return None
        except LockHeld:
            return self._lock.holder() or ProcessIdentity(0, "", "", "", 0.0, "")
        except OSError:  # there is no such folder
            return None

    def acquire(self) -> DreamLock:
        """Take it. Raises MemoryRefused ("busy") while another tidies."""
        status = self._files.status(NAME)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise MemoryRefused(f"{self.path} is a link or a folder; remove it", reason="link")
        try:
            _acquire(self._lock, self._files, _DREAMS)
        except LockHeld:
            told, holder = "another process is tidying these memories", self._lock.holder()
            if holder is not None and holder.pid:
                where = "" if holder.host == platform.node() else f" on {holder.host}"
                held = self._files.status(_DREAMS)
                since = time.strftime("%H:%M", time.localtime(held.st_mtime if held is not None else None))
                told = f"process {holder.pid}{where} has been tidying these memories since {since}"
            raise MemoryRefused(f"{told}; try again later", reason="busy") from None
        return self

    def succeed(self) -> None:
        """The consolidation is done, now."""
        with self._guard():
            self._files.replace(NAME, b"", f"{NEW}/dream-lock")
        self.release()

    def release(self) -> None:
        """Let go, the time as it was; nothing when it is not held."""
        self._lock.release()
