"""Secrets leave an event as it enters a session: whatever model, tools, files or servers said is journalled, shown and
sent without them. The user's own words stay as they were typed, signed thinking and base64 as they came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from ipyagent.journal.blocks import is_result
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    Compacted,
    Event,
    MemorySurfaced,
    MessageReceived,
    PermissionAnswered,
    PlanWritten,
    ResultsCleared,
    ResultStored,
    SessionStarted,
    Streamed,
    SystemPromptFrozen,
    ToolCalled,
    ToolReturned,
    TurnCollapsed,
    TurnsRemoved,
    UserMessage,
)
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.redaction import Redactor

E = TypeVar("E", bound=Event)

_WORDS = (
    "text", "why", "message", "title", "pattern", "note", "words", "reason", "task", "said", "summary", "danger",
    "printed",
)  # fmt: skip
"""Fields of events that hold somebody's words."""
_CITED = ("cited_text", "title", "document_title", "url")
_AS_THEY_ARE = (UserMessage, PermissionAnswered, SystemPromptFrozen, SessionStarted, Streamed, MessageReceived)
"""The user's own words, a head that is compared with the bytes that were sent, and what is redacted before it is put
together (`redaction.stream.Stream`, `mailbox.received`)."""


def entering(event: E, redact: Redactor) -> E:
    """The event as it is journalled."""
    if isinstance(event, _AS_THEY_ARE):
        return event
    changed: dict[str, Any] = {}
    for name in _WORDS:
        value = getattr(event, name, "")
        if isinstance(value, str) and value and (made := redact(value)) != value:
            changed[name] = made
    match event:
        case AssistantMessage() | ToolReturned() | ResultStored() | TurnsRemoved() | TurnCollapsed():
            changed["blocks"] = without_secrets(event.blocks, redact)
        case Compacted():
            first, last = event.asked  # the user's own words
            changed["blocks"] = tuple(
                block if first <= at < last else _block(block, redact) for at, block in enumerate(event.blocks)
            )
        case ToolCalled():
            changed["input"] = values_without(event.input, redact)
        case ResultsCleared():
            changed["contexts"] = tuple((at, redact(text)) for at, text in event.contexts)
        case MemorySurfaced():
            changed["memories"] = tuple(
                msgspec.structs.replace(each, description=redact(each.description)) for each in event.memories
            )
        case PlanWritten():
            changed["steps"] = tuple(msgspec.structs.replace(step, text=redact(step.text)) for step in event.steps)
        case _:
            pass
    changed = {name: value for name, value in changed.items() if value != getattr(event, name)}
    if not changed:
        return event
    if getattr(event, "tokens", 0) and not isinstance(event, ResultStored):
        if "blocks" in changed:
            changed["tokens"] = estimate_blocks(changed["blocks"])
        elif "text" in changed:
            changed["tokens"] = estimate_text(changed["text"])
    return msgspec.structs.replace(event, **changed)


def without_secrets(blocks: Iterable[Block], redact: Redactor) -> tuple[Block, ...]:
    """The blocks with their texts redacted, and what calls are given."""
    return tuple(_block(block, redact) for block in blocks)


def _block(block: Block, redact: Redactor) -> Block:
    match block.get("type"):
        case "text" if isinstance(block.get("text"), str):
            made = {**block, "text": redact(block["text"])}
            if isinstance(cited := block.get("citations"), list):
                made["citations"] = [_cited(each, redact) for each in cited]
            return made
        case "tool_use" | "server_tool_use":
            return {**block, "input": values_without(block.get("input"), redact)}
        case "tool_result" if isinstance(block.get("content"), str):
            return {**block, "content": redact(block["content"])}
        case "tool_result" if isinstance(block.get("content"), list):
            return {**block, "content": [_block(each, redact) for each in block["content"]]}
        case _ if is_result(block):
            return {**block, "content": _readable(block.get("content"), redact)}
        case _:
            return block


def _cited(citation: Any, redact: Redactor) -> Any:
    if not isinstance(citation, dict):
        return citation
    words = {key: redact(value) for key, value in citation.items() if key in _CITED and isinstance(value, str)}
    return {**citation, **words}


def _readable(content: Any, redact: Redactor) -> Any:
    """What a web search or fetch gave, redacted where it can be read; what the provider sealed stays as it came."""
    match content:
        case list():
            return [_readable(each, redact) for each in content]
        case dict():
            made = dict(content)
            for key in ("title", "url"):
                if isinstance(made.get(key), str):
                    made[key] = redact(made[key])
            if isinstance(made.get("content"), dict):
                made["content"] = _readable(made["content"], redact)
            source = made.get("source")
            if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
                made["source"] = {**source, "data": redact(source["data"])}
            return made
        case _:
            return content


def values_without(value: Any, redact: Redactor, name: str = "") -> Any:
    """Plain data (what a call is given, what a task gave) with its texts redacted; `name` is what it is called."""
    match value:
        case str():
            return redact.named(name, value)
        case dict():
            return {key: values_without(inner, redact, str(key)) for key, inner in value.items()}
        case list() | tuple():
            return [values_without(inner, redact, name) for inner in value]
        case _:
            return value
