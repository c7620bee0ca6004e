"""A copy of the messages for a call that does not fit whole: without pictures, without the oldest rounds.

The copy keeps the API's rules: thinking whose prefix has changed goes, and because the newest reply may
not go without its thinking as long as its calls stand, those calls and their results become words.
"""

from __future__ import annotations

import json
from typing import Any

from ipyagent.journal.admission import PICTURES, THINKING, text_block
from ipyagent.journal.events import Block
from ipyagent.journal.protocols import ForkOrder

LEFT_OUT = "(earlier parts of the conversation are left out here)"


def shortened(messages: list[dict[str, Any]], order: ForkOrder) -> list[dict[str, Any]]:
    """The messages as the order wants them; the same list when it wants them whole."""
    if not order.drop_first and not order.without_pictures:
        return messages
    starts = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    if order.drop_first and starts:
        cut = starts[min(order.drop_first, len(starts) - 1)]
        messages = [{"role": "user", "content": [text_block(LEFT_OUT)]}, *messages[cut:]]
    elif not _has_pictures(messages):
        return messages
    messages = _in_words(messages)
    made = [{**message, "content": _bare(message["content"])} for message in messages]
    return [message for message in made if message["content"]]


def _has_pictures(messages: list[dict[str, Any]]) -> bool:
    blocks = [block for message in messages for block in message["content"]]
    inner = [part for block in blocks if block["type"] == "tool_result" for part in _parts(block)]
    return any(block["type"] in PICTURES for block in (*blocks, *inner))


def _parts(result: Block) -> list[Block]:
    return result["content"] if isinstance(result["content"], list) else [text_block(str(result["content"]))]


def _bare(blocks: list[Block]) -> list[Block]:
    """Blocks without thinking, pictures being words."""
    made: list[Block] = []
    for block in blocks:
        if block["type"] in PICTURES:
            made.append(text_block(f"[{block['type']}]"))
        elif block["type"] == "tool_result":
            made.append({**block, "content": _bare(_parts(block))})
        elif block["type"] not in THINKING:
            made.append(block)
    return made


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
