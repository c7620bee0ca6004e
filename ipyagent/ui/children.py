"""A sub-agent in a cell: one line that says who it is, what it is about, how it ended. Signs carry words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ipyagent.escape import escape, line
from ipyagent.journal.events import ChildEnded, ChildProgress, ChildStarted, Ending
from ipyagent.ui.items import SubagentItem, ToolState
from ipyagent.ui.look import Theme
from ipyagent.ui.meter import dollars, duration

_SIGNS: dict[ToolState, tuple[str, str]] = {
    "running": ("▸", "running"), "done": ("✓", "done"), "error": ("✗", "failed"), "stopped": ("■", "stopped"),
}  # fmt: skip
_ENDS: dict[Ending, ToolState] = {
    "finished": "done", "limit": "done", "stopped": "stopped", "refused": "error", "failed": "error",
}  # fmt: skip


def child_key(child: str) -> str:
    """The key of a sub-agent's item."""
    return "k:" + child


def child_item(event: ChildStarted | ChildProgress | ChildEnded, before: object) -> SubagentItem:
    """The item after the event; `before` is the one that stands, None for one that began in an earlier turn."""
    if isinstance(event, ChildStarted):
        return SubagentItem(
            child_key(event.child), event.name, event.kind, event.task, background=event.background, began=event.at
        )
    old = before if isinstance(before, SubagentItem) else SubagentItem(child_key(event.child), event.child, "", "")
    if isinstance(event, ChildProgress):
        return replace(old, doing=event.text)
    return replace(
        old,
        state=_ENDS[event.status],
        doing="",
        message=event.message,
        seconds=event.seconds,
        requests=event.requests,
        cost=event.cost or 0.0,
        handed=event.handed,
    )


def child_words(item: SubagentItem) -> str:
    """"count-rows (explore): Reading orders.csv", "count-rows: done, 3 model calls, $0.01, 12 s"."""
    kind = f" ({line(item.kind, 40)})" if item.kind else ""
    said = f"{line(item.name, 60)}{kind}: "
    if item.state == "running":
        where = ", in the background" if item.background else ""
        return said + (line(item.doing, 80) or line(item.task, 80) or "at work") + where
    parts = [_SIGNS[item.state][1]]
    if item.message:
        parts[0] += f" ({line(item.message, 160)})"
    if item.handed:
        parts.append(f"handed back {line(', '.join(item.handed), 120)}")
    parts.append(f"{item.requests} model call{'' if item.requests == 1 else 's'}")
    parts += [dollars(item.cost)] * bool(item.cost)
    parts.append(duration(item.seconds))
    return said + ", ".join(parts)


def child_line(item: SubagentItem) -> str:
    """The same with its sign."""
    return f"{_SIGNS[item.state][0]} {child_words(item)}"


def child_markdown(item: SubagentItem, words: Callable[[str], str]) -> str:
    """The line as Markdown; `words` makes text in which nothing is Markdown."""
    return f"*{words(child_line(item))}*"


def child_html(item: SubagentItem, look: Theme) -> str:
    """The line; a screen reader reads the sign as its word."""
    sign, word = _SIGNS[item.state]
    name, _, rest = child_words(item).partition(": ")
    level = "ia-warning" if item.state == "error" else "ia-notice"
    return (
        f'<div {look.kind("ia-note", "ia-child", level)}><span class="ia-icon ia-{item.state}" role="img" '
        f'aria-label="{word}">{sign}</span> <span><b>{escape(name)}</b> {escape(rest)}</span></div>'
    )
