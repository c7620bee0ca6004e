"""What a batch gave back for one question: its outcome, and a transcript like that of any other session."""

from __future__ import annotations

import functools
from importlib.resources import files
from pathlib import Path

from ipyagent.fleet.outcomes import Outcome
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
from ipyagent.journal.protocols import ModelInfo, Reply
from ipyagent.loop.redacting import entering
from ipyagent.model.batches import Answer, cost
from ipyagent.model.reading import CUTTING
from ipyagent.project import Project
from ipyagent.redaction import Redactor
from ipyagent.version import __version__

EMPTY = "the answer was empty: say in the prompt what an answer looks like"


@functools.cache
def system() -> str:
    """What stands before every question of a batch."""
    return (files("ipyagent.fleet") / "batch.md").read_text("utf-8")


def outcome_of(
    answer: Answer, prompt: str, model: ModelInfo, project: Project, into: Path, redact: Redactor
) -> Outcome:
    """The outcome, with a transcript in `into` where the model has replied; `tries` and `seconds` are for the caller
    to say. Raises JournalError where nothing can be written."""
    reply = answer.reply
    if reply is None:
        return Outcome(answer.key, "stopped" if answer.outcome == "canceled" else "failed", error=answer.problem)
    said = entering(reply.said, redact)
    text = "\n".join(block["text"] for block in said.blocks if block["type"] == "text")
    status, error = _ending(reply, text)
    dollars = cost(model, reply)
    # many are written in one second: the key tells them apart
    started = SessionStarted(session=f"{new_session_id()}-{answer.key}", version=__version__)
    journal = Journal.create(into, started)
    try:
        journal.append(ModelChosen(model=model.model))
        journal.append(PromptRendered(system=({"type": "text", "text": system()},), tools=()))
        journal.append(UserSaid(text=prompt, blocks=({"type": "text", "text": prompt},)))
        journal.append(said)
        if reply.usage is not None:
            journal.append(UsageReported(usage=reply.usage, cost=dollars))
        journal.append(TurnEnded(status=status, message=error))
    finally:
        journal.close()
    return Outcome(
        answer.key,
        status,
        text=text,
        cost=dollars,
        tokens=reply.usage.total if reply.usage is not None else 0,
        session=project.relative(journal.folder),
        error=error,
    )


def _ending(reply: Reply, text: str) -> tuple[Ending, str]:
    """How a reply ended as an outcome, and why where it is not finished."""
    stop = reply.said.stop_reason
    if stop == "refusal":
        return "refused", reply.details or "the model refused: change the prompt, or choose another model"
    if stop in CUTTING:
        return "limit", "the answer was cut off at its largest length: raise IPyAgent.max_output"
    if not text.strip():
        return "failed", EMPTY
    return "finished", ""
