"""The parts of the board: each answers its page's questions and tells what is new. All run on the board's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ipyagent.agent import Agent
from ipyagent.errors import AgentError, ToolFailure
from ipyagent.escape import escape, line, plain
from ipyagent.extension.stored_sessions import Archive, Sub, SubagentList, turn_events
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import Block, Event, SkillLoaded, UserMessage
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT, read_events
from ipyagent.journal.protocols import WindowState
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.session import Session
from ipyagent.parts import Rows, Tab
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.browser import HTML_BYTES, PLAIN_CHARS, QUERY_CHARS, MemoryBrowser, list_lines, when
from ipyagent.parts.memory.browsing import browsing_of
from ipyagent.parts.skills import Skills
from ipyagent.parts.skills.discover import SkillListing, files_of
from ipyagent.parts.skills.loaded import Loaded
from ipyagent.parts.skills.parse import OPENING, Skill, SkillCatalogue, body_of, catalogue_of
from ipyagent.parts.subagents import SubagentManager
from ipyagent.reports.timeline import Timeline, TimelineBuilder, measure_of
from ipyagent.ui import markdown, theme
from ipyagent.ui import timeline as timeline_ui
from ipyagent.ui.meter import dollars, duration, thousands

Reply = dict[str, Any] | None
REQUEST_CHARS = 4_000
TABLE_ROWS, TABLE_CHARS = 200, 300
SUBS = 100
"""Sub-agents that are told of at once, the newest."""
TURNS, STATIC_MARKS, STATIC_ROWS, SESSIONS = 30, 20, 40, 15
"""Of the static form, at most."""
NAME_CHARS = 40
"""Characters of a name that stands on one line."""
SHORT_CHARS = 16
"""The same of any other cell."""
_CELL = "padding:2px 8px;text-align:left;vertical-align:top"


class BoardHost(NamedTuple):
    """What tabs have of the board: `wake` has it look at once, `on_main` runs a function on the main thread between
    cells, `tell` sends a message to the sessions' pages."""

    agent: Agent
    wake: Callable[[], None]
    on_main: Callable[[Callable[[], None]], None]
    tell: Callable[[dict[str, Any]], None]


class BoardTab:
    """A tab of the board: what its page asks and is told, and what it shows where none is live. `part`: the part of
    ours that it is of, without which there is none."""

    title: str
    part = ""

    def __init__(self, host: BoardHost) -> None:
        self._agent = host.agent
        self._host = host
        self._session: Session | None = None
        self.begin(None)

    def begin(self, session: Session | None) -> None:
        """The board follows this session from now on."""
        self._session = session

    def take(self, event: Event) -> None:
        """The next event of it."""

    def state(self) -> dict[str, Any]:
        """What a page begins with; all else it asks for."""
        return {}

    def fresh(self) -> Reply:
        """What every page is told now; None when nothing is new."""
        return None

    def answer(self, content: dict[str, Any]) -> Reply:
        """One question of a page; None for what it does not name exactly. Raises AgentError, OSError."""
        return None

    def close(self) -> None:
        """The board ends."""

    def rows(self) -> Rows:
        """A summary in a line and a table."""
        raise NotImplementedError

    def lines(self, table: Rows) -> list[str]:
        """Those rows as text."""
        _, columns, rows, count = table
        widths = [max(len(row[at]) for row in [list(columns), *rows]) for at in range(len(columns))]
        shown = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in [list(columns), *rows]]
        more = [f"  … {count - len(rows):,} more"] if count > len(rows) else []
        return [*("  " + "  ".join(row).rstrip() for row in shown if rows), *more]

    def html(self, table: Rows) -> str:
        """Those rows as HTML."""
        _, columns, rows, _ = table
        names = "".join(f'<th style="{_CELL}">{escape(each)}</th>' for each in columns)
        cells = ("".join(_cell(cell, first=not at) for at, cell in enumerate(row)) for row in rows)
        lines = "".join(f"<tr>{row}</tr>" for row in cells)
        return f'<table style="{theme.TABLE}"><tr>{names}</tr>{lines}</table>'


