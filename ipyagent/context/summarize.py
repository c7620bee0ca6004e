"""Full compaction: one model call in a fork that shares the cached prefix writes the summary.

Either there is a sound summary and a boundary that makes the context smaller, or the conversation stays
exactly as it was and CompactionFailed says why."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from math import ceil
from typing import Any

import msgspec

from ipyagent.context.boundary import (
    SHOWN,
    Range,
    boundary,
    head_of,
    newest_results,
    request_blocks_of,
    said_before,
    said_in,
    too_large,
    whole_turns,
)
from ipyagent.context.notes import noted, notes_before, notes_beside
from ipyagent.context.removed_content import left_ranges, main_argument
from ipyagent.errors import CompactionFailed, CompactionTooLong, ImageRefused, PromptTooLong, TooLarge
from ipyagent.journal.blocks import CACHE_SECONDS, PICTURES, THINKING, text_block
from ipyagent.journal.events import Block, Event, LayerDecision
from ipyagent.journal.message_list import ToolResultRef
from ipyagent.journal.protocols import Forked, ForkOrder, LayerContext, Moment
from ipyagent.journal.tokens import estimate_block, estimate_blocks, estimate_text

# ---- A copy of the messages for a call that does not fit whole: by how much, and what is shortened or left out.
# What can be had again goes first (pictures, tool results, the newest first, because what stands before them stays
# in the provider's cache), then the oldest API rounds, in whose place stands what the order carries of them, then
# the middle of the longest texts. The copy keeps the API's rules: thinking whose prefix has changed goes, and
# because the newest reply may not go without its thinking as long as its calls stand, those calls and their results
# become words.

LEFT_OUT = "(earlier parts of the conversation are left out here)"
CUT = "[… {chars:,} characters are left out of this copy{again} …]"
AGAIN = "; the tool can give them again"
SHORT = 300
"""Tokens that are left of a tool result where it must be shortened most."""
UNREAD_SHARE = 0.2
"""Share of the rounds that goes when the server does not say by how much the prompt is too long."""
_NUMBERS = re.compile(r"(?<!\d)(\d[\d,]{0,19})(?>\D{1,200}?(?:>|of|exceeds?))\D{0,200}+(\d[\d,]{0,19})")


def stated_gap(message: str) -> int:
    """The tokens by which a server says the prompt is too long ("N tokens > M maximum"); 0 when it
    does not say."""
    match = _NUMBERS.search(message)
    if match is None:
        return 0
    have, limit = (int(number.replace(",", "")) for number in match.groups())
    return max(0, have - limit)


def rounds_to_drop(messages: list[dict[str, Any]], dropped: int, need: int, factor: float) -> int:
    """How many of the oldest rounds to leave out, `dropped` of them being left out already: enough for
    `need` further tokens (0: not known, then a fixed share more), and never the newest round. A round
    is a reply with what was said or answered before it."""
    starts = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    most = max(0, len(starts) - 1)
    if not need:
        return min(most, dropped + max(1, ceil(UNREAD_SHARE * len(starts))))
    at = starts[dropped] if dropped and dropped < len(starts) else 0
    gone = 0.0
    while dropped < most and gone < need:
        dropped += 1
        gone += factor * sum(estimate_blocks(message["content"]) for message in messages[at : starts[dropped]])
        at = starts[dropped]
    return dropped


def results_to_shorten(spots: Sequence[ToolResultRef], before: Mapping[str, int], need: float) -> dict[str, int]:
    """Characters to keep of tool results, by call, so that this frees `need` estimated tokens (0: not known, then all
    that there is to free) on top of what `before` says: the newest first."""
    keep, freed = dict(before), 0.0
    for spot in reversed(spots):
        stands = spot.tokens * min(1.0, before.get(spot.call, spot.chars) / max(1, spot.chars))
        if spot.cleared or spot.is_error or stands < 2 * SHORT or (need and freed >= need):
            continue
        left = max(SHORT, stands - (need - freed) * 1.2) if need else SHORT
        keep[spot.call] = int(spot.chars * left / spot.tokens)
        freed += stands - left
    return keep


def texts_to_shorten(messages: list[dict[str, Any]], need: float) -> int:
    """Characters to keep of each text, so that this frees `need` estimated tokens as far as it can."""
    texts = [str(block["text"]) for message in messages for block in message["content"] if block["type"] == "text"]
    sizes = sorted(((estimate_text(text), len(text)) for text in texts), reverse=True)
    most, chars = 0, 0
    for at, (size, length) in enumerate(sizes, 1):
        below = max(SHORT, sizes[at][0] if at < len(sizes) else 0)
        if size <= SHORT:
            break
        free = at * (size - below)
        most = round(size - need / at) if free >= need else below
        chars, need = max(SHORT, most) * length // size, need - free
        if need <= 0:
            break
    return chars


# ---------------------------------------------------------------------- the copy


def shortened(messages: list[dict[str, Any]], order: ForkOrder) -> list[dict[str, Any]]:
    """The messages as the order wants them; the same list when it wants them whole. What is carried stays as it is."""
    starts = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    changed = len(messages)
    made = messages
    if order.drop_first and starts:
        dropped = min(order.drop_first, len(starts) - 1)
        first = {"role": "user", "content": [*order.carried, text_block(LEFT_OUT)]}
        made, changed = [first, *messages[starts[dropped] :]], 0
    if order.without_pictures or order.shorten or order.text_chars or not changed:
        carried = not changed
        bare = [message if carried and not at else _plainer(message, order) for at, message in enumerate(made)]
        changed = min([changed, *(at for at, new in enumerate(bare) if new is not made[at])])
        made = bare
    if changed == len(messages):
        return messages
    newest = max((at for at, message in enumerate(made) if message["role"] == "assistant"), default=-1)
    if newest > changed:
        made = _in_words(made)
    made = [
        message if at < changed
        else {**message, "content": [block for block in message["content"] if block["type"] not in THINKING]}
        for at, message in enumerate(made)
    ]  # fmt: skip
    return [message for message in made if message["content"]]


def _plainer(message: dict[str, Any], order: ForkOrder) -> dict[str, Any]:
    """The message with shortened results, and words for pictures; the same when nothing changes."""
    content = [_plain(block, order) for block in message["content"]]
    same = all(new is old for new, old in zip(content, message["content"], strict=True))
    return message if same else {**message, "content": content}


def _plain(block: Block, order: ForkOrder) -> Block:
    if block["type"] in PICTURES:
        return text_block(f"[{block['type']}]") if order.without_pictures or order.drop_first else block
    if block["type"] == "text" and order.text_chars > 0 and _is_cut(len(block["text"]), order.text_chars):
        return {**block, "text": _cut(str(block["text"]), order.text_chars)}
    if block["type"] != "tool_result":
        return block
    parts = _parts(block)
    plain = [_plain(part, order) for part in parts]
    room = order.shorten.get(block["tool_use_id"])
    if room is not None:
        texts = "\n".join(str(part["text"]) for part in plain if part["type"] == "text")
        if _is_cut(len(texts), room, AGAIN):
            plain = [text_block(_cut(texts, room, AGAIN)), *(part for part in plain if part["type"] != "text")]
    same = len(plain) == len(parts) and all(new is old for new, old in zip(plain, parts, strict=True))
    return block if same else {**block, "content": plain}


def _is_cut(chars: int, room: int, again: str = "") -> bool:
    """Whether a text of so many characters is shortened to `room`: not where the words about it would be as long."""
    return chars - room > len(CUT.format(chars=chars - room, again=again)) + 2


def _cut(text: str, room: int, again: str = "") -> str:
    """A text in about `room` characters: its beginning and its end."""
    head = room * 2 // 3
    return f"{text[:head]}\n{CUT.format(chars=len(text) - room, again=again)}\n{text[len(text) - (room - head) :]}"


def _parts(result: Block) -> list[Block]:
    return result["content"] if isinstance(result["content"], list) else [text_block(str(result["content"]))]


def _in_words(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the calls of the newest reply and their results as words, if it has any."""
    at = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    calls = {b["id"]: b for b in (messages[at]["content"] if at >= 0 else ()) if b["type"] == "tool_use"}
    if not calls:
        return messages
    said = [
        text_block(f"[called {block['name']}: {json.dumps(block['input'], ensure_ascii=False)}]")
        if block["type"] == "tool_use" else block for block in messages[at]["content"]
    ]  # fmt: skip
    following = messages[at + 1 :]
    if following:
        first, *rest = following
        answers: list[Block] = []
        for block in first["content"]:
            if block["type"] == "tool_result" and block["tool_use_id"] in calls:
                answers += [text_block(f"[result of {calls[block['tool_use_id']]['name']}]"), *_parts(block)]
            else:
                answers.append(block)
        following = [{"role": "user", "content": answers}, *rest]
    return [*messages[:at], {"role": "assistant", "content": said}, *following]


