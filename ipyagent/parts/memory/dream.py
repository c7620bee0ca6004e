"""A dream: the memories of one directory are looked through as a whole, merged, dated, and rid of what no longer
holds. When one is due, what it is told, and the dream itself from the lock to its end: a session of its own on a copy
of the memories, then the commit. How far it has come is read off its events alone.

Nothing reaches the memories before the commit, and whatever ends it sooner, an error, a stop, a limit, leaves the time
of the last consolidation as it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec

from ipyagent.assembly.requests import NullSurface, Options
from ipyagent.assembly.settings import limits_of, state_of
from ipyagent.context.thresholds import check_fixed_part
from ipyagent.errors import AgentError, MemoryRefused
from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    ForkEnded,
    MemorySaved,
    ModelChosen,
    SessionStarted,
    SystemPromptFrozen,
    ToolCalled,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import TRANSCRIPT, new_session_id
from ipyagent.journal.protocols import Tool, Workspace
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.session import Session
from ipyagent.loop.turn import run_turn
from ipyagent.model.client import AnthropicModel
from ipyagent.parts.memory.access import MemoryAccess
from ipyagent.parts.memory.dream_workspace import BY, Committed, DreamChange, DreamWorkspace
from ipyagent.parts.memory.extract import READERS, dream_tools, harmless, manifest
from ipyagent.parts.memory.index import MOST_LINES
from ipyagent.parts.memory.ranking import filled
from ipyagent.parts.memory.store import Memory, MemoryStore
from ipyagent.parts.memory.transaction import DreamLock
from ipyagent.parts.memory.transcripts import typed_in
from ipyagent.project import DREAM
from ipyagent.version import __version__

if TYPE_CHECKING:
    from ipyagent.assembly.session_setup import SessionSetup
    from ipyagent.parts.memory.stores import MemoryStores

PURPOSE = "dream"
"""Also the element that holds the order."""
MOST_REPLIES = 40
"""Replies of the model in one dream."""
MOST_SECONDS = 1800.0
SHOWN_TURNS = 30
LOOK_SECONDS = 600.0
"""Sessions are counted at most so often."""
MOST_DELETED = 1 / 3
"""The part of the files that a dream may delete without the user's yes."""
MOST_FINDINGS = 30
EVERYWHERE = (
    " These memories are the user's for all projects. You have the memory tool alone and cannot look into any "
    "project: nothing is refuted by a file that you do not see."
)
FILES = "Check what can be checked: does a file, column or function that a memory names still exist ({})? "
HERE = (
    "Did a later session say otherwise? Ask `past_sessions` for exactly what you doubt; transcripts are never read "
    "whole. Sessions since the last time: {}."
)
"""How memories of a project are checked, after FILES where they can be read; those for all projects, as AMONG says."""
AMONG = "Check the memories against each other: does a later one say otherwise?"
_WRITES = ("create", "str_replace", "insert", "delete", "rename")


class DreamProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a dream has come (`status` "": there was none yet; `phase` "" once it has ended). `turns` are the last 30
    replies of the model, what it said and called, each as a text; `files` the paths touched so far, in the copy while
    it runs; `began` in Unix time; `cost` in dollars (None: no price known); `message` one line at the end."""

    status: Literal["", "running", "completed", "held", "failed", "killed"] = ""
    phase: Literal["", "orient", "gather", "consolidate", "prune"] = ""
    turns: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    began: float = 0.0
    seconds: float = 0.0
    cost: float | None = 0.0
    message: str = ""


def advanced(progress: DreamProgress, event: Event) -> DreamProgress:
    """The progress after one more event of the dream's session."""
    change = msgspec.structs.replace
    match event:
        case AssistantMessage() if not event.partial:
            text = "\n".join(str(block["text"]) for block in event.blocks if block.get("type") == "text").strip()
            calls = ", ".join(_call(block) for block in event.blocks if block.get("type") == "tool_use")
            made = change(progress, turns=(*progress.turns, " · ".join(filter(None, (text, calls))))[-SHOWN_TURNS:])
        case ToolCalled() if event.name == "memory" and event.input.get("command") in _WRITES:
            made = change(progress, phase="consolidate")
        case ToolCalled() if event.name != "memory" and progress.phase == "orient":
            made = change(progress, phase="gather")
        case MemorySaved():
            made = touched(progress, event.path)
        case UsageReported():
            cost = None if event.cost is None or progress.cost is None else progress.cost + event.cost
            made = change(progress, cost=cost)
        case _:
            return progress
    return change(made, seconds=round(time.time() - made.began, 3))


