"""Who may write what to whom, and how it gets there.

A running sub-agent's letters wait beside it for its next request; a session's own, from its sub-agents and from
other kernels, in its mailbox file. Between kernels there is plain text only, none of it a secret, and only in a
project that the user trusts. Nothing runs because a message came.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from ipyagent.children.child import SHUT_DOWN, Subagent
from ipyagent.children.mailbox import MailMessage, checked_letter, post, summed
from ipyagent.errors import AgentError, ToolFailure
from ipyagent.journal.events import MessageSent
from ipyagent.journal.protocols import MessageOrder, ToolOutput
from ipyagent.loop.history import MailState
from ipyagent.loop.session import Session
from ipyagent.redaction import find_secrets
from ipyagent.tools.answers import text_output

if TYPE_CHECKING:
    from ipyagent.children.family import SubagentPool

ALL = ("*", "all")
PARENT = "parent"
_SHOWN = 8
LAST_WORDS = (
    "\nYou are asked to end now: answer in one reply with what you have, and call no further tools. "
    "One more round of tools and you are stopped."
)


class OtherSession(msgspec.Struct, frozen=True, kw_only=True):
    """Another session of the project: `id`, `notebook` ("" when it has none), and whether a kernel has it `open`."""

    id: str
    notebook: str = ""
    open: bool = False

    @property
    def words(self) -> str:
        """Its id, and its notebook."""
        return f"{self.id} ({self.notebook})" if self.notebook else self.id


class Neighbours(Protocol):
    """The other sessions of a project, see `ipyagent.parts.messages`."""

    def find(self, name: str) -> OtherSession | None:
        """The one of this id, beginning of an id, or notebook. Raises ToolFailure: several, or none may be used."""

    def names(self) -> list[str]:
        """What they can be called, newest first."""

    def send(self, neighbour: OtherSession, letter: MailMessage) -> None:
        """Put a letter into its mailbox. Raises AgentError."""

    @property
    def me(self) -> str:
        """What this session is called there."""


@runtime_checkable
class Addressed(Protocol):
    """The sub-agents of a session, as those who write to them know them (`ipyagent.children.family`)."""

    session: Session

    def running(self) -> tuple[Subagent, ...]:
        """Those that have not ended, oldest first."""

    def named(self, name: str) -> Subagent | None:
        """The running one of this name or id."""


class Alone:
    """A session without sub-agents."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def running(self) -> tuple[Subagent, ...]:
        return ()

    def named(self, name: str) -> Subagent | None:
        return None


class SessionMail:
    """A `Messages` (see the protocol) of a session that the user speaks with."""

    def __init__(self, family: Addressed, neighbours: Neighbours) -> None:
        self._family, self._neighbours = family, neighbours

    def __repr__(self) -> str:
        return f"<SessionMail of {self._family.session.journal.session}>"

    async def send(self, order: MessageOrder, call: str) -> ToolOutput:
        """Deliver it. Raises ToolFailure with what the model should read."""
        family, session, to = self._family, self._family.session, order.to.strip()
        said = checked_letter(order.text)
        if order.kind in ("plan_request", "shutdown_response"):
            raise ToolFailure(f"`{order.kind}` is for a sub-agent that writes to its parent")
        if to == PARENT:
            raise ToolFailure("you have no parent: the user reads what you answer")
        letter = _letter(session, order, said, call, PARENT)
        child = family.named(to)
        if to in ALL or child is not None:
            children = family.running() if child is None else (child,)
            if order.kind == "plan_response":
                return _answered(session, children, order, letter, call)
            return _told(session, children, letter, call, "no sub-agent is running")
        if order.kind != "text":
            known = _listed([each.name for each in family.running()])
            raise ToolFailure(f"no sub-agent {to!r} is running; running: {known}")
        neighbour = await asyncio.to_thread(self._neighbours.find, to)
        if neighbour is None:
            names = [*sorted(each.name for each in family.running()), *await asyncio.to_thread(self._neighbours.names)]
            raise ToolFailure(_nobody(to, names))
        if found := find_secrets(f"{order.summary}\n{said}"):
            raise ToolFailure(f"the message holds {found[0].kind}; say where it is stored instead of sending it")
        return await self._abroad(neighbour, letter, call)

    async def _abroad(self, neighbour: OtherSession, letter: MailMessage, call: str) -> ToolOutput:
        """To another session's mailbox."""
        session = self._family.session
        letter = msgspec.structs.replace(letter, sender=self._neighbours.me)
        try:
            await asyncio.to_thread(self._neighbours.send, neighbour, letter)
        except AgentError as problem:
            raise ToolFailure(str(problem)) from None
        _note(session, letter, (neighbour.words,), call)
        when = "it is open in a kernel and reads the message at its next step" if neighbour.open else (
            "no kernel has it open; it will be read when the session is resumed"
        )  # fmt: skip
        return text_output(f"Put into the mailbox of session {neighbour.words}: {when}.", note=f"to {neighbour.id}")


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
        letter = _letter(session, order, said, call, child.name)
        if to == PARENT:
            if order.kind == "plan_request" and child.plan is not None:
                raise ToolFailure("a plan of yours waits for its answer already")
            await asyncio.to_thread(self._home, letter)
            child.parting = child.parting or order.kind == "shutdown_response"
            _note(session, letter, (PARENT,), call)
            if order.kind == "plan_request":
                return await self._waited()
            return text_output("Delivered to your parent; it reads it at its next step.", note="to parent")
        if order.kind != "text":
            raise ToolFailure(f"a `{order.kind}` goes to `parent`")
        siblings = [each for each in family.running() if each is not child]
        chosen = [each for each in siblings if to in ALL or to in (each.name, each.id)]
        if not chosen and to not in ALL:
            raise ToolFailure(_nobody(to, [PARENT, *sorted(each.name for each in siblings)]))
        return _told(session, chosen, letter, call, "no other sub-agent is running; your parent is `parent`")

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


