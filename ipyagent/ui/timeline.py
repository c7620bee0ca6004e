"""The context timeline: a bar a turn, what was decided on the way, and before and after side by side.

Live on the board (`ui.board`), whose script builds everything as text nodes; saved, and wherever there are no
widgets, a static form that reads without a kernel: one table with the figures, each bar's parts in words, each
decision with its before and after folded under it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ipyagent.escape import escape, line, plain
from ipyagent.journal.events import Event
from ipyagent.journal.protocols import WindowState
from ipyagent.reports.timeline import SOURCES, Bar, Mark, Row, Timeline, around
from ipyagent.ui import theme
from ipyagent.ui.meter import dollars, percent, thousands

LETTERS = {
    "stored": "S", "cleared": "C", "notes": "N", "compacted": "K", "snipped": "X", "collapsed": "L",
    "undone": "U", "server edit": "E", "cache break": "!", "thinking left out": "T", "image left out": "I",
    "failed": "F", "model": "M", "recalled": "R", "saved": "V", "skill": "G", "skills": "G",
    "plan": "P",
}  # fmt: skip
STATIC_PAIRS = 60
"""Decisions whose before and after the static form keeps, the newest."""
STATIC_ROWS = 12
STATIC_CHARS = 600
STATIC_BARS, STATIC_MARKS = 200, 400
"""Turns and decisions that the static form of a live panel keeps, the newest."""
MOST_BARS, MOST_MARKS = 5_000, 10_000
"""Of one message; older ones are left out."""
WORDS = 100
"""Turns of one answer, at most."""
MARKS = 500
"""Decisions of one answer whose words it has, at most."""
LIVE_ROWS = 400
PAIR_BYTES = 700_000
OUT = " (removed from the conversation)"
_CELL = "padding:2px 8px;text-align:left;vertical-align:top"


def panel_state(shown: Timeline, window: WindowState | None) -> dict[str, Any]:
    """What the page begins with: plain figures, nothing that is markup. Words it asks for."""
    return {
        "sources": [[name, color] for name, color in _colours()],
        "kinds": {kind: [letter, theme.layer_colour(kind)] for kind, letter in LETTERS.items()},
        **grown(shown),
        **marks_at(window),
    }


def _colours() -> list[tuple[str, str]]:
    """Each source with its colour."""
    return [(name, theme.source_colour(name)) for name in SOURCES]


def bar_words(bar: Bar) -> str:
    """"12,340 tokens after it, 3 requests, $0.0123, finished"."""
    cost = "no price known" if bar.cost is None else dollars(bar.cost)
    requests = f"{bar.requests} request{'s' * (bar.requests != 1)}"
    ended = f", {bar.ended}" if bar.ended else ""
    return f"{bar.tokens:,} tokens after it, {requests}, {cost}{ended}{_out(bar)}"


def _out(bar: Bar) -> str:
    """That a turn is not in the conversation any more; "" for one that is."""
    return OUT if bar.out else ""


def change(mark: Mark) -> str:
    """"12,000 → 4,000 tokens"; "" when nothing changed."""
    if mark.tokens_before == mark.tokens_after:
        return ""
    return f"{mark.tokens_before:,} → {mark.tokens_after:,} tokens"


def turn_lines(bars: Sequence[Bar]) -> list[str]:
    """One line a turn: its number, tokens after it, dollars, its first words, and whether it was taken out."""
    if not bars:
        return ["no turns yet"]
    rows = [f"{'turn':>5} {'tokens':>10} {'cost':>9}  request"]
    for bar in bars:
        cost = "-" if bar.cost is None else dollars(bar.cost)
        rows.append(f"{bar.number:>5} {bar.tokens:>10,} {cost:>9}  {line(bar.text, 70)}{_out(bar)}")
    return rows


# ---------------------------------------------------------------------- the static form


def static_timeline(shown: Timeline, window: WindowState | None) -> dict[str, str]:
    """`text/html`, `text/markdown` and `text/plain` of the whole timeline."""
    return {
        "text/html": _html(shown, window),
        "text/markdown": _markdown(shown),
        "text/plain": "\n".join(_plain(shown)),
    }


def _plain(shown: Timeline) -> list[str]:
    rows = turn_lines(shown.bars)
    if shown.marks:
        rows += ["", *(_mark_line(mark) for mark in shown.marks)]
    return rows


def _mark_line(mark: Mark) -> str:
    moved = change(mark)
    words = f"turn {mark.turn}, event {mark.event}, {mark.kind}: {line(mark.words, 200)}"
    return words + (f" ({moved})" if moved else "")


def _markdown(shown: Timeline) -> str:
    from ipyagent.ui.static import _words

    rows = ["| turn | tokens | cost | request | what happened |", "|---:|---:|---:|---|---|"]
    for bar in shown.bars:
        cost = "" if bar.cost is None else _words(dollars(bar.cost))
        marks = "; ".join(_words(mark.kind) for mark in shown.marks if mark.turn == bar.number)
        rows.append(f"| {bar.number} | {bar.tokens:,} | {cost} | {_words(line(bar.text, 80) + _out(bar))} | {marks} |")
    parts = ["**Context timeline**", "\n".join(rows)]
    if shown.marks:
        parts.append("\n".join(f"- {_words(_mark_line(mark))}" for mark in shown.marks))
    return "\n\n".join(parts) + "\n"


def _html(shown: Timeline, window: WindowState | None) -> str:
    most = max([bar.tokens for bar in shown.bars], default=0) or 1
    widths = {"turn": "", "request": ";width:35%", "in the context after it": ";width:55%", "cost": ""}
    head = "".join(f'<th scope="col" style="{_CELL}{width}">{name}</th>' for name, width in widths.items())
    rows = [f"<tr>{head}</tr>", *(_bar_row(bar, most) for bar in shown.bars)]
    named: dict[str, list[str]] = {}
    for name, color in _colours():
        named.setdefault(color, []).append(name)
    swatch = "display:inline-block;width:10px;height:10px;background:{};border-radius:2px"
    legend = " ".join(
        f'<span style="margin-right:10px"><span style="{swatch.format(color)}">&#8203;</span> {", ".join(names)}</span>'
        for color, names in named.items()
    )
    kept = {mark.event for mark in shown.marks[-STATIC_PAIRS:]}
    marks = "".join(_mark_html(shown, mark, mark.event in kept) for mark in shown.marks)
    of = f" · window {thousands(window.window)}, auto-compact at {thousands(window.auto_mark)}" if window else ""
    return (
        f'<div class="{theme.STATIC_CLASSES}">'
        f"<p><strong>Context timeline</strong> · {len(shown.bars)} turns{of}</p><p><small>{legend}</small></p>"
        f'<table style="{theme.TABLE}">{"".join(rows)}</table>{marks}</div>'
    )


def _bar_row(bar: Bar, most: int) -> str:
    total = sum(bar.sources.values()) or 1
    parts = [(name, bar.sources[name], color) for name, color in _colours() if bar.sources[name]]
    pieces = "".join(
        f'<span style="display:inline-block;height:12px;width:{100 * tokens / total:.2f}%;background:{color}" '
        f'title="{name} {tokens:,}"></span>'
        for name, tokens, color in parts
    )
    largest = sorted(parts, key=lambda part: -part[1])[:3]
    words = ", ".join(f"{name} {percent(tokens, total)}" for name, tokens, _ in largest)
    width = f"width:{100 * bar.tokens / most:.2f}%;min-width:2px"
    strip = f'<div style="{width};line-height:0;white-space:nowrap">{pieces}</div>'
    cost = "" if bar.cost is None else dollars(bar.cost)
    return (
        f'<tr><td style="{_CELL}">{bar.number}</td>'
        f'<td style="{_CELL};overflow-wrap:anywhere">{escape(line(bar.text, 60) + _out(bar))}</td>'
        f'<td style="{_CELL}">{strip}<small>{bar.tokens:,} tokens: {words}</small></td>'
        f'<td style="{_CELL};white-space:nowrap">{cost}</td></tr>'
    )


def _mark_html(shown: Timeline, mark: Mark, whole: bool) -> str:
    words = f"<strong>{escape(mark.kind)}</strong> in turn {mark.turn}: {escape(_mark_line(mark).split(': ', 1)[1])}"
    rows = shown.compare(mark.event, STATIC_CHARS) if whole else []
    if all(row.same for row in rows):
        return f"<div>{words}</div>"
    body = "".join(_row_html(row) for row in rows[:STATIC_ROWS])
    if len(rows) > STATIC_ROWS:
        body += f'<tr><td colspan="2"><em>{len(rows) - STATIC_ROWS} more rows</em></td></tr>'
    head = f'<tr><th style="{_CELL}">before</th><th style="{_CELL}">after</th></tr>'
    table = f'<table style="border-collapse:collapse;width:100%;table-layout:fixed">{head}{body}</table>'
    return f'<details><summary style="cursor:pointer">{words}</summary>{table}</details>'


def _row_html(row: Row) -> str:
    if row.same:
        return f'<tr><td style="{_CELL}" colspan="2"><small>{escape(row.before)}</small></td></tr>'
    cells = "".join(
        f'<td style="{_CELL}"><pre style="white-space:pre-wrap;overflow-wrap:anywhere;margin:0;background:transparent">'
        f"{escape(side)}</pre></td>"
        for side in (row.before, row.after)
    )
    return f"<tr>{cells}</tr>"


# ------------------------------------------------------------------ what a page asks and is told

def grown(shown: Timeline, bars: int = 0, marks: int = 0) -> dict[str, Any]:
    """What came after the first `bars` and `marks`; numbers count from 0. Of a bar: tokens after the turn, its last
    event, tokens by source; of a mark: event, kind, turn."""
    bars = max(bars, len(shown.bars) - MOST_BARS)
    marks = max(marks, len(shown.marks) - MOST_MARKS)
    return {
        "bars": [bars, [[bar.tokens, bar.last, [bar.sources[name] for name in SOURCES]] for bar in shown.bars[bars:]]],
        "marks": [marks, [[mark.event, mark.kind, mark.turn] for mark in shown.marks[marks:]]],
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
