"""Estimated tokens of every block, each estimated once.

A block that was given out is never changed, a change puts another object in its place: so what is
known of an object stays true, and asking again costs a walk over the list, not over the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any, NamedTuple

from ipyagent.journal.admission import THINKING
from ipyagent.journal.events import Block
from ipyagent.journal.tokens import estimate_block

SPARE = 1_000
"""Blocks that may be remembered beside twice those that are asked about."""


class SuffixTokens(NamedTuple):
    """Uncalibrated tokens from each message to the end, of everything and of thinking alone; both
    have one place more than there are messages, with 0."""

    tokens: list[int]
    thinking: list[int]


class BlockTokenCache:
    """What the messages of one conversation weigh."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[int, tuple[Block, int]] = {}
        self._seen: list[dict[str, Any]] = []
        """The messages that were asked about last."""
        self._before: tuple[list[int], list[int]] = [0], [0]
        """Their tokens, and those of thinking in them, from the first message to before each, and to the end."""

    def __getstate__(self) -> tuple[Any, ...]:
        """What is known, by places in place of identities, which another process gives anew."""
        with self._lock:
            seen = list(self._seen)
            known = [[self.of(block) for block in message["content"]] for message in seen]
            return seen, known, ([*self._before[0]], [*self._before[1]])

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__()  # type: ignore[misc]  # the lock and what is empty
        self._seen, known, self._before = state
        for message, tokens in zip(self._seen, known, strict=True):
            for block, each in zip(message["content"], tokens, strict=True):
                self._known[id(block)] = block, each

    def behind(self, messages: list[dict[str, Any]]) -> SuffixTokens:
        """Sums from each message to the end."""
        with self._lock:  # a panel asks on the main thread
            return self._behind(messages)

    def _behind(self, messages: list[dict[str, Any]]) -> SuffixTokens:
        seen, (tokens, thinking) = self._seen, self._before
        kept = min(max(0, len(seen) - 1), len(messages))  # the last one grows
        if messages[:kept] != seen[:kept]:  # compares identities first, so this costs next to nothing
            kept = next(at for at in range(kept) if messages[at] is not seen[at])
        del seen[kept:], tokens[kept + 1 :], thinking[kept + 1 :]
        for message in messages[kept:]:
            content = message["content"]
            seen.append(message)
            tokens.append(tokens[-1] + sum(map(self.of, content)))
            thinking.append(thinking[-1] + sum(self.of(block) for block in content if block["type"] in THINKING))
        every, thought = tokens[-1], thinking[-1]
        return SuffixTokens([every - sofar for sofar in tokens], [thought - sofar for sofar in thinking])

    def read(self, messages: list[dict[str, Any]]) -> int:
        """Tokens of what the server reads of messages: nothing before the newest summary that it put into a reply
        itself."""
        self._tidy(messages)
        return sum(map(self.of, blocks_read(messages)))

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
            self._known = {key: known for key, known in list(self._known.items()) if key in stand}


def blocks_read(messages: list[dict[str, Any]]) -> Iterator[Block]:
    """The blocks that the server reads of messages, see `BlockTokenCache.read`; the newest message first."""
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
