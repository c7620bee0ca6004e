"""Sub-agents that a killed kernel left without an end: they get one, from what stands in their transcripts."""

from __future__ import annotations

import time
from pathlib import Path

from ipyagent.children.answers import background_words
from ipyagent.children.child import Child
from ipyagent.children.forking import folder_of
from ipyagent.children.kinds import Kind
from ipyagent.errors import JournalError
from ipyagent.journal.events import AssistantSaid, ChildEnded, ChildStarted, Event, SessionStarted
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.loop.session import Session

WHY = "cut off: the kernel stopped"


def close_lost(session: Session, running: set[str]) -> None:
    """Journal the end of each sub-agent of this session that has none and does not run. A session that was copied
    from another has none of that one's. Raises JournalError."""
    for started in tuple(session.history.at_work.values()):
        folder = folder_of(session) / started.child
        if started.child not in running and folder.is_dir():
            session.record(_end(started, folder))


def _end(started: ChildStarted, folder: Path) -> ChildEnded:
    kind = Kind(name=started.kind, about="")
    child = Child(started.child, started.name, kind, started.task, background=started.background)
    own = _own_events(folder, since=started.at)
    for event in own:
        child.saw(event)
        if isinstance(event, AssistantSaid):
            child.answer = " ".join(str(block["text"]) for block in event.blocks if block["type"] == "text")
    child.status, child.message = "stopped", WHY
    seconds = round(max(0.0, own[-1].at - started.at), 3) if own else 0.0
    child.began = time.monotonic() - seconds
    return ChildEnded(
        child=child.id,
        status="stopped",
        message=WHY,
        usage=child.usage,
        cost=child.cost,
        requests=child.requests,
        seconds=seconds,
        text=background_words(child) if started.background else "",
    )


def _own_events(folder: Path, since: float) -> list[Event]:
    """What it did in this run; a fork's transcript begins with its parent's, a resumed one's with earlier runs."""
    try:
        events = list(read_events(folder / TRANSCRIPT))
    except (OSError, JournalError):
        return []
    return [event for event in events if event.at >= since and not isinstance(event, SessionStarted)]
