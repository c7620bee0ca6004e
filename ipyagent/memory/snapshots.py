"""Copies of a whole memory directory, byte for byte, under `.history/snapshots/`; the newest few are kept.

A copy is made under another name and renamed when it is whole. Used under the store's lock.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from ipyagent.errors import MemoryRefused
from ipyagent.memory.confined import SandboxedDir
from ipyagent.memory.history import HISTORY, NEW

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
