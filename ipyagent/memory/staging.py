"""A dream works on a copy. What it made of it goes into the memory file by file, each only if the file is still
the one that was copied: memories that people or agents saved meanwhile win.

What is written comes before what is deleted, and when one write gave way nothing is deleted: no text is lost,
wherever it ends.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path

import msgspec

from ipyagent.errors import MemoryRefused, UsageError
from ipyagent.memory.confined import Confined
from ipyagent.memory.dream_record import (
    BY,
    DREAMS,
    RECORD,
    WAITING,
    Change,
    Kind,
    Record,
    Waiting,
    all_digests,
    digest_of,
    digests,
    keep,
    waiting_in,
)
from ipyagent.memory.files import Store, Written
from ipyagent.memory.history import NEW
from ipyagent.memory.names import INDEX, SUFFIX

_COPY = re.compile(r"[0-9a-f]{12}")


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
        self.copy = Store(_folder(store, name), store.scope, versions=1, vouch=store.vouch)

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
                    base[file] = digest_of(content)
        return cls(store, name, base)

    @classmethod
    def of(cls, store: Store, waiting: Waiting) -> Staging:
        """The copy of a dream that waits for a yes. Raises UsageError when it is gone."""
        if not _COPY.fullmatch(waiting.copy) or not _folder(store, waiting.copy).is_dir():
            raise UsageError("what that dream made is gone; %memory dream starts another")
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
        keep(self.store, WAITING, msgspec.json.encode(made))
        return made

    def commit(self, session: str, changes: Iterable[Change]) -> Committed:
        """Bring the changes into the memory, after a snapshot of it."""
        changes, store = tuple(changes), self.store
        done: list[Change] = []
        written: list[Written] = []
        kept: list[str] = []
        with store.lock():
            there = all_digests(store)
            planned = {name: digest for name, digest in there.items() if name not in {change.old for change in changes}}
            planned |= {change.name: change.after for change in changes}
            planned = {name: digest for name, digest in planned.items() if digest}
            record = Record(session=session, at=time.time(), snapshot=store.snapshot().name, after=planned)
            keep(store, RECORD, msgspec.json.encode(record))  # before the first change: a killed commit is undone too
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
            record = msgspec.structs.replace(record, after=all_digests(store), changes=tuple(done))
            keep(store, RECORD, msgspec.json.encode(record))
        return Committed(written=tuple(written), done=tuple(done), kept=tuple(kept))

    def drop(self) -> None:
        """Remove the copy, and the note that it waits."""
        with self.store.lock():
            waiting = waiting_in(self.store)
            if waiting is not None and waiting.copy == self.name:
                Confined(self.store.folder).remove(WAITING)
            Confined(self.store.folder).remove_tree(f"{DREAMS}/{self.name}")

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


def _unchanged(store: Store, name: str, digest: str) -> None:
    if store.read(name).digest != digest:
        raise MemoryRefused(f"{name} has changed meanwhile: start another with %memory dream", reason="changed")


def _sweep(store: Store, files: Confined) -> None:
    """Remove the copies that nobody works on or waits for any more."""
    waiting = waiting_in(store)
    for name in files.names(DREAMS):
        if _COPY.fullmatch(name) and (waiting is None or name != waiting.copy):
            files.remove_tree(f"{DREAMS}/{name}")


def _folder(store: Store, name: str) -> Path:
    return store.folder / DREAMS / name
