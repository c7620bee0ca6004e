"""What a person may look at and change in the memories of one kernel; each change can be taken back.

Nothing here draws: the memory browser, its static form and the terminal's list are made of these values.
Memories that may not be used now (memory is off, the project is not trusted) are not listed; why is.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ipyagent.errors import AgentError, JournalError
from ipyagent.journal.events import Event, MemoryDismissed, MemorySaved, Recalled
from ipyagent.journal.protocols import Model
from ipyagent.loop.session import Session
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.access import MemoryAccess
from ipyagent.parts.memory.ranking import FLOOR_VECTOR, Ranked
from ipyagent.parts.memory.recall import RecalledMemories, days_between, ignores_memory, is_due
from ipyagent.parts.memory.retriever import Chosen, as_recalled, tools_in_use
from ipyagent.parts.memory.safe_paths import SCOPES
from ipyagent.parts.memory.store import Memory
from ipyagent.parts.memory.stores import MemoryStores

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


DIFF_LINES = 2_000
DIFF_CHARS = 100_000
SHOWN = 0.005
"""A score that is not 0.00 to the user; less is nothing in common, if no word is shared."""
TRIED = 20
"""Memories that are told of a query."""


@dataclass(frozen=True)
class Browsing:
    """`access` gives the memories as the user may change them; `search` finds memories by words in their text, best
    first; `recall` tries a request, which is shown to no model: why none would be looked for ("" when they would), what
    would be shown, then what comes close."""

    memories: MemoryStores
    access: Callable[[], MemoryAccess]
    search: Callable[[str], Sequence[Memory]]
    recall: Callable[[str], tuple[str, Sequence[Explained]]]

    def everything(self) -> list[Memory]:
        """All memories that may be used now, newest first."""
        found = [memory for store in self.memories.stores().values() for memory in store.list()]
        return sorted(found, key=lambda memory: -memory.modified)

    def missing(self) -> list[str]:
        """Why memories are not listed, one line a reason."""
        return list(dict.fromkeys(filter(None, (self.memories.refusal(scope) for scope in SCOPES))))


def browsing_of(agent: RunningAgent) -> Browsing:
    """The memories of an agent, as its user may browse them."""

    def tried(request: str) -> tuple[str, Sequence[Explained]]:
        why = skipped(agent, request)
        return why, [] if why else explain(agent, request, TRIED)

    part = agent.part(MemoryPart)
    memories, recalling = part.memories, part.recalling
    return Browsing(
        memories,
        MemoryUndo(memories, lambda: agent.session).access,
        lambda words: [item.memory for item in recalling.ranked(words, patient=True)[0]],
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
    recalling = agent.part(MemoryPart).recalling
    session = agent.session
    known = session.folded(RecalledMemories) if session is not None else RecalledMemories()
    try:
        model: Model | None = agent.connections.get(agent.model, agent.endpoint())
    except AgentError:
        model = None  # nobody to ask: words alone decide
    tools = tools_in_use(session) if session is not None else []

    async def work(main: MainThreadExecutor) -> tuple[Chosen, list[Ranked]]:
        found = await recalling.choose(None, request, model, known, tools)
        ranked, _ = await asyncio.to_thread(recalling.ranked, request, patient=True)
        return found, ranked

    with agent.occupied() as main:
        found, ranked = main.run_blocking(lambda: work(main))
    now = time.time()
    made = [
        Explained(recalled=as_recalled(memory, why, score, now), picked=True, by=found.by)
        for memory, why, score in found.items
    ]
    taken = {memory.path for memory, _, _ in found.items}
    close = [item for item in ranked if item.words or item.score >= SHOWN or item.likeness >= FLOOR_VECTOR]
    for item in close[:most]:
        if item.memory.path not in taken:
            seen = recalling.is_known(item.memory, known)
            why = f"{item.why}; {'shown in this session already' if seen else 'not picked'}"
            made.append(Explained(recalled=as_recalled(item.memory, why, round(item.score, 3), now), picked=False))
    return made


def diff(before: str, now: str) -> list[tuple[str, str]]:
    """Changed lines with three of context, each with its sign ("+", "-", " " or "@"); at most DIFF_LINES and DIFF_CHARS
    of them, and a last one that says so."""
    rows = list(difflib.unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=3))[2:]
    kept: list[tuple[str, str]] = []
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
