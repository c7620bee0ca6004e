"""A reply put together from the stream's raw events.

A block counts only when its end was seen: half a tool call is never kept, half a text is. Broken
JSON of a call is kept as text for the model and the call is marked as not to be run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from ipyagent.journal.events import AssistantSaid, Block, Usage
from ipyagent.journal.protocols import Began, ModelEvent, Reply, TextDelta, ThinkingDelta, ToolDelta

CUT_BY_LIMIT = (
    "The call was cut off by the output limit before it was complete, so it was not run. "
    "Make the call again in smaller parts."
)
NOT_AFTER_REFUSAL = "The reply was stopped by a refusal, so this call was not run."
CUTTING = ("max_tokens", "model_context_window_exceeded")
"""Stop reasons that cut a reply where it stands, so that its last call may be half of one."""
MAX_DEPTH = 64
"""Nesting of a call's arguments; the transcript's reader and the server's have limits of their own."""
MOST_TOKENS = 1_000_000_000
"""A count above this is a server's mistake."""
ORDER = ("type", "id", "name", "input", "text", "thinking", "signature")

_BAD_ID = re.compile(r"[^a-zA-Z0-9_-]")


class Reading:
    """Takes raw events (`take`) and ends in a `Reply` (`reply`)."""

    def __init__(self) -> None:
        self.began = False
        self.finished = False
        self.stop_reason = ""
        self.message_id = ""
        self.model = ""
        self.details = ""
        self.miss = ""
        self._applied: tuple[dict[str, Any], ...] = ()
        self._usage: dict[str, Any] = {}
        self._iterations: list[dict[str, Any]] = []
        self._blocks: dict[int, Block] = {}
        self._parts: dict[tuple[int, str], list[str]] = {}
        self._json: dict[int, list[str]] = {}
        self._json_chars: dict[int, int] = {}
        self._done: set[int] = set()
        self._invalid: dict[int, str] = {}

    def take(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """The next raw event, as a JSON object; yields what a user may see of it."""
        kind = event.get("type")
        if kind == "message_start":
            message = event.get("message") or {}
            self.began = True
            self.message_id, self.model = str(message.get("id") or ""), str(message.get("model") or "")
            self._usage.update(_counts(message.get("usage")))
            self.miss = _miss(message.get("diagnostics"))
            yield Began(self.usage() or Usage())
        elif kind == "content_block_start":
            block = dict(event.get("content_block") or {})
            self._blocks[event["index"]] = block
            if block.get("type") == "tool_use":
                block["name"] = str(block.get("name") or "unnamed")
                self._json[event["index"]] = []
                yield ToolDelta(str(block.get("name") or ""), 0)
        elif kind == "content_block_delta":
            yield from self._delta(event["index"], event.get("delta") or {})
        elif kind == "content_block_stop":
            self._close(event["index"])
        elif kind == "message_delta":
            delta = event.get("delta") or {}
            self.stop_reason = str(delta.get("stop_reason") or self.stop_reason)
            details = delta.get("stop_details")
            if isinstance(details, dict):
                self.details = str(details.get("explanation") or details.get("category") or "")
            managed = event.get("context_management")
            if isinstance(managed, dict):
                self._applied = tuple(edit for edit in managed.get("applied_edits") or () if isinstance(edit, dict))
            self._usage.update(_counts(event.get("usage")))
            self._note_iterations(event.get("usage"))
        elif kind == "message_stop":
            self.finished = True

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[ModelEvent]:
        block = self._blocks.get(index)
        if block is None:
            return
        match delta.get("type"):
            case "text_delta":
                self._grow(index, "text", delta["text"])
                yield TextDelta(delta["text"])
            case "thinking_delta":
                self._grow(index, "thinking", delta["thinking"])
                yield ThinkingDelta(delta["thinking"])
            case "signature_delta":
                self._grow(index, "signature", delta["signature"])
            case "input_json_delta":
                piece = str(delta.get("partial_json") or "")
                self._json.setdefault(index, []).append(piece)
                self._json_chars[index] = self._json_chars.get(index, 0) + len(piece)
                yield ToolDelta(str(block.get("name") or ""), self._json_chars[index])
            case "citations_delta":
                block.setdefault("citations", []).append(delta.get("citation"))
            case "compaction_delta":
                block.update({k: delta[k] for k in ("content", "encrypted_content") if delta.get(k) is not None})

    def _grow(self, index: int, key: str, piece: str) -> None:
        self._parts.setdefault((index, key), []).append(piece)

    def _whole(self) -> None:
        """Put the pieces of texts into their blocks."""
        for (index, key), parts in self._parts.items():
            block = self._blocks[index]
            block[key] = str(block.get(key) or "") + "".join(parts)
        self._parts.clear()

    def _close(self, index: int) -> None:
        block = self._blocks.get(index)
        if block is None:
            return
        self._done.add(index)
        text = "".join(self._json.pop(index, ()))
        if block.get("type") == "tool_use" and text.strip():
            try:
                value = json.loads(text, parse_constant=_no_number, parse_float=_number, parse_int=_integer)
                if not isinstance(value, dict):
                    self._refuse(index, text, f"The arguments must be a JSON object, got: {text[:300]}")
                elif _depth(value) > MAX_DEPTH:
                    self._refuse(index, text, f"The arguments are nested more than {MAX_DEPTH} deep")
                else:
                    block["input"] = value
            except ValueError as problem:
                self._refuse(index, text, f"The arguments are not valid JSON ({problem}): {text[:300]}")
            except RecursionError:
                self._refuse(index, text, f"The arguments are nested more than {MAX_DEPTH} deep")

    def _refuse(self, index: int, text: str, problem: str) -> None:
        self._blocks[index]["input"] = {"invalid_json": text[:4000]}
        self._invalid[index] = problem

    def _note_iterations(self, usage: Any) -> None:
        """Keep the parts of the bill where the server has compacted within the request."""
        parts = usage.get("iterations") if isinstance(usage, dict) else None
        if isinstance(parts, list):
            self._iterations = [part for part in parts if isinstance(part, dict)]

    def parts(self) -> tuple[Usage, ...]:
        """The parts of the bill; none when there is one only, `usage`."""
        if not any(part.get("type") == "compaction" for part in self._iterations):
            return ()
        return tuple(_usage(_counts(part)) for part in self._iterations)

    def usage(self) -> Usage | None:
        """What the server counted so far; None when it said nothing."""
        return _usage(self._usage) if self._usage else None

    def reply(self, *, broken: str = "", seconds: float = 0.0) -> Reply:
        """The reply as far as it came; `broken` says why the stream ended early ("" when not)."""
        self._whole()
        kept: dict[int, Block] = {}
        for index, block in sorted(self._blocks.items()):
            kind = block.get("type")
            if index in self._done or kind == "text":
                if kind == "text" and not str(block.get("text") or "").strip():
                    continue
                kept[index] = block
            elif kind == "tool_use" and self.finished:
                self._refuse(index, "".join(self._json.pop(index, ())), CUT_BY_LIMIT)
                kept[index] = block
        calls = [index for index, block in kept.items() if block.get("type") == "tool_use"]
        if self.stop_reason in CUTTING and calls and calls[-1] == max(kept):
            self._invalid[calls[-1]] = CUT_BY_LIMIT
        if self.stop_reason == "refusal":
            self._invalid.update(dict.fromkeys(calls, NOT_AFTER_REFUSAL))
        _name_apart([kept[index] for index in calls])
        blocks = [_in_order(block) for block in kept.values()]
        said = AssistantSaid(
            blocks=tuple(blocks),
            stop_reason="" if broken else self.stop_reason,
            model=self.model,
            message_id=self.message_id,
            partial=bool(broken),
            seconds=round(seconds, 3),
        )
        invalid = {kept[index]["id"]: problem for index, problem in self._invalid.items() if index in kept}
        return Reply(
            said=said,
            usage=self.usage(),
            parts=self.parts(),
            broken=broken,
            details=self.details,
            invalid=invalid,
            applied=self._applied,
            miss=self.miss,
        )


def _in_order(block: Block) -> Block:
    """The block with its keys in the API's order; the SDK's models have one of their own."""
    return {key: block[key] for key in (*(name for name in ORDER if name in block), *block)}


def _name_apart(calls: list[Block]) -> None:
    """Give every call of a message an id of its own that the API takes."""
    taken: set[str] = set()
    for block in calls:
        call = wanted = _BAD_ID.sub("_", str(block.get("id") or "call"))
        number = 1
        while call in taken:
            number += 1
            call = f"{wanted}_{number}"
        taken.add(call)
        block["id"] = call


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text[:20])


