"""Finished turns, each shown as its request and a short account of what was done, near the window's end.

The account costs no model call: a finished turn has ended in an answer, and that, with the calls that
led to it, is its summary. It stands in place, a file that it names keeps the detail, `DecisionUndone` brings it
back. All turns that are worth it collapse in one batch, oldest first, so that the cache breaks once;
the newest finished turn and the one under way stay whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from ipyagent.context.removed_content import STEM, left_ranges
from ipyagent.escape import cut
from ipyagent.journal.events import Block, Event, LayerDecision, TurnCollapsed
from ipyagent.journal.protocols import LayerContext, Moment
from ipyagent.journal.tokens import estimate_block, estimate_blocks

KEPT_TURNS = 1
"""Finished turns, the newest, that stay whole."""
AIM = 0.6
"""Share of the window's effective part to come down to: a batch is worth its cache break."""
ANSWER_CHARS = 1_500
CALL_CHARS = 80
CALLS = 12
"""Calls that are named one by one, the newest."""


class Collapse:
    """The layer; off by default. While it is on, automatic compaction waits for the server's refusal."""

    name = "collapse"
    order = 40
    moments: frozenset[Moment] = frozenset({"request"})

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """TurnCollapsed events, oldest turn first, when the mark `collapse_percent` is reached."""
        mark = now.state.effective * int(now.setting("collapse_percent")) // 100
        if now.state.tokens < mark or not now.view.editable:
            return ()
        to_go = now.state.tokens - int(now.state.effective * AIM)
        made: list[TurnCollapsed] = []
        accounts: list[list[Block]] = []
        total = 0
        for first, last, blocks in _finished(now):
            shown = account(blocks, f"{STEM}1.txt")
            stand = estimate_blocks(blocks) - now.view.left_out.of(blocks)
            saved = now.view.scaled(stand - estimate_block(shown))
            if saved < estimate_block(shown):
                continue
            made.append(TurnCollapsed(first=first, last=last, blocks=(shown,), saved=saved))
            accounts.append(blocks)
            total += saved
            if total >= to_go:
                break
        if made:
            turns = f"{len(made)} finished turn{'s' * (len(made) != 1)}"
            left = left_ranges(now.view, now.folder, [(event.first, event.last) for event in made])
            failed = left.write() if left is not None and not now.dry else ""
            path = left.path if left is not None and not failed else ""
            made = [
                msgspec.structs.replace(event, blocks=(account(gone, path),))
                for event, gone in zip(made, accounts, strict=True)
            ]
            at = f"{now.state.tokens:,} tokens (threshold {mark:,})"
            words = f"collapsed {turns} at {at}, about {total:,} tokens less"
        else:
            words = f"{now.state.tokens:,} tokens, threshold {mark:,}: no finished turn is worth collapsing"
        return (*made, LayerDecision(layer=self.name, words=words, saved=total))


def _finished(now: LayerContext) -> Iterable[tuple[int, int, list[Block]]]:
    """For each finished turn, oldest first: the range of events behind its request, and the blocks
    of it that stand in the view."""
    starts = now.turn_starts
    placed = now.view.placed()
    for begin, end in pairwise(starts[:-KEPT_TURNS]):
        inside = [(role, block, source) for role, block, source in placed if begin < source < end]
        # words of the user's side are a summary, a restored file, a reminder: they stay, and what is before them
        told = [source for role, block, source in inside if role == "user" and block["type"] != "tool_result"]
        first = max(told, default=begin) + 1
        blocks = [block for _, block, source in inside if source >= first]
        if blocks:
            yield first, end - 1, blocks


def account(blocks: Sequence[Block], path: str = "") -> Block:
    """What was done, in short: the calls with their arguments, and the last words of the turn; `path` is the
    file that holds it whole."""
    calls = [block for block in blocks if block["type"] == "tool_use"]
    texts = [str(block["text"]) for block in blocks if block["type"] == "text"]
    where = f"it is kept whole in {path}" if path else "its details are in the session's transcript only"
    lines = ["<collapsed>", f"This earlier turn is shown short; {where}."]
    if calls:
        left_out = len(calls) - CALLS
        lines.append(f"{len(calls)} calls:" if left_out <= 0 else f"{len(calls)} calls, the last {CALLS}:")
        given = [(call["name"], json.dumps(call["input"], ensure_ascii=False)) for call in calls[-CALLS:]]
        lines += [f"- {name} {cut(words, CALL_CHARS)}" for name, words in given]
    if texts:
        lines += ["It ended with:", cut(texts[-1], ANSWER_CHARS)]
    return {"type": "text", "text": "\n".join([*lines, "</collapsed>"])}


collapse = Collapse()
