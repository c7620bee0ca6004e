"""Recall wired to the turns of a kernel: each request is looked at beside the model's work, and what fits
stands before the model at its next round.

It never holds an answer up: beside the request it waits a few milliseconds at most, and only where words
alone decide; what comes too late waits for the next request. Whatever fails, the turn goes on without.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ipyagent.assembly.session_setup import SessionSetup
from ipyagent.errors import AgentError
from ipyagent.journal.events import LayerFailed, MemorySurfaced, Recalled
from ipyagent.journal.protocols import Model, Workspace
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.session import Session
from ipyagent.model.client_pool import Connections
from ipyagent.parts.memory.metadata_index import Memory, is_conflicted
from ipyagent.parts.memory.recall import (
    NamedObject,
    RecalledMemories,
    RecallHit,
    StalenessLookup,
    days_between,
    excerpt,
    facts,
    folders_of,
    is_due,
    look_up,
    named_in,
    surfaced_text,
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
    """The recall of one kernel. `spent` takes dollars."""

    def __init__(
        self,
        setup: SessionSetup,
        memories: MemoryStores,
        connections: Connections,
        spent: Callable[[float], None],
    ) -> None:
        self.choosing = MemorySelector(setup, memories, connections, spent)
        self._setup = setup
        self._late: tuple[str, Chosen] = ("", Chosen())
        """The session and what came too late in it."""
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"<MemoryRetriever {'on' if self.on else 'off'}>"

    def close(self) -> None:
        """Let go of the indexes."""
        self.choosing.close()

    @property
    def on(self) -> bool:
        """Whether requests are looked at."""
        settings = self._setup.settings
        return bool(settings.memory and settings.recall and settings.recall_files)

    @contextmanager
    def turn(self, session: Session, request: str, workspace: Workspace, model: Model) -> Iterator[None]:
        """Look at a request while the session works on it."""
        recall = TurnRecall(self, session, request, workspace, model)
        try:
            with session.first(recall.before_request):
                yield
        finally:
            recall.end()

    # ------------------------------------------------------------------ what came late

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

    def most_bytes(self) -> int:
        """Of memories that may stand in one session."""
        return int(self._setup.settings.recall_bytes)

    @property
    def waits(self) -> float:
        """Seconds that a request waits for its recall."""
        settings = self._setup.settings
        if settings.recall_when == "before":
            return PATIENCE + QUICK  # by then words alone have decided where the selector was too slow
        return 0.0 if self.choosing.may_ask else QUICK

    def folders(self) -> tuple[Path, ...]:
        """Where files are looked for that a memory names."""
        return folders_of(self._setup.project.root, self._setup.folder)


class TurnRecall:
    """The recall of one turn: `before_request` is called before each request to the model, `end` at the end."""

    def __init__(
        self, recalling: MemoryRetriever, session: Session, request: str, workspace: Workspace, model: Model
    ) -> None:
        self._recalling = recalling
        self._session = session
        self._request = request
        self._workspace = workspace
        self._model = model
        self._task: asyncio.Task[Chosen] | None = None
        self._ready: asyncio.Task[None] | None = None
        self._begun = self._attached = False
        self._counting: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<TurnRecall {'attached' if self._attached else 'at work' if self._task else 'not begun'}>"

    async def before_request(self) -> None:
        """Begin with the first request of the turn; show what has been found by now."""
        if not self._begun:
            self._begun = True
            if self._recalling.on and is_due(self._request):
                await self._begin()
        if self._task is not None and self._task.done() and not self._attached:
            self._attached = True
            await self._attach(self._task.result())

    async def _begin(self) -> None:
        recalling = self._recalling
        if (late := recalling.late(self._session)) is not None:
            await self._attach_late(late)
        waits = recalling.waits
        self._task = asyncio.create_task(self._look(head_start=not waits), name="ipyagent recall")
        if waits:
            await asyncio.wait((self._task,), timeout=waits)

    async def _look(self, *, head_start: bool) -> Chosen:
        if head_start:
            await asyncio.sleep(HEAD_START)
        session = self._session
        return await self._recalling.choosing.choose(
            session, self._request, self._model, session.folded(RecalledMemories), tools_in_use(session)
        )

    async def _attach_late(self, late: Chosen) -> None:
        """What the request before was too fast for, as far as it fits this one."""
        try:
            async with asyncio.timeout(QUICK):
                ranked, _ = await asyncio.to_thread(self._recalling.choosing.ranked, self._request)
        except Exception:  # noqa: BLE001 - the look at this request itself meets it again and says so
            return
        near = {item.memory.path for item in ranked[:FIT] if item.own > 0}
        fit = tuple(item for item in late.items if item[0].path in near)
        await self._attach(msgspec.structs.replace(late, items=fit))

    async def _attach(self, found: Chosen) -> None:
        """Show the memories: the newest user message ends with them."""
        session, recalling = self._session, self._recalling
        if found.problem:
            recalling.report(session, found.problem)
        known, now = session.folded(RecalledMemories), time.time()
        room = recalling.most_bytes() - known.shown_bytes
        picked = [each for each in await self._read(found, known) if each.text.strip()]
        picked = await self._checked(picked, now)
        shown: list[RecallHit] = []
        for each in picked:
            size = len(surfaced_text([each], now).encode())
            if size <= room:
                room -= size
                shown.append(each)
        if not shown:
            return
        text = surfaced_text(shown, now)
        self._counting = asyncio.create_task(self._count(shown), name="ipyagent recall")
        session.record(
            MemorySurfaced(
                memories=tuple(_recalled(each, now) for each in shown),
                text=text,
                by=found.by,
                tokens=estimate_text(text),
                seconds=found.seconds,
            )
        )

    async def _count(self, shown: list[RecallHit]) -> None:
        """Keep which memories are used; beside all else."""

        def count() -> None:
            for scope, store in self._recalling.choosing.stores().items():
                if names := [each.memory.name for each in shown if each.memory.scope == scope]:
                    store.used(names)

        await asyncio.to_thread(count)

    async def _read(self, found: Chosen, known: RecalledMemories) -> list[RecallHit]:
        """The memories as their files are now; one that has gone, or that the model has read meanwhile, is left out."""

        def read() -> list[RecallHit]:
            made: list[RecallHit] = []
            stores = self._recalling.choosing.stores()
            for memory, why, score in found.items:
                store = stores.get(memory.scope)
                if store is None or self._recalling.choosing.is_known(memory, known):
                    continue
                try:
                    text = store.read(memory.name).text
                    modified = (store.folder / memory.name).stat().st_mtime
                except (AgentError, OSError):
                    continue  # it went meanwhile
                if is_conflicted(text):
                    continue  # which side of it is true, only a person knows
                memory = msgspec.structs.replace(memory, modified=modified)
                made.append(RecallHit(memory=memory, text=text, why=why, score=score))
            return made

        return await asyncio.to_thread(read) if found.items else []

    async def _checked(self, picked: list[RecallHit], now: float) -> list[RecallHit]:
        """The same with what still holds of each."""
        names = [named_in(each.text) for each in picked]
        look = await self._look_up([named for some in names for named in some])
        folders = self._recalling.folders()

        def check() -> list[RecallHit]:
            return [
                msgspec.structs.replace(
                    each, facts=tuple(facts(some, look, folders, now, each.memory.modified)) if some else ()
                )
                for each, some in zip(picked, names, strict=True)
            ]

        if not any(names):
            return picked
        checking = asyncio.ensure_future(asyncio.to_thread(check))
        done, _ = await asyncio.wait((checking,), timeout=NAMESPACE)  # a dead network drive holds nobody up
        return checking.result() if done else picked

    async def _look_up(self, names: list[NamedObject]) -> StalenessLookup:
        """What the namespace holds of the names; nothing of it when the main thread is busy."""
        if not any(named.kind != "file" for named in names):
            return StalenessLookup()
        workspace = self._workspace
        try:
            async with asyncio.timeout(NAMESPACE):
                found = await workspace.on_main(lambda: look_up(names, workspace.namespace))
        except TimeoutError:
            return StalenessLookup()
        return found if isinstance(found, StalenessLookup) else StalenessLookup()

    def end(self) -> None:
        """The turn is over: what is still under way waits for the next request."""
        task = self._task
        if task is None:
            return
        self._ready = asyncio.create_task(self._recalling.choosing.get_ready(), name="ipyagent recall")
        if not self._attached:
            task.add_done_callback(self._on_late)

    def _on_late(self, task: asyncio.Task[Chosen]) -> None:
        if not task.cancelled() and task.exception() is None:
            self._recalling.keep(self._session, task.result())


def as_recalled(memory: Memory, why: str, score: float, now: float) -> Recalled:
    """A memory as it is journalled when it is shown; `now` in seconds since 1970."""
    age = days_between(memory.modified, now)
    return Recalled(path=memory.path, description=memory.description or memory.title, why=why, score=score, age=age)


def _recalled(each: RecallHit, now: float) -> Recalled:
    made = as_recalled(each.memory, each.why, each.score, now)
    return msgspec.structs.replace(made, chars=len(excerpt(each.text, each.memory.path)))
