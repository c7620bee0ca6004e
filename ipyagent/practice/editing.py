"""Clears old thinking and old tool results of a prompt, as `context_management.edits` ask; the client's messages stay.

The server keeps nothing of earlier requests. To clear in batches all the same, it goes through the conversation from
its beginning and decides, at each place where a reply was asked for, what was to be cleared then: so the same
results stay cleared in every later request, and the prefix changes only when the trigger is passed anew. Tokens
compared with the trigger are those of the prompt as sent, less what was cleared of tool uses. Figures in
`applied_edits` compare with the prompt as sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from ipyagent.practice.management import ClearTools, Management
from ipyagent.practice.prompt import Placed, Prompt, Reader

CLEARED: Final = "[Result cleared by the server to save context]"

Block = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Edited:
    """The prompt the model reads, what was done, and new blocks by message and place in it."""

    prompt: Prompt
    applied: tuple[dict[str, Any], ...] = ()
    changed: Mapping[tuple[int, int], Block] | None = None

    def body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body with the cleared results of finished turns; those of the turn that goes on stay whole.

        The practice model has no memory: it goes through its turn again for each reply and needs the results.
        """
        if not self.changed:
            return body
        messages = body["messages"]
        opened = max((i for i, message in enumerate(messages) if _asks(message)), default=0)
        made = [
            {**message, "content": [self.changed.get((i, j), block) for j, block in enumerate(message["content"])]}
            if i < opened and isinstance(message["content"], list)
            else message
            for i, message in enumerate(messages)
        ]
        return {**body, "messages": made}


def _asks(message: Block) -> bool:
    content = message["content"]
    return message["role"] == "user" and (
        isinstance(content, str) or not any(block["type"] == "tool_result" for block in content)
    )


@dataclass(frozen=True, slots=True)
class _Result:
    """A tool use with its result, and what clearing them saves."""

    name: str
    places: tuple[tuple[int, Placed], ...]
    saves: int


def edited(prompt: Prompt, wanted: Management, reader: Reader) -> Edited:
    """The prompt after the clearing edits."""
    applied: list[dict[str, Any]] = []
    gone: frozenset[int] = frozenset()
    if wanted.thinking is not None and wanted.thinking.keep is not None:
        turns = [turn for turn in _thinking_turns(prompt.blocks) if turn]
        old = turns[: -wanted.thinking.keep]
        gone = frozenset(i for turn in old for i in turn)
        if gone:
            saved = prompt.tokens - prompt.without(gone).tokens
            applied.append(
                {
                    "type": "clear_thinking_20251015",
                    "cleared_thinking_turns": len(old),
                    "cleared_input_tokens": saved,
                }
            )
    cleared = _cleared(prompt, wanted.tools, reader) if wanted.tools is not None else []
    changed: dict[tuple[int, int], Block] = {}
    if cleared:
        blocks = list(prompt.blocks)
        for result in cleared:
            for i, placed in result.places:
                blocks[i] = placed
                changed[placed.message, placed.index] = placed.block
        prompt = Prompt(tuple(blocks))
        applied.append(
            {
                "type": "clear_tool_uses_20250919",
                "cleared_tool_uses": len(cleared),
                "cleared_input_tokens": sum(result.saves for result in cleared),
            }
        )
    return Edited(prompt.without(gone), tuple(applied), changed)


def _thinking_turns(blocks: Sequence[Placed]) -> Iterator[list[int]]:
    """Places of thinking blocks by turn; tool results do not end a turn, words of the user do."""
    turn: list[int] = []
    for i, placed in enumerate(blocks):
        if placed.role == "user" and placed.block["type"] != "tool_result" and turn:
            yield turn
            turn = []
        if placed.thinks:
            turn.append(i)
    yield turn


def _cleared(prompt: Prompt, rule: ClearTools, reader: Reader) -> list[_Result]:
    """The tool uses that are cleared by the end of the prompt, oldest first."""
    uses: dict[str, int] = {}
    waiting: list[_Result] = []
    gone: list[_Result] = []
    saved = 0
    blocks = prompt.blocks
    for i, (placed, following) in enumerate(pairwise([*blocks, None])):
        assert placed is not None
        if placed.block.get("type") == "tool_use" and placed.part == "messages":
            uses[placed.block["id"]] = i
        elif placed.block.get("type") == "tool_result" and placed.block["tool_use_id"] in uses:
            waiting.append(_result(blocks, uses[placed.block["tool_use_id"]], i, rule, reader))
        asked = following is None or (following.role == "assistant" and placed.role != "assistant")
        if not asked or placed.part != "messages":
            continue
        size = len(waiting) if rule.by_uses else prompt.upto[i] - saved
        if size <= rule.trigger:
            continue
        old = waiting[: max(0, len(waiting) - rule.keep)]
        batch = [result for result in old if result.name not in rule.exclude and result.saves > 0]
        freed = sum(result.saves for result in batch)
        if batch and freed >= rule.at_least:
            saved += freed
            gone += batch
            going = {id(result) for result in batch}
            waiting = [result for result in waiting if id(result) not in going]
    return gone


def _result(blocks: Sequence[Placed], use: int, at: int, rule: ClearTools, reader: Reader) -> _Result:
    call, result = blocks[use], blocks[at]
    name = str(call.block["name"])
    places = [(at, _with(result, {**result.block, "content": CLEARED}, reader))]
    if rule.all_inputs or name in rule.inputs:
        places.append((use, _with(call, {**call.block, "input": {}}, reader)))
    saves = sum(blocks[i].tokens - placed.tokens for i, placed in places)
    return _Result(name, tuple(places), saves)


def _with(placed: Placed, block: Block, reader: Reader) -> Placed:
    digest = reader.digest(block)
    tokens = reader.count("messages", block, digest) + placed.framing
    return replace(placed, block=block, digest=digest, tokens=tokens)
