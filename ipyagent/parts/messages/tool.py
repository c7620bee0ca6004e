"""`send_message`: words to another agent. `ipyagent.parts.messages` delivers them."""

from __future__ import annotations

from typing import Literal

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import MessageKind
from ipyagent.journal.protocols import MessageOrder, Messages, ToolOutput, Workspace
from ipyagent.tools.schema import tool

NAME = "send_message"
OFF = "messages are off (the setting `messages`)"


@tool(
    permission="none",
    writes=False,
    deferred="to another agent or session",
)
async def send_message(
    to: str,
    message: str,
    summary: str = "",
    kind: MessageKind = "text",
    approve: Literal["", "yes", "no"] = "",
    *,
    workspace: Workspace,
) -> ToolOutput:
    """Write to another agent, which reads it at its next step.

    Args:
        to: Name of a running sub-agent, `*` (all of them), `parent`, or notebook or id of another session here.
        message: In full; the other sees nothing of this conversation.
        summary: A few words for the user.
        kind: `shutdown_request`: a sub-agent ends now. `plan_request`: a sub-agent's plan, to `parent`; it waits for
            the `plan_response`.
        approve: Of a `plan_response`.
    """
    access = getattr(workspace, "messages", None)
    if not isinstance(access, Messages):
        raise ToolFailure(OFF)
    order = MessageOrder(to=to, text=message, summary=summary, kind=kind, approve=approve)
    return await access.send(order, str(getattr(workspace, "call", "")))
