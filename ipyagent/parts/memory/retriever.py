"""Which memories a request calls for, and how they come before the model: words and vectors rank them, a small model
chooses where there is one, and tells whether a memory goes beyond the user's words. Each request is looked at beside
the model's work, and what fits stands before the model at its next round.

It never holds an answer up: beside the request it waits a few milliseconds at most, and only where words
alone decide; what comes too late waits for the next request. Whatever fails, the turn goes on without.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import msgspec

from ipyagent.assembly.session_setup import SessionSetup
from ipyagent.assembly.settings import endpoint_of, model_of, small_model_of
from ipyagent.errors import AgentError, JournalError, NoSuchPath, UnknownModel
from ipyagent.journal.events import ForkEnded, LayerFailed, MemorySurfaced, Recalled
from ipyagent.journal.protocols import Model, Request, Workspace
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.fork import answer_to
from ipyagent.loop.session import Session
from ipyagent.model.client_pool import LOCAL, PRACTICE
from ipyagent.model.prices import at_most
from ipyagent.parts.memory import fulltext
from ipyagent.parts.memory.fulltext import Embedder, FullText
from ipyagent.parts.memory.metadata_index import PART, Memory, is_conflicted
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
from ipyagent.parts.memory.recall import (
    Lookup,
    NamedObject,
    RecalledMemories,
    RecallHit,
    days_between,
    excerpt,
    facts,
    is_due,
    look_up,
    named_in,
    surfaced_text,
    told_in,
)
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.stores import MemoryStores

NAME = "recall"
CHECK = "check"
"""What a request is for that asks whether a memory goes beyond the user's words."""
QUICK = 0.3
"""Seconds that a request waits for words alone at most; they take a few milliseconds, but for the first look at
thousands of files."""
HEAD_START = 0.03
"""Seconds by which the request goes first, so that nothing takes its time on the way out."""
NAMESPACE = 0.3
"""Seconds to wait for the main thread's look at the namespace."""
FIT = 20
"""Places of the ranking among which a memory that came late must be to fit the next request."""
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


class MemoryRetriever:
    """The recall of one kernel: which of its memories a request calls for, and the turns that they are shown in."""

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
        self._late: tuple[str, Chosen] = ("", Chosen())
        """The session and what came too late in it."""
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"<MemoryRetriever among {len(self._shelves)} folders>"

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

    # ------------------------------------------------------------------ turns

    @contextmanager
    def turn(self, session: Session, request: str, workspace: Workspace, model: Model) -> Iterator[None]:
        """Look at a request while the session works on it."""
        recall = TurnRecall(self, session, request, workspace, model)
        try:
            with session.first(recall.before_request):
                yield
        finally:
            recall.end()

    def keep(self, session: Session, late: Chosen) -> None:
        """What came too late for its turn waits for the next request of the session."""
        self._late = (session.journal.session, late)

    def late(self, session: Session) -> Chosen | None:
        """What waits for the session's next request; it waits once."""
        (name, late), self._late = self._late, ("", Chosen())
        return late if late.items and name == session.journal.session else None

    def report(self, session: Session, problem: str) -> None:
        """Say once a kernel what fails."""
        line = " ".join(problem.split())[:300]
        what = line.partition(":")[0]  # what follows tells the one request from the other
        if line and what not in self._told:
            self._told.add(what)
            record_if_open(session, LayerFailed(layer=NAME, why=f"{line}; recall uses full text alone, or is skipped"))


