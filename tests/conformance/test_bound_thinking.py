"""Thinking blocks are bound to what was before them: what may be left out, and what may not be touched."""

from __future__ import annotations

import copy

import anthropic
import pytest
from practice_api import TOOL, Body, ask, client, request, result, said, user

from ipyagent.practice.replies import Reply, calls, text, tool
from ipyagent.practice.server import PracticeServer

BOUND = "Invalid `signature` in `thinking` block. The block is bound to a different conversation"
DROP = "thinking-binding-controls-2026-08-01"


def spoken(server: PracticeServer, sdk: anthropic.Anthropic, *replies: Reply, model: str = "practice") -> Body:
    """A conversation with these replies, ready to be asked again."""
    server.script(*replies)
    body = request(user("start"), system="Be exact.", tools=[TOOL], model=model)
    for n, _ in enumerate(replies):
        content = ask(sdk, body)["content"]
        uses = [block for block in content if block["type"] == "tool_use"]
        said_next = user(*(result(block["id"]) for block in uses)) if uses else user(f"next {n}")
        body["messages"] += [{"role": "assistant", "content": content}, said_next]
    return body


THREE = (text("one", thinking="I"), text("two", thinking="II"), text("three", thinking="III"))


def without(body: Body, *indices: int) -> Body:
    """The body without the thinking of these assistant messages."""
    changed = copy.deepcopy(body)
    for i in indices:
        message = changed["messages"][i]
        message["content"] = [block for block in message["content"] if block["type"] != "thinking"]
    return changed


def test_an_unchanged_conversation_goes_on_also_without_thinking_but_for_one_between_others(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    for model in ("practice", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"):
        ask(sdk, spoken(server, sdk, *THREE, model=model))
    for dropped in ((1,), (1, 3), (5,), (3, 5), (1, 3, 5)):
        ask(sdk, without(spoken(server, sdk, *THREE), *dropped))
    body = without(spoken(server, sdk, *THREE), 3)
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(sdk, body)
    assert str(caught.value.api_message).startswith(f"messages.5.content.0: {BOUND}")


EDITS = {
    "system": lambda body: body.update(system="Be exact!"),
    "tools": lambda body: body.update(tools=[{**TOOL, "description": "Gets it."}]),
    "an earlier user message": lambda body: body["messages"].__setitem__(0, user("Start")),
    "an earlier answer": lambda body: body["messages"][1]["content"].__setitem__(1, said("One")),
    "a message left out": lambda body: body.update(messages=body["messages"][2:]),
    "a message put in": lambda body: body["messages"].insert(0, user("before")),
}


def test_a_changed_prefix_is_refused(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    for name, change in EDITS.items():
        body = spoken(server, sdk, *THREE)
        change(body)
        assert body["messages"][0]["role"] == "user"
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(sdk, body)
        assert BOUND in str(caught.value.api_message), name
        ask(sdk, without(body, *(i for i, m in enumerate(body["messages"]) if m["role"] == "assistant")))
    # cache marks and message splits are no change
    body = spoken(server, sdk, *THREE)
    body["messages"][0] = user(said("start", cache_control={"type": "ephemeral"}))
    body["system"] = [said("Be exact.", cache_control={"type": "ephemeral"})]
    answer = body["messages"].pop(1)["content"]
    body["messages"][1:1] = [{"role": "assistant", "content": [block]} for block in answer]
    ask(sdk, body)


def test_on_an_older_or_another_model_nothing_binds_to_the_prefix(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    # an older model does not bind to the prefix
    body = spoken(server, sdk, *THREE, model="claude-opus-5")
    body["system"] = "Other."
    ask(sdk, body)
    # thinking of another model is left out without an error
    body = spoken(server, sdk, *THREE)
    other = {**body, "model": "claude-haiku-5-5", "system": "Other."}
    answer = ask(sdk, other)
    assert [told["reason"] for told in answer["input_transformations"]] == ["model_binding_mismatch"] * 3
    bare = ask(sdk, without(other, 1, 3, 5))
    assert answer["usage"]["input_tokens"] == bare["usage"]["input_tokens"]
    # edited thinking is refused on every model
    for model in ("practice", "claude-opus-5"):
        body = spoken(server, sdk, *THREE, model=model)
        body["messages"][1]["content"][0]["thinking"] = "Not I"
        with pytest.raises(anthropic.BadRequestError, match=r"messages\.1\.content\.0: Invalid `signature`"):
            ask(sdk, body)


def test_drop_block_leaves_out_the_mismatched_block_and_all_after_it(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    body = spoken(server, sdk, *THREE)
    body["messages"][2] = user("another second question")
    body["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    told = ask(sdk, body, DROP)["input_transformations"]
    assert [each["path"] for each in told] == ["messages.3.content.0", "messages.5.content.0"]
    with pytest.raises(anthropic.BadRequestError, match="block_binding: Extra inputs"):
        ask(sdk, body)


def test_open_tool_calls_need_their_thinking_and_others_do_not(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    # open tool calls need their thinking
    body = spoken(server, sdk, tool("get", {"n": 1}, thinking="look first"))
    bare = without(body, 1)
    with pytest.raises(anthropic.BadRequestError, match="Expected `thinking` or `redacted_thinking`, but found `tool_"):
        ask(sdk, bare)
    ask(sdk, {**bare, "thinking": {"type": "disabled"}})
    ask(sdk, body)
    closed = {**bare, "messages": [*bare["messages"], {"role": "assistant", "content": "done"}, user("next")]}
    ask(sdk, closed)
    # open tool calls need their thinking under an edited prefix too
    body = spoken(server, sdk, tool("get", {"n": 1}, thinking="look first"))
    with pytest.raises(anthropic.BadRequestError, match="Expected `thinking`"):
        ask(sdk, {**without(body, 1), "system": "Other."})
    # tool calls made without thinking need none
    ask(sdk, spoken(server, sdk, text("x", thinking="t"), tool("get", {"n": 1})))
    # earlier steps of a tool loop may lose their thinking
    body = spoken(server, sdk, tool("get", {"n": 1}, thinking="a"), tool("get", {"n": 2}, thinking="b"))
    ask(sdk, without(body, 1))


def test_the_latest_assistant_message_keeps_all_its_thinking(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    thought = {"type": "thinking", "thinking": "first", "signature": ""}
    interleaved = Reply((thought, said("x"), {**thought, "thinking": "second"}, said("y")))
    body = spoken(server, sdk, interleaved)
    ask(sdk, body)
    del body["messages"][1]["content"][2]
    with pytest.raises(anthropic.BadRequestError, match="latest assistant message cannot be modified"):
        ask(sdk, body)


def test_a_conversation_goes_on_at_another_server(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    body = spoken(server, sdk, *THREE, calls([("get", {}), ("get", {})], thinking="both"))
    with PracticeServer() as second, client(second) as other:
        ask(other, body)
        with pytest.raises(anthropic.BadRequestError, match="different conversation"):
            ask(other, {**body, "system": "Other."})


def test_thinking_is_shown_as_the_request_wants_it(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    server.script(*[text("x", thinking="secret")] * 3)
    omitted = ask(sdk, request(thinking={"type": "adaptive", "display": "omitted"}))["content"]
    assert omitted[0]["thinking"] == ""
    assert omitted[0]["signature"]
    assert len(ask(sdk, request(thinking={"type": "disabled"}))["content"]) == 1
    ask(sdk, request(user("hi"), {"role": "assistant", "content": omitted}, user("on")))
