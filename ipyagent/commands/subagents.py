"""`%agent subagents` and `%agent messages`: who works for the session, and what agents wrote to one another."""

from __future__ import annotations

import time

from ipyagent.agent import Agent
from ipyagent.errors import UsageError
from ipyagent.journal.events import ChildEnded, ChildStarted, MessageReceived, MessageSent
from ipyagent.journal.journal import CHILDREN
from ipyagent.loop.mailbox import summed, words
from ipyagent.parts.messages import MailService
from ipyagent.parts.subagents import SubagentManager

# ---- `%agent subagents`: the session's sub-agents, and one stopped by its name.

MOST = 20
"""Newest sub-agents that are listed."""


def run_children(agent: Agent, line: str) -> str:
    """The answer of `%agent subagents LINE`: `list`, `stop NAME`, `types`. Raises UsageError."""
    word, _, rest = line.strip().partition(" ")
    match word:
        case "" | "list":
            return _listed(agent)
        case "stop":
            return _stop(agent, rest.strip())
        case "types":
            return "\n".join(f"{name}: {kind.about}" for name, kind in agent.part(SubagentManager).kinds().items())
        case _:
            raise UsageError(f"%agent subagents: list, types or stop NAME, not {word!r}")


def _listed(agent: Agent) -> str:
    session = agent.session
    started: dict[str, ChildStarted] = {}
    ended: dict[str, ChildEnded] = {}
    for event in session.journal.read() if session is not None else ():
        if isinstance(event, ChildStarted):
            started[event.child] = event
            ended.pop(event.child, None)
        elif isinstance(event, ChildEnded):
            ended[event.child] = event
    if session is None or not started:
        return "no sub-agents in this session"
    running = {child.id: child for child in agent.part(SubagentManager).at_work()}
    lines = []
    for child, event in list(started.items())[-MOST:]:
        end = ended.get(child)
        if child in running:
            state = f"running ({running[child].now})"
        elif end is None:
            state = "cut off: the kernel stopped"
        else:
            cost = f", ${end.cost:.4f}" if end.cost else ""
            state = f"{end.status}, {end.requests:,} model call{'s' * (end.requests != 1)}{cost}, {end.seconds:.1f} s"
            state += f": {end.message}" if end.message else ""
        lines.append(f"{child} ({event.kind}, {event.task}): {state}")
    lines.append(f"transcripts: {agent.project.relative(session.journal.folder / CHILDREN)}/ID/transcript.jsonl")
    return "\n".join(lines)


def _stop(agent: Agent, name: str) -> str:
    running = agent.part(SubagentManager).at_work()
    found = [child for child in running if name in (child.name, child.id)]
    if not found:
        known = ", ".join(child.name for child in running) or "none"
        raise UsageError(f"no sub-agent {name!r} is running; running: {known}")
    agent.part(SubagentManager).stop_one(found[0].id)
    return f"stopped {found[0].name}"


# ---- `%agent messages`: what agents wrote to one another in this session, and what waits to be read.

MOST_MESSAGES = 30
"""Newest messages that are listed."""


def waiting_lines(agent: Agent) -> list[str]:
    """A line for the status when messages wait; none otherwise."""
    session = agent.session
    mail = agent.parts.get(MailService)
    count = len(mail.waiting(session)) if session is not None and mail is not None else 0
    if not count:
        return []
    said = "1 message waits" if count == 1 else f"{count:,} messages wait"
    return [f"{said}, read with the next request (%agent messages)"]


def run_messages(agent: Agent, line: str) -> str:
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
