"""What the server leaves out of a prompt by itself, as it was asked (`context_management`).

It stands in the messages all the same. The server says how many tokens went, not which: results go oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ipyagent.journal.admission import THINKING
from ipyagent.journal.events import Block, ServerEdited
from ipyagent.journal.spots import ToolResultRef
from ipyagent.journal.tokens import estimate_block

_THINKING_EDIT = "clear_thinking"
"""How the kind of edit begins that clears thinking; the others clear results."""


class ServerClearedState(msgspec.Struct, frozen=True):
    """Estimated tokens that are in no prompt any more: of results by their call, and of thinking."""

    results: dict[str, int] = {}
    thinking: int = 0
    upto: int = 0
    """The event of the newest batch of results that went; 0 when all are there."""

    def after(self, event: ServerEdited, spots: Iterable[ToolResultRef], measure: float) -> ServerClearedState:
        """The same after the server's word; `measure` is what an estimated token comes to at the server."""
        rest = round(event.tokens / max(0.1, measure))
        if event.edit.startswith(_THINKING_EDIT):
            return msgspec.structs.replace(self, thinking=rest)
        results: dict[str, int] = {}
        for spot in spots:
            if rest <= 0:
                break
            if not spot.cleared:
                results[spot.call] = min(rest, spot.tokens)
                rest -= results[spot.call]
        return msgspec.structs.replace(self, results=results, upto=event.id if event.cleared else 0)

    def without(self, calls: Iterable[str]) -> ServerClearedState:
        """The same when these results have left the messages, too."""
        gone = set(calls)
        results = {call: tokens for call, tokens in self.results.items() if call not in gone}
        return msgspec.structs.replace(self, results=results)

    def and_again(self, earlier: ServerClearedState) -> ServerClearedState:
        """The same when what stood at an earlier time stands again: the server leaves out of it what it left out."""
        return ServerClearedState(
            results={**earlier.results, **self.results},
            thinking=max(earlier.thinking, self.thinking),
            upto=max(earlier.upto, self.upto),
        )

    def of(self, blocks: Iterable[Block], weigh: Callable[[Block], int] = estimate_block) -> int:
        """Estimated tokens of `blocks` that are left out."""
        if not self.results and not self.thinking:
            return 0
        gone = thinking = 0
        for block in blocks:
            if block["type"] == "tool_result":
                gone += self.results.get(block["tool_use_id"], 0)
            elif self.thinking and block["type"] in THINKING:
                thinking += weigh(block)
        return gone + min(thinking, self.thinking)
