"""A request's prompt as one row of blocks in cache order (tools, system, messages), each hashed and counted once.

Two hash chains run over the row. `chain[i]` names the exact prefix that ends with block i, thinking included; the
prompt cache lives on it. `bound[i]` leaves thinking blocks out; signatures of thinking are bound to it, and behind a
signed summary it goes on as it stood at the end of what is summarised. In both, cache marks, the split of one role's
turn into messages, and text given as a string or as one block make no difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

from ipyagent.practice import web
from ipyagent.practice.images import Pictures
from ipyagent.practice.summary_block import Anchor, anchor_of, is_void, standing
from ipyagent.practice.tokens import BLOCK, MESSAGE, TOOLS, count_json, count_text, count_tool

THINKING: Final = ("thinking", "redacted_thinking")
START: Final = b"\0" * 32
_KEEP: Final = 300_000


@dataclass(frozen=True, slots=True)
class Placed:
    """One block at its place: `part` is tools, system or messages; `message` and `index` as in the request.

    `tokens` include `framing`, which the message or the tool list costs and its first block carries.
    """

    part: str
    role: str
    message: int
    index: int
    block: Mapping[str, Any]
    digest: bytes
    tokens: int
    framing: int
    ttl: str | None
    anchor: Anchor | None = None

    @property
    def thinks(self) -> bool:
        """Whether this is a thinking block of an assistant message."""
        return self.part == "messages" and self.block.get("type") in THINKING

    @property
    def path(self) -> str:
        """The block's place as error messages write it."""
        if self.part == "messages":
            return f"messages.{self.message}.content.{self.index}"
        return f"{self.part}.{self.index}"


@dataclass(frozen=True)
class Prompt:
    """The row of blocks with both chains and the running token count."""

    blocks: tuple[Placed, ...]
    chain: tuple[bytes, ...] = field(init=False)
    bound: tuple[bytes, ...] = field(init=False)
    upto: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        chain, bound, at, at_bound = [], [], START, START
        for i, placed in enumerate(self.blocks):
            at = follow(at, placed.part, placed.role, placed.digest)
            if placed.anchor is not None and self._goes_on(placed.anchor, at_bound, i):
                at_bound = placed.anchor.end
            elif not placed.thinks:
                at_bound = follow(at_bound, placed.part, placed.role, placed.digest)
            chain.append(at)
            bound.append(at_bound)
        object.__setattr__(self, "chain", tuple(chain))
        object.__setattr__(self, "bound", tuple(bound))
        object.__setattr__(self, "upto", tuple(accumulate(placed.tokens for placed in self.blocks)))

    def _goes_on(self, anchor: Anchor, at: bytes, i: int) -> bool:
        """Whether what follows the summary at place i stands where it stood behind what is summarised."""
        role = self.blocks[i + 1].role if i + 1 < len(self.blocks) else "assistant"
        return bool(anchor.end) and anchor.base == at and anchor.role != role

    @property
    def tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.upto[-1] if self.upto else 0

    @property
    def end(self) -> bytes:
        """The bound chain after the last block."""
        return self.bound[-1] if self.bound else START

    def before(self, i: int) -> bytes:
        """The bound chain before block i."""
        return self.bound[i - 1] if i else START

    @property
    def base(self) -> bytes:
        """The bound chain behind tools and system prompt."""
        before = [link for placed, link in zip(self.blocks, self.bound, strict=True) if placed.part != "messages"]
        return before[-1] if before else START

    def messages(self) -> list[dict[str, Any]]:
        """The messages the model reads: neighbours of one role are one."""
        made: list[dict[str, Any]] = []
        for placed in self.blocks:
            if placed.part == "messages":
                if not made or made[-1]["role"] != placed.role:
                    made.append({"role": placed.role, "content": []})
                made[-1]["content"].append(dict(placed.block))
        return made

    def without(self, dropped: frozenset[int]) -> Prompt:
        """The prompt without the blocks at these places of the row."""
        kept: list[Placed] = []
        owed = 0
        for i, placed in enumerate(self.blocks):
            if i in dropped:
                owed += placed.framing
                continue
            if owed and placed.role == "assistant":  # the turn is still a turn; its next block carries the framing
                placed = replace(placed, tokens=placed.tokens + owed, framing=placed.framing + owed)
            owed = 0
            kept.append(placed)
        return Prompt(tuple(kept)) if dropped else self


