"""Recall wired to the turns of a kernel: each request is looked at beside the model's work, and what fits
stands before the model at its next round.

It never holds an answer up: beside the request it waits a few milliseconds at most, and only where words
alone decide; what comes too late waits for the next request. Whatever fails, the turn goes on without.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ipyagent.assembly.session_setup import SessionSetup
from ipyagent.errors import AgentError
from ipyagent.journal.events import LayerFailed, MemorySurfaced, Recalled
from ipyagent.journal.protocols import Model, Workspace
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.session import Session
from ipyagent.parts.memory.metadata_index import Memory, is_conflicted
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
from ipyagent.parts.memory.selector import NAME, PATIENCE, Chosen, MemorySelector, record_if_open, tools_in_use
from ipyagent.parts.memory.stores import MemoryStores

QUICK = 0.3
"""Seconds that a request waits for words alone at most; they take a few milliseconds, but for the first look at
thousands of files."""
HEAD_START = 0.03
"""Seconds by which the request goes first, so that nothing takes its time on the way out."""
NAMESPACE = 0.3
"""Seconds to wait for the main thread's look at the namespace."""
FIT = 20
"""Places of the ranking among which a memory that came late must be to fit the next request."""


class MemoryRetriever:
    """The recall of one kernel."""

    def __init__(self, setup: SessionSetup, memories: MemoryStores) -> None:
        self.choosing = MemorySelector(setup, memories)
        self._setup = setup
        self._late: tuple[str, Chosen] = ("", Chosen())
        """The session and what came too late in it."""
        self._told: set[str] = set()

    @contextmanager
    def turn(self, session: Session, request: str, workspace: Workspace, model: Model) -> Iterator[None]:
        """Look at a request while the session works on it."""
        recall = TurnRecall(self, self._setup, session, request, workspace, model)
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
        self,
        recalling: MemoryRetriever,
        setup: SessionSetup,
        session: Session,
        request: str,
        workspace: Workspace,
        model: Model,
    ) -> None:
        self._recalling, self._choosing, self._setup = recalling, recalling.choosing, setup
        self._session = session
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
        waits = 0.0 if self._choosing.may_ask else QUICK
        if self._setup.settings.recall_when == "before":
            waits = PATIENCE + QUICK  # by then words alone have decided where the selector was too slow
        self._task = asyncio.create_task(self._look(0.0 if waits else HEAD_START), name="ipyagent recall")
        if waits:
            await asyncio.wait((self._task,), timeout=waits)

    async def _look(self, after: float) -> Chosen:
        if after:
            await asyncio.sleep(after)
        session = self._session
        return await self._choosing.choose(
            session, self._request, self._model, session.folded(RecalledMemories), tools_in_use(session)
        )

    async def _attach_late(self, late: Chosen) -> None:
        """What the request before was too fast for, as far as it fits this one."""
        try:
            async with asyncio.timeout(QUICK):
                ranked, _ = await asyncio.to_thread(self._choosing.ranked, self._request)
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
            for scope, store in self._choosing.stores().items():
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
        stores = self._choosing.stores()
        for memory, why, score in found.items:
            store = stores.get(memory.scope)
            if store is None or self._choosing.is_known(memory, known):
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
        self._ready = asyncio.create_task(self._choosing.get_ready(), name="ipyagent recall")
        if not self._attached:
            self._task.add_done_callback(late)


def as_recalled(memory: Memory, why: str, score: float, now: float, chars: int = 0) -> Recalled:
    """A memory as it is journalled when it is shown, of its text so many characters; `now` in seconds since 1970."""
    told, age = memory.description or memory.title, days_between(memory.modified, now)
    return Recalled(path=memory.path, description=told, why=why, score=score, age=age, chars=chars)
