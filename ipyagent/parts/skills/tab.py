"""Skills on the board: what there is, where from, what each costs, what stands in the context; one to read, and to load
for the next request."""

from __future__ import annotations

from typing import Any

from ipyagent.errors import AgentError, ToolFailure
from ipyagent.escape import escape, line
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import Block, Event, SkillLoaded
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.session import Session
from ipyagent.parts.skills import Skills
from ipyagent.parts.skills.discover import SkillListing, files_of
from ipyagent.parts.skills.loaded import Loaded
from ipyagent.parts.skills.parse import OPENING, Skill, SkillCatalogue, body_of, catalogue_of
from ipyagent.reports.timeline import measure_of
from ipyagent.ui import markdown
from ipyagent.ui.board import (
    HTML_BYTES,
    PLAIN_CHARS,
    QUERY_CHARS,
    STATIC_ROWS,
    BoardHost,
    BoardTab,
    Rows,
    counted,
    number_in,
)

SOURCES = {"project": "this project", "user": "yours", "bundled": "with ipyagent"}
ROWS = 100
"""Of one answer, at most."""
PROBLEMS = 50


class SkillsTab(BoardTab):
    """The skills: a list with filters, one to read and to load."""

    title = "Skills"

    def __init__(self, host: BoardHost, skills: Skills) -> None:
        super().__init__(host)
        self._skills = skills
        self._sizes: dict[tuple[str, int], int] = {}
        self._catalogue: tuple[SkillListing, int, SkillCatalogue] | None = None

    def begin(self, session: Session | None) -> None:
        self._changed = True

    def take(self, event: Event) -> None:
        self._changed = self._changed or isinstance(event, SkillLoaded)

    def rows(self) -> Rows:
        skills, measure = self.listed(), self.measure
        cells = [
            [line(each.name, 64), each.source, f"{self.size(each, measure):,}", self.state_of(each),
             line(each.description, 100)]
            for each in skills[:STATIC_ROWS]
        ]  # fmt: skip
        return counted(len(skills), "skill"), ("skill", "from", "tokens", "", "for"), cells, len(skills)

    def fresh(self) -> dict[str, Any] | None:
        changed, self._changed = self._changed, False
        return {"changed": True} if changed else None

    def answer(self, content: dict[str, Any]) -> dict[str, Any] | None:
        match content.get("kind"):
            case "rows":
                return self._rows(content)
            case "remarks":
                problems, remarks = self.problems(), [line(each, 300) for each in self.remarks()]
                return {"remarks": remarks, "problems": [problems[:PROBLEMS], len(problems)]}
            case "open":
                return self._opened(self._find(content))
            case "load":
                return self._load(self._find(content))
            case _:
                return None

    # ------------------------------------------------------------------ what there is

    def listed(self) -> list[Skill]:
        """All of them: the project's, the user's, ours; by name in each."""
        order = list(SOURCES)
        return sorted(self._skills.look_anyway().skills.values(), key=lambda each: order.index(each.source))

    def state_of(self, skill: Skill) -> str:
        """"loaded" (it stands in the context), "asked for" (it goes with the next request), or ""."""
        session = self._agent.session
        if skill.name in (session.folded(Loaded).standing if session is not None else {}):
            return "loaded"
        return "asked for" if skill.name in self._skills.asked else ""

    @property
    def measure(self) -> float:
        """What an estimated token comes to in %context."""
        session = self._agent.session
        return measure_of(session.view) if session is not None else 1.0

    def size(self, skill: Skill, measure: float) -> int:
        """Tokens that it takes when it is loaded; 0 when it cannot be read."""
        try:
            key = (str(skill.file), skill.file.stat().st_mtime_ns)
            if key not in self._sizes:
                self._sizes[key] = self._skills.made(skill, "user").tokens
            return round(self._sizes[key] * measure)
        except (OSError, ToolFailure):
            return 0

    def remarks(self) -> list[str]:
        """What the user should know of all of them, a line each."""
        agent = self._agent
        found = self._skills.look_anyway()
        lines = [] if self._skills.on else ["skills are off in this kernel; %skills on turns them on"]
        if not self._skills.trusted and any("skills" in name for name in agent.project.carried()):
            lines.append("the project's own skills are not used: it is not trusted (%agent trust)")
        window = agent.info.window
        known = self._catalogue
        if known is None or known[0] is not found or known[1] != window:  # hundreds are fitted into a window slowly
            known = self._catalogue = found, window, catalogue_of(found.skills, window)
        catalogue = known[2]
        if catalogue.cut and self._skills.on:
            lines.append(catalogue.cut)
        if catalogue.text and self._skills.on:
            size = round(estimate_blocks([self._standing() or text_block(catalogue.text)]) * self.measure)
            lines.append(f"their names and descriptions take {size:,} tokens of every request")
        return lines

    def _standing(self) -> Block | None:
        """The list as the session's requests have it."""
        session = self._agent.session
        system = session.view.system if session is not None else []
        return next((block for block in system if str(block.get("text", "")).startswith(OPENING)), None)

    def problems(self) -> list[str]:
        """What is wrong with skill files."""
        return [line(str(each), 300) for each in self._skills.look_anyway().problems]

    def _rows(self, content: dict[str, Any]) -> dict[str, Any]:
        words = str(content.get("words") or "")[:QUERY_CHARS].casefold().split()
        source, only = content.get("source"), content.get("only")
        found = [
            skill
            for skill in self.listed()
            if (source not in SOURCES or skill.source == source)
            and (only != "loaded" or self.state_of(skill))
            and (only != "problems" or skill.problems)
            and all(word in f"{skill.name}\n{skill.description}".casefold() for word in words)
        ]
        at, most = number_in(content, "from"), min(number_in(content, "count"), ROWS)
        measure = self.measure
        rows = [self._row(skill, measure) for skill in found[at : at + most]]
        return {"rows": rows, "from": at, "total": len(found)}

    def _row(self, skill: Skill, measure: float) -> list[Any]:
        return [
            line(skill.name, 64), line(skill.description, 240), SOURCES[skill.source], self.size(skill, measure),
            self.state_of(skill), line("; ".join(skill.problems[:3]), 200),
        ]  # fmt: skip

    # ------------------------------------------------------------------ one

    def _find(self, content: dict[str, Any]) -> Skill:
        skill = self._skills.look_anyway().skills.get(str(content.get("name")))
        if skill is None:
            raise AgentError("this skill no longer exists: open the list again")
        return skill

    def _opened(self, skill: Skill) -> dict[str, Any]:
        body = body_of(skill)
        rendered = markdown.render(body)
        if len(rendered.encode("utf-8", "replace")) > HTML_BYTES:
            rendered = f"<pre>{escape(body[:PLAIN_CHARS])}</pre>"
        files, more = files_of(skill.folder)
        facts = [SOURCES[skill.source], f"{self.size(skill, self.measure):,} tokens when it is loaded", str(skill.file)]
        about = (("license", skill.license), ("compatibility", skill.compatibility),
                 ("tools named by its author, which grants nothing", " ".join(skill.allowed_tools)))  # fmt: skip
        facts += [f"{what}: {text}" for what, text in about if text]
        if files:
            facts.append(f"files: {', '.join(files)}{' and ' + more if more else ''}")
        return {
            "opened": {
                "name": skill.name, "description": line(skill.description, 1_100),
                "facts": [line(fact, 400) for fact in facts], "problems": [line(each, 300) for each in skill.problems],
                "html": rendered, "state": self.state_of(skill), "on": self._skills.on,
            }
        }  # fmt: skip

    def _load(self, skill: Skill) -> dict[str, Any]:
        """As `/name` at the start of the next request does; also while a turn runs, for the one after it."""
        skills = self._skills
        if not skills.on:
            raise AgentError("skills are off in this kernel; %skills on turns them on")
        if skill.name not in skills.asked:
            skills.asked.append(skill.name)
        self._changed = True
        size = self.size(skill, self.measure)
        return {"said": f"{line(skill.name, 64)} goes with your next request: about {size:,} tokens"}
