"""A copy of the messages for a call that does not fit whole: by how much, and what is shortened or left out.

What can be had again goes first (pictures, tool results, the newest first, because what stands before them stays in
the provider's cache), then the oldest API rounds, in whose place stands what the order carries of them, then the middle
of the longest texts. The copy keeps the API's rules: thinking whose prefix has changed goes, and because the newest
reply may not go without its thinking as long as its calls stand, those calls and their results become words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from ipyagent.journal.admission import PICTURES, THINKING, text_block
from ipyagent.journal.events import Block
from ipyagent.journal.protocols import ForkOrder
from ipyagent.journal.spots import ToolResultRef
from ipyagent.journal.tokens import estimate_blocks, estimate_text

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
    made = [message if at < changed else _without_thinking(message) for at, message in enumerate(made)]
    return [message for message in made if message["content"]]


def cut_texts(blocks: Sequence[Block], need: float) -> tuple[Block, ...]:
    """Blocks of text cut in their middle, so that this frees `need` estimated tokens as far as it can."""
    chars = texts_to_shorten([{"content": list(blocks)}], need)
    long = [bool(chars) and len(str(block["text"])) > chars for block in blocks]
    return tuple(
        {**block, "text": _cut(str(block["text"]), chars)} if cut else block
        for block, cut in zip(blocks, long, strict=True)
    )


def _plainer(message: dict[str, Any], order: ForkOrder) -> dict[str, Any]:
    """The message with shortened results, and words for pictures; the same when nothing changes."""
    content = [_plain(block, order) for block in message["content"]]
    same = all(new is old for new, old in zip(content, message["content"], strict=True))
    return message if same else {**message, "content": content}


def _plain(block: Block, order: ForkOrder) -> Block:
    if block["type"] in PICTURES:
        return text_block(f"[{block['type']}]") if order.without_pictures or order.drop_first else block
    if block["type"] == "text" and 0 < order.text_chars < len(block["text"]):
        return {**block, "text": _cut(str(block["text"]), order.text_chars)}
    if block["type"] != "tool_result":
        return block
    parts = _parts(block)
    plain = [_plain(part, order) for part in parts]
    room = order.shorten.get(block["tool_use_id"])
    if room is not None:
        texts = "\n".join(str(part["text"]) for part in plain if part["type"] == "text")
        if len(texts) > room:
            plain = [text_block(_cut(texts, room, AGAIN)), *(part for part in plain if part["type"] != "text")]
    same = len(plain) == len(parts) and all(new is old for new, old in zip(plain, parts, strict=True))
    return block if same else {**block, "content": plain}


def _cut(text: str, room: int, again: str = "") -> str:
    """A text in about `room` characters: its beginning and its end."""
    head = room * 2 // 3
    return f"{text[:head]}\n{CUT.format(chars=len(text) - room, again=again)}\n{text[len(text) - (room - head) :]}"


def _parts(result: Block) -> list[Block]:
    return result["content"] if isinstance(result["content"], list) else [text_block(str(result["content"]))]


def _without_thinking(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": [block for block in message["content"] if block["type"] not in THINKING]}


def _in_words(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the calls of the newest reply and their results as words, if it has any."""
    at = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    calls = {b["id"]: b for b in (messages[at]["content"] if at >= 0 else ()) if b["type"] == "tool_use"}
    if not calls:
        return messages
    said = [_told(block) if block["type"] == "tool_use" else block for block in messages[at]["content"]]
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


def _told(call: Block) -> Block:
    return text_block(f"[called {call['name']}: {json.dumps(call['input'], ensure_ascii=False)}]")
