"""What one piece of work may do with the memories: every write is checked, marked with where it comes from,
kept in the history, and journalled.

The model sees one tree: `/memories/project` and `/memories/user`. Secrets are refused; a `user` or `feedback` memory,
and all in the user's folder, needs words of the user that it carries out, else it is kept as the project's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from typing import Any, NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from ipyagent.errors import MemoryRefused
from ipyagent.frontmatter import Headed, read_headed
from ipyagent.journal.events import Event, MemorySaved
from ipyagent.parts.memory.dream_workspace import Merged
from ipyagent.parts.memory.metadata_index import (
    BETWEEN,
    CLAIMED,
    KEPT,
    Memory,
    described,
    renamed_header,
    said_words,
    sealed,
    word_of,
)
from ipyagent.parts.memory.provenance import (
    OLD_LABEL,
    PERSONAL,
    ProvenanceIndex,
    ProvenanceLabel,
    added,
    parts,
    standing,
    still_carried_out,
    worst,
)
from ipyagent.parts.memory.quotation import MOST_KEPT, Evidence, Quote, Typed, unconfirmed
from ipyagent.parts.memory.safe_paths import INDEX, ROOT, SCOPES, SUFFIX, Address, address, checked_name, split_path
from ipyagent.parts.memory.store import MemoryStore, WriteResult, check_size
from ipyagent.parts.memory.stores import MemoryStores
from ipyagent.parts.memory.tokenizer import bare, shared, weighty
from ipyagent.parts.memory.transaction import STOP, STOPPED
from ipyagent.redaction import find_secrets, refusal

MOST_MOVES = 20
"""Moves of one memory that are followed."""
KEPT_QUOTES = 8
"""Quotations that a header keeps."""
T = TypeVar("T")
Check: TypeAlias = Callable[[Sequence[str], Sequence[str]], Awaitable[str | None]]
"""What sentences (the second) add to words of the user's (the first), "" for nothing; None when nobody answers."""
Question: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


class SavedMemory(NamedTuple):
    """A write that was made; `event` as it was journalled (not when nothing changed). `remark` is what the model
    should know of it besides ("" for nothing)."""

    event: MemorySaved
    memory: Memory
    remark: str


class Unsettled(Exception):
    """Words cannot tell whether sentences say no more than the user did; its argument is the question."""


class _Work(NamedTuple):
    """A piece of work beside the loop: what is known already of what it needs to have checked (None where nothing can
    be), what it leaves for the loop to do when it has ended, and the stores that it may use, looked for once."""

    settled: dict[Question, str | None] | None = None
    later: list[Callable[[], object]] | None = None
    stores: dict[tuple[MemoryAccess, str], MemoryStore] | None = None


_NONE = _Work()
_WORK: ContextVar[_Work] = ContextVar("ipyagent_memory_work", default=_NONE)


class Checked(NamedTuple):
    """A text as it is kept, where, and what the model should know of it."""

    place: Address
    text: str
    remark: str = ""


