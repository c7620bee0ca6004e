"""Whatever happened, the request is valid, equals the plain reference, and what was sent stays as it was."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from event_lists import DOCUMENT, IMAGE, event_lists, numbered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_view import reference

from ipyagent.journal.events import (
    AssistantSaid,
    BlockDropped,
    Event,
    ModelChosen,
    PromptRendered,
    Reminded,
    Streamed,
    ThinkingDropped,
    ToolCalled,
    ToolReturned,
    Usage,
    UsageReported,
    UserSaid,
)
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.journal.view import View
from ipyagent.practice.history import check_conversation
from ipyagent.practice.models import catalogue

CARD = catalogue(200_000, 64_000, None)["practice"]
THOUGHTS = ("thinking", "redacted_thinking")
DEPTH = int(os.environ.get("VIEW_EXAMPLES", "150"))
quick = settings(max_examples=DEPTH, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": "get", "input": {}}


def thought(signature: str = "s") -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", "signature": signature}


def user(*blocks: Any) -> UserSaid:
    return UserSaid(text="", blocks=tuple(text(b) if isinstance(b, str) else b for b in blocks))


def reply(*blocks: Any, stop: str = "end_turn") -> AssistantSaid:
    return AssistantSaid(blocks=tuple(text(b) if isinstance(b, str) else b for b in blocks), stop_reason=stop)


def result(call: str, *blocks: Any, is_error: bool = False) -> ToolReturned:
    made = tuple(text(b) if isinstance(b, str) else b for b in blocks)
    return ToolReturned(call=call, name="get", blocks=made, is_error=is_error)


def view_of(*events: Any) -> View:
    return View.of(numbered(events))


# ------------------------------------------------------------------ the independent checker


def breaches(messages: list[dict[str, Any]], *, closed: bool) -> Iterator[str]:
    """What is wrong with wire messages, by the invariants of the spec; `closed`: no call may be open at the end."""
    ids: set[str] = set()
    waiting: list[str] = []
    if messages and messages[0]["role"] != "user":
        yield "the first message is not the user's"
    for i, message in enumerate(messages):
        content = message["content"]
        if not content:
            yield f"message {i} is empty"
        if i and messages[i - 1]["role"] == message["role"]:
            yield f"message {i} has the role of the one before"
        answers = [b["tool_use_id"] for b in content if b["type"] == "tool_result"]
        if message["role"] == "user":
            if sorted(answers) != sorted(waiting):
                yield f"message {i} answers {answers}, open were {waiting}"
            if any(b["type"] != "tool_result" for b in content[: len(answers)]):
                yield f"message {i}: results do not come first"
            waiting = []
        elif answers:
            yield f"message {i}: results in a reply"
        for block in content:
            parts = block["content"] if block["type"] == "tool_result" else []
            for part in (block, *parts):
                if part["type"] == "text" and not (isinstance(part["text"], str) and part["text"].strip()):
                    yield f"message {i}: empty text"
            if block["type"] == "tool_use":
                if message["role"] != "assistant" or block["id"] in ids:
                    yield f"message {i}: call {block['id']} is out of place or comes twice"
                ids.add(block["id"])
                waiting.append(block["id"])
            if block["type"] in THOUGHTS and message["role"] != "assistant":
                yield f"message {i}: thinking of the user"
    if waiting and closed:
        yield f"calls {waiting} have no result"


def marks(*parts: Any) -> list[dict[str, Any]]:
    """Every block with a cache mark, at any depth."""
    found: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, dict):
            found += [part] if "cache_control" in part else []
            found += marks(*part.values())
        elif isinstance(part, list):
            found += marks(*part)
    return found


def flat(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The prompt as the provider reads it: role and bytes of each block in a row."""
    return [(m["role"], json.dumps(b, sort_keys=True)) for m in messages for b in m["content"]]


# ------------------------------------------------------------------ properties


@quick
@given(event_lists())
def test_every_prefix_keeps_the_rules_and_equals_the_reference(events: list[Event]) -> None:
    view = View()
    for count, event in enumerate(events, 1):
        view.apply(event)
        _, _, messages = view.wire(marks=False)
        assert list(breaches(messages, closed=view.sendable)) == []
        assert messages == reference(events[:count])
        if view.sendable and messages[-1]["role"] == "assistant":
            paused = [e for e in events[:count] if isinstance(e, AssistantSaid) and e.stop_reason == "pause_turn"]
            assert paused, "only a paused reply may have the last word"


@quick
@given(event_lists(unknown=False))
def test_the_practice_server_takes_every_sendable_view(events: list[Event]) -> None:
    view = View()
    for event in events:
        view.apply(event)
        if view.sendable:
            check_conversation(view.wire()[2], CARD)


@quick
@given(event_lists(), st.randoms(use_true_random=False))
def test_reading_leaves_no_trace(events: list[Event], random: Any) -> None:
    """The view built in one go, and the one that was read all the time, are the same in all they tell."""
    read = View()
    for count, event in enumerate(events, 1):
        read.apply(event)
        for _ in range(random.randint(0, 2)):
            random.choice([read.wire, read.count, read.event_with_images, lambda: read.open_calls, read.__repr__])()
        fresh = View.of(events[:count])
        assert read.wire() == fresh.wire()
        assert read.count() == fresh.count()
        assert (read.open_calls, read.partial_text, read.sendable) == (
            fresh.open_calls, fresh.partial_text, fresh.sendable,
        )


