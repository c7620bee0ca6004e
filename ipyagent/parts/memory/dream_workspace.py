"""A dream works on a copy. What it made of it goes into the memory file by file, each only if the file is still
the one that was copied: memories that people or agents saved meanwhile win.

What is written comes before what is deleted, and when one write gave way nothing is deleted: no text is lost,
wherever it ends.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from ipyagent.errors import MemoryRefused, UsageError
from ipyagent.frontmatter import read_headed
from ipyagent.parts.memory.metadata_index import digest_of, word_of
from ipyagent.parts.memory.provenance import ProvenanceIndex, ProvenanceLabel, added, parts, restates, worst
from ipyagent.parts.memory.quotation import Quote, Typed
from ipyagent.parts.memory.safe_paths import INDEX, SUFFIX, SandboxedDir
from ipyagent.parts.memory.store import MemoryStore, WriteResult
from ipyagent.parts.memory.tokenizer import bare
from ipyagent.parts.memory.transaction import HISTORY, NEW, SNAPSHOTS, copied

DREAMS = f"{HISTORY}/dreams"
RECORD = f"{DREAMS}/last.json"
WAITING = f"{DREAMS}/waiting.json"
BY = "dream"
MOST_RECORD = 50_000_000

Kind = Literal["created", "changed", "renamed", "deleted"]
T = TypeVar("T")


class DreamChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a dream made of one memory. `before` and `after` are digests, "" where there is no file; `old` is the
    name before a rename."""

    name: str
    kind: Kind
    old: str = ""
    before: str = ""
    after: str = ""


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
    return _kept(store, WAITING, PendingDream)


def record_in(store: MemoryStore) -> Record | None:
    """The dream that was committed last; None when there was none."""
    return _kept(store, RECORD, Record)


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
        old, now = all_digests(snapshot), all_digests(store.folder)
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
            store.index.mend(by=BY)
        after, undone = all_digests(store.folder), not record.undone
        made = msgspec.structs.replace(record, at=time.time(), snapshot=before.name, after=after, undone=undone)
        _keep(store, RECORD, made)
    return record, tuple(since)


def digests(store: MemoryStore) -> dict[str, str]:
    """The digest of each memory, the index apart."""
    every = all_digests(store.folder).items()
    return {name: digest for name, digest in every if name.endswith(SUFFIX) and name != INDEX}


def all_digests(folder: Path) -> dict[str, str]:
    """The digest of every file that is not hidden."""
    files = SandboxedDir(folder)
    return {name: digest_of(files.read(name) or b"") for name, _ in files.walk()}


def _keep(store: MemoryStore, name: str, kept: PendingDream | Record) -> None:
    with store.lock():
        SandboxedDir(store.folder).replace(name, msgspec.json.encode(kept), f"{NEW}/dream")


def _kept(store: MemoryStore, name: str, kind: type[T]) -> T | None:
    with suppress(msgspec.DecodeError, MemoryRefused):
        content = SandboxedDir(store.folder).read(name, MOST_RECORD)
        return msgspec.json.decode(content, type=kind) if content else None
    return None


_COPY = re.compile(r"[0-9a-f]{12}")


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """`written` as it was done, in order; `kept` names what was saved meanwhile and therefore stayed, also what
    was not deleted because of it."""

    written: tuple[WriteResult, ...]
    done: tuple[DreamChange, ...]
    kept: tuple[str, ...]


class DreamWorkspace:
    """The copy that one dream works on, inside the memory's own hidden folder."""

    def __init__(self, store: MemoryStore, name: str, base: dict[str, str]) -> None:
        self.store = store
        self.name = name
        self.base = base
        """Digest of each memory, the index apart, as it was copied."""
        self.copy = MemoryStore(store.folder / DREAMS / name, store.scope, versions=1, vouch=store.vouch)

    def __repr__(self) -> str:
        return f"<DreamWorkspace {self.name} of {self.store!r}>"

    @classmethod
    def make(cls, store: MemoryStore) -> DreamWorkspace:
        """Copy the directory as it is at this moment; copies that killed dreams left are removed first."""
        name, files = secrets.token_hex(6), SandboxedDir(store.folder)
        with store.lock():
            waiting = waiting_in(store)
            for left in files.names(DREAMS):
                if _COPY.fullmatch(left) and (waiting is None or left != waiting.copy):
                    files.remove_tree(f"{DREAMS}/{left}")
            every = {file: digest_of(content) for file, content in copied(files, f"{DREAMS}/{name}")}
        base = {file: digest for file, digest in every.items() if file.endswith(SUFFIX) and file != INDEX}
        return cls(store, name, base)

    @classmethod
    def of(cls, store: MemoryStore, waiting: PendingDream) -> DreamWorkspace:
        """The copy of a dream that waits for a yes. Raises UsageError when it is gone."""
        if not _COPY.fullmatch(waiting.copy) or not (store.folder / DREAMS / waiting.copy).is_dir():
            raise UsageError("that dream's result no longer exists; %memory dream starts another")
        return cls(store, waiting.copy, waiting.base)

    def changes(self) -> tuple[DreamChange, ...]:
        """What became of the copy: renames, then what is new and changed, then what is gone; by name."""
        self.copy.index.mend(by=BY)  # headers that cannot be read, and the index
        now = digests(self.copy)
        gone = {name: digest for name, digest in self.base.items() if name not in now}
        moved: list[DreamChange] = []
        for name, digest in sorted(now.items()):
            old = next((each for each, kept in gone.items() if kept == digest), None) if name not in self.base else None
            if old is not None:
                del gone[old]
                moved.append(DreamChange(name=name, kind="renamed", old=old, before=digest, after=digest))
        names = {change.name for change in moved}
        made: list[DreamChange] = []
        for name, digest in sorted(now.items()):
            before = self.base.get(name, "")
            if name not in names and digest != before:
                kind: Kind = "changed" if before else "created"
                made.append(DreamChange(name=name, kind=kind, before=before, after=digest))
        left = [DreamChange(name=name, kind="deleted", before=digest) for name, digest in sorted(gone.items())]
        return (*moved, *made, *left)

    def wait(self, session: str, why: str, changes: tuple[DreamChange, ...]) -> PendingDream:
        """Keep the copy for the user's yes."""
        made = PendingDream(copy=self.name, session=session, at=time.time(), why=why, base=self.base, changes=changes)
        _keep(self.store, WAITING, made)
        return made

    def commit(self, session: str, changes: Iterable[DreamChange]) -> Committed:
        """Bring the changes into the memory, after a snapshot of it."""
        changes, store = tuple(changes), self.store
        done: list[DreamChange] = []
        written: list[WriteResult] = []
        kept: list[str] = []
        with store.lock():
            planned = {
                **all_digests(store.folder), **{change.old: "" for change in changes},
                **{change.name: change.after for change in changes},
            }  # fmt: skip
            planned = {name: digest for name, digest in planned.items() if digest}
            record = Record(session=session, at=time.time(), snapshot=store.snapshot().name, after=planned)
            _keep(store, RECORD, record)  # before the first change: a killed commit is undone too
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
            store.index.mend(by=BY)
            if waiting_in(store) is not None:  # it was made of what is no more
                SandboxedDir(store.folder).remove(WAITING)
            record = msgspec.structs.replace(record, after=all_digests(store.folder), changes=tuple(done))
            _keep(store, RECORD, record)
        return Committed(written=tuple(written), done=tuple(done), kept=tuple(kept))

    def drop(self) -> None:
        """Remove the copy, and the note that it waits."""
        with self.store.lock():
            waiting = waiting_in(self.store)
            if waiting is not None and waiting.copy == self.name:
                SandboxedDir(self.store.folder).remove(WAITING)
            SandboxedDir(self.store.folder).remove_tree(f"{DREAMS}/{self.name}")

    def _commit(self, change: DreamChange) -> WriteResult:
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


