"""Compaction by the server, where the Models API says that it can: `engine="server"` or `"auto"`.

On demand, at our mark: a request that only compacts gives one signed block, which stands first in the
messages in place of what it summarises. By threshold (`engine="server"` only): the server compacts within
an ordinary request and begins its reply with an unsigned block; what stands before that block the server
ignores from then on, and so it leaves the view as soon as earlier messages may change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ipyagent.context.boundary import boundary, request_blocks_of, said_in, too_large, whole_turns
from ipyagent.context.removed_content import left_ranges
from ipyagent.context.summarize import LITTLE, directive
from ipyagent.errors import CompactionFailed
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import Compacted, Event, SystemReminder
from ipyagent.journal.protocols import ForkOrder, LayerContext, Moment, WindowState
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.journal.view import ContextView

NAME = "server_compaction"
EDIT = "compact_20260112"
LEAST_TRIGGER = 50_000
"""Smallest trigger that the API takes, in input tokens (its documentation, November 2026)."""
BEFORE = "(the server has summarised what was here)"
SWEPT = "The conversation before the provider's summary has left the context window."


class ServerCompaction:
    """Before ours: a boundary whose first block is the server's summary."""

    name = NAME
    order = 55
    moments: frozenset[Moment] = frozenset(("mark", "request"))

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """One Compacted, or nothing. Raises CompactionFailed and ModelError."""
        engine = now.setting("engine")
        if now.moment == "request":
            return _swept(now) if engine == "server" else ()
        if engine == "client" or not now.server_compaction or now.moment == "overflow" or now.first or now.last:
            return ()
        if now.view.open_calls:
            raise CompactionFailed("tool calls are open; the compaction waits for their results")
        kept = request_blocks_of(now)
        if too_large(now, kept):
            return ()
        gone = whole_turns(now.view, now.turn_starts)
        if gone.tokens - estimate_blocks(kept) < LITTLE:
            return ()
        hooked = await now.hook("pre_compact", {"trigger": now.trigger, "instructions": now.instructions})
        wishes = [text for text in (now.instructions, *hooked) if text.strip()]
        forked = await now.fork(
            ForkOrder(
                purpose="compaction",
                directive=directive(now, gone, wishes) if wishes else "",
                max_tokens=max(256, now.state.window - now.state.effective),
                by_server=True,
            )
        )
        if forked.block is None:
            raise CompactionFailed(f"the server made no summary: {forked.message or forked.status}")
        return (await boundary(now, gone, "server", [forked.block], kept),)


def compaction_edit(setting: Callable[[str], Any], state: WindowState, view: ContextView) -> dict[str, Any] | None:
    """The edit by which the server compacts within a request, before our mark is reached; None when it
    is not wanted or not possible."""
    trigger = state.error_mark
    if setting("engine") != "server" or not setting("layer_server_compaction") or trigger < LEAST_TRIGGER:
        return None
    first = view.messages[0]["content"] if view.messages else []
    if any(block["type"] == "compaction" and block.get("signature") for block in first):
        return None  # the API takes no threshold on top of a signed block
    return {"type": EDIT, "trigger": {"type": "input_tokens", "value": trigger}}


def _swept(now: LayerContext) -> Sequence[Event]:
    """The boundary at the newest block of the server's that stands in a reply, if there is something
    before it."""
    view = now.view
    placed = view.placed()
    at = max(
        (
            at
            for at, (role, block, _) in enumerate(placed)
            if role == "assistant" and block["type"] == "compaction" and block.get("content")
        ),
        default=0,
    )
    before = [block for _, block, _ in placed[:at]]
    if not before or before == [text_block(BEFORE)] or not view.editable:
        return ()
    made = Compacted(
        trigger="auto", method="server", first=1, last=placed[at][2] - 1, blocks=(text_block(BEFORE),)
    )
    after = view.tokens_after(made)
    if after is None:
        return ()
    tokens = round((view.head_tokens + estimate_blocks(block for _, block, _ in placed)) * view.calibration.factor)
    made = msgspec.structs.replace(made, tokens_before=tokens, tokens_after=after)
    # not in the blocks: the server ignores what stands before its own, so the newest message says it
    left = left_ranges(view, now.folder, [(made.first, made.last)])
    where, why = SWEPT, "The provider summarised the conversation"
    if left is not None and not left.write():
        where, why = f"{SWEPT} {left.told('It')}", f"What the provider summarised is kept in {left.path}"
    texts = [f"<context>\n{where}\n</context>"]
    room = round(max(0, now.state.auto_mark - after) / 2 / view.calibration.factor)  # the rest is for what comes
    texts += [str(block["text"]) for block in said_in(now, made.first, made.last, room)]
    if texts[1:]:
        why += "; what the user said in it is kept"
    elif where == SWEPT:
        return (made,)
    told = [SystemReminder(text=text, tokens=estimate_text(text), layer=NAME, upto=made.last) for text in texts]
    more = round(sum(event.tokens for event in told) * view.calibration.factor)
    made = msgspec.structs.replace(made, tokens_after=after + more)
    return (made, msgspec.structs.replace(told[0], why=why), *told[1:])


server_compaction = ServerCompaction()