def _integer(text: str) -> int | float:
    """Integers beyond 64 bits become floats: the transcript has no larger ones."""
    value = int(text) if len(text) < 400 else 10**400
    return value if -(2**63) <= value < 2**64 else _number(text)


def _depth(value: Any) -> int:
    """How deep arrays and objects are nested."""
    depth, level = 0, [value]
    while level := [
        inner
        for outer in level
        if isinstance(outer, dict | list)
        for inner in (outer.values() if isinstance(outer, dict) else outer)
    ]:
        depth += 1
    return depth


def _miss(diagnostics: Any) -> str:
    """The kind of a cache miss that the server names; "" when there was none or it does not say."""
    reason = diagnostics.get("cache_miss_reason") if isinstance(diagnostics, dict) else None
    return str(reason.get("type") or "") if isinstance(reason, dict) else ""


def _usage(count: dict[str, int]) -> Usage:
    return Usage(
        input=count.get("input_tokens", 0),
        cache_read=count.get("cache_read_input_tokens", 0),
        cache_write=count.get("cache_creation_input_tokens", 0),
        cache_write_1h=count.get("ephemeral_1h_input_tokens", 0),
        output=count.get("output_tokens", 0),
    )


def _counts(usage: Any) -> dict[str, int]:
    """The integer counts of a usage object, the hour-long writes lifted up; nulls left out."""
    if not isinstance(usage, dict):
        return {}
    written = usage.get("cache_creation")
    flat = {**usage, **(written if isinstance(written, dict) else {})}
    return {key: value for key, value in flat.items() if type(value) is int and 0 <= value <= MOST_TOKENS}
