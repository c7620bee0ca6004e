"""The skills of one kernel as its work uses them: found on the disk at every look, loaded into a session once.

A skill of a project that is not trusted is not there. Nothing that a skill says grants a right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import msgspec

from ipyagent.config import IPyAgent
from ipyagent.errors import ToolFailure
from ipyagent.journal.events import SkillLoaded
from ipyagent.journal.tokens import estimate_text
from ipyagent.project import Project
from ipyagent.skills.discover import SkillFolder, SkillIndex, SkillListing, places_of
from ipyagent.skills.loaded import Loaded, digest_of
from ipyagent.skills.parse import Skill, body_of
from ipyagent.skills.text import skill_text

NEAR = 5
"""Names that are told when there is none of a name."""
BY_USER = "Loaded by the user for the request that follows."


class Skills:
    """`folder`: where the notebook is, which paths are told from. `asked` are the names of those that go with
    the user's next request; `notice` takes a line for the user."""

    def __init__(
        self,
        project: Project,
        settings: IPyAgent,
        folder: Path | None = None,
        notice: Callable[[str], object] = lambda line: None,
    ) -> None:
        self._project = project
        self._settings = settings
        self._folder = folder
        self._notice = notice
        self._shelf: SkillIndex | None = None
        self._latest = SkillListing()
        self.asked: list[str] = []

    def __repr__(self) -> str:
        return f"<Skills of {self._project.root.name}>"

    @property
    def trusted(self) -> bool:
        """Whether skills of the project itself may be used."""
        return bool(self._settings.trust_all or self._project.trusted)

    @property
    def on(self) -> bool:
        """Whether the setting offers skills to the model."""
        return bool(self._settings.skills)

    @property
    def places(self) -> tuple[SkillFolder, ...]:
        """Where skills are looked for now."""
        return tuple(places_of(self._project, trusted=self.trusted))

    def look(self) -> SkillListing:
        """What is there now; nothing when the setting is off. The user is told of a project's that are new or have
        changed since the project was trusted."""
        self._latest = self.look_anyway() if self.on else SkillListing()
        if not self._settings.trust_all:
            theirs = [skill.file for skill in self._latest.skills.values() if skill.source == "project"]
            for line in self._project.arrivals(theirs) if theirs else ():
                self._notice(line)
        return self._latest

    @property
    def latest(self) -> SkillListing:
        """What the newest look has seen."""
        return self._latest

    def look_anyway(self) -> SkillListing:
        """What is there, whatever the setting: for what the user asks for."""
        places = self.places
        if self._shelf is None or self._shelf.places != places:
            self._shelf = SkillIndex(places)
        return self._shelf.look()

    def folders(self) -> tuple[Path, ...]:
        """Where skills are, which may be read without a question."""
        return tuple(place.folder for place in self.places if not place.outside) if self.on else ()

    def shown(self, folder: Path) -> str:
        """A folder as tools name it: relative to the notebook's when it lies there."""
        here = self._folder or self._project.here or self._project.root
        try:
            return folder.resolve().relative_to(here.resolve()).as_posix()
        except (ValueError, OSError):
            return folder.as_posix()

    def made(self, skill: Skill, by: Literal["model", "user"]) -> SkillLoaded:
        """The load of a skill as it is on the disk now, with the text for the model. Raises ToolFailure."""
        try:
            body = body_of(skill)
        except OSError as problem:
            raise ToolFailure(f"{skill.file} cannot be read ({problem.strerror})") from None
        folder = self.shown(skill.folder)
        text, cut = skill_text(skill, body, folder, told=BY_USER if by == "user" else "")
        return SkillLoaded(
            name=skill.name, folder=folder, digest=digest_of(body), by=by, text=text, tokens=estimate_text(text),
            cut=cut,
        )  # fmt: skip


class SkillAccess:
    """The skills for one session: `record` journals a load, `loaded` tells what stands in its context."""

    def __init__(self, skills: Skills, loaded: Loaded, record: Callable[[SkillLoaded], object]) -> None:
        self.skills = skills
        self.loaded = loaded
        self.record = record

    def __repr__(self) -> str:
        return f"<SkillAccess {self.loaded!r}>"

    def load(self, name: str) -> str:
        """What the model gets of a skill; journals that it did. Raises ToolFailure."""
        looked = self.skills.look()
        found, skill = looked.for_model, find(name, looked.skills)
        if skill is not None and skill.manual:
            raise ToolFailure(f"only the user loads the skill {skill.name}, with /{skill.name}")
        if skill is None:
            raise ToolFailure(unknown(name, found))
        load = self.skills.made(skill, "model")
        if self.loaded.has(skill.name, load.digest):
            return f"The skill {skill.name} is in the context already, as it is on the disk: follow it."
        self.record(msgspec.structs.replace(load, text=""))
        return load.text


def find(name: str, found: Mapping[str, Skill]) -> Skill | None:
    """The skill of a name, however it is written: "/clean-tables", "Clean Tables"; else that of the folder so named."""
    if name in found:
        return found[name]
    wanted = slug(name)
    named = found.get(wanted) or next((skill for each, skill in found.items() if slug(each) == wanted), None)
    return named or next((skill for skill in found.values() if slug(skill.folder.name) == wanted), None)


def slug(name: str) -> str:
    """The name that is meant by "Clean Tables" or "clean_tables"."""
    return "-".join(name.strip().strip("/").lower().replace("_", " ").split())


def unknown(name: str, found: Mapping[str, Skill]) -> str:
    """That there is no such skill, and which are near."""
    if not found:
        return f"there is no skill {name[:80]!r}: none is known here, %skills new makes one"
    near = nearest(name, found)
    known = near or sorted(found)[:NEAR]
    rest = len(found) - len(known)
    more = f" and {rest:,} more" if rest > 0 else ""
    return f"no skill {name[:80]!r}; {'near' if near else 'known'}: {', '.join(known)}{more}"


def nearest(name: str, found: Mapping[str, Skill]) -> list[str]:
    """Known names that are like this one, or that have a word of it, best first."""
    wanted = slug(name)
    close = get_close_matches(wanted, list(found), n=NEAR, cutoff=0.6)
    words = {word for word in wanted.split("-") if len(word) > 2}
    close += [each for each in found if each not in close and wanted and each.startswith(wanted)]
    close += [each for each in found if each not in close and words & set(each.split("-"))]
    return close[:NEAR]
