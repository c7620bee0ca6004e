"""Who may write what to whom, and how it gets there.

A running sub-agent's letters wait beside it for its next request; a session's own, from its sub-agents and from
other kernels, in its mailbox file. Between kernels there is plain text only, none of it a secret, and only in a
project that the user trusts. Nothing runs because a message came.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ipyagent.errors import AgentError, ToolFailure
from ipyagent.journal.protocols import MessageOrder, ToolOutput
from ipyagent.loop.mailbox import (
    ALL,
    PARENT,
    MailMessage,
    checked_letter,
    letter_of,
    nobody_called,
    note_sent,
    post,
    tell_all,
)
from ipyagent.parts.subagents.subagent import Subagent
from ipyagent.tools.answers import text_output

if TYPE_CHECKING:
    from ipyagent.parts.subagents.pool import SubagentPool

class SubagentMail:
    """A `Messages` of a sub-agent: it writes to its parent and to its siblings."""

    def __init__(self, child: Subagent, family: SubagentPool, patience: float) -> None:
        self._child, self._family, self._patience = child, family, patience

    def __repr__(self) -> str:
        return f"<SubagentMail of {self._child.name}>"

    async def send(self, order: MessageOrder, call: str) -> ToolOutput:
        """Deliver it; a plan waits for its answer. Raises ToolFailure."""
        child, family, to = self._child, self._family, order.to.strip()
        session = child.session
        assert session is not None
        said = checked_letter(order.text)
        if order.kind in ("shutdown_request", "plan_response"):
            raise ToolFailure(f"`{order.kind}` is for your parent; write with kind `text`")
        letter = letter_of(session, order, said, call, child.name)
        if to == PARENT:
            if order.kind == "plan_request" and child.plan is not None:
                raise ToolFailure("a plan of yours waits for its answer already")
            await asyncio.to_thread(self._home, letter)
            child.parting = child.parting or order.kind == "shutdown_response"
            note_sent(session, letter, (PARENT,), call)
            if order.kind == "plan_request":
                return await self._waited()
            return text_output("Delivered to your parent; it reads it at its next step.", note="to parent")
        if order.kind != "text":
            raise ToolFailure(f"a `{order.kind}` goes to `parent`")
        siblings = [each for each in family.running() if each is not child]
        chosen = [each for each in siblings if to in ALL or to in (each.name, each.id)]
        if not chosen and to not in ALL:
            raise ToolFailure(nobody_called(to, [PARENT, *sorted(each.name for each in siblings)]))
        return tell_all(session, chosen, letter, call, "no other sub-agent is running; your parent is `parent`")

    def _home(self, letter: MailMessage) -> None:
        journal = self._family.session.journal
        try:
            post(journal.folder, msgspec.structs.replace(letter, session=journal.session))
        except AgentError as problem:
            raise ToolFailure(str(problem)) from None

    async def _waited(self) -> ToolOutput:
        """The answer to the plan that was sent."""
        child = self._child
        child.plan = asyncio.get_running_loop().create_future()
        child.asks.set()
        try:
            with child.waiting():
                approved, why = await asyncio.wait_for(child.plan, self._patience)
        except TimeoutError:
            raise ToolFailure(
                f"the plan got no answer within {self._patience:g} s (IPyAgent.plan_wait): do not carry it out; "
                "end your turn with the plan as your answer"
            ) from None
        finally:
            child.plan = None
            child.asks.clear()
        if approved:
            return text_output(f"The plan is approved. {why}".strip(), note="approved")
        return text_output(f"The plan is rejected: {why}\nDo not carry it out as it is.", note="rejected")


