from __future__ import annotations

import random

import msgspec

from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    FileChanged,
    LayerFailed,
    PermissionAnswered,
    Retrying,
    Streamed,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from ipyagent.ui.items import NoticeItem, QuestionItem, TextItem, ThinkingItem, ToolItem
from ipyagent.ui.static import static_bundle
from ipyagent.ui.transcript import Shown, TurnTranscript, fold

from .turns import PIXEL, asked, returned, streamed, text, whole_turn


def test_the_whole_takes_the_place_of_what_was_streamed() -> None:
    streamed_first = fold([*streamed("hm", "thinking"), *streamed("Hello"), text("Hello.")])
    assert [type(item) for item in streamed_first] == [TextItem]
    assert streamed_first[0].text == "Hello."  # type: ignore[union-attr]


def test_a_turn_reads_in_order_whether_or_not_it_was_streamed() -> None:
    whole = whole_turn()
    quiet = [event for event in whole if not isinstance(event, Streamed)]
    assert [type(item) for item in fold(whole)] == [NoticeItem, ThinkingItem, TextItem, ToolItem, TextItem]
    assert [item.text for item in fold(whole) if isinstance(item, TextItem)] == [
        item.text for item in fold(quiet) if isinstance(item, TextItem)
    ]


def test_a_granted_question_becomes_its_call() -> None:
    (_, _, _, tool, _) = fold(whole_turn())
    assert isinstance(tool, ToolItem)
    assert (tool.permission, tool.state, tool.note, tool.seconds) == ("allowed once", "done", "1 row", 1.5)
    assert [picture.data for picture in tool.pictures] == [PIXEL]


def test_what_was_allowed_and_did_not_run_is_said_so() -> None:
    """As when the file changed between the question and the yes."""
    granted = PermissionAnswered(call="t1", answer="once", by="user")
    why = "What this call would do has changed since the user allowed it, so it was not run."
    events = [asked(), granted, returned("t1", why, is_error=True), TurnEnded(status="finished")]
    assert fold(events) == (QuestionItem("c:t1", asked(), "once", "user", why, unrun=True),)
    shown = static_bundle(events, None)
    assert "Allowed once, but not run" in shown["text/html"]
    assert all("has changed since" in form for form in shown.values())
    assert "(allowed, but not run: What this" in shown["text/plain"]


def test_a_denied_question_stays_and_its_result_adds_nothing() -> None:
    denied = PermissionAnswered(call="t1", answer="deny", by="user", reason="no")
    items = fold([asked(), denied, returned("t1", "x", is_error=True)])
    assert items == (QuestionItem("c:t1", asked(), "deny", "user", "no"),)


def test_a_call_that_never_began_shows_the_input_the_model_gave() -> None:
    said = AssistantMessage(blocks=({"type": "tool_use", "id": "t1", "name": "shell", "input": {"command": "ls"}},))
    (tool,) = fold([said, returned("t1", "refused in read_only mode", name="shell", is_error=True)])
    assert isinstance(tool, ToolItem)
    assert (tool.input, tool.state) == ({"command": "ls"}, "error")


def test_streamed_output_belongs_to_its_call_until_the_result() -> None:
    calls = [ToolCalled(call=call, name="python", input={}) for call in ("a", "b")]
    pieces = [Streamed(channel="tool", text=f"{n}{ref}", ref=ref) for n in range(3) for ref in ("a", "b")]
    first, second = fold([*calls, *pieces])
    assert isinstance(first, ToolItem)
    assert isinstance(second, ToolItem)
    assert (first.output, second.output) == ("0a1a2a", "0b1b2b")
    first, second = fold([*calls, *pieces, returned("b", "all of b")])
    assert (first.output, second.output) == ("0a1a2a", "all of b")  # type: ignore[union-attr]


def test_a_retry_begins_the_reply_anew_and_is_said_in_the_past_afterwards() -> None:
    transcript = TurnTranscript()
    retries = [Retrying(reason="Broken.", seconds=8), Retrying(reason="Busy", seconds=9, attempt=2)]
    for event in [*streamed("Half of"), *retries]:
        transcript.add(event)
    (notice,) = transcript.items
    assert notice == NoticeItem("n2", "Busy; trying again in 9 s (attempt 2). Stop to give up.", "warning")
    for event in streamed("Whole"):
        transcript.add(event)
    notice, words = transcript.items
    assert notice == NoticeItem("n2", "Busy; tried again")
    assert words.text == "Whole"  # type: ignore[union-attr]


def test_a_partial_reply_says_so() -> None:
    _words, notice = fold([text("Half", partial=True)])
    assert isinstance(notice, NoticeItem)
    assert "broke off" in notice.text


