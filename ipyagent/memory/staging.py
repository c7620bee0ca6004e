"""A dream works on a copy. What it made of it goes into the memory file by file, each only if the file is still
the one that was copied: memories that people or agents saved meanwhile win.

What is written comes before what is deleted, and when one write gave way nothing is deleted: no text is lost,
wherever it ends. What there was before is kept whole, and comes back byte for byte.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from ipyagent.errors import MemoryRefused, UsageError
from ipyagent.memory.confined import Confined
from ipyagent.memory.files import Store, Written
from ipyagent.memory.history import HISTORY, NEW
from ipyagent.memory.names import INDEX, SUFFIX
from ipyagent.memory.snapshots import SNAPSHOTS

DREAMS = f"{HISTORY}/dreams"
RECORD = f"{DREAMS}/last.json"
WAITING = f"{DREAMS}/waiting.json"
BY = "dream"
MOST_RECORD = 50_000_000
_COPY = re.compile(r"[0-9a-f]{12}")

Kind = Literal["created", "changed", "renamed", "deleted"]


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A dream that was dreamed and waits for the user's yes: the copy's name, what it would do, and `why`."""

    copy: str
    session: str
    at: float
    why: str
    base: dict[str, str]
    changes: tuple[Change, ...]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The dream that was committed last: the snapshot from before it, and the digest of every file after it."""

    session: str
    at: float
    snapshot: str
    after: dict[str, str]
    changes: tuple[Change, ...] = ()
    undone: bool = False
    """What was done last is the undoing of it; undoing that brings it back."""


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """`written` as it was done, in order; `kept` names what was saved meanwhile and therefore stayed, also what
    was not deleted because of it."""

    written: tuple[Written, ...]
    done: tuple[Change, ...]
    kept: tuple[str, ...]


class Staging:
    """The copy that one dream works on, inside the memory's own hidden folder."""

    def __init__(self, store: Store, name: str, base: dict[str, str]) -> None:
        self.store = store
        self.name = name
        self.base = base
        """Digest of each memory, the index apart, as it was copied."""
        self.copy = Store(_folder(store, name), store.scope, versions=1)

    def __repr__(self) -> str:
        return f"<Staging {self.name} of {self.store!r}>"

    @classmethod
    def make(cls, store: Store) -> Staging:
        """Copy the directory as it is at this moment; copies that killed dreams left are removed first."""
        name, files = secrets.token_hex(6), Confined(store.folder)
        with store.lock():
            _sweep(store, files)
            base: dict[str, str] = {}
            for file, status in list(files.walk()):
                content = files.read(file)
                if content is None:
                    continue
                files.replace(f"{DREAMS}/{name}/{file}", content, f"{NEW}/copy", durable=False)
                files.touch(f"{DREAMS}/{name}/{file}", status.st_mtime_ns)
                if file.endswith(SUFFIX) and file != INDEX:
                    base[file] = _digest(content)
        return cls(store, name, base)

    @classmethod
    def of(cls, store: Store, waiting: Waiting) -> Staging:
        """The copy of a dream that waits for a yes. Raises UsageError when it is gone."""
        if not _COPY.fullmatch(waiting.copy) or not _folder(store, waiting.copy).is_dir():
            raise UsageError("what that dream made is gone; %memory dream dreams anew")
        return cls(store, waiting.copy, waiting.base)

    def changes(self) -> tuple[Change, ...]:
        """What became of the copy: renames, then what is new and changed, then what is gone; by name."""
        mended = self.copy.mend(by=BY)  # headers that cannot be read, and the index
        assert mended is not None
        now = digests(self.copy)
        gone = {name: digest for name, digest in self.base.items() if name not in now}
        moved: list[Change] = []
        for name, digest in sorted(now.items()):
            old = next((each for each, kept in gone.items() if kept == digest), None) if name not in self.base else None
            if old is not None:
                del gone[old]
                moved.append(Change(name=name, kind="renamed", old=old, before=digest, after=digest))
        names = {change.name for change in moved}
        made: list[Change] = []
        for name, digest in sorted(now.items()):
            before = self.base.get(name, "")
            if name not in names and digest != before:
                kind: Kind = "changed" if before else "created"
                made.append(Change(name=name, kind=kind, before=before, after=digest, lines=self._lines(name)))
        left = [Change(name=name, kind="deleted", before=digest) for name, digest in sorted(gone.items())]
        return (*moved, *made, *left)

    def wait(self, session: str, why: str, changes: tuple[Change, ...]) -> Waiting:
        """Keep the copy for the user's yes."""
        made = Waiting(copy=self.name, session=session, at=time.time(), why=why, base=self.base, changes=changes)
        _keep(self.store, WAITING, msgspec.json.encode(made))
        return made

    def commit(self, session: str, changes: Iterable[Change]) -> Committed:
        """Bring the changes into the memory, after a snapshot of it."""
        changes, store = tuple(changes), self.store
        done: list[Change] = []
        written: list[Written] = []
        kept: list[str] = []
        with store.lock():
            there = _all(store)
            planned = {name: digest for name, digest in there.items() if name not in {change.old for change in changes}}
            planned |= {change.name: change.after for change in changes}
            planned = {name: digest for name, digest in planned.items() if digest}
            record = Record(session=session, at=time.time(), snapshot=store.snapshot().name, after=planned)
            _keep(store, RECORD, msgspec.json.encode(record))  # before the first change: a killed commit is undone too
            for change in changes:
                if change.kind == "deleted" and kept:
                    kept.append(change.name)
                    continue
                try:
                    written.append(self._commit(change))
                    done.append(change)
                except MemoryRefused as problem:
                    if problem.reason not in ("changed", "exists", "missing"):
                        raise
                    kept.append(change.old or change.name)
            store.mend(by=BY)
            files = Confined(store.folder)
            if waiting_in(store) is not None:  # it was made of what is no more
                files.remove(WAITING)
            record = msgspec.structs.replace(record, after=_all(store), changes=tuple(done))
            _keep(store, RECORD, msgspec.json.encode(record))
        return Committed(written=tuple(written), done=tuple(done), kept=tuple(kept))

    def drop(self) -> None:
        """Remove the copy, and the note that it waits."""
        with self.store.lock():
            waiting = waiting_in(self.store)
            if waiting is not None and waiting.copy == self.name:
                Confined(self.store.folder).remove(WAITING)
            shutil.rmtree(_folder(self.store, self.name), ignore_errors=True)

    def _commit(self, change: Change) -> Written:
        """One change, if its file is still the one that was copied. Raises MemoryRefused; under the lock."""
        store = self.store
        match change.kind:
            case "deleted":
                return store.delete(change.name, by=BY, expected=change.before)
            case "renamed":
                _unchanged(store, change.old, change.before)
                return store.rename(change.old, change.name, by=BY)
            case "changed":
                _unchanged(store, change.name, change.before)
                text = self.copy.read(change.name).text
                return store.write(change.name, text, expected=change.before, by=BY)
            case "created":
                return store.write(change.name, self.copy.read(change.name).text, expected=None, by=BY)

    def _lines(self, name: str) -> tuple[int, int]:
        """Lines that come and that go."""
        before = ""
        with suppress(MemoryRefused):
            before = self.store.read(name).text
        diff = list(unified_diff(before.splitlines(), self.copy.read(name).text.splitlines(), n=0, lineterm=""))[2:]
        return sum(line.startswith("+") for line in diff), sum(line.startswith("-") for line in diff)


