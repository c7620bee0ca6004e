"""Taking a range of events out of the messages and putting blocks in its place, rules kept.

Pure functions over messages and the events their blocks came from. A call leaves with its result and a result with
its call, whatever the range says; roles alternate; the first message
is the user's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ipyagent.journal.admission import THINKING
from ipyagent.journal.events import Block
from ipyagent.journal.server_tools import CALL, is_result


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
    message: int = -1


REMOVED: Block = {"type": "text", "text": "(earlier parts were removed)"}
"""Stands where two replies would meet, or a reply would come first."""


def flatten(
    messages: list[dict[str, Any]], sources: list[list[int]], last: int = 0, start: int = 0
) -> list[_Placed]:
    """Every block with its role and event; a block of ours (event 0) belongs to the one before. `last` and `start`:
    the event before the first of these messages, and the place of that message."""
    placed: list[_Placed] = []
    for at, (message, events) in enumerate(zip(messages, sources, strict=True), start):
        for block, source in zip(message["content"], events, strict=True):
            last = source or last
            placed.append(_Placed(message["role"], block, last, at))
    return placed


def gather(placed: list[_Placed]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Blocks as messages again: neighbours of one role share a message, results stand first."""
    messages: list[dict[str, Any]] = []
    sources: list[list[int]] = []
    firsts = 0  # results that stand first in the newest message
    for role, block, source, _ in placed:
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
            sources.append([])
            firsts = 0
        at = len(sources[-1])
        if block["type"] == "tool_result":
            at, firsts = firsts, firsts + 1
        messages[-1]["content"].insert(at, block)
        sources[-1].insert(at, source)
    return messages, sources


def joined(before: list[_Placed], after: list[_Placed], event: int) -> list[_Placed]:
    """Both parts in a row; where a reply would follow a reply, or come first, words of ours part
    them: a reply that grew by another's blocks is one that the server did not give."""
    if after and after[0].role == "assistant" and (not before or before[-1].role == "assistant"):
        return [*before, _Placed("user", REMOVED, event), *after]
    return [*before, *after]


def replace_range(
    messages: list[dict[str, Any]], sources: list[list[int]], first: int, last: int, blocks: list[Block], event: int
) -> Rewritten | None:
    """Take events `first` to `last` out and put `blocks`, as the user's, in their place; the new
    blocks belong to `event`. Thinking from the first changed message on goes. None when there is
    nothing of the range in the messages. Messages in which nothing changes are the same objects."""
    stand = _places_by_message(sources)
    hit = [at for at, found in enumerate(stand) if any(first <= place <= last for place in found)]
    if not hit:
        return None
    # a call stands in the message before its result, and may be all that is in it; so one more on either side stays
    low, high = max(0, hit[0] - 2), hit[-1] + 3
    carried = next((source for events in reversed(sources[:low]) for source in reversed(events) if source), 0)
    placed = flatten(messages[low:high], sources[low:high], carried, low)
    gone = [first <= place <= last for found in stand[low:high] for place in found]
    uses = {item.block["id"]: at for at, item in enumerate(placed) if item.block["type"] in ("tool_use", CALL)}
    for at, item in enumerate(placed):
        if item.block["type"] == "tool_result" or is_result(item.block):
            use = uses.get(item.block["tool_use_id"])
            if use is not None and gone[use] != gone[at]:
                gone[use] = gone[at] = True
    where = gone.index(True)
    changed = placed[where].message
    for at in range(where):  # calls of one reply are not parted: all their results come together
        if placed[at].message == changed and placed[at].block["type"] == "tool_use":
            where = at
            break
    bound = [item.message >= changed and item.block["type"] in THINKING for item in placed]
    gone = [out or thought for out, thought in zip(gone, bound, strict=True)]
    before = [item for item, out in zip(placed[:where], gone, strict=False) if not out]
    after = [item for item, out in zip(placed[where:], gone[where:], strict=True) if not out]
    made, made_sources = gather(joined([*before, *(_Placed("user", block, event) for block in blocks)], after, event))
    start = low + shared(made, made_sources, messages[low:high], sources[low:high])
    rest = [_without_thinking(*pair) for pair in zip(messages[high:], sources[high:], strict=True)]
    return Rewritten(
        [*messages[:low], *made, *(message for message, _ in rest)],
        [*sources[:low], *made_sources, *(events for _, events in rest)],
        start,
    )


def _without_thinking(message: dict[str, Any], events: list[int]) -> tuple[dict[str, Any], list[int]]:
    """A message and the events of its blocks; there is text or a call beside thinking always."""
    stays = [block["type"] not in THINKING for block in message["content"]]
    if all(stays):
        return message, events
    kept = [block for block, stay in zip(message["content"], stays, strict=True) if stay]
    return {**message, "content": kept}, [event for event, stay in zip(events, stays, strict=True) if stay]


def _places_by_message(sources: list[list[int]]) -> list[list[int]]:
    """`places` of every block, by message."""
    flat, last = [], 0
    for events in sources:
        for source in events:
            last = source or last
            flat.append(last)
    found = iter(places(flat))
    return [[next(found) for _ in events] for events in sources]


def shared(
    made: list[dict[str, Any]], made_sources: list[list[int]],
    messages: list[dict[str, Any]], sources: list[list[int]],
) -> int:  # fmt: skip
    """Have `made` hold the very messages of `messages` at both ends as far as they are equal, so that what stands
    before and after a change is kept once; how many are at the beginning."""
    start = same_until(made, messages)
    made[:start], made_sources[:start] = messages[:start], sources[:start]
    end = 1
    while end <= min(len(made), len(messages)) - start and made[-end] == messages[-end]:
        made[-end] = messages[-end]
        if made_sources[-end] == sources[-end]:
            made_sources[-end] = sources[-end]
        end += 1
    return start


def places(sources: list[int]) -> list[int]:
    """Where blocks of these events stand, as events. What replaced an old range is younger than what
    follows it and stands before it all the same: it counts as just before what follows."""
    found: list[int] = []
    following: int | None = None
    for source in reversed(sources):
        following = source if following is None or source <= following else following - 1
        found.append(following)
    return found[::-1]


def appended_after(messages: list[dict[str, Any]], sources: list[list[int]], event: int) -> list[_Placed]:
    """The blocks that came after an event."""
    return [item for item in flatten(messages, sources) if item.source > event]


def same_until(some: list[dict[str, Any]], others: list[dict[str, Any]]) -> int:
    """How many messages are the same from the beginning on."""
    at = 0
    while at < min(len(some), len(others)) and some[at] == others[at]:
        at += 1
    return at
