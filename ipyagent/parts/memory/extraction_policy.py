"""What the fork of one extraction may do: read without a question, and write memories; nothing else.

What it reads itself is no word of the user's. Each memory is journalled as it is saved, and the user is told
in the cell whose turn it came of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ipyagent.errors import MemoryRefused, ToolFailure
from ipyagent.journal.events import Event, MemorySaved
from ipyagent.journal.journal import TRANSCRIPT
from ipyagent.journal.protocols import Permission, PermissionQuestion, Surface, Tool, ToolOutput, Workspace
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.hooks import hooks
from ipyagent.loop.session import Session
from ipyagent.parts.memory.access import MemoryAccess
from ipyagent.parts.memory.extract import PURPOSE
from ipyagent.parts.memory.names import SCOPES
from ipyagent.parts.memory.store import Memory
from ipyagent.parts.memory.transcripts import PastSessions
from ipyagent.project import Project
from ipyagent.redaction import redacted
from ipyagent.tools.schema import FunctionTool, tool
from ipyagent.ui.memory_chips import saved_line

MEMORY = "memory"
READERS = ("read_file", "grep", "glob", "shell")
"""Tools that may be used to read; a call of theirs that would write or need a yes is refused."""
MAY = f"only `{MEMORY}`, and {', '.join(READERS)} as far as they only read where no question is needed"


@runtime_checkable
class LateSurface(Protocol):
    """A surface that can still show what came of its turn once it is closed."""

    def later(self, event: Event) -> None:
        """Add an event to what stays; on the agent thread."""


class ExtractionToolPolicy:
    """What the fork of one extraction may do, and what it saved. What it reads itself is no word of the user's."""

    def __init__(
        self, session: Session, workspace: KernelWorkspace, surface: Surface | None, notice: Callable[[str], None]
    ) -> None:
        self._session, self._notice = session, notice
        self._surface: object = surface
        access = workspace.memory
        if not isinstance(access, MemoryAccess):
            raise MemoryRefused("there is no memory here: %memory on turns it on", reason="off")
        self._access = access.on_behalf(PURPOSE, record=self._record)
        # files that the fork reads, the model has not read
        self._workspace = replace(workspace, read_stamps={}, memory=self._access)
        self.saved: list[str] = []
        """Paths of the memories that were written."""
        self._failed = self._read = False
        self._written = 0

    def __repr__(self) -> str:
        return f"<ExtractionToolPolicy of an extraction, {len(self.saved)} saved>"

    def permit(self, name: str, given: dict[str, Any]) -> str:
        """Why a call may not run; "" when it may."""
        tool = self._session.tools.get(name)
        if name == MEMORY or tool is None:
            return ""
        if name not in READERS:
            return MAY
        try:
            checked = tool.validate(given)
            harmless = not tool.writes(checked, self._workspace)
            return "" if harmless and tool.permission(checked, self._workspace) == "none" else MAY
        except ToolFailure:
            return ""  # its result says what is wrong with it

    async def answer(self, name: str, given: dict[str, Any]) -> ToolOutput:
        """Do a permitted call. Raises ToolFailure."""
        tool = self._session.tools[name]
        changed, why = await hooks.before_tool({"tool": name, "input": given, "call": ""})
        if why:
            raise ToolFailure(f"A hook of the user's denied this call: {why}")
        if changed is not None:
            given = tool.validate(changed)
            if refused := self.permit(name, given):
                raise ToolFailure(refused)
        self._read = self._read or name != MEMORY or given.get("command") == "view"
        try:
            output = await tool.run(given, self._workspace)
        except ToolFailure as failure:
            self._failed = True
            if name != MEMORY:
                self._access.tell(str(failure))
            raise
        if name != MEMORY:  # what stands in memories was checked when it was saved
            self._access.take(output.blocks)
        return output

    def listed(self) -> list[Memory]:
        """What memories there are, newest first."""
        found: list[Memory] = []
        for scope in SCOPES:
            with suppress(MemoryRefused):  # this one may not be used now
                found += self._access.listed(scope)
        return sorted(found, key=lambda memory: memory.modified, reverse=True)

    def enough(self) -> bool:
        """Whether the last round of calls wrote something and left nothing to mend."""
        done = len(self.saved) > self._written and not self._failed
        self._written, self._failed, self._read = len(self.saved), False, False
        return done

    def idle(self) -> bool:
        """Whether the last round of calls, of a fork that has other work too, left nothing to read or to mend."""
        done = not (self._failed or self._read)
        self._written, self._failed, self._read = len(self.saved), False, False
        return done

    def _record(self, event: MemorySaved) -> MemorySaved:
        """Journal a memory that was saved, and tell the user where the user looks."""
        shown = self._session.surface is not None  # the next turn's cell tells of it
        made = self._session.record(event)
        self.saved.append(made.path)
        if not shown and isinstance(self._surface, LateSurface):
            self._surface.later(made)
        elif not shown:
            self._notice(saved_line(made))
        return made


