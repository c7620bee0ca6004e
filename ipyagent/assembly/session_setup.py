"""What requests are worked on with: a session is connected to its model, tools and settings here, and
gets its workspace. One a kernel; what it remembers (live objects, rules) outlives sessions, but for the files that
each has read."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from ipyagent.assembly.post_compaction import recent_words, restored
from ipyagent.assembly.requests import Options, is_ours
from ipyagent.assembly.settings import (
    at_exit,
    find_model,
    limit_of,
    limits_of,
    model_of,
    named_model,
    small_model_of,
    state_of,
    without_small,
)
from ipyagent.assembly.system_prompt import SystemPromptBuilder, render
from ipyagent.config import IPyAgent
from ipyagent.context.reminders import VARIABLES, EnvironmentSnapshot, told_in, variables_block
from ipyagent.journal.events import ModelChosen
from ipyagent.journal.journal import FOLDER as RESULTS
from ipyagent.journal.protocols import ReadStamp, Tool, Workspace
from ipyagent.kernel.cell_marks import CellMarks, Runs
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.scope import users_namespace
from ipyagent.kernel.thread import AgentLoop
from ipyagent.kernel.variables import ReportedVariables, short_types, survey
from ipyagent.kernel.workspace import BACKUPS, KernelWorkspace, LiveObjects, Names
from ipyagent.loop.budget import AT_EXIT, Spending
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.session import Session
from ipyagent.loop.tool_calls import place_of
from ipyagent.loop.watching import CodeWatch
from ipyagent.model.client import AnthropicModel
from ipyagent.model.client_pool import Connections
from ipyagent.model.endpoint import own_keys
from ipyagent.project import Project
from ipyagent.redaction import Redactor, mask
from ipyagent.tools.catalogue import CORE, builtin_tools, catalogue, told_of, with_search
from ipyagent.tools.schema import FunctionTool

if TYPE_CHECKING:
    from ipyagent.loop.session import Session
    from ipyagent.parts import Maker, Parts, RunningAgent


LATE = ("agent", "load_skill")
"""Tools of ours whose schemas tell what there is now: they stand behind those that are always the same."""


class ToolRegistry:
    """`own` are tools that the caller gave, by name; the user's own stand in the namespace of `shell`; what had to be
    left out is said once, through `notice`."""

    def __init__(self, own: Iterable[Tool], shell: Any, notice: Callable[[str], None], parts: Parts) -> None:
        self.own = {tool.name: tool for tool in own}
        self._shell, self._notice, self._parts = shell, notice, parts

    def __repr__(self) -> str:
        return f"<ToolRegistry {', '.join(self.now())}>"

    def now(self, session: Session | None = None) -> dict[str, Tool]:
        """Every tool by name, in the order in which the model reads them; the user's (`@ipyagent.tool`) as they stand
        in the namespace at this moment, those of parts as `session` has them (None: as a new one would)."""
        found = self._of_parts(session)
        late = [*(name for name in LATE if name in found), *found]
        rest = {name: found[name] for name in late if name not in builtin_tools()}
        return {**self._ours(found), **self._theirs, **rest, **self.given(), **self.changing()}

    def ours(self) -> dict[str, Tool]:
        """Those of ours that are always the same, but for parts that were left out; on any thread."""
        return self._ours(self._of_parts(None))

    @staticmethod
    def _ours(found: Mapping[str, Tool]) -> dict[str, Tool]:
        return {name: found.get(name, tool) for name, tool in builtin_tools().items() if name in CORE or name in found}

    def _of_parts(self, session: Session | None) -> dict[str, Tool]:
        steady = (part for part in self._parts if not part.changing)
        return {name: tool for part in steady for name, tool in part.tools(session).items()}

    def given(self) -> dict[str, Tool]:
        """Those that the caller gave, and the user's own."""
        values = list(users_namespace(self._shell).values())
        found: dict[str, Any] = {value.name: value for value in values if type(value) is FunctionTool}
        return {**self.own, **dict(sorted(found.items()))}

    def changing(self) -> dict[str, Tool]:
        """Tools of parts that come and go, as they are at this moment."""
        return {name: tool for part in self._parts if part.changing for name, tool in part.tools(None).items()}

    def renewing(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """Those of `tools` for which a session's system prompt is rendered again when they are new to it."""
        new = {*self.given(), *self.changing()} - {*builtin_tools(), *self._theirs}
        return {name: tool for name, tool in tools.items() if name in new}

    @cached_property
    def _theirs(self) -> dict[str, Tool]:
        """Tools of other packages, looked for once."""
        found = catalogue()
        for problem in found.problems:
            self._notice(problem)
        ours = builtin_tools()
        return {tool.name: tool for tool in found.tools if tool.name not in ours}


# ---- Which of our own tools a small window has room for: the less needed ones are left out, in a fixed order.

SHARE = 3
"""The descriptions of the tools may take a third of the window."""
DISPENSABLE = (
    "send_message", "notebook", "plan", "past_sessions", "agent", "compact", "memory", "load_skill", "glob", "grep",
    "write_file", "variables",
)  # fmt: skip
"""What goes first; python, read_file, edit_file, shell and every tool of the user stay."""


def fitted(
    tools: Mapping[str, Tool], window: int, listed: Collection[str] = (), *, all_listed: bool = False
) -> tuple[dict[str, Tool], tuple[str, ...]]:
    """The tools for a window of `window` tokens (0: not known, all of them), with the search for those that are
    deferred (unless `all_listed`), and the names of those left out. What a session's head tells of already stays."""

    def whole(tools: Mapping[str, Tool]) -> dict[str, Tool]:
        return dict(tools) if all_listed else with_search(tools)

    def fits(tools: Mapping[str, Tool]) -> bool:
        return not window or render(whole(tools), all_listed=all_listed).tool_tokens * SHARE <= window

    kept = dict(tools)
    left: list[str] = []
    for name in DISPENSABLE:
        if fits(kept):
            break
        if name in kept and name not in listed:
            del kept[name]
            left.append(name)
    return whole(kept), tuple(left)


# ---- What is so in the kernel now, for the model to be told: read on the main thread when a request is taken in.

class NotebookObserver:
    """Watches one IPython shell: its variables, and what the user ran since `pass_by` was last called."""

    def __init__(self, shell: Any, marks: CellMarks | None = None) -> None:
        self._shell = shell
        self.marks = marks or CellMarks(shell)
        self._passed = len(self.inputs())
        self._told: ReportedVariables | None = None
        self._looked: ReportedVariables | None = None
        self._listed: dict[str, ReportedVariables] = {}
        """What was told in each block of `listing` since `pass_by`, oldest first."""

    def __repr__(self) -> str:
        return f"<NotebookObserver over {self._passed} inputs>"

    def inputs(self) -> list[str]:
        """The source of every cell that was run, by its number; empty in a shell without a history."""
        return self.marks.inputs()

    def listing(self) -> str:
        """All variables as a block that stands after a compaction; "" for none. As long as it stands, `look` tells what
        has changed since."""
        namespace, hidden = users_namespace(self._shell), self._shell.user_ns_hidden
        text, listed = survey(namespace, None, hidden=hidden, inputs=self.inputs())
        block = variables_block(text) if text else ""
        self._listed.pop(block, None)
        self._listed[block] = listed
        return block

    def look(
        self, place: str, standing: Sequence[str] | None = None, attached: Collection[str] = ()
    ) -> EnvironmentSnapshot:
        """Date, place (the notebook's path, "" when unknown), variables, and what the user ran but for hidden cells.

        Of the variables only what is new to the model, as long as all that it was told of them, and that there still
        is, stands in `standing`, the `<context>` blocks in its context (None: it has none); otherwise all of them.
        `attached` are variables that stand in full beside the block."""
        inputs = self.inputs()
        hidden, new = self.marks.hidden_inputs(inputs), range(self._passed, len(inputs))
        ran = [number for number in new if number not in hidden]
        cells = [(mask(inputs[number].strip()), mask(self.marks.error_of(number)), number) for number in ran]
        hidden, told = self._shell.user_ns_hidden, self._told
        told = next((self._listed[block] for block in reversed(self._listed) if block in (standing or ())), told)
        if told is not None and (standing is None or told.names - told.gone(self._shell.user_ns) - told_in(standing)):
            told = None
        text, self._looked = survey(self._shell.user_ns, told, hidden=hidden, inputs=inputs, attached=attached)
        if told is None:
            text = f"{VARIABLES}\n{text}" if text else f"{VARIABLES} none."
        return EnvironmentSnapshot(
            date=time.strftime("%Y-%m-%d"),
            place=place,
            variables=text,
            types=short_types(self._shell.user_ns, hidden=hidden),
            cells=[cell for cell in cells if cell[0] and not is_ours(cell[0])],
        )

    def pass_by(self) -> None:
        """What was run until now, and what was last looked at, counts as told."""
        self._passed = len(self.inputs())
        self._told = self._looked
        self._listed.clear()

    def forget(self) -> None:
        """Another conversation comes: it was told nothing yet."""
        self._told = None
        self._listed.clear()


class SessionSetup:
    """The `Host` of the parts that `makers` make. `folder` is where the user works, `tools` are further tools, `runs`
    which cells ran before; `agent` is whose it is."""

    def __init__(
        self,
        shell: Any,
        settings: IPyAgent,
        project: Project,
        folder: Path,
        *,
        thread: AgentLoop,
        makers: Iterable[Maker],
        tools: Iterable[Tool] = (),
        runs: Runs | None = None,
        agent: RunningAgent,
    ) -> None:
        from ipyagent.parts import make_parts

        self.shell = shell
        self.settings = settings
        self.project = project
        self.folder = folder
        self.thread = thread
        self.agent = agent
        """Whose it is, for the commands of parts."""
        notice = self.notice = agent.notice
        self.connections = Connections()
        self.spending = Spending(project.spend, notice)
        """What all sessions of this user cost today."""
        at_exit(self.spending, lambda spending: spending.written(AT_EXIT))
        self.names = Names()
        self.marks = CellMarks(shell, runs)
        """Which cells are hidden or pinned."""
        self.observer = NotebookObserver(shell, self.marks)
        """What the model is told of the kernel."""
        self.redactor = Redactor(lambda: settings.redact_secrets, notice, own_keys)
        """Takes secrets out of what the model is to get."""
        self.parts: Parts = make_parts(makers, self)
        """What the agent can do."""
        self.tool_registry = ToolRegistry(tools, shell, notice, self.parts)
        self.system_prompt = SystemPromptBuilder(settings, self.parts, notice, self.redactor)
        self._stamps: WeakKeyDictionary[Session, dict[Path, ReadStamp]] = WeakKeyDictionary()
        """Which files each session has read, in which version: what another one read, its model has not seen."""
        self._cell_ids: dict[Path, Any] = {}
        self._handles = LiveObjects()
        self._permissions: Permissions | None = None

    def __repr__(self) -> str:
        return f"<SessionSetup in {self.project.root.name}>"

    @property
    def session(self) -> Session | None:
        """The session that requests go to now."""
        return self.agent.session

    @property
    def busy(self) -> bool:
        """Whether a turn runs now."""
        return self.agent.busy

    @property
    def permissions(self) -> Permissions:
        """Modes and rules; the project's rules live in the user's directory."""
        if self._permissions is None:
            self._permissions = Permissions(self.project.rules, self.project.root)
        self._permissions.mode = self.settings.mode
        return self._permissions

    def workspace(self, session: Session, main: MainThreadExecutor) -> KernelWorkspace:
        """What tools of the session may touch while `main` serves the main thread."""
        further = (Path(folder).expanduser() for folder in self.settings.allowed_folders)
        theirs = (folder for part in self.parts for folder in part.folders())
        allowed = (self.project.root, self.folder, session.journal.folder / RESULTS, *theirs, *further)
        services: dict[str, Any] = {}
        for part in self.parts:
            services.update(part.services(session, services))
        return KernelWorkspace(
            root=self.project.root,
            folder=self.folder,
            shell=self.shell,
            main=main,
            backups=session.journal.folder / BACKUPS,
            record=session.record,
            limits=lambda name: limit_of(self.settings, name, session.info.window),
            allowed=tuple(dict.fromkeys(path.resolve() for path in allowed)),
            read_stamps=self._stamps.setdefault(session, {}),
            cell_ids=self._cell_ids,
            names=self.names,
            marks=self.marks,
            watched=session.kept(CodeWatch, lambda: CodeWatch(session)).run,
            **services,
        )

    async def restored(self, session: Session, workspace: Workspace, window: int) -> list[tuple[str, str]]:
        """What stands again after a compaction of the session, by its name for the user."""
        assert isinstance(workspace, KernelWorkspace)
        return await restored(
            workspace,
            self.settings,
            [(part.name, partial(part.after_compaction, session, workspace)) for part in self.parts],
            session.redact,
            self.observer.listing if workspace.namespace is users_namespace(self.shell) else None,
            lost=session.history.lost,
            recent=recent_words(session.view, session.history.turns),
            window=window,
            factor=session.view.calibration.factor,
        )

    async def connect(
        self, session: Session, model: AnthropicModel, tools: dict[str, Tool], options: Options
    ) -> None:
        """Give the session what it works with: model, tools, settings; on the agent thread."""
        session.show_phase("connecting")
        session.redact = self.redactor
        if not options.model and (news := await find_model(self.settings, model)):
            self.notice(news)
        name = options.model or model_of(self.settings)
        info = await model.info(name)
        for part in self.parts:
            tools = await part.offered(tools, session, info.window)
        told = told_of(session.view.tools)
        window = state_of(self.settings, info, 0).window
        tools, left = fitted(tools, window, told)
        searched = any(getattr(tools.get(name), "deferred", "") for name in self.tool_registry.changing())
        tools = with_search(tools, told, self.tool_registry.changing if searched else dict)
        if left and not session.view.system:
            self.notice(
                f"the window of {window:,} tokens has no room for the tools {', '.join(left)}; set IPyAgent.window"
            )
        session.connect(
            model,
            msgspec.structs.replace(info, model=name),
            tools=tools,
            permissions=self.permissions if options.mode is None else self.permissions.with_mode(options.mode),
            limits=limits_of(self.settings, options, info),
            state=lambda info, tokens: state_of(self.settings, info, tokens),
            setting=lambda name: getattr(self.settings, name),
            restoring=lambda workspace: self.restored(session, workspace, window),
            renewed=lambda: self.system_prompt.after_compaction(session),
            hold=self.hold,
        )
        self.system_prompt.ensure_frozen(session, tools, self.tool_registry.renewing(tools))
        if session.view.model != name:
            named = not options.model and bool(named_model(self.settings))
            session.record(ModelChosen(model=name, window=info.window, max_output=info.max_output, named=named))

    def no_small(self, name: str) -> bool:
        """The server does not have the small model `name`: whether the main model stands in for it, which is said
        once."""
        line = without_small(self.settings, name)
        if line:
            self.notice(line)
        return bool(line) or small_model_of(self.settings) != name

    def keep_objects(self, session: Session, workspace: KernelWorkspace) -> None:
        """`_agent` holds the session's objects, unless the name is the user's own."""
        handles, settings = self._handles, self.settings
        handles.most, handles.most_bytes = settings.live_objects, settings.live_objects_mb * 1_000_000
        handles.enter(session.history.handles, place_of(session.journal.folder, workspace))
        if session.history.handles:
            handles.install(self.shell)

    def hold(self, call: str, value: Any, handle: str = "") -> str:
        """Keep the object of a call alive, of one that was made again under the handle that code knows it by; its
        handle, "" when it is not kept."""
        return self._handles.hold(call, value, handle) if self._handles.install(self.shell) else ""

    def note_spent(self, dollars: float) -> None:
        """Add to what was spent today."""
        self.spending.add(dollars)
