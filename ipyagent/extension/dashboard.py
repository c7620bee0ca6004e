"""`%agent panel`: context, memory, skills, sub-agents and sessions in one place, live while a cell runs.

What stands in the notebook is the static form. One widget a kernel, never displayed, puts the live board in its
place in every page of this kernel, so a saved notebook reads without one. All work is done on a thread of the
board's own: questions come in at any moment, each perhaps twice, also while a cell blocks; what is new is told at
most four times a second; no message reaches a megabyte.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import queue
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.agent import Agent
from ipyagent.errors import AgentError, JournalError
from ipyagent.escape import escape, line
from ipyagent.journal.events import (
    ChildEnded,
    Event,
    ForkEnded,
    SessionStarted,
    TurnEnded,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.protocols import WindowState
from ipyagent.loop.session import Session
from ipyagent.parts import Part, Tab
from ipyagent.reports.timeline import Timeline, TimelineBuilder
from ipyagent.ui import theme
from ipyagent.ui import timeline as timeline_ui
from ipyagent.ui.board import BoardHost, BoardTab, Reply, Rows, counted, looked, number_in, text_in, when
from ipyagent.ui.meter import dollars, thousands
from ipyagent.ui.theme import script

TICK = 0.25
"""Seconds between two messages about what is new."""
IDLE = 1.0
"""Seconds after which the board looks anyway: at work of sub-agents, at another session."""
SLICE = 300
"""Events of a long session that are taken in before questions are looked at again."""
MOST_BYTES = 950_000
SEEN = 4_000
SETTLE = 1.0
"""Seconds after a turn's end at which the static form is written anew."""


TABS = ("context", "memory", "skills", "subagents", "sessions")
"""Ours, in their order; those of parts of other packages come behind them."""
TURNS, STATIC_MARKS, SESSIONS = 30, 20, 15
"""Of the static form, at most."""
MOST_ROWS = 100
"""Sessions of one answer, at most."""
TABLE_ROWS, TABLE_CHARS = 200, 300


def tab_names(agent: Agent) -> list[str]:
    """The tabs that there are."""
    given = [part.name for part in agent.parts if part.panel() is not None or type(part).live_tab is not Part.live_tab]
    ours = [name for name in TABS if name in (*given, "context", "sessions")]
    return [*ours, *(name for name in given if name not in ours)]


@cache
def _board_class() -> Any:
    import anywidget
    import traitlets

    class AgentBoard(anywidget.AnyWidget):
        _esm = script(
            "board", dom="dom", lists="virtual_list", reading="reader", skillsTab="skills_part",
            childrenTab="children_part", sessionsTab="sessions_part", timelinePart="timeline",
            memoryPart="memory_browser",
        )  # fmt: skip
        _css = theme.sheet("timeline") + theme.HERE.joinpath("memory_browser.css").read_text("utf-8") + (
            theme.HERE / "board.css"
        ).read_text("utf-8")
        state = traitlets.Dict().tag(sync=True)

        def __repr__(self) -> str:
            return "the board of ipyagent in this page"

    return AgentBoard


