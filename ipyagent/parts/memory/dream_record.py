"""What is kept of dreams, in the memory's own hidden folder: the one that waits for a yes, and the last one, which
can be undone. What there was before it is kept whole, and comes back byte for byte.
"""

from __future__ import annotations

import time
from contextlib import suppress
from hashlib import sha256
from typing import Literal

import msgspec

from ipyagent.errors import MemoryRefused, UsageError
from ipyagent.parts.memory.history import HISTORY, NEW, SNAPSHOTS
from ipyagent.parts.memory.names import INDEX, SUFFIX
from ipyagent.parts.memory.safe_paths import SandboxedDir
from ipyagent.parts.memory.store import MemoryStore

DREAMS = f"{HISTORY}/dreams"
RECORD = f"{DREAMS}/last.json"
WAITING = f"{DREAMS}/waiting.json"
BY = "dream"
MOST_RECORD = 50_000_000

Kind = Literal["created", "changed", "renamed", "deleted"]


class DreamChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a dream made of one memory. `before` and `after` are digests, "" where there is no file; `old` is the
    name before a rename; `lines` how many lines come and go."""

    name: str
    kind: Kind
    old: str = ""
    before: str = ""
    after: str = ""
    lines: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        plus, minus = self.lines
        of_it = f" (+{plus} -{minus} lines)" if self.kind == "changed" else f" from {self.old}" if self.old else ""
        return f"{self.kind} {self.name}{of_it}"


class PendingDream(msgspec.Struct, frozen=True, kw_only=True):
    """A dream that was dreamed and waits for the user's yes: the copy's name, what it would do, and `why`."""

    copy: str
    session: str
    at: float
    why: str
    base: dict[str, str]
    changes: tuple[DreamChange, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The dream that was committed last: the snapshot from before it, and the digest of every file after it."""

    session: str
    at: float
    snapshot: str
    after: dict[str, str]
    changes: tuple[DreamChange, ...] = ()
    undone: bool = False
    """What was done last is the undoing of it; undoing that brings it back."""


def waiting_in(store: MemoryStore) -> PendingDream | None:
    """The dream that is waiting for approval; None when there is none."""
    content = _kept(store, WAITING)
    with suppress(msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(content, type=PendingDream) if content else None
    return None


def record_in(store: MemoryStore) -> Record | None:
    """The dream that was committed last; None when there was none."""
    content = _kept(store, RECORD)
    with suppress(msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(content, type=Record) if content else None
    return None


def undo(store: MemoryStore) -> tuple[Record, tuple[str, ...]]:
    """Make the memory what it was before the last dream, byte for byte; what others saved or deleted since stays so:
    the names of that. Undoing again brings the dream's work back. Raises UsageError, MemoryRefused."""
    with store.lock():
        record = record_in(store)
        if record is None:
            raise UsageError("no dream to undo here; %memory undo undoes a single change")
        snapshot = store.folder / SNAPSHOTS / record.snapshot
        if not snapshot.is_dir():
            raise UsageError(f"the snapshot from before that dream is gone ({record.snapshot}); see %memory history")
        files = SandboxedDir(store.folder)
        old = {name: digest_of(SandboxedDir(snapshot).read(name) or b"") for name, _ in SandboxedDir(snapshot).walk()}
        now = all_digests(store)
        newer = [name for name, digest in now.items() if digest not in (old.get(name), record.after.get(name))]
        since: dict[str, bytes | None] = {name: files.read(name) for name in newer}
        since |= {name: None for name in record.after if name in old and name not in now}
        since.pop(INDEX, None)  # it follows the files
        before = store.put_back(snapshot, by=BY)
        for name, content in since.items():
            if content is not None:
                files.replace(name, content, f"{NEW}/dream")
            elif store.exists(name):
                store.delete(name, by=BY)
        if since:
            store.mend(by=BY)
        made = Record(
            session=record.session,
            at=time.time(),
            snapshot=before.name,
            after=all_digests(store),
            changes=record.changes,
            undone=not record.undone,
        )
        keep(store, RECORD, msgspec.json.encode(made))
    return record, tuple(since)


def digests(store: MemoryStore) -> dict[str, str]:
    """The digest of each memory, the index apart."""
    return {name: digest for name, digest in all_digests(store).items() if name.endswith(SUFFIX) and name != INDEX}


def all_digests(store: MemoryStore) -> dict[str, str]:
    """The digest of every file that is not hidden."""
    files = SandboxedDir(store.folder)
    return {name: digest_of(files.read(name) or b"") for name, _ in files.walk()}


def keep(store: MemoryStore, name: str, content: bytes) -> None:
    """Write one of the two."""
    with store.lock():
        SandboxedDir(store.folder).replace(name, content, f"{NEW}/dream")


def _kept(store: MemoryStore, name: str) -> bytes | None:
    try:
        return SandboxedDir(store.folder).read(name, MOST_RECORD)
    except MemoryRefused:
        return None


def digest_of(content: bytes) -> str:
    """As `MemoryStore` names a content."""
    return sha256(content).hexdigest()