class Reader:
    """Reads prompts; remembers the hash-keyed token counts of blocks, so that a grown conversation costs its growth."""

    def __init__(self) -> None:
        self.pictures = Pictures()
        self._tokens: dict[bytes, int] = {}

    def read(self, body: Mapping[str, Any], whole: bool = False) -> Prompt:
        """The prompt of a request whose shape was checked before: from its last summary on, unless `whole`."""
        return Prompt(tuple(self._blocks(body, (0, 0) if whole else standing(body["messages"]))))

    def digest(self, block: Mapping[str, Any]) -> bytes:
        """The hash of a block's content without cache marks and null fields."""
        return hashlib.sha256(_written(block)).digest()

    def count(self, part: str, block: Mapping[str, Any], digest: bytes) -> int:
        """Tokens of one block without the framing of its message."""
        if (known := self._tokens.get(digest)) is None:
            if len(self._tokens) > _KEEP:
                self._tokens.clear()
            known = self._tokens[digest] = count_tool(block) if part == "tools" else self._count(block)
        return known

    def _blocks(self, body: Mapping[str, Any], start: tuple[int, int]) -> Iterator[Placed]:
        extra = TOOLS
        for j, tool in enumerate(body.get("tools") or ()):
            yield self._place("tools", "", 0, j, tool, extra)
            extra = 0
        system = body.get("system") or ()
        for j, block in enumerate([_said(system)] if isinstance(system, str) else system):
            yield self._place("system", "", 0, j, block, 0)
        role = ""
        for i, message in enumerate(body["messages"]):
            content = message["content"]
            extra = 0 if message["role"] == role else MESSAGE
            for j, block in enumerate([_said(content)] if isinstance(content, str) else content):
                if (i, j) < start or is_void(block):
                    continue
                role = message["role"]
                yield self._place("messages", role, i, j, block, extra)
                extra = 0

    def _place(self, part: str, role: str, i: int, j: int, block: Mapping[str, Any], extra: int) -> Placed:
        digest = self.digest(block)
        tokens = self.count(part, block, digest) + extra
        return Placed(part, role, i, j, block, digest, tokens, extra, _ttl(block), anchor_of(block))

    def _count(self, block: Mapping[str, Any]) -> int:
        match block["type"]:
            case "text":
                return BLOCK + count_text(block["text"])
            case "thinking":
                return BLOCK + count_text(block["thinking"])
            case "compaction":
                return BLOCK + count_text(block["content"] or "")
            case "tool_use" | "server_tool_use":
                return BLOCK + 8 + count_text(block["name"]) + count_json(block["input"])
            case "tool_result":
                content = block.get("content") or ""
                inner = count_text(content) if isinstance(content, str) else sum(map(self._count, content))
                return BLOCK + 8 + inner
            case "web_search_tool_result" | "web_fetch_tool_result":
                return web.tokens(block)
            case "image" | "document":
                return BLOCK + self.pictures.tokens(block)
            case _:
                return BLOCK + count_json(block)


def follow(at: bytes, part: str, role: str, digest: bytes) -> bytes:
    """The chain's next link after a block."""
    return hashlib.sha256(b"".join((at, part.encode(), role.encode(), digest))).digest()


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _ttl(block: Mapping[str, Any]) -> str | None:
    mark = block.get("cache_control")
    if not mark and block.get("type") == "tool_result" and isinstance(block.get("content"), list):
        mark = next((part["cache_control"] for part in block["content"] if part.get("cache_control")), None)
    return mark.get("ttl") or "5m" if mark else None


def _written(block: Mapping[str, Any]) -> bytes:
    if block.get("type") == "compaction":
        block = {"type": "compaction", "content": block["content"]}
    if "cache_control" in block or None in block.values():
        block = {k: v for k, v in block.items() if k != "cache_control" and v is not None}
    content = block.get("content") if block.get("type") == "tool_result" else None
    if isinstance(content, list) and any("cache_control" in part for part in content):
        block = {**block, "content": [{k: v for k, v in p.items() if k != "cache_control"} for p in content]}
    return json.dumps(block, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
