"""`past_sessions`: passages of earlier sessions, and of this one from before its compactions, by words."""

from __future__ import annotations

import asyncio

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Workspace
from ipyagent.memory.transcripts import PastSessions
from ipyagent.tools.schema import tool


@tool(
    permission="none",
    writes=False,
    parallel=True,
    recreatable=True,
    deferred="search earlier sessions by words",
)
async def past_sessions(query: str, *, workspace: Workspace) -> str:
    """Search what was said and done in earlier sessions of this project, and in this one before a compaction, by a few
    telling words."""
    past = workspace.sessions
    if not isinstance(past, PastSessions):
        raise ToolFailure("past sessions cannot be searched here")
    return await asyncio.to_thread(past.passages, query)
