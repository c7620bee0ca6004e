"""`%agent messages`: what agents wrote to one another in this session, and what waits to be read."""

from __future__ import annotations

import time

from ipyagent.errors import UsageError
from ipyagent.journal.events import MessageReceived, MessageSent
from ipyagent.loop.mailbox import summed, words
from ipyagent.parts import RunningAgent
from ipyagent.parts.messages import MailService

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
