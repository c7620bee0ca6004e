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
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ipyagent.agent import Agent
from ipyagent.errors import AgentError
from ipyagent.escape import escape, line
from ipyagent.extension.dashboard_tabs import OURS, BoardHost, BoardTab, TableTab
from ipyagent.journal.events import Event, TurnEnded
from ipyagent.loop.session import Session
from ipyagent.ui import theme
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


def tabs_of(agent: Agent) -> dict[str, str]:
    """The tabs that there are, by name with their titles: ours, then those of other packages."""
    found = {name: kind.title for name, kind in OURS.items() if not kind.part or kind.part in agent.parts}
    return found | {part.name: tab.title for part in agent.parts if (tab := part.panel()) is not None}


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
        self.tabs: dict[str, BoardTab] = {name: OURS[name](host) for name in tabs_of(agent) if name in OURS}
        self.tabs |= {part.name: TableTab(host, tab) for part in agent.parts if (tab := part.panel()) is not None}

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
        "text/html": f'<div class="ipyagent ia-static tex2jax_ignore mathjax_ignore"{door}>{html}</div>',
        "text/markdown": "\n\n".join(parts) + "\n",
        "text/plain": "\n".join(board_lines(board, only)),
    }


def waiting_board(mark: str) -> dict[str, str]:
    """What stands in the notebook until the board has read everything."""
    words = "context, memory, skills, sub-agents and sessions"
    door = f'data-ipyagent-board="{escape(mark)}"'
    return {
        "text/html": f'<div class="ipyagent ia-static tex2jax_ignore mathjax_ignore" {door}>ipyagent: {words} …</div>',
        "text/plain": f"ipyagent: {words}",
    }
