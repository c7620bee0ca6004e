"""What the view's tests share: events in short, and an independent checker of what may be sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from event_lists import numbered

from ipyagent.journal.events import (
    AssistantMessage,
    ToolReturned,
    UserMessage,
)
from ipyagent.journal.view import ContextView

THOUGHTS = ("thinking", "redacted_thinking")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "get", "input": {}}


def thought(signature: str = "s") -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": signature}


def user(*blocks: Any) -> UserMessage:
    return UserMessage(text="", blocks=tuple(text(b) if isinstance(b, str) else b for b in blocks))


def reply(*blocks: Any, stop: str = "end_turn") -> AssistantMessage:
    return AssistantMessage(blocks=tuple(text(b) if isinstance(b, str) else b for b in blocks), stop_reason=stop)


def result(call: str, *blocks: Any, is_error: bool = False) -> ToolReturned:
    made = tuple(text(b) if isinstance(b, str) else b for b in blocks)
    return ToolReturned(call=call, name="get", blocks=made, is_error=is_error)


def view_of(*events: Any) -> ContextView:
    return ContextView.of(numbered(events))


def breaches(messages: list[dict[str, Any]], *, closed: bool) -> Iterator[str]:
    """What is wrong with wire messages, by the invariants of the spec; `closed`: no call may be open at the end."""
    ids: set[str] = set()
    waiting: list[str] = []
    if messages and messages[0]["role"] != "user":
        yield "the first message is not the user's"
    for i, message in enumerate(messages):
        content = message["content"]
        if not content:
            yield f"message {i} is empty"
        if i and messages[i - 1]["role"] == message["role"]:
            yield f"message {i} has the role of the one before"
        answers = [b["tool_use_id"] for b in content if b["type"] == "tool_result"]
        if message["role"] == "user":
            if sorted(answers) != sorted(waiting):
                yield f"message {i} answers {answers}, open were {waiting}"
            if any(b["type"] != "tool_result" for b in content[: len(answers)]):
                yield f"message {i}: results do not come first"
            waiting = []
        elif answers:
            yield f"message {i}: results in a reply"
        for block in content:
            parts = block["content"] if block["type"] == "tool_result" else []
            for part in (block, *parts):
                if part["type"] == "text" and not (isinstance(part["text"], str) and part["text"].strip()):
                    yield f"message {i}: empty text"
            if block["type"] == "tool_use":
                if message["role"] != "assistant" or block["id"] in ids:
                    yield f"message {i}: call {block['id']} is out of place or comes twice"
                ids.add(block["id"])
                waiting.append(block["id"])
            if block["type"] in THOUGHTS and message["role"] != "assistant":
                yield f"message {i}: thinking of the user"
    if waiting and closed:
        yield f"calls {waiting} have no result"


def marks(*parts: Any) -> list[dict[str, Any]]:
    """Every block with a cache mark, at any depth."""
    found: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, dict):
            found += [part] if "cache_control" in part else []
            found += marks(*part.values())
        elif isinstance(part, list):
            found += marks(*part)
    return found


def flat(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The prompt as the provider reads it: role and bytes of each block in a row."""
    return [(m["role"], json.dumps(b, sort_keys=True)) for m in messages for b in m["content"]]


