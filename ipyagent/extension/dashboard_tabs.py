"""The parts of the board: each answers its page's questions and tells what is new. All run on the board's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ipyagent.agent import Agent
from ipyagent.errors import AgentError, ToolFailure
from ipyagent.escape import escape, line, plain
from ipyagent.extension.stored_sessions import Archive, Sub, SubagentList, turn_events
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import Block, Event, SkillLoaded, UserMessage
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT, read_events
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.session import Session
from ipyagent.parts import Rows, Tab
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.browser import HTML_BYTES, PLAIN_CHARS, QUERY_CHARS, MemoryBrowser, when
from ipyagent.parts.memory.browsing import browsing_of
from ipyagent.parts.skills import Skills
from ipyagent.parts.skills.discover import SkillListing, files_of
from ipyagent.parts.skills.loaded import Loaded
from ipyagent.parts.skills.parse import OPENING, Skill, SkillCatalogue, body_of, catalogue_of
from ipyagent.parts.subagents import SubagentManager
from ipyagent.reports.timeline import Timeline, TimelineBuilder, measure_of
from ipyagent.ui import markdown
from ipyagent.ui import timeline as timeline_ui
from ipyagent.ui.meter import dollars

Reply = dict[str, Any] | None
REQUEST_CHARS = 4_000
TABLE_ROWS, TABLE_CHARS = 200, 300
SUBS = 100
"""Sub-agents that are told of at once, the newest."""


class BoardTab(Protocol):
    """A tab of the board."""

    def begin(self, session: Session | None) -> None:
        """The board follows this session from now on."""

    def take(self, event: Event) -> None:
        """The next event of it."""

    def fresh(self) -> Reply:
        """What every page is told now; None when nothing is new."""

    def answer(self, content: dict[str, Any]) -> Reply:
        """One question of a page; None for what it does not name exactly. Raises AgentError, OSError."""


class TableTab:
    """The tab of another package's part: a line and a table, told again when they change."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        self._told: Rows | None = None

    def rows(self) -> Rows:
        """What it shows now, each text in a line."""
        head, columns, rows, count = self._tab.table()
        cells = [[line(str(cell), TABLE_CHARS) for cell in row] for row in rows[:TABLE_ROWS]]
        return line(head, TABLE_CHARS), [line(each, 60) for each in columns], cells, count

    def begin(self, session: Session | None) -> None:
        self._told = None

    def take(self, event: Event) -> None:
        pass

    def fresh(self) -> Reply:
        now = self.rows()
        if now == self._told:
            return None
        self._told = now
        return {"table": list(now)}

    def answer(self, content: dict[str, Any]) -> Reply:
        return {"table": list(self.rows())} if content.get("kind") == "table" else None


