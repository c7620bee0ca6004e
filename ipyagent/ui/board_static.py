"""The board as it stands in a saved notebook and in a terminal: a table a part, bounded, with nothing that acts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ipyagent.ui.escape import escape, line
from ipyagent.ui.memory_static import list_lines, when
from ipyagent.ui.meter import dollars, duration, thousands
from ipyagent.ui.timeline import bar_words, static_timeline
from ipyagent.ui.timeline_talk import newest

if TYPE_CHECKING:
    from ipyagent.ui.board import Board

TURNS, MARKS, ROWS, SESSIONS = 30, 20, 40, 15
_CELL = "padding:2px 8px;text-align:left;vertical-align:top"
TITLES = {
    "context": "Context", "memory": "Memory", "skills": "Skills", "children": "Sub-agents", "sessions": "Sessions",
}  # fmt: skip
Table = tuple[str, Sequence[str], list[list[str]], int]
"""One line about it, names of columns, rows, how many rows there are in all."""


def tables(board: Board) -> dict[str, Table]:
    """The five summaries."""
    shown = board.context.shown
    agent = board.agent
    found = board.memory.browsing.everything()
    skills, measure = board.skills.listed(), board.skills.measure
    subs = board.children.listed()
    folders = agent.sessions.stored()
    stored = [board.sessions.archive.look(folder) for folder in folders[:SESSIONS]]
    mine = agent.session.journal.session if agent.session is not None else ""
    window = agent.state_of(agent.session) if agent.session is not None else None
    of = f" of {thousands(window.window)}" if window else ""
    tokens = f", {shown.bars[-1].tokens:,} tokens{of}" if shown.bars else ""
    return {
        "context": (
            f"{_counted(len(shown.bars), 'turn')}{tokens}",
            ("turn", "request", "after it"),
            [[str(bar.number), line(bar.text, 70), bar_words(bar)] for bar in shown.bars[-TURNS:]],
            len(shown.bars),
        ),
        "memory": (
            f"{len(found):,} memor{'y' if len(found) == 1 else 'ies'}",
            ("memory", "type", "scope", "about"),
            [[line(each.name, 60), each.kind or "-", each.scope, line(each.description, 100)] for each in found[:ROWS]],
            len(found),
        ),
        "skills": (
            _counted(len(skills), "skill"),
            ("skill", "from", "tokens", "", "for"),
            [
                [line(each.name, 64), each.source, f"{board.skills.size(each, measure):,}", board.skills.state_of(each),
                 line(each.description, 100)]
                for each in skills[:ROWS]
            ],
            len(skills),
        ),
        "children": (
            _counted(len(subs), "sub-agent") + " in this session",
            ("sub-agent", "task", "how it stands", "time", "cost"),
            [
                [f"{line(sub.name, 60)} ({line(sub.kind, 30)})", line(sub.task, 80),
                 f"{sub.status}{': ' + line(sub.doing or sub.message, 100) if sub.doing or sub.message else ''}",
                 duration(sub.seconds), "-" if sub.cost is None else dollars(sub.cost)]
                for sub in subs[:ROWS]
            ],
            len(subs),
        ),
        "sessions": (
            _counted(len(folders), "stored session"),
            ("session", "when", "first request", "turns", "cost"),
            [
                [("* " if each.session == mine else "") + each.session, when(each.changed),
                 line(each.first or each.problem, 80), f"{each.turns:,}",
                 "-" if each.cost is None else dollars(each.cost)]
                for each in stored
            ],
            len(folders),
        ),
    }  # fmt: skip


def board_lines(board: Board, only: str = "") -> list[str]:
    """The same as text; `only` one part."""
    lines: list[str] = []
    for name, (head, columns, rows, count) in tables(board).items():
        if only and name != only:
            continue
        lines += ["", f"{TITLES[name]}: {head}"] if lines else [f"{TITLES[name]}: {head}"]
        if name == "memory":
            lines += [f"  {row}" for row in list_lines(board.memory.browsing, ROWS)] if rows else []
            continue
        widths = [max(len(row[at]) for row in [list(columns), *rows]) for at in range(len(columns))]
        for row in [list(columns), *rows] if rows else []:
            cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append(f"  {cells.rstrip()}")
        if count > len(rows):
            lines.append(f"  … {count - len(rows):,} more")
    return lines


def static_board(board: Board, mark: str = "", only: str = "") -> dict[str, str]:
    """`text/html`, `text/markdown` and `text/plain`; `mark` is where the live board comes in."""
    from ipyagent.ui.static import _words

    found = tables(board)
    tab = mark.split(".")[1] if mark else only or "context"
    html = "".join(_html(board, name, found[name], name == tab) for name in TITLES if not only or name == only)
    door = f' data-ipyagent-board="{escape(mark)}"' if mark else ""
    parts = []
    for name, (head, columns, rows, count) in found.items():
        if only and name != only:
            continue
        parts.append(f"**{TITLES[name]}**: {_words(head)}")
        if rows:
            cells = ["| " + " | ".join(_words(cell) for cell in row) + " |" for row in rows]
            parts.append("\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *cells]))
        if count > len(rows):
            parts.append(f"*{count - len(rows):,} more*")
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


def _html(board: Board, name: str, table: Table, opened: bool) -> str:
    head, columns, rows, count = table
    if name == "context" and rows:
        agent = board.agent
        window = agent.state_of(agent.session) if agent.session is not None else None
        body = static_timeline(newest(board.context.shown, TURNS, MARKS), window)["text/html"]
    elif rows:
        names = "".join(f'<th style="{_CELL}">{each}</th>' for each in columns)
        cells = ("".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in row) for row in rows)
        lines = "".join(f"<tr>{row}</tr>" for row in cells)
        body = f'<table style="border-collapse:collapse;width:100%"><tr>{names}</tr>{lines}</table>'
    else:
        body = ""
    more = f"<p><em>{count - len(rows):,} more</em></p>" if count > len(rows) else ""
    return (
        f"<details{' open' if opened else ''}><summary style=\"cursor:pointer\"><strong>{TITLES[name]}</strong> · "
        f"{escape(head)}</summary>{body}{more}</details>"
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
