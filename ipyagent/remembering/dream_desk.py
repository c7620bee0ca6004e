"""What a dream may do: read without a question, ask past sessions for passages, write memories in its copy.

Nothing else is among its tools: no notebook, no sub-agents, no MCP. A call that would write, or that needs a
yes, is refused, whatever the user allows in conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.journal import TRANSCRIPT
from ipyagent.journal.protocols import Permission, PermissionQuestion, Tool, ToolOutput, Workspace
from ipyagent.memory.transcripts import PastSessions
from ipyagent.project import Project
from ipyagent.redaction import redacted
from ipyagent.remembering.extraction_desk import MEMORY, READERS
from ipyagent.tools.schema import FunctionTool, tool

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