def deleted_share(base: int, changes: Iterable[Change]) -> float:
    """The part of so many files that these changes delete."""
    return sum(change.kind == "deleted" for change in changes) / base if base else 0.0


def waiting_in(store: Store) -> Waiting | None:
    """The dream that waits for a yes; None when there is none."""
    content = _kept(store, WAITING)
    with suppress(msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(content, type=Waiting) if content else None
    return None


def record_in(store: Store) -> Record | None:
    """The dream that was committed last; None when there was none."""
    content = _kept(store, RECORD)
    with suppress(msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(content, type=Record) if content else None
    return None


def undo(store: Store) -> tuple[Record, tuple[str, ...]]:
    """Make the memory what it was before the last dream, byte for byte; what others saved or deleted since stays so:
    the names of that. Undoing again brings the dream's work back. Raises UsageError, MemoryRefused."""
    with store.lock():
        record = record_in(store)
        if record is None:
            raise UsageError("there was no dream here that could be undone")
        snapshot = store.folder / SNAPSHOTS / record.snapshot
        if not snapshot.is_dir():
            raise UsageError(f"the snapshot from before that dream is gone ({record.snapshot}); see %memory history")
        files = Confined(store.folder)
        old = {name: _digest(Confined(snapshot).read(name) or b"") for name, _ in Confined(snapshot).walk()}
        now = _all(store)
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
            after=_all(store),
            changes=record.changes,
            undone=not record.undone,
        )
        _keep(store, RECORD, msgspec.json.encode(made))
    return record, tuple(since)


def digests(store: Store) -> dict[str, str]:
    """The digest of each memory, the index apart."""
    return {name: digest for name, digest in _all(store).items() if name.endswith(SUFFIX) and name != INDEX}


def _all(store: Store) -> dict[str, str]:
    files = Confined(store.folder)
    return {name: _digest(files.read(name) or b"") for name, _ in files.walk()}


def _unchanged(store: Store, name: str, digest: str) -> None:
    if store.read(name).digest != digest:
        raise MemoryRefused(f"{name} has changed meanwhile", reason="changed")


def _sweep(store: Store, files: Confined) -> None:
    """Remove the copies that nobody works on or waits for any more."""
    waiting = waiting_in(store)
    for name in files.names(DREAMS):
        if _COPY.fullmatch(name) and (waiting is None or name != waiting.copy):
            shutil.rmtree(_folder(store, name), ignore_errors=True)


def _folder(store: Store, name: str) -> Path:
    return store.folder / DREAMS / name


def _keep(store: Store, name: str, content: bytes) -> None:
    with store.lock():
        Confined(store.folder).replace(name, content, f"{NEW}/dream")


def _kept(store: Store, name: str) -> bytes | None:
    try:
        return Confined(store.folder).read(name, MOST_RECORD)
    except MemoryRefused:
        return None


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
