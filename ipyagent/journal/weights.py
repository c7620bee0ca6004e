"""Estimated tokens of every message, each estimated once.

A message that was given out is never changed, a change puts another object in its place: so what is
known of an object stays true, and asking again costs a walk over the list, not over the text.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

from ipyagent.journal.admission import THINKING
from ipyagent.journal.events import Block
from ipyagent.journal.tokens import estimate_block, estimate_blocks


class Behind(NamedTuple):
    """Uncalibrated tokens from each message to the end, of everything and of thinking alone; both
    have one place more than there are messages, with 0."""

    tokens: list[int]
    thinking: list[int]


class Weights:
    """What the messages of one view weigh."""

    def __init__(self) -> None:
        self._known: list[tuple[dict[str, Any], int, int]] = []

    def behind(self, messages: list[dict[str, Any]]) -> Behind:
        """Sums from each message to the end."""
        known = self._known
        del known[len(messages) :]
        for index, message in enumerate(messages):
            if index == len(known):
                known.append(_weigh(message))
            elif known[index][0] is not message:
                known[index] = _weigh(message)
        tokens = list(accumulate((item[1] for item in reversed(known)), initial=0))
        thinking = list(accumulate((item[2] for item in reversed(known)), initial=0))
        return Behind(tokens[::-1], thinking[::-1])


def read_tokens(messages: list[dict[str, Any]]) -> int:
    """Estimated tokens of what the server reads of messages: nothing before the newest summary that it put into a
    reply itself."""
    total = 0
    for message in reversed(messages):
        content = message["content"]
        at = summary_in(content) if message["role"] == "assistant" else None
        total += estimate_blocks(content if at is None else content[at:])
        if at is not None:
            break
    return total


def summary_in(content: list[Block]) -> int | None:
    """Where the server's newest summary is among a reply's blocks; None when there is none."""
    places = [at for at, block in enumerate(content) if block["type"] == "compaction" and block.get("content")]
    return places[-1] if places else None


def _weigh(message: dict[str, Any]) -> tuple[dict[str, Any], int, int]:
    total = thinking = 0
    for block in message["content"]:
        tokens = estimate_block(block)
        total += tokens
        if block["type"] in THINKING:
            thinking += tokens
    return message, total, thinking