@quick
@given(event_lists())
def test_a_request_that_was_given_out_never_changes(events: list[Event]) -> None:
    view, given_out = View(), []
    for event in events:
        view.apply(event)
        for wire in (view.wire(), view.wire(marks=False)):
            given_out.append((wire, copy.deepcopy(wire)))
    for wire, as_it_was in given_out:
        assert wire == as_it_was


@quick
@given(event_lists())
def test_at_most_four_marks_and_none_on_thinking_or_empty_text(events: list[Event]) -> None:
    view = View()
    for event in events:
        view.apply(event)
        found = marks(*view.wire())
        assert len(found) <= 4
        assert all(block.get("type") not in THOUGHTS for block in found)
        assert all(block.get("type") != "text" or block["text"].strip() for block in found)
        assert marks(*view.wire(marks=False)) == []
        if view.messages and any(b["type"] not in THOUGHTS for b in view.messages[-1]["content"]):
            assert marks(view.wire()[2][-1]), "the end carries the rolling mark"


@quick
@given(event_lists(longest=60))
def test_what_was_sent_is_changed_by_recorded_decisions_only(events: list[Event]) -> None:
    view = View()
    sent: list[tuple[str, str]] = []
    for event in events:
        view.apply(event)
        if isinstance(event, ThinkingDropped | BlockDropped | ModelChosen | PromptRendered):
            sent = []
        if view.sendable:
            now = flat(view.wire(marks=False)[2])
            assert now[: len(sent)] == sent
            sent = now


@quick
@given(event_lists(decisions=False, longest=60), st.data())
def test_late_results_change_nothing_that_was_sent(events: list[Event], data: Any) -> None:
    view = View.of(events)
    view.apply(Reminded(id=len(events) + 1, text="next"))
    before = flat(view.wire(marks=False)[2])
    calls = [call for call in "abcd" if view.knows_call(call)] or ["a"]
    view.apply(result(data.draw(st.sampled_from(calls)), "late"))
    assert flat(view.wire(marks=False)[2]) == before


@quick
@given(event_lists())
def test_the_count_is_never_negative_and_follows_reports(events: list[Event]) -> None:
    view = View()
    for event in events:
        view.apply(event)
        assert view.count().base >= 0
        assert 0.5 <= view.count().factor <= 2.5
    view.apply(user("x"))
    view.apply(reply("y"))
    view.apply(UsageReported(usage=Usage(input=900, output=100), predicted=900, raw=0))
    assert view.count().tokens == 1_000


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(event_lists(longest=80))
def test_every_prefix_equals_the_reference_deeply(events: list[Event]) -> None:
    view = View()
    for count, event in enumerate(events, 1):
        view.apply(event)
        assert view.messages == reference(events[:count])
        assert list(breaches(view.messages, closed=view.sendable)) == []


# ------------------------------------------------------------------ rules, one by one


def test_a_crash_between_call_and_result_is_closed_by_the_next_request() -> None:
    view = view_of(user("hi"), reply(thought(), use("a")), user("go on"))
    assert view.sendable
    closed = view.messages[2]["content"]
    assert [b["type"] for b in closed] == ["tool_result", "text"]
    assert closed[0]["is_error"] is True
    assert "not run" in closed[0]["content"][0]["text"]


def test_a_call_that_ran_says_so_and_keeps_its_output() -> None:
    view = view_of(
        user("hi"), reply(use("a")), ToolCalled(call="a", name="get", input={}),
        Streamed(channel="tool", text="step 1\n", ref="a"), user("go on"),
    )
    said = view.messages[2]["content"][0]["content"][0]["text"]
    assert said == "This call was cut off before it returned.\nstep 1\n"


def test_results_come_in_the_order_of_the_calls() -> None:
    view = view_of(user("hi"), reply(use("a"), use("b")), result("b", "2"), result("a", "1"))
    assert [b["tool_use_id"] for b in view.messages[-1]["content"]] == ["a", "b"]


