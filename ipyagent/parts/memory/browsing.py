"""What a person may look at and change in the memories of one kernel; each change can be taken back.

Nothing here draws: the memory browser, its static form and the terminal's list are made of these values.
Memories that may not be used now (memory is off, the project is not trusted) are not listed; why is.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from ipyagent.errors import AgentError, JournalError
from ipyagent.journal.events import Event, MemoryDismissed, MemorySaved, Recalled
from ipyagent.journal.protocols import Model
from ipyagent.loop.session import Session
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.access import MemoryAccess
from ipyagent.parts.memory.dream_scheduler import DreamStatus
from ipyagent.parts.memory.ranking import Ranked
from ipyagent.parts.memory.recall import RecalledMemories, days_between, ignores_memory, is_due
from ipyagent.parts.memory.retriever import as_recalled
from ipyagent.parts.memory.safe_paths import SCOPES, Address, address
from ipyagent.parts.memory.selector import Chosen, tools_in_use
from ipyagent.parts.memory.store import Memory
from ipyagent.parts.memory.stores import MemoryStores
from ipyagent.parts.memory.transaction import Version
from ipyagent.ui.memory_chips import name_of

if TYPE_CHECKING:
    from ipyagent.kernel.dispatcher import MainThreadExecutor
    from ipyagent.parts import RunningAgent

E = TypeVar("E", bound=Event)


class MemoryUndo:
    """What the user does with one kernel's memories; `session` gives the session of now (None: nothing is
    journalled)."""

    def __init__(self, memories: MemoryStores, session: Callable[[], Session | None]) -> None:
        self._memories = memories
        self._session = session

    def __repr__(self) -> str:
        return f"<MemoryUndo in {self._memories!r}>"

    def dismiss(self, path: str) -> MemoryDismissed:
        """The memory does not come again in this session."""
        return self._record(MemoryDismissed(path=path))

    def undo(self, saved: MemorySaved) -> MemorySaved:
        """Take back what was saved: the version before it is there again. Raises AgentError, OSError."""
        return self.access().undo(saved).event

    def access(self, notice: Callable[[str], object] = lambda line: None) -> MemoryAccess:
        """The memories as the user may change them; `notice` takes a line for the user."""
        return MemoryAccess(self._memories, by="user", record=self._record, notice=notice)

    def _record(self, event: E) -> E:
        session = self._session()
        if session is None:
            return event
        try:
            return session.record(event)
        except JournalError:  # the session was left: what was done stands all the same
            return event


TEXT_CHARS = 100_000
"""Characters of a memory that are shown; a longer one cannot be edited here."""
DIFF_LINES = 2_000
DIFF_CHARS = 100_000
TRIED = 20
"""Memories that are told of a query."""

Order: TypeAlias = Literal["newest", "oldest", "name", "type", "best"]
Change: TypeAlias = tuple[str, str]
"""A line of a diff: "+", "-", " " or "@", and its text."""


class Dreams(Protocol):
    """The dream of a kernel, as it may be watched."""

    def now(self) -> DreamStatus:
        """How it stands."""

    def stop(self) -> None:
        """End it; the memory is as it was before."""

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """`told` is called on any thread when something has changed; returns what ends that."""


class EditConflict(AgentError):
    """The memory was changed by somebody else while it was being edited."""


class MemoryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which memories are listed. `words` must all occur in name, title or description, but in the order "best":
    there the ranking of recall finds them in the whole text. "" for all scopes and types, "none" for memories
    without a type; `problems`: only those with a bad header."""

    words: str = ""
    scope: str = ""
    kind: str = ""
    problems: bool = False
    order: Order = "newest"


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """One memory in full. `text` with its header, `body` without, `digest` names exactly this text; `cut`: there
    is more than is shown. `versions`, newest first, are those before this one."""

    memory: Memory
    text: str
    body: str
    digest: str
    cut: bool
    versions: tuple[Version, ...]


