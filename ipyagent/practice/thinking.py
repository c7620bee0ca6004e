"""Thinking blocks are bound to the conversation that produced them.

A signature seals four things: the model, the block's text, everything before the block but thinking (system prompt,
tools, messages; cache marks do not count), and the thinking block before it. So leading, trailing or all thinking
may be left out, and a changed prefix, a changed text, or a gap or a swap between thinking blocks is refused.
A block of another model is left out without an error. Signatures do not depend on the server's process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ipyagent.practice.betas import BLOCK_BINDING
from ipyagent.practice.models import ModelCard
from ipyagent.practice.prompt import THINKING, Placed, Prompt, Reader, follow
from ipyagent.practice.refusal import Refused
from ipyagent.practice.seal import seal

_NONE: Final = "first"


def _tag(model: str) -> str:
    return seal("model", model)[:8]


def sign(model: str, thinking: str, prefix: bytes, previous: str | None) -> str:
    """The signature of a block; `prefix` is the bound chain before it, `previous` the signature before it."""
    tag = _tag(model)
    return ".".join(
        (tag, seal(tag, thinking), seal(tag, thinking, prefix), seal(tag, thinking, previous or _NONE))
    )


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
