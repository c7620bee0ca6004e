"""Which blocks may be sent, and in what form: the API refuses a whole request for one block out of place.

Every function gives copies that carry no cache mark (the view's own marks are the only ones) and
leaves kinds that it does not know as they are. Thinking goes through unedited or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from ipyagent.journal.events import Block

THINKING = ("thinking", "redacted_thinking")
PICTURES = ("image", "document")
_NOT_IN_REPLY = ("tool_result", "tool_use", "search_result", *PICTURES)
_NOT_IN_REQUEST = ("tool_use", "tool_result", *THINKING)


def text_block(text: str) -> Block:
    """A text block."""
    return {"type": "text", "text": text}


def reply_block(block: Block) -> Block | None:
    """A block of a reply that is no tool call; None when it may not be sent back."""
    kind = block.get("type")
    if kind == "thinking":
        whole = isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str)
        return dict(block) if whole and block["signature"] else None
    if kind == "redacted_thinking":
        return dict(block) if isinstance(block.get("data"), str) and block["data"] else None
    return None if kind in _NOT_IN_REPLY else _plain(block)


def request_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Blocks of the user's side that may be sent."""
    return [kept for block in blocks if block.get("type") not in _NOT_IN_REQUEST and (kept := _plain(block))]


def result_blocks(blocks: Iterable[Block], *, is_error: bool) -> list[Block]:
    """The content of a tool result; of an error the API takes text only, the rest becomes words."""
    kept = request_blocks(blocks)
    if is_error:
        return [block if block["type"] == "text" else text_block(f"[{block['type']}]") for block in kept]
    return kept


def _plain(block: Block) -> Block | None:
    """The block without cache marks; None for what is empty or has no shape."""
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        return None
    if kind == "text" and not (isinstance(block.get("text"), str) and block["text"].strip()):
        return None
    if kind in PICTURES and not isinstance(block.get("source"), dict):
        return None
    return {key: value for key, value in block.items() if key != "cache_control"}
