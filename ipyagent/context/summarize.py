"""Full compaction: one model call in a fork that shares the cached prefix writes the summary.

Either there is a sound summary and a boundary that makes the context smaller, or the conversation stays
exactly as it was and CompactionFailed says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

import msgspec

from ipyagent.context.boundary import boundary, head_of, request_blocks_of, too_large
from ipyagent.context.gaps import rounds_to_drop, stated_gap
from ipyagent.context.ranges import Range, whole_turns
from ipyagent.errors import CompactionFailed, CompactionTooLong, ImageRefused, PromptTooLong, TooLarge
from ipyagent.journal.admission import PICTURES
from ipyagent.journal.events import Block, Event, LayerDecided
from ipyagent.journal.protocols import Forked, ForkOrder, Moment, Situation
from ipyagent.journal.tokens import estimate_block, estimate_blocks, estimate_text

TRIES = 3
"""Shorter copies that are tried when the compaction call itself is too long."""
LITTLE = 400
"""Tokens of a range that no summary makes smaller."""
PURPOSE = "compaction"
"""How the fork that writes a summary is named in the journal."""
CACHE_MINUTES = {"5m": 5, "1h": 60}
_ANALYSIS = re.compile(r"<analysis>.*?(?:</analysis>|(?=<summary>)|\Z)", re.DOTALL)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>\s*\Z|\Z)", re.DOTALL)


class SummarizeLayer:
    """Summarises everything, or the whole turns that `first` and `last` come to."""

    name = "summarize"
    order = 60
    moments: frozenset[Moment] = frozenset(("mark", "overflow"))

    async def consider(self, now: Situation) -> Sequence[Event]:
        """One Compacted; or LayerDecided, without a call, where no compaction can help. Raises
        CompactionFailed and ModelError."""
        if now.view.open_calls:
            raise CompactionFailed("tool calls are open; the compaction waits for their results")
        kept = request_blocks_of(now)
        if line := too_large(now, kept):
            return (LayerDecided(layer=self.name, words=line),)
        gone = whole_turns(now.view, now.turn_starts, now.first, now.last)
        if gone.tokens - (estimate_blocks(kept) if gone.tail else 0) < LITTLE:
            words = f"there is nothing to compact: {gone.words}, about {gone.tokens:,} tokens"
            return (LayerDecided(layer=self.name, words=words),)
        hooked = await now.hook("pre_compact", {"trigger": now.trigger, "instructions": now.instructions})
        wishes = [text for text in (now.instructions, *hooked) if text.strip()]
        forked = await _ask(now, directive(now, gone, wishes))
        summary = summary_in(forked)
        if estimate_text(summary) >= gone.tokens:
            raise CompactionFailed(
                f"the summary is longer than what it replaces ({estimate_text(summary):,} tokens for {gone.tokens:,})"
            )
        made = await boundary(now, gone, "summary", head_of(summary, gone), kept)
        if gone.snapped:
            return (made, LayerDecided(layer=self.name, words=f"the range was made whole turns: {gone.words}"))
        return (made,)


def directive(now: Situation, gone: Range, wishes: Sequence[str]) -> str:
    """What the fork is told: the prompt, the range, the wishes of the user and of hooks in this order."""
    parts = [files("ipyagent.context").joinpath("summarize_prompt.md").read_text(encoding="utf-8").strip()]
    if not gone.whole:
        parts.append(
            f"Summarise only {gone.words} of the conversation, the rest stays as it is"
            + _quoted(" The part begins with: ", gone.blocks[0])
            + _quoted(" It ends with: ", gone.blocks[-1])
        )
    told = "Wishes for this summary, the first counts most:\n" + "\n".join(f"- {wish}" for wish in wishes)
    room, left = _room(now), _left(now, "\n\n".join([*parts, told]))
    room = round(0.75 * (left if _is_enough(left, room) else room))
    parts.append(f"There is room for about {room:,} tokens in all, the analysis included; what is longer is cut off.")
    return "\n\n".join([*parts, *([told] if wishes else [])])


def _quoted(lead: str, block: Block) -> str:
    text = " ".join(str(block.get("text", "")).split())[:200]
    return f".{lead}“{text}”" if text else "."


def summary_in(forked: Forked) -> str:
    """The summary of a reply. Raises CompactionFailed for what is none."""
    if forked.status == "refused":
        raise CompactionFailed(f"no summary: {forked.message or 'the model refused'}")
    if forked.called:
        raise CompactionFailed("no summary: the model called a tool instead")
    if forked.stop_reason == "max_tokens":
        raise CompactionFailed("no summary: it was cut off at the output limit (IPyAgent.reserve_tokens)")
    if forked.status != "finished":
        raise CompactionFailed(f"no summary: {forked.message or forked.status}")
    if not forked.text.strip():
        raise CompactionFailed("no summary: the reply is empty")
    found = _SUMMARY.search(_ANALYSIS.sub("", forked.text, count=1))
    if found is None:
        only = " (only an analysis)" if "<analysis>" in forked.text else ""
        raise CompactionFailed(f"no summary in the reply{only}")
    summary = found.group(1).strip()
    if not summary:
        raise CompactionFailed("no summary: it is empty")
    return summary


# ---------------------------------------------------------------------- the call


def _room(now: Situation) -> int:
    """Tokens that the summary may have: what the window keeps free for it."""
    return max(256, now.state.window - now.state.effective)


def _left(now: Situation, words: str) -> int:
    """Tokens of the window that the conversation and `words` behind it leave."""
    return now.state.window - now.view.count().tokens - round(now.view.calibration.factor * estimate_text(words))


def _is_enough(left: int, room: int) -> bool:
    """Whether a summary can be had in `left` tokens where `room` are kept free for it: a shorter one then,
    read from cache. With less it would be cut off; the oldest rounds go instead."""
    return room // 2 <= left < room


async def _ask(now: Situation, words: str) -> Forked:
    """The fork's answer; of shorter and shorter copies when the whole does not fit."""
    factor, messages = now.view.calibration.factor, now.view.messages
    room = _room(now)
    order = ForkOrder(purpose=PURPOSE, directive=words, max_tokens=room, without_pictures=_bare_is_cheaper(now))
    left = _left(now, words)
    if now.gap:
        order = _shorter(now, order, now.gap + round(factor * estimate_text(words)) + room)
    elif left < room and not _is_enough(left, room):
        order = _shorter(now, order, room - left)
    for tried in range(TRIES + 1):
        try:
            forked = await now.fork(order)
        except ImageRefused:
            if order.without_pictures:
                raise
            order = msgspec.structs.replace(order, without_pictures=True)
            continue
        except (PromptTooLong, TooLarge) as problem:
            gap = stated_gap(str(problem)) if isinstance(problem, PromptTooLong) else 0
            need = gap + room if gap else 0
        else:
            cut = forked.stop_reason == "max_tokens" and not order.drop_first and left < room
            if forked.stop_reason != "model_context_window_exceeded" and not cut:
                return forked
            need = room - max(0, left) if cut else room
        if tried < TRIES:
            shorter = _shorter(now, order, need)
            if shorter == order:
                break
            order = shorter
    raise CompactionTooLong(
        f"the compaction call does not fit the window of {now.state.window:,} tokens, also without the oldest "
        f"{order.drop_first} of {sum(m['role'] == 'assistant' for m in messages)} rounds: start afresh with %agent new"
    )