# ---- What a dream may do: read without a question, ask past sessions for passages, write memories in its copy.
# Nothing else is among its tools: no notebook, no sub-agents, no MCP. A call that would write, or that needs a yes,
# is refused, whatever the user allows in conversations.

ONLY_READ = "This call may not run in a dream: it would write or needs a permission. Only `memory` writes here."
NOT_WHOLE = "Transcripts of sessions are not read whole; ask past_sessions for what you want to know."
PAST = "past_sessions"
_WHOLE = ("read_file", "shell")


def dream_tools(installed: Mapping[str, Tool], project: Project | None, cache: Path | None) -> dict[str, Tool]:
    """The tools of a dream by name, in a fixed order; `cache`: where the index of past sessions is kept. Without a
    `project`, for memories of all projects, nothing of the one at hand is looked at: it shows nothing of the others."""
    found: dict[str, Any] = {}
    if MEMORY in installed:
        found[MEMORY] = installed[MEMORY]
    if project is not None:
        found |= {name: DreamReader(installed[name]) for name in READERS if name in installed}
        found[PAST] = _past_sessions(project, cache)
    return dict(sorted(found.items()))


class DreamReader:
    """A tool as a dream may use it."""

    def __init__(self, inner: Tool) -> None:
        self._inner = inner
        self.name = inner.name
        self.description = inner.description
        self.input_schema = inner.input_schema
        self.parallel = inner.parallel
        self.recreatable = inner.recreatable
        self.store_chars = getattr(inner, "store_chars", None)

    def __repr__(self) -> str:
        return f"<DreamReader {self.name}>"

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        return self._inner.validate(input)

    def permission(self, input: dict[str, Any], workspace: Workspace) -> Permission:
        """None is asked for: what needs one does not run."""
        return "none"

    def writes(self, input: dict[str, Any], workspace: Workspace) -> bool:
        return False

    def destructive(self, input: dict[str, Any], workspace: Workspace) -> str:
        return ""

    def pattern(self, input: dict[str, Any], workspace: Workspace) -> str:
        return self._inner.pattern(input, workspace)

    def question(self, input: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
        return self._inner.question(input, workspace)

    def run(self, input: dict[str, Any], workspace: Workspace) -> Awaitable[ToolOutput]:
        """Raises ToolFailure for everything but reading."""
        inner = self._inner
        if inner.writes(input, workspace) or inner.permission(input, workspace) != "none":
            raise ToolFailure(ONLY_READ)
        if self.name in _WHOLE and any(TRANSCRIPT in value for value in input.values() if isinstance(value, str)):
            raise ToolFailure(NOT_WHOLE)
        return inner.run(input, workspace)


def _past_sessions(project: Project, cache: Path | None) -> FunctionTool:
    @tool(name=PAST, permission="none", writes=False, recreatable=True, parallel=True)
    async def past_sessions(query: str) -> str:
        """Passages of past sessions of this project that fit some words, best first, with session, turn, day and
        who said it.

        Args:
            query: A few telling words, such as a name, a file or a number.
        """
        past = PastSessions(project.session_folders, cache, redact=lambda text: redacted(text)[0])
        return await asyncio.to_thread(past.passages, query)

    return past_sessions
