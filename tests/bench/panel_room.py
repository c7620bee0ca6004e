"""A project with very much in it: ten thousand memories, five hundred skills, a session of two thousand turns."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ipyagent.journal.events import (
    AssistantMessage,
    ResultsCleared,
    SessionStarted,
    SystemPromptFrozen,
    ToolReturned,
    TurnEnded,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.loop.session import Session
from ipyagent.version import __version__

MEMORIES, SKILLS, TURNS = 10_000, 500, 2_000
SESSION = "20260101-000000-big0"


def fill(root: Path, notebook: str = "big.ipynb") -> None:
    """Write it all below `root`; the session is the notebook's."""
    memories = root / ".ipyagent" / "memory"
    memories.mkdir(parents=True)
    for number in range(MEMORIES):
        kind = ("feedback", "project", "reference", "user")[number % 4]
        file = memories / f"note_{number:05}.md"
        about = f"what came out of run {number} on site {number % 7}"
        file.write_text(f"---\nname: Run {number}\ndescription: {about}\ntype: {kind}\n---\nText.\n")
        os.utime(file, (time.time() - 86_400 - number,) * 2)
    for number in range(SKILLS):
        folder = root / "skills" / f"skill-{number:03}"
        folder.mkdir(parents=True)
        steps = "\n".join(f"{step}. Do step {step} of {number} with care." for step in range(1, 40))
        about = f"Does the work of kind {number} from beginning to end; use it for tables of kind {number}"
        (folder / "SKILL.md").write_text(f"---\nname: skill-{number:03}\ndescription: {about}\n---\n# Steps\n{steps}\n")
    sessions = root / ".ipyagent" / "sessions"
    sessions.mkdir(parents=True)
    session = Session.create(sessions, SessionStarted(session=SESSION, version=__version__, notebook=notebook))
    session.record(SystemPromptFrozen(system=(_words("Be exact."),), tools=({"name": "get"},), tokens=20))
    for number in range(1, TURNS + 1):
        text = f"request {number}: the rows of site {number % 7}"
        session.record(UserMessage(text=text, blocks=(_words(text),)))
        use = {"type": "tool_use", "id": f"t{number}", "name": "get", "input": {"site": number % 7}}
        session.record(AssistantMessage(blocks=(use,), stop_reason="tool_use"))
        session.record(UsageReported(usage=Usage(input=100 * number, output=5), cost=0.01))
        session.record(ToolReturned(call=f"t{number}", name="get", blocks=(_words("a row of data\n" * 30),)))
        session.record(AssistantMessage(blocks=(_words(f"answer {number}"),), stop_reason="end_turn"))
        if number % 4 == 0:
            session.record(ResultsCleared(calls=(f"t{number}",), text="[cleared]", layer="clear_results", saved=100))
        session.record(TurnEnded(status="finished"))
    session.close()


def _words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
