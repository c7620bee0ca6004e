"""Odd replies of a model: what is run, what is asked again, how the turn ends; the next turn always works."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from loop_rig import MODEL, Foreign, Person, Rig, result_text

import ipyagent
from ipyagent.agent import Agent, Options
from ipyagent.errors import WindowTooSmall
from ipyagent.journal.events import (
    AssistantMessage,
    BlockDropped,
    SystemReminder,
    ThinkingDropped,
    ToolCalled,
    UsageReported,
)
from ipyagent.journal.journal import read_events
from ipyagent.journal.protocols import ToolOutput
from ipyagent.loop.tool_calls import _unknown
from ipyagent.practice.replies import (
    Reply,
    calls,
    cut_tool,
    empty,
    fault,
    pause_turn,
    raw_tool_json,
    refusal,
    text,
    tool,
    wrong_usage,
)
from ipyagent.practice.server import PracticeServer


def png(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows = b"".join(b"\0" + b"\x80" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def camera(data: bytes) -> Foreign:
    """A tool of somebody else's that gives a picture as it is."""
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    return Foreign(lambda: ToolOutput(blocks=({"type": "image", "source": source},)), "camera")


BROKEN = [
    ('{"code": "ran = 1"', "not valid JSON"),
    ("[1, 2]", "must be a JSON object"),
    ('"print(1)"', "must be a JSON object"),
    ('{"code": "ran = 1", "n": NaN}', "not valid JSON"),
    ('{"code": "ran = 1", "n": 1e999}', "not valid JSON"),
    ('{"code": ' + "[" * 5000 + "]" * 5000 + "}", "nested"),
    ('{"code": ' + "[" * 80 + "]" * 80 + "}", "nested"),
    ('{"source": "ran = 1"}', "wrong arguments"),
    ('{"code": 5}', "wrong arguments"),
    ("", "wrong arguments"),
]


def test_broken_arguments_are_an_error_result_and_nothing_runs(rig: Rig) -> None:
    for raw, says in BROKEN:
        rig.server.script(raw_tool_json("python", raw), text("I see"))
        assert rig.turn().status == "finished"
        result = rig.results()[-1]
        assert result["is_error"]
        assert says in result_text(result), raw
    assert len(rig.results()) == len(BROKEN)
    assert rig.fault_turn().status == "finished"
    assert "ran" not in rig.agent.shell.user_ns


def test_an_integer_beyond_64_bits_is_survived(rig: Rig) -> None:
    rig.server.script(raw_tool_json("python", '{"code": "1", "n": 123456789012345678901234567890}'), text("I see"))
    assert rig.fault_turn().status == "finished"


def test_an_unknown_tool_is_named_with_those_there_are(rig: Rig) -> None:
    rig.server.script(calls([("fly", {}), ("glob", {"pattern": "*"})]), text("ok"))
    assert rig.fault_turn().status == "finished"
    first, second = rig.results()
    assert "There is no tool 'fly'" in result_text(first)
    assert "glob" in result_text(first)
    assert not second.get("is_error")


def test_of_very_many_tools_the_near_ones_are_named_first() -> None:
    said = _unknown("mcp__a__fetch", sorted([*(f"mcp__a__do{n:04}" for n in range(1_000)), "mcp__b__fetch"]))
    assert said.startswith("There is no tool 'mcp__a__fetch'. Known tools: mcp__b__fetch, ")
    assert said.endswith(" and 941 more.")
    assert len(said) < 2_000


def test_ids_that_come_twice_are_told_apart(rig: Rig) -> None:
    adding = [("python", {"code": f"seen = globals().get('seen', []) + [{n}]"}) for n in range(3)]
    rig.server.script(calls(adding, ids=["same", "same", "same"]), text("ok"))
    assert rig.fault_turn().status == "finished"
    rig.server.script(calls(adding[:1], ids=["same"]), text("ok"))
    assert rig.fault_turn().status == "finished"
    assert rig.agent.shell.user_ns["seen"] == [0, 1, 2, 0]
    ids = [block["tool_use_id"] for block in rig.results()]
    assert len(ids) == len(set(ids)) == 4