TRIES = 3
"""Copies without the oldest rounds that are tried when the compaction call itself is too long."""
LOST = (
    "\n\nThe oldest part of the conversation did not fit and is left out of this copy. What was written of it before, "
    "and what the user said in it, stands first: carry all of it over. The user's newest request is: {request}"
)
NOTES = "Notes that were kept during the part that is left out:\n<notes>\n{notes}\n</notes>"
NOTES_PART = 4
"""The notes that stand beside a summary may be this part of what goes, and half of what the summary wins."""
TOO_LITTLE = "there is nothing to compact: "
WHOLE_BESIDE = (
    "\n\nWhat these newest calls returned is shortened in this copy only: its text stays whole beside the summary, for "
    "the work on the request to go on with. Do not say that it is lost.\n{calls}"
)
LEFT_BEHIND = (
    "\n\nWhat these calls returned is shortened in this copy and does not stay beside the summary; it is kept whole in "
    "{path}, which the summary may name:\n{calls}"
)
LITTLE = 400
"""Tokens of a range that no summary makes smaller."""
ASKED_LITTLE = 2_000
"""The same where the model asks by itself, in the middle of a turn: what came in its place took 1,100 and 1,300 tokens
in two short recorded sessions, and the call for it is paid too."""
PURPOSE = "compaction"
"""How the fork that writes a summary is named in the journal."""
UNUSABLE = ("no summary in the reply", "no summary: the model called", "no summary: it ", "the summary is longer")
"""How the faults begin that are the model's own, which it is told of when it is asked again."""
UNUSED = (
    "An earlier attempt at this summary could not be used ({why}). Write the summary itself, short enough, between "
    "<summary> and </summary>."
)
_ANALYSIS = re.compile(r"<analysis>.*?(?:</analysis>|(?=<summary>)|\Z)", re.DOTALL)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>\s*\Z|\Z)", re.DOTALL)


