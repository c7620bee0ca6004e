"""A tab of the live board, as a part gives it, and its static form; a turn of a transcript to read in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ipyagent.escape import escape, plain
from ipyagent.journal.events import Event, UserMessage
from ipyagent.journal.journal import read_events
from ipyagent.loop.session import Session
from ipyagent.ui import theme

Reply: TypeAlias = "dict[str, Any] | None"
Rows: TypeAlias = tuple[str, Sequence[str], list[list[str]], int]
"""One line about it, names of columns, rows, how many rows there are in all."""
HTML_BYTES = 450_000
"""Of rendered text in one message; more is shown as cut plain text."""
PLAIN_CHARS = 40_000
QUERY_CHARS = 1_000
REQUEST_CHARS = 4_000
STATIC_ROWS = 40
"""Of a tab's static form, at most."""
NAME_CHARS = 40
"""Characters of a name that stands on one line."""
SHORT_CHARS = 16
"""The same of any other cell."""
_CELL = "padding:2px 8px;text-align:left;vertical-align:top"


class BoardHost(NamedTuple):
    """What tabs have of the board: `wake` has it look at once, `on_main` runs a function on the main thread between
    cells, `tell` sends a message to the sessions' pages."""

    agent: Any
    wake: Callable[[], None]
    on_main: Callable[[Callable[[], None]], None]
    tell: Callable[[dict[str, Any]], None]


class BoardTab:
    """A tab of the board: what its page asks and is told, and what it shows where none is live."""

    title: str

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


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def when(moment: float) -> str:
    """"2026-12-03 14:05"."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


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


def turn_events(events: Iterable[Event], number: int) -> tuple[list[Event], int]:
    """The events of a turn, numbered from 1 (those before the first belong to it; the last one there is when
    `number` is larger), and how many turns there are."""
    turns: list[list[Event]] = [[]]
    count = 0
    for event in events:
        if isinstance(event, UserMessage):
            count += 1
            if count > 1:
                turns.append([])
        turns[-1].append(event)
    return turns[max(1, min(number, len(turns))) - 1], max(count, 1)


def text_in(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    return value[:QUERY_CHARS] if isinstance(value, str) else ""


def number_in(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    return max(0, min(value, 10**9)) if isinstance(value, int) else 0
