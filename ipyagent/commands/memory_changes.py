"""What `%memory` changes: each answer says how it is undone. And which memory a name on its line means."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from ipyagent.errors import JournalError, MemoryRefused, UsageError
from ipyagent.headers import MARK, read_headed, write_headed
from ipyagent.journal.events import MemorySaved
from ipyagent.memory.access import Address, MemoryAccess, SavedMemory, address
from ipyagent.memory.names import ROOT, SCOPES
from ipyagent.memory.scan import Memory
from ipyagent.memory.words import folded, stop
from ipyagent.options import nearest
from ipyagent.redaction import find_secrets, refusal

if TYPE_CHECKING:
    from ipyagent.agent import Agent

NAME_WORDS = 5
HOOK = 150
"""Characters of a description that is made from a text."""
_WORD = re.compile(r"[^\W_]+")


class Line(NamedTuple):
    """What a `%memory` line says: its options and the rest, literal."""

    options: dict[str, str]
    rest: str


def parted(text: str) -> tuple[str, str]:
    """The first word and what follows it, as it was typed."""
    word = re.match(r"\s*(\S*)[ \t]?", text)
    assert word is not None
    return word[1], text[word.end() :].strip("\n") if "\n" in text else text[word.end() :].strip()


class MemoryCommandRun:
    """One command at work."""

    def __init__(self, agent: Agent, shell: Any, body: str | None) -> None:
        self.agent = agent
        self.shell = shell
        self.body = body
        self.memories = agent.bench.memories
        self.notices: list[str] = []
        """Lines that follow the answer."""
        self.access = MemoryAccess(self.memories, by="user", record=self._record, notice=self.notices.append)

    def _record(self, event: MemorySaved) -> MemorySaved:
        """Journal it where there is a session: what the user does is part of it."""
        session = self.agent.session
        try:
            return session.record(event) if session is not None else event
        except JournalError:  # the session was let go: what was done stands all the same
            return event

    def all(self) -> list[Memory]:
        """All memories that may be looked at, newest first."""
        found: list[Memory] = []
        for scope in SCOPES:
            try:
                found += self.access.listed(scope)
            except MemoryRefused:  # `%memory` says why
                continue
        return sorted(found, key=lambda memory: -memory.modified)

    def find(self, text: str) -> Address:
        """The memory that a text names: its path, its name with or without `.md`, its title. Raises UsageError."""
        if not text:
            raise UsageError("name a memory; %memory lists them")
        if text.startswith(ROOT):
            return address(text)
        every = self.all()
        wanted = _plain(text)
        whole = {f"{memory.scope}/{memory.name}": memory for memory in every}
        forms: list[Callable[[Memory], tuple[str, ...]]] = [
            lambda memory: (f"{memory.scope}/{memory.name}", memory.name),
            lambda memory: (memory.title, memory.name.rpartition("/")[2]),
        ]
        for form in forms:
            found = [name for name, memory in whole.items() if wanted in map(_plain, form(memory))]
            if len(found) == 1:
                return Address(whole[found[0]].scope, whole[found[0]].name)
            if found:
                raise UsageError(f"{text!r} may be {', '.join(found)}; name one of them")
        known = [memory.name for memory in every]
        for scope in SCOPES:
            with suppress(MemoryRefused):
                inside = text.removesuffix(".md").removeprefix(f"{scope}/") + ".md"
                if moved := self.access.missing(Address(scope, inside)):
                    raise UsageError(moved)
        raise UsageError(f"no memory {text!r}{nearest(text, known, cutoff=0.4)}; %memory lists them")

    def once(self, text: str) -> Address:
        """The same; also one that is only in the history."""
        try:
            return self.find(text)
        except UsageError:
            name = text.removesuffix(".md") + ".md"
            for scope in SCOPES:
                inside = name.removeprefix(f"{scope}/")
                try:
                    if self.access.store(scope).versions(inside):
                        return Address(scope, inside)
                except MemoryRefused:
                    continue
            raise


def _plain(text: str) -> str:
    return folded(text).removesuffix(".md")


def undo_words(saved: SavedMemory) -> str:
    """How what was just done is undone."""
    event = saved.event
    name = event.path.removeprefix(f"{ROOT}/")
    if event.change == "renamed":
        return f"%memory rename {name} {event.old.removeprefix(f'{ROOT}/')}"
    return f"%memory restore {name} {event.revision}" if event.revision else f"%memory forget {name}"


def add(doing: MemoryCommandRun, line: Line) -> str:
    """Save a memory: --type user|feedback|project|reference, --scope project|user, --name NAME."""
    text = line.rest.strip()
    if not text:
        raise UsageError("%memory add [--type T] TEXT: write what is to be remembered")
    if found := find_secrets(text):  # before a name is made of it
        raise MemoryRefused(refusal(found), reason="content")
    kind = line.options.get("--type", "project")
    scope = line.options.get("--scope", "user" if kind == "user" else "project")
    given = read_headed(text.encode())
    first = next(row for row in given.body.strip().splitlines() or [text] if row.strip()).strip("#*- ")
    hook = first if len(first) <= HOOK else f"{first[: HOOK - 1].rsplit(' ', 1)[0]}…"
    fields = {"name": _title(first), "description": hook, "type": kind, **given.fields}
    written = write_headed(fields, given.body.strip() + "\n")
    wish = line.options.get("--name", "")
    for number in range(1, 100):
        tail = f"_{number}" if number > 1 else ""
        name = wish.removesuffix(".md") or f"{kind}_{_slug(first)}"
        try:
            saved = doing.access.create(Address(scope, f"{name}{tail}.md"), written)
        except MemoryRefused as problem:
            if problem.reason == "known":
                return str(problem)
            if problem.reason != "exists" or wish:
                raise
            continue
        return f"saved {saved.memory.scope}/{saved.memory.name} ({kind}); undo: {undo_words(saved)}"
    raise UsageError(f"there are many memories called {kind}_{_slug(first)} already; give it a --name")


def _title(text: str) -> str:
    words = text.split()
    return " ".join(words[:8]).rstrip(".,;:") if words else text


def _slug(text: str) -> str:
    """A file's name made of the first words that say something."""
    words = _WORD.findall(folded(text))
    telling = [word for word in words if word not in stop()] or words
    return "_".join(telling[:NAME_WORDS])[:60] or "note"


