"""What the fork of one extraction may do: read without a question, and write memories; nothing else.

What it reads itself is no word of the user's. Each memory is journalled as it is saved, and the user is told
in the cell whose turn it came of.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from ipyagent.errors import MemoryRefused, ToolFailure
from ipyagent.journal.events import Event, MemorySaved
from ipyagent.journal.protocols import Surface, ToolOutput
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.hooks import hooks
from ipyagent.loop.session import Session
from ipyagent.memory.access import SCOPES, MemoryAccess
from ipyagent.memory.extract import PURPOSE, saved_line
from ipyagent.memory.files import Memory

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
