"""Which of our own tools a small window has room for: the less needed ones are left out, in a fixed order."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ipyagent.assembly.prompt import render
from ipyagent.journal.protocols import Tool

SHARE = 3
"""The descriptions of the tools may take a third of the window."""
DISPENSABLE = (
    "send_message", "agent", "notebook", "plan", "past_sessions", "compact", "memory", "load_skill", "glob", "grep",
    "write_file", "variables",
)  # fmt: skip
"""What goes first; python, read_file, edit_file, shell and every tool of the user stay."""


def fitted(
    tools: Mapping[str, Tool], window: int, listed: Collection[str] = ()
) -> tuple[dict[str, Tool], tuple[str, ...]]:
    """The tools for a window of `window` tokens (0: not known, all of them) and the names of those left out.
    What a session's head lists already stays."""
    kept = dict(tools)
    if not window or render(kept).tool_tokens * SHARE <= window:
        return kept, ()
    left: list[str] = []
    for name in DISPENSABLE:
        if render(kept).tool_tokens * SHARE <= window:
            break
        if name in kept and name not in listed:
            del kept[name]
            left.append(name)
    return kept, tuple(left)
