"""Messages between the kernels of one project: who there is, what waits, and its delivery before a request."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import msgspec

from ipyagent.assembly.sessions import ASIDE
from ipyagent.errors import AgentError, JournalError, ToolFailure, UsageError
from ipyagent.journal.events import MessageKind, MessageReceived, MessageSent, SessionStarted
from ipyagent.journal.journal import TRANSCRIPT, in_use, read_events
from ipyagent.journal.protocols import Tool, ToolOutput, Workspace
from ipyagent.loop.mailbox import (
    ALL,
    PARENT,
    Addressee,
    Mailbox,
    MailMessage,
    MessageOrder,
    Messages,
    checked_letter,
    letter_of,
    listed,
    nobody_called,
    note_sent,
    post,
    received,
    summed,
    tell_all,
    words,
)
from ipyagent.loop.session_state import MailState
from ipyagent.parts import Command, Host, Part, RunningAgent, Turn
from ipyagent.project import Project
from ipyagent.redaction import find_secrets
from ipyagent.tools.answers import text_output
from ipyagent.tools.catalogue import told_of
from ipyagent.tools.schema import tool

if TYPE_CHECKING:
    from ipyagent.loop.session import Session


AT_ONCE = 50
CHARS_AT_ONCE = 60_000
"""Messages, and characters of them, that come before one request; the rest comes before the next."""
_SHORTEST = 4
"""Characters of an id's beginning that may stand for it."""
_MOST = 200
"""Newest sessions that are looked at."""
UNTRUSTED = "messages between sessions need a trusted project: the user says %agent trust if it is theirs"


class OtherSession(msgspec.Struct, frozen=True, kw_only=True):
    """Another session of the project: `id`, `notebook` ("" when it has none), and whether a kernel has it `open`."""

    id: str
    notebook: str = ""
    open: bool = False

    @property
    def words(self) -> str:
        """Its id, and its notebook."""
        return f"{self.id} ({self.notebook})" if self.notebook else self.id


@runtime_checkable
class Addressed(Protocol):
    """The sub-agents of a session, as those who write to them know them (`ipyagent.parts.subagents.pool`)."""

    session: Session

    def running(self) -> tuple[Addressee, ...]:
        """Those that have not ended, oldest first."""

    def named(self, name: str) -> Addressee | None:
        """The running one of this name or id."""


