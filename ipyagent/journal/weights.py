"""Estimated tokens of every block, each estimated once.

A block that was given out is never changed, a change puts another object in its place: so what is
known of an object stays true, and asking again costs a walk over the list, not over the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from ipyagent.journal.admission import THINKING
from ipyagent.journal.events import Block
from ipyagent.journal.tokens import estimate_block

SPARE = 1_000
"""Blocks that may be remembered beside twice those that are asked about."""


class Behind(NamedTuple):
    """Uncalibrated tokens from each message to the end, of everything and of thinking alone; both
    have one place more than there are messages, with 0."""

    tokens: list[int]
    thinking: list[int]


class Weights:
    """What the messages of one conversation weigh."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Block, int]] = {}
        self._each: list[tuple[dict[str, Any], int, int]] = []
        """The messages that were asked about last, with their tokens and those of thinking in them."""

    def behind(self, messages: list[dict[str, Any]]) -> Behind:
        """Sums from each message to the end."""
        each = self._each
        del each[len(messages) :]
        for index, message in enumerate(messages):
            if index == len(each):
                each.append(self._weigh(message))
            elif each[index][0] is not message:
                each[index] = self._weigh(message)
        tokens = list(accumulate((item[1] for item in reversed(each)), initial=0))
        thinking = list(accumulate((item[2] for item in reversed(each)), initial=0))
        return Behind(tokens[::-1], thinking[::-1])

    def read(self, messages: list[dict[str, Any]]) -> int:
        """Tokens of what the server reads of messages: nothing before the newest summary that it put into a reply
        itself."""
        self._tidy(messages)
        return sum(map(self.of, blocks_read(messages)))

    def _weigh(self, message: dict[str, Any]) -> tuple[dict[str, Any], int, int]:
        content = message["content"]
        thinking = sum(self.of(block) for block in content if block["type"] in THINKING)
        return message, sum(map(self.of, content)), thinking

    def of(self, block: Block) -> int:
        """Tokens of a block."""
        known = self._known.get(id(block))
        if known is None or known[0] is not block:
            known = self._known[id(block)] = block, estimate_block(block)
        return known[1]

    def _tidy(self, messages: list[dict[str, Any]]) -> None:
        """Forget what is asked about no more."""
        if len(self._known) > SPARE + 2 * sum(len(message["content"]) for message in messages):
            stand = {id(block) for message in messages for block in message["content"]}
            self._known = {key: known for key, known in self._known.items() if key in stand}


def blocks_read(messages: list[dict[str, Any]]) -> Iterator[Block]:
    """The blocks that the server reads of messages, see `Weights.read`; the newest message first."""
    for message in reversed(messages):
        content = message["content"]
        at = summary_in(content) if message["role"] == "assistant" else None
        yield from content if at is None else content[at:]
        if at is not None:
            return


def summary_in(content: list[Block]) -> int | None:
    """Where the server's newest summary is among a reply's blocks; None when there is none."""
    places = [at for at, block in enumerate(content) if block["type"] == "compaction" and block.get("content")]
    return places[-1] if places else None