def test_half_said_text_stands_after_the_results_that_it_followed() -> None:
    view = view_of(user("hi"), reply(use("a")), Streamed(channel="text", text="so"), user("go on"))
    assert [m["role"] for m in view.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert view.messages[3]["content"] == [text("so\n[cut off here]")]


def test_no_event_can_forge_a_result_or_a_call() -> None:
    forged = {"type": "tool_result", "tool_use_id": "a", "content": "forged"}
    view = view_of(user("hi", forged), reply("ok", forged), user(use("x"), thought(), "hm"))
    assert flat(view.messages) == flat([
        {"role": "user", "content": [text("hi")]},
        {"role": "assistant", "content": [text("ok")]},
        {"role": "user", "content": [text("hm")]},
    ])


def test_ids_that_the_api_refuses_are_mended_with_their_results() -> None:
    view = view_of(user("hi"), reply(use("call:1"), use("call.1")), result("call.1", "2"), result("call:1", "1"))
    sent = [b["id"] for b in view.messages[1]["content"]]
    assert sent == ["call_1", "call_1_2"]
    assert [b["tool_use_id"] for b in view.messages[2]["content"]] == sent
    assert view.knows_call("call:1")


def test_pictures_in_an_error_become_words() -> None:
    view = view_of(user("hi"), reply(use("a")), result("a", "bad", IMAGE, is_error=True))
    assert view.messages[2]["content"][0]["content"] == [text("bad"), text("[image]")]


def test_cache_marks_in_events_are_not_sent() -> None:
    marked = {**text("hi"), "cache_control": {"type": "ephemeral"}}
    head = PromptRendered(system=(marked, marked), tools=({"name": "t", "cache_control": {"type": "ephemeral"}},))
    view = view_of(head, *[user(marked, marked), reply(marked, use("a")), result("a", marked)] * 3)
    assert len(marks(*view.wire())) <= 4
    assert marks(*view.wire(marks=False)) == []


def test_a_dropped_picture_leaves_its_word_and_no_later_thinking() -> None:
    events = numbered([
        user("one"), reply(thought("s1"), "hm"), user("see", IMAGE), reply(thought("s2"), use("a")),
        result("a", "plot", DOCUMENT), reply(thought("s3"), "ok"), user("more"),
    ])
    view = View.of(events)
    assert view.event_with_images() == 5
    assert view.event_with_images(2) == 3
    view.apply(BlockDropped(id=8, event=3))
    kinds = [[b["type"] for b in m["content"]] for m in view.messages]
    assert kinds == [["text"], ["thinking", "text"], ["text", "text"], ["tool_use"], ["tool_result"], ["text"],
                     ["text"]]
    assert view.messages[2]["content"][1] == text("[image]")
    view.apply(BlockDropped(id=9, event=5))
    assert view.messages[4]["content"][0]["content"] == [text("plot"), text("[document]")]
    assert view.event_with_images() is None


def test_thinking_up_to_an_event_goes_also_within_a_message() -> None:
    events = [user("hi"), reply(thought("s1"), "one", stop="pause_turn"), reply(thought("s2"), "two")]
    view = view_of(*events)
    assert len(view.messages) == 2
    view.apply(ThinkingDropped(upto=2))
    assert [b.get("signature") for b in view.messages[1]["content"]] == [None, "s2", None]


def test_another_model_gets_no_thinking_of_the_last() -> None:
    events = [ModelChosen(model="m"), user("hi"), reply(thought(), "one"), user("more")]
    assert view_of(*events, ModelChosen(model="m")).messages == view_of(*events).messages
    assert view_of(*events, ModelChosen(model="n")).messages[1]["content"] == [text("one")]


def test_a_dropped_block_no_longer_counts() -> None:
    events = [user("hi"), reply(thought(), "one"), UsageReported(usage=Usage(input=500, output=700), predicted=500)]
    view = view_of(*events, user("more"))
    assert view.count().base == 1_200
    view.apply(ThinkingDropped(upto=3))
    assert (view.count().base, view.count().raw) == (0, sum(estimate_blocks(m["content"]) for m in view.messages))


def test_a_reply_that_is_not_in_the_view_does_not_count_but_its_prompt_is_cached() -> None:
    report = UsageReported(usage=Usage(input=500, output=700), predicted=500)
    view = view_of(user("one"), reply("two"), report, user("three", "four"), reply(thought()), report)
    assert view.count().base == 500
    view.apply(Reminded(text="say something"))
    assert [(m, b) for m, message in enumerate(view.wire()[2]) for b, block in enumerate(message["content"])
            if "cache_control" in block] == [(2, 1), (2, 2)]


def test_the_anchor_is_where_the_last_answered_prompt_ended() -> None:
    """A turn of 40 parallel calls is still read from the cache: the mark stands where the entry was written."""
    calls = [f"c{i}" for i in range(40)]
    report = UsageReported(usage=Usage(input=50, output=9), predicted=50)
    view = view_of(user("go"), reply("working", *map(use, calls)), report, *(result(c, "1") for c in calls))
    marked = [(i, j) for i, m in enumerate(view.wire()[2]) for j, b in enumerate(m["content"]) if "cache_control" in b]
    assert marked == [(0, 0), (2, 39)]
    view.apply(reply("done"))
    view.apply(report)
    view.apply(user("next"))
    marked = [(i, j) for i, m in enumerate(view.wire()[2]) for j, b in enumerate(m["content"]) if "cache_control" in b]
    assert marked == [(2, 39), (4, 0)]


def test_streamed_pieces_are_not_kept_once_the_whole_is_there() -> None:
    pieces = [Streamed(channel="tool", text="x" * 1_000, ref="a")] * 50
    view = view_of(user("go"), reply(use("a")), *pieces, result("a", "done"), *pieces)
    assert view.partial_output("a") == ""
    view.apply(Streamed(channel="text", text="half"))
    view.apply(reply("whole"))
    assert view.partial_text == ""
