"""The Messages API's two directions: a request without what the server or the model lacks, and a reply put together
from the stream's raw events, whatever server sends them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import msgspec

from ipyagent.journal.blocks import CALL, THINKING, as_text, is_result, json_object, known_block, unused
from ipyagent.journal.events import AssistantMessage, Block, Streamed, Usage
from ipyagent.journal.protocols import (
    ModelEvent,
    ModelInfo,
    ModelReply,
    Request,
    ResponseStarted,
    ToolDelta,
)
from ipyagent.model.capabilities import (
    DIAGNOSIS_BETA,
    EDITS_BETA,
    LONG_BETA,
    WHOLE_THINKING,
    compaction_betas,
    offered,
    split_suffix,
    summaries_as_text,
    without_marks,
)

# ---- A reply put together from the stream's raw events, whatever server sends them. A block counts only when its
# end was seen, or the whole reply's: half a tool call is never kept, half a text is. Broken JSON of a call is kept
# as text for the model and the call is marked as not to be run. What is null or absent is empty; a piece that fits
# no open block begins one of its own kind; of what is kept only the API's own kinds and keys.

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
CUT_OFF = "The call was cut off before it was complete, so it was not run. Make the call again."
KINDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
    "citations_delta": "text",
    "compaction_delta": "compaction",
}
"""The kind of block that a piece belongs to."""
CALLS = ("tool_use", CALL, "mcp_tool_use")
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
"""Stop reasons of another API that gateways leave as they are."""
TWICE = 20
"""Characters from which on a text that stands in its block's start and again in its pieces was sent twice (LiteLLM)."""
FULL = 0.995
"""Share of the window from which on a reply that was cut was cut by it."""
ENCODED = 2
"""How often a call's arguments may be JSON in a string of JSON."""

_BAD_ID = re.compile(r"[^a-zA-Z0-9_-]")


class _Part(msgspec.Struct):
    """A block as far as it came, at the index that the server gave it."""

    index: int
    block: Block
    texts: dict[str, list[str]] = {}
    """Pieces of its texts by their key."""
    json: list[str] = []
    """Pieces of a call's arguments."""
    chars: int = 0
    done: bool = False
    invalid: str = ""
    """Why a call may not run."""

    @property
    def is_call(self) -> bool:
        return self.block.get("type") in CALLS

    @property
    def empty(self) -> bool:
        """Whether nothing has come into it yet."""
        return not any(any(pieces) for pieces in (self.json, *self.texts.values()))

    def begin(self, block: Block) -> None:
        """It is this block."""
        self.block = block
        if self.is_call:
            block["name"] = _text(block.get("name")) or "unnamed"

    def close(self) -> None:
        """It is whole: a call's arguments are read."""
        if self.done:
            return
        pieces, given = "".join(self.json), self.block.get("input")
        self.done, self.json = True, []
        if not self.is_call:
            return
        text = pieces if pieces.strip() else given if isinstance(given, str) else ""
        if not text.strip() and not (given and isinstance(given, list)):  # GLM: a call's arguments as an array
            self.block["input"] = json_object(given)
            return
        try:
            value: Any = text or given
            text = text or json.dumps(given)
            for again in range(1 + ENCODED):
                if isinstance(value, str):
                    with suppress(ValueError) if again else nullcontext():  # else it is a text, and valid JSON
                        value = json.loads(value, parse_constant=_no_number, parse_float=_number, parse_int=_integer)
            if not isinstance(value, dict):
                self.refuse(text, f"The arguments must be a JSON object, got: {text[:300]}")
            elif _depth(value) > MAX_DEPTH:
                self.refuse(text, f"The arguments are nested more than {MAX_DEPTH} deep")
            else:
                self.block["input"] = value
        except ValueError as problem:
            self.refuse(text, f"The arguments are not valid JSON ({problem}): {text[:300]}")
        except RecursionError:
            self.refuse(text, f"The arguments are nested more than {MAX_DEPTH} deep")

    def refuse(self, text: str, problem: str) -> None:
        """The arguments that came as this text cannot be used."""
        self.block["input"], self.invalid = {"invalid_json": text[:4000]}, problem


