"""The transcript of a question that was answered in a batch: a session like any other, written at once."""

from __future__ import annotations

from pathlib import Path

from ipyagent.journal.events import (
    Ending,
    ModelChosen,
    PromptRendered,
    SessionStarted,
    TurnEnded,
    UsageReported,
    UserSaid,
)
from ipyagent.journal.journal import Journal, new_session_id
from ipyagent.journal.protocols import Reply
from ipyagent.version import __version__


def write_transcript(
    into: Path,
    key: str,
    model: str,
    system: str,
    prompt: str,
    reply: Reply,
    cost: float | None,
    status: Ending,
    error: str,
) -> Path:
    """The session's folder. `cost` in US dollars. Raises JournalError where nothing can be written."""
    # many are written in one second: the key tells them apart
    started = SessionStarted(session=f"{new_session_id()}-{key}", version=__version__)
    journal = Journal.create(into, started)
    try:
        journal.append(ModelChosen(model=model))
        journal.append(PromptRendered(system=({"type": "text", "text": system},), tools=()))
        journal.append(UserSaid(text=prompt, blocks=({"type": "text", "text": prompt},)))
        journal.append(reply.said)
        if reply.usage is not None:
            journal.append(UsageReported(usage=reply.usage, cost=cost))
        journal.append(TurnEnded(status=status, message=error))
    finally:
        journal.close()
    return journal.folder