def test_of_two_calls_with_one_id_only_the_broken_one_is_not_run(rig: Rig) -> None:
    both = calls([("python", {"code": "good = 1"}), ("python", {"code": "bad = 1"})], ids=["x", "x"])
    rig.server.script(replace(both, raw_inputs=((1, '{"code": "bad = 1'),)), text("ok"))
    assert rig.fault_turn().status == "finished"
    assert rig.agent.shell.user_ns["good"] == 1
    assert "bad" not in rig.agent.shell.user_ns


def test_an_id_that_the_api_would_refuse_is_mended(rig: Rig) -> None:
    for given in ("call:1 x", "späť", "a/b\n"):
        rig.server.script(tool("python", {"code": "1"}, id=given), text("ok"))
        assert rig.fault_turn().status == "finished"
        assert all(c.isascii() and (c.isalnum() or c in "_-") for c in rig.results()[-1]["tool_use_id"])
    assert len(rig.results()) == 3


def test_an_empty_reply_is_nudged_once(rig: Rig) -> None:
    rig.server.script(tool("python", {"code": "40 + 2"}), empty(), text("42"))
    assert rig.fault_turn().text == "42"
    assert len(rig.of(SystemReminder)) == 1
    rig.server.script(empty(), empty())
    result = rig.fault_turn()
    assert result.status == "failed"
    assert "empty answer twice" in result.message


def test_only_thinking_counts_as_empty(rig: Rig) -> None:
    thought = Reply(({"type": "thinking", "thinking": "Hm.", "signature": ""},), "end_turn")
    rig.server.script(thought, text("so"))
    assert rig.fault_turn().text == "so"
    rig.server.script(tool("python", {"code": "1"}, thinking="Hm."), thought, text("there"))
    assert rig.fault_turn().text == "there"


def test_a_refusal_is_said_and_its_calls_are_not_run(rig: Rig) -> None:
    rig.server.script(refusal("I cannot", explanation="this looks like an attack"))
    result = rig.fault_turn()
    assert (result.status, "this looks like an attack" in result.message) == ("refused", True)
    rig.server.script(replace(tool("python", {"code": "ran = 1"}), stop_reason="refusal"))
    assert rig.fault_turn().status == "refused"
    assert "ran" not in rig.agent.shell.user_ns
    rig.server.script(refusal(""))
    assert rig.fault_turn().status == "refused"


def test_a_text_cut_at_the_output_limit_ends_as_a_limit(rig: Rig) -> None:
    rig.server.script(text("half of", stop="max_tokens"))
    result = rig.fault_turn()
    assert (result.status, result.text) == ("limit", "half of")
    assert "max_output" in result.message


def test_a_call_cut_at_the_output_limit_is_never_run(rig: Rig) -> None:
    rig.server.script(
        cut_tool("python", {"code": "ran = 1; " * 20}),
        cut_tool("python", {"code": "ran = 1"}, keep=1.0),
        cut_tool("python", {"code": "ran = 1"}, keep=0.0),
    )
    result = rig.fault_turn()
    assert result.status == "limit"
    assert "max_output" in result.message
    assert "ran" not in rig.agent.shell.user_ns
    assert not rig.of(ToolCalled)


def test_a_call_cut_at_the_end_of_the_window_is_never_run(rig: Rig) -> None:
    rig.server.script(raw_tool_json("variables", "", stop="model_context_window_exceeded"), text("ok"))
    assert rig.fault_turn().status == "finished"
    assert not rig.of(ToolCalled)


def test_the_end_of_the_window_ends_as_a_limit(rig: Rig) -> None:
    rig.server.script(text("half", stop="model_context_window_exceeded"))
    result = rig.fault_turn()
    assert (result.status, "%agent new" in result.message) == ("limit", True)