def touched(progress: DreamProgress, path: str) -> DreamProgress:
    return msgspec.structs.replace(progress, files=tuple(dict.fromkeys((*progress.files, path))))


def _call(block: dict[str, object]) -> str:
    """What was called, as "memory view a.md"."""
    given = block.get("input")
    values = given.values() if isinstance(given, dict) else ()
    words = [" ".join(value.split())[:60] for value in values if isinstance(value, str)]
    return " ".join([str(block.get("name")), *words[:2]])


class Gates:
    """Whether a dream is due; asked after every turn. Remembers when sessions were counted last."""

    def __init__(self) -> None:
        self._looked: dict[Path, float] = {}

    def early(self, lock: DreamLock, *, hours: float, glance: bool = False) -> str:
        """Whether the last dream is not long enough ago, or sessions were counted a moment ago, in words; "" when it
        may be due. A last time that lies ahead, the clock was set back, counts by how far it is away. `glance`: who
        holds the lock is left for later, so that nothing is waited for."""
        ago = abs(time.time() - lock.last())
        if ago < hours * 3600:
            return f"the last dream was {ago / 3600:.1f} hours ago; {hours:g} lie between two at least"
        looked = self._looked.get(lock.path)
        if looked is not None and time.monotonic() - looked < LOOK_SECONDS:
            return "sessions were counted less than 10 minutes ago"
        holder = None if glance else lock.holder()
        return f"process {holder.pid} dreams now" if holder is not None else ""

    def closed(self, lock: DreamLock, *, hours: float, sessions: int, touched: Callable[[float], int]) -> str:
        """Whether too few sessions were written since the last dream, in words. `touched` counts them since a
        Unix time."""
        last, now = lock.last(), time.time()
        self._looked[lock.path] = time.monotonic()
        count = touched(last if last <= now else now - hours * 3600)
        return f"{count} sessions since the last dream; {sessions} call for one" if count < sessions else ""


def held_because(base: int, changes: Sequence[DreamChange]) -> str:
    """Why these changes wait for the user's yes; "" when they need not."""
    count = sum(change.kind == "deleted" for change in changes)
    return f"it would delete {count} of {base} memories, more than a third" if count > MOST_DELETED * base else ""


def system() -> str:
    """The head of a dream's session: what it is and what it may do."""
    return files("ipyagent.parts.memory").joinpath("dream_system.md").read_text(encoding="utf-8").strip()


def order(
    memories: Sequence[Memory],
    *,
    scope: str,
    readers: Sequence[str],
    findings: Sequence[str],
    sessions: Sequence[str],
    last: float,
    now: float,
) -> str:
    """What a dream is told. `memories` newest first; `readers` the tools that it reads files with; `findings` what is
    wrong with index and headers; `sessions` ids of those since the `last` dream (Unix time, 0.0: never), newest first;
    `now` Unix time."""
    here, looks = scope == "project", FILES.format(", ".join(readers)) if readers else ""
    refuted = f"{'a file you looked at, ' if readers else ''}a later memory or the user's later words"
    values = {
        "today": datetime.fromtimestamp(now).strftime("%A %Y-%m-%d"),
        "last": f"the last time was {datetime.fromtimestamp(last):%Y-%m-%d}" if last else "this is the first time",
        "scope": scope,
        "care": "" if here else EVERYWHERE,
        "gather": looks + HERE.format(", ".join(sessions[:MOST_FINDINGS]) or "none") if here else AMONG,
        "refuted": refuted if here else "a later memory",
        "findings": "\n".join(f"- {harmless(each)}" for each in findings[:MOST_FINDINGS]) or "(nothing)",
        "memories": manifest(memories),
        "replies": str(MOST_REPLIES),
        "index": str(MOST_LINES),
    }
    return filled(PURPOSE, "dream_prompt.md", values)


