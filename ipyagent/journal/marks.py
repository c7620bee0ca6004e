"""Cache marks: where the provider is asked to keep the prompt's prefix.

At most four: end of tools, end of system, an anchor at the end of the last prompt that the server
answered, and the very end. The anchor stands exactly where an entry was written, so a turn with
any number of parallel calls reads it: the 20 blocks that a server looks back never matter.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ipyagent.journal.events import Block

Position: TypeAlias = tuple[int, int]
"""Message index and block index."""

UNMARKED = ("thinking", "redacted_thinking")


def mark_for(ttl: str) -> Block:
    """A mark that asks for a prefix to be kept for `ttl`, "5m" or "1h"."""
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}


def marked(
    system: list[Block], tools: list[Block], messages: list[dict[str, Any]], *, anchor: Position | None, ttl: str
) -> tuple[list[Block], list[Block], list[dict[str, Any]]]:
    """The three parts with marks; what carries no mark is shared with the arguments."""
    mark = mark_for(ttl)
    system, tools, messages = list(system), list(tools), list(messages)
    for blocks in (tools, system):
        if blocks:
            blocks[-1] = {**blocks[-1], "cache_control": mark}
    places = {_last_markable(messages, len(messages) - 1, None)}
    if anchor is not None and anchor[0] < len(messages):
        places.add(_last_markable(messages, *anchor))
    for place in places:
        if place is not None:
            index, block = place
            content = list(messages[index]["content"])
            content[block] = {**content[block], "cache_control": mark}
            messages[index] = {**messages[index], "content": content}
    return system, tools, messages


def _last_markable(messages: list[dict[str, Any]], message: int, block: int | None) -> Position | None:
    """The last block at or before the place that may carry a mark, within its message."""
    if message < 0:
        return None
    content = messages[message]["content"]
    start = len(content) - 1 if block is None else min(block, len(content) - 1)
    for index in range(start, -1, -1):
        if content[index]["type"] not in UNMARKED:
            return message, index
    return None
