"""A request's prompt as the server reads it: its blocks, hashes and tokens, summaries and bound thinking.

`compaction` blocks: how they are made, where they may stand, and what they stand for.

There are two kinds. A threshold block (edit `compact_20260112`, unsigned) begins an assistant reply; everything
before the last one of a request is ignored. A signed block (parameter `compaction`) is the first block of the first
message, in an assistant message of its own or before the user's words there, in place of what it summarises; a request
has at most one. A block whose content is null is a compaction that failed: it is passed over.

A signed block tells where the conversation stood that it summarises, so that thinking in the turns right after it stays
bound to the same prefix; system prompt and tools have to be the same, and the turn after it must be another role's
than the last one in it. (Rules of the public documentation of both betas, November 2026.)

A request's prompt as one row of blocks in cache order (tools, system, messages), each hashed and counted once.

Two hash chains run over the row. `chain[i]` names the exact prefix that ends with block i, thinking included; the
prompt cache lives on it. `bound[i]` leaves thinking blocks out; signatures of thinking are bound to it, and behind a
signed summary it goes on as it stood at the end of what is summarised. In both, cache marks, the split of one role's
turn into messages, and text given as a string or as one block make no difference.

Thinking blocks are bound to the conversation that produced them.

A signature seals four things: the model, the block's text, everything before the block but thinking (system prompt,
tools, messages; cache marks do not count), and the thinking block before it. So leading, trailing or all thinking
may be left out, and a changed prefix, a changed text, or a gap or a swap between thinking blocks is refused.
A block of another model is left out without an error. Signatures do not depend on the server's process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, NamedTuple

from ipyagent.practice.server import web
from ipyagent.practice.server.models import BLOCK_BINDING, ModelCard, Refused, need
from ipyagent.practice.server.tokens import BLOCK, MESSAGE, TOOLS, Pictures, count_json, count_text, count_tool, seal

THRESHOLD: Final = "compact-2026-01-12"
ON_DEMAND: Final = "compact-2026-09-04"


class Anchor(NamedTuple):
    """The bound chain behind system prompt and tools, and at the end of the summarised messages, whose role is
    `role`; `end` is empty when the summary was written by a model that does not bind thinking."""

    base: bytes
    end: bytes
    role: str


def threshold_block(content: str | None) -> dict[str, Any]:
    """The block that begins a reply; None: no summary came about."""
    made: dict[str, Any] = {"type": "compaction", "content": content}
    return made if content is None else {**made, "encrypted_content": seal("threshold", content)}


def signed_block(content: str, anchor: Anchor) -> dict[str, Any]:
    """The one block of the answer to a `compaction` request."""
    parts = (seal(content), anchor.base.hex(), anchor.end.hex(), anchor.role)
    return {"type": "compaction", "content": content, "signature": ".".join((*parts, seal(*parts)))}


def anchor_of(block: Mapping[str, Any]) -> Anchor | None:
    """What a signed block stands for; None for other blocks."""
    signature = block.get("signature")
    if block.get("type") != "compaction" or not isinstance(signature, str):
        return None
    parts = signature.split(".")
    if len(parts) != 5 or parts[4] != seal(*parts[:4]):
        return None
    return Anchor(bytes.fromhex(parts[1]), bytes.fromhex(parts[2]), parts[3])


def is_void(block: Mapping[str, Any]) -> bool:
    """Whether this is the block of a compaction that failed."""
    return block.get("type") == "compaction" and block.get("content") is None


def blocks_of(
    messages: Sequence[Mapping[str, Any]], *, void: bool = False
) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """The compaction blocks that hold a summary, with their places; with `void` those that failed, too."""
    for i, message in enumerate(messages):
        content = message["content"]
        for j, block in enumerate(content if isinstance(content, list) else ()):
            if block["type"] == "compaction" and (void or not is_void(block)):
                yield i, j, block


def standing(messages: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """The place from which on the messages count: the last summary's, else the beginning."""
    return max(((i, j) for i, j, _ in blocks_of(messages)), default=(0, 0))


