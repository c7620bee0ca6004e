"""What requests are worked on with: a session is connected to its model, tools and settings here, and
gets its workspace. One a kernel; what it remembers (live objects, rules) outlives sessions, but for the files that
each has read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from ipyagent.assembly.at_exit import at_exit
from ipyagent.assembly.fitting import fitted
from ipyagent.assembly.head import MEMORY, SystemPromptBuilder
from ipyagent.assembly.requests import Options
from ipyagent.assembly.restoring import recent_words, restored
from ipyagent.assembly.toolbox import ToolRegistry
from ipyagent.assembly.wiring import (
    find_model,
    limit_of,
    limits_of,
    model_of,
    named_model,
    small_model_of,
    state_of,
    without_small,
)
from ipyagent.config import IPyAgent
from ipyagent.context.pins import pinned, words
from ipyagent.journal.events import ModelChosen, SkillLoaded
from ipyagent.journal.protocols import Tool, Workspace
from ipyagent.journal.stored import FOLDER as RESULTS
from ipyagent.kernel.cell_marks import PIN, CellMarks
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.scope import users_namespace
from ipyagent.kernel.workspace import BACKUPS, KernelWorkspace, LiveObjects, Names
from ipyagent.loop.budget import Spending
from ipyagent.loop.keeping import place_of
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.session import Session
from ipyagent.mcp.tool import OutsideTool
from ipyagent.memory.access import MemoryAccess
from ipyagent.memory.memories import MemoryStores
from ipyagent.memory.transcripts import CACHE, PastSessions
from ipyagent.model.client import AnthropicModel
from ipyagent.model.endpoint import own_keys
from ipyagent.project import Project
from ipyagent.redaction import Redactor, redacted
from ipyagent.reports.shares import measure_of
from ipyagent.skills.desk import SkillAccess, Skills
from ipyagent.skills.restore import restorable
from ipyagent.tools.catalogue import told_of, with_search
from ipyagent.tools.send_message import NAME as SEND


class SessionSetup:
    """`folder` is where the user works; the other parts are the agent's own."""

    def __init__(self, shell: Any, settings: IPyAgent, project: Project, folder: Path, toolbox: ToolRegistry) -> None:
        self.shell = shell
        self.settings = settings
        self.project = project
        self.folder = folder
        self.toolbox = toolbox
        self.memories = MemoryStores(project, settings, folder)
        self.skills = toolbox.skills or Skills(project, settings, folder, toolbox.notice)
        self.spending = Spending(project.spend, toolbox.notice)
        """What all sessions of this user cost today."""
        at_exit(self.spending, Spending.end)
        self.names = Names()
        self.marks: CellMarks | None = None
        """Which cells are hidden or pinned."""
        self.listing: Callable[[], str] | None = None
        """The block that lists all variables, see `NotebookObserver.listing`."""
        self.redactor = Redactor(lambda: settings.redact_secrets, toolbox.notice, own_keys)
        """Takes secrets out of what the model is to get."""
        self.head = SystemPromptBuilder(project, settings, self.memories, toolbox.notice, self.skills, self.redactor)
        self.outside: Callable[[Session, int], Awaitable[dict[str, Tool]]] = _nothing_outside
        """The tools of outside (MCP) servers for a session, given the model's window."""
        self.outside_now: Callable[[], dict[str, Tool]] = dict
        """Those there are at this moment, for the search."""
        self.children: Callable[[Session], object] = _no_children
        """The `Children` of a session, for the tool that starts sub-agents."""
        self.messages: Callable[[Session], object] = _no_children
        """The `Messages` of a session, for the tool that writes to other agents."""
        self.check: Callable[[Session, Sequence[str], Sequence[str]], Awaitable[bool | None]] = _no_check
        """Whether a memory says no more than the user did, for a session; None when nobody answers."""
        self._stamps: WeakKeyDictionary[Session, dict[Path, str]] = WeakKeyDictionary()
        """Which files each session has read, in which version: what another one read, its model has not seen."""
        self._cell_ids: dict[Path, Any] = {}
        self._handles = LiveObjects()
        self._permissions: Permissions | None = None

    def __repr__(self) -> str:
        return f"<SessionSetup in {self.project.root.name}>"

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
        allowed = (self.project.root, self.folder, session.journal.folder / RESULTS, *self.skills.folders(), *further)
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
            memory=self.memory_of(session),
            skills=self.skills_of(session),
            children=self.children(session),
            messages=self.messages(session),
            sessions=self.past_of(session),
        )

    def past_of(self, session: Session) -> PastSessions | None:
        """The project's sessions as a session's agent searches them; None when they come from elsewhere."""
        project, every = self.project, self.settings.trust_all or self.project.trusted
        if not every and not project.elsewhere:
            return None

        def folders() -> Iterable[Path]:
            return (folder for folder in project.session_folders() if every or project.owns(folder))

        def redact(text: str) -> str:
            return redacted(text)[0] if self.settings.redact_secrets else text

        cache = project.state / "cache" / CACHE
        return PastSessions(folders, cache, session.journal.folder, redact)

    def skills_of(self, session: Session) -> SkillAccess:
        """The skills as a session's agent loads them."""
        return SkillAccess(self.skills, session.history.skills, lambda load: self.load(session, load))

    def load(self, session: Session, load: SkillLoaded) -> None:
        """Journal that a skill stands in the session's context, with its tokens as %context counts them."""
        session.record(msgspec.structs.replace(load, counted=round(load.tokens * measure_of(session.view))))

    async def restored(self, session: Session, workspace: Workspace, window: int) -> list[tuple[str, str]]:
        """What stands again after a compaction of the session, by its name for the user."""
        return await restored(
            workspace,
            self.settings,
            session.history.plan,
            lambda room: restorable(self.skills, session.history.skills, room),
            self.pins,
            session.redact,
            self.listing if workspace.namespace is users_namespace(self.shell) else None,
            recent=recent_words(session.view, session.history.turns),
            window=window,
            factor=session.view.calibration.factor,
        )

    def pins(self) -> str:
        """The pinned cells as the model reads them; "" for none. On the main thread."""
        cells = self.marks.marked(PIN) if self.marks is not None else []
        return words(pinned((cell.ident, cell.source) for cell in cells))

    def memory_of(self, session: Session, by: str = "agent") -> MemoryAccess:
        """The memories as work of a session touches them, see `MemoryAccess`."""
        return MemoryAccess(
            self.memories,
            by=by,
            record=session.record,
            ground=session.history.ground,
            session=session.journal.session,
            turn=lambda: len(session.history.turns),
            notice=self.toolbox.notice,
            check=lambda words, told: self.check(session, words, told),
        )

    async def connect(
        self, session: Session, model: AnthropicModel, tools: dict[str, Tool], options: Options
    ) -> None:
        """Give the session what it works with: model, tools, settings; on the agent thread."""
        session.show_phase("connecting")
        session.redact = self.redactor
        if not options.model and (news := await find_model(self.settings, model)):
            self.toolbox.notice(news)
        name = options.model or model_of(self.settings)
        info = await model.info(name)
        tools = {name: tool for name, tool in tools.items() if not isinstance(tool, OutsideTool)}
        tools = self.switched({**tools, **await self.outside(session, info.window)}, session)
        told = told_of(session.view.tools)
        window = state_of(self.settings, info, 0).window
        tools, left = fitted(tools, window, told)
        searched = any(isinstance(tool, OutsideTool) and tool.deferred for tool in tools.values())
        tools = with_search(tools, told, self.outside_now if searched else dict)
        if left and not session.view.system:
            self.toolbox.notice(
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
        )
        if not session.view.system:
            await asyncio.to_thread(self.head.look)
        self.head.put(session, tools, self.toolbox.theirs(tools))
        session.renewed = lambda: self.head.after_compaction(session)
        if session.view.model != name:
            named = not options.model and bool(named_model(self.settings))
            session.record(ModelChosen(model=name, window=info.window, max_output=info.max_output, named=named))

    def switched(self, tools: Mapping[str, Tool], session: Session | None) -> dict[str, Tool]:
        """The tools without those whose setting is off; what a session has been told of stays."""
        told = told_of(session.view.tools) if session is not None else set()
        off = {
            *(() if self.settings.memory or (session is not None and self.head.has_memory(session)) else (MEMORY,)),
            *(() if self.settings.messages or SEND in told else (SEND,)),
        }
        return {name: tool for name, tool in tools.items() if name not in off}

    def no_small(self, name: str) -> bool:
        """The server does not have the small model `name`: whether the main model stands in for it, which is said
        once."""
        line = without_small(self.settings, name)
        if line:
            self.toolbox.notice(line)
        return bool(line) or small_model_of(self.settings) != name

    def keep_objects(self, session: Session, workspace: KernelWorkspace) -> None:
        """`_agent` holds the session's objects, unless the name is the user's own."""
        handles, settings = self._handles, self.settings
        handles.most, handles.most_bytes = settings.live_objects, settings.live_objects_mb * 1_000_000
        handles.enter(session.history.handles, place_of(session.journal.folder, workspace))
        if session.history.handles:
            handles.install(self.shell)
        session.hold = lambda call, value: handles.hold(call, value) if handles.install(self.shell) else ""


async def _nothing_outside(session: Session, window: int) -> dict[str, Tool]:
    return {}


async def _no_check(session: Session, words: Sequence[str], told: Sequence[str]) -> bool | None:
    return None


def _no_children(session: Session) -> object:
    return None
