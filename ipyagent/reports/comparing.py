"""Two lists of messages side by side, and a message as text for reading."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from ipyagent.journal.events import Block
from ipyagent.journal.server_tools import CALL, in_words, is_result


class Row(msgspec.Struct, frozen=True):
    """One line of a comparison: what stood there before and after; both the same when `same`."""

    before: str
    after: str
    same: bool


def compare(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], chars: int = 4_000) -> list[Row]:
    """Two lists of messages side by side; unchanged stretches are one row that counts them."""
    start = 0
    while start < min(len(before), len(after)) and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    left, right = before[start : len(before) - end], after[start : len(after) - end]
    rows = _unchanged(start)
    matcher = SequenceMatcher(None, [_key(item) for item in left], [_key(item) for item in right], autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        if what == "equal":
            rows += _unchanged(b - a)
            continue
        for at in range(max(b - a, d - c)):
            old = message_text(left[a + at], chars) if a + at < b else ""
            new = message_text(right[c + at], chars) if c + at < d else ""
            rows.append(Row(old, new, False))
    return rows + _unchanged(end)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one is other or one == other


def _key(message: dict[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False)


def _unchanged(count: int) -> list[Row]:
    words = f"… {count:,} message{'s' * (count != 1)} as before …"
    return [Row(words, words, True)] if count else []


def message_text(message: dict[str, Any], chars: int = 4_000) -> str:
    """A message as text for reading, at most about `chars` characters a block."""
    return "\n".join([f"{message['role']}:", *(_block_text(block, chars) for block in message["content"])])


def _block_text(block: Block, chars: int) -> str:
    kind = block["type"]
    if kind == "text":
        return _cut(str(block["text"]), chars)
    if kind == "thinking":
        return f"[thinking] {_cut(str(block['thinking']), chars)}"
    if kind == "tool_use":
        return f"[call {block['name']}] {_cut(json.dumps(block['input'], ensure_ascii=False), chars)}"
    if kind == "tool_result":
        inner = "\n".join(_block_text(part, chars) for part in block["content"])
        return f"[{'error' if block.get('is_error') else 'result'}] {inner}"
    if kind == CALL or is_result(block):
        return _cut(in_words(block), chars)
    return f"[{kind}]"


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}\n… {len(text) - chars:,} characters more"