def check_shape(block: Mapping[str, Any], path: str) -> None:
    """Refuse a block whose fields are not of their types; which fields there may be was checked before."""
    content = block.get("content")
    need(content is None or (isinstance(content, str) and content),
         f"{path}.compaction.content: Input should be a non-empty string or null")  # fmt: skip
    for name in ("encrypted_content", "signature"):
        need(isinstance(block.get(name, ""), str), f"{path}.compaction.{name}: Input should be a valid string")
    need(not block.get("tool_changes"), f"{path}.compaction.tool_changes: this server has given no tool changes")


def check_blocks(messages: Sequence[Mapping[str, Any]], betas: frozenset[str], threshold: bool) -> None:
    """Refuse blocks without their beta, at a wrong place, or changed; `threshold`: the request has the edit.

    The shape of the blocks was checked before.
    """
    every = list(blocks_of(messages, void=True))
    for i, j, block in every:
        beta = ON_DEMAND if block.get("signature") else THRESHOLD
        need(beta in betas or (is_void(block) and ON_DEMAND in betas),
             f"messages.{i}.content.{j}: Input tag 'compaction' found using 'type' does not match any of the "
             "expected tags")  # fmt: skip
    found = [each for each in every if not is_void(each[2])]
    signed = [each for each in found if each[2].get("signature")]
    need(not signed or len(found) == 1, "messages: a request carries one `compaction` block; send the newest one only")
    for i, j, block in signed:
        path = f"messages.{i}.content.{j}"
        first = "`compaction` block must be sent first, in place of the messages it summarizes; remove those messages"
        need((i, j) == (0, 0), f"{path}: {first}", code="compaction_block_misplaced")
        need(not threshold, "context_management: `compact_20260112` cannot run on a request with a signed block")
        need(anchor_of(block) is not None, f"{path}: Invalid `signature`", code="compaction_signature_invalid")
        need(str(block["signature"]).split(".")[0] == seal(block["content"]),
             f"{path}: `content` does not match `signature`", code="compaction_content_mismatch")  # fmt: skip
    for i, j, block in found:
        if not block.get("signature"):
            path = f"messages.{i}.content.{j}"
            need(messages[i]["role"] == "assistant", f"{path}: `compaction` blocks are not allowed in user messages")
            need(block.get("encrypted_content") in (None, seal("threshold", block["content"])),
                 f"{path}: `encrypted_content` does not match the block", code="compaction_content_mismatch")


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


_NONE: Final = "first"


def _tag(model: str) -> str:
    return seal("model", model)[:8]


def sign(model: str, thinking: str, prefix: bytes, previous: str | None) -> str:
    """The signature of a block; `prefix` is the bound chain before it, `previous` the signature before it."""
    tag = _tag(model)
    return ".".join((tag, seal(tag, thinking), seal(tag, thinking, prefix), seal(tag, thinking, previous or _NONE)))


def _signature(placed: Placed) -> str:
    return str(placed.block.get("signature") or placed.block.get("data") or "")


