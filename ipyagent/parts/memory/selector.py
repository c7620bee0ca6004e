"""Which memories a request calls for: words and vectors rank them, a small model chooses where there is one, and tells
whether a memory goes beyond the user's words."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import msgspec

from ipyagent.assembly.session_setup import SessionSetup
from ipyagent.assembly.settings import endpoint_of, model_of, small_model_of
from ipyagent.errors import AgentError, JournalError, NoSuchPath, UnknownModel
from ipyagent.journal.events import ForkEnded
from ipyagent.journal.protocols import Model, Request
from ipyagent.loop.fork import answer_to
from ipyagent.loop.session import Session
from ipyagent.model.client_pool import LOCAL, PRACTICE
from ipyagent.model.prices import at_most
from ipyagent.parts.memory import fulltext
from ipyagent.parts.memory.fulltext import Embedder, FullText
from ipyagent.parts.memory.metadata_index import PART, Memory
from ipyagent.parts.memory.ranking import (
    CANDIDATES,
    CHECK_SCHEMA,
    CHECK_TOKENS,
    MOST_TOKENS,
    SCHEMA,
    Ranked,
    RankedFolder,
    check_directive,
    chosen,
    directive,
    goes_beyond,
    rank,
    surely,
)
from ipyagent.parts.memory.recall import RecalledMemories
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.stores import MemoryStores

NAME = "recall"
CHECK = "check"
"""What a request is for that asks whether a memory goes beyond the user's words."""
PATIENCE = 3.0
"""Seconds for the selector."""
CHECK_PATIENCE = 15.0
"""Seconds for a check, which a call of the memory tool waits for."""
MOST_CHECKS = 200
"""Answers of checks that are known."""
CACHE = "recall-{scope}.sqlite"
TOOLS_IN_USE = 6
MOST_FAILURES = 3
"""Failures in a row after which a small model is not asked again in this kernel."""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be shown, by whom it was chosen, how long that took; `problem` if something failed."""

    items: tuple[tuple[Memory, str, float], ...] = ()
    """Each with the reason and the score."""
    by: str = "ranking"
    seconds: float = 0.0
    problem: str = ""


Purpose: TypeAlias = tuple[str, dict[str, Any], int]
"""What a small model is asked for: the name that its cost goes by, the answer's schema and most tokens."""


