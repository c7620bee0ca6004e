"""Which part of the conversation goes: whole turns, never half a turn.

A range is given in events and snapped to turns: its start back to the first event of its turn, its end
on to the last. What an earlier decision put in the place of turns goes with all of them, never with one: what it says
of the others would be lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ipyagent.errors import CompactionFailed
from ipyagent.journal.events import Block
from ipyagent.journal.rewriting import places
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.journal.view import ContextView


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Events `first` to `last` with their blocks in the view. `tokens` is estimated, uncalibrated, without what the
    server leaves out; `words` names the range for the user; `tail`: it reaches to the newest event; `snapped`: it
    was made larger so that it holds whole turns."""

    first: int
    last: int
    blocks: tuple[Block, ...]
    tokens: int
    words: str
    whole: bool
    tail: bool
    snapped: bool = False


def whole_turns(view: ContextView, starts: Sequence[int], first: int = 0, last: int = 0) -> Range:
    """The turns that events `first` to `last` (0: open) come to. Raises CompactionFailed when nothing
    of them is in the view."""
    placed = view.placed()
    stand = places([source for _, _, source in placed])
    newest = max((source for _, _, source in placed), default=0)
    begins = sum(start <= first for start in starts) if first else 0
    ends = sum(start <= last for start in starts) if last else len(starts)
    begin = starts[begins - 1] if begins > 1 else 1
    end = max(newest, starts[-1] if starts else 0) if ends >= len(starts) else starts[ends] - 1
    replaced = view.replacements
    asked = begin
    for (_, _, source), place in reversed([*zip(placed, stand, strict=True)]):
        if begin <= place <= end and source in replaced:
            begin = min(begin, replaced[source][0])
    if begin < asked:
        begins = sum(start <= begin for start in starts)
        begin = starts[begins - 1] if begins > 1 else 1
    blocks = tuple(block for (_, block, _), place in zip(placed, stand, strict=True) if begin <= place <= end)
    if not blocks:
        raise CompactionFailed("these turns were compacted before, nothing of them is left: choose later ones")
    one = f"turn {max(begins, 1)}"
    return Range(
        first=begin,
        last=end,
        blocks=blocks,
        tokens=estimate_blocks(blocks) - view.left_out.of(blocks),
        words=one if ends <= max(begins, 1) else f"{one.replace('turn', 'turns')} to {ends}",
        whole=len(blocks) == len(placed),
        tail=end >= newest,
        snapped=bool(begin < asked or (begins > 1 and first != begin) or (last and ends < len(starts) and last != end)),
    )
