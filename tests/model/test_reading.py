"""A reply put together from events: whole blocks only, odd ones refused, never an exception from content."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent.journal.events import Usage
from ipyagent.journal.protocols import Reply
from ipyagent.model.reading import CUT_BY_LIMIT, Reading


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


def read(*events: Any, broken: str = "") -> Reply:
    reading = Reading()
    for event in events:
        for one in event if isinstance(event, list) else [event]:
            list(reading.take(one))
    return reading.reply(broken=broken)


def test_half_a_text_is_kept_and_half_a_call_is_not() -> None:
    reply = read(start(0, type="text", text=""), delta(0, "text_delta", text="ab"), call(1, '{"code"'), broken="cut")
    assert [block["type"] for block in reply.said.blocks] == ["text"]


def test_half_a_thought_is_not_kept() -> None:
    begun = start(0, type="thinking", thinking="", signature="")
    reply = read(begun, delta(0, "thinking_delta", thinking="x"), broken="cut")
    assert reply.said.blocks == ()


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


def test_usage_of_the_end_overwrites_that_of_the_beginning() -> None:
    begun = {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1}
    begun["cache_creation"] = {"ephemeral_1h_input_tokens": 2}  # type: ignore[assignment]
    message = {"type": "message_start", "message": {"id": "m", "model": "x", "usage": begun}}
    reply = read(message, ended("end_turn", output_tokens=9, cache_read_input_tokens=None, input_tokens=True))
    assert reply.usage == Usage(input=5, cache_read=3, cache_write=0, cache_write_1h=2, output=9)


def test_no_usage_is_none() -> None:
    assert read({"type": "message_start", "message": {"usage": None}}, ended("end_turn")).usage is None


_NAMES = st.sampled_from(["type", "index", "delta", "content_block", "message", "usage", "text", "id"])
_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(["content_block_start", "message_delta", "text"]),
    lambda inner: st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(_JSON))
def test_no_event_is_worse_than_a_malformed_stream(events: list[Any]) -> None:
    reading = Reading()
    for event in events:
        try:
            list(reading.take(event))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            break  # the client takes these for a malformed stream
    reading.reply(broken="cut")
