"""The view's rules, one by one: what is closed, mended, dropped and marked."""

from __future__ import annotations

from event_lists import DOCUMENT, IMAGE, numbered
from view_checks import marks, reply, result, text, thought, use, user, view_of

from ipyagent.journal.events import (
    BlockDropped,
    ModelChosen,
    Streamed,
    SystemPromptFrozen,
    SystemReminder,
    ThinkingDropped,
    ToolCalled,
    Usage,
    UsageReported,
)
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.journal.view import ContextView


def test_what_collapses_keep_for_an_undo_grows_with_what_has_gone() -> None:
    """Not with the conversation around it: each keeps what it took out, not where all messages are."""
    from tests.bench.bench_context import collapsing

    collapsing(20, 10)  # what is imported on the way is nobody's
    few, many = ((collapsing(turns, 10)[1], collapsing(turns, 0)[1]) for turns in (50, 200))
    assert many[0] - many[1] < 7 * (few[0] - few[1]), (few, many, "with the conversation around it, 13 times")
    assert many[0] - many[1] < 0.3 * many[1]


def test_what_a_crash_cut_off_is_closed_and_keeps_its_words() -> None:
    # a crash between call and result is closed by the next request
    view = view_of(user("hi"), reply(thought(), use("a")), user("go on"))
    assert view.sendable
    closed = view.messages[2]["content"]
    assert [b["type"] for b in closed] == ["tool_result", "text"]
    assert closed[0]["is_error"] is True
    assert "not run" in closed[0]["content"][0]["text"]
    # a call that ran says so and keeps its output
    view = view_of(
        user("hi"), reply(use("a")), ToolCalled(call="a", name="get", input={}),
        Streamed(channel="tool", text="step 1\n", ref="a"), user("go on"),
    )
    said = view.messages[2]["content"][0]["content"][0]["text"]
    assert said == "This call was cut off before it returned.\nstep 1\n"
    # half said text stands after the results that it followed
    view = view_of(user("hi"), reply(use("a")), Streamed(channel="text", text="so"), user("go on"))
    assert [m["role"] for m in view.messages] == ["user", "assistant", "user", "assistant", "user"]
    assert view.messages[3]["content"] == [text("so\n[cut off here]")]
    # streamed pieces are not kept once the whole is there
    pieces = [Streamed(channel="tool", text="x" * 1_000, ref="a")] * 50
    view = view_of(user("go"), reply(use("a")), *pieces, result("a", "done"), *pieces)
    assert view.calls.output("a") == ""
    view.apply(Streamed(channel="text", text="half"))
    view.apply(reply("whole"))
    assert view.partial_text == ""


def test_calls_and_results_are_sent_as_the_api_takes_them() -> None:
    # no event can forge a result or a call
    forged = {"type": "tool_result", "tool_use_id": "a", "content": "forged"}
    view = view_of(user("hi", forged), reply("ok", forged), user(use("x"), thought(), "hm"))
    assert [(m["role"], m["content"]) for m in view.messages] == [
        ("user", [text("hi")]), ("assistant", [text("ok")]), ("user", [text("hm")]),
    ]  # fmt: skip
    # ids that the API refuses are mended, and results come in the order of the calls
    view = view_of(user("hi"), reply(use("call:1"), use("call.1")), result("call.1", "2"), result("call:1", "1"))
    sent = [b["id"] for b in view.messages[1]["content"]]
    assert sent == ["call_1", "call_1_2"]
    assert [b["tool_use_id"] for b in view.messages[2]["content"]] == sent
    assert "call:1" in view.calls.seen
    # pictures in an error become words
    view = view_of(user("hi"), reply(use("a")), result("a", "bad", IMAGE, is_error=True))
    assert view.messages[2]["content"][0]["content"] == [text("bad"), text("[image]")]
    # marks of events are not sent
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = {**text("hi"), **mark}
    head = SystemPromptFrozen(system=(marked, marked), tools=({"name": "t", **mark},))
    view = view_of(head, *[user(marked, marked), reply(marked, use("a")), result("a", marked)] * 3)
    assert len(marks(*view.wire())) <= 4
    assert marks(*view.wire(marks=False)) == []


def test_a_dropped_picture_leaves_its_word_and_no_later_thinking() -> None:
    events = numbered([
        user("one"), reply(thought("s1"), "hm"), user("see", IMAGE), reply(thought("s2"), use("a")),
        result("a", "plot", DOCUMENT), reply(thought("s3"), "ok"), user("more"),
    ])
    view = ContextView.of(events)
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


def test_thinking_leaves_by_decisions_and_no_longer_counts() -> None:
    # thinking up to an event goes also within a message
    events = [user("hi"), reply(thought("s1"), "one", stop="pause_turn"), reply(thought("s2"), "two")]
    view = view_of(*events)
    assert len(view.messages) == 2
    view.apply(ThinkingDropped(upto=2))
    assert [b.get("signature") for b in view.messages[1]["content"]] == [None, "s2", None]
    # another model gets no thinking of the last
    events = [ModelChosen(model="m"), user("hi"), reply(thought(), "one"), user("more")]
    assert view_of(*events, ModelChosen(model="m")).messages == view_of(*events).messages
    assert view_of(*events, ModelChosen(model="n")).messages[1]["content"] == [text("one")]
    # a dropped block no longer counts
    events = [user("hi"), reply(thought(), "one"), UsageReported(usage=Usage(input=500, output=700), predicted=500)]
    view = view_of(*events, user("more"))
    assert view.count().base == 1_200
    view.apply(ThinkingDropped(upto=3))
    assert (view.count().base, view.count().raw) == (0, sum(estimate_blocks(m["content"]) for m in view.messages))


def test_a_reply_that_is_not_in_the_view_does_not_count_but_its_prompt_is_cached() -> None:
    report = UsageReported(usage=Usage(input=500, output=700), predicted=500)
    view = view_of(user("one"), reply("two"), report, user("three", "four"), reply(thought()), report)
    assert view.count().base == 500
    view.apply(SystemReminder(text="say something"))
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
