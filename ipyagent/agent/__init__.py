"""The agent: a project, a session, a model and tools, wired for turns. Used by the magics and by scripts."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ipyagent.agent.rerun import CellReplay
from ipyagent.agent.turns import TurnRunner, TurnUndone, undo_turn
from ipyagent.assembly.compaction import CompactCommand
from ipyagent.assembly.requests import (
    Listener,
    NullSurface,
    Options,
    PreparedRequest,
    PreparedTurn,
    TurnResult,
    find,
)
from ipyagent.assembly.session_setup import SessionSetup
from ipyagent.assembly.sessions import Sessions, which_notebook
from ipyagent.assembly.settings import SettingsFiles, endpoint_of, info_of, limit_of, model_of, state_of
from ipyagent.config import IPyAgent
from ipyagent.context.notes import OWN as NOTES
from ipyagent.context.notes import OWN_FILES as NOTES_FILES
from ipyagent.context.reminders import standing
from ipyagent.errors import AgentError, TrustError, UsageError
from ipyagent.journal.events import Event
from ipyagent.journal.journal import clean
from ipyagent.journal.protocols import CellOutput, ModelInfo, Surface, Tool, WindowState
from ipyagent.journal.recorded import Recording, recordings_in
from ipyagent.kernel.cell_marks import HIDDEN, HIDE, Runs
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.scope import make_shell
from ipyagent.kernel.thread import AgentLoop
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.model_call import write_report
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.session import Session
from ipyagent.model.client import AnthropicModel
from ipyagent.model.endpoint import Endpoint
from ipyagent.parts import Maker, P, Parts, known_parts
from ipyagent.project import Project, find_root, user_folder

TRUSTED = "the project is trusted"
ENDING = 3.0
"""Seconds that sub-agents, or connections, have to end."""


class Agent:
    """An agent that works in a folder: for scripts, and what the magics use.

    Call its methods on one thread, the one where user code runs; only `stop` may be called from any.

    Args:
        shell: the IPython shell whose variables the agent uses; None makes a private one.
        settings: the settings; None takes those of the environment and the settings files.
        folder: where the user works; None is the current directory.
        notebook: the notebook's path, if it is known: a session belongs to its notebook.
        tools: more tools, made with `ipyagent.tool`.
        runs: which cells ran before the agent was made; the extension passes it.
        parts: makers of the agent's parts (see `ipyagent.parts`); None takes all except those in `IPyAgent.without`.
    """

    def __init__(
        self,
        *,
        shell: Any = None,
        settings: IPyAgent | None = None,
        folder: str | Path | None = None,
        notebook: str | Path | None = None,
        tools: Iterable[Tool] = (),
        runs: Runs | None = None,
        parts: Iterable[Maker] | None = None,
    ) -> None:
        self.shell = make_shell() if shell is None else shell
        self.settings = settings or IPyAgent()
        given = Path(self.settings.project).expanduser() if self.settings.project else None
        self.folder = (given or Path(folder or Path.cwd())).resolve()
        notebook = None if notebook is None else Path(notebook)
        self.project = Project(
            self.folder if given is not None else find_root(self.folder, notebook), user_folder(), self.folder
        )
        self.settings_files = SettingsFiles(self.settings, self.project)
        self.notices: list[str] = self.settings_files.apply()
        """Lines that the user should see before the next turn; the caller takes them."""
        self._running: MainThreadExecutor | None = None
        self._outlived: MainThreadExecutor | None = None
        """Whose turn did not end with its Stop."""
        self._thread = AgentLoop(report=self.report)
        makers = known_parts(self.settings.without, self.notices.append).values() if parts is None else parts
        self.setup = SessionSetup(
            self.shell,
            self.settings,
            self.project,
            self.folder,
            thread=self._thread,
            makers=makers,
            tools=tools,
            runs=runs,
            agent=self,
        )
        self.connections, self.tool_registry = self.setup.connections, self.setup.tool_registry
        self.marks = self.setup.marks
        """Which cells are hidden from the agent, which pinned."""
        self.marks.notebook = notebook
        self.sessions = Sessions(
            self.project,
            self.settings,
            namespace=self.shell.user_ns,
            notice=self.notices.append,
            keepers=self.parts,
            folded=self.parts.states,
        )
        self.sessions.notebook = notebook
        self._work = TurnRunner(self.setup, self.notices.append)
        self._observer = self.setup.observer
        self.compaction = CompactCommand(
            self.setup, self.sessions, self.connections, self.occupied, self.tools_now, self.state_of
        )
        """What `%compact` does."""
        self._trusted_here = False
        self._reported: set[str] = set()
        self._saved_shown: set[tuple[Path | None, str, str]] = set()
        """Recordings of notebook files that this kernel has run."""

    def __repr__(self) -> str:
        session = self.session.journal.session if self.session is not None else "no session yet"
        return f"<Agent {session} on {self.model} in {self.project.root.name}>"

    # ------------------------------------------------------------------ what it can do

    @property
    def parts(self) -> Parts:
        """What the agent can do, each a part that can be left out."""
        return self.setup.parts

    def part(self, kind: type[P]) -> P:
        """The part of a class. Raises UsageError for one that was left out."""
        return self.parts[kind]

    # ------------------------------------------------------------------ settings

    @property
    def model(self) -> str:
        """The model's name: the setting, ANTHROPIC_MODEL, or the default."""
        return model_of(self.settings)

    @property
    def permissions(self) -> Permissions:
        """Modes and rules; the project's rules live in the user's directory."""
        return self.setup.permissions

    def endpoint(self) -> Endpoint:
        """Where the settings send requests."""
        return endpoint_of(self.settings)

    # ------------------------------------------------------------------ sessions

    @property
    def session(self) -> Session | None:
        """The session that requests go to; None before the first."""
        return self.sessions.current

    def new(self) -> None:
        """Start a new session with the next request; the old one stays on disk."""
        self._end_work()
        self.sessions.leave()
        self._forget()
        self.notices += self.settings_files.apply()

    def trust(self, *, off: bool = False) -> None:
        """Load what the project holds from now on, in this session too (`off`: no longer). Raises AgentError."""
        (self.project.distrust if off else self.project.trust)()
        if line := self.project.home_line():
            self.notices.append(line)
        self.notices += self.settings_files.apply()
        for part in self.parts:
            self.notices += part.trusted_now()
        self.sessions.told_trust, self._trusted_here = off, not off
        if self.session is not None:
            self.setup.system_prompt.renew(self.session, "the project is no longer trusted" if off else TRUSTED)

    def _tell_trust(self) -> None:
        """Once: that nothing of the project was loaded, and what to do; of a trusted one, which words for notes are
        new."""
        if self.project.trusted and not self.settings.trust_all:
            self.notices += self.project.arrivals(self.project.folder / NOTES / name for name in NOTES_FILES)
        if not self.sessions.told_trust and not self.settings.trust_all:
            self.sessions.told_trust = True
            if line := self.project.untrusted_line():
                self.notices.append(line)

    def resume(self, name: str = "") -> Session:
        """Resume a stored session: the newest, or the one with this label, or whose id starts this way.

        Raises UsageError if there is none, TrustError if the project is not trusted, JournalError if the session
        cannot be read."""
        self._forget()
        self._end_work()
        session = self.sessions.resume(name)
        if self._trusted_here:
            self.setup.system_prompt.renew(session, TRUSTED)
        return session

    def fork(self, name: str = "") -> Session:
        """Continue in a copy of the current session, or of the stored one with this id; the original is unchanged.

        Raises UsageError if there is no such session, TrustError and JournalError."""
        self._forget()
        self._end_work()
        return self.sessions.fork(name)

    def _forget(self) -> None:
        """Another session comes: the model knows nothing of what it was told in this one, and a turn that still ends
        in this one holds up nobody."""
        self._outlived = None
        self._work.forget()
        self._observer.forget()

    def close(self) -> None:
        """Close the session, the connections and the agent's thread. The agent cannot be used afterwards."""
        with ExitStack() as steps:  # the last comes first; one that fails or takes too long skips none
            steps.callback(self.sessions.leave)
            for part in self.parts:
                steps.callback(part.closed)
            steps.callback(self._thread.close)
            steps.callback(self._ended, self.connections.close, "connections to the model")
            if self.session is not None:
                steps.callback(self.session.background.close)
            for part in reversed(list(self.parts)):
                steps.callback(part.close)
            steps.callback(self._end_work)
            steps.callback(self.stop)

    def _ended(self, end: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        """Run the end of something on the agent thread, and wait for it a short time."""
        try:
            self._thread.start(end).result(timeout=ENDING)
        except TimeoutError:
            self.notices.append(f"{what} did not end within {ENDING:g} s; they end with the kernel")

    # ------------------------------------------------------------------ turns

    def prepare(
        self, text: str, options: Options, surface: Surface, *, cell: str = "", own: str | None = None
    ) -> PreparedTurn:
        """Take a request in, on the main thread: what the namespace holds is read here. `own` is what of `text` the
        user typed, where a command wrote the rest (None: all).

        Raises UsageError while another turn runs, NoCredentials, SettingError, JournalError.
        """
        self.check_free()
        mentions = options.lesson_for(options.model or self.model)
        model = self.connections.get(options.model or self.model, self.endpoint())
        session = self.sessions.ensure(cell)
        self._tell_trust()
        self.marks.notebook = self.sessions.notebook
        inputs = self._observer.inputs()
        hidden = self.marks.hidden_inputs(inputs)
        shown = self.marks.shown(self.shell.user_ns)
        found, missing = find(text, shown, self.folder, inputs, hidden, self.marks.failure_of)
        mentions += found
        if unseen := [f"@{each.kind}:{each.name}" for each in mentions if each.text == HIDDEN]:
            are = "is" if len(unseen) == 1 else "are"
            self.notices.append(f"{', '.join(unseen[:3])} {are} hidden from the agent ({HIDE}): only that is sent")
        if missing:
            were = "was" if len(missing) == 1 else "were"
            self.notices.append(f"{', '.join(missing[:3])} {were} not found; sent as plain text")
        notebook = self.sessions.notebook
        told = None if options.fresh else standing(session.view.messages)
        attached = [mention.name for mention in mentions if mention.kind == "variable"]
        seen = self._observer.look(self.project.relative(notebook) if notebook is not None else "", told, attached)
        tools = self.tool_registry.now(None if options.fresh else session)
        taken: dict[str, Any] = {}
        request = ""
        for part in self.parts:
            made = part.snapshot(request or clean(text))
            taken[part.name], request = made.value, made.request or request
            self.notices += made.notices
        asked = PreparedRequest(clean(text), cell, seen, mentions, tools, options, taken, request,
                      clean(own) if own is not None else None)  # fmt: skip
        if not options.aside:  # what is said aside, the conversation does not know
            self._observer.pass_by()

        async def work(main: MainThreadExecutor) -> TurnResult:
            own = self.sessions.aside(with_history=options.fork) if options.aside else session
            try:
                with own.shown_on(surface):
                    return await self._work.turn(own, asked, main, model)
            finally:
                if options.aside:
                    own.close()

        return PreparedTurn(self.occupied, surface, work)

    def compact(self, line: str = "") -> str:
        """Make room in the context as `%compact LINE` does; what it did, in a few lines.

        Raises UsageError while a turn runs or for a wrong line, CompactionFailed, NoCredentials.
        """
        return self.compaction.run(line)

    def run_sync(self, text: str, **options: Any) -> TurnResult:
        """Send a request and wait for its result; nothing is displayed.

        `options` are the fields of `Options`. A turn that fails is a result and raises nothing. Raises UsageError
        while another turn runs, NoCredentials, SettingError and JournalError.
        """
        return self.prepare(text, Options(**options), NullSurface()).run_blocking()

    async def run(self, text: str, **options: Any) -> AsyncIterator[Event]:
        """Send a request from async code and give its events as they happen.

        Each event is on disk before it is given; the last one is `TurnEnded`. Leaving the loop early stops the turn.
        `options` are the fields of `Options`. Raises UsageError while another turn runs, NoCredentials, SettingError
        and JournalError.
        """
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

    def recorded(
        self, text: str, cell: str, *, again: bool = False, headless: bool = False
    ) -> Recording | None:
        """What a finished, unchanged cell did: from this notebook's session, each turn of an earlier kernel once; else
        from the saved notebook itself. None when the cell must be asked. `again`: also what this kernel did or has
        replayed; `headless`: nobody is there. Raises TrustError for what came with a notebook whose project the user
        has not said to trust, unless nobody is there and the user's own settings ask for replay; UsageError where
        notebooks say different things of the cell and no front-end tells which of them this is."""
        asked = clean(text)
        unknown = again and self.sessions.notebook is None
        session = self.sessions.take_up_asked(asked) if unknown else self.sessions.take_up(cell)
        turn = self.sessions.replay(asked, cell, again=again)
        if session is not None and turn is not None:
            return Recording(
                tuple(event for event in session.journal.read() if turn.first <= event.id <= turn.last), turn.first
            )
        known = self.sessions.knows(cell) if cell else not again
        return None if known else self._saved(asked, cell, again=again, headless=headless)

    def _saved(self, asked: str, cell: str, *, again: bool, headless: bool) -> Recording | None:
        """The recording of a cell in the notebook file, or in one beside it where no front-end tells which."""
        own = self.sessions.notebook
        files = [own] if own is not None else sorted(self.folder.glob("*.ipynb"))
        held = {
            path: [each for each in recordings_in(path)
                   if each.request.text == asked and (not cell or each.request.cell == cell)]
            for path in files
        }  # fmt: skip
        found = [each for there in held.values() for each in there]
        if len({tuple(str(each.events[1:]) for each in there) for there in held.values() if there}) > 1:
            raise UsageError(which_notebook([path.name for path, there in held.items() if there]))
        new = [each for each in found if (each.place, each.request.cell, asked) not in self._saved_shown]
        if not (new or (again and found)):
            return None
        recording = (new or found[-1:])[0]
        # Whoever wrote the notebook wrote the recording and the cell's flags too: neither is the user's consent.
        wanted = headless and self.settings.rerun == "replay" and self.settings.from_outside("rerun")
        if not (wanted or self.project.trusted_by_word or self.settings.trust_all):
            raise TrustError(
                "this cell's recorded code is not run again: it came with the notebook, and you have not "
                "confirmed that "
                f"you trust {self.project.root}; if you do, run %agent trust"
            )
        self._saved_shown.add((recording.place, recording.request.cell, asked))
        return recording

    def prepare_replay(
        self, recording: Recording, options: Options, surface: Surface, *, cell: str = ""
    ) -> PreparedTurn:
        """A finished cell once more without the model, see `CellReplay`. Raises UsageError while a turn runs,
        JournalError."""
        self.check_free()
        session = self.sessions.ensure(cell)
        self.marks.notebook = self.sessions.notebook
        replay = CellReplay(self.setup, session, recording, options)
        return PreparedTurn(self.occupied, surface, lambda main: replay.run(main, surface))

    @contextmanager
    def occupied(self, surface: Surface | None = None) -> Iterator[MainThreadExecutor]:
        """The main thread's dispatcher for one turn, shown on `surface`; while it is held no other turn begins."""
        self.check_free()  # another request may have been taken in since this one was
        settings = self.settings
        main = self._running = MainThreadExecutor(
            self.shell,
            self._thread,
            max_chars=limit_of(settings, "tool_output_chars"),
            live_chars=settings.live_output_chars,
            cell=surface if isinstance(surface, CellOutput) else None,
        )
        try:
            yield main
        finally:
            self._running, self._outlived = None, None if main.ended else main

    def check_free(self) -> None:
        """Raise UsageError while a turn runs."""
        if self._running is not None:
            raise UsageError("a turn is running in this kernel already; wait for it, or %agent stop")
        if self._outlived is not None and not self._outlived.ended:
            raise UsageError("the stopped turn has not ended yet; wait for it, or start another with %agent new")

    @property
    def busy(self) -> bool:
        """Whether a turn runs now."""
        return self._running is not None

    def _end_work(self) -> None:
        """What parts have running for a session ends with it."""
        for part in self.parts:
            if what := part.running():
                self._ended(part.aclose, what)

    def stop(self) -> None:
        """Stop the running turn, from any thread. What ran is kept; nothing more happens."""
        main = self._running
        if main is not None:
            main.stop("button")

    # ------------------------------------------------------------------ what nobody waits for

    def report(self, problem: Exception) -> None:
        """Tell the user, once a place, what failed in work that nobody waits for; from any thread. What is no
        AgentError is a fault of ours or of a library and leaves a bug report."""
        text = " ".join(str(problem).split())[:300]
        frames = traceback.extract_tb(problem.__traceback__)
        place = f"{type(problem).__name__} {f'{frames[-1].filename} {frames[-1].lineno}' if frames else text}"
        if place in self._reported:
            return
        self._reported.add(place)
        if isinstance(problem, AgentError):
            self.notices.append(f"in the background: {text}")
            return
        session = self.session
        own = session is not None and session.journal.folder.is_dir()
        folder = session.journal.folder if session is not None and own else self.project.user
        number = session.journal.last if session is not None and own else 0
        where = write_report(folder, number, "".join(traceback.format_exception(problem)))
        self.notices.append(f"internal error in the background, {type(problem).__name__}: {text}; {where}")

    def take_notices(self) -> list[str]:
        """The lines that the user should see, each once; others may add some meanwhile."""
        lines: list[str] = []
        while self.notices:
            lines.append(self.notices.pop(0))
        return lines

    # ------------------------------------------------------------------ what a turn works with

    def notice(self, line: str) -> None:
        """A line that the user sees before the next turn."""
        self.notices.append(line)

    async def connect_now(self, session: Session, model: AnthropicModel) -> None:
        """Give the session what it works with, outside a turn of the conversation."""
        await self.setup.connect(session, model, self.tools_now(), Options())

    def workspace(self, session: Session, main: MainThreadExecutor) -> KernelWorkspace:
        """What tools of the session may touch, see `SessionSetup.workspace`."""
        return self.setup.workspace(session, main)

    def tools_now(self) -> dict[str, Tool]:
        """The tools that the model has, see `ToolRegistry.now`."""
        return self.tool_registry.now(self.session)

    # ------------------------------------------------------------------ what is so now

    def tool_names(self) -> list[str]:
        """Names of the tools that the model has."""
        return list(self.tools_now())

    @property
    def info(self) -> ModelInfo:
        """The model that is at work, else the one that the next request goes to, as far as it is known."""
        if self.session is not None and self.session.connected and self.busy:
            return self.session.info
        return info_of(self.settings, self.connections, self.session)

    def state_of(self, session: Session) -> WindowState:
        """Where a session's window stands, also before its first request in this kernel."""
        return state_of(self.settings, self.info, session.view.count().tokens)

    def undo(self) -> TurnUndone:
        """Restore the files of the newest turn that changed any and was not undone before.

        A file that has changed since stays as it is and is named in the result. Raises UsageError if there is no such
        turn."""
        return undo_turn(self.session, self.project.root)