# ---- What the user is told of a dream, in a line, and what it saved, as events.

SHOWN = 6


def saved_events(committed: Committed) -> list[MemorySaved]:
    """What was committed, as events."""
    made = []
    for change, written in zip(committed.done, committed.written, strict=True):
        path = written.memory.path
        old = f"{path[: -len(change.name)]}{change.old}" if change.old else ""
        if written.change != "unchanged":
            made.append(
                MemorySaved(path=path, change=written.change, by=PURPOSE, old=old, revision=written.revision)
            )
    return made


def command(scope: str) -> str:
    """The line that dreams of the memories of a scope."""
    return "%memory dream" if scope == "project" else f"%memory dream --scope {scope}"


def done_line(committed: Committed | None, scope: str = "project") -> str:
    """What a dream did, in a line."""
    if committed is None or not (committed.done or committed.kept):
        return "all was in order, nothing changed"
    kept = f"; saved meanwhile, so left as they are: {_few(list(committed.kept))}" if committed.kept else ""
    if not committed.done:
        return f"nothing changed{kept}"
    return f"{counted(committed.done)}{kept}; undo: {command(scope)} --undo"


def waiting_line(changes: tuple[DreamChange, ...], why: str, dry_run: bool, scope: str = "project") -> str:
    """What a dream would do, and how it is done."""
    reason = f" ({why})" if why else ""
    yes = f"do it: {command(scope)} --accept"
    if dry_run:
        return f"would do: {counted(changes)}{reason}; {yes}"
    return f"waiting for your approval, {why}: {counted(changes)}; {yes}, or drop it: {command(scope)} --undo"


def counted(changes: tuple[DreamChange, ...]) -> str:
    """Changes by kind, with some of the names: "1 changed (a.md), 2 deleted (b.md, c.md)"."""
    parts = []
    for kind in ("created", "changed", "renamed", "deleted"):
        names = [change.name for change in changes if change.kind == kind]
        if names:
            parts.append(f"{len(names)} {kind} ({_few(names)})")
    return ", ".join(parts)


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} …" if len(names) > SHOWN else shown


T = TypeVar("T")
ORDER_GIVEN = "(the memories are tidied)"
"""Stands for the user's words, which there are none of."""


Checked: TypeAlias = Callable[[Session, Sequence[str], Sequence[str]], Awaitable[str | None]]
"""What a memory adds to what the user said ("" for nothing), for a session; None when nobody answers."""