def _letter(session: Session, order: MessageOrder, said: str, call: str, sender: str) -> MailMessage:
    given = {"to": order.to, "kind": order.kind, "message": order.text}
    own = session.journal.session
    place = session.folded(MailState).call_for(given, call) or secrets.token_hex(8)
    return MailMessage(
        id=f"{own}/{place}",
        sender=sender,
        session=own,
        text=session.redact(said),
        kind=order.kind,
        summary=session.redact(summed(order.summary, said)),
        at=time.time(),
    )


def _note(session: Session, letter: MailMessage, to: Iterable[str], call: str) -> None:
    session.record(
        MessageSent(
            message=letter.id, to=tuple(to), said=letter.text, kind=letter.kind, summary=letter.summary, call=call
        )
    )


def _told(session: Session, children: Sequence[Subagent], letter: MailMessage, call: str, nobody: str) -> ToolOutput:
    """To running sub-agents. One that has not begun yet and is asked to shut down is stopped at once."""
    if not children:
        raise ToolFailure(nobody)
    ending = letter.kind == "shutdown_request"
    if ending:
        letter = msgspec.structs.replace(letter, text=letter.text + LAST_WORDS)
    for child in children:
        if ending and child.session is None:
            child.stop(SHUT_DOWN)
        else:
            child.tell(msgspec.structs.replace(letter, id=f"{letter.id}/{child.id}"))
    names = [child.name for child in children]
    _note(session, letter, names, call)
    then = "each ends with its next reply and says so" if ending else "each reads it at its next step"
    then = then if len(names) > 1 else then.replace("each", "it")
    return text_output(f"Delivered to {', '.join(names)}; {then}.", note=f"to {', '.join(names)}")


def _answered(
    session: Session, children: Sequence[Subagent], order: MessageOrder, letter: MailMessage, call: str
) -> ToolOutput:
    """A plan is approved, or not."""
    if not order.approve:
        raise ToolFailure("a `plan_response` needs `approve`: yes or no")
    waiting = [child for child in children if child.plan is not None and not child.plan.done()]
    if not waiting or len(children) > 1:
        known = _listed([child.name for child in children if child.plan is not None])
        raise ToolFailure(f"{order.to!r} has no plan that waits for an answer; answer one by its name: {known}")
    child = waiting[0]
    assert child.plan is not None
    _note(session, letter, (child.name,), call)
    child.plan.set_result((order.approve == "yes", letter.text))
    said = "approved" if order.approve == "yes" else "rejected"
    return text_output(f"The plan of {child.name} is {said}; it continues.", note=f"{said}, to {child.name}")


def _nobody(to: str, names: list[str]) -> str:
    near = get_close_matches(to, names, n=3, cutoff=0.5)
    nearest = f"; nearest: {', '.join(near)}" if near else ""
    return f"no agent or session is called {to!r}{nearest}; there are: {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more
