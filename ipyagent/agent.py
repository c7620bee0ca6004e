"""The agent: a project, a session, a model and tools, wired for turns. Used by the magics and by scripts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.config import IPyAgent
from ipyagent.context.reminders import Seen, context_block
from ipyagent.context.thresholds import check_fixed_part, window_state
from ipyagent.errors import UsageError
from ipyagent.journal.events import (
    Ending,
    Event,
    FilesRestored,
    Mode,
    ModelChosen,
    TurnEnded,
    UserSaid,
)
from ipyagent.journal.journal import clean
from ipyagent.journal.protocols import ModelInfo, Surface, Tool, WindowState
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.kernel.dispatcher import MainThread
from ipyagent.kernel.shell import make_shell
from ipyagent.kernel.thread import AgentThread
from ipyagent.kernel.variables import short_types, summarize
from ipyagent.kernel.workspace import BACKUPS, KernelWorkspace, Names
from ipyagent.listening import Listener, Unseen
from ipyagent.loop.budget import add_spent, spent_today
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.session import Limits, Session
from ipyagent.loop.turn import run_turn
from ipyagent.mentions import Mention, blocks_of, find
from ipyagent.model.capabilities import DEFAULT_WINDOW
from ipyagent.model.connect import DEFAULT_MODEL, Connections
from ipyagent.model.endpoint import Endpoint
from ipyagent.project import Project, find_root, user_folder
from ipyagent.prompt import render
from ipyagent.sessions import Sessions
from ipyagent.tools.catalogue import catalogue
from ipyagent.tools.schema import FunctionTool
from ipyagent.tools.undo import Undone, restore


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What one request may say beside its words; empty means the setting.

    `fresh`: without history, not kept in the conversation. `fork`: with history, not kept.
    """

    model: str = ""
    max_turns: int = 0
    effort: str = ""
    mode: Mode | None = None
    fresh: bool = False
    fork: bool = False


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended: `status` finished, stopped, limit, refused or failed; `message` one line
    for the user; `text` the model's last words; `cost` US dollars (None: no price known)."""

    status: Ending
    message: str
    text: str
    cost: float | None
    seconds: float


class _Asked(msgspec.Struct, frozen=True):
    """A request as it was taken in on the main thread."""

    text: str
    cell: str
    seen: Seen
    mentions: list[Mention]
    tools: dict[str, Tool]
    options: Options


class PreparedTurn:
    """A request that was taken in and not begun yet; run it once, on the same thread."""

    def __init__(
        self, agent: Agent, surface: Surface, work: Callable[[MainThread], Coroutine[Any, Any, TurnResult]]
    ) -> None:
        self._agent, self._surface, self._work = agent, surface, work

    async def run(self) -> TurnResult:
        """Show it and run it, awaited from the cell. Raises KeyboardInterrupt after an interrupt;
        every other ending is a value."""
        with self._open() as main:
            return await main.door(lambda: self._work(main))

    def run_blocking(self) -> TurnResult:
        """The same without awaiting."""
        with self._open() as main:
            return main.blocking_door(lambda: self._work(main))

    @contextmanager
    def _open(self) -> Iterator[MainThread]:
        with self._agent.occupied() as main:
            self._surface.open()
            try:
                yield main
            finally:
                self._surface.close()