class SummarizeLayer:
    """Summarises everything, or the whole turns that `first` and `last` come to."""

    name = "summarize"
    order = 60
    moments: frozenset[Moment] = frozenset(("mark", "overflow"))

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """One Compacted; or LayerDecision, without a call, where no compaction can help. Raises
        CompactionFailed and ModelError."""
        if now.view.open_calls:
            raise CompactionFailed("tool calls are open; the compaction waits for their results")
        kept = request_blocks_of(now)
        if line := too_large(now, kept):
            return (LayerDecision(layer=self.name, words=line),)
        gone = whole_turns(now.view, now.turn_starts, now.first, now.last)
        stays = said_before(gone.blocks) + notes_before(gone.blocks) if now.moment != "overflow" else 0
        may_go = max(0, gone.tokens - stays - (estimate_blocks(kept) if gone.tail else 0))
        least = ASKED_LITTLE if now.trigger == "model" else LITTLE
        if may_go < least:
            words = f"of {gone.words} about {may_go:,} tokens could go, and a summary pays from {least:,} on"
            return (LayerDecision(layer=self.name, words=TOO_LITTLE + words),)
        hooked = await now.hook("pre_compact", {"trigger": now.trigger, "instructions": now.instructions})
        wishes = [text for text in (now.instructions, *hooked) if text.strip()]
        fresh = newest_results(now, gone)
        forked = await _ask(now, gone, directive(now, gone, wishes), dict.fromkeys(fresh, SHOWN))
        summary = summary_in(forked)
        if estimate_text(summary) >= gone.tokens:
            raise CompactionFailed(
                f"the summary is longer than what it replaces ({estimate_text(summary):,} tokens for {gone.tokens:,})"
            )
        head = head_of(summary, gone)
        notes = notes_beside(now, gone, _room_beside(now, gone, [*head, *(kept if gone.tail else ())]))
        try:
            made = await boundary(now, gone, "summary", [*head, *notes], kept, fresh)
        except CompactionFailed:  # with what stood of them before it would be no smaller
            if not notes:
                raise
            made = await boundary(now, gone, "summary", head, kept, fresh)
        if gone.snapped:
            return (made, LayerDecision(layer=self.name, words=f"the range was made whole turns: {gone.words}"))
        return (made,)