class Dream(NullSurface):
    """One dream, which is shown the events of its session. `tell` takes its progress, each time whole; `paid` what its
    requests took, once."""

    def __init__(
        self,
        setup: SessionSetup,
        memories: MemoryStores,
        store: MemoryStore,
        *,
        tell: Callable[[DreamProgress], None],
        paid: Callable[[ForkEnded], None],
        check: Checked,
    ) -> None:
        self._setup, self._memories = setup, memories
        self._check = check
        self._store = store
        self._lock = DreamLock(store.folder, store.lock)
        self._tell = tell
        self._paid = paid
        self._staging: DreamWorkspace | None = None
        self._last = 0.0
        self._waits = False
        self._committed: Committed | None = None
        self.progress = DreamProgress(status="running", phase="orient", began=time.time())

    def __repr__(self) -> str:
        return f"<Dream {self.progress.status} in {self._store!r}>"

    async def run(
        self, main: MainThreadExecutor, model: AnthropicModel, name: str, *, dry_run: bool = False
    ) -> DreamProgress:
        """Dream; how it ended is a value. Raises MemoryRefused ("busy") while another dreams."""
        self._say(message="")
        try:
            await whole(self._begin)
            await self._dream(main, model, name, dry_run)
        except asyncio.CancelledError:
            self._say(status="killed", message="stopped; no memory was changed")
        except MemoryRefused as problem:
            self._say(status="failed", message=str(problem))
            if problem.reason == "busy":
                raise
        except AgentError as problem:
            self._say(status="failed", message=str(problem))
        except Exception as problem:
            self._say(status="failed", message=f"internal error {type(problem).__name__}: {str(problem)[:200]}")
            raise
        finally:
            await self._ended()
        return self.progress

    # ------------------------------------------------------------------ from the lock to the copy

    def _begin(self) -> None:
        self._last = self._lock.acquire().last()
        self._staging = DreamWorkspace.make(self._store)

    async def _ended(self) -> None:
        try:
            await whole(self._end)
        except RuntimeError:  # the process ends: no thread may be begun any more
            self._end()
        except MemoryRefused as problem:  # the copy stays until the next dream
            self._say(message=f"{self.progress.message}; {problem}")

    def _end(self) -> None:
        """Let go of everything, in every way out."""
        self._lock.release()
        if self._staging is not None and not self._waits:
            self._staging.drop()

    # ------------------------------------------------------------------ the dream itself

    async def _dream(self, main: MainThreadExecutor, model: AnthropicModel, name: str, dry_run: bool) -> None:
        staging = self._staging
        assert staging is not None
        self._setup.project.make()
        started = SessionStarted(session=new_session_id() + DREAM, version=__version__)
        session = Session.create(self._setup.project.sessions, started)
        try:
            if not await self._work(session, main, model, name, staging):
                return
            self._say(phase="prune")
            changes = await whole(staging.changes)
            why = held_because(len(staging.base), changes)
            if changes and (dry_run or why):
                await whole(partial(staging.wait, started.session, why, changes))
                self._waits = True
                line = waiting_line(changes, why, dry_run, self._store.scope)
                self._say(status="completed" if dry_run else "held", message=line)
                return
            if changes:
                with suppress(asyncio.CancelledError):  # once begun it comes to its end
                    await whole(partial(self._commit, staging, started.session, changes))
                assert self._committed is not None
                for event in saved_events(self._committed):
                    session.record(event)
                self._say(files=tuple(dict.fromkeys(written.memory.path for written in self._committed.written)))
            elif not dry_run:
                await whole(self._lock.succeed)
            self._say(status="completed", message=done_line(self._committed, self._store.scope))
        finally:
            session.close()

    def _commit(self, staging: DreamWorkspace, session: str, changes: tuple[DreamChange, ...]) -> None:
        self._committed = staging.commit(session, changes)
        self._lock.succeed()

    async def _work(
        self, session: Session, main: MainThreadExecutor, model: AnthropicModel, name: str, staging: DreamWorkspace
    ) -> bool:
        """Let the model work on the copy; whether it came to its end."""
        settings = self._setup.settings
        tools = dream_tools(self._setup.tool_registry.ours(), here=self._store.scope == "project")
        await self._connect(session, model, tools, name)
        access = await whole(partial(self._access, session, staging))
        workspace = replace(self._setup.workspace(session, main), read_stamps={}, memory=access)
        said = await whole(partial(self._order, staging, [name for name in tools if name in READERS]))
        before = self._setup.spending.today() if settings.max_cost_per_day else 0.0
        timer, began, status = asyncio.timeout(MOST_SECONDS), time.monotonic(), "stopped"
        try:
            with session.shown_on(self):
                async with timer:
                    ended = await run_turn(session, said, workspace, spent_before=before)
                    status = ended.status
        finally:
            totals, seconds = session.history.totals, round(time.monotonic() - began, 3)
            self._paid(
                ForkEnded(
                    purpose=PURPOSE, status=status, usage=totals.usage, cost=totals.cost, seconds=seconds,
                    requests=totals.requests, model=session.info.model,
                )
            )  # fmt: skip
        match ended.status:
            case "finished":
                return True
            case "stopped" if not timer.expired():
                self._say(status="killed", message="stopped; no memory was changed")
            case "stopped":
                self._say(status="failed", message=f"it took longer than {MOST_SECONDS / 60:.0f} minutes")
            case "limit" if not ended.message:
                self._say(status="failed", message=f"it came to no end in {MOST_REPLIES} replies")
            case _:
                self._say(status="failed", message=ended.message or ended.status)
        return False

    async def _connect(
        self, session: Session, model: AnthropicModel, tools: dict[str, Tool], name: str
    ) -> None:
        settings = self._setup.settings
        info = msgspec.structs.replace(await model.info(name), model=name)
        session.connect(
            model,
            info,
            tools=tools,
            permissions=Permissions(session.journal.folder / "no-rules.json", self._setup.project.root),
            limits=limits_of(settings, Options(max_turns=MOST_REPLIES), info),
            state=lambda info, tokens: state_of(settings, info, tokens),
            setting=lambda setting: getattr(settings, setting),
            restoring=_nothing,
        )
        head = system()
        described = tuple(
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in tools.values()
        )
        tool_tokens = estimate_blocks(described)
        rendered = SystemPromptFrozen(
            system=({"type": "text", "text": head},),
            tools=described,
            tokens=tool_tokens + estimate_text(head),
            tool_tokens=tool_tokens,
        )
        check_fixed_part(rendered.tokens, rendered.tool_tokens, session.state(0))
        session.record(rendered)
        session.record(ModelChosen(model=name, window=info.window, max_output=info.max_output))

    def _access(self, session: Session, staging: DreamWorkspace) -> MemoryAccess:
        """The copy as the dream may write in it. What is saved there keeps the session that it came from."""

        def staged(event: MemorySaved) -> MemorySaved:
            self.progress = touched(self.progress, event.path)
            self._tell(self.progress)
            return event

        copy = staging.copy
        access = MemoryAccess(
            self._memories,
            by=BY,
            record=staged,
            events=lambda: _heard(session),
            stores={copy.scope: copy},
            check=lambda words, told: self._check(session, words, told),
        )
        project = self._setup.project
        folders = list(project.session_folders()) if copy.scope == "project" else []
        access.rewording(
            {copy.read(memory.name).text: memory.source for memory in copy.list()},
            lambda pieces: typed_in(folders, pieces, project.user),
        )
        return access

    def _order(self, staging: DreamWorkspace, readers: Sequence[str]) -> UserMessage:
        copy, project = staging.copy, self._setup.project
        text = order(
            copy.list(),
            scope=copy.scope,
            readers=readers,
            findings=[finding.text for finding in copy.index.doctor()],
            sessions=list(written_since(project.session_folders(), self._last) if copy.scope == "project" else ()),
            last=self._last,
            now=time.time(),
        )
        blocks = ({"type": "text", "text": self._setup.redactor(text)},)
        return UserMessage(text=ORDER_GIVEN, blocks=blocks, tokens=estimate_blocks(blocks))

    # ------------------------------------------------------------------ progress

    def show(self, event: Event) -> None:
        after = advanced(self.progress, event)
        if after is not self.progress:
            self.progress = after
            self._tell(after)

    def _say(self, **changes: object) -> None:
        if "status" in changes:
            changes["phase"] = ""
        seconds = round(time.time() - self.progress.began, 3)
        self.progress = msgspec.structs.replace(self.progress, seconds=seconds, **changes)
        self._tell(self.progress)


def _heard(session: Session) -> Iterator[Event]:
    """What the tools gave: the order is ours, and what it quotes of memories is no word of anybody else's."""
    return (event for event in session.journal.read() if not isinstance(event, UserMessage))


async def whole(call: Callable[[], T]) -> T:
    """`call()` on another thread, always to its end; a cancellation that came meanwhile is raised then."""
    task = asyncio.ensure_future(asyncio.to_thread(call))
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    value = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return value


def written_since(folders: Iterable[Path], since: float) -> Iterator[str]:
    """The names of those sessions, newest first, that were written since a Unix time."""
    for folder in folders:
        with suppress(OSError):
            if (folder / TRANSCRIPT).stat().st_mtime <= since:
                return
            yield folder.name


async def _nothing(workspace: Workspace) -> list[tuple[str, str]]:
    return []