class TurnRecall:
    """The recall of one turn: `before_request` is called before each request to the model, `end` at the end."""

    def __init__(
        self, recalling: MemoryRetriever, session: Session, request: str, workspace: Workspace, model: Model
    ) -> None:
        self._recalling, self._setup, self._session = recalling, recalling.setup, session
        self._request = request
        self._workspace = workspace
        self._model = model
        self._task: asyncio.Task[Chosen] | None = None
        self._ready: asyncio.Task[None] | None = None
        self._begun = self._attached = False
        self._counting: asyncio.Task[None] | None = None

    async def before_request(self) -> None:
        """Begin with the first request of the turn; show what has been found by now."""
        if not self._begun:
            self._begun, settings = True, self._setup.settings
            if settings.memory and settings.recall and settings.recall_files and is_due(self._request):
                await self._begin()
        if self._task is not None and self._task.done() and not self._attached:
            self._attached = True
            await self._attach(self._task.result())

    async def _begin(self) -> None:
        if (late := self._recalling.late(self._session)) is not None:
            await self._attach_late(late)
        waits = 0.0 if self._recalling.may_ask else QUICK
        if self._setup.settings.recall_when == "before":
            waits = PATIENCE + QUICK  # by then words alone have decided where the selector was too slow
        self._task = asyncio.create_task(self._look(0.0 if waits else HEAD_START), name="ipyagent recall")
        if waits:
            await asyncio.wait((self._task,), timeout=waits)

    async def _look(self, after: float) -> Chosen:
        if after:
            await asyncio.sleep(after)
        session = self._session
        return await self._recalling.choose(
            session, self._request, self._model, session.folded(RecalledMemories), tools_in_use(session)
        )

    async def _attach_late(self, late: Chosen) -> None:
        """What the request before was too fast for, as far as it fits this one."""
        try:
            async with asyncio.timeout(QUICK):
                ranked, _ = await asyncio.to_thread(self._recalling.ranked, self._request)
        except Exception:  # noqa: BLE001 - the look at this request itself meets it again and says so
            return
        near = {item.memory.path for item in ranked[:FIT] if item.own > 0}
        fit = tuple(item for item in late.items if item[0].path in near)
        await self._attach(msgspec.structs.replace(late, items=fit))

    async def _attach(self, found: Chosen) -> None:
        """Show the memories: the newest user message ends with them."""
        session = self._session
        if found.problem:
            self._recalling.report(session, found.problem)
        known, now = session.folded(RecalledMemories), time.time()
        room = self._setup.settings.recall_bytes - known.shown_bytes  # in one session
        picked = await asyncio.to_thread(self._read, found, known) if found.items else []
        shown: list[RecallHit] = []
        for each in await self._checked(picked, now):
            size = len(surfaced_text([each], now).encode())
            if size <= room:
                room -= size
                shown.append(each)
        if not shown:
            return
        text = surfaced_text(shown, now)

        def count() -> None:
            for scope, store in self._recalling.stores().items():
                if names := [each.memory.name for each in shown if each.memory.scope == scope]:
                    store.used(names)

        self._counting = asyncio.create_task(asyncio.to_thread(count), name="ipyagent recall")
        memories = tuple(
            as_recalled(each.memory, each.why, each.score, now, len(excerpt(each.text, each.memory.path)))
            for each in shown
        )
        tokens = estimate_text(text)
        session.record(
            MemorySurfaced(memories=memories, text=text, by=found.by, tokens=tokens, seconds=found.seconds)
        )

    def _read(self, found: Chosen, known: RecalledMemories) -> list[RecallHit]:
        """The memories as their files are now; one that has gone, or that the model has read meanwhile, is left out."""
        made: list[RecallHit] = []
        stores = self._recalling.stores()
        for memory, why, score in found.items:
            store = stores.get(memory.scope)
            if store is None or self._recalling.is_known(memory, known):
                continue
            try:
                text = store.read(memory.name).text
                modified = (store.folder / memory.name).stat().st_mtime
            except (AgentError, OSError):
                continue  # it went meanwhile
            if text.strip() and not is_conflicted(text):  # which side of it is true, only a person knows
                memory = msgspec.structs.replace(memory, modified=modified)
                made.append(RecallHit(memory=memory, text=text, why=why, score=score))
        return made

    async def _checked(self, picked: list[RecallHit], now: float) -> list[RecallHit]:
        """The same with what still holds of each."""
        names = [named_in(told_in(each.text)) for each in picked]
        if not any(names):
            return picked
        look = await self._look_up([named for some in names for named in some])
        places = (self._setup.folder, self._setup.project.root)
        folders = tuple(dict.fromkeys(Path(os.path.abspath(place)) for place in places))

        def check() -> list[RecallHit]:
            return [
                msgspec.structs.replace(
                    each, facts=tuple(facts(some, look, folders, now, each.memory.modified)) if some else ()
                )
                for each, some in zip(picked, names, strict=True)
            ]

        checking = asyncio.ensure_future(asyncio.to_thread(check))
        done, _ = await asyncio.wait((checking,), timeout=NAMESPACE)  # a dead network drive holds nobody up
        return checking.result() if done else picked

    async def _look_up(self, names: list[NamedObject]) -> Lookup:
        """What the namespace holds of the names; nothing of it when the main thread is busy."""
        if all(named.kind == "file" for named in names):
            return {}
        workspace = self._workspace
        try:
            async with asyncio.timeout(NAMESPACE):
                found = await workspace.on_main(lambda: look_up(names, workspace.namespace))
        except TimeoutError:
            return {}
        return found if isinstance(found, dict) else {}

    def end(self) -> None:
        """The turn is over: what is still under way waits for the next request."""
        def late(task: asyncio.Task[Chosen]) -> None:
            if not task.cancelled() and task.exception() is None:
                self._recalling.keep(self._session, task.result())

        if self._task is None:
            return
        self._ready = asyncio.create_task(self._recalling.get_ready(), name="ipyagent recall")
        if not self._attached:
            self._task.add_done_callback(late)


def as_recalled(memory: Memory, why: str, score: float, now: float, chars: int = 0) -> Recalled:
    """A memory as it is journalled when it is shown, of its text so many characters; `now` in seconds since 1970."""
    told, age = memory.description or memory.title, days_between(memory.modified, now)
    return Recalled(path=memory.path, description=told, why=why, score=score, age=age, chars=chars)


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