def edit(doing: MemoryCommandRun, line: Line) -> str:
    """Put a memory into a cell below, to be changed and run; in `%%memory edit NAME` the cell is its new text."""
    name, rest = parted(line.rest)
    place = doing.find(name)
    if doing.body is not None and doing.body.strip():
        saved = doing.access.change(place, lambda before: _edited(place, line, before, doing.body or ""))
        return _told("changed", saved)
    if rest:
        raise UsageError("%memory edit NAME puts its text into a cell; change it there and run the cell")
    text = doing.access.read(place)
    if text is None:
        raise UsageError(f"there is no {place.path}; %memory lists what there is")
    cell = f"%%memory edit --from={_mark(text)} {place.scope}/{place.name}\n{text}"
    if doing.shell is None:
        return cell
    doing.shell.set_next_input(cell)
    return f"change {place.name} in the cell below and run it"


def _edited(place: Address, line: Line, before: str, after: str) -> str:
    """The new text; nobody's work is lost when the memory is not what the cell was made from."""
    if line.options.get("--from", _mark(before)) != _mark(before):
        raise UsageError(
            f"{place.name} was changed since this cell was made: %memory edit {place.scope}/{place.name} gives its "
            "text of now (without --from this cell would take its place)"
        )
    if after.lstrip().startswith(MARK) or not (fields := read_headed(before.encode()).fields):
        return after
    return write_headed(dict(fields), after)  # plain text is the memory's new body


def _mark(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


def forget(doing: MemoryCommandRun, line: Line) -> str:
    """Delete a memory; its history stays."""
    return _told("forgotten", doing.access.delete(doing.find(line.rest)))


def rename(doing: MemoryCommandRun, line: Line) -> str:
    """Give a memory another name."""
    name, new = parted(line.rest)
    if not new:
        raise UsageError("a memory and its new name are needed: %memory rename NAME NEW")
    place = doing.find(name)
    scope, slash, inside = new.partition("/")
    to = Address(scope, inside) if slash and scope in SCOPES else Address(place.scope, new)
    to = Address(to.scope, to.name.removesuffix(".md") + ".md")
    return _told("renamed", doing.access.rename(place, to))


def restore(doing: MemoryCommandRun, line: Line) -> str:
    """Put an earlier version back: NAME and a revision of %memory history; without one the newest."""
    name, revision = parted(line.rest)
    place = doing.once(name)
    versions = doing.access.store(place.scope).versions(place.name)
    if not versions:
        raise UsageError(f"{place.name} has no earlier version; %memory history shows what was kept")
    if revision and revision not in [version.revision for version in versions]:
        raise UsageError(f"{place.name} has no version {revision!r}; %memory history {place.scope}/{place.name}")
    return _told("restored", doing.access.restore(place, revision or versions[0].revision))


def undo(doing: MemoryCommandRun, line: Line) -> str:
    """Undo the newest memory change of this session, whoever made it."""
    session = doing.agent.session
    events = list(session.journal.read()) if session is not None else []
    saved = next((event for event in reversed(events) if isinstance(event, MemorySaved)), None)
    if saved is None:
        raise UsageError("no memory was saved in this session; %memory history NAME lists earlier versions")
    return _told(f"undone ({saved.change} by {saved.by})", doing.access.undo(saved))


def _told(words: str, saved: SavedMemory) -> str:
    event = saved.event
    name = event.path.removeprefix(f"{ROOT}/")
    if event.change == "unchanged":
        return f"{name} has this text already"
    return f"{words}: {name}; undo: {undo_words(saved)}"


