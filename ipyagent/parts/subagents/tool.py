"""`agent`: work given to a sub-agent. Its types are known when a session begins, so the tool is made for them;
the part does the work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Children, SubagentOrder, ToolOutput, Workspace
from ipyagent.tools.schema import FunctionTool, tool

NAME = "agent"
SEEN = "hand many steps or independent pieces to a sub-agent"
"""What the model is told of it before it looks."""
OFF = "sub-agents are off (the setting `subagents`)"
_ABOUT = """Give work to a sub-agent and get its answer: many steps of which you need only the result, or independent
pieces, side by side in one message. Say all it must know and what to answer. Its `python` has a copy of the user's
namespace: only what it hands back by name reaches the user.
{kinds}

Args:
    background: Go on; the answer comes in a later message.
    resume: Id of an earlier one that goes on.
"""


def tool_for(kinds: Mapping[str, str]) -> FunctionTool:
    """The tool for these types: a sentence on each by name, the usual one first."""
    from pydantic import Field

    usual = next(iter(kinds), "general")
    about = "\n".join(f"- {name}: {said}" for name, said in kinds.items())

    async def agent(
        task: str,
        prompt: str,
        type: Any = usual,
        background: bool = False,
        resume: str = "",
        *,
        workspace: Workspace,
    ) -> ToolOutput:
        access = getattr(workspace, "children", None)
        if not isinstance(access, Children):
            raise ToolFailure(OFF)
        order = SubagentOrder(task=task, prompt=prompt, kind=str(type), background=background, resume=resume)
        return await access.start(order, workspace, str(getattr(workspace, "call", "")))

    agent.__doc__ = _ABOUT.format(kinds=about)
    agent.__annotations__["type"] = Annotated[str, Field(json_schema_extra={"enum": list(kinds)})]
    return tool(name=NAME, permission="none", writes=False, parallel=True, deferred=SEEN)(agent)
