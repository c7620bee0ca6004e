"""`compaction` blocks: how they are made, where they may stand, and what they stand for.

There are two kinds. A threshold block (edit `compact_20260112`, unsigned) begins an assistant reply; everything
before the last one of a request is ignored. A signed block (parameter `compaction`) is the first block of the first
message, in an assistant message of its own or before the user's words there, in place of what it summarises; a request
has at most one. A block whose content is null is a compaction that failed: it is passed over.

A signed block tells where the conversation stood that it summarises, so that thinking in the turns right after it stays
bound to the same prefix; system prompt and tools have to be the same, and the turn after it must be another role's
than the last one in it. (Rules of the public documentation of both betas, November 2026.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ipyagent.practice.refusal import Refused
from ipyagent.practice.seal import seal

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


def blocks_of(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """The compaction blocks that hold a summary, with their places."""
    for i, message in enumerate(messages):
        content = message["content"]
        for j, block in enumerate(content if isinstance(content, list) else ()):
            if block["type"] == "compaction" and not is_void(block):
                yield i, j, block


def standing(messages: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """The place from which on the messages count: the last summary's, else the beginning."""
    place = (0, 0)
    for i, j, _ in blocks_of(messages):
        place = i, j
    return place


def check_shape(block: Mapping[str, Any], path: str) -> None:
    """Refuse a block whose fields are not of their types; which fields there may be was checked before."""
    content = block.get("content")
    if content is not None and (not isinstance(content, str) or not content):
        raise Refused(f"{path}.compaction.content: Input should be a non-empty string or null")
    for name in ("encrypted_content", "signature"):
        if not isinstance(block.get(name, ""), str):
            raise Refused(f"{path}.compaction.{name}: Input should be a valid string")
    if block.get("tool_changes"):
        raise Refused(f"{path}.compaction.tool_changes: this server has given no tool changes")


def check_blocks(messages: Sequence[Mapping[str, Any]], betas: frozenset[str], threshold: bool) -> None:
    """Refuse blocks without their beta, at a wrong place, or changed; `threshold`: the request has the edit.

    The shape of the blocks was checked before.
    """
    for i, message in enumerate(messages):
        content = message["content"]
        for j, block in enumerate(content if isinstance(content, list) else ()):
            if block["type"] == "compaction" and not betas & {ON_DEMAND if block.get("signature") else THRESHOLD}:
                if is_void(block) and ON_DEMAND in betas:
                    continue
                raise Refused(
                    f"messages.{i}.content.{j}: Input tag 'compaction' found using 'type' does not match any of the "
                    "expected tags"
                )
    found = list(blocks_of(messages))
    signed = [(i, j, block) for i, j, block in found if block.get("signature")]
    if signed and len(found) > 1:
        raise Refused("messages: a request carries one `compaction` block; send the newest one only")
    for i, j, block in signed:
        if (i, j) != (0, 0):
            raise Refused(
                f"messages.{i}.content.{j}: `compaction` block must be sent first, in place of the messages it "
                "summarizes; remove those messages",
                code="compaction_block_misplaced",
            )
        if threshold:
            raise Refused("context_management: `compact_20260112` cannot run on a request with a signed block")
        if anchor_of(block) is None:
            raise Refused(f"messages.{i}.content.{j}: Invalid `signature`", code="compaction_signature_invalid")
        if str(block["signature"]).split(".")[0] != seal(block["content"]):
            raise Refused(
                f"messages.{i}.content.{j}: `content` does not match `signature`", code="compaction_content_mismatch"
            )
    for i, j, block in found:
        if not block.get("signature"):
            if messages[i]["role"] != "assistant":
                raise Refused(f"messages.{i}.content.{j}: `compaction` blocks are not allowed in user messages")
            if block.get("encrypted_content") not in (None, seal("threshold", block["content"])):
                raise Refused(
                    f"messages.{i}.content.{j}: `encrypted_content` does not match the block",
                    code="compaction_content_mismatch",
                )