class Agent:
    """An agent in a project folder.

    `shell` is an IPython shell (a private one when None), `folder` where the user works (the
    current directory when None), `notebook` the notebook's path when it is known, `tools` further
    tools. Methods are called on one thread, the one where user code runs.
    """

    def __init__(
        self,
        *,
        shell: Any = None,
        settings: IPyAgent | None = None,
        folder: Path | None = None,
        notebook: Path | None = None,
        tools: Iterable[Tool] = (),
    ) -> None:
        self.shell = make_shell() if shell is None else shell
        self.settings = settings or IPyAgent()
        self.folder = (folder or Path.cwd()).resolve()
        self.project = Project(find_root(self.folder, notebook), user_folder())
        self.notices: list[str] = []
        """Lines that the user should see before the next turn; the caller takes them."""
        self.connections = Connections()
        self.sessions = Sessions(self.project, self.settings, namespace=self.shell.user_ns, notice=self.notices.append)
        self.sessions.notebook = notebook
        self._own_tools = {tool.name: tool for tool in tools}
        self._thread = AgentThread()
        self._told: Seen | None = None
        self._names = Names()
        self._stamps: dict[Path, str] = {}
        self._cells_seen = len(self._inputs())
        self._permissions: Permissions | None = None
        self._catalogue: dict[str, Tool] | None = None
        self._running: MainThread | None = None

    def __repr__(self) -> str:
        session = self.session.journal.session if self.session is not None else "no session yet"
        return f"<Agent {session} on {self.model} in {self.project.root.name}>"

    # ------------------------------------------------------------------ settings

    @property
    def model(self) -> str:
        """The model's name: the setting, ANTHROPIC_MODEL, or the default."""
        return self.settings.model or os.environ.get("ANTHROPIC_MODEL", "") or DEFAULT_MODEL

    @property
    def permissions(self) -> Permissions:
        """Modes and rules; the project's rules live in the user's directory."""
        if self._permissions is None:
            self._permissions = Permissions(self.project.rules, self.project.root)
        self._permissions.mode = self.settings.mode
        return self._permissions

    def endpoint(self) -> Endpoint:
        """Where the settings send requests."""
        settings = self.settings
        return Endpoint(
            base_url=settings.base_url,
            provider=settings.provider,
            timeout=settings.request_timeout,
            retries=settings.max_retries,
            longest_wait=settings.max_retry_wait,
            thinking=settings.thinking,
            window=settings.window,
        )

    # ------------------------------------------------------------------ sessions

    @property
    def session(self) -> Session | None:
        """The session that requests go to; None before the first."""
        return self.sessions.current

    def new(self) -> None:
        """Start afresh with the next request; the old session stays on disk."""
        self.sessions.leave()
        self._told = None

    def resume(self, name: str = "") -> Session:
        """Take up a stored session, see `Sessions.resume`."""
        self._told = None
        return self.sessions.resume(name)

    def close(self) -> None:
        """Let go of the session, the models and the agent thread."""
        self.stop()
        self._thread.start(self.connections.close).result(timeout=3)
        self._thread.close()
        self.sessions.leave()

    # ------------------------------------------------------------------ turns

    def prepare(self, text: str, options: Options, surface: Surface, *, cell: str = "") -> PreparedTurn:
        """Take a request in, on the main thread: what the namespace holds is read here.

        Raises UsageError while another turn runs, NoCredentials, SettingError, JournalError.
        """
        if self._running is not None:
            raise UsageError("a turn is running in this kernel already; wait for it, or %agent stop")
        model = self.connections.get(options.model or self.model, self.endpoint())
        session = self.sessions.ensure()
        asked = _Asked(
            text=clean(text),
            cell=cell,
            seen=self._look(),
            mentions=find(text, self.shell.user_ns, self.folder),
            tools=self.tools_now(),
            options=options,
        )

        async def work(main: MainThread) -> TurnResult:
            own = self._side_session(session, options)
            try:
                return await self._work(own, asked, main, surface, model)
            finally:
                own.surface = None
                if own is not session:
                    own.journal.close()

        return PreparedTurn(self, surface, work)

    def run_sync(self, text: str, **options: Any) -> TurnResult:
        """One request from a script, shown nowhere. `options` as in `Options`."""
        return self.prepare(text, Options(**options), Unseen()).run_blocking()

    async def run(self, text: str, **options: Any) -> AsyncIterator[Event]:
        """One request from async code: its events as they happen, each on disk already; the last
        is the TurnEnded. Leaving the loop early stops the turn."""
        listener = Listener(asyncio.get_running_loop())
        task = asyncio.ensure_future(self.prepare(text, Options(**options), listener).run())
        task.add_done_callback(lambda _: listener.finish())
        try:
            while (event := await listener.queue.get()) is not None:
                yield event
            await task
        finally:
            if not task.done():
                self.stop()
                await asyncio.wait({task})

    async def ask_line(self, prompt: str) -> str:
        """A line that the user types, read on the main thread of the running turn."""
        if self._running is None:
            raise EOFError("no turn is running")
        return await self._running.ask_line(prompt)

    def stored_turn(self, text: str, cell: str) -> list[Event] | None:
        """The events of a finished turn that this very cell asked for in an earlier kernel, as long
        as nothing new was said since the session was resumed; None when the cell must run."""
        session = self.sessions.take_up()
        if session is None:
            return None
        turn = self.sessions.replay(clean(text), cell)
        if turn is None:
            return None
        return [event for event in session.journal.read() if turn.first <= event.id <= turn.last]

    @contextmanager
    def occupied(self) -> Iterator[MainThread]:
        """The main thread's dispatcher for one turn; while it is held no other turn begins."""
        settings = self.settings
        self._running = MainThread(
            self.shell,
            self._thread,
            max_chars=settings.tool_output_chars,
            live_chars=settings.live_output_chars,
        )
        try:
            yield self._running
        finally:
            self._running = None

    def stop(self) -> None:
        """Stop the running turn, from any thread; nothing more happens after it."""
        main = self._running
        if main is not None:
            main.stop("button")

    def _side_session(self, session: Session, options: Options) -> Session:
        """The session the request runs in: a throw-away one for `fresh` and `fork`."""
        if options.fresh or options.fork:
            return self.sessions.aside(with_history=options.fork)
        return session

    async def _work(
        self, session: Session, asked: _Asked, main: MainThread, surface: Surface, model: Any
    ) -> TurnResult:
        """The turn itself, on the agent thread."""
        options, settings = asked.options, self.settings
        session.surface = surface
        name = options.model or self.model
        session.show_phase("connecting")
        info = await model.info(name)
        largest = settings.max_output or min(info.max_output, 32_000)
        permissions = self.permissions if options.mode is None else self.permissions.with_mode(options.mode)
        session.connect(
            model,
            msgspec.structs.replace(info, model=name),
            tools=asked.tools,
            permissions=permissions,
            limits=Limits(
                max_turns=options.max_turns or settings.max_turns,
                max_tokens=largest,
                effort=options.effort or settings.effort,
                prompt_cache=settings.prompt_cache,
                cache_ttl=settings.cache_ttl,
                max_cost=settings.max_cost,
                max_cost_per_day=settings.max_cost_per_day,
            ),
            state=lambda tokens: self.window_state(info, tokens),
        )
        self._render(session, asked.tools)
        if session.view.model != name:
            session.record(ModelChosen(model=name, window=info.window, max_output=info.max_output))
        workspace = self._workspace(session, main)
        blocks = await blocks_of(asked.mentions, workspace)
        context = context_block(
            asked.seen, self._told, restarted=session.history.stale, before=session.history.variables
        )
        blocks = [*blocks, *([context] if context is not None else []), {"type": "text", "text": asked.text}]
        said = UserSaid(text=asked.text, blocks=tuple(blocks), cell=asked.cell, tokens=estimate_blocks(blocks))
        if not (options.fresh or options.fork):
            self._told = asked.seen
        self._names.types = dict(asked.seen.types)
        before = spent_today(self.project.spend) if settings.max_cost_per_day else 0.0
        ended = await run_turn(session, said, workspace, variables=lambda: self._names.types, spent_before=before)
        add_spent(self.project.spend, session.turn_cost or 0.0)
        session.show_phase("")
        return self._result(session, ended)

    def _result(self, session: Session, ended: TurnEnded) -> TurnResult:
        answer = session.history.turns[-1].answer if session.history.turns else ""
        return TurnResult(
            status=ended.status, message=ended.message, text=answer, cost=session.turn_cost, seconds=ended.seconds
        )

    def _render(self, session: Session, tools: dict[str, Tool]) -> None:
        """The head of a new session; an old one keeps its bytes unless the user adds a tool."""
        listed = {block["name"]: block["input_schema"] for block in session.view.tools}
        own = [tool for name, tool in tools.items() if name not in self._installed()]
        if not session.view.system or any(listed.get(tool.name) != tool.input_schema for tool in own):
            rendered = render(tools)
            check_fixed_part(rendered.tokens, rendered.tool_tokens, session.state(0))
            session.record(rendered)

    def tools_now(self) -> dict[str, Tool]:
        """Ours, the ones given, and the user's own that stand in the namespace (`@ipyagent.tool`)."""
        values = list(self.shell.user_ns.values())
        found: dict[str, Any] = {value.name: value for value in values if type(value) is FunctionTool}
        return {**self._installed(), **self._own_tools, **dict(sorted(found.items()))}

    def _installed(self) -> dict[str, Tool]:
        """Our tools and those of other packages; what was left out is said once."""
        if self._catalogue is None:
            found = catalogue()
            self._catalogue = {tool.name: tool for tool in found.tools}
            self.notices.extend(found.problems)
        return self._catalogue

    def _workspace(self, session: Session, main: MainThread) -> KernelWorkspace:
        allowed = (self.project.root, self.folder, *(Path(f).expanduser() for f in self.settings.allowed_folders))
        return KernelWorkspace(
            root=self.project.root,
            folder=self.folder,
            shell=self.shell,
            main=main,
            backups=session.journal.folder / BACKUPS,
            record=session.record,
            limits=lambda name: int(getattr(self.settings, name)),
            allowed=tuple(dict.fromkeys(path.resolve() for path in allowed)),
            read_stamps=self._stamps,
            names=self._names,
        )

    # ------------------------------------------------------------------ what is so now

    def tool_names(self) -> list[str]:
        """Names of the tools that the model has."""
        return list(self.tools_now())

    def state_of(self, session: Session) -> WindowState:
        """Where a session's window stands, also before its first request in this kernel."""
        info = session.info
        if not info.window:
            info = ModelInfo(model=self.model, window=self.settings.window or DEFAULT_WINDOW, max_output=0)
        return self.window_state(info, session.view.count().tokens)

    def window_state(self, info: ModelInfo, tokens: int) -> WindowState:
        """Where the window stands at `tokens` tokens."""
        settings = self.settings
        return window_state(
            tokens,
            info.window,
            info.max_output,
            reserve=settings.reserve_tokens,
            auto_buffer=settings.auto_buffer,
            warning_buffer=settings.warning_buffer,
            error_buffer=settings.error_buffer,
            block_buffer=settings.block_buffer,
            auto_percent=settings.auto_compact_percent,
        )

    def _inputs(self) -> list[str]:
        manager = getattr(self.shell, "history_manager", None)
        return list(manager.input_hist_raw) if manager is not None else []

    def _look(self) -> Seen:
        """Date, place, variables and what the user ran since the last request."""
        inputs = self._inputs()
        cells = [source.strip() for source in inputs[self._cells_seen :]]
        self._cells_seen = len(inputs)
        hidden = self.shell.user_ns_hidden
        return Seen(
            date=time.strftime("%Y-%m-%d"),
            place=self.project.relative(self.sessions.notebook) if self.sessions.notebook is not None else "",
            variables=summarize(self.shell.user_ns, hidden=hidden),
            types=short_types(self.shell.user_ns, hidden=hidden),
            cells=[
                cell for cell in cells if cell and not cell.startswith(("%%agent", "%agent", "%context", "%load_ext"))
            ],
        )

    def undo(self) -> Undone:
        """Put back the files that the last turn changed, but for those that somebody else has
        changed meanwhile."""
        if self.session is None or not self.session.history.changes:
            raise UsageError("the last turn changed no file")
        changes = list(self.session.history.changes)
        undone = restore(changes, self.project.root, self.session.journal.folder / BACKUPS)
        if undone.restored:
            self.session.record(FilesRestored(paths=tuple(undone.restored), since=changes[0].id))
        return undone