def _cell(text: str, *, first: bool) -> str:
    whole = len(text) <= (NAME_CHARS if first else SHORT_CHARS)
    return f'<td style="{_CELL};{theme.NAME if whole else "overflow-wrap:anywhere"}">{escape(text)}</td>'


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


class TableTab(BoardTab):
    """The tab of another package's part: a line and a table, told again when they change."""

    def __init__(self, host: BoardHost, tab: Tab) -> None:
        self.title, self._tab = tab.title, tab
        super().__init__(host)

    def rows(self) -> Rows:
        """What it shows now, each text in a line."""
        head, columns, rows, count = self._tab.table()
        cells = [[line(str(cell), TABLE_CHARS) for cell in row] for row in rows[:TABLE_ROWS]]
        return line(head, TABLE_CHARS), [line(each, 60) for each in columns], cells, count

    def begin(self, session: Session | None) -> None:
        self._told: Rows | None = None

    def fresh(self) -> Reply:
        now = self.rows()
        if now == self._told:
            return None
        self._told = now
        return {"table": list(now)}

    def answer(self, content: dict[str, Any]) -> Reply:
        return {"table": list(self.rows())} if content.get("kind") == "table" else None


class ContextTab(BoardTab):
    """The timeline, which grows with the session."""

    title = "Context"

    def begin(self, session: Session | None) -> None:
        self._session = session
        self._walk = TimelineBuilder()
        self._told = (-1, 0, 0)  # event, turns and decisions that the pages know

    def take(self, event: Event) -> None:
        self._walk.apply(event)

    @property
    def shown(self) -> Timeline:
        return self._walk.timeline

    def state(self) -> dict[str, Any]:
        return timeline_ui.panel_state(Timeline(bars=(), marks=(), around={}), None)

    def fresh(self) -> Reply:
        event, bars, marks = self._told
        if event == self._walk.last:
            return None
        shown = self.shown
        self._told = self._walk.last, len(shown.bars), len(shown.marks)
        if event < 0:
            return {"whole": self._all(shown)}
        return {"grown": {**timeline_ui.grown(shown, max(0, bars - 1), marks), **timeline_ui.marks_at(self._window)}}

    def answer(self, content: dict[str, Any]) -> Reply:
        if content.get("kind") == "all":
            return {"whole": self._all(self.shown)}
        return timeline_ui.answer(self.shown, content, self._events)

    def _all(self, shown: Timeline) -> dict[str, Any]:
        return {**timeline_ui.grown(shown), **timeline_ui.marks_at(self._window)}

    def _events(self) -> Sequence[Event]:
        return list(self._session.journal.read()) if self._session is not None else []

    @property
    def _window(self) -> WindowState | None:
        return self._agent.state_of(self._session) if self._session is not None else None

    def rows(self) -> Rows:
        bars, window = self.shown.bars, self._window
        of = f" of {thousands(window.window)}" if window else ""
        tokens = f", {bars[-1].tokens:,} tokens{of}" if bars else ""
        cells = [[str(bar.number), line(bar.text, 70), timeline_ui.bar_words(bar)] for bar in bars[-TURNS:]]
        return f"{_counted(len(bars), 'turn')}{tokens}", ("turn", "request", "after it"), cells, len(bars)

    def html(self, table: Rows) -> str:
        shown = timeline_ui.newest(self.shown, TURNS, STATIC_MARKS)
        return timeline_ui.static_timeline(shown, self._window)["text/html"]