class StreamParser:
    """Takes raw events (`take`) and ends in a `ModelReply` (`reply`)."""

    def __init__(self) -> None:
        self.finished = False
        self.stop_reason = ""
        self.message_id = ""
        self.model = ""
        self.details = ""
        self.miss = ""
        self._applied: tuple[dict[str, Any], ...] = ()
        self._usage: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        """What was counted when the reply began."""
        self._iterations: list[dict[str, Any]] = []
        self._parts: list[_Part] = []
        """In the order in which they began."""
        self._open: dict[int, _Part] = {}
        """The newest of each index of the server."""

    def take(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """The next raw event, as a JSON object; yields what a user may see of it."""
        kind = event.get("type")
        if kind == "message_start":
            message = json_object(event.get("message"))
            self.message_id, self.model = _text(message.get("id")), _text(message.get("model"))
            self._usage.update(_counts(message.get("usage")))
            self._first = dict(self._usage)
            missed = json_object(json_object(message.get("diagnostics")).get("cache_miss_reason"))
            self.miss = str(missed.get("type") or "")
            yield ResponseStarted(self.usage() or Usage())
        elif kind == "content_block_start":
            part = self._begin(self._index_of(event, new=True), dict(json_object(event.get("content_block"))))
            if part.is_call:
                yield ToolDelta(part.block["name"], 0, part.block["type"] == CALL, begins=True)
        elif kind == "content_block_delta":
            yield from self._delta(self._index_of(event), json_object(event.get("delta")))
        elif kind == "content_block_stop":
            if (open_part := self._open.get(self._index_of(event))) is not None:
                text = _text(open_part.block.get("text"))
                if open_part.block.get("type") == "text" and not open_part.done and open_part.empty and text:
                    yield Streamed(channel="text", text=text)  # all of it came with its start
                open_part.close()
        elif kind == "message_delta":
            delta = json_object(event.get("delta"))
            reason = _text(delta.get("stop_reason"))
            self.stop_reason = REASONS.get(reason, reason) or self.stop_reason
            details = delta.get("stop_details")
            if isinstance(details, dict):
                self.details = str(details.get("explanation") or details.get("category") or "")
            managed = event.get("context_management")
            if isinstance(managed, dict):
                self._applied = tuple(edit for edit in managed.get("applied_edits") or () if isinstance(edit, dict))
            self._usage.update(_counts(event.get("usage")))
            parts = json_object(event.get("usage")).get("iterations")
            if isinstance(parts, list):  # the server has compacted within the request
                self._iterations = [each for each in parts if isinstance(each, dict)]
            self.finished = self.finished or bool(self.stop_reason)  # nothing of the reply follows
        elif kind == "message_stop":
            self.finished = True

    def _index_of(self, event: dict[str, Any], *, new: bool = False) -> int:
        """The server's index; where it gives none, the next (`new`) or the newest one."""
        index = event.get("index")
        if isinstance(index, str) and index.isdecimal() and len(index) < 10:
            index = int(index)
        if type(index) is int:
            return index
        newest = max((part.index for part in self._parts), default=-1)
        return newest + 1 if new else newest

    def _begin(self, index: int, block: Block) -> _Part:
        """A block begins at an index of the server."""
        part = self._open.get(index)
        if part is None or part.done or not part.empty:  # else it begins twice
            if part is not None:
                part.close()
            part = self._open[index] = _Part(index, {})
            self._parts.append(part)
        part.begin(block)
        return part

    def _fitting(self, index: int, kind: str) -> _Part | None:
        """The open block that a piece of this kind belongs to, a new one where none fits; None for a piece that is
        nothing by itself."""
        part = self._open.get(index)
        if part is not None and not part.done:
            if part.block.get("type") == KINDS[kind] or (kind == "input_json_delta" and part.is_call):
                return part
            if not part.block.get("type"):
                return self._begin(index, {**part.block, "type": KINDS[kind]})  # in its place: nothing has come into it
        if kind in ("signature_delta", "citations_delta", "compaction_delta"):
            same = [each for each in self._parts if each.block.get("type") == KINDS[kind]]
            return same[-1] if same and kind == "signature_delta" else None
        return self._begin(index, {"type": KINDS[kind]})

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[ModelEvent]:
        kind = delta.get("type")
        part = self._fitting(index, kind) if isinstance(kind, str) and kind in KINDS else None
        if part is None:
            return
        match kind:
            case "text_delta" | "thinking_delta" | "signature_delta":
                name = kind.removesuffix("_delta")
                piece = _text(delta.get(name))
                part.texts.setdefault(name, []).append(piece)
                if kind != "signature_delta":
                    yield Streamed(channel="text" if kind == "text_delta" else "thinking", text=piece)
            case "input_json_delta":
                given = delta.get("partial_json")
                piece = json.dumps(given) if isinstance(given, dict) else _text(given)
                part.json.append(piece)
                part.chars += len(piece)
                yield ToolDelta(_text(part.block.get("name")), part.chars, part.block.get("type") == CALL)
            case "citations_delta":
                cited = part.block.get("citations")
                if isinstance(delta.get("citation"), dict):
                    part.block["citations"] = [*(cited if isinstance(cited, list) else ()), delta["citation"]]
            case "compaction_delta":
                part.block.update({k: delta[k] for k in ("content", "encrypted_content") if delta.get(k) is not None})

    @property
    def has_content(self) -> bool:
        """Whether anything of a reply has come."""
        return bool(self._parts)

    def judge_end(self, window: int) -> None:
        """Servers that know one limit only (llama.cpp) call a window that is full `max_tokens`."""
        usage = self.usage()
        if self.stop_reason == "max_tokens" and usage is not None and usage.total >= FULL * window:
            self.stop_reason = "model_context_window_exceeded"

    def usage(self) -> Usage | None:
        """What the server counted so far; None when it said nothing."""
        return usage_told(self._usage) if self._usage else None

    def reply(self, *, broken: str = "", seconds: float = 0.0) -> ModelReply:
        """The reply as far as it came; `broken` says why the stream ended early ("" when not)."""
        kept: list[tuple[_Part, Block]] = []
        for part in sorted(self._parts, key=lambda part: part.index):
            block, kind, ended, open_text = part.block, part.block.get("type"), part.done, "".join(part.json)
            for key, pieces in part.texts.items():
                begun, rest = _text(block.get(key)), "".join(pieces)
                block[key] = rest if len(begun) >= TWICE and begun == rest else begun + rest
            part.texts.clear()
            if not ended and self.finished:  # no end of the block, but the reply's: what is whole is whole
                part.close()
                if part.invalid:
                    part.refuse(open_text, CUT_BY_LIMIT if self.stop_reason in CUTTING else CUT_OFF)
            if not (ended or self.finished or kind == "text"):
                continue
            if kind in ("text", "thinking"):
                block[kind] = _text(block.get(kind))
                if not (block[kind].strip() or block.get("signature")):
                    continue
            if (known := known_block(block)) is not None:
                kept.append((part, known))
        calls = [(part, block) for part, block in kept if block["type"] == "tool_use"]
        if self.stop_reason in CUTTING and calls and calls[-1][0] is kept[-1][0]:
            calls[-1][0].invalid = CUT_BY_LIMIT
        for part, _ in calls if self.stop_reason == "refusal" else ():
            part.invalid = NOT_AFTER_REFUSAL
        _name_apart([block for _, block in calls])
        usage: Usage | None = self.usage()
        parts: tuple[Usage, ...] = ()
        if any(each.get("type") == "compaction" for each in self._iterations):  # each is priced on its own
            parts = tuple(map(usage_told, self._iterations))
        elif usage is not None and any(is_result(block) for _, block in kept) and self._first:
            # behind each result the prompt was read again, and all of it is in the sum
            first = usage_told({**self._first, "output_tokens": 0})
            if 0 < first.prompt <= usage.prompt:
                parts = (usage,)
                usage = msgspec.structs.replace(
                    first, output=usage.output, searches=usage.searches, fetches=usage.fetches
                )
        return ModelReply(
            said=AssistantMessage(
                blocks=tuple(block for _, block in kept),
                stop_reason="" if broken else self.stop_reason,
                model=self.model,
                message_id=self.message_id,
                partial=bool(broken),
                seconds=round(seconds, 3),
            ),
            usage=usage,
            parts=parts,
            broken=broken,
            details=self.details,
            invalid={block["id"]: part.invalid for part, block in kept if part.invalid and "id" in block},
            applied=self._applied,
            miss=self.miss,
        )


def events_of(body: Any) -> Iterator[dict[str, Any]]:
    """An answer in one piece as the events that a stream would have had: a whole message, or an error. Raises
    ValueError for what is neither."""
    if isinstance(body, dict) and (error := body.get("error") or ("content" not in body and body.get("message"))):
        yield {"type": "error", "error": error}
        return
    blocks = json_object(body).get("content")
    if not isinstance(blocks, list):
        raise ValueError("no message")
    yield {"type": "message_start", "message": body}
    for index, block in enumerate(each for each in blocks if isinstance(each, dict)):
        text = block.get("text") if block.get("type") == "text" else None
        yield {"type": "content_block_start", "index": index, "content_block": {**block, "text": ""} if text else block}
        if text:
            yield {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": body.get("stop_reason"), "stop_details": body.get("stop_details")}
    yield {"type": "message_delta", "delta": delta, "usage": body.get("usage")}
    yield {"type": "message_stop"}


def _text(value: Any) -> str:
    """A piece of text; what is null or no text is empty."""
    return value if isinstance(value, str) else ""


def _name_apart(calls: list[Block]) -> None:
    """Give every call of a message an id of its own that the API takes."""
    taken: set[str] = set()
    for block in calls:
        block["id"] = unused(_BAD_ID.sub("_", str(block.get("id") or "call")), taken)
        taken.add(block["id"])


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


def usage_told(usage: Any) -> Usage:
    """A server's `usage` object; what is no count is 0."""
    count = _counts(usage)
    return Usage(
        input=count.get("input_tokens", 0),
        cache_read=count.get("cache_read_input_tokens", 0),
        cache_write=count.get("cache_creation_input_tokens", 0),
        cache_write_1h=count.get("ephemeral_1h_input_tokens", 0),
        output=count.get("output_tokens", 0),
        searches=count.get("web_search_requests", 0),
        fetches=count.get("web_fetch_requests", 0),
    )


def _counts(usage: Any) -> dict[str, int]:
    """The integer counts of a usage object, hour-long writes and searches lifted up; nulls left out."""
    flat = dict(json_object(usage))
    for inner in (flat.get("cache_creation"), flat.get("server_tool_use")):
        flat.update(json_object(inner))
    return {key: value for key, value in flat.items() if type(value) is int and 0 <= value <= MOST_TOKENS}


# ---- A request as the Messages API takes it, without what the server or the model lacks.

def body_of(
    request: Request, info: ModelInfo, *, lacking: Container[str], thinking: bool, limit: int, betas: str
) -> dict[str, Any]:
    """Arguments of the SDK's `messages.create`. `lacking` are the optional parts that are left out,
    `limit` the most tokens of a reply, `betas` the header's value as it stands for all requests."""
    if "cache_control" in lacking:
        request = without_marks(request)
    body: dict[str, Any] = {
        "model": info.model,
        "max_tokens": min(request.max_tokens, limit),
        "messages": request.messages,
        "stream": True,
    }
    if request.system:
        body["system"] = request.system
    if tools := offered(request.tools, info, lacking):
        body["tools"] = tools
    if WHOLE_THINKING in lacking and "thinking" not in lacking and _has_gaps(request.messages):
        body["thinking"] = {"type": "disabled"}  # some think without being asked to (DeepSeek, Kimi)
    elif info.thinking and thinking and request.thinking and "thinking" not in lacking:
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if request.effort and info.effort and "output_config" not in lacking:
        body["output_config"] = {"effort": request.effort}
    if request.schema is not None and "output_config" not in lacking:
        form = {"type": "json_schema", "schema": request.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": form}
    asked = []
    if request.diagnose is not None and "diagnostics" not in lacking:
        body["diagnostics"] = {"previous_message_id": request.diagnose or None}
        asked.append(DIAGNOSIS_BETA)
    if request.edits is not None and "context_management" not in lacking:
        # the plain client is used for all servers; it knows the field in its beta half only
        edits = _possible(request.edits, thinking="display" in body.get("thinking", ()))
        body["extra_body"] = {"context_management": edits}
        asked.append(EDITS_BETA)
    if request.compaction is not None:
        body["extra_body"] = {"compaction": request.compaction}
    if info.compaction:
        asked += compaction_betas(body)
    else:  # another model, another server: what was summarised is told as text
        body["messages"] = summaries_as_text(request.messages)
    if not info.server_tools:
        body["messages"] = as_text(body["messages"])
    if split_suffix(request.model)[1] and info.source == "[1m] suffix":
        asked.append(LONG_BETA)
    if asked:
        known = [name.strip() for name in betas.split(",") if name.strip()]
        body["extra_headers"] = {"anthropic-beta": ",".join(dict.fromkeys([*known, *asked]))}
    return body


def _has_gaps(messages: list[dict[str, Any]]) -> bool:
    """Whether a tool call has lost the thinking before it, or had none."""
    kinds = ({block["type"] for block in message["content"]} for message in messages)
    return any("tool_use" in each and each.isdisjoint(THINKING) for each in kinds)


def _possible(edits: dict[str, Any], *, thinking: bool) -> dict[str, Any]:
    """The edits without that of thinking where the request does not ask for any: it would be refused."""
    if thinking:
        return edits
    kept = [edit for edit in edits["edits"] if not str(edit["type"]).startswith("clear_thinking")]
    return {**edits, "edits": kept}


def has_marks(body: dict[str, Any]) -> bool:
    """Whether cache marks are in a request."""
    places = [*body.get("system", ()), *body.get("tools", ())]
    places += [block for message in body["messages"] for block in message["content"]]
    return any("cache_control" in block for block in places)
