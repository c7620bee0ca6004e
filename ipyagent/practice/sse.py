"""How a message goes over the wire: its event stream, cut into bytes and pauses, with the breaks a test asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from ipyagent.practice.replies import Break, Reply


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes of event text to send."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds of silence."""

    seconds: float


@dataclass(frozen=True, slots=True)
class End:
    """The stream is over: `complete`, or how it broke (`eof`, `drop`, `reset`, `hang`, `error`)."""

    how: str


Step = Write | Pause | End


def frame(name: str, payload: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **payload}, ensure_ascii=False)}\n\n".encode()


def frames(message: Mapping[str, Any], reply: Reply) -> list[bytes]:
    """The whole event stream of a finished message."""
    usage = dict(message["usage"])
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    if "context_management" in message:
        begun["context_management"] = None  # what was done comes at the end
    begun["usage"] = {**(reply.began or usage), "output_tokens": min(1, usage["output_tokens"])}
    sent = [frame("message_start", {"message": begun}), frame("ping", {})]
    raw_inputs = dict(reply.raw_inputs)
    for i, block in enumerate(message["content"]):
        empty, deltas = _deltas(block, reply.chunk, raw_inputs.get(i))
        sent.append(frame("content_block_start", {"index": i, "content_block": empty}))
        sent += [frame("content_block_delta", {"index": i, "delta": delta}) for delta in deltas]
        sent.append(frame("content_block_stop", {"index": i}))
    usage.pop("cache_creation", None)  # the split by life comes in message_start only
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    more = {"context_management": message["context_management"]} if "context_management" in message else {}
    sent.append(frame("message_delta", {"delta": delta, "usage": usage, **more}))
    sent.append(frame("message_stop", {}))
    return sent


def _deltas(block: Mapping[str, Any], chunk: int, raw: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            said = [{"type": "text_delta", "text": part} for part in _parts(block["text"], chunk)]
            if "citations" not in block:
                return {"type": "text", "text": ""}, said
            cited = [{"type": "citations_delta", "citation": each} for each in block["citations"]]
            return {"type": "text", "text": "", "citations": []}, [*cited, *said]
        case "thinking":
            thought = [{"type": "thinking_delta", "thinking": part} for part in _parts(block["thinking"], chunk)]
            thought.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, thought
        case "tool_use" | "server_tool_use":
            written = json.dumps(block["input"], ensure_ascii=False) if raw is None else raw
            parts = ["", *_parts(written, chunk)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
        case "compaction" if "signature" not in block:
            told = {name: block[name] for name in ("content", "encrypted_content") if name in block}
            return {"type": "compaction", "content": None}, [{"type": "compaction_delta", **told}]
        case _:
            return dict(block), []  # blocks without deltas arrive whole


def _parts(text: str, chunk: int) -> list[str]:
    return [text[i : i + chunk] for i in range(0, len(text), chunk)]


def steps(sent: list[bytes], reply: Reply, request_id: str) -> Iterator[Step]:
    """The stream as things to do, with the reply's delays and its break."""
    if reply.first_delay:
        yield Pause(reply.first_delay)
    broken = reply.broken
    if broken is None:
        yield from _spaced(sent, reply.delay)
        yield End("complete")
        return
    before, after = _split(sent, broken)
    yield from _spaced(before, reply.delay)
    match broken.how:
        case "eof" | "drop" | "reset":
            yield End(broken.how)
        case "hang":
            yield Pause(broken.seconds)
            yield End("hang")
        case "error":
            error = {"type": broken.kind, "message": broken.message}
            yield Write(frame("error", {"error": error, "request_id": request_id}))
            yield End("error")
        case "stall":
            yield Pause(broken.seconds)
            yield from _spaced(after, reply.delay)
            yield End("complete")
        case "bad_json" | "bad_sse":
            yield from _spaced([*(_mangled(raw, broken.how) for raw in after[:1]), *after[1:]], reply.delay)
            yield End(broken.how)
        case _:
            assert_never(broken.how)


def _spaced(sent: list[bytes], delay: float) -> Iterator[Step]:
    for i, raw in enumerate(sent):
        if delay and i:
            yield Pause(delay)
        yield Write(raw)


def _split(sent: list[bytes], broken: Break) -> tuple[list[bytes], list[bytes]]:
    if broken.after_bytes is None:
        at = broken.after_events or 0
        return sent[:at], sent[at:]
    left = broken.after_bytes
    before: list[bytes] = []
    for i, raw in enumerate(sent):
        if len(raw) > left:
            return [*before, *([raw[:left]] if left else [])], [raw[left:], *sent[i + 1 :]]
        before.append(raw)
        left -= len(raw)
    return before, []


def _mangled(raw: bytes, how: str) -> bytes:
    if how == "bad_json":
        head = raw.rstrip(b"\n")
        return head[: -max(1, len(head) // 4)] + b"\n\n"
    return b"\x00\xff: not an event\n" + raw[: len(raw) // 2].replace(b"data:", b"dat") + b"\n\n"
