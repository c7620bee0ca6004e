"""Skills on the disk, and a session that uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rooms import PartHost

from ipyagent.config import IPyAgent
from ipyagent.journal.events import Event
from ipyagent.parts.skills import SkillAccess, Skills
from ipyagent.parts.skills.loaded import Loaded
from ipyagent.parts.skills.parse import FILE
from ipyagent.project import Project


def make(folder: Path, description: str = "does things", body: str = "Body", name: str = "") -> Path:
    """A skill in `folder`; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {name or folder.name}\ndescription: {description}\n---\n{body}\n"
    (folder / FILE).write_text(text, encoding="utf-8")
    return folder


class Shelved:
    """The user's skills in `home/.ipyagent/skills`, a project, and the events of a session."""

    def __init__(self, place: Path, **settings: Any) -> None:
        self.project = Project(place / "work", place / "home" / ".ipyagent")
        self.project.root.mkdir(parents=True, exist_ok=True)
        self.folder = self.project.user / "skills"
        self.settings = IPyAgent(environ={}, **settings)
        self.skills = Skills(PartHost(self.project, self.settings))
        self.loaded = Loaded()
        self.events: list[Event] = []
        self.access = SkillAccess(self.skills, self.loaded, self.record)

    def record(self, event: Any) -> None:
        import msgspec

        event = msgspec.structs.replace(event, id=len(self.events) + 1)
        self.events.append(event)
        self.loaded.apply(event)
