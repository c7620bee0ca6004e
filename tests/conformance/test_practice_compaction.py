"""Both kinds of server compaction: what the blocks stand for, what they cost, and where they may stand."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from practice_api import TOOL, Body, ask, assistant, client, request, result, said, use, user

from ipyagent.practice.replies import Reply, refusal, text, tool
from ipyagent.practice.server import PracticeServer

THRESHOLD, DEMAND = "compact-2026-01-12", "compact-2026-09-04"
LONG = "value 123.456 in row 77; " * 60
SUMMARIZE: Body = {"compaction": {"type": "summarize"}}


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer(least_trigger=1_000) as running:
        yield running


def compact(trigger: int = 2_000, **more: Any) -> Body:
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": trigger}, **more}
    return {"context_management": {"edits": [edit]}}


def talked(server: PracticeServer, sdk: anthropic.Anthropic, turns: int, betas: str = "", **more: Any) -> Body:
    """A conversation of long turns with thinking, ready for its next message."""
    server.script(*(text(f"answer {n}: {LONG}", thinking=f"thought {n}") for n in range(turns)))
    body = request(system="Be exact.", tools=[TOOL], thinking={"type": "adaptive"}, **more)
    body.update(messages=[], max_tokens=4_000)
    for n in range(turns):
        body["messages"].append(user(f"question {n}: the code of depot {n} is QX-{700 + n}"))
        body["messages"].append(assistant(*ask(sdk, body, betas)["content"]))
    return body


def count(sdk: anthropic.Anthropic, body: Body, betas: str) -> Body:
    body = {name: value for name, value in body.items() if name not in ("max_tokens", "compaction")}
    return ask(sdk, body, betas, "/v1/messages/count_tokens")


def test_past_the_trigger_the_reply_begins_with_a_summary_that_stands_for_everything_before(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    body = talked(server, sdk, 4)
    body["messages"].append(user("and now?"))
    before = ask(sdk, body)["usage"]["input_tokens"]
    server.script(text("now", thinking="after the summary"))
    answer = ask(sdk, {**body, **compact()}, THRESHOLD)
    block = answer["content"][0]
    assert [part["type"] for part in answer["content"]] == ["compaction", "thinking", "text"]
    assert "QX-701" in block["content"]
    assert "and now?" in block["content"]
    first, second = answer["usage"]["iterations"]
    assert (first["type"], second["type"]) == ("compaction", "message")
    assert first["input_tokens"] > before > 2 * second["input_tokens"]
    assert first["output_tokens"] > 100
    assert answer["usage"]["input_tokens"] == second["input_tokens"]
    assert answer["context_management"] == {"applied_edits": []}

    body["messages"] += [assistant(*answer["content"]), user("go on")]
    whole = {**body, **compact()}
    cut = {**whole, "messages": body["messages"][-2:]}
    for sent in (whole, cut):  # sent whole or from the block on: the same prompt, and the thinking holds
        counted = count(sdk, sent, THRESHOLD)
        assert counted["input_tokens"] < 1_200
        later = ask(sdk, sent, THRESHOLD)
        assert later["usage"]["input_tokens"] == counted["input_tokens"]
        assert [each["type"] for each in later["usage"]["iterations"]] == ["message"]
    assert count(sdk, whole, THRESHOLD)["context_management"]["original_input_tokens"] > 2_000


def test_below_the_trigger_nothing_happens_and_iterations_are_told(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    answer = ask(sdk, request(**compact()), THRESHOLD)
    assert [each["type"] for each in answer["usage"]["iterations"]] == ["message"]
    assert "iterations" not in ask(sdk, request())["usage"]


def test_a_pause_answers_with_the_summary_alone_and_the_next_request_goes_on(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    body = talked(server, sdk, 4)
    body["messages"].append(user("and now?"))
    answer = ask(sdk, {**body, **compact(pause_after_compaction=True)}, THRESHOLD)
    assert answer["stop_reason"] == "compaction"
    assert [part["type"] for part in answer["content"]] == ["compaction"]
    assert answer["usage"]["input_tokens"] == answer["usage"]["output_tokens"] == 0
    assert [each["type"] for each in answer["usage"]["iterations"]] == ["compaction"]
    body["messages"].append(assistant(*answer["content"]))
    server.script(text("on we go", thinking="from the summary"))
    more = ask(sdk, body, THRESHOLD)
    body["messages"] += [assistant(*more["content"]), user("thanks")]
    ask(sdk, body, THRESHOLD)


def test_compaction_in_the_middle_of_a_turn_keeps_calls_and_thinking_valid(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    server.script(*(tool("get", {"n": n}, thinking=f"thought {n}") for n in range(9)))
    body = request(user("start"), tools=[TOOL], thinking={"type": "adaptive"}, **compact())
    kinds = []
    for _ in range(9):
        answer = ask(sdk, body, THRESHOLD)
        kinds.append(answer["content"][0]["type"])
        body["messages"] += [assistant(*answer["content"]), user(result(answer["content"][-1]["id"], LONG))]
    assert kinds.count("compaction") >= 2
    assert not server.refused


def test_a_failed_compaction_is_a_null_block_and_null_blocks_are_passed_over(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    server.judge.summarise = lambda body: None
    body = talked(server, sdk, 4)
    body["messages"].append(user("and now?"))
    whole = count(sdk, body, THRESHOLD)["input_tokens"]
    answer = ask(sdk, {**body, **compact(pause_after_compaction=True)}, THRESHOLD)
    assert answer["content"][0] == {"type": "compaction", "content": None}
    assert answer["stop_reason"] == "end_turn"
    assert answer["usage"]["input_tokens"] == whole
    void = copy.deepcopy(body)
    void["messages"].insert(1, assistant({"type": "compaction", "content": None}))
    assert count(sdk, void, DEMAND)["input_tokens"] == whole
    ask(sdk, {**void, "messages": [assistant({"type": "compaction", "content": None}), *body["messages"]]}, DEMAND)


def test_a_compaction_request_answers_with_one_signed_block_and_its_price(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    body = talked(server, sdk, 4, cache_control={"type": "ephemeral"})
    answer = ask(sdk, {**body, **SUMMARIZE}, DEMAND)
    (block,) = answer["content"]
    assert (answer["stop_reason"], block["type"]) == ("compaction", "compaction")
    assert block["signature"]
    assert all(f"QX-{700 + n}" in block["content"] for n in range(4))
    assert {name: answer["usage"][name] for name in ("input_tokens", "output_tokens")} == {
        "input_tokens": 0,
        "output_tokens": 0,
    }
    (spent,) = answer["usage"]["iterations"]
    assert spent["cache_read_input_tokens"] > 1_000  # the summarising call reads the conversation from the cache
    assert spent["output_tokens"] > 100
    for next_messages in ([assistant(block), user("next")], [user(block, said("next"))]):
        later = ask(sdk, {**body, "messages": next_messages}, DEMAND)
        usage = later["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"] < 1_500


@pytest.mark.parametrize("kept", [1, 2])
def test_thinking_in_turns_kept_behind_a_signed_block_stays_valid_through_two_compactions(
    server: PracticeServer, sdk: anthropic.Anthropic, kept: int
) -> None:
    body = talked(server, sdk, 4)
    history = body["messages"]
    for _ in range(2):
        cut = len(history) - 2 * kept
        block = ask(sdk, {**body, "messages": history[:cut], **SUMMARIZE}, DEMAND)["content"][0]
        history = [assistant(block), *history[cut:]]
        server.script(text("more", thinking="again"))
        history.append(user("next"))
        history.append(assistant(*ask(sdk, {**body, "messages": history}, DEMAND)["content"]))
    changed = copy.deepcopy(history)
    changed[1]["content"] = "another question"
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        ask(sdk, {**body, "messages": [*changed, user("x")]}, DEMAND)
    with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
        ask(sdk, {**body, "system": "Be quick.", "messages": [*history, user("x")]}, DEMAND)


def test_a_block_may_be_compacted_again_and_keeps_what_it_said(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    body = talked(server, sdk, 3)
    for _ in range(3):
        block = ask(sdk, {**body, **SUMMARIZE}, DEMAND)["content"][0]
        server.script(text(f"more: {LONG}", thinking="t"))
        body["messages"] = [assistant(block), user("what else?")]
        body["messages"].append(assistant(*ask(sdk, body, DEMAND)["content"]))
    assert "QX-700" in block["content"]


def test_a_signed_block_arrives_whole_and_a_threshold_block_in_one_delta(
    server: PracticeServer, sdk: anthropic.Anthropic
) -> None:
    body = talked(server, sdk, 4)
    with sdk.beta.messages.stream(betas=[DEMAND], **body, **SUMMARIZE) as stream:
        kinds = [event.type for event in stream if event.type.startswith("content_block")]
        message = stream.get_final_message()
    assert kinds == ["content_block_start", "content_block_stop"]
    assert message.stop_reason == "compaction"
    block = message.to_dict()["content"][0]  # type: ignore[index]  # a list of blocks
    ask(sdk, {**body, "messages": [assistant(block), user("x")]}, DEMAND)
    body["messages"].append(user("and now?"))
    with sdk.beta.messages.stream(betas=[THRESHOLD], **body, **compact()) as stream:
        deltas = [event.delta.type for event in stream if event.type == "content_block_delta"]
        message = stream.get_final_message()
    assert deltas[0] == "compaction_delta"
    assert deltas.count("compaction_delta") == 1
    assert message.content[0].type == "compaction"
    assert message.content[0].content
    assert [each.type for each in message.usage.iterations] == ["compaction", "message"]


def test_a_compaction_without_a_summary_says_how_it_stopped(server: PracticeServer, sdk: anthropic.Anthropic) -> None:
    body = talked(server, sdk, 3)
    failures: list[tuple[str | Reply | None, str]] = [
        (None, "end_turn"), (refusal(), "refusal"), (tool("get", {}), "tool_use"),
    ]  # fmt: skip
    for words, stop in failures:
        server.judge.summarise = lambda _, words=words: words
        answer = ask(sdk, {**body, **SUMMARIZE}, DEMAND)
        assert (answer["content"], answer["stop_reason"]) == ([], stop)
        assert answer["usage"]["iterations"][0]["input_tokens"] > 1_000
    server.judge.summarise = lambda _: LONG
    assert ask(sdk, {**body, **SUMMARIZE, "max_tokens": 50}, DEMAND)["stop_reason"] == "max_tokens"


def signed(sdk: anthropic.Anthropic) -> Body:
    block: Body = ask(sdk, request(user("a question"), assistant("an answer"), **SUMMARIZE, max_tokens=2_000), DEMAND)[
        "content"
    ][0]
    return block


def test_a_signed_block_stands_first_alone_and_unchanged(sdk: anthropic.Anthropic) -> None:
    block = signed(sdk)
    wrong: list[tuple[list[Body], str, str | None]] = [
        ([user("a"), assistant(block), user("x")], "must be sent first", "compaction_block_misplaced"),
        ([user(said("a"), block)], "must be sent first", "compaction_block_misplaced"),
        ([assistant(block, block), user("x")], "one `compaction` block", None),
        ([assistant({**block, "content": "else"}), user("x")], "does not match", "compaction_content_mismatch"),
        ([assistant({**block, "signature": "abc"}), user("x")], "Invalid `signature`", "compaction_signature_invalid"),
        ([assistant({**block, "citations": None}), user("x")], "Extra inputs", None),
        ([assistant({**block, "content": ""}), user("x")], "non-empty", None),
    ]
    for messages, words, code in wrong:
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(sdk, request(*messages), DEMAND)
        assert words in str(caught.value.api_message)
        assert caught.value.error_code == code
    with pytest.raises(anthropic.BadRequestError, match="'compaction' found using 'type'"):
        ask(sdk, request(assistant(block), user("x")))
    with pytest.raises(anthropic.BadRequestError, match="cannot run on a request with a signed block"):
        ask(sdk, request(assistant(block), user("x"), **compact()), f"{DEMAND},{THRESHOLD}")


REFUSED: dict[str, tuple[Body, str, str | None]] = {
    "with context management": (request(context_management={"edits": []}), "cannot be combined", None),
    "with stop sequences": (request(stop_sequences=["x"]), "stop_sequences", None),
    "with a forced tool": (
        request(tools=[TOOL], tool_choice={"type": "any"}, model="claude-haiku-5-5"), "not supported", None,
    ),
    "with an open call": (
        request(user("a"), assistant(use("t1")), tools=[TOOL]), "not finished", "compaction_incomplete_turn",
    ),
    "with nothing": ({**request(), "messages": []}, "nothing to summarize", "compaction_nothing_to_summarize"),
    "of another type": (request(compaction={"type": "drop"}), "'summarize'", None),
    "with more fields": (request(compaction={"type": "summarize", "trigger": 1}), "Extra inputs", None),
    "with long instructions": (
        request(compaction={"type": "summarize", "instructions": "x" * 20_000}), "at most 16384", None,
    ),
    "of an old model": (request(model="claude-opus-4-8"), "not supported for claude-opus-4-8", None),
}  # fmt: skip


def test_a_compaction_request_that_breaks_a_rule_is_a_400(sdk: anthropic.Anthropic) -> None:
    for name in REFUSED:
        body, words, code = REFUSED[name]
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(sdk, {**SUMMARIZE, **body}, f"{DEMAND},context-management-2025-06-27")
        assert words in str(caught.value.api_message), name
        assert caught.value.error_code == code, name


def test_a_trigger_has_a_least_and_a_server_without_compaction_passes_over_it() -> None:
    # a trigger below the apis least is refused
    with PracticeServer() as server, client(server) as sdk:
        with pytest.raises(anthropic.BadRequestError, match="greater than or equal to 50000"):
            ask(sdk, request(**compact(49_999)), THRESHOLD)
        ask(sdk, request(**compact(50_000)), THRESHOLD)
    # a server without compaction passes over it
    with PracticeServer(without={"compaction"}, least_trigger=1) as server, client(server) as sdk:
        assert ask(sdk, request(**SUMMARIZE), DEMAND)["stop_reason"] == "end_turn"
        assert ask(sdk, request(**compact(1)), THRESHOLD)["content"][0]["type"] == "text"