def test_a_reply_that_the_user_stopped_did_not_break_off() -> None:
    stopped = text("Half", partial=True, stop_reason="stopped")
    items = fold([stopped, TurnEnded(status="stopped", message="stopped by you")])
    assert [type(item) for item in items] == [TextItem, NoticeItem]
    assert "broke off" not in str(items[-1])


def test_the_end_closes_everything_and_names_what_did_not_finish() -> None:
    transcript = TurnTranscript()
    for event in [
        ToolCalled(call="a", name="python", input={}, at=10.0),
        *streamed("out", "tool", "a"),
        asked("b"),
        *streamed("unfini"),
        TurnEnded(status="stopped", message="Stopped by you", at=14.0),
    ]:
        transcript.add(event)
    tool, question, words, notice = transcript.items
    assert isinstance(tool, ToolItem)
    assert (tool.state, tool.output, tool.seconds) == ("stopped", "out", 4.0)
    assert isinstance(question, QuestionItem)
    assert question.by == "stop"
    assert words == TextItem("s1", "unfini")
    assert notice == NoticeItem("n2", "Stopped by you", "info")


def test_a_changed_file_is_named_on_its_call() -> None:
    called = ToolCalled(call="a", name="edit", input={})
    written = FileChanged(call="a", path="x.py", digest="d")
    (tool,) = fold([called, written, written, returned("a", "ok")])
    assert isinstance(tool, ToolItem)
    assert tool.files == ("x.py",)


def test_a_removed_file_is_not_said_to_be_written() -> None:
    begun = FileChanged(call="a", path="a.csv", backup="b", begun=True)
    gone = FileChanged(call="a", path="a.csv", backup="b")
    kept = FileChanged(call="a", path="b.csv", backup="c", digest="d")
    said = {"running": [begun], "removed": [begun, gone, gone], "both": [begun, gone, kept], "anew": [gone, kept, gone],
            "again": [gone, msgspec.structs.replace(gone, digest="d")]}  # fmt: skip
    words = {}
    for name, events in said.items():
        ended = [returned("a", "ok")] * (name != "running")
        (tool,) = fold([ToolCalled(call="a", name="shell", input={}), *events, *ended])
        assert isinstance(tool, ToolItem)
        words[name] = tool.changes
    assert words == {
        "running": ("changing a.csv",), "removed": ("removed a.csv",), "both": ("wrote b.csv", "removed a.csv"),
        "anew": ("wrote b.csv", "removed a.csv"), "again": ("wrote a.csv",),
    }  # fmt: skip


def test_a_picture_that_is_no_base64_or_an_svg_is_not_shown() -> None:
    for source in (
        {"type": "base64", "media_type": "image/png", "data": '"><script>'},
        {"type": "base64", "media_type": "image/svg+xml", "data": PIXEL},
        {"type": "url", "url": "https://evil.example/a.png"},
    ):
        event = returned("a", "x")
        event = type(event)(call="a", name="python", blocks=(*event.blocks, {"type": "image", "source": source}))
        (tool,) = fold([event])
        assert isinstance(tool, ToolItem)
        assert tool.pictures == ()


def test_added_keys_name_every_item_that_changed() -> None:
    """A surface that looks only at the keys it was told has the same items as one that looks at all."""
    rng = random.Random(7)
    for _ in range(30):
        events = whole_turn()
        del events[rng.randrange(len(events)) : rng.randrange(len(events) + 1)]
        transcript, seen = TurnTranscript(), {}
        for event in events:
            for key in transcript.add(event):
                seen[key] = transcript.item(key)
        assert {key: item for key, item in seen.items() if item is not None} == {i.key: i for i in transcript.items}


def test_what_is_kept_to_show_a_turn_again_grows_with_the_text_and_not_with_its_pieces() -> None:
    whole: Event = AssistantMessage(blocks=({"type": "text", "text": "x" * 20_000},))
    events: list[Event] = [Streamed(channel="text", text="x") for _ in range(20_000)]
    events[10_000:10_000] = [LayerFailed(layer="hooks", why="something went wrong")]
    events += [whole, ToolCalled(call="a", name="python", input={"code": "1"})]
    events += [Streamed(channel="tool", text="out\n", ref="a") for _ in range(5_000)]
    shown = Shown()
    for event in events:
        shown.add(event)
    assert static_bundle(shown, None) == static_bundle(events, None), "while the tool runs"
    events.append(ToolReturned(call="a", name="python", blocks=({"type": "text", "text": "done"},)))
    shown.add(events[-1])
    assert static_bundle(shown, None) == static_bundle(events, None)
    assert len(shown) < 20
    assert sum(len(event.text) for event in shown if isinstance(event, Streamed)) == 0
