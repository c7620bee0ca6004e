"""The tokens of a view by where they come from: of what the server reads of it, which is less than what stands there
where it left out old results, or has summarised by itself."""

from __future__ import annotations

import json
import re
from typing import Any

from ipyagent.journal.events import Block
from ipyagent.journal.server_tools import CALL, is_result
from ipyagent.journal.tokens import estimate_block, estimate_text
from ipyagent.journal.view import ContextView
from ipyagent.journal.weights import summary_in

SOURCES = (
    "system prompt",
    "instructions",
    "memory",
    "skills",
    "tools",
    "user",
    "summaries",
    "attached and context",
    "recalled memories",
    "answers",
    "thinking",
    "tool calls",
    "tool results",
    "images",
)
ATTACHED = ("<context>", "<variable ", "<file ", "<cell ", "<message ")
RECALLED = "<memories>"
SUMMARY = re.compile(r"[^\n]{0,400} place:\n<summary>\n")
"""How what stands in the place of a compacted range begins."""
SKILL = "<skill "
"""How the instructions of a loaded skill begin, in a result or before a request."""
_HEADS = (("<memory-index ", "memory"), ("<instructions ", "instructions"), ("<skills>", "skills"))
"""What tells a block of the head that is not our own prompt."""


class Shares:
    """Estimated tokens by source; what is known of a message is not estimated again."""

    def __init__(self) -> None:
        self._start = 0
        """The message that the server reads first: the newest with a summary of its own."""
        self._seen: list[dict[str, Any]] = []
        self._each: list[dict[str, int]] = []
        self._sums = dict.fromkeys(SOURCES, 0)
        self._head: tuple[Any, Any, dict[str, int]] = (None, None, {})

    def of(self, view: ContextView) -> dict[str, int]:
        """Tokens of the next prompt by where they come from; keys are SOURCES. They add up to the
        view's count but for rounding."""
        found = self.estimated(view)
        # the count is the server's as far as it has counted: the shares add up to it
        factor = view.count().tokens / (sum(found.values()) or 1)
        return {source: round(tokens * factor) for source, tokens in found.items()}

    def estimated(self, view: ContextView) -> dict[str, int]:
        """The same as our estimates, which no count of the server moves; what it says that it left out is off."""
        if self._head[0] is not view.system or self._head[1] is not view.tools:
            self._head = (view.system, view.tools, _head_shares(view))
        seen, messages = self._seen, view.messages
        kept = max(0, len(seen) - 1)  # the last one grows: results join it
        if messages[:kept] != seen[:kept]:  # compares identities first, so this costs next to nothing
            kept = next((at for at in range(min(kept, len(messages))) if messages[at] is not seen[at]), len(messages))
        if kept <= self._start:
            kept = self._start = 0
        for gone in self._each[kept:]:
            for source, tokens in gone.items():
                self._sums[source] -= tokens
        del seen[kept:], self._each[kept:]
        for message in messages[kept:]:
            at = summary_in(message["content"]) if message["role"] == "assistant" else None
            if at is not None:
                self._start, self._sums, self._each = len(seen), dict.fromkeys(SOURCES, 0), [{} for _ in seen]
            shares = _shares(message["role"], message["content"][at or 0 :])
            seen.append(message)
            self._each.append(shares)
            for source, tokens in shares.items():
                self._sums[source] += tokens
        found = dict(self._sums)
        for source, tokens in self._head[2].items():
            found[source] += tokens
        for source, tokens in _left_out(view, self._start).items():
            found[source] -= min(found[source], tokens)
        return found


def _left_out(view: ContextView, start: int) -> dict[str, int]:
    """Estimated tokens by source that the server leaves out; it reads from message `start` on."""
    out = view.left_out
    found = {"thinking": out.thinking}
    for spot in view.results if out.results else ():
        left = out.results.get(spot.call, 0)
        if not left or spot.message < start:
            continue
        parts = _sources_of("user", view.messages[spot.message]["content"][spot.block])
        whole = sum(tokens for _, tokens in parts)
        for source, tokens in parts:
            found[source] = found.get(source, 0) + round(tokens * min(1.0, left / max(1, whole)))
    return found


def measure_of(view: ContextView) -> float:
    """What an estimated token comes to in `Shares.of`."""
    estimated = sum(Shares().estimated(view).values())
    return view.count().tokens / estimated if estimated else 1.0


def _head_shares(view: ContextView) -> dict[str, int]:
    found = {"tools": sum(estimate_text(json.dumps(tool, ensure_ascii=False)) for tool in view.tools)}
    for at, block in enumerate(view.system):
        text = str(block.get("text", ""))
        names = (name for sign, name in _HEADS if at and sign in text)
        source = next(names, "system prompt")
        found[source] = found.get(source, 0) + estimate_block(block)
    return found


def _shares(role: str, blocks: list[Block]) -> dict[str, int]:
    found: dict[str, int] = {}
    for block in blocks:
        for source, tokens in _sources_of(role, block):
            found[source] = found.get(source, 0) + tokens
    return found


def _sources_of(role: str, block: Block) -> list[tuple[str, int]]:
    kind, tokens = block["type"], estimate_block(block)
    if kind in ("image", "document"):
        return [("images", tokens)]
    if kind in ("thinking", "redacted_thinking"):
        return [("thinking", tokens)]
    if kind in ("tool_use", CALL):
        return [("tool calls", tokens)]
    if is_result(block):
        return [("tool results", tokens)]
    if kind == "tool_result":
        images = sum(estimate_block(inner) for inner in block["content"] if inner["type"] == "image")
        first = next((str(inner.get("text", "")) for inner in block["content"] if inner["type"] == "text"), "")
        source = "skills" if first.startswith(SKILL) else "tool results"
        return [("images", images), (source, tokens - images)]
    if kind == "compaction":
        return [("summaries", tokens)]
    if role == "assistant":
        return [("answers", tokens)]
    text = str(block.get("text", ""))
    if text.startswith(RECALLED):
        return [("recalled memories", tokens)]
    if text.startswith(SKILL):
        return [("skills", tokens)]
    if SUMMARY.match(text):
        return [("summaries", tokens)]
    return [("attached and context" if text.startswith(ATTACHED) else "user", tokens)]