class MemorySelector:
    """Chooses among the memories of one kernel."""

    def __init__(self, setup: SessionSetup, memories: MemoryStores) -> None:
        self.setup, self._memories = setup, memories
        self._shelves: dict[Path, RankedFolder] = {}
        self._failures: dict[str, int] = {}
        self._checked: dict[str, str] = {}
        self._many: int | None = None
        """How many memories there were when they were last looked at."""
        self._places: dict[str, Path] = {}
        """The folder of each scope when it was last looked at."""
        self._one_look = Lock()
        """An index is brought up to date by one thread while no other reads it."""

    def __repr__(self) -> str:
        return f"<MemorySelector among {len(self._shelves)} folders>"

    def close(self) -> None:
        """Let go of the indexes."""
        for shelf in self._shelves.values():
            shelf.index.close()
        self._shelves.clear()

    # ------------------------------------------------------------------ looking, off the loop

    def stores(self) -> dict[str, MemoryStore]:
        """The stores that may be used now and have something in them."""
        return {scope: store for scope, store in self._memories.stores().items() if store.folder.is_dir()}

    def ranked(self, request: str, *, patient: bool = False) -> tuple[list[Ranked], list[Memory]]:
        """The memories that fit a request, best first, and all there are, newest first. Blocks; `patient`
        also loads the model for vectors, if there is one. Raises AgentError, OSError, sqlite3.Error."""
        with self._one_look:
            stores = self.stores()
            listed = {scope: store.glance() for scope, store in stores.items()}
            embedder = fulltext.load() if patient and any(listed.values()) else fulltext.loaded()
            ranked = self._ranked(stores, listed, request, embedder)
            stale = {
                scope for scope, store in stores.items()
                if store.changed(item.memory.name for item in ranked if item.memory.scope == scope)
            }  # fmt: skip
            if stale:  # edited in place, in a folder so large that not each file is looked at each time
                listed |= {scope: stores[scope].list() for scope in stale}
                ranked = self._ranked(stores, listed, request, embedder)
            every = [memory for each in listed.values() for memory in each]
            self._many = len(every)
            return ranked, sorted(every, key=lambda memory: -memory.modified)

    def _ranked(
        self,
        stores: Mapping[str, MemoryStore],
        listed: Mapping[str, list[Memory]],
        request: str,
        embedder: Embedder | None,
    ) -> list[Ranked]:
        shelves: list[RankedFolder] = []
        for scope, store in stores.items():
            shelf = self._shelf(store.folder, scope)
            shelf.index.refresh(listed[scope])
            shelves.append(shelf)
            self._places[scope] = store.folder
        return rank(shelves, request, embedder=embedder)

    def _shelf(self, folder: Path, scope: str) -> RankedFolder:
        if folder not in self._shelves:
            project = self.setup.project
            cache = (project.user if scope == "user" else project.state) / "cache" / CACHE.format(scope=scope)
            # a folder that is somebody's choice may lie outside: no `.ipyagent/` is made for a cache
            self._shelves[folder] = RankedFolder(FullText(folder, cache if cache.parent.parent.is_dir() else None))
        return self._shelves[folder]

    def is_known(self, memory: Memory, known: RecalledMemories) -> bool:
        """Whether a memory was shown already, read by the model itself, or clicked away."""
        folder = self._places.get(memory.scope)
        return known.knows(memory, f"{folder}/{memory.name}" if folder is not None else "")

    async def get_ready(self) -> None:
        """Before the next request needs it, look at every file of a folder so large that a request does not, and load
        the model for vectors and make those of the memories."""
        with suppress(AgentError, OSError, sqlite3.Error):  # the next request meets it again, and says so
            if (self._many or 0) > PART:
                await asyncio.to_thread(lambda: [store.list() for store in self.stores().values()])
            if fulltext.available() and fulltext.loaded() is None:
                await asyncio.to_thread(self.ranked, "ready", patient=True)

    # ------------------------------------------------------------------ choosing

    @property
    def small(self) -> str:
        """The small model that chooses; "" when words alone decide."""
        return small_model_of(self.setup.settings) if self.setup.settings.recall_selector else ""

    @property
    def may_ask(self) -> bool:
        """Whether the small model may be asked, by what there was to choose from last."""
        return bool(self.small) and (self._many is None or self._many >= self.setup.settings.recall_selector_from)

    async def choose(
        self, session: Session | None, request: str, model: Model | None, known: RecalledMemories, tools: Sequence[str]
    ) -> Chosen:
        """What of the memories a request calls for. Never raises but for a cancellation."""
        began = time.monotonic()
        try:
            chosen_now = await self._chosen(session, request, model, known, tools)
        except Exception as problem:  # noqa: BLE001 - a recall that fails steps aside, the turn goes on
            words = str(problem) if isinstance(problem, AgentError) else f"{type(problem).__name__}: {problem}"
            chosen_now = Chosen(problem=words)
        return msgspec.structs.replace(chosen_now, seconds=round(time.monotonic() - began, 3))

    async def _chosen(
        self, session: Session | None, request: str, model: Model | None, known: RecalledMemories, tools: Sequence[str]
    ) -> Chosen:
        most = self.setup.settings.recall_files
        patient = self.setup.settings.recall_when == "before" or session is None
        ranked, every = await asyncio.to_thread(self.ranked, request, patient=patient)
        ranked = [item for item in ranked if not self.is_known(item.memory, known)]
        alone = Chosen(items=tuple((item.memory, item.why, round(item.score, 3)) for item in surely(ranked, most)))
        small = self.small
        if not small or model is None or not every or self._failures.get(small, 0) >= MOST_FAILURES:
            return alone
        new = sum(not self.is_known(memory, known) for memory in every)
        if new < self.setup.settings.recall_selector_from or len(alone.items) >= most:
            return alone  # there is nothing to choose, or no doubt
        scores = {item.memory.path: round(item.score, 3) for item in ranked}
        candidates = [item.memory for item in ranked[:CANDIDATES]]
        rest = (memory for memory in every if memory.path not in scores)
        unseen = (memory for memory in rest if not self.is_known(memory, known))
        candidates += islice(unseen, CANDIDATES - len(candidates))
        if not candidates:
            return alone
        try:
            async with asyncio.timeout(PATIENCE):
                text = directive(request, candidates, tools, most)
                answer = await self._answer(session, small, model, text, (NAME, SCHEMA, MOST_TOKENS))
            picked, problem = chosen(answer, candidates, most), "gave no list of memories"
        except TimeoutError:
            picked, problem = None, f"took more than {PATIENCE:g} s to choose among memories"
        except AgentError as failed:
            picked, problem = None, f"could not choose among memories: {failed}"
        if picked is None:
            self._failures[small] = self._failures.get(small, 0) + 1
            return msgspec.structs.replace(alone, problem=f"{small} {problem}")
        self._failures.pop(small, None)
        items = tuple((memory, why or "chosen by the model", scores.get(memory.path, 0.0)) for memory, why in picked)
        return Chosen(items=items, by="selector")

    async def check(self, session: Session, words: Sequence[str], told: Sequence[str]) -> str | None:
        """What a memory, its sentences, adds to what the user said ("" for nothing), as a small model (the main one
        where no smaller is known of) reads both; None when it gives no answer that can be read, or they are too
        long for it. Never raises but for a cancellation."""
        if not session.connected:
            return None
        small = small_model_of(self.setup.settings) or session.info.model
        text = check_directive(words, told)
        if not text:
            return None
        if text not in self._checked:
            try:
                async with asyncio.timeout(CHECK_PATIENCE):
                    purpose = CHECK, CHECK_SCHEMA, CHECK_TOKENS
                    answer = await self._answer(session, small, session.model, text, purpose)
            except (AgentError, TimeoutError):
                return None
            beyond = goes_beyond(answer)
            if beyond is None:  # no verdict: asked again next time
                return None
            self._checked[text] = beyond
            while len(self._checked) > MOST_CHECKS:
                del self._checked[next(iter(self._checked))]
        return self._checked[text]

    async def _answer(self, session: Session | None, small: str, model: Model, text: str, purpose: Purpose) -> str:
        """The answer of the small model, or of the main one where the server does not have that."""
        try:
            return await self._ask(session, small, model, text, purpose)
        except UnknownModel as problem:
            if isinstance(problem, NoSuchPath) or not self.setup.no_small(small):
                raise
            return await self._ask(session, small_model_of(self.setup.settings), model, text, purpose)

    async def _ask(self, session: Session | None, small: str, model: Model, text: str, purpose: Purpose) -> str:
        """The small model's answer; what it cost is journalled and counted."""
        model = await client_of(small, model, self.setup)
        name, schema, tokens = purpose
        request = Request(
            model=small,
            system=[],
            tools=[],
            messages=[{"role": "user", "content": [{"type": "text", "text": self.setup.redactor(text)}]}],
            max_tokens=tokens,
            thinking=False,
            schema=schema,
            purpose=name,
        )

        def ended(event: ForkEnded) -> None:
            self.setup.note_spent(at_most(event.cost, event.usage))
            if session is not None:
                record_if_open(session, event)

        return await answer_to(model, request, ended)


def tools_in_use(session: Session) -> list[str]:
    """Names of the tools that the model called last, newest first."""
    found: dict[str, None] = {}
    for message in reversed(session.view.messages[-30:]):
        for block in reversed(message["content"]):
            if block["type"] == "tool_use":
                found[str(block["name"])] = None
        if len(found) >= TOOLS_IN_USE:
            break
    return list(found)[:TOOLS_IN_USE]


async def client_of(name: str, model: Model, setup: SessionSetup) -> Model:
    """Who answers as `name`: `model`, which answers as the main model, unless a server of ours is meant. Raises
    AgentError."""
    if (name == PRACTICE or name.startswith(LOCAL)) and name != model_of(setup.settings):
        return await asyncio.to_thread(setup.connections.get, name, endpoint_of(setup.settings))
    return model


def record_if_open(session: Session, event: Any) -> None:
    try:
        session.record(event)
    except JournalError:
        return  # the session was let go meanwhile: nobody is there to be told
