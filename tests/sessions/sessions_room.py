"""What the tests of sessions share: a project with a trusted state, kernels that come and go, turns by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ipyagent.assembly.sessions import Sessions
from ipyagent.config import IPyAgent
from ipyagent.journal.events import AssistantMessage, SystemPromptFrozen, TurnEnded, UserMessage
from ipyagent.loop.session import Session
from ipyagent.project import Project


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


class Kernel:
    """One kernel process's view of the sessions; `notices` are the lines for the user."""

    def __init__(self, room: Path, notebook: str = "a.ipynb", **namespace: Any) -> None:
        self.notices: list[str] = []
        project = Project(room / "project", room / "user")
        project.root.mkdir(exist_ok=True)
        settings = IPyAgent(environ={})
        self.sessions = Sessions(project, settings, namespace=namespace, notice=self.notices.append)
        self.sessions.notebook = project.root / notebook if notebook else None
        self.project = project

    def turn(self, said: str, answer: str = "", cell: str = "", **ended: Any) -> Session:
        """A finished turn in the current session."""
        session = self.sessions.ensure()
        if not session.view.system:
            session.record(SystemPromptFrozen(system=(text("be good"),), tools=({"name": "python"},), tokens=9))
        session.record(UserMessage(text=said, blocks=(text(said),), cell=cell))
        session.record(AssistantMessage(blocks=(text(answer or f"answer to {said}"),), stop_reason="end_turn"))
        session.end(TurnEnded(**{"status": "finished", **ended}))
        return session

    def stop(self) -> None:
        """The kernel goes away; its session is let go."""
        self.sessions.leave()

    def asked(self) -> list[str]:
        """What the user has said in the current session."""
        return [turn.text for turn in self.sessions.ensure().history.turns]
