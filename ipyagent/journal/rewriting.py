"""Taking a range of events out of the messages and putting blocks in its place, rules kept.

Pure functions over messages and the events their blocks came from. A tool_use leaves with its
result and a result with its tool_use, whatever the range says; roles alternate; the first message
is the user's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ipyagent.journal.events import Block


class Rewritten(NamedTuple):
    """The messages after, the events of their blocks, and where the change begins: everything
    before message `start` is what it was."""

    messages: list[dict[str, Any]]
    sources: list[list[int]]
    start: int


class _Placed(NamedTuple):
    role: str
    block: Block
    source: int


def flatten(messages: list[dict[str, Any]], sources: list[list[int]]) -> list[_Placed]:
    """Every block with its role and event; a block of ours (event 0) belongs to the one before."""
    placed: list[_Placed] = []
    last = 0
    for message, events in zip(messages, sources, strict=True):
        for block, source in zip(message["content"], events, strict=True):
            last = source or last
            placed.append(_Placed(message["role"], block, last))
    return placed


def gather(placed: list[_Placed]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Blocks as messages again: neighbours of one role share a message, results stand first."""
    messages: list[dict[str, Any]] = []
    sources: list[list[int]] = []
    for role, block, source in placed:
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
            sources.append([])
        messages[-1]["content"].append(block)
        sources[-1].append(source)
    return messages, sources


def replace_range(
    messages: list[dict[str, Any]], sources: list[list[int]], first: int, last: int, blocks: list[Block], event: int
) -> Rewritten | None:
    """Take events `first` to `last` out and put `blocks`, as the user's, in their place; the new
    blocks belong to `event`. None when there is nothing of the range in the messages."""
    placed = flatten(messages, sources)
    gone = [first <= item.source <= last for item in placed]
    uses = {item.block["id"]: at for at, item in enumerate(placed) if item.block.get("type") == "tool_use"}
    for at, item in enumerate(placed):
        if item.block.get("type") == "tool_result":
            use = uses.get(item.block["tool_use_id"])
            if use is not None and gone[use] != gone[at]:
                gone[use] = gone[at] = True
    if True not in gone:
        return None
    where = gone.index(True)
    before = placed[:where]
    after = [item for at, item in enumerate(placed) if at >= where and not gone[at]]
    new = [_Placed("user", block, event) for block in blocks]
    if not before and not new and after and after[0].role == "assistant":
        new = [_Placed("user", {"type": "text", "text": "(earlier parts were removed)"}, event)]
    made, made_sources = gather([*before, *new, *after])
    start = 0
    while start < min(len(made), len(messages)) and made[start]["content"] == messages[start]["content"]:
        start += 1
    return Rewritten(made, made_sources, start)


def appended_after(messages: list[dict[str, Any]], sources: list[list[int]], event: int) -> list[_Placed]:
    """The blocks that came after an event."""
    return [item for item in flatten(messages, sources) if item.source > event]