class MemoryTab(BoardTab):
    """The memory browser."""

    title, part = "Memory", "memory"

    def __init__(self, host: BoardHost) -> None:
        super().__init__(host)
        dreaming = host.agent.part(MemoryPart).dreaming
        self._browsing = browsing_of(host.agent)
        self._browser = MemoryBrowser(self._browsing, dreaming)
        self._dreamt = False
        self._leave = dreaming.watch(self._dream)

    def _dream(self) -> None:
        self._dreamt = True
        self._host.wake()

    def close(self) -> None:
        self._leave()

    def state(self) -> dict[str, Any]:
        return self._browser.state()

    def rows(self) -> Rows:
        found = self._browsing.everything()
        cells = [
            [line(each.name, 60), each.kind or "-", each.scope, line(each.description, 100)]
            for each in found[:STATIC_ROWS]
        ]
        head = f"{len(found):,} memor{'y' if len(found) == 1 else 'ies'}"
        return head, ("memory", "type", "scope", "about"), cells, len(found)

    def lines(self, table: Rows) -> list[str]:
        return [f"  {row}" for row in list_lines(self._browsing, STATIC_ROWS)] if table[2] else []

    def fresh(self) -> Reply:
        if not self._dreamt:
            return None
        self._dreamt = False
        return {"dream": self._browser.state()["dream"]}

    def answer(self, content: dict[str, Any]) -> Reply:
        return self._browser.reply(content)


class SubagentsTab(BoardTab):
    """The session's sub-agents."""

    title, part = "Sub-agents", "subagents"

    def begin(self, session: Session | None) -> None:
        self._session = session
        self._roster = SubagentList()
        self._told: list[Any] | None = None

    def take(self, event: Event) -> None:
        self._roster.apply(event)

    def listed(self) -> list[Sub]:
        """All of them, the newest first."""
        return self._roster.listed(self._agent.part(SubagentManager).at_work())

    def rows(self) -> Rows:
        subs = self.listed()
        cells = [
            [f"{line(sub.name, 60)} ({line(sub.kind, 30)})", line(sub.task, 80),
             f"{sub.status}{': ' + line(sub.doing or sub.message, 100) if sub.doing or sub.message else ''}",
             duration(sub.seconds), "-" if sub.cost is None else dollars(sub.cost)]
            for sub in subs[:STATIC_ROWS]
        ]  # fmt: skip
        head = _counted(len(subs), "sub-agent") + " in this session"
        return head, ("sub-agent", "task", "status", "time", "cost"), cells, len(subs)

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


class SessionsTab(BoardTab):
    """The project's stored sessions."""

    title = "Sessions"

    def __init__(self, host: BoardHost) -> None:
        super().__init__(host)
        self._archive = Archive()

    def begin(self, session: Session | None) -> None:
        self._mine = session.journal.session if session is not None else ""
        self._changed = True

    def rows(self) -> Rows:
        folders, session = self._agent.sessions.stored(), self._agent.session
        mine = session.journal.session if session is not None else ""
        stored = [self._archive.look(folder) for folder in folders[:SESSIONS]]
        cells = [
            [("* " if each.session == mine else "") + each.session, when(each.changed),
             line(each.first or each.problem, 80), f"{each.turns:,}", "-" if each.cost is None else dollars(each.cost)]
            for each in stored
        ]  # fmt: skip
        columns = ("session", "when", "first request", "turns", "cost")
        return _counted(len(folders), "stored session"), columns, cells, len(folders)

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
        kept = self._archive.look(folder)
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
                self._host.tell({"failed": line(str(problem), 500)})
                return
            lines, agent.notices[:] = [*([said] if said else []), *agent.notices], []
            self._host.tell({"said": line("; ".join(lines), 500)})

        self._host.on_main(act)
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


class SkillsTab(BoardTab):
    """The skills: a list with filters, one to read and to load."""

    title, part = "Skills", "skills"

    def __init__(self, host: BoardHost) -> None:
        super().__init__(host)
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
        return _counted(len(skills), "skill"), ("skill", "from", "tokens", "", "for"), cells, len(skills)

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
        at, most = _number(content, "from"), min(_number(content, "count"), ROWS)
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


OURS: dict[str, type[BoardTab]] = {
    "context": ContextTab, "memory": MemoryTab, "skills": SkillsTab, "subagents": SubagentsTab, "sessions": SessionsTab,
}  # fmt: skip
"""Our tabs by name, in their order."""