def _unchanged(store: MemoryStore, name: str, digest: str) -> None:
    if store.read(name).digest != digest:
        raise MemoryRefused(f"{name} has changed meanwhile: start another with %memory dream", reason="changed")


TRUST = ("quoted", "claimed", "inferred", "said")
Weigh: TypeAlias = Callable[[Sequence[str], Sequence[Quote], Sequence[str]], ProvenanceLabel]


class Merged:
    """What tidying reworks: the sentences of the memories that there were, each with its source."""

    def __init__(
        self, memories: Iterable[tuple[str, str]], transcripts: Callable[[Sequence[str]], Sequence[Typed]]
    ) -> None:
        self._texts: list[tuple[str, list[str]]] = []
        self._grounds: dict[str, ProvenanceIndex] = {}
        for source, text in memories:
            headed = read_headed(text.encode("utf-8", "replace"))
            told, asides = parts(word_of(headed.fields.get("description")), headed.body)
            self._texts.append((source, told))
            if source != "said":
                self._grounds.setdefault(source, ProvenanceIndex()).distrust([*told, *asides], enough=0)
        self._own = [sentence for source, told in self._texts if source == "said" for sentence in told]
        self._known = {bare(sentence) for sentence in self._own}
        self.transcripts = transcripts

    def origin(
        self, new: Sequence[str], asides: Sequence[str], was: Sequence[str], quotes: Sequence[Quote], weigh: Weigh
    ) -> ProvenanceLabel:
        """The least trusted source of what a memory had (`was`: none if it is new) and of what comes into it, and the
        sentence of that; what is in none of the memories is weighed, with the words of the user's that it had
        (`quotes`). "": none is known, as before."""
        words = [each.words for each in quotes]
        sources, sentence = self._distrusted(new, asides, words)
        left: list[str] = []
        for each in new:
            plain = bare(each)
            same = [source for source, there in self._texts if any(plain == bare(other) for other in there)]
            same = same or [source for source, there in self._texts if any(restates(each, other) for other in there)]
            if same:
                sources.append(max(same, key=lambda source: TRUST.index(worst(source))))
            else:
                left.append(each)
        if left:
            found = weigh(left, quotes, asides)
            invented = added(left, [*words, *self._own]) if found.source == "said" else []
            sources.append("inferred" if invented else found.source)
            sentence = sentence or (invented[0].strip() if invented else found.sentence)
        sources += was
        least = worst("said", *sources)
        unknown = least == "inferred" and "" in sources and "inferred" not in sources
        return ProvenanceLabel("" if unknown else least, sentence)

    def raised(self, told: Sequence[str], asides: Sequence[str], found: Sequence[Quote], weigh: Weigh) -> bool:
        """Whether words of the user that were found make all that a memory says theirs."""
        distrusted, _ = self._distrusted(told, asides, [each.words for each in found])
        return bool(found) and not distrusted and weigh(told, found, asides).source == "said"

    def _distrusted(self, told: Sequence[str], asides: Sequence[str], words: Sequence[str]) -> tuple[list[str], str]:
        """The sources, other than the user, of the memories from which something comes into these sentences."""
        new = [each for each in told if bare(each) not in self._known]
        sources, sentence = list[str](), ""
        for source, ground in self._grounds.items():
            found = ground.origin(new, [*words, *self._own], asides=asides)
            if found.source == "quoted":
                sources.append(source)
                sentence = sentence or found.sentence
        return sources, sentence