class ContextTab:
    """The timeline, which grows with the session."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.begin(None)

    def begin(self, session: Session | None) -> None:
        self._session = session
        self._walk = TimelineBuilder()
        self._told = (-1, 0, 0)  # event, turns and decisions that the pages know

    def take(self, event: Event) -> None:
        self._walk.apply(event)

    @property
    def shown(self) -> Timeline:
        return self._walk.timeline

    def fresh(self) -> Reply:
        event, bars, marks = self._told
        if event == self._walk.last:
            return None
        shown = self.shown
        self._told = self._walk.last, len(shown.bars), len(shown.marks)
        if event < 0:
            return {"whole": self._all(shown)}
        return {"grown": {**timeline_ui.grown(shown, max(0, bars - 1), marks), **self._window()}}

    def answer(self, content: dict[str, Any]) -> Reply:
        if content.get("kind") == "all":
            return {"whole": self._all(self.shown)}
        return timeline_ui.answer(self.shown, content, self._events)

    def _all(self, shown: Timeline) -> dict[str, Any]:
        return {**timeline_ui.grown(shown), **self._window()}

    def _events(self) -> Sequence[Event]:
        return list(self._session.journal.read()) if self._session is not None else []

    def _window(self) -> dict[str, int]:
        return timeline_ui.marks_at(self._agent.state_of(self._session) if self._session is not None else None)


class MemoryTab:
    """The memory browser."""

    def __init__(self, agent: Agent, wake: Callable[[], None]) -> None:
        self._agent = agent
        self.browsing = browsing_of(agent)
        self.browser = MemoryBrowser(self.browsing, agent.part(MemoryPart).dreaming)
        self._dreamt = False
        self.leave = agent.part(MemoryPart).dreaming.watch(lambda: self._dream(wake))

    def _dream(self, wake: Callable[[], None]) -> None:
        self._dreamt = True
        wake()

    def begin(self, session: Session | None) -> None:
        pass

    def take(self, event: Event) -> None:
        pass

    def fresh(self) -> Reply:
        if not self._dreamt:
            return None
        self._dreamt = False
        return {"dream": self.browser.state()["dream"]}

    def answer(self, content: dict[str, Any]) -> Reply:
        return self.browser.reply(content)


class SubagentsTab:
    """The session's sub-agents."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.begin(None)

    def begin(self, session: Session | None) -> None:
        self._session = session
        self._roster = SubagentList()
        self._told: list[Any] | None = None

    def take(self, event: Event) -> None:
        self._roster.apply(event)

    def listed(self) -> list[Sub]:
        """All of them, the newest first."""
        return self._roster.listed(self._agent.part(SubagentManager).at_work())

    def fresh(self) -> Reply:
        subs = self.listed()
        rows = [sub_row(sub) for sub in subs[:SUBS]]
        signs = [{**row, "seconds": 0} if row["status"] == "running" else row for row in rows]
        if signs == self._told:
            return None
        self._told = signs
        return {"subs": rows, "total": len(subs), "from": 0}

    def answer(self, content: dict[str, Any]) -> Reply:
        child = _text(content, "child")
        match content.get("kind"):
            case "subs":
                subs, begin = self.listed(), _number(content, "from")
                return {"subs": [sub_row(sub) for sub in subs[begin : begin + SUBS]], "total": len(subs), "from": begin}
            case "stop" if child in {each.id for each in self._agent.part(SubagentManager).at_work()}:
                self._agent.part(SubagentManager).stop_one(child)
                return {"said": f"stopping {line(child, 80)}"}
            case "look" if self._session is not None and child in {sub.child for sub in self.listed()}:
                path = self._session.journal.folder / CHILDREN / child / TRANSCRIPT
                return {"look": {"of": child, **looked(path, _number(content, "turn"))}}
            case _:
                return None


