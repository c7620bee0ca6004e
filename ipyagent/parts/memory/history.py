"""What a memory was before each change: the last versions of each, restorable, also of a deleted one.

A version is the file that was replaced, under a second name in `.history/versions/<name>/`; only without hard
links is it copied. Written under the store's lock."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from ipyagent.errors import MemoryRefused
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

    def __repr__(self) -> str:
        return f"<MemoryHistory of {self._files.root}>"

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
        found = []
        for file in self._files.names(f"{VERSIONS}/{name}"):
            match = _ENTRY.fullmatch(file)
            if match is not None:
                found.append(_Entry(int(match[1]), int(match[2]), match[3], match[4], file))
        return sorted(found)


# ---- Copies of a whole memory directory, byte for byte, under `.history/snapshots/`; the newest few are kept. A
# copy is made under another name and renamed when it is whole. Used under the store's lock.

SNAPSHOTS = f"{HISTORY}/snapshots"
MOST = 5
_NAME = re.compile(r"\d{8}-\d{6}-\d{3,}")
_HALF = "half-made"


def take(files: SandboxedDir) -> Path:
    """Copy all files but hidden ones; returns the folder of the copy."""
    for left in files.names(SNAPSHOTS):
        if left == _HALF:  # its maker was killed
            files.remove_tree(f"{SNAPSHOTS}/{left}")
    copy = f"{SNAPSHOTS}/{_HALF}"
    with files.spot(f"{copy}/x", make=True):
        pass
    for name, status in list(files.walk()):
        content = files.read(name)
        if content is not None:
            files.replace(f"{copy}/{name}", content, f"{NEW}/copy", durable=False)
            files.touch(f"{copy}/{name}", status.st_mtime_ns)
    there = sorted(filter(_NAME.fullmatch, files.names(SNAPSHOTS)), key=_number)
    number = _number(there[-1]) + 1 if there else 1
    made = f"{SNAPSHOTS}/{time.strftime('%Y%m%d-%H%M%S')}-{number:03d}"
    files.move(copy, made)
    for old in there[: max(0, len(there) + 1 - MOST)]:
        files.remove_tree(f"{SNAPSHOTS}/{old}")
    return files.root / made


def inside(files: SandboxedDir, snapshot: Path) -> str:
    """The name of a snapshot's folder. Raises MemoryRefused when it is none of this store's."""
    name = f"{SNAPSHOTS}/{snapshot.name}"
    if not _NAME.fullmatch(snapshot.name) or snapshot != files.root / name:
        raise MemoryRefused(f"{snapshot} is no snapshot of {files.root}; see %memory history", reason="place")
    if snapshot.name not in files.names(SNAPSHOTS):
        raise MemoryRefused(
            f"the snapshot {snapshot.name} is gone, the last {MOST} are kept; see %memory history", reason="missing"
        )
    return name


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
