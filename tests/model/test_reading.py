"""A reply put together from events: whole blocks only, odd ones refused, never an exception from content."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipyagent.journal.blocks import REPLY_KEYS
from ipyagent.journal.events import ToolReturned, Usage, UserMessage
from ipyagent.journal.protocols import ModelReply
from ipyagent.journal.view import ContextView
from ipyagent.model.wire import CUT_BY_LIMIT, StreamParser
from ipyagent.practice.server.models import catalogue
from ipyagent.practice.server.rules import check_conversation


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **piece: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None, **usage: Any) -> list[dict[str, Any]]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, {"type": "message_stop"}]


def call(index: int, raw: str, name: Any = "python", id: Any = "a") -> list[dict[str, Any]]:
    begun = start(index, type="tool_use", id=id, name=name, input={})
    return [begun, delta(index, "input_json_delta", partial_json=raw)]


def read(*events: Any, broken: str = "") -> ModelReply:
    reading = StreamParser()
    for event in events:
        for one in event if isinstance(event, list) else [event]:
            list(reading.take(one))
    return reading.reply(broken=broken)


def test_of_what_broke_off_half_a_text_is_kept_alone() -> None:
    # half a text is kept and half a call is not
    reply = read(start(0, type="text", text=""), delta(0, "text_delta", text="ab"), call(1, '{"code"'), broken="cut")
    assert [block["type"] for block in reply.said.blocks] == ["text"]
    # half a thought is not kept
    begun = start(0, type="thinking", thinking="", signature="")
    reply = read(begun, delta(0, "thinking_delta", thinking="x"), broken="cut")
    assert reply.said.blocks == ()


def test_arguments_that_came_as_an_array_are_refused_wherever_they_stood() -> None:
    """GLM sends such calls; run without arguments, they would do something else."""
    for whole in (start(0, type="tool_use", id="a", name="python", input=[{"code": "1"}]), call(0, '[{"code": "1"}]')):
        reply = read(whole, stop(0), ended("tool_use"))
        assert "must be a JSON object" in reply.invalid["a"]
        assert reply.said.blocks[0]["input"] == {"invalid_json": '[{"code": "1"}]'}
    assert not read(start(0, type="tool_use", id="a", name="stop", input=[]), stop(0), ended("tool_use")).invalid


@pytest.mark.parametrize("raw", ['{"n": NaN}', '{"n": -Infinity}', '{"n": 1e400}', "[]", "3", '{"a": 1,}', "{" * 9000])
def test_what_no_json_object_is_may_not_run(raw: str) -> None:
    reply = read(call(0, raw), stop(0), ended("tool_use"))
    assert set(reply.invalid) == {"a"}
    assert "invalid_json" in reply.said.blocks[0]["input"]


def test_a_large_integer_becomes_a_float() -> None:
    reply = read(call(0, '{"n": 123456789012345678901234567890, "m": 7}'), stop(0), ended("tool_use"))
    assert reply.said.blocks[0]["input"] == {"n": 1.2345678901234568e29, "m": 7}
    assert not reply.invalid
    huge = read(call(0, '{"n": ' + "9" * 5000 + "}"), stop(0), ended("tool_use"))
    assert set(huge.invalid) == {"a"}


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("closed", [True, False])
def test_the_last_call_of_a_cut_reply_may_not_run(reason: str, closed: bool) -> None:
    first = [*call(0, "{}", id="a"), stop(0)]
    reply = read(first, call(1, "", id="b"), [stop(1)] if closed else [], ended(reason))
    assert reply.invalid == {"b": CUT_BY_LIMIT}
    assert [block["id"] for block in reply.said.blocks] == ["a", "b"]


def test_odd_names_and_ids_become_plain_ones() -> None:
    odd = [call(0, "{}", name=None, id=None), call(1, "{}", id=["x"]), call(2, "{}", id=None)]
    reply = read(*odd, stop(0), stop(1), stop(2), ended("tool_use"))
    ids = [block["id"] for block in reply.said.blocks]
    assert len(set(ids)) == 3
    assert all(isinstance(block["name"], str) and block["name"] for block in reply.said.blocks)
    searched = start(0, type="server_tool_use", name="web_search", input={})  # one of the provider's has no id at all
    broken = read(searched, delta(0, "input_json_delta", partial_json="{"), stop(0), ended("end_turn"))
    assert (broken.invalid, broken.said.blocks[0]["input"]) == ({}, {"invalid_json": "{"})


def test_usage_is_that_of_the_end_and_none_where_nothing_was_said() -> None:
    # usage of the end overwrites that of the beginning
    begun = {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1}
    begun["cache_creation"] = {"ephemeral_1h_input_tokens": 2}  # type: ignore[assignment]
    message = {"type": "message_start", "message": {"id": "m", "model": "x", "usage": begun}}
    reply = read(message, ended("end_turn", output_tokens=9, cache_read_input_tokens=None, input_tokens=True))
    assert reply.usage == Usage(input=5, cache_read=3, cache_write=0, cache_write_1h=2, output=9)
    # no usage is none
    assert read({"type": "message_start", "message": {"usage": None}}, ended("end_turn")).usage is None


_NAMES = st.sampled_from(["type", "index", "delta", "content_block", "message", "usage", "text", "id"])
_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["content_block_start", "message_delta", "text"]),
    lambda inner: st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(st.lists(_JSON))
def test_no_event_is_worse_than_a_malformed_stream(events: list[Any]) -> None:
    reading = StreamParser()
    for event in events:
        try:
            list(reading.take(event))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            break  # the client takes these for a malformed stream
    reading.reply(broken="cut")


# ------------------------------------------------------------------ what other servers send


def test_null_and_absent_are_empty_and_extra_is_left_out() -> None:
    reply = read(
        {"type": "message_start", "message": None},
        start(0, type="thinking", thinking=None, provider_specific_fields={"a": 1}),
        delta(0, "thinking_delta", thinking="so"),
        delta(0, "thinking_delta", thinking=None),
        delta(0, "signature_delta"),
        stop(0),
        start(1, type="text", text=None, citations=None, provider_specific_fields=None),
        delta(1, "text_delta", text="Hello"),
        delta(1, "text_delta"),
        stop(1),
        start(2, type="reasoning_summary", text="of another API"),
        stop(2),
        start(3, type="tool_use", id="c", name="python", input=None, at=0),
        stop(3),
        ended("tool_calls", input_tokens=None),
    )
    assert reply.said.blocks == (
        {"type": "thinking", "thinking": "so", "signature": ""},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "c", "name": "python", "input": {}},
    )
    assert reply.said.stop_reason == "tool_use"
    assert not reply.invalid


def test_a_piece_that_fits_no_open_block_begins_one_of_its_kind() -> None:
    reply = read(
        delta(0, "text_delta", text="no start"),
        start(1, type="text", text=""),
        delta(1, "thinking_delta", thinking="thought in a text"),
        delta(1, "text_delta", text="text again"),
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": ", no index"}},
        ended("end_turn"),
    )
    assert [(block["type"], block.get("text") or block.get("thinking")) for block in reply.said.blocks] == [
        ("text", "no start"), ("thinking", "thought in a text"), ("text", "text again, no index")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "events",
    [
        [start(0, type="tool_use", id="a", name="python", input='{"code": "1"}'), stop(0)],
        [start(0, type="tool_use", id="a", name="python", input={"code": "1"}), stop(0)],
        [start(0, type="tool_use", id="a", name="python"), delta(0, "input_json_delta", partial_json={"code": "1"})],
        [*call(0, '{"code": "1"}')],  # no stop
        [*call(0, '"{\\"code\\": \\"1\\"}"'), stop(0)],
        [*call(0, '"\\"{\\\\\\"code\\\\\\": \\\\\\"1\\\\\\"}\\""'), stop(0)],
        [*call(0, ""), *call(0, '{"code": "1"}'), stop(0)],  # begun twice
    ],
)
def test_arguments_are_read_however_they_are_wrapped(events: list[Any]) -> None:
    reply = read(*events, ended("tool_use"))
    assert [block["input"] for block in reply.said.blocks] == [{"code": "1"}]
    assert not reply.invalid


CARD = catalogue(200_000, 64_000, None)["practice"]
_odd = st.sampled_from([None, 0, 1, -1, 2.5, "", "0", "x", True, [], {}, {"type": "text"}, "tool_use", "text_delta"])
_kinds = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]
_pieces = ["text_delta", "thinking_delta", "signature_delta", "input_json_delta", "citations_delta", "new_delta"]
_block = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "redacted_thinking", "of_2029", None])},
    optional=dict.fromkeys(("text", "thinking", "signature", "id", "name", "input", "data", "extra", "index"), _odd),
)
_delta = st.fixed_dictionaries(
    {"type": st.one_of(st.sampled_from(_pieces), _odd)},
    optional=dict.fromkeys(("text", "thinking", "signature", "partial_json", "citation", "stop_reason"), _odd),
)
_event = st.fixed_dictionaries(
    {"type": st.sampled_from([*_kinds, *_kinds[1:4], "message_stop", "ping", "of_2029"])},
    optional={
        "index": st.one_of(st.integers(0, 3), _odd),
        "content_block": st.one_of(_block, _odd),
        "delta": st.one_of(_delta, _odd),
        "message": _odd,
        "usage": st.one_of(_odd, st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), _odd)),
        "context_management": _odd,
    },
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_event, max_size=25))
def test_no_stream_is_an_error_of_ours_and_what_it_leaves_may_be_sent(events: list[dict[str, Any]]) -> None:
    reply = read(*events, ended("end_turn"))
    view = ContextView()
    view.apply(UserMessage(id=1, text="q", blocks=({"type": "text", "text": "q"},)))
    view.apply(msgspec.structs.replace(reply.said, id=2))
    calls = [block["id"] for block in reply.said.blocks if block["type"] == "tool_use"]
    for at, given_id in enumerate(calls, 3):
        view.apply(ToolReturned(id=at, call=given_id, name="x", blocks=({"type": "text", "text": "ok"},)))
    view.apply(UserMessage(id=99, text="next", blocks=({"type": "text", "text": "next"},)))
    for message in view.messages:
        for block in message["content"]:
            assert set(block) <= {"type", *REPLY_KEYS.get(block["type"], ("tool_use_id", "content", "is_error"))}
    check_conversation(view.messages, CARD)
