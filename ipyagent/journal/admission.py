"""Which blocks may be sent, and in what form: the API refuses a whole request for one block out of place.

Every function gives copies that carry no cache mark (the view's own marks are the only ones). Of a reply only what
the Messages API knows is kept: other servers add keys and kinds of blocks of their own, which a strict one refuses.
Thinking goes through unedited or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from ipyagent.journal.events import Block
from ipyagent.journal.server_tools import is_result

THINKING = ("thinking", "redacted_thinking")
PICTURES = ("image", "document")
_NOT_IN_REQUEST = ("tool_use", "tool_result", *THINKING)


_RESULT = ("tool_use_id", "content", "caller")
REPLY_KEYS: dict[str, tuple[str, ...]] = {
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input", "caller", "toolset_name"),
    "server_tool_use": ("id", "name", "input", "caller"),
    "web_search_tool_result": _RESULT,
    "web_fetch_tool_result": _RESULT,
    "advisor_tool_result": _RESULT,
    "code_execution_tool_result": _RESULT,
    "bash_code_execution_tool_result": _RESULT,
    "text_editor_code_execution_tool_result": _RESULT,
    "tool_search_tool_result": _RESULT,
    "mcp_tool_use": ("id", "name", "server_name", "input"),
    "mcp_tool_result": ("tool_use_id", "is_error", "content"),
    "mcp_tool_listing": ("mcp_server_name", "tools"),
    "container_upload": ("file_id",),
    "compaction": ("content", "encrypted_content", "signature", "tool_changes"),
    "fallback": ("from", "to", "trigger"),
}
"""The blocks of a reply and their keys (anthropic 2.14, `types.beta.BetaContentBlock`), in the API's order."""


def known_block(block: Block) -> Block | None:
    """A reply's block with the keys that the API knows, without those that say nothing; None for another kind."""
    kind = block.get("type")
    keys = REPLY_KEYS.get(kind) if isinstance(kind, str) else None
    if keys is None:
        return None
    return {"type": kind, **{key: block[key] for key in keys if block.get(key) is not None}}


def text_block(text: str) -> Block:
    """A text block."""
    return {"type": "text", "text": text}


def reply_block(block: Block) -> Block | None:
    """A block of a reply that is no tool call; None when it may not be sent back."""
    kind, known = block.get("type"), known_block(block)
    if known is None:
        return None
    if kind == "thinking":
        whole = isinstance(block.get("thinking"), str) and isinstance(block.get("signature"), str)
        return known if whole and block["signature"] else None
    if kind == "redacted_thinking":
        return known if isinstance(block.get("data"), str) and block["data"] else None
    return None if kind == "tool_use" else _plain(known)


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
    if is_result(block) and not isinstance(block.get("content"), list | dict):
        return None
    return {key: value for key, value in block.items() if key != "cache_control"}
