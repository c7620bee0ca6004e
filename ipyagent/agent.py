"""The agent: a project, a session, a model and tools, wired for turns. Used by the magics and by scripts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.compacting import run_compact
from ipyagent.config import IPyAgent
from ipyagent.context.reminders import Seen, context_block, guarded
from ipyagent.context.thresholds import check_fixed_part
from ipyagent.errors import UsageError
from ipyagent.journal.events import (
    Block,
    Event,
    FilesRestored,
    ModelChosen,
    TurnEnded,
    UserSaid,
)
from ipyagent.journal.journal import clean
from ipyagent.journal.protocols import ModelInfo, Surface, Tool, WindowState
from ipyagent.journal.stored import FOLDER as RESULTS
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.kernel.dispatcher import MainThread
from ipyagent.kernel.handles import Handles
from ipyagent.kernel.masking import mask
from ipyagent.kernel.shell import make_shell
from ipyagent.kernel.thread import AgentThread
from ipyagent.kernel.variables import short_types, summarize
from ipyagent.kernel.workspace import BACKUPS, KernelWorkspace, Names
from ipyagent.listening import Listener, Unseen
from ipyagent.loop.budget import add_spent, spent_today
from ipyagent.loop.hooks import hooks
from ipyagent.loop.keeping import place_of
from ipyagent.loop.layers import Engine
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.session import Session
from ipyagent.loop.turn import run_turn
from ipyagent.mentions import blocks_of, find, unresolved
from ipyagent.model.capabilities import DEFAULT_WINDOW
from ipyagent.model.client import AnthropicModel
from ipyagent.model.connect import DEFAULT_MODEL, Connections
from ipyagent.model.endpoint import Endpoint
from ipyagent.project import Project, find_root, user_folder
from ipyagent.prompt import render
from ipyagent.requests import Asked, Options, PreparedTurn, TurnResult, is_ours
from ipyagent.restoring import restored
from ipyagent.sessions import Sessions
from ipyagent.tools.catalogue import catalogue
from ipyagent.tools.schema import FunctionTool
from ipyagent.tools.undo import Undone, restore
from ipyagent.wiring import endpoint_of, limit_of, limits_of, state_of


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
        self._greeted: set[str] = set()
        self._names = Names()
        self._stamps: dict[Path, str] = {}
        self._cells_seen = len(self._inputs())
        self._permissions: Permissions | None = None
        self._catalogue: dict[str, Tool] | None = None
        self._running: MainThread | None = None
        self._handles = Handles()

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
        return endpoint_of(self.settings)

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
        if self.session is not None:
            self.session.background.close()
        self._thread.start(self.connections.close).result(timeout=3)
        self._thread.close()
        self.sessions.leave()

    # ------------------------------------------------------------------ turns

    def prepare(self, text: str, options: Options, surface: Surface, *, cell: str = "") -> PreparedTurn:
        """Take a request in, on the main thread: what the namespace holds is read here.

        Raises UsageError while another turn runs, NoCredentials, SettingError, JournalError.
        """
        self.check_free()
        model = self.connections.get(options.model or self.model, self.endpoint())
        session = self.sessions.ensure(cell)
        mentions = find(text, self.shell.user_ns, self.folder, self._inputs())
        if missing := unresolved(text, mentions):
            self.notices.append(f"{', '.join(missing[:3])} names nothing here; it is sent as text")
        asked = Asked(clean(text), cell, self._look(), mentions, self.tools_now(), options)
        if not options.aside:  # what is said aside, the conversation does not know
            self._cells_seen = len(self._inputs())

        async def work(main: MainThread) -> TurnResult:
            own = self.sessions.aside(with_history=options.fork) if options.aside else session
            own.surface = surface
            try:
                return await self._work(own, asked, main, model)
            finally:
                own.surface = None
                if options.aside:
                    own.journal.close()

        return PreparedTurn(self.occupied, surface, work)

    def compact(self, line: str = "") -> str:
        """Make room in the context as `%compact LINE` does; what it did, in one or two lines.

        Raises UsageError while a turn runs or for a wrong line, CompactionFailed, NoCredentials.
        """
        return run_compact(self, line)

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
        session = self.sessions.take_up(cell)
        if session is None:
            return None
        turn = self.sessions.replay(clean(text), cell)
        if turn is None:
            return None
        return [event for event in session.journal.read() if turn.first <= event.id <= turn.last]

    @contextmanager
    def occupied(self) -> Iterator[MainThread]:
        """The main thread's dispatcher for one turn; while it is held no other turn begins."""
        self.check_free()  # another request may have been taken in since this one was
        settings = self.settings
        self._running = MainThread(
            self.shell,
            self._thread,
            max_chars=limit_of(settings, "tool_output_chars"),
            live_chars=settings.live_output_chars,
        )
        try:
            yield self._running
        finally:
            self._running = None

    def check_free(self) -> None:
        """Raise UsageError while a turn runs."""
        if self._running is not None:
            raise UsageError("a turn is running in this kernel already; wait for it, or %agent stop")

    @property
    def busy(self) -> bool:
        """Whether a turn runs now."""
        return self._running is not None

    def stop(self) -> None:
        """Stop the running turn, from any thread; nothing more happens after it."""
        main = self._running
        if main is not None:
            main.stop("button")

    async def _work(self, session: Session, asked: Asked, main: MainThread, model: AnthropicModel) -> TurnResult:
        """The turn itself, on the agent thread."""
        workspace = self.workspace(session, main)
        try:
            said = await self._ready(session, asked, workspace, model)
        except asyncio.CancelledError:  # stopped before it began: the words are kept all the same
            plain = ({"type": "text", "text": asked.text},)
            session.record(UserSaid(text=asked.text, blocks=plain, cell=asked.cell, tokens=estimate_blocks(plain)))
            ended = session.end(TurnEnded(status="stopped", message="stopped"))
        else:
            before = spent_today(self.project.spend) if self.settings.max_cost_per_day else 0.0
            ended = await run_turn(session, said, workspace, variables=lambda: self._names.types, spent_before=before)
        self.note_spent(session.turn_cost or 0.0)
        if not asked.options.aside and ended.status in ("finished", "limit"):
            session.background.ask(lambda: self._behind(session, workspace))
        session.show_phase("")
        answer = session.history.turns[-1].answer if session.history.turns else ""
        facts = {"status": ended.status, "message": ended.message, "text": answer}
        await hooks.call("stop", facts, self.notices.append)
        return TurnResult(
            status=ended.status, message=ended.message, text=answer, cost=session.turn_cost, seconds=ended.seconds
        )

    async def _behind(self, session: Session, workspace: KernelWorkspace) -> None:
        """What follows a turn in the background; shown nowhere, for the next turn may be under way."""
        engine = Engine(session, workspace, behind=True)
        try:
            await engine.turn_end()
        finally:
            if engine.spent:
                self.note_spent(engine.spent)

    def note_spent(self, dollars: float) -> None:
        """Add to what was spent today."""
        if not add_spent(self.project.spend, dollars):
            self.notices.append(f"today's cost could not be noted in {self.project.spend}")

    async def _ready(
        self, session: Session, asked: Asked, workspace: KernelWorkspace, model: AnthropicModel
    ) -> UserSaid:
        """Connect the session and put together what the model gets of the request."""
        options = asked.options
        self._keep_objects(session, workspace)
        await self.connect(session, model, asked.tools, options)
        # what a compaction took away has to be told again
        history, told = session.history, None if options.fresh or session.history.forgot else self._told
        blocks = await blocks_of(asked.mentions, workspace)
        context = context_block(asked.seen, told, restarted=history.stale, before=history.variables)
        told_by_hooks = await self._hooked(session, asked.text)
        blocks = [*blocks, *([context] if context is not None else []), *told_by_hooks]
        blocks.append({"type": "text", "text": asked.text})
        if not options.aside:
            self._told = asked.seen
        self._names.types = dict(asked.seen.types)
        return UserSaid(text=asked.text, blocks=tuple(blocks), cell=asked.cell, tokens=estimate_blocks(blocks))

    async def _hooked(self, session: Session, text: str) -> list[Block]:
        """What the user's hooks have to say before a request."""
        answers: list[Any] = []
        if session.journal.session not in self._greeted:
            self._greeted.add(session.journal.session)
            facts = {"session": session.journal.session, "resumed": bool(session.history.turns)}
            answers += await hooks.call("session_start", facts, session.report_hook)
        answers += await hooks.call("user_prompt", {"text": text}, session.report_hook)
        return [{"type": "text", "text": f"<context>\n{guarded(str(answer))}\n</context>"} for answer in answers]

    async def connect(
        self, session: Session, model: AnthropicModel, tools: dict[str, Tool], options: Options
    ) -> None:
        """Give the session what it works with: model, tools, settings; on the agent thread."""
        name = options.model or self.model
        session.show_phase("connecting")
        info = await model.info(name)
        session.connect(
            model,
            msgspec.structs.replace(info, model=name),
            tools=tools,
            permissions=self.permissions if options.mode is None else self.permissions.with_mode(options.mode),
            limits=limits_of(self.settings, options, info),
            state=lambda tokens: state_of(self.settings, info, tokens),
            setting=lambda name: getattr(self.settings, name),
            restoring=lambda workspace: restored(workspace, self.settings),
        )
        self._render(session, tools)
        if session.view.model != name:
            session.record(ModelChosen(model=name, window=info.window, max_output=info.max_output))

    def _keep_objects(self, session: Session, workspace: KernelWorkspace) -> None:
        """`_agent` holds the session's objects, unless the name is the user's own."""
        handles, settings = self._handles, self.settings
        handles.most, handles.most_bytes = settings.live_objects, settings.live_objects_mb * 1_000_000
        handles.enter(session.history.handles, place_of(session.journal.folder, workspace))
        if session.history.handles:
            handles.install(self.shell)
        session.hold = lambda call, value: handles.hold(call, value) if handles.install(self.shell) else ""

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

    def workspace(self, session: Session, main: MainThread) -> KernelWorkspace:
        """What tools of the session may touch while `main` serves the main thread."""
        further = (Path(folder).expanduser() for folder in self.settings.allowed_folders)
        allowed = (self.project.root, self.folder, session.journal.folder / RESULTS, *further)
        return KernelWorkspace(
            root=self.project.root,
            folder=self.folder,
            shell=self.shell,
            main=main,
            backups=session.journal.folder / BACKUPS,
            record=session.record,
            limits=lambda name: limit_of(self.settings, name, session.info.window),
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
        return state_of(self.settings, info, session.view.count().tokens)

    def _inputs(self) -> list[str]:
        manager = getattr(self.shell, "history_manager", None)
        return list(manager.input_hist_raw) if manager is not None else []

    def _look(self) -> Seen:
        """Date, place, variables and what the user ran since the last request."""
        inputs = self._inputs()
        cells = [mask(source.strip()) for source in inputs[self._cells_seen :]]
        hidden = self.shell.user_ns_hidden
        return Seen(
            date=time.strftime("%Y-%m-%d"),
            place=self.project.relative(self.sessions.notebook) if self.sessions.notebook is not None else "",
            variables=summarize(self.shell.user_ns, hidden=hidden),
            types=short_types(self.shell.user_ns, hidden=hidden),
            cells=[cell for cell in cells if cell and not is_ours(cell)],
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
