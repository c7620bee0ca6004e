"""Edits of the prompt by the server: asked for where the Models API has them, left out where refused."""

from __future__ import annotations

from typing import Any

import pytest
from model_room import MODEL, Talk, request

from ipyagent.journal.protocols import ModelInfo, ModelReply, Request
from ipyagent.model.wire import StreamParser
from ipyagent.practice.replies import fault, text
from ipyagent.practice.server import PracticeServer

EDITS: dict[str, Any] = {
    "edits": [
        {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
        {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 1_000}},
    ]
}
BETA = "context-management-2025-06-27"


def told(server: PracticeServer, *asked: Request, **given: Any) -> tuple[ModelInfo, ModelInfo, list[ModelReply]]:
    """What is known of the model before and after the requests, and their replies."""

    with Talk(server.url, **given) as talk:
        before, replies = talk.info(MODEL), [talk.ask(one)[-1] for one in asked]
        assert all(isinstance(reply, ModelReply) for reply in replies)
        return before, talk.info(MODEL), replies  # type: ignore[return-value] # asserted


def test_the_models_api_says_whether_a_server_edits(server: PracticeServer) -> None:
    assert told(server)[0].edits
    with PracticeServer(without=["context_management"]) as other:
        assert not told(other)[0].edits
    with PracticeServer(without=["models"]) as silent:
        assert not told(silent)[0].edits, "never guessed"


def test_the_edits_go_out_with_their_beta(server: PracticeServer) -> None:
    server.script(text("one"))
    told(server, request(edits=EDITS))
    exchange = server.messages[0]
    assert exchange.body["context_management"] == EDITS
    assert exchange.headers["anthropic-beta"] == BETA
    assert exchange.outcome == "complete"


def test_thinking_is_not_edited_where_none_is_asked_for(server: PracticeServer) -> None:
    server.script(text("one"))
    told(server, request(edits=EDITS), thinking=False)
    assert server.messages[0].body["context_management"] == {"edits": EDITS["edits"][1:]}


def test_the_users_own_betas_stay(server: PracticeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "anthropic-beta: context-1m-2025-08-07")
    server.script(text("one"))
    told(server, request(edits=EDITS, diagnose=""))
    assert server.messages[0].headers["anthropic-beta"].split(",") == [
        "context-1m-2025-08-07",
        "cache-diagnosis-2026-04-07",
        BETA,
    ]


def test_a_refused_edit_is_left_out_from_then_on(server: PracticeServer) -> None:
    for refusal in (
        "context_management: Extra inputs are not permitted",
        f"Unexpected value(s) `{BETA}` for the `anthropic-beta` header",
        "clear_tool_uses_20250919 is not supported by this model",
    ):
        server.script(fault(400, message=refusal), text("one"), text("two"))
        before, after, replies = told(server, request(edits=EDITS), request(edits=EDITS))
        assert [reply.said.blocks[0]["text"] for reply in replies] == ["one", "two"]
        sent = ["context_management" in exchange.body for exchange in server.messages[-3:]]
        assert sent == [True, False, False], refusal
        assert (before.edits, after.edits) == (True, False)


def test_without_marks_the_edits_stay() -> None:
    with PracticeServer() as server:
        server.script(fault(400, message="cache_control: Extra inputs are not permitted"), text("one"))
        told(server, request(edits=EDITS, diagnose="msg_1"))
        assert "cache_control" not in str(server.messages[-1].body)
        assert server.messages[-1].body["context_management"] == EDITS
        assert server.messages[-1].body["diagnostics"] == {"previous_message_id": "msg_1"}


def test_what_the_server_did_and_missed_is_read_from_the_stream() -> None:
    reading = StreamParser()
    edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 4, "cleared_input_tokens": 9_000}
    start = {"usage": {}, "diagnostics": {"cache_miss_reason": {"type": "system_changed"}}}
    for event in (
        {"type": "message_start", "message": start},
        {"type": "message_delta", "delta": {}, "context_management": {"applied_edits": [edit, "odd"]}},
        {"type": "message_stop"},
    ):
        list(reading.take(event))
    reply = reading.reply()
    assert reply.applied == (edit,)
    assert reply.miss == "system_changed"
    odd: Any
    for odd in (None, [], {"cache_miss_reason": None}, {"cache_miss_reason": "x"}, 3):
        reading = StreamParser()
        list(reading.take({"type": "message_start", "message": {"usage": {}, "diagnostics": odd}}))
        list(reading.take({"type": "message_delta", "delta": {}, "context_management": odd}))
        assert (reading.reply().miss, reading.reply().applied) == ("", ())
