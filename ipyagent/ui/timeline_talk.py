"""What a page and the kernel tell one another about a timeline: figures of every turn in short rows, words only
of the turns that are in sight, so that two thousand turns stay well below a megabyte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ipyagent.journal.events import Event
from ipyagent.journal.protocols import WindowState
from ipyagent.reports.comparing import Row
from ipyagent.reports.shares import SOURCES
from ipyagent.reports.timeline import Bar, Mark, Timeline, around
from ipyagent.ui.escape import line, plain

MOST_BARS, MOST_MARKS = 5_000, 10_000
"""Of one message; older ones are left out."""
WORDS = 100
"""Turns of one answer, at most."""
MARKS = 500
"""Decisions of one answer whose words it has, at most."""
LIVE_ROWS = 400
PAIR_BYTES = 700_000


def bar_row(bar: Bar) -> list[Any]:
    """Tokens after the turn, its last event, tokens by source."""
    return [bar.tokens, bar.last, [bar.sources[name] for name in SOURCES]]


def mark_row(mark: Mark) -> list[Any]:
    """Event, kind, turn."""
    return [mark.event, mark.kind, mark.turn]


def grown(shown: Timeline, bars: int = 0, marks: int = 0) -> dict[str, Any]:
    """What came after the first `bars` and `marks`; numbers count from 0."""
    bars = max(bars, len(shown.bars) - MOST_BARS)
    marks = max(marks, len(shown.marks) - MOST_MARKS)
    return {
        "bars": [bars, [bar_row(bar) for bar in shown.bars[bars:]]],
        "marks": [marks, [mark_row(mark) for mark in shown.marks[marks:]]],
    }


def marks_at(window: WindowState | None) -> dict[str, int]:
    """The window and where it compacts, in tokens; 0 when not known."""
    return {"auto": window.auto_mark, "window": window.window} if window is not None else {"auto": 0, "window": 0}


def newest(shown: Timeline, bars: int, marks: int) -> Timeline:
    """Only the newest turns and decisions, for a static form."""
    kept = shown.marks[-marks:]
    pairs = {mark.event: shown.around[mark.event] for mark in kept if mark.event in shown.around}
    return Timeline(bars=shown.bars[-bars:], marks=kept, around=pairs)


def answer(shown: Timeline, content: dict[str, Any], events: Callable[[], Iterable[Event]]) -> dict[str, Any] | None:
    """One question of a page; None for what it does not name exactly. `events` gives the session."""
    match content.get("kind"):
        case "words":
            return _words(shown, content.get("from"), content.get("count"))
        case "open":
            event = content.get("event")
            known = {mark.event for mark in shown.marks}
            return _pairs(event, _rows(shown, event, events)) if isinstance(event, int) and event in known else None
        case _:
            return None


def _rows(shown: Timeline, event: int, events: Callable[[], Iterable[Event]]) -> list[Row]:
    return shown.compare(event) if event in shown.around else around(events(), event)


def _words(shown: Timeline, begin: Any, count: Any) -> dict[str, Any] | None:
    from ipyagent.ui.timeline import bar_words, change

    if not isinstance(begin, int) or not isinstance(count, int) or begin < 0:
        return None
    bars = shown.bars[begin : begin + max(1, min(count, WORDS))]
    turns = {bar.number for bar in bars} | ({0} if begin == 0 else set())
    marks = [mark for mark in shown.marks if mark.turn in turns][-MARKS:]
    return {
        "words": [begin, [[line(bar.text, 200), bar_words(bar)] for bar in bars]],
        "told": [[mark.event, line(mark.words, 300), change(mark)] for mark in marks],
    }


def _pairs(event: int, rows: list[Row]) -> dict[str, Any]:
    pairs: list[list[Any]] = []
    room = PAIR_BYTES
    for row in rows[:LIVE_ROWS]:
        pair = [plain(row.before), plain(row.after), row.same]
        room -= sum(len(str(side).encode("utf-8", "replace")) for side in pair) * 11 // 10
        if room < 0:
            break
        pairs.append(pair)
    return {"event": event, "rows": pairs, "left_out": len(rows) - len(pairs)}
