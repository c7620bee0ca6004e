"""The store of one memory directory: every write is atomic, under a lock across processes, hash-checked, kept
in the history, and followed by the index.

A text that changed since it was read is never overwritten: both are merged.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import MemoryRefused
from ipyagent.frontmatter import decoded
from ipyagent.parts.memory import index as lines
from ipyagent.parts.memory.index import IndexFinding
from ipyagent.parts.memory.metadata_index import (
    CLAIMED,
    LARGE,
    Memory,
    Scan,
    Text,
    digest_of,
    encoded,
    is_conflicted,
    memory_of,
    readable,
    said_below,
    text_in,
)
from ipyagent.parts.memory.safe_paths import INDEX, ROOT, SUFFIX, SandboxedDir, checked_name, same_name
from ipyagent.parts.memory.transaction import (
    ALL,
    HISTORY,
    NEW,
    SECONDS,
    MemoryHistory,
    StoreLock,
    Version,
    snapshot_path,
    take_snapshot,
)

__all__ = ["Memory", "MemoryStore", "Text", "Version", "WriteResult"]

MOST_BYTES = 1_000_000
"""A text that is written."""
MOST_READ = 20_000_000
_STAGING = f"{NEW}/file"
_USES = f"{HISTORY}/uses.json"
_MOVED = f"{HISTORY}/moved.json"
MOST_MOVED = 500
"""Memories of which it is kept where they went, the newest."""


def check_size(path: str, text: str) -> None:
    """Raises MemoryRefused ("size") for a text that is too long to be a memory; before anything looks into it."""
    size = len(text)
    if (size if size > MOST_BYTES else len(encoded(text))) > MOST_BYTES:
        told = f"{path} would be longer than the {MOST_BYTES:,} bytes that a memory has at most; split it"
        raise MemoryRefused(told, reason="size")


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a write did. `change`: "created", "changed", "merged" (what another wrote meanwhile is kept too),
    "unchanged", "deleted", "renamed" or "restored"; `digest` of the new content ("" when deleted); `revision` of
    the version before ("" when there was none), which `MemoryStore.restore` takes."""

    memory: Memory
    change: str
    digest: str = ""
    revision: str = ""


