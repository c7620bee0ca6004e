"""Which of our own tools a small window has room for: the less needed ones are left out, in a fixed order."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ipyagent.assembly.prompt import render
from ipyagent.journal.protocols import Tool
from ipyagent.tools.catalogue import with_search

SHARE = 3
"""The descriptions of the tools may take a third of the window."""
DISPENSABLE = (
    "send_message", "notebook", "plan", "past_sessions", "agent", "compact", "memory", "load_skill", "glob", "grep",
    "write_file", "variables",
)  # fmt: skip
"""What goes first; python, read_file, edit_file, shell and every tool of the user stay."""


def fitted(
    tools: Mapping[str, Tool], window: int, listed: Collection[str] = (), *, all_listed: bool = False
) -> tuple[dict[str, Tool], tuple[str, ...]]:
    """The tools for a window of `window` tokens (0: not known, all of them), with the search for those that are
    deferred (unless `all_listed`), and the names of those left out. What a session's head tells of already stays."""

    def whole(tools: Mapping[str, Tool]) -> dict[str, Tool]:
        return dict(tools) if all_listed else with_search(tools)

    def fits(tools: Mapping[str, Tool]) -> bool:
        return not window or render(whole(tools), all_listed=all_listed).tool_tokens * SHARE <= window

    kept = dict(tools)
    left: list[str] = []
    for name in DISPENSABLE:
        if fits(kept):
            break
        if name in kept and name not in listed:
            del kept[name]
            left.append(name)
    return whole(kept), tuple(left)