@dataclass
class Thoughts:
    """Checks thinking blocks; remembers which thinking belongs to which reply, and which replies were pauses."""

    _given: dict[bytes | str, set[tuple[str, ...]]] = field(default_factory=dict)
    _paused: set[bytes] = field(default_factory=set)

    def sign_reply(
        self, prompt: Prompt, card: ModelCard, blocks: Sequence[dict[str, Any]], reader: Reader, paused: bool
    ) -> None:
        """Write the missing signatures into the blocks of a reply to `prompt`, and remember what was signed."""
        run, thoughts, _ = _latest(prompt)
        goes_on = bool(run) and prompt.blocks[-1].role == "assistant"
        signatures = list(map(_signature, thoughts)) if goes_on else []
        earlier = [placed for placed in prompt.blocks if placed.thinks]
        previous = _signature(earlier[-1]) if earlier else None
        at = prompt.end
        for block in blocks:
            if block["type"] not in THINKING:
                at = follow(at, "messages", "assistant", reader.digest(block))
                continue
            if block["type"] == "thinking" and not block.get("signature"):
                block["signature"] = sign(card.id, block["thinking"], at, previous)
            previous = str(block.get("signature") or block.get("data"))
            signatures.append(previous)
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for key in (at, *calls):
            self._given.setdefault(key, set()).add(tuple(signatures))
        if paused:
            self._paused.add(at)

    def was_paused(self, prompt: Prompt) -> bool:
        """Whether the prompt ends with a reply that stopped with `pause_turn`."""
        return prompt.end in self._paused

    def check(
        self, prompt: Prompt, body: Mapping[str, Any], card: ModelCard, drop: bool
    ) -> tuple[Prompt, list[dict[str, Any]]]:
        """The prompt the model reads, and `input_transformations` for blocks left out; raises `Refused`."""
        self._check_latest(prompt, body, card)
        tag, previous, broken = _tag(card.id), None, False
        dropped: dict[int, str] = {}
        for i, placed in enumerate(prompt.blocks):
            if not placed.thinks:
                continue
            if placed.block["type"] != "thinking":  # sealed: it stands in the row, nothing else is known of it
                previous = _signature(placed)
                continue
            parts = _signature(placed).split(".")
            text = placed.block["thinking"]
            if len(parts) != 4 or parts[1] != seal(parts[0], text):
                raise Refused(f"{placed.path}: Invalid `signature` in `thinking` block")
            if parts[0] != tag:
                dropped[i] = "model_binding_mismatch"
                continue
            whole = parts[2] == seal(tag, text, prompt.before(i))
            in_row = previous is None or parts[3] == seal(tag, text, previous)
            if card.bound and (broken or not whole or not in_row):
                if not drop:
                    raise Refused(
                        f"{placed.path}: Invalid `signature` in `thinking` block. The block is bound to a different "
                        "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
                        f'"drop_block". That setting requires the `{BLOCK_BINDING}` value in the '
                        "`anthropic-beta` header."
                    )
                broken = True
                dropped[i] = "prefix_binding_mismatch"
                continue
            previous = _signature(placed)
        told = [
            {"type": "thinking_dropped", "path": prompt.blocks[i].path, "reason": reason}
            for i, reason in dropped.items()
        ]
        return prompt.without(frozenset(dropped)), told

    def _check_latest(self, prompt: Prompt, body: Mapping[str, Any], card: ModelCard) -> None:
        run, thoughts, end = _latest(prompt)
        if not run:
            return
        open_calls = [placed.block["id"] for placed in run if placed.block["type"] == "tool_use"]
        allowed: set[tuple[str, ...]] = set(self._given.get(end, ()))
        for call in open_calls if not allowed else ():
            allowed |= self._given.get(call, set())
        tag = _tag(card.id)
        if not allowed or any(s.split(".")[0] != tag for given in allowed for s in given):
            return
        sent = tuple(map(_signature, thoughts))
        if sent in allowed:
            return
        first = run[0]
        if sent:
            raise Refused(
                f"{thoughts[0].path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot "
                "be modified. These blocks must remain as they were in the original response."
            )
        if open_calls and (body.get("thinking") or {}).get("type") != "disabled":
            raise Refused(
                f"{first.path}.type: Expected `thinking` or `redacted_thinking`, but found `{first.block['type']}`. "
                "When `thinking` is enabled, a final `assistant` message must start with a thinking block preceding "
                "the last set of `tool_use` and `tool_result` blocks, as it was in the reply."
            )


def _latest(prompt: Prompt) -> tuple[list[Placed], list[Placed], bytes]:
    """The latest assistant turn, its thinking blocks, and the bound chain at its end."""
    blocks = prompt.blocks
    last = next((i for i in range(len(blocks) - 1, -1, -1) if blocks[i].role == "assistant"), None)
    if last is None:
        return [], [], b""
    start = last
    while start and blocks[start - 1].role == "assistant":
        start -= 1
    run = list(blocks[start : last + 1])
    return run, [placed for placed in run if placed.thinks], prompt.bound[last]
