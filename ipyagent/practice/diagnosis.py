"""Answers `diagnostics.previous_message_id`: what in this request is not as it was in the request of that message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ipyagent.practice.prompt import START, Prompt

_KEEP: Final = 20_000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What is kept of a request to compare later ones with; `cached` is tokens up to its last mark."""

    model: str
    tools: bytes
    system: bytes
    messages: int
    end: bytes
    settings: str
    cached: int


class Diagnoses:
    """The fingerprints of answered requests by message id."""

    def __init__(self) -> None:
        self._known: dict[str, Fingerprint] = {}

    def remember(self, message_id: str, body: Mapping[str, Any], prompt: Prompt) -> None:
        """Keep the request that was answered with this message."""
        if len(self._known) >= _KEEP:
            del self._known[next(iter(self._known))]
        self._known[message_id] = fingerprint(body, prompt)

    def compare(self, body: Mapping[str, Any], prompt: Prompt) -> dict[str, Any] | None:
        """The `diagnostics` of the response; None when nothing diverged or nothing was asked."""
        previous = (body.get("diagnostics") or {}).get("previous_message_id")
        if not previous:
            return None
        old = self._known.get(previous)
        if old is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        kind = _divergence(old, fingerprint(body, prompt), prompt)
        if kind is None:
            return None
        reason: dict[str, Any] = {"type": kind}
        if kind != "unavailable":
            reason["cache_missed_input_tokens"] = old.cached
        return {"cache_miss_reason": reason}


def fingerprint(body: Mapping[str, Any], prompt: Prompt) -> Fingerprint:
    """The fingerprint of one request."""
    last = {"tools": -1, "system": -1, "messages": -1}
    marked = 0
    for i, placed in enumerate(prompt.blocks):
        last[placed.part] = i
        if placed.ttl:
            marked = prompt.upto[i]
    chain = prompt.chain
    at_tools = chain[last["tools"]] if last["tools"] >= 0 else START
    return Fingerprint(
        model=f"{body.get('model')} {body.get('speed') or 'standard'}",
        tools=at_tools,
        system=chain[last["system"]] if last["system"] >= 0 else at_tools,
        messages=len(prompt.blocks),
        end=chain[-1] if chain else START,
        settings=json.dumps([body.get("thinking"), body.get("tool_choice"), body.get("output_config")], sort_keys=True),
        cached=marked,
    )


def _divergence(old: Fingerprint, new: Fingerprint, prompt: Prompt) -> str | None:
    if old.model != new.model:
        return "model_changed"
    if old.tools != new.tools:
        return "tools_changed"
    if old.system != new.system:
        return "system_changed"
    if new.messages < old.messages or (old.messages and prompt.chain[old.messages - 1] != old.end):
        return "messages_changed"
    return "unavailable" if old.settings != new.settings else None
