"""`compact`: the model asks for a compaction; the loop makes it once all results of the reply are in."""

from __future__ import annotations

from ipyagent.journal.protocols import ToolOutput
from ipyagent.tools.answers import text_output
from ipyagent.tools.schema import tool

SAID = "The conversation is compacted before your next reply; where it is not, you are told why right after this."


@tool(permission="none", writes=False, parallel=True)
async def compact(instructions: str = "") -> ToolOutput:
    """Replace the conversation so far by a summary, to make room: between two pieces of work, never in the middle of
    one, or when the user asks. It happens before your next reply; the newest request stays word for word.

    Args:
        instructions: What it must not lose.
    """
    return text_output(SAID, note="compaction requested")
