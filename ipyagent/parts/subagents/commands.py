"""`%agent subagents`: who works for the session, and one stopped by its name."""

from __future__ import annotations

from ipyagent.errors import UsageError
from ipyagent.journal.events import ChildEnded, ChildStarted
from ipyagent.journal.journal import CHILDREN
from ipyagent.parts import RunningAgent
from ipyagent.parts.subagents import SubagentManager

MOST = 20
"""Newest sub-agents that are listed."""


def run_subagents(agent: RunningAgent, line: str) -> str:
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


def _listed(agent: RunningAgent) -> str:
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


def _stop(agent: RunningAgent, name: str) -> str:
    running = agent.part(SubagentManager).at_work()
    found = [child for child in running if name in (child.name, child.id)]
    if not found:
        known = ", ".join(child.name for child in running) or "none"
        raise UsageError(f"no sub-agent {name!r} is running; running: {known}")
    agent.part(SubagentManager).stop_one(found[0].id)
    return f"stopped {found[0].name}"