class SessionsTab:
    """The project's stored sessions. `on_main` runs a function on the main thread between cells."""

    def __init__(
        self, agent: Agent, on_main: Callable[[Callable[[], None]], None], tell: Callable[[dict[str, Any]], None]
    ) -> None:
        self._agent = agent
        self._on_main = on_main
        self._tell = tell
        self._mine, self._changed = "", False
        self.archive = Archive()

    def begin(self, session: Session | None) -> None:
        self._mine = session.journal.session if session is not None else ""
        self._changed = True

    def take(self, event: Event) -> None:
        pass

    def fresh(self) -> Reply:
        changed, self._changed = self._changed, False
        return {"current": self._mine} if changed else None

    def answer(self, content: dict[str, Any]) -> Reply:
        folders = self._agent.sessions.stored()
        match content.get("kind"):
            case "rows":
                begin, count = _number(content, "from"), min(_number(content, "count"), SUBS)
                rows = [self._row(folder) for folder in folders[begin : begin + count]]
                return {"rows": rows, "from": begin, "total": len(folders)}
            case "look" | "resume" | "fork" as kind:
                name = _text(content, "session")
                folder = next((each for each in folders if each.name == name), None)
                if folder is None:
                    return {"failed": "this session no longer exists"}
                if kind != "look":
                    return self._take_up(kind, name)
                project = self._agent.project
                if not (project.trusted or self._agent.settings.trust_all or project.owns(folder)):
                    raise AgentError("this project is not trusted: %agent trust")
                return {"look": {"of": name, **looked(folder / TRANSCRIPT, _number(content, "turn"))}}
            case _:
                return None

    def _row(self, folder: Path) -> list[Any]:
        kept = self.archive.look(folder)
        cost = "-" if kept.cost is None else dollars(kept.cost)
        about = f"copy of {line(kept.forked_from, 60)}" if kept.forked_from else ""
        return [
            kept.session, when(kept.changed), line(kept.first, 200), kept.turns, cost, line(kept.notebook, 120),
            round(kept.bytes / 1000), about, line(kept.problem, 200), kept.session == self._mine,
        ]  # fmt: skip

    def _take_up(self, kind: str, name: str) -> Reply:
        agent = self._agent
        if agent.busy:
            return {"failed": "a turn is running: a session can be resumed when it has ended"}

        def act() -> None:
            try:
                agent.check_free()
                if kind == "resume":
                    agent.resume(name)
                    said = "" if agent.notices else f"resumed session {name}"
                else:
                    copy = agent.fork(name)
                    said = f"continuing in a copy, {copy.journal.session}; the original is unchanged"
            except AgentError as problem:
                self._tell({"failed": line(str(problem), 500)})
                return
            lines, agent.notices[:] = [*([said] if said else []), *agent.notices], []
            self._tell({"said": line("; ".join(lines), 500)})

        self._on_main(act)
        return None


def sub_row(sub: Sub) -> dict[str, Any]:
    """A sub-agent as its page gets it."""
    return {
        "id": line(sub.child, 80), "name": line(sub.name, 80), "kind": line(sub.kind, 40), "task": line(sub.task, 200),
        "status": sub.status, "doing": line(sub.doing, 160), "message": line(sub.message, 300),
        "seconds": round(sub.seconds, 1), "cost": "" if sub.cost is None else dollars(sub.cost),
        "requests": sub.requests, "background": sub.background, "handed": line(", ".join(sub.handed), 200),
        "model": line(sub.model, 60), "began": when(sub.began),
    }  # fmt: skip


def looked(path: Path, turn: int) -> dict[str, Any]:
    """One turn of a transcript to read, `turn` from 1 (0: the last), and how many there are."""
    events, count = turn_events(read_events(path), turn or 1_000_000_000)
    number = min(turn or count, count)
    request = next((event.text for event in events if isinstance(event, UserMessage)), "")
    asked = f"<blockquote>{escape(plain(request)[:REQUEST_CHARS])}</blockquote>" if request else ""
    return {"turn": number, "turns": count, "html": asked + turn_html(events)}


def turn_html(events: Sequence[Event]) -> str:
    """A turn as it stands in a saved notebook; as cut plain text when that is too much for a message."""
    from ipyagent.ui.static import static_bundle

    bundle = static_bundle(events, None)
    if len(bundle["text/html"].encode("utf-8", "replace")) <= HTML_BYTES:
        return bundle["text/html"]
    text = plain(bundle["text/plain"])
    more = f"\n… {len(text) - PLAIN_CHARS:,} more characters" if len(text) > PLAIN_CHARS else ""
    return f"<pre>{escape(text[:PLAIN_CHARS])}{more}</pre>"