def _room_beside(now: LayerContext, gone: Range, stands: Sequence[Block]) -> int:
    """Estimated tokens for notes where `stands` comes in the range's place: at most half of what is won, so that as
    much is left for what the user said and for the work to go on, but never less than what stood of them before."""
    won, tokens = gone.tokens - estimate_blocks(stands), now.view.count().tokens
    below = min(now.state.auto_mark, tokens - now.gap) - tokens
    stood = notes_before(gone.blocks) if now.moment != "overflow" else 0
    return max(
        stood, min(gone.tokens // NOTES_PART, won // 2, (won + round(below / now.view.calibration.factor)) // 2)
    )


def directive(now: LayerContext, gone: Range, wishes: Sequence[str]) -> str:
    """What the fork is told: the prompt, the range, the wishes of the user and of hooks in this order."""
    parts = [files("ipyagent.context").joinpath("summarize_prompt.md").read_text(encoding="utf-8").strip()]
    if not gone.whole:
        parts.append(
            f"Summarise only {gone.words} of the conversation, the rest stays as it is"
            + _quoted(" The part begins with: ", gone.blocks[0])
            + _quoted(" It ends with: ", gone.blocks[-1])
        )
    if now.no_summary.startswith(UNUSABLE):
        parts.append(UNUSED.format(why=now.no_summary))
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


def _room(now: LayerContext) -> int:
    """Tokens that the summary may have: what the window keeps free for it."""
    return max(256, now.state.window - now.state.effective)


def _left(now: LayerContext, words: str) -> int:
    """Tokens of the window that the conversation and `words` behind it leave."""
    return now.state.window - now.view.count().tokens - round(now.view.calibration.factor * estimate_text(words))


def _is_enough(left: int, room: int) -> bool:
    """Whether a summary can be had in `left` tokens where `room` are kept free for it: a shorter one then,
    read from cache. With less it would be cut off; the oldest rounds go instead."""
    return room // 2 <= left < room


async def _ask(now: LayerContext, gone: Range, words: str, shorten: dict[str, int]) -> Forked:
    """The fork's answer; of shorter and shorter copies when the whole does not fit. What `shorten` names stays whole
    beside the summary; what else is shortened of the range is told with its file."""
    factor, messages = now.view.calibration.factor, now.view.messages
    room = _room(now)
    order = ForkOrder(
        purpose=PURPOSE, directive=words, max_tokens=room, without_pictures=_bare_is_cheaper(now), shorten=shorten
    )
    left = _left(now, words) + (round(factor * (_size(messages) - _size(shortened(messages, order)))) if shorten else 0)
    if now.gap:
        order = _shorter(now, order, now.gap + round(factor * estimate_text(words)) + room)
    elif left < room and not _is_enough(left, room):
        order = _shorter(now, order, room - left)
    tried = 0
    while True:
        try:
            told = order.directive + _told_short(now, gone, order, shorten)
            forked = await now.fork(msgspec.structs.replace(order, directive=told))
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
        shorter = _shorter(now, order, need)
        fewer = (shorter.text_chars, shorter.carried) != (order.text_chars, order.carried)
        tried += shorter.drop_first > order.drop_first or fewer
        if shorter == order or tried > TRIES:
            break
        order = shorter
    raise CompactionTooLong(
        f"the compaction call does not fit the window of {now.state.window:,} tokens, even when it is shortened and "
        f"leaves out {order.drop_first} of {sum(m['role'] == 'assistant' for m in messages)} rounds: start a new "
        "session with %agent new"
    )


def _told_short(now: LayerContext, gone: Range, order: ForkOrder, stay: Collection[str]) -> str:
    """Which results of the range the copy of `order` shortens: those that `stay` whole, and where the others are."""
    starts = [at for at, message in enumerate(now.view.messages) if message["role"] == "assistant"]
    since = starts[min(order.drop_first, len(starts) - 1)] if order.drop_first and starts else 0
    leaves = {block["tool_use_id"] for block in gone.blocks if block["type"] == "tool_result"}
    given = {block["id"]: block["input"] for block in gone.blocks if block["type"] == "tool_use"}
    whole: list[str] = []
    behind: list[str] = []
    for spot in now.view.results:
        room = order.shorten.get(spot.call, spot.chars)
        cut = not spot.cleared and spot.message >= since and _is_cut(spot.chars, room, AGAIN)
        if cut and spot.call in leaves:
            argument = main_argument(given.get(spot.call, {}))
            line = f"- {spot.tool}: {argument}" if argument else f"- {spot.tool}"
            (whole if spot.call in stay else behind).append(line)
    said = WHOLE_BESIDE.format(calls="\n".join(whole)) if whole else ""
    if behind and (left := left_ranges(now.view, now.folder, [(gone.first, gone.last)])):
        said += LEFT_BEHIND.format(path=left.path, calls="\n".join(behind))
    return said


def _shorter(now: LayerContext, order: ForkOrder, need: int) -> ForkOrder:
    """The order with less of the conversation, by `need` tokens (0: not known): without pictures, if that is enough, or
    with shorter results, both of which can be had again, then without the oldest rounds, then with shorter texts."""
    factor, messages, replace = now.view.calibration.factor, now.view.messages, msgspec.structs.replace
    most = _size(shortened(messages, order)) - need / factor

    def over(order: ForkOrder) -> float:
        """Estimated tokens that are too many still; 0 also where it is not known how many are."""
        return max(0.0, _size(shortened(messages, order)) - most) if need else 0.0

    bare = replace(order, without_pictures=True)
    pictures = not order.without_pictures and any(_picture_tokens(b) for m in messages for b in m["content"])
    if pictures and not over(bare):
        return bare  # also when the need is not known: pictures are the first suspects
    spots = [spot for spot in now.view.results if spot.tool in now.recreatable or spot.kept]
    for _ in range(3):  # how much goes is measured each time
        keep = results_to_shorten(spots, order.shorten, over(order))
        if keep == order.shorten:
            break
        order = replace(order, shorten=keep)
        if not over(order):
            return order  # with its pictures: the first of them may stand far before these, and the cache ends there
    order = replace(order, without_pictures=order.without_pictures or pictures)
    dropped, lacks = order.drop_first, over(order)
    for _ in range(2):  # what is carried in their place takes room too
        drop = rounds_to_drop(messages, dropped, round(factor * lacks), factor)
        order = replace(order, drop_first=drop, carried=_carried(now, drop))
        lacks += over(order)
        if not over(order):
            break
    if drop and not dropped and now.request is not None:
        lost = LOST.format(request=now.request.text[:4_000])
        order = replace(order, directive=order.directive + lost)
    if drop > dropped and not over(order):
        return order
    copy = shortened(messages, order)[1 if order.carried else 0 :]
    chars = texts_to_shorten(copy, over(order) or _size(copy) / 4)
    if chars or drop > dropped or not order.carried:
        return replace(order, text_chars=chars) if chars else order
    # the user's words and earlier summaries are cut last: nothing else of the copy has them
    chars = texts_to_shorten([{"content": list(order.carried)}], over(order) or estimate_blocks(order.carried) / 4)
    cut = ({**block, "text": _cut(text, chars)} if _is_cut(len(text := str(block["text"])), chars) else block
           for block in order.carried)  # fmt: skip
    return replace(order, carried=tuple(cut)) if chars > 0 else order


def _size(messages: list[dict[str, Any]]) -> int:
    return sum(estimate_blocks(message["content"]) for message in messages)


def _carried(now: LayerContext, drop: int) -> tuple[Block, ...]:
    """What stands for the oldest `drop` rounds: what earlier decisions put there (a summary), the session's notes as
    far as they reach beyond that, and what the user said since."""
    starts = [at for at, message in enumerate(now.view.messages) if message["role"] == "assistant"]
    if not drop or not starts:
        return ()
    cut = starts[min(drop, len(starts) - 1)]
    gone = now.view.placed()[: sum(len(message["content"]) for message in now.view.messages[:cut])]
    before = now.view.replacements
    stood = [block for role, block, source in gone if source in before and role == "user"]
    since = gone[0][2] if gone[0][2] in before else 0
    if since < now.noted and any(since < source <= now.noted for _, _, source in gone) and (notes := noted(now)):
        stood.append(text_block(NOTES.format(notes=notes)))
    here = {source for _, _, source in gone}
    but = now.request.id if now.request is not None else 0
    room = estimate_blocks(block for _, block, _ in gone) // 4  # something must be won
    return (*stood, *said_in(now, min(here), max(here), room, but=but, among=here))


def _picture_tokens(block: Block) -> int:
    """Estimated tokens of images and documents in a block, also in results."""
    if block["type"] in PICTURES:
        return estimate_block(block)
    inner = block.get("content") if block["type"] == "tool_result" else None
    return sum(_picture_tokens(part) for part in inner) if isinstance(inner, list) else 0


def _bare_is_cheaper(now: LayerContext) -> bool:
    """Whether a copy without pictures costs less: it leaves the cached prefix at the first of them."""
    behind = pictures = 0
    for message in now.view.messages:
        for block in message["content"]:
            own = _picture_tokens(block)
            pictures += own
            behind += estimate_block(block) if pictures else 0
    if not pictures:
        return False
    warm = now.idle < CACHE_SECONDS[now.setting("cache_ttl")] and now.setting("prompt_cache")
    cached, anew = (now.rates.read, now.rates.write) if warm else (now.rates.input, now.rates.input)
    return (behind - pictures) * anew < behind * cached


summarize = SummarizeLayer()