class MemoryStore:
    """One memory directory. Nothing is made before the first write. Errors are MemoryRefused with a `reason`."""

    def __init__(
        self,
        folder: Path,
        scope: str,
        *,
        versions: int = 20,
        prepare: Callable[[], object] | None = None,
        vouch: Callable[[bytes], bool] | None = None,
        wrote: Callable[[Path], object] | None = None,
    ) -> None:
        """`prepare` is called before the first write of a folder that is not there yet (`project.make`); `vouch` tells
        whether a memory that claims to be the user's word was recorded as that (`metadata_index.is_recorded`; None:
        the folder is the user's own); `wrote` is called with each file that was written (`project.knows`)."""
        self.folder = folder
        self.scope = scope
        self.index = Index(self)
        self.vouch = vouch
        self._wrote = wrote
        self._files = SandboxedDir(folder)
        self._scan = Scan(folder, scope, vouch=vouch)
        self._history = MemoryHistory(self._files, versions)
        self._guard = StoreLock(self._files, self._finish, prepare)

    def __repr__(self) -> str:
        return f"<MemoryStore {self.scope} {self.folder}>"

    # ---------------------------------------------------------------- reading

    def list(self) -> list[Memory]:
        """All memories, newest first."""
        self._guard.look()
        return self._scan.memories()

    def glance(self) -> builtins.list[Memory]:
        """The same at a glance (`Scan.glance`): what is to be shown of it has to be asked for with `changed`."""
        self._guard.look()
        return self._scan.glance()

    def changed(self, names: Iterable[str]) -> bool:
        """Whether one of these memories is not as it was when it was listed."""
        return self._scan.changed(names)

    def exists(self, name: str) -> bool:
        """Whether there is a file (or anything else) of this name."""
        return self._files.status(self._files.on_disk(checked_name(name))) is not None

    def free(self, name: str) -> str:
        """The name, or one beside it that nothing has. Raises MemoryRefused ("name")."""
        stem = name.removesuffix(SUFFIX)
        names = (name, *(f"{stem}_{number}{SUFFIX}" for number in range(2, 100)))
        return next((each for each in names if not self.exists(each)), name)

    def alike(self, text: str) -> Iterator[Memory]:
        """The memories that say what a text says, to the letter but for spaces, whatever their headers keep."""
        said = said_below(text)
        for memory in self.list() if said else ():
            with suppress(MemoryRefused):  # it went meanwhile, or nobody may read it
                if said_below(self.read(memory.name).text) == said:
                    yield memory

    def read(self, name: str) -> Text:
        """Raises MemoryRefused ("missing", "name", "link", "folder", "size"). "MEMORY.md" is the index."""
        name = checked_name(name)
        if name == INDEX:
            self._guard.look()
        return text_in(self._content(name))

    def versions(self, name: str) -> builtins.list[Version]:
        """Newest first; of a deleted memory too."""
        return self._history.versions(checked_name(name))

    def version(self, name: str, revision: str) -> Text:
        """A memory as it was. Raises MemoryRefused "missing"."""
        return text_in(self._history.read(checked_name(name), revision))

    def uses(self) -> dict[str, int]:
        """How often each memory was shown to a model, as far as it was counted."""
        return {name: count for name, count in self._object(_USES).items() if isinstance(count, int)}

    def moved(self, name: str) -> str:
        """The path in the tree that a memory was given when it was moved; "" for one that was not. No name is checked
        in what a file says."""
        return str(self._object(_MOVED).get(name, ""))

    def _object(self, file: str) -> dict[str, Any]:
        """A file of the history that holds a JSON object; {} when it was lost, which costs nothing."""
        try:
            found = json.loads(self._files.read(file, MOST_BYTES) or b"{}")
        except (MemoryRefused, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    # ---------------------------------------------------------------- writing

    def used(self, names: Iterable[str]) -> None:
        """Count a use of each of these memories; not while another process writes."""
        with suppress(MemoryRefused), self.lock(0.0):
            uses, there = self.uses(), {memory.name for memory in self._scan.memories()}
            for name in names:
                uses[name] = uses.get(name, 0) + 1
            kept = {name: count for name, count in uses.items() if name in there}
            self._files.replace(_USES, json.dumps(kept).encode(), f"{NEW}/uses", durable=False)

    def write(self, name: str, text: str, *, expected: str | None, by: str) -> WriteResult:
        """Replace the whole text. `expected`: digest it was made from; None: it must be new ("exists" otherwise).
        When the file changed since, both are merged by entry."""
        name = checked_name(name)

        def made(now: bytes | None) -> tuple[bytes, str]:
            if expected is None and now is not None:
                raise MemoryRefused(f"{self._shown(name)} already exists; read it and change it", reason="exists")
            if now is None or expected is None:
                return encoded(text), "created"
            if digest_of(now) == expected:
                return encoded(text), "changed"
            base = self._with_digest(name, expected)
            return encoded(lines.merged(base, self._editable(name, now), text)), "merged"

        return self._put(name, made, by=by)

    def change(self, name: str, edit: Callable[[str], str], *, by: str) -> WriteResult:
        """Apply `edit` to the current text under the lock. What `edit` raises passes through, nothing is written."""
        name = checked_name(name)

        def made(now: bytes | None) -> tuple[bytes, str]:
            if now is None:
                raise self._missing(name)
            before = self._editable(name, now)
            after = edit(before)
            return (now if after == before else encoded(after)), "changed"

        return self._put(name, made, by=by)

    def restore(self, name: str, revision: str, *, by: str) -> WriteResult:
        """Put an earlier version back, of a deleted memory too; what is there becomes a version."""
        name = checked_name(name)
        return self._put(name, lambda now: (self._history.read(name, revision), "restored"), by=by)

    def delete(self, name: str, *, by: str, expected: str | None = None, moved_to: str = "") -> WriteResult:
        """Delete a memory; its history stays. `expected`: only if the content still has this digest ("changed"
        otherwise); `moved_to`: the path in the tree where it is now."""
        name = self._no_index(checked_name(name))
        with self.lock():
            content = self._content(name)
            if expected is not None and digest_of(content) != expected:
                raise MemoryRefused(f"{self._shown(name)} has changed meanwhile; read it again", reason="changed")
            text = self._index_now()
            memory = self._memory(name, content)
            self._guard.begin(name)
            revision = self._history.add(name, content, by=by, change="deleted")
            self._files.remove(self._files.on_disk(name))
            self._files.prune(name)
            self._end(text, lines.revised(text, {name: None}))
            if moved_to:
                self._note_move(name, moved_to)
        return WriteResult(memory=memory, change="deleted", revision=revision)

    def rename(self, old: str, new: str, *, by: str) -> WriteResult:
        """Raises MemoryRefused "missing", "exists" when `new` is there. The history goes along."""
        old, new = self._no_index(checked_name(old)), self._no_index(checked_name(new))
        with self.lock():
            content = self._content(old)
            if old == new:
                return WriteResult(memory=self._memory(old, content), change="unchanged", digest=digest_of(content))
            if self._files.status(self._files.on_disk(new)) is not None and same_name(old) != same_name(new):
                raise MemoryRefused(
                    f"the destination {self._shown(new)} already exists: choose another name", reason="exists"
                )
            self._check_free(new, but=old)
            text = self._index_now()
            self._guard.begin(old, new)
            self._files.move(self._files.on_disk(old), new)
            self._files.prune(old)
            self._history.move(old, new)
            revision = self._history.add(new, content, by=by, change="renamed", copy=True)
            memory = self._memory(new, content)
            self._told(new)
            self._end(text, lines.moved(text, old, memory))
            self._note_move(old, memory.path)
        return WriteResult(memory=memory, change="renamed", digest=digest_of(content), revision=revision)

    def _note_move(self, name: str, path: str) -> None:
        with suppress(MemoryRefused):  # the move itself is made
            kept = {each: goal for each, goal in self._object(_MOVED).items() if each != name}
            newest = dict([*kept.items(), (name, path)][-MOST_MOVED:])
            self._files.replace(_MOVED, json.dumps(newest).encode(), f"{NEW}/moved", durable=False)

    def snapshot(self) -> Path:
        """A copy of the whole directory, byte for byte; the last 5 are kept."""
        with self.lock():
            return take_snapshot(self._files)

    def put_back(self, snapshot: Path, *, by: str = "user") -> Path:
        """Make the directory what it was, byte for byte; returns the snapshot taken before, which undoes this."""
        with self.lock():
            before = self.snapshot()
            copy = snapshot_path(self._files, snapshot)
            wanted = {name.removeprefix(f"{copy}/"): status for name, status in self._files.walk(copy)}
            self._guard.begin(ALL)
            for name, _ in list(self._files.walk()):
                if name not in wanted:
                    self._keep_version(name, by)
                    self._files.remove(name)
                    self._files.prune(name)
            for name, status in wanted.items():
                content = self._files.read(f"{copy}/{name}") or b""
                if self._files.read(name) != content:
                    self._keep_version(name, by)
                    self._files.replace(name, content, _STAGING)
                self._files.touch(name, status.st_mtime_ns)
                self._told(name)
            self._guard.end()
        return before

    def lock(self, seconds: float = SECONDS) -> AbstractContextManager[None]:
        """Across processes, reentrant in a thread, never to be held across a model call. Raises MemoryRefused
        "busy" after so many seconds."""
        return self._guard.lock(seconds)

    # ---------------------------------------------------------------- the one way to a file

    def _put(self, name: str, make: Callable[[bytes | None], tuple[bytes, str]], *, by: str) -> WriteResult:
        """Give a file the content that `make` says, with the word for the change, from what it has (None: it is
        not there)."""
        with self.lock():
            place = self._files.on_disk(name)
            now = self._files.read(place, MOST_READ)
            if now is None:
                self._check_free(name)
            content, change = make(now)
            if len(content) > MOST_BYTES:
                told = f"{self._shown(name)} would have {len(content):,} bytes, {MOST_BYTES:,} at most; split it"
                raise MemoryRefused(told, reason="size")
            text = self._index_now()
            if name == INDEX:
                content = lines.mended(decoded(content)[0], self._scan.memories()).encode()
            before = self._memory(name, now) if now is not None else None
            if content == now and before is not None:
                return WriteResult(memory=before, change="unchanged", digest=digest_of(content))
            self._guard.begin(name)
            revision = self._history.add(name, now, by=by, change=change) if now is not None else ""
            self._files.replace(place, content, _STAGING)
            self._told(name)
            memory = self._memory(name, content)
            same = before is not None and lines.line_of(before) == lines.line_of(memory)
            self._end(text, lines.revised(text, {name: memory}, keep=same) if name != INDEX else text)
        return WriteResult(memory=memory, change=change, digest=digest_of(content), revision=revision)

    def _told(self, name: str) -> None:
        if self._wrote is not None and name != INDEX and name.endswith(SUFFIX):
            self._wrote(self.folder / name)

    def _end(self, before: str, after: str) -> None:
        if after != before:
            self._files.replace(INDEX, after.encode(), _STAGING)
        self._guard.end()

    def _finish(self, names: builtins.list[str]) -> None:
        """Make the index true for files that a killed writer had to do with."""
        text = self._index_now()
        there = {memory.name: memory for memory in self._scan.memories()}
        if ALL in names or INDEX in names:
            after = lines.mended(text, there.values())
        else:
            after = lines.revised(text, {name: there.get(name) for name in names}, keep=True)
        if after != text:
            self._files.replace(INDEX, after.encode(), _STAGING)

    # ---------------------------------------------------------------- parts

    def _content(self, name: str) -> bytes:
        content = self._files.read(self._files.on_disk(name), MOST_READ)
        if content is None:
            raise self._missing(name)
        if len(content) == MOST_READ:
            raise MemoryRefused(f"{self._shown(name)} is longer than {MOST_READ:,} bytes: split it", reason="size")
        return content

    def _index_now(self) -> str:
        content = self._files.read(INDEX, MOST_READ)
        return decoded(content)[0] if content is not None else ""

    def _memory(self, name: str, content: bytes) -> Memory:
        status = self._files.status(self._files.on_disk(name))
        made = memory_of(self.scope, name, content, status.st_mtime if status is not None else 0.0, len(content))
        claimed = made.source == "said" and self.vouch is not None and not self.vouch(content)
        return msgspec.structs.replace(made, source=CLAIMED) if claimed else made

    def _check_free(self, name: str, but: str = "") -> None:
        """Raises MemoryRefused when another name is there that a file system may take for the same."""
        there = self._files.twin(name, but)
        if there is not None:
            told = f"{self._shown(name)} differs from {self._shown(there)} in case or form only; use that name"
            raise MemoryRefused(told, reason="exists")

    def _with_digest(self, name: str, digest: str) -> str | None:
        """The text of the version that has a digest; None when the history does not reach back to it."""
        for version in self._history.versions(name):
            content = self._history.read(name, version.revision)
            if digest_of(content) == digest:
                return decoded(content)[0]
        return None

    def _editable(self, name: str, content: bytes) -> str:
        text, problems = decoded(content)
        if any("UTF" in problem for problem in problems):
            told = f"{self._shown(name)} is not UTF-8 ({problems[0]}); save it as UTF-8 first, or replace it whole"
            raise MemoryRefused(told, reason="encoding")
        return text

    def _keep_version(self, name: str, by: str) -> None:
        """Keep the present file in the history, if it is a memory's."""
        content = self._files.read(name)
        with suppress(MemoryRefused):  # no memory's name: the snapshot has it
            if content is not None and checked_name(name):
                self._history.add(name, content, by=by, change="undone")

    def _no_index(self, name: str) -> str:
        if name == INDEX:
            raise MemoryRefused(
                f"{INDEX} is the index, it is kept automatically: change the memories it lists", reason="index"
            )
        return name

    def _shown(self, name: str) -> str:
        return f"{ROOT}/{self.scope}/{name}"

    def _missing(self, name: str) -> MemoryRefused:
        told = f"{self._shown(name)} does not exist; view {ROOT}/{self.scope} for the names"
        if name == INDEX:
            told = f"{self._shown(name)} does not exist yet, there are no memories: save one first"
        return MemoryRefused(told, reason="missing")


class Index:
    """The index of one store (`MemoryStore.index`)."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def text(self) -> str:
        """The whole file; "" when there is none."""
        self._store._guard.look()
        return self._store._index_now()

    def loaded(self) -> str:
        """What goes into the system prompt: at most 200 lines or 25,000 bytes, cut at a line, with a visible
        warning that says what was left out; "" without memories."""
        text = self.text()
        if not is_conflicted(text):
            return lines.loaded(text, self._store.scope)
        said = f"[!] {INDEX} has conflict markers of git: this list was made from the memories' files."
        return f"{lines.loaded(lines.mended(text, self._store.list()), self._store.scope)}\n{said}"

    def doctor(self) -> builtins.list[IndexFinding]:
        """What is wrong with the index and the headers, and files in the folder that cannot be memories."""
        found = lines.findings(self.text(), self._store.list(), self._store.scope)
        for misfit in self._store._scan.misfits():
            text = f"{misfit.name}: {misfit.why}"
            found.append(IndexFinding(kind="name", name=misfit.name, text=text, mendable=False))
        return found

    def mend(self, *, by: str = "user") -> builtins.list[IndexFinding]:
        """Make headers readable (their files' old content stays in the history) and the index true; returns what was
        found and put right."""
        store = self._store
        if not store.folder.is_dir():
            return []
        with store.lock():
            found = [finding for finding in self.doctor() if finding.mendable]
            for name in dict.fromkeys(finding.name for finding in found if finding.kind == "header"):
                content = store._content(name)
                if len(content) < LARGE and (after := readable(name, content)) is not None:
                    store._put(name, lambda now, after=after: (encoded(after), "changed"), by=by)  # type: ignore[misc]
            text = store._index_now()
            store._guard.begin(ALL)
            store._end(text, lines.mended(text, store._scan.memories()))
        return found