class MemoryAccess:
    """The memories as one piece of work may touch them.

    `by` is who works: "agent", "extraction", "dream" or "user"; `record` journals what was saved; `events`
    gives the session's events, to tell what the user said from what tools gave (None: no session, and all
    is the user's own), or `ground` has taken them in already; `heard` is the ground of the session in which the user
    speaks, where that is another (a sub-agent is asked by an agent); `notice` takes a line for the user; `check` is
    asked what words cannot tell.
    """

    def __init__(
        self,
        memories: MemoryStores,
        *,
        by: str,
        record: Callable[[MemorySaved], object],
        events: Callable[[], Iterable[Event]] | None = None,
        session: str = "",
        turn: Callable[[], int] = lambda: 0,
        notice: Callable[[str], object] = lambda line: None,
        stores: Mapping[str, MemoryStore] | None = None,
        ground: ProvenanceIndex | None = None,
        heard: ProvenanceIndex | None = None,
        check: Check | None = None,
    ) -> None:
        self.memories = memories
        self.by = by
        self.session = session
        self._record = record
        self._events = events
        self._turn = turn
        self._notice = notice
        self._given = stores
        self._ground = ground or ProvenanceIndex()
        self.heard = heard or self._ground
        """What the user typed."""
        self.check = check
        self._merged: Merged | None = None
        self.answers: dict[Any, list[Any]] = {}
        """Of edits that were made together, what the calls that are still to come will be answered."""
        self._own = events is None and ground is None
        self._undoes = 0

    def __repr__(self) -> str:
        return f"<MemoryAccess by {self.by} to {self.memories!r}>"

    def on_behalf(self, by: str, record: Callable[[MemorySaved], object], turn: Callable[[], int]) -> MemoryAccess:
        """The same for another worker, who journals with `record` what comes of that turn."""
        made = copy(self)
        made.by, made._record, made._turn = by, record, turn
        made._merged, made.answers = None, {}
        return made

    def below(self, record: Callable[[MemorySaved], object], session: str, ground: ProvenanceIndex) -> MemoryAccess:
        """The same for a sub-agent: what it was asked is an agent's word, the user speaks here. `ground` has what
        its own tools gave."""
        made = self.on_behalf(self.by, record, lambda: 0)
        made.session, made._ground, made._events, made._given = session, ground, None, None
        return made

    async def ready(self) -> None:
        """Before a write: what was said and told since the last one is looked at, beside the loop."""
        await asyncio.to_thread(self._ground.settle)

    def tell(self, *texts: str) -> None:
        """This reached the model otherwise than by the session's events, and not from the user."""
        self._ground.tell(*texts)

    def take(self, blocks: Iterable[dict[str, Any]]) -> None:
        """The same of a tool's result."""
        self._ground.take(blocks)

    def rewording(self, memories: Mapping[str, str], transcripts: Callable[[Sequence[str]], Sequence[Typed]]) -> None:
        """This work tidies memories: what it writes of these (texts, each with its source) keeps the least trusted
        source of what went into it; `transcripts` finds what the user typed in earlier sessions."""
        self._merged = Merged(((source, text) for text, source in memories.items()), transcripts)

    async def beside(self, work: Callable[[], T]) -> T:
        """Work on memories that holds nothing else up: in a thread, what it saved is journalled here when it ends. What
        it needs to have checked is asked here, with nothing written, then it is done again.

        A cancellation keeps it from the next write; a write that has begun comes to its end, and is journalled and
        answered before the cancellation goes on.
        """
        settled: dict[Question, str | None] = {}
        while True:
            try:
                return await self._aside(work, settled if self.check is not None else None)
            except Unsettled as doubt:
                question: Question = doubt.args[0]
                settled[question] = await self.check(*question) if self.check is not None else None

    async def _aside(self, work: Callable[[], T], settled: dict[Question, str | None] | None) -> T:
        stop, later = threading.Event(), list[Callable[[], object]]()

        def aside() -> T:
            STOP.set(stop)
            _WORK.set(_Work(settled, later, {}))
            return work()

        waiting = asyncio.ensure_future(asyncio.to_thread(aside))
        while not waiting.done():
            try:
                await asyncio.wait((waiting,))
            except asyncio.CancelledError:
                stop.set()
        for left in later:
            left()
        if stop.is_set():
            problem = waiting.exception()
            if isinstance(problem, MemoryRefused) and problem.reason == STOPPED and not later:  # nothing was written
                raise asyncio.CancelledError
            task = asyncio.current_task()
            if task is not None:  # delivered again once the result is journalled
                task.uncancel()
                task.cancel()
        return waiting.result()

    # ------------------------------------------------------------------ reading

    def find(self, raw: str, *, new: bool = False, kind: str = "") -> Address:
        """The place that a path means, also without scope or ".md": what is there, a folder before a file unless one is
        to be written (`new`); else the user's folder for a memory of type "user" and the project's for all others.
        Raises MemoryRefused."""
        scope, name = split_path(raw, loose=True)
        if not name:
            return Address(scope, name)
        file = name if name.endswith(SUFFIX) else "" if name.endswith("/") else name + SUFFIX
        folder = "" if name.endswith(SUFFIX) else f"{name.rstrip('/')}/"
        there: list[Address] = []
        for each in [scope] if scope else [each for each in SCOPES if self._usable(each)] or ["project"]:
            forms = [folder] if folder and self.listed(each, folder) else []
            if file and (new or not forms) and self.store(each).exists(file):
                forms = [file]
            there += (Address(each, form) for form in forms)
        if len(there) > 1:
            told = f"{raw!r} may be {' or '.join(place.path for place in there)}: give the whole path"
            raise MemoryRefused(told, reason="name")
        scope = scope or ("user" if new and kind == "user" else "project")
        return there[0] if there else address(f"{ROOT}/{scope}/{file or name}")

    def renamed(self, place: Address, raw: str) -> Address:
        """The place that a path means as the new one of `place`: in the same scope and of the same kind, unless it
        says otherwise. Raises MemoryRefused."""
        scope, name = split_path(raw, loose=True)
        scope = scope or (place.scope if name else "")
        if name and not name.endswith((SUFFIX, "/")):
            name += "/" if place.is_folder or self.listed(scope, f"{name}/") else SUFFIX
        return Address(scope, name)

    def _usable(self, scope: str) -> bool:
        try:
            self.store(scope)
        except MemoryRefused:
            return False
        return True

    def store(self, scope: str) -> MemoryStore:
        """The store of a scope. Raises MemoryRefused."""
        if self._given is not None and self.memories.settings.memory:
            if scope not in self._given:
                raise MemoryRefused(f"{ROOT}/{scope} is not part of this work: use the other folder", reason="place")
            return self._given[scope]
        known = _WORK.get().stores
        if known is None or (self, scope) not in known:
            found = self.memories.any_store(scope) if self.by == "user" else self.memories.store(scope)
            if known is None:
                return found
            known[self, scope] = found
        return known[self, scope]

    def listed(self, scope: str, folder: str = "") -> list[Memory]:
        """The memories of a scope, newest first; only those in `folder` ("name/") if one is given."""
        return [memory for memory in self.store(scope).list() if memory.name.startswith(folder)]

    def every(self) -> list[Memory]:
        """All memories that may be looked at, newest first."""
        found: list[Memory] = []
        for scope in SCOPES:
            with suppress(MemoryRefused):  # this one may not be looked at now
                found += self.listed(scope)
        return sorted(found, key=lambda memory: memory.modified, reverse=True)

    def read(self, place: Address) -> str | None:
        """The text of a memory or of an index; None when there is none. Raises MemoryRefused."""
        store = self.store(place.scope)
        try:
            return None if place.is_folder else store.read(place.name).text
        except MemoryRefused as problem:
            if problem.reason != "missing":
                raise
            return None

    # ------------------------------------------------------------------ writing

    def create(self, place: Address, text: str, said: Sequence[str] = ()) -> SavedMemory:
        """Save a new memory; `said` are words of the user that it carries out. Without them it is the project's.
        Raises MemoryRefused ("exists", "known", "name", "content", …)."""
        check_size(place.path, text)
        if self.store(place.scope).exists(self._writable(place)):  # before anybody is asked about it
            raise MemoryRefused(f"{place.path} already exists; read it and change it", reason="exists")
        checked = self._checked(place, "", text, said)
        name = self._writable(checked.place)
        store = self.store(checked.place.scope)
        self._announce(checked.place.scope)  # before the folder is there
        with store.lock():
            if known := self._known(checked):
                told = f"nothing was saved: {known} says the same already; change that one if something is to be added"
                raise MemoryRefused(told, reason="known")
            written = store.write(name, checked.text, expected=None, by=self.by)
        return self._journal(written, remark=checked.remark)

    def _known(self, checked: Checked) -> str:
        """The path of another memory of the same type and worth as much, in this scope or the user's, that says the
        same word for word; "" for none. What is tidied may stand twice for a moment."""
        head = read_headed(checked.text.encode("utf-8", "replace"))
        if self._merged is not None or self.store(checked.place.scope).exists(checked.place.name):
            return ""
        kind, source = word_of(head.fields.get("type")), word_of(head.fields.get("source"))
        scopes = [each for each in dict.fromkeys((checked.place.scope, "user")) if self._usable(each)]
        same = (each for scope in scopes for each in self.store(scope).alike(checked.text))
        return next((each.path for each in same if each.kind == kind and worst(each.source, source) == source), "")

    def missing(self, place: Address) -> str:
        """That a memory is there no longer, and where it was moved to; "" where nobody moved it."""
        now = place
        with suppress(MemoryRefused):
            for _ in range(MOST_MOVES):
                if not (goal := self.store(now.scope).moved(now.name)):
                    break
                now = address(goal)
                if self.store(now.scope).exists(now.name):
                    return f"{place.path} no longer exists: it was moved to {now.path}"
        return ""

    def change(self, place: Address, edit: Callable[[str], str], said: Sequence[str] = ()) -> SavedMemory:
        """Change a memory; `edit` gets its text as it is by then, `said` are words of the user that the change
        carries out. Raises MemoryRefused and what `edit` raises."""
        name, remarks = self._writable(place), [""]
        self._grounded()  # before the lock is taken

        def checked(before: str) -> str:
            after = edit(before)
            if after == before and not said:
                return before
            made = self._checked(place, before, after, said)
            remarks[0] = made.remark
            return made.text

        return self._journal(self.store(place.scope).change(name, checked, by=self.by), remark=remarks[0])

    def delete(self, place: Address) -> SavedMemory:
        """Delete a memory; its history stays. Raises MemoryRefused."""
        return self._journal(self.store(place.scope).delete(self._writable(place), by=self.by))

    def rename(self, place: Address, to: Address) -> SavedMemory:
        """Give a memory another name, in the same scope or in the other. Raises MemoryRefused."""
        old, new = self._writable(place), self._writable(to)
        if place.scope == to.scope:
            written = self.store(place.scope).rename(old, new, by=self.by)
            self._renamed(place, to)
            return self._journal(written, old=place.path)
        store = self.store(place.scope)
        read = store.read(old)
        text, digest = read.text, read.digest
        if found := find_secrets(text):
            raise MemoryRefused(refusal(found), reason="content")
        source = self._source(place.scope, text)
        if to.scope == "user" and self.by != "user" and source != "said":
            told = (
                f"not moved: {place.path} is not recorded as the user's word, and {ROOT}/user goes into every project. "
                "Create it there with the user's words in `said`, or the user moves it with %memory rename"
            )
            raise MemoryRefused(told, reason="content")
        self._announce(to.scope)
        headed = read_headed(text.encode())
        named = {} if source == CLAIMED else renamed_header(headed, place.name, to.name)
        if named or source in ("said", CLAIMED):
            fields = {**headed.fields, **named, **({"source": source} if source else {})}
            text = sealed(self.memories.project.user, fields, headed.body)
        made = self.store(to.scope).write(new, text, expected=None, by=self.by)
        try:
            gone = store.delete(old, by=self.by, expected=digest, moved_to=to.path)
        except MemoryRefused:  # it was changed meanwhile: it stays, and what was moved of it does not
            self.store(to.scope).delete(new, by=self.by, expected=made.digest)
            raise
        return self._journal(replace(made, change="renamed", revision=gone.revision), old=place.path)

    def _renamed(self, place: Address, to: Address) -> None:
        """Where the name in the header was that of the file, it follows; by then somebody else may have changed it."""

        def named(text: str) -> str:
            headed = read_headed(text.encode("utf-8", "replace"))
            name = renamed_header(headed, place.name, to.name)
            if not name or self._source(to.scope, text) == CLAIMED:
                return text
            return sealed(self.memories.project.user, {**headed.fields, **name}, headed.body)

        with suppress(MemoryRefused):
            self.store(to.scope).change(to.name, named, by=self.by)

    def restore(self, place: Address, revision: str) -> SavedMemory:
        """Put an earlier version back. Raises MemoryRefused."""
        return self._journal(self.store(place.scope).restore(self._writable(place), revision, by=self.by))

    def undo(self, saved: MemorySaved) -> SavedMemory:
        """Take back what an event says was saved. Raises MemoryRefused."""
        place, undoing = address(saved.path), self.on_behalf(self.by, self._record, self._turn)
        undoing._undoes = saved.id
        if saved.change == "renamed":
            return undoing.rename(place, address(saved.old))
        return undoing.restore(place, saved.revision) if saved.revision else undoing.delete(place)

    # ------------------------------------------------------------------ the checks

    def _writable(self, place: Address) -> str:
        """The name of a memory that may be written; the place of a refusal is never looked at."""
        if place.is_folder:
            raise MemoryRefused(
                f"{place.path} names a folder; a memory is a file in {ROOT}/project or {ROOT}/user that ends in .md",
                reason="name",
            )
        name = checked_name(place.name)
        if name == INDEX:
            why = f"{INDEX} is kept by ipyagent: it follows the name and description of each memory"
            raise MemoryRefused(why, reason="index")
        if found := find_secrets(name):
            raise MemoryRefused(refusal(found).replace("it holds", "its name holds", 1), reason="content")
        return name

    def _announce(self, scope: str) -> None:
        if self._given is not None or self.store(scope).folder.is_dir():
            return
        if line := self.memories.first_line(scope):
            if (later := _WORK.get().later) is not None:
                later.append(lambda: self._notice(line))
            else:
                self._notice(line)

    def _checked(self, place: Address, before: str, after: str, said: Sequence[str]) -> Checked:
        """What is to be kept and where, marked with where it comes from. Raises MemoryRefused."""
        check_size(place.path, after)
        if found := find_secrets("\n".join((after, *said)), known=before):
            raise MemoryRefused(refusal(found), reason="content")
        head, old = read_headed(after.encode()), read_headed(before.encode())
        kind = word_of(head.fields.get("type")).casefold()  # however it is written, it is read as one by a model
        if self.by == "user" or self._own:
            return Checked(place, self._marked(place, head, "said", said_words(head.fields)))
        self._grounded()
        was = self._source(place.scope, before) if before else ""
        known = said_words(old.fields) if was == "said" else []
        given = list(said) or [each for each in said_words(head.fields) if each not in said_words(old.fields)]
        more = self._merged.transcripts(given) if self._merged is not None and given else ()
        evidence = self.heard.evidence(given, more=more)
        if not given and self._merged is None and kind not in PERSONAL and place.scope != "user":
            evidence = Evidence(self.heard.likely(parts(word_of(head.fields.get("description")), head.body)[0]))
        origin = self._origin(head, old, was, evidence.quotes, there=bool(before))
        source, sentence = origin.source, origin.sentence
        if source == "said":
            words = [*still_carried_out(known, head, old), *(each.words for each in evidence.quotes)]
            at = (word_of(old.fields.get("session")), old.fields.get("turn")) if was else ()
            if evidence.quotes:
                nearest = evidence.quotes[-1 if given else 0]  # what was not given comes best first
                at = (nearest.session or self.session, nearest.turn)
            return Checked(place, self._marked(place, head, "said", words, at))
        personal, tidied = kind in PERSONAL, self._merged is not None
        theirs = bool(before) and not tidied and (place.scope == "user" or (personal and was in ("said", "", CLAIMED)))
        again = "edit it, with the same `said`"
        if theirs:
            again = "make the same call once more, or a shorter one"
        elif place.scope == "user":
            again = "delete it and make the same call once more"
        elif personal:
            again = f"change its type to {kind} with str_replace and the same `said`"
        near = ""
        if not given:  # nearest to what a change adds, where there is one
            whole = f"{word_of(head.fields.get('description'))}\n{head.body}"
            near = (before and self.heard.words.nearest(sentence)) or self.heard.words.nearest(whole)
        answers, quoted = tuple((_WORK.get().settled or {}).values()), source == "quoted"
        told = unconfirmed(evidence, sentence, quoted, given=bool(given), near=near, answers=answers, again=again)
        if tidied and place.scope == "user" and source == "quoted" and was != "quoted":
            raise MemoryRefused(f"not changed: {told}", reason="content")
        if theirs:
            raise MemoryRefused(
                f"not changed: {place.path} holds the user's word. {told} Or save what is new as a memory of its own, "
                f"type project, in {ROOT}/project",
                reason="content",
            )
        same = source == was and kind == word_of(old.fields.get("type")).casefold()
        personal = personal and not (tidied and before and same)
        fields = {**head.fields, "type": "project"} if personal else head.fields
        remark = f"Kept as {'type project, ' if personal else ''}source {source or 'not known'}. {told}"
        if place.scope == "user" and not tidied:
            try:
                place = Address("project", self.store("project").free(place.name))
            except MemoryRefused as problem:
                why = f"not saved: {ROOT}/user needs the user's words. {told} In {ROOT}/project: {problem}"
                raise MemoryRefused(why, reason=problem.reason) from None
            remark = f"Kept as {place.path}: what lies in {ROOT}/user needs the user's words. {remark}"
        return Checked(place, self._marked(place, replace(head, fields=fields), source, ()), remark)

    def _origin(self, head: Headed, old: Headed, was: str, found: Sequence[Quote], *, there: bool) -> ProvenanceLabel:
        """The source of a memory and the sentence that decided: of one that is changed, what the change brings counts,
        and what was there stays what it was. `found` are the user's words that are given for it now."""
        told, asides = parts(word_of(head.fields.get("description")), head.body)
        asides += [name for name in [word_of(head.fields.get("name"))] if name.count(" ") > 1]
        before, there_aside = parts(word_of(old.fields.get("description")), old.body)
        new_asides = [each for each in asides if each not in (*there_aside, word_of(old.fields.get("name")))]
        known = {bare(each) for each in before}
        new = [each for each in told if bare(each) not in known]
        quotes = [*found, *(Quote(each, "", 0) for each in (said_words(old.fields) if was == "said" else ()))]
        if self._merged is not None:
            if self._merged.raised(told, asides, found, self._weighed):
                return ProvenanceLabel("said")
            return self._merged.origin(new, new_asides, [was] if there else (), quotes, self._weighed)
        known_own, quoted = standing([self.store(each) for each in SCOPES if self._usable(each)])
        if was == "said":
            left = added((each for each in new if bare(each) not in known_own), before)
            origin = self._weighed(left, quotes, new_asides, quoted)
            if more := [] if found else added(left, [*before, *(quote.words for quote in quotes)]):
                origin = ProvenanceLabel(worst("inferred", origin.source), origin.sentence or more[0].strip())
        else:
            left = [each for each in told if bare(each) not in known_own]
            origin = self._weighed(left, quotes, asides, quoted)
        weighed = quotes and (new_asides if was == "said" else asides)
        if not (left or origin.source == "quoted" or (weighed and origin.source != "said")) and (told or was == "said"):
            return ProvenanceLabel("said")
        if origin.source == "said" or not there or was == "said":
            return origin
        fresh = self._weighed(new, quotes, asides, quoted) if new else ProvenanceLabel("said")
        return ProvenanceLabel(worst(fresh.source, was), fresh.sentence)

    def _weighed(
        self, told: Sequence[str], quotes: Sequence[Quote], asides: Sequence[str], quoted: Sequence[str] = ()
    ) -> ProvenanceLabel:
        """Where sentences come from that carry out these words of the user, as the check reads it where words are not
        decisive; `quoted` are sentences of memories."""
        memories = ProvenanceIndex()
        memories.distrust(quoted)
        words, beside = [each.words for each in quotes], [each.beside for each in quotes]
        grounds = dict.fromkeys((self._ground, self.heard, memories))
        found = [each.origin(told, words, beside=beside, asides=asides, typed=self.heard.words) for each in grounds]
        origin = min(found, key=lambda origin: worst(origin.source, "said") != "quoted")
        settled = _WORK.get().settled
        if not quotes or origin.is_sure or settled is None or not (told or asides):
            return origin
        read = [each.whole or each.words for each in quotes]  # a part of a sentence may say less, or the contrary
        lines = (line for text in (*read, *beside) for line in text.split("\n") if line)
        question = (tuple(dict.fromkeys(lines)), (*told, *asides))
        if question not in settled:
            raise Unsettled(question)
        adds = settled[question]
        if adds == "":
            return ProvenanceLabel("said")
        meant = max(question[1], key=lambda each: len(shared(weighty(adds or ""), weighty(each))))
        return replace(origin, sentence=meant.strip()) if adds and shared(weighty(adds), weighty(meant)) else origin

    def _source(self, scope: str, text: str) -> str:
        """The source of a text in a scope's store, as far as the user's own folder knows of it."""
        content = text.encode("utf-8", "replace")
        source = word_of(read_headed(content).fields.get("source"))
        vouch = self.store(scope).vouch
        return CLAIMED if source == "said" and vouch is not None and not vouch(content) else source

    def _grounded(self) -> None:
        self._ground.session = self._ground.session or self.session
        for event in self._events() if self._events is not None else ():
            self._ground.apply(event)

    def _marked(
        self, place: Address, head: Headed, source: str, said: Sequence[str], at: tuple[Any, ...] | None = None
    ) -> str:
        """The text with its source in the header, the user's words, and session and turn of them (`at`; None: now)."""
        marks: dict[str, Any] = {"source": source} if source else {}
        if said:
            marks["said"] = BETWEEN.join(list(dict.fromkeys(each[:MOST_KEPT] for each in said))[:KEPT_QUOTES])
        now = (self.session, self._turn()) if self.session else (head.fields.get("session"), head.fields.get("turn"))
        session, turn = at if at and at[0] else now
        marks |= {key: value for key, value in (("session", session), ("turn", turn)) if value}
        kept = {key: value for key, value in head.fields.items() if key not in KEPT}
        body = head.body.replace(OLD_LABEL, "").rstrip() + "\n" if OLD_LABEL in head.body else head.body
        if source == "said":  # a name that %memory doctor would give it later is part of the record
            kept = {**kept, "name": described(place.name, kept, body)["name"]}
        return sealed(self.memories.project.user, {**kept, **marks}, body)

    def _journal(self, written: WriteResult, *, old: str = "", remark: str = "") -> SavedMemory:
        change = "changed" if written.change == "merged" else written.change
        event = MemorySaved(
            path=written.memory.path, change=change, by=self.by, old=old, revision=written.revision, undoes=self._undoes
        )
        if change != "unchanged":
            if (later := _WORK.get().later) is not None:
                later.append(lambda: self._record(event))
            elif isinstance(made := self._record(event), MemorySaved):
                event = made
        return SavedMemory(event, written.memory, remark)
