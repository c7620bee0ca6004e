"""Compaction by the server on the wire: which betas a request needs, and its blocks for servers without it.

Two forms: the parameter `compaction` gives one signed block, which later stands first in the messages; the
edit `compact_20260112` puts an unsigned block at the head of a reply.
"""

from __future__ import annotations

from typing import Any

from ipyagent.journal.events import Block

COMPACT_EDIT = "compact_20260112"
THRESHOLD_BETA = "compact-2026-01-12"
ON_DEMAND_BETA = "compact-2026-09-04"


def compaction_betas(body: dict[str, Any]) -> list[str]:
    """The betas of the compaction that a body asks for or carries."""
    more = body.get("extra_body") or {}
    edits = (more.get("context_management") or {}).get("edits", ())
    betas = [ON_DEMAND_BETA] if "compaction" in more else []
    betas += [THRESHOLD_BETA for edit in edits if edit["type"] == COMPACT_EDIT]
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "compaction":
                betas.append(ON_DEMAND_BETA if block.get("signature") else THRESHOLD_BETA)
    return list(dict.fromkeys(betas))


def summaries_as_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with compaction blocks as text; the same list when there is none."""
    if not any(block["type"] == "compaction" for message in messages for block in message["content"]):
        return messages
    made = [{**message, "content": [_text(block) for block in message["content"]]} for message in messages]
    return [{**message, "content": [b for b in message["content"] if b]} for message in made if any(message["content"])]


def _text(block: Block) -> Block:
    if block["type"] != "compaction":
        return block
    content = block.get("content")
    if not isinstance(content, str) or not content.strip():
        return {}
    made: Block = {"type": "text", "text": f"<summary>\n{content}\n</summary>"}
    return {**made, "cache_control": block["cache_control"]} if "cache_control" in block else made
