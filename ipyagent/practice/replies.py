"""What the practice model answers: frozen replies, and scripted ways for an answer to go wrong.

A reply is written without ids and signatures (`""`): the server fills in the id of a tool call and the
signature of a thinking block from the conversation the reply belongs to. A tool id given here is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Block = dict[str, Any]

How = Literal["eof", "drop", "reset", "hang", "error", "stall", "bad_json", "bad_sse"]


@dataclass(frozen=True, slots=True)
class Break:
    """Where and how a streamed reply goes wrong.

    `eof`: the stream ends cleanly before `message_stop`; `drop`: FIN inside the chunked body; `reset`: TCP
    reset; `hang`: silence for `seconds`, then a clean end; `error`: an `error` event of type `kind`;
    `stall`: silence for `seconds`, then the rest; `bad_json` and `bad_sse`: the next event is mangled and
    the stream goes on. The break comes after `after_events` events (negative: counted from the end) or after
    `after_bytes` bytes of event text, which may be in the middle of an event or of a character.
    """

    how: How
    after_events: int | None = None
    after_bytes: int | None = None
    seconds: float = 30.0
    kind: str = "overloaded_error"
    message: str = "The practice server was told to fail here."


@dataclass(frozen=True, slots=True)
class Reply:
    """One assistant message.

    `content`: blocks as the API answers them. `stop_reason`: as in the API. `usage`: numbers that replace
    the true ones (to act out a server that miscounts). `raw_inputs`: block index and the JSON text to send
    for that tool call instead of its input (may be cut or invalid). `began`: the numbers of `message_start`, where the
    reply took more by its end (the server fills it in). `first_delay`, `delay`: seconds before
    the first event and between events. `chunk`: characters in a delta, of a long block
    without delays more.
    """

    content: tuple[Block, ...] = ()
    stop_reason: str = "end_turn"
    stop_sequence: str | None = None
    stop_details: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None
    raw_inputs: tuple[tuple[int, str], ...] = ()
    began: Mapping[str, Any] | None = None
    first_delay: float = 0.0
    delay: float = 0.0
    chunk: int = 12
    broken: Break | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """An HTTP error in place of a reply; waits are seconds (`retry_after`) and milliseconds."""

    status: int
    kind: str = ""
    message: str = "The practice server was told to fail."
    code: str | None = None
    retry_after: float | None = None
    retry_after_ms: int | None = None
    should_retry: bool | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Scripted = Reply | Fault | Callable[[dict[str, Any]], "Reply | Fault"]


def _thought(thinking: str | None) -> list[Block]:
    return [] if thinking is None else [{"type": "thinking", "thinking": thinking, "signature": ""}]


def text(said: str, *, thinking: str | None = None, stop: str = "end_turn", delay: float = 0.0) -> Reply:
    """A reply in words; `thinking` goes before it, `delay` is seconds between events."""
    return Reply((*_thought(thinking), {"type": "text", "text": said}), stop, delay=delay)


def tool(
    name: str,
    input: Mapping[str, Any],
    *,
    say: str | None = None,
    thinking: str | None = None,
    id: str | None = None,
    delay: float = 0.0,
) -> Reply:
    """A reply that calls one tool, after `say` if given."""
    return calls([(name, input)], say=say, thinking=thinking, ids=[id or ""], delay=delay)


def calls(
    wanted: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    say: str | None = None,
    thinking: str | None = None,
    ids: Sequence[str] | None = None,
    delay: float = 0.0,
) -> Reply:
    """A reply that calls several tools at once; `ids` may repeat one to act out a broken server."""
    blocks: list[Block] = _thought(thinking)
    if say:
        blocks.append({"type": "text", "text": say})
    for (name, asked), given in zip(wanted, ids or [""] * len(wanted), strict=True):
        blocks.append({"type": "tool_use", "id": given, "name": name, "input": dict(asked)})
    return Reply(tuple(blocks), "tool_use", delay=delay)


def raw_tool_json(name: str, raw: str, *, id: str | None = None, stop: str = "tool_use") -> Reply:
    """A tool call whose input is sent as the JSON text `raw`, valid or not."""
    return replace(tool(name, {}, id=id), raw_inputs=((0, raw),), stop_reason=stop)


def cut_tool(name: str, input: Mapping[str, Any], *, keep: float = 0.5, id: str | None = None) -> Reply:
    """A tool call that ran into `max_tokens`: only the share `keep` of its input's JSON text is sent."""
    whole = json.dumps(dict(input), ensure_ascii=False)
    return raw_tool_json(name, whole[: int(len(whole) * keep)], id=id, stop="max_tokens")


def empty(stop: str = "end_turn") -> Reply:
    """A reply without any block."""
    return Reply((), stop)


def refusal(said: str = "", *, category: str | None = "cyber", explanation: str | None = None) -> Reply:
    """A reply stopped by a safety classifier, with `stop_details`."""
    content: tuple[Block, ...] = ({"type": "text", "text": said},) if said else ()
    details = {"type": "refusal", "category": category, "explanation": explanation}
    return Reply(content, "refusal", stop_details=details)


def pause_turn(said: str, *, thinking: str | None = None) -> Reply:
    """A long turn that the client must send back as it is, to be continued."""
    return text(said, thinking=thinking, stop="pause_turn")


def web(*wanted: Block, stop: str = "end_turn", thinking: str | None = None) -> Reply:
    """A reply of blocks, among them calls of the server's own tools (`server_call`), which the server runs; a text
    block's `cites` is the address of a page that it cites."""
    return Reply((*_thought(thinking), *wanted), stop)


def server_call(name: str, **input: Any) -> Block:
    """A call of web_search (`query`) or web_fetch (`url`) for `web`."""
    return {"type": "server_tool_use", "id": "", "name": name, "input": input, "caller": {"type": "direct"}}


def wrong_usage(reply: Reply, **numbers: Any) -> Reply:
    """The reply with false `usage` numbers."""
    return replace(reply, usage={**(reply.usage or {}), **numbers})


def fault(
    status: int,
    *,
    retry_after: float | None = None,
    retry_after_ms: int | None = None,
    should_retry: bool | None = None,
    code: str | None = None,
    message: str = "The practice server was told to fail.",
    kind: str = "",
) -> Fault:
    """An HTTP error; the error type follows from the status unless `kind` is given."""
    return Fault(status, kind, message, code, retry_after, retry_after_ms, should_retry)


def cut(
    reply: Reply,
    how: How,
    *,
    after_events: int | None = None,
    after_bytes: int | None = None,
    seconds: float = 30.0,
    kind: str = "overloaded_error",
) -> Reply:
    """The reply, broken off in its stream (default: after 4 events); see `Break`."""
    if after_events is None and after_bytes is None:
        after_events = 4
    return replace(reply, broken=Break(how, after_events, after_bytes, seconds, kind))


def stall(reply: Reply, seconds: float, *, after_events: int = 4) -> Reply:
    """The reply with a silence of `seconds` in its stream."""
    return cut(reply, "stall", after_events=after_events, seconds=seconds)


def malformed(reply: Reply, how: Literal["bad_json", "bad_sse"] = "bad_json", *, after_events: int = 4) -> Reply:
    """The reply with one mangled event in its stream."""
    return cut(reply, how, after_events=after_events)


def late_error(reply: Reply, kind: str = "overloaded_error") -> Reply:
    """The reply with all its blocks, and then an `error` event in place of `message_delta`."""
    return cut(reply, "error", after_events=-2, kind=kind)