def test_a_paused_turn_is_continued(rig: Rig) -> None:
    rig.server.script(pause_turn("searching", thinking="Hm."), text("found"))
    assert rig.fault_turn().text == "found"


def test_a_window_too_small_for_the_head_is_refused_with_numbers(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(window=1_000)
    with pytest.raises(WindowTooSmall, match="1,000"):
        rig.turn()


def test_a_refused_image_is_dropped_and_asked_again_once(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=[camera(b"this is no picture")])
    rig.server.script(tool("camera", {}, thinking="Look."), text("I could not see it"))
    result = rig.turn("take one")
    assert (result.status, result.text) == ("finished", "I could not see it")
    assert len(rig.server.refused) == 1
    assert len(rig.of(BlockDropped)) == 1
    assert result_text(rig.results()[0]) == "[image]"
    rig.server.script(text("on"))
    assert rig.turn().text == "on"
    assert len(rig.server.refused) == 1


def test_a_server_that_takes_no_images_gets_words(home: object, make_rig: Callable[..., Rig]) -> None:
    with PracticeServer(without={"images"}) as blind:
        rig = make_rig(server=blind, tools=[camera(png(20, 20))])
        blind.script(tool("camera", {}), text("a picture, I am told"))
        assert rig.turn("take one").text == "a picture, I am told"


def test_a_refused_signature_drops_thinking_and_asks_again_once(rig: Rig) -> None:
    rig.server.script(tool("python", {"code": "1"}, thinking="Let me see."), text("one", thinking="It is one."))
    assert rig.turn().text == "one"
    refused = fault(400, message="messages.1.content.0: Invalid `signature` in `thinking` block")
    rig.server.script(refused, text("again"))
    assert rig.fault_turn().text == "again"
    assert len(rig.of(ThinkingDropped)) == 1
    rig.server.script(refused, refused)
    result = rig.fault_turn()
    assert result.status == "failed"
    assert "signature" in result.message


def test_bound_thinking_is_never_refused_in_a_long_mixed_session(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=[camera(png(30, 20))])
    thought = Reply(({"type": "thinking", "thinking": "Hm.", "signature": ""},), "end_turn")
    models = [MODEL, "claude-opus-5-5", "claude-haiku-5-5"]
    for number in range(12):
        rig.server.script(
            calls(
                [("python", {"code": f"x = {number}"}), ("camera", {}), ("glob", {"pattern": "*"})],
                thinking=f"Step {number}.",
                say="Let me look." if number % 2 else None,
            ),
            *([thought] if number % 5 == 3 else []),
            tool("variables", {"name": "x"}, thinking="And then?"),
            text(f"answer {number}", thinking="Clear." if number % 3 else None),
        )
        model = models[number // 4]
        if number == 6:
            rig.agent.new()
        result = rig.turn(f"question {number}", model=model)
        assert (result.status, result.text) == ("finished", f"answer {number}"), result.message
    assert [exchange.error for exchange in rig.server.refused] == []
    kinds = [b["type"] for m in rig.server.messages[-1].body["messages"] for b in m["content"]]
    assert kinds.count("thinking") > 5


@pytest.mark.slow
def test_a_damaged_journal_sends_no_thinking_that_is_refused(rig: Rig, server: PracticeServer) -> None:
    """Whatever line is lost, or has lost characters: the first request after it is taken. Taken up once more, the
    thinking since then stays."""
    for number in range(2):
        server.script(tool("python", {"code": f"x = {number}"}, thinking="Hm."), text("so", thinking="It is done."))
        assert rig.turn(f"naïve question {number}").status == "finished"
    whole = rig.events()
    session = rig.agent.session
    path = session.journal.path
    rig.agent.close()
    lines = path.read_bytes().splitlines(keepends=True)
    dropped = 0
    for at in range(1, len(lines)):
        lost = (b"\x00" * 40 + b"\n", lines[at].replace("ï".encode(), b"\xef"), lines[at][:40] + b"\n")
        every = "ï".encode() in lines[at] or b'"thinking"' in lines[at]
        for damaged in (b"", *(lost if every else (lost[2 * (at % 2)],))):
            path.write_bytes(b"".join([*lines[:at], damaged, *lines[at + 1 :]]))
            if path.read_bytes() == b"".join(lines):
                continue
            for again in range(2):
                server.script(text("fine", thinking="Once more."))
                agent = Agent(settings=rig.settings, folder=rig.folder)
                agent.resume(path.parent.name)
                result = agent.prepare("go on", Options(), Person(can_ask=False)).run_blocking()
                told = [event for event in read_events(path) if isinstance(event, ThinkingDropped)]
                agent.close()
                assert (result.status, server.refused) == ("finished", []), (again, whole[at])
                assert len(told) <= 1, "once for one damage"
            dropped += len(told)
    assert dropped > len(lines) / 2


def test_the_turn_ends_as_a_limit_after_max_turns(rig: Rig) -> None:
    rig.server.script(*[tool("python", {"code": "1"})] * 3)
    result = rig.turn(max_turns=3)
    assert (result.status, len(rig.server.messages)) == ("limit", 3)
    assert "continue" in result.message
    rig.server.script(text("and on"))
    assert rig.turn("go on").text == "and on"
    assert rig.server.refused == []


ABSURD: list[dict[str, Any]] = [
    {"input_tokens": 10**30},
    {"input_tokens": "many", "cache_read_input_tokens": -5},
    {"input_tokens": None, "cache_creation_input_tokens": None, "cache_read_input_tokens": None},
    {"input_tokens": 900_000_000, "cache_read_input_tokens": 3},
    {"input_tokens": 1, "cache_creation": "no"},
    {"input_tokens": 2.5},
]


def test_absurd_usage_blinds_no_mark(rig: Rig) -> None:
    for numbers in ABSURD:
        rig.server.script(wrong_usage(text("one"), **numbers))
        assert rig.turn().text == "one"
        assert 500 < rig.agent.session.view.count().tokens < 20_000, numbers
        assert all(event.usage.total < 10**10 for event in rig.of(UsageReported)), numbers
        rig.fault_turn()
        rig.agent.new()


def test_a_lesser_server_works_and_is_asked_each_thing_once(home: object, make_rig: Callable[..., Rig]) -> None:
    lacking = {"cache_control", "thinking", "output_config"}
    with PracticeServer(refuse_unknown=lacking, without={"models", "count_tokens"}, any_model=True) as lesser:
        rig = make_rig(server=lesser, model="claude-sonnet-5-5", effort="low")
        lesser.script(tool("python", {"code": "6 * 7"}), text("42"), text("43"))
        assert rig.turn().text == "42"
        refusals = len(lesser.refused)
        assert sum(exchange.path == "/v1/messages" for exchange in lesser.refused) <= 3
        assert rig.turn().text == "43"
        assert len(lesser.refused) == refusals
        assert [exchange.path for exchange in lesser.log].count("/v1/models/claude-sonnet-5-5") == 1


def test_text_of_a_reply_with_lone_surrogates_is_stored_and_sent(rig: Rig) -> None:
    rig.server.script(raw_tool_json("python", json.dumps({"code": "s = 'a\ud800b'; s"})), text("odd \x00 text"))
    assert rig.fault_turn().status == "finished"
    assert any(isinstance(event, AssistantMessage) for event in rig.events())


def test_a_users_tool_that_changes_between_turns_is_sent_anew(rig: Rig) -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    rig.server.script(text("one"))
    rig.turn()
    rig.agent.shell.user_ns["add"] = ipyagent.tool(add)
    rig.server.script(tool("add", {"a": 1, "b": 2}), text("3"))
    assert rig.fault_turn().text == "3"
