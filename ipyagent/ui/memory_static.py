"""The memories as they stand in a saved notebook and in a terminal: no kernel, no script, bounded in size."""

from __future__ import annotations

import time

from ipyagent.errors import AgentError
from ipyagent.escape import escape, line
from ipyagent.memory.files import Memory
from ipyagent.ui import markdown
from ipyagent.ui.browsing import Browsing, age, provenance
from ipyagent.ui.memory_chips import ago, short_name

ROWS = 200
"""Memories that the static form lists, the newest."""
TEXTS = 60
"""Of these, those whose text it has."""
TEXT_CHARS = 4_000
TERMINAL_ROWS = 60
NAME_WIDTH = 56
_CELL = "padding:2px 8px;text-align:left;vertical-align:top"


def when(moment: float) -> str:
    """"2026-12-03 14:05"."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def list_lines(browsing: Browsing, most: int = TERMINAL_ROWS) -> list[str]:
    """One line a memory, newest first, and what is not listed."""
    found = browsing.everything()
    width = min(NAME_WIDTH, max((len(short_name(memory.path)) for memory in found[:most]), default=0))
    lines = [memory_line(memory, width) for memory in found[:most]]
    if len(found) > most:
        lines.append(f"… {len(found) - most:,} older ones (%memory search WORDS)")
    missing = [line(why, 300) for why in browsing.missing()]
    if not found and not missing:
        lines.append("no memories yet: say “remember …” to the agent, or %memory add TEXT")
    return [*lines, *missing]


def memory_line(memory: Memory, width: int) -> str:
    """"feedback_plots.md  feedback  project  12 days ago  Axes have units"; the name as wide as `width`."""
    problem = f"  ! {line(memory.problems[0], 120)}" if memory.problems else ""
    columns = f"{short_name(memory.path):<{width}}  {line(memory.kind, 9) or '-':<9}  {line(memory.scope, 8):<8}"
    return f"{columns} {ago(age(memory)):<13} {line(memory.description, 90)}{problem}"


def static_browser(browsing: Browsing) -> dict[str, str]:
    """`text/html`, `text/markdown` and `text/plain` of the memories, newest first."""
    found, missing = browsing.everything(), [line(why, 300) for why in browsing.missing()]
    return {
        "text/html": _html(browsing, found, missing),
        "text/markdown": _markdown(found, missing),
        "text/plain": "\n".join(list_lines(browsing, ROWS)),
    }


def _heading(found: list[Memory]) -> str:
    return f"{len(found):,} memor{'y' if len(found) == 1 else 'ies'}"


def _markdown(found: list[Memory], missing: list[str]) -> str:
    from ipyagent.ui.static import _words

    rows = ["| memory | type | scope | age | about |", "|---|---|---|---|---|"]
    for memory in found[:ROWS]:
        about = line(memory.description, 160) + (f" (! {line(memory.problems[0], 120)})" if memory.problems else "")
        cells = (short_name(memory.path), memory.kind, memory.scope, ago(age(memory)), about)
        rows.append("| " + " | ".join(_words(cell) for cell in cells) + " |")
    heading = [f"**{_heading(found)}**"] if found or not missing else []  # else nobody may look at them
    parts = [*heading, "\n".join(rows)] if found else heading
    if len(found) > ROWS:
        parts.append(f"*{len(found) - ROWS:,} older ones are not listed*")
    return "\n\n".join([*parts, *(_words(why) for why in missing)]) + "\n"


def _html(browsing: Browsing, found: list[Memory], missing: list[str]) -> str:
    rows = "".join(_entry(browsing, memory, number < TEXTS) for number, memory in enumerate(found[:ROWS]))
    widths = {"memory": 64, "type": 12, "scope": 10, "age": 14}
    head = "".join(f'<th style="{_CELL};width:{width}%">{name}</th>' for name, width in widths.items())
    table = f'<table style="border-collapse:collapse;width:100%"><tr>{head}</tr>{rows}</table>' if found else ""
    more = f"<p><em>{len(found) - ROWS:,} older ones are not listed</em></p>" if len(found) > ROWS else ""
    why = "".join(f"<p><em>{escape(each)}</em></p>" for each in missing)
    heading = f"<p><strong>{_heading(found)}</strong></p>" if found or not missing else ""
    return (
        '<div class="ipyagent ia-static tex2jax_ignore mathjax_ignore">'
        f"{heading}{table}{more}{why}</div>"
    )


def _entry(browsing: Browsing, memory: Memory, whole: bool) -> str:
    name = f"<strong>{escape(short_name(memory.path))}</strong> {escape(line(memory.description, 200))}"
    problems = "".join(f"<div><small>! {escape(line(each, 200))}</small></div>" for each in memory.problems[:5])
    told = provenance(memory)
    source = f"<p><small>{escape(line(told, 200))}</small></p>" if told else ""
    first = name + problems
    if whole and (text := _text(browsing, memory)):
        first = f'<details><summary style="cursor:pointer">{name}</summary>{source}{text}</details>{problems}'
    cells = (first, escape(memory.kind or "-"), escape(memory.scope), ago(age(memory)))
    return "<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>"


def _text(browsing: Browsing, memory: Memory) -> str:
    """The rendered text; "" for one that went or cannot be read, whose problem the list tells."""
    try:
        body = browsing.body(memory)
    except (AgentError, OSError):
        return ""
    cut = f"\n\n… {len(body) - TEXT_CHARS:,} more characters" if len(body) > TEXT_CHARS else ""
    return markdown.render(body[:TEXT_CHARS] + cut, inline=True)