def _text(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    return value[:QUERY_CHARS] if isinstance(value, str) else ""


def _number(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    return max(0, min(value, 10**9)) if isinstance(value, int) else 0


# ---- Skills on the board: what there is, where from, what each costs, what stands in the context; one to read, and
# to load for the next request.

SOURCES = {"project": "this project", "user": "yours", "bundled": "with ipyagent"}
ROWS = 100
"""Of one answer, at most."""
PROBLEMS = 50


class SkillsTab:
    """The skills: a list with filters, one to read and to load."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._sizes: dict[tuple[str, int], int] = {}
        self._changed = False
        self._catalogue: tuple[SkillListing, int, SkillCatalogue] | None = None

    def begin(self, session: Session | None) -> None:
        self._changed = True

    def take(self, event: Event) -> None:
        self._changed = self._changed or isinstance(event, SkillLoaded)

    def fresh(self) -> dict[str, Any] | None:
        changed, self._changed = self._changed, False
        return {"changed": True} if changed else None

    def answer(self, content: dict[str, Any]) -> dict[str, Any] | None:
        """One question of the page. Raises AgentError, OSError."""
        match content.get("kind"):
            case "rows":
                return self._rows(content)
            case "remarks":
                return self._remarks()
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
        return sorted(self._agent.part(Skills).look_anyway().skills.values(), key=lambda each: order.index(each.source))

    def state_of(self, skill: Skill) -> str:
        """"loaded" (it stands in the context), "asked for" (it goes with the next request), or ""."""
        session = self._agent.session
        if skill.name in (session.folded(Loaded).standing if session is not None else {}):
            return "loaded"
        return "asked for" if skill.name in self._agent.part(Skills).asked else ""

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
                self._sizes[key] = self._agent.part(Skills).made(skill, "user").tokens
            return round(self._sizes[key] * measure)
        except (OSError, ToolFailure):
            return 0

    def remarks(self) -> list[str]:
        """What the user should know of all of them, a line each."""
        agent = self._agent
        found = agent.part(Skills).look_anyway()
        lines = [] if agent.part(Skills).on else ["skills are off in this kernel; %skills on turns them on"]
        if not agent.part(Skills).trusted and any("skills" in name for name in agent.project.carried()):
            lines.append("the project's own skills are not used: it is not trusted (%agent trust)")
        window = agent.info.window
        known = self._catalogue
        if known is None or known[0] is not found or known[1] != window:  # hundreds are fitted into a window slowly
            known = self._catalogue = found, window, catalogue_of(found.skills, window)
        catalogue = known[2]
        if catalogue.cut and agent.part(Skills).on:
            lines.append(catalogue.cut)
        if catalogue.text and agent.part(Skills).on:
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
        return [line(str(each), 300) for each in self._agent.part(Skills).look_anyway().problems]

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
        begin, count = content.get("from"), content.get("count")
        at = begin if isinstance(begin, int) and begin > 0 else 0
        most = min(count, ROWS) if isinstance(count, int) and count > 0 else 0
        measure = self.measure
        rows = [self._row(skill, measure) for skill in found[at : at + most]]
        return {"rows": rows, "from": at, "total": len(found)}

    def _remarks(self) -> dict[str, Any]:
        problems, remarks = self.problems(), [line(each, 300) for each in self.remarks()]
        return {"remarks": remarks, "problems": [problems[:PROBLEMS], len(problems)]}

    def _row(self, skill: Skill, measure: float) -> list[Any]:
        return [
            line(skill.name, 64), line(skill.description, 240), SOURCES[skill.source], self.size(skill, measure),
            self.state_of(skill), line("; ".join(skill.problems[:3]), 200),
        ]  # fmt: skip

    # ------------------------------------------------------------------ one

    def _find(self, content: dict[str, Any]) -> Skill:
        skill = self._agent.part(Skills).look_anyway().skills.get(str(content.get("name")))
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
                "html": rendered, "state": self.state_of(skill), "on": self._agent.part(Skills).on,
            }
        }  # fmt: skip

    def _load(self, skill: Skill) -> dict[str, Any]:
        """As `/name` at the start of the next request does; also while a turn runs, for the one after it."""
        skills = self._agent.part(Skills)
        if not skills.on:
            raise AgentError("skills are off in this kernel; %skills on turns them on")
        if skill.name not in skills.asked:
            skills.asked.append(skill.name)
        self._changed = True
        size = self.size(skill, self.measure)
        return {"said": f"{line(skill.name, 64)} goes with your next request: {size:,} tokens"}
