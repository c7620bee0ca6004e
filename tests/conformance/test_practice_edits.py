"""`context_management.edits` that clear: what is left is counted and cached, and the client's thinking holds."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from practice_api import TOOL, Body, ask, assistant, client, paid, request, result, said, use, user

from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.practice.server.management import CLEARED

EDITING = "context-management-2025-06-27"
LONG = "value 123.456 in row 77; " * 60
MARK = {"cache_control": {"type": "ephemeral"}}


def clear_tools(**more: Any) -> Body:
    return {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 4}, **more}


def edits(*asked: Body) -> Body:
    return {"context_management": {"edits": list(asked)}}


def worked(rounds: int, **more: Any) -> Body:
    messages: list[Body] = [user("start")]
    for n in range(rounds):
        messages += [assistant(use(f"t{n}", n=n)), user(result(f"t{n}", LONG))]
    return request(*messages, tools=[TOOL], **more)


def count(sdk: anthropic.Anthropic, body: Body, betas: str = EDITING) -> Body:
    body = {name: value for name, value in body.items() if name != "max_tokens"}
    return ask(sdk, body, betas, "/v1/messages/count_tokens")


def test_old_results_are_cleared_and_the_rest_is_what_is_counted(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    body = worked(5, **edits(clear_tools(keep={"type": "tool_uses", "value": 2})))
    answer = ask(sdk, body, EDITING)
    (applied,) = answer["context_management"]["applied_edits"]
    assert (applied["type"], applied["cleared_tool_uses"]) == ("clear_tool_uses_20250919", 3)
    whole = ask(sdk, worked(5))["usage"]["input_tokens"]
    assert answer["usage"]["input_tokens"] == whole - applied["cleared_input_tokens"] < whole * 0.6
    counted = count(sdk, body)
    assert counted["input_tokens"] == answer["usage"]["input_tokens"]
    assert counted["context_management"] == {"original_input_tokens": whole}
    read = server.log[0].read
    results = [block for message in read for block in message["content"] if block["type"] == "tool_result"]
    assert [block["content"] == CLEARED for block in results] == [True, True, True, False, False]
    assert server.log[1].read is None


def test_without_a_reason_nothing_is_cleared(sdk: anthropic.Anthropic) -> None:
    unchanged = [
        clear_tools(trigger={"type": "tool_uses", "value": 5}),
        clear_tools(trigger={"type": "input_tokens", "value": 9_000}),
        clear_tools(clear_at_least={"type": "input_tokens", "value": 9_000}),
        clear_tools(exclude_tools=["get"]),
        clear_tools(keep={"type": "tool_uses", "value": 5}),
    ]
    for edit in unchanged:
        answer = ask(sdk, worked(5, **edits(edit)), EDITING)
        assert answer["context_management"] == {"applied_edits": []}
        assert answer["usage"]["input_tokens"] == ask(sdk, worked(5))["usage"]["input_tokens"]
    assert "context_management" not in ask(sdk, worked(5), EDITING)


def test_inputs_of_the_named_tools_go_too(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    for inputs, gone in ((True, True), (["get"], True), (["other"], False), (False, False)):
        ask(sdk, worked(5, **edits(clear_tools(clear_tool_inputs=inputs))), EDITING)
        read = server.log[-1].read
        assert (read[1]["content"][0]["input"] == {}) is gone
        assert read[-2]["content"][0]["input"] == {"n": 4}


def test_what_was_cleared_stays_cleared_and_the_prefix_with_it_until_the_trigger_is_passed_again(
    sdk: anthropic.Anthropic,
) -> None:
    edit = edits(clear_tools(trigger={"type": "input_tokens", "value": 8_000}, keep={"type": "tool_uses", "value": 1}))
    cleared, reads = [], []
    for rounds in range(1, 26):
        body = worked(rounds, system=[said("Be exact. " * 200, **MARK)], **edit)
        body["messages"][-1]["content"][0].update(MARK)
        answer = ask(sdk, body, EDITING)
        applied = answer["context_management"]["applied_edits"]
        cleared.append(applied[0]["cleared_tool_uses"] if applied else 0)
        fresh, read, made, _ = paid(answer)
        assert fresh == 0
        reads.append(read / (read + made))
    changes = [n for n in range(1, len(cleared)) if cleared[n] != cleared[n - 1]]
    assert len(changes) >= 2
    assert cleared == sorted(cleared)
    assert len(changes) < 7
    for n in range(1, len(reads)):
        # a clearing leaves the system prompt; between clearings everything but the newest round is read
        assert (reads[n] > 0.7) is (n not in changes), (n, reads, cleared)


def test_thinking_holds_under_edits_of_the_server(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    server.script(*(tool("get", {"n": n}, thinking=f"thought {n} " * 40) for n in range(8)))
    body = request(user("start"), tools=[TOOL], thinking={"type": "adaptive"})
    body["max_tokens"] = 1_000
    thinking = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}
    body.update(edits(thinking, clear_tools()))
    for n in range(8):
        answer = ask(sdk, body, EDITING)
        call = answer["content"][-1]["id"]
        body["messages"] += [{"role": "assistant", "content": answer["content"]}, user(result(call, LONG))]
        if n == 4:
            body["messages"].append(user("go on"))
    last = ask(sdk, body, EDITING)
    kinds = {each["type"]: each for each in last["context_management"]["applied_edits"]}
    assert list(kinds) == ["clear_thinking_20251015", "clear_tool_uses_20250919"]
    assert kinds["clear_thinking_20251015"]["cleared_thinking_turns"] == 1
    assert kinds["clear_thinking_20251015"]["cleared_input_tokens"] > 300
    del body["context_management"]
    ask(sdk, body)  # and once more without edits: nothing of the client's history was touched


def test_all_thinking_stays_when_that_is_asked(sdk: anthropic.Anthropic) -> None:
    for keep in ("all", {"type": "all"}):
        body = request(thinking={"type": "adaptive"}, **edits({"type": "clear_thinking_20251015", "keep": keep}))
        assert ask(sdk, body, EDITING)["context_management"] == {"applied_edits": []}


def test_a_stream_tells_the_edits_at_its_end(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    server.script(text("done"))
    body = worked(5, **edits(clear_tools()))
    with sdk.beta.messages.stream(betas=[EDITING], **body) as stream:
        events = [event for event in stream if event.type == "message_delta"]
    (event,) = events
    assert [edit.type for edit in event.context_management.applied_edits] == ["clear_tool_uses_20250919"]


def test_the_brain_reads_the_edited_messages_but_for_its_own_turn(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    heard: list[Body] = []
    server.script(lambda body: heard.append(body) or text("ok"))
    body = worked(5, **edits(clear_tools(keep={"type": "tool_uses", "value": 0})))
    body["messages"] += [assistant("so far"), user("more"), assistant(use("z")), user(result("z", LONG))]
    ask(sdk, body, EDITING)
    told = [block["content"] for message in heard[0]["messages"] for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"]  # fmt: skip
    assert told == [CLEARED] * 5 + [LONG]


REFUSED: dict[str, tuple[Any, str]] = {
    "no object": ([], "Input should be an object"),
    "an unknown field": ({"edits": [], "more": 1}, "Extra inputs"),
    "edits that are no list": ({"edits": {"type": "clear_tool_uses_20250919"}}, "should be a list"),
    "an unknown edit": ({"edits": [{"type": "clear_all"}]}, "does not match"),
    "an unknown field of an edit": ({"edits": [clear_tools(least=1)]}, "Extra inputs"),
    "the same edit twice": ({"edits": [clear_tools(), clear_tools()]}, "more than once"),
    "thinking not first": ({"edits": [clear_tools(), {"type": "clear_thinking_20251015"}]}, "must be the first"),
    "thinking while it is off": ({"edits": [{"type": "clear_thinking_20251015"}]}, "requires `thinking`"),
    "a trigger of no kind": ({"edits": [clear_tools(trigger={"value": 1})]}, "trigger.type"),
    "a trigger of no number": ({"edits": [clear_tools(trigger={"type": "tool_uses", "value": "4"})]}, "valid integer"),
    "tokens to keep": ({"edits": [clear_tools(keep={"type": "input_tokens", "value": 3})]}, "keep.type"),
    "uses to clear": ({"edits": [clear_tools(clear_at_least={"type": "tool_uses", "value": 3})]}, "clear_at_least"),
    "a name instead of names": ({"edits": [clear_tools(exclude_tools="get")]}, "list of strings"),
    "compaction without its beta": ({"edits": [{"type": "compact_20260112"}]}, "compact-2026-01-12"),
}


def test_a_wrong_shape_is_a_400(sdk: anthropic.Anthropic) -> None:
    for name in REFUSED:
        asked, words = REFUSED[name]
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(sdk, request(context_management=asked), EDITING)
        assert words in str(caught.value.api_message), name


def test_edits_need_their_beta_and_a_model_that_has_them(sdk: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="Extra inputs"):
        ask(sdk, request(**edits(clear_tools())))
    with pytest.raises(anthropic.BadRequestError, match="requires `context-management"):
        ask(sdk, request(**edits(clear_tools())), "compact-2026-01-12")
    with pytest.raises(anthropic.BadRequestError, match="not supported for claude-opus-4-8"):
        ask(sdk, request(model="claude-opus-4-8", **edits()), EDITING)


def test_the_models_api_says_who_can_edit_and_the_abilities_can_be_switched_off() -> None:
    with PracticeServer() as server, client(server) as sdk:
        for model in ("practice", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"):
            can = sdk.beta.models.retrieve(model).capabilities
            assert can.context_management.supported
            assert can.context_management.compact_20260112
            assert can.context_management.compact_20260112.supported
            assert can.context_management.clear_thinking_20251015
            assert can.compaction.summarize.supported
        old = sdk.beta.models.retrieve("claude-opus-4-8").capabilities
        assert not old.context_management.supported
    with PracticeServer(without={"context_management", "compaction"}) as server, client(server) as sdk:
        can = sdk.beta.models.retrieve("practice").capabilities
        assert not can.context_management.supported
        assert not can.compaction.supported
        answer = ask(sdk, worked(5, **edits(clear_tools())), EDITING)  # passed over like any unknown field
        assert "context_management" not in answer