class MemoryEdit(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was made: what it was, and the memory it was made to."""

    event: MemorySaved
    words: str


class Browsing:
    """`access` gives the memories as the user may change them; `search` finds memories by words in their text,
    best first; `recall` tries a request: why none would be looked for ("" when they would), what was found."""

    def __init__(
        self,
        memories: MemoryStores,
        access: Callable[[], MemoryAccess],
        search: Callable[[str], Sequence[Memory]],
        recall: Callable[[str], tuple[str, Sequence[Explained]]],
    ) -> None:
        self._memories = memories
        self._access = access
        self._search = search
        self._recall = recall

    def __repr__(self) -> str:
        return f"<Browsing {self._memories!r}>"

    # ------------------------------------------------------------------ looking

    def everything(self) -> list[Memory]:
        """All memories that may be used now, newest first."""
        found = [memory for store in self._memories.stores().values() for memory in store.list()]
        return sorted(found, key=lambda memory: -memory.modified)

    def missing(self) -> list[str]:
        """Why memories are not listed, one line a reason."""
        return list(dict.fromkeys(filter(None, (self._memories.refusal(scope) for scope in SCOPES))))

    def listed(self, wanted: MemoryFilter) -> list[Memory]:
        """The memories that are wanted, in the order that is."""
        words = wanted.words.casefold().split()
        best = bool(words) and wanted.order == "best"
        found = [
            memory
            for memory in (self._search(wanted.words) if best else self.everything())
            if (not wanted.scope or memory.scope == wanted.scope)
            and (not wanted.kind or memory.kind == ("" if wanted.kind == "none" else wanted.kind))
            and (not wanted.problems or memory.problems)
            and (best or not words or _holds(memory, words))
        ]
        match wanted.order:
            case "oldest":
                found.reverse()
            case "name":
                found.sort(key=lambda memory: memory.name.casefold())
            case "type":
                found.sort(key=lambda memory: (memory.kind or "~", memory.name.casefold()))
            case "newest" | "best":
                pass
        return found

    def open(self, path: str) -> Opened:
        """One memory with its history. Raises AgentError."""
        place, memory = self._found(path)
        store = self._access().store(place.scope)
        text = store.read(memory.name).text
        body = _body(text)
        return Opened(
            memory=memory,
            text=text[:TEXT_CHARS],
            body=body[:TEXT_CHARS],
            digest=digest(text),
            cut=len(text) > TEXT_CHARS,
            versions=tuple(store.versions(memory.name)),
        )

    def body(self, memory: Memory) -> str:
        """The text of a listed memory without its header. Raises AgentError."""
        return _body(self._access().store(memory.scope).read(memory.name).text)

    def compare(self, path: str, revision: str) -> list[Change]:
        """What has changed since a revision, line by line; lines that stayed far from a change are left out.
        Raises AgentError."""
        place = address(path)
        store = self._access().store(place.scope)
        before = store.version(place.name, revision).text
        now = store.read(place.name).text if store.exists(place.name) else ""
        return diff(before, now)

    def recall(self, query: str) -> tuple[str, Sequence[Explained]]:
        """What recall would show for a request, with scores and reasons, then what comes close; or why nothing
        would be looked for. Nothing is shown to the model. Raises AgentError, OSError."""
        return self._recall(query)

    # ------------------------------------------------------------------ changing

    def save(self, path: str, text: str, base: str) -> MemoryEdit:
        """Replace a memory's text. `base`: the digest of the text that was edited. Raises Edited when it is
        another by now, AgentError when it may not be saved (a secret, a bad name)."""

        def edit(before: str) -> str:
            if digest(before) != base:
                raise EditConflict("the memory changed while you were editing it, so nothing was saved; open it again")
            return text

        return _done(self._access().change(address(path), edit).event)

    def restore(self, path: str, revision: str) -> MemoryEdit:
        """Put an earlier version back. Raises AgentError."""
        return _done(self._access().restore(address(path), revision).event)

    def forget(self, path: str) -> MemoryEdit:
        """Delete a memory; its history stays. Raises AgentError."""
        return _done(self._access().delete(address(path)).event)

    def undo(self, done: MemoryEdit) -> MemoryEdit:
        """Take back one of these changes. Raises AgentError."""
        return _done(self._access().undo(done.event).event)

    def _found(self, path: str) -> tuple[Address, Memory]:
        place = address(path)
        for memory in self._access().listed(place.scope):
            if memory.name == place.name:
                return place, memory
        raise AgentError(f"there is no memory {path}, it was deleted or renamed meanwhile: open the list again")


def browsing_of(agent: RunningAgent) -> Browsing:
    """The memories of an agent, as its user may browse them."""

    def tried(request: str) -> tuple[str, Sequence[Explained]]:
        why = skipped(agent, request)
        return why, [] if why else explain(agent, request, TRIED)

    part = agent.part(MemoryPart)
    memories, choosing = part.memories, part.recalling.choosing
    return Browsing(
        memories,
        MemoryUndo(memories, lambda: agent.session).access,
        lambda words: [item.memory for item in choosing.ranked(words, patient=True)[0]],
        tried,
    )


def skipped(agent: RunningAgent, request: str) -> str:
    """Why a request would not be looked at; "" when it would."""
    if not agent.settings.memory:
        return "memory is off (IPyAgent.memory)"
    if not agent.settings.recall or not agent.settings.recall_files:
        return "recall is off (IPyAgent.recall)"
    if ignores_memory(request):
        return "the request asks to leave memory aside"
    return "" if is_due(request) else "one-word requests are not searched; add a word or two"


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One memory of a dry run: `recalled` as it would be shown, with score and reason; `picked` whether it
    would be."""

    recalled: Recalled
    picked: bool
    by: str = "ranking"


def explain(agent: RunningAgent, request: str, most: int = 10) -> list[Explained]:
    """What would be recalled for a request, best first, then what comes close: a dry run that journals and
    shows nothing. On the main thread; raises UsageError while a turn runs."""
    choosing = agent.part(MemoryPart).recalling.choosing
    session = agent.session
    known = session.folded(RecalledMemories) if session is not None else RecalledMemories()
    try:
        model: Model | None = agent.connections.get(agent.model, agent.endpoint())
    except AgentError:
        model = None  # nobody to ask: words alone decide
    tools = tools_in_use(session) if session is not None else []

    async def work(main: MainThreadExecutor) -> tuple[Chosen, list[Ranked]]:
        found = await choosing.choose(None, request, model, known, tools)
        ranked, _ = await asyncio.to_thread(choosing.ranked, request, patient=True)
        return found, ranked

    with agent.occupied() as main:
        found, ranked = main.run_blocking(lambda: work(main))
    now = time.time()
    made = [
        Explained(recalled=as_recalled(memory, why, score, now), picked=True, by=found.by)
        for memory, why, score in found.items
    ]
    taken = {memory.path for memory, _, _ in found.items}
    for item in ranked[:most]:
        if item.memory.path not in taken:
            seen = choosing.is_known(item.memory, known)
            why = f"{item.why}; {'shown in this session already' if seen else 'not picked'}"
            made.append(Explained(recalled=as_recalled(item.memory, why, round(item.score, 3), now), picked=False))
    return made


def digest(text: str) -> str:
    """Names a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def diff(before: str, now: str) -> list[Change]:
    """Changed lines with three of context; at most DIFF_LINES and DIFF_CHARS of them, and a last one that says so."""
    rows = list(difflib.unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=3))[2:]
    kept: list[Change] = []
    room = DIFF_CHARS
    for row in rows[:DIFF_LINES]:
        room -= len(row)
        if room < 0:
            break
        kept.append((row[0], row if row[0] == "@" else row[1:]))
    if len(kept) < len(rows):
        kept.append(("@", f"{len(rows) - len(kept):,} more lines"))
    return kept


def age(memory: Memory) -> int:
    """Days since it was written."""
    return max(0, days_between(memory.modified, time.time()))


def provenance(memory: Memory) -> str:
    """"you said so, session 3f2a, turn 4"; "" when nothing is known."""
    whose = {
        "said": "you said so",
        "inferred": "the agent's conclusion",
        "quoted": "quoted from a file or the web",
    }
    parts = [whose.get(memory.source, memory.source_words)]
    if memory.session:
        parts.append(f"session {memory.session[:40]}" + (f", turn {memory.turn}" if memory.turn else ""))
    return ", ".join(part for part in parts if part)


def _holds(memory: Memory, words: Sequence[str]) -> bool:
    text = f"{memory.name}\n{memory.title}\n{memory.description}".casefold()
    return all(word in text for word in words)


def _body(text: str) -> str:
    from ipyagent.frontmatter import read_headed

    return read_headed(text.encode("utf-8", "surrogatepass")).body


def _done(event: MemorySaved) -> MemoryEdit:
    word = {"deleted": "forgotten", "restored": "restored", "renamed": "renamed"}.get(event.change, "saved")
    return MemoryEdit(event=event, words=f"{word}: {name_of(event.path)}")