class Alone:
    """A session without sub-agents."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def running(self) -> tuple[Addressee, ...]:
        return ()

    def named(self, name: str) -> Addressee | None:
        return None


class SessionMail:
    """A `Messages` (see the protocol) of a session that the user speaks with: to its sub-agents, and to the other
    sessions of its project."""

    def __init__(self, family: Addressed, project: Project, *, trusted: Callable[[], bool]) -> None:
        self._family, self._project, self._trusted = family, project, trusted

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
        letter = letter_of(session, order, said, call, PARENT)
        child = family.named(to)
        if to in ALL or child is not None:
            children = family.running() if child is None else (child,)
            if order.kind == "plan_response":
                return _answered(session, children, order, letter, call)
            return tell_all(session, children, letter, call, "no sub-agent is running")
        if order.kind != "text":
            known = listed([each.name for each in family.running()])
            raise ToolFailure(f"no sub-agent {to!r} is running; running: {known}")
        neighbour = await asyncio.to_thread(self.find, to)
        if neighbour is None:
            names = [*sorted(each.name for each in family.running()), *await asyncio.to_thread(self.names)]
            raise ToolFailure(nobody_called(to, names))
        if found := find_secrets(f"{order.summary}\n{said}"):
            raise ToolFailure(f"the message holds {found[0].kind}; say where it is stored instead of sending it")
        started = session.history.started
        own = OtherSession(id=session.journal.session, notebook=started.notebook if started is not None else "")
        letter = msgspec.structs.replace(letter, sender=f"session {own.words}")  # what answers it
        try:
            await asyncio.to_thread(self._put, neighbour, letter)
        except AgentError as problem:
            raise ToolFailure(str(problem)) from None
        note_sent(session, letter, (neighbour.words,), call)
        when = "it is open in a kernel and reads the message at its next step" if neighbour.open else (
            "no kernel has it open; it will be read when the session is resumed"
        )  # fmt: skip
        return text_output(f"Put into the mailbox of session {neighbour.words}: {when}.", note=f"to {neighbour.id}")

    def _put(self, neighbour: OtherSession, letter: MailMessage) -> None:
        folder = self._project.session_folder(neighbour.id)
        if folder.is_symlink() or not (folder / TRANSCRIPT).is_file():
            raise AgentError(f"the session {neighbour.id} no longer exists; %agent messages shows who is there")
        post(folder, letter)

    def find(self, name: str) -> OtherSession | None:
        """The one of this id, beginning of an id, or notebook. Raises ToolFailure: several, or none may be used."""
        wanted = re.sub(r"^session\s+", "", name.strip(), flags=re.I)
        wanted = wanted.partition(" (")[0].strip()
        if not wanted:
            return None
        folders = self._folders()
        exact = [folder for folder in folders if folder.name == wanted]
        begun = [folder for folder in folders if len(wanted) >= _SHORTEST and folder.name.startswith(wanted)]
        if not exact and len(begun) > 1:
            raise ToolFailure(f"{name!r} begins several sessions: {', '.join(each.name for each in begun[:5])}")
        found = exact or begun
        if not found:
            found = [folder for folder in folders if wanted.lower() in _names(_notebook(folder))]
            found.sort(key=lambda folder: not in_use(folder))  # the newest that is open, else the newest
        if not found:
            return None
        if not self._trusted():
            raise ToolFailure(UNTRUSTED)
        return OtherSession(id=found[0].name, notebook=_notebook(found[0]), open=in_use(found[0]))

    def names(self) -> list[str]:
        """What they can be called, newest first."""
        if not self._trusted():
            return []
        found: list[str] = []
        for folder in self._folders():
            found += [notebook] if (notebook := _notebook(folder)) else []
            found.append(folder.name)
        return list(dict.fromkeys(found))

    def _folders(self) -> list[Path]:
        own = self._family.session.journal.folder.name
        found = [folder for folder in self._project.session_folders() if not folder.name.endswith(ASIDE)]
        return [folder for folder in found if folder.name != own and not folder.is_symlink()][:_MOST]


def _answered(
    session: Session, children: Sequence[Addressee], order: MessageOrder, letter: MailMessage, call: str
) -> ToolOutput:
    """A plan is approved, or not."""
    if not order.approve:
        raise ToolFailure("a `plan_response` needs `approve`: yes or no")
    waiting = [child for child in children if child.plan is not None and not child.plan.done()]
    if not waiting or len(children) > 1:
        known = listed([child.name for child in children if child.plan is not None])
        raise ToolFailure(f"{order.to!r} has no plan that waits for an answer; answer one by its name: {known}")
    child = waiting[0]
    assert child.plan is not None
    note_sent(session, letter, (child.name,), call)
    child.plan.set_result((order.approve == "yes", letter.text))
    said = "approved" if order.approve == "yes" else "rejected"
    return text_output(f"The plan of {child.name} is {said}; it continues.", note=f"{said}, to {child.name}")


class MailService(Part):
    """One a kernel."""

    name, order, states = "messages", 50, (MailState,)

    def __init__(self, host: Host) -> None:
        self._project, self._settings, self._notice = host.project, host.settings, host.notice
        self._agent = host.agent
        self._boxes: WeakKeyDictionary[Session, Mailbox] = WeakKeyDictionary()
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"<MailService in {self._project.root.name}>"

    @property
    def on(self) -> bool:
        """Whether the setting lets agents write to one another."""
        return bool(self._settings.messages)

    @property
    def trusted(self) -> bool:
        """Whether other sessions may be written to and read."""
        return bool(self._settings.trust_all or self._project.trusted)

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        found: dict[str, Any] = {}
        if self.on or (session is not None and NAME in told_of(session.view.tools)):
            found[NAME] = send_message
        return found

    def commands(self) -> Mapping[str, Command]:
        about = "List the messages between agents in this session; a number shows one in full."
        return {"messages": Command(partial(run_messages, self._agent), about, "[NUMBER]", looks=True)}

    def services(self, session: Session, others: Mapping[str, object]) -> Mapping[str, object]:
        """The `Messages` of a session; None when they are off."""
        family = others.get("children")
        own = family if isinstance(family, Addressed) else Alone(session)
        return {"messages": SessionMail(own, self._project, trusted=lambda: self.trusted) if self.on else None}

    def waiting(self, session: Session) -> tuple[MailMessage, ...]:
        """What was not taken in yet, read anew; on any thread."""
        if not self.on:
            return ()
        found = Mailbox(session.journal.folder).waiting(session.folded(MailState).received)
        return tuple(letter for letter in found if self._may(session, letter))

    @asynccontextmanager
    async def turn(self, turn: Turn) -> AsyncIterator[None]:
        """Before each request of the turn, what came is journalled."""

        async def before_request() -> None:
            await self.deliver(turn.session)

        with turn.session.first(before_request):
            yield

    async def deliver(self, session: Session) -> int:
        """Journal the oldest messages that wait; how many. Raises JournalError."""
        if not self.on:
            return 0
        box = self._boxes.setdefault(session, Mailbox(session.journal.folder))
        count = chars = 0
        for letter in box.waiting(session.folded(MailState).received):
            if not self._may(session, letter):
                self._tell(f"a message from another session waits and is not read: {UNTRUSTED}")
                continue
            own = letter.session == session.journal.session
            event = received(letter if own else msgspec.structs.replace(letter, kind="text"), session.redact)
            if count and (count >= AT_ONCE or chars + len(event.text) > CHARS_AT_ONCE):
                break
            session.record(event)
            count, chars = count + 1, chars + len(event.text)
        if count:
            await session.synced()
            if not box.waiting(session.folded(MailState).received):
                await asyncio.to_thread(box.put_aside)  # a writer may hold its lock
        for line in box.problems:
            self._tell(line)
        box.problems.clear()
        return count

    def _may(self, session: Session, letter: MailMessage) -> bool:
        """Its own sub-agents' always; others' in a trusted project."""
        return self.trusted or letter.session == session.journal.session

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._notice(line)


def _notebook(folder: Path) -> str:
    """The notebook of a session, "" when it has none."""
    try:
        first = next(read_events(folder / TRANSCRIPT), None)
    except JournalError:
        return ""
    return first.notebook if isinstance(first, SessionStarted) else ""


def _names(notebook: str) -> set[str]:
    """What a notebook may be called: its path, its name, its name without the ending."""
    path = Path(notebook.lower())
    return {notebook.lower(), path.name, path.stem} if notebook else set()


MOST_MESSAGES = 30
"""Newest messages that are listed."""


def waiting_lines(agent: RunningAgent) -> list[str]:
    """A line for the status when messages wait; none otherwise."""
    session = agent.session
    mail = agent.parts.get(MailService)
    count = len(mail.waiting(session)) if session is not None and mail is not None else 0
    if not count:
        return []
    said = "1 message waits" if count == 1 else f"{count:,} messages wait"
    return [f"{said}, read with the next request (%agent messages)"]


def run_messages(agent: RunningAgent, line: str) -> str:
    """The answer of `%agent messages LINE`: a list, or one in full by its number. Raises UsageError."""
    session = agent.session
    if session is None:
        return "no messages: no session in this kernel"
    found = [event for event in session.journal.read() if isinstance(event, MessageReceived | MessageSent)]
    waiting = agent.part(MailService).waiting(session)
    wanted = line.strip().removeprefix("#")
    if wanted:
        event = next((each for each in found if str(each.id) == wanted), None)
        if event is None:
            raise UsageError(f"no message {line.strip()!r}; %agent messages lists them with their numbers")
        return f"{_line(event)}\n{words(event.said)}"
    lines = [_line(event) for event in found[-MOST_MESSAGES:]]
    if len(found) > MOST_MESSAGES:
        lines.insert(0, f"({len(found) - MOST_MESSAGES:,} earlier)")
    for letter in waiting[:MOST_MESSAGES]:
        lines.append(f"waits  from {summed(letter.sender, 'somebody')}: {summed(letter.summary, letter.text)}")
    if len(waiting) > MOST_MESSAGES:
        lines.append(f"and {len(waiting) - MOST_MESSAGES:,} more that wait")
    return "\n".join([*lines, *waiting_lines(agent)]) or "no messages in this session"


def _line(event: MessageReceived | MessageSent) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(event.at))
    who = f"from {event.sender}" if isinstance(event, MessageReceived) else f"to {', '.join(event.to)}"
    kind = "" if event.kind == "text" else f" [{event.kind}]"
    return f"#{event.id}  {when}  {summed(who, 'nobody')}{kind}: {event.summary}"


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