class Dashboard:
    """`route` as in `ui.buttons`: has clicks delivered while a cell blocks."""

    def __init__(self, agent: Agent, shell: Any, route: Any = None) -> None:
        self.agent = self._agent = agent
        self._route = route
        self._publish = shell.display_pub.publish  # of the shell itself: nested code swaps the shell's own
        self._mark = secrets.token_hex(8)
        self._shown: list[tuple[str, str]] = []
        self._widget: Any = None
        self._inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._seen: deque[str] = deque(maxlen=SEEN)
        self._heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._loading: Iterator[Event] | None = None
        self._session: Session | None = None
        self._last = 0
        self._dirty = True
        self._settle_at = self._told_at = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False
        try:
            self._main: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._main = None
        host = BoardHost(agent, self.wake, self._on_main, self._taken_up)
        given: dict[str, BoardTab] = {"context": ContextTab(host), "sessions": SessionsTab(host)}
        given |= {part.name: TableTab(host, table) for part in agent.parts if (table := part.panel()) is not None}
        given |= {part.name: tab for part in agent.parts if (tab := part.live_tab(host)) is not None}
        self.tabs = {name: given[name] for name in tab_names(agent) if name in given}

    def __repr__(self) -> str:
        return f"<Dashboard, shown {len(self._shown)} times>"

    # ------------------------------------------------------------------ main thread

    def open(self, tab: str = "context") -> None:
        """Appear below the running cell, on a tab."""
        self._open()
        name = f"{self._mark}.{tab}.{len(self._shown)}"
        self._shown.append((name, tab))
        self._publish(waiting_board(name), transient={"display_id": name})
        self._settle_at = time.monotonic() + SETTLE
        self.wake()

    @property
    def mark(self) -> str:
        """What names this kernel's board in its pages: the live board comes into every element that carries it."""
        return self._mark

    def serve(self) -> None:
        """Be there for pages that show it beside their notebook; on the main thread."""
        self._open()
        self.wake()

    def _open(self) -> None:
        if self._widget is None:
            self._widget = _board_class()(state=self.state())
            self._widget.on_msg(lambda _widget, content, _buffers: self.hear(content))
            if self._route is not None and self._widget.comm is not None:
                self._route(self._widget.comm, self.hear)
        if self._thread is None or not self._thread.is_alive():
            context = contextvars.copy_context()  # output from this thread belongs to the cell that opened the board
            self._thread = threading.Thread(target=context.run, args=(self._serve,), name="ipyagent-board", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End its thread and its widget; what stands in the notebook stays."""
        self._closed = True
        for tab in self.tabs.values():
            tab.close()
        if self._session is not None and self._hear_event in self._session.heard:
            self._session.heard.remove(self._hear_event)
        self.wake()
        if self._widget is not None:
            self._widget.close()

    def read_now(self) -> None:
        """Take the whole session in, for a form that is not live."""
        self._follow()
        while self._loading is not None:
            self._follow()

    def state(self) -> dict[str, Any]:
        """What a page begins with; all else it asks for."""
        begin = {name: state for name, tab in self.tabs.items() if (state := tab.state())}
        return {"mark": self._mark, "tabs": [[name, tab.title] for name, tab in self.tabs.items()], **begin}

    def _on_main(self, act: Callable[[], None]) -> None:
        """Sessions change between cells, on the main thread."""
        if self._main is not None and not self._main.is_closed():
            self._main.call_soon_threadsafe(act)
        else:
            act()

    def _taken_up(self, reply: dict[str, Any]) -> None:
        self._send({"part": "sessions", **reply})
        self.wake()  # the session that is followed changes at once, not when the board next looks

    # ------------------------------------------------------------------ any thread

    def hear(self, content: dict[str, Any]) -> None:
        """One message of a page, which may come twice."""
        if content.get("method") == "custom" and isinstance(content.get("content"), dict):
            content = content["content"]
        self._inbox.put(content)

    def wake(self) -> None:
        """Something is new."""
        self._inbox.put(None)

    def _hear_event(self, event: Event) -> None:
        self._heard.put(event)
        self.wake()

    # ------------------------------------------------------------------ the board's thread

    def _serve(self) -> None:
        while not self._closed:
            try:
                self._round()
            except Exception as problem:  # noqa: BLE001 - a session whose folder is gone, a bug: told, and the board goes on
                self._loading = None  # what could not be read is not tried again
                self._agent.report(problem)

    def _round(self) -> None:
        """Wait for a question or for what is new, and tell it."""
        busy = self._loading is not None
        wait = 0.0 if busy else max(0.0, self._told_at + TICK - time.monotonic()) if self._dirty else IDLE
        try:
            content = self._inbox.get(timeout=wait) if wait else self._inbox.get_nowait()
        except queue.Empty:
            self._dirty = True
        else:
            if content is None:
                self._dirty = True
            else:
                self.answer(content)
        self._follow()
        if self._dirty and time.monotonic() - self._told_at >= TICK and not self._closed:
            self._dirty, self._told_at = False, time.monotonic()
            self._tell()
        if self._settle_at and time.monotonic() >= self._settle_at and self._loading is None and not self._closed:
            self._settle_at = 0.0
            self._settle()

    def _follow(self) -> None:
        """Take in what the session has journalled; begin anew when there is another."""
        session = self._agent.session
        if session is not self._session:
            if self._session is not None and self._hear_event in self._session.heard:
                self._session.heard.remove(self._hear_event)
            self._session, self._last, self._dirty = session, 0, True
            for part in self.tabs.values():
                part.begin(session)
            self._loading = None
            if session is not None:
                session.heard.append(self._hear_event)  # before it is read: an event counts once, by its number
                self._loading = iter(session.journal.read())
        if self._loading is not None:
            for _ in range(SLICE):
                event = next(self._loading, None)
                if event is None:
                    self._loading, self._dirty = None, True
                    break
                self._take(event)
            self._dirty = True
            return
        while True:
            try:
                self._take(self._heard.get_nowait())
            except queue.Empty:
                return

    def _take(self, event: Event) -> None:
        if event.id <= self._last:
            return
        self._last = event.id
        for part in self.tabs.values():
            part.take(event)
        if isinstance(event, TurnEnded) and self._loading is None:
            self._settle_at = time.monotonic() + SETTLE

    def _tell(self) -> None:
        for name, part in self.tabs.items():
            if (fresh := part.fresh()) is not None:
                self._send({"part": name, **fresh})

    def answer(self, content: dict[str, Any]) -> None:
        """One question, once. What it does not name exactly is ignored; what fails is said there."""
        name, seq = content.get("part"), content.get("seq")
        part = next((each for known, each in self.tabs.items() if known == name), None)
        if part is None or not isinstance(seq, str) or seq in self._seen:
            return
        self._seen.append(seq)
        try:
            reply = part.answer(content)
        except (AgentError, OSError, sqlite3.Error) as problem:
            reply = {"failed": line(str(problem), 500)}
        if reply is not None:
            self._send({"part": name, **reply, "seq": seq})
        self._dirty = True

    def _send(self, message: dict[str, Any]) -> None:
        size = len(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
        if size > MOST_BYTES:
            failed = f"too much to show: {size:,} bytes"
            message = {"part": message["part"], "seq": message.get("seq"), "failed": failed}
        if self._widget is not None and not self._closed:
            self._widget.send(message)

    def _settle(self) -> None:
        """The static form, as it is now, in the place of the older one; pages put the live board back into it."""
        for name, _ in self._shown[-1:]:
            self._publish(static_board(self, name), transient={"display_id": name}, update=True)


# ------------------------------------------------------------------ as it is saved, and in a terminal


def board_lines(board: Dashboard, only: str = "") -> list[str]:
    """A summary of each tab as text; `only` one."""
    lines: list[str] = []
    for name, tab in board.tabs.items():
        if not only or name == only:
            table = tab.rows()
            lines += [*[""][: len(lines)], f"{tab.title}: {table[0]}", *tab.lines(table)]
    return lines


def static_board(board: Dashboard, mark: str = "", only: str = "") -> dict[str, str]:
    """`text/html`, `text/markdown` and `text/plain`; `mark` is where the live board comes in."""
    from ipyagent.ui.static import _words

    opened = mark.split(".")[1] if mark else only or "context"
    html, parts = "", []
    for name, tab in board.tabs.items():
        if only and name != only:
            continue
        head, columns, rows, count = table = tab.rows()
        more = f"{count - len(rows):,} more" if count > len(rows) else ""
        html += (
            f"<details{' open' if name == opened else ''}><summary style=\"cursor:pointer\"><strong>{escape(tab.title)}"
            f"</strong> · {escape(head)}</summary>{tab.html(table) if rows else ''}"
            f"{f'<p><em>{more}</em></p>' if more else ''}</details>"
        )
        parts.append(f"**{_words(tab.title)}**: {_words(head)}")
        if rows:
            cells = ["| " + " | ".join(_words(cell) for cell in row) + " |" for row in rows]
            parts.append("\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *cells]))
        parts += [f"*{more}*"] if more else []
    door = f' data-ipyagent-board="{escape(mark)}"' if mark else ""
    return {
        "text/html": f'<div class="{theme.STATIC_CLASSES}"{door}>{html}</div>',
        "text/markdown": "\n\n".join(parts) + "\n",
        "text/plain": "\n".join(board_lines(board, only)),
    }


def waiting_board(mark: str) -> dict[str, str]:
    """What stands in the notebook until the board has read everything."""
    words = "context, memory, skills, sub-agents and sessions"
    door = f'data-ipyagent-board="{escape(mark)}"'
    return {
        "text/html": f'<div class="{theme.STATIC_CLASSES}" {door}>ipyagent: {words} …</div>',
        "text/plain": f"ipyagent: {words}",
    }


# ------------------------------------------------------------------ the tabs of no part


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
        return f"{counted(len(bars), 'turn')}{tokens}", ("turn", "request", "after it"), cells, len(bars)

    def html(self, table: Rows) -> str:
        shown = timeline_ui.newest(self.shown, TURNS, STATIC_MARKS)
        return timeline_ui.static_timeline(shown, self._window)["text/html"]


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session on the disk. `changed` in seconds of the epoch; `bytes` of its transcript; `cost` in dollars
    (None: no price known); `problem` why it cannot be read."""

    session: str
    changed: float
    bytes: int
    notebook: str = ""
    forked_from: str = ""
    first: str = ""
    turns: int = 0
    cost: float | None = 0.0
    problem: str = ""


class Archive:
    """Reads sessions of folders when they are asked for; files that did not change are not read again."""

    def __init__(self) -> None:
        self._known: dict[Path, StoredSession] = {}

    def __repr__(self) -> str:
        return f"<Archive, {len(self._known)} read>"

    def look(self, folder: Path) -> StoredSession:
        """The session in a folder as it is now."""
        path = folder / TRANSCRIPT
        try:
            stat = path.stat()
        except OSError as problem:
            return StoredSession(session=folder.name, changed=0.0, bytes=0, problem=problem.strerror or str(problem))
        known = self._known.get(folder)
        if known is None or (known.changed, known.bytes) != (stat.st_mtime, stat.st_size):
            known = self._known[folder] = _read(folder.name, path, stat.st_mtime, stat.st_size)
        return known


def _read(name: str, path: Path, changed: float, size: int) -> StoredSession:
    notebook, forked, first, turns, cost, problem = "", "", "", 0, 0.0, ""
    priced = True
    try:
        for event in read_events(path):
            match event:
                case SessionStarted():
                    notebook, forked = event.notebook, event.forked_from
                case UserMessage():
                    first, turns = first or event.text, turns + 1
                case UsageReported() | ForkEnded() | ChildEnded():
                    priced = priced and event.cost is not None
                    cost += event.cost or 0.0
                case _:
                    pass
    except JournalError as wrong:
        problem = str(wrong)
    return StoredSession(
        session=name, changed=changed, bytes=size, notebook=notebook, forked_from=forked, first=first, turns=turns,
        cost=cost if priced else None, problem=problem,
    )  # fmt: skip


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
        return counted(len(folders), "stored session"), columns, cells, len(folders)

    def fresh(self) -> Reply:
        changed, self._changed = self._changed, False
        return {"current": self._mine} if changed else None

    def answer(self, content: dict[str, Any]) -> Reply:
        folders = self._agent.sessions.stored()
        match content.get("kind"):
            case "rows":
                begin, count = number_in(content, "from"), min(number_in(content, "count"), MOST_ROWS)
                rows = [self._row(folder) for folder in folders[begin : begin + count]]
                return {"rows": rows, "from": begin, "total": len(folders)}
            case "look" | "resume" | "fork" as kind:
                name = text_in(content, "session")
                folder = next((each for each in folders if each.name == name), None)
                if folder is None:
                    return {"failed": "this session no longer exists"}
                if kind != "look":
                    return self._take_up(kind, name)
                project = self._agent.project
                if not (project.trusted or self._agent.settings.trust_all or project.owns(folder)):
                    raise AgentError("this project is not trusted: %agent trust")
                return {"look": {"of": name, **looked(folder / TRANSCRIPT, number_in(content, "turn"))}}
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