def _shorter(now: Situation, order: ForkOrder, need: int) -> ForkOrder:
    """The order without pictures, and without the oldest rounds where that does not cover `need`
    tokens (0: not known)."""
    factor = now.view.calibration.factor
    if not order.without_pictures and (pictures := _pictures(now)):
        order = msgspec.structs.replace(order, without_pictures=True)
        if need <= round(factor * pictures):
            return order  # also when the need is not known: pictures are the first suspects
        need -= round(factor * pictures)
    drop = rounds_to_drop(now.view.messages, order.drop_first, need, factor)
    if drop and not order.drop_first and now.request is not None:
        lost = "\n\nThe oldest part of the conversation did not fit and is left out. The user's newest request is: "
        order = msgspec.structs.replace(order, directive=order.directive + lost + now.request.text[:4_000])
    return msgspec.structs.replace(order, drop_first=drop)


def _pictures(now: Situation) -> int:
    """Estimated tokens of images and documents in the view, also in results."""
    return sum(_picture_tokens(block) for message in now.view.messages for block in message["content"])


def _picture_tokens(block: Block) -> int:
    if block["type"] in PICTURES:
        return estimate_block(block)
    inner = block.get("content") if block["type"] == "tool_result" else None
    return sum(_picture_tokens(part) for part in inner) if isinstance(inner, list) else 0


def _bare_is_cheaper(now: Situation) -> bool:
    """Whether a copy without pictures costs less: it leaves the cached prefix at the first of them."""
    behind = pictures = 0
    for message in now.view.messages:
        for block in message["content"]:
            own = _picture_tokens(block)
            pictures += own
            behind += estimate_block(block) if pictures else 0
    if not pictures:
        return False
    warm = now.idle < 60 * CACHE_MINUTES.get(now.setting("cache_ttl"), 5) and now.setting("prompt_cache")
    cached, anew = (now.rates.read, now.rates.write) if warm else (now.rates.input, now.rates.input)
    return (behind - pictures) * anew < behind * cached


summarize = SummarizeLayer()
