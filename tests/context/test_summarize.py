"""Full compaction: what it makes of a conversation, and that nothing changes when it cannot be had."""

from __future__ import annotations

import asyncio
import base64
import re
import types
from collections.abc import Coroutine, Generator, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
from compact_room import GOOD, Answer, CompactRoom, compact_room, directive_in, plain, words

from ipyagent import Agent
from ipyagent.context.boundary import Range, head_of
from ipyagent.context.summarize import rounds_to_drop, shortened, stated_gap
from ipyagent.errors import CompactionFailed
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import Compacted, ForkEnded, LayerDecision, LayerFailed, ModelChosen, ToolReturned
from ipyagent.journal.protocols import ForkOrder
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.context_engine import OFF, Engine
from ipyagent.loop.hooks import hooks
from ipyagent.practice.replies import Fault, Reply, calls, text, tool

WINDOW = 40_000
"""Marks: auto-compact 33,400, block 35,400 tokens."""
LONG = tool("python", {"code": "print('0123456789 ' * 2000)"}, thinking="I print a long line.")


@pytest.fixture(autouse=True)
def no_hooks() -> Iterator[None]:
    yield
    hooks.clear()


def filled(room: CompactRoom, turns: int = 3, tokens: int = 2_000, **settings: Any) -> Agent:
    """An agent after some turns of about so many tokens each."""
    agent = room.agent(**settings)
    for number in range(turns):
        said = f"weigh box {number}: {words(number, tokens)}"
        assert room.turn(agent, said, text(f"done {number}")).status == "finished"
    return agent


def full(room: CompactRoom, **settings: Any) -> Agent:
    """An agent that is over the mark with its next request."""
    agent = filled(room, 2, 13_000, window=WINDOW, layer_clear_results=False, **settings)
    room.turn(agent, "list all boxes", text(words(8, 7_000)))
    assert room.session(agent).state(room.session(agent).view.count().tokens).above_auto
    return agent


# ---------------------------------------------------------------------- what it does


def test_at_the_mark_the_summary_takes_over_and_the_request_stays_word_for_word(room: CompactRoom) -> None:
    agent = full(room)
    before = room.session(agent).view.count().tokens
    result = room.turn(agent, "and now the blue box, please", text("weighed"))
    assert (result.status, result.text) == ("finished", "weighed")
    (made,) = room.of(agent, Compacted)
    assert (made.trigger, made.method) == ("auto", "summary")
    assert made.tokens_before >= before > made.tokens_after
    sent = room.bodies[-1]["messages"]
    assert len(sent) == 1
    told = plain(sent[0]["content"])
    assert "weigh boxes." in told
    assert "and now the blue box, please" in told
    assert "Three boxes were weighed" not in told  # the analysis is scratch
    assert "without asking" in told
    view, reported = room.session(agent).view, room.server.messages[-1].usage
    prompt = sum(reported[f"{kind}input_tokens"] for kind in ("", "cache_read_", "cache_creation_"))
    assert abs(view.count().tokens - prompt) < 200, "old usage is not read again, cached tokens are counted once"
    assert view.count().tokens < 15_000
    room.nothing_refused()
    room.replays(agent)


def test_the_call_reads_the_parents_prefix_and_the_next_request_is_told_again_what_went(room: CompactRoom) -> None:
    agent = filled(room, 3, 4_000)
    agent.compact()
    (fork,) = room.of(agent, ForkEnded)
    parent = room.server.messages[-2]
    prefix = sum(parent.usage[f"{kind}input_tokens"] for kind in ("", "cache_read_", "cache_creation_"))
    assert fork.usage.cache_read >= 0.99 * prefix
    room.turn(agent, "what day is it?", text("today"))
    assert "Date: " in plain(room.bodies[-1]["messages"][-1]["content"]).rsplit("what day", 1)[0][-400:]


def test_a_full_window_ends_under_20000_tokens(room: CompactRoom) -> None:
    agent = room.agent(window=90_000)
    for number in range(3):
        room.turn(agent, f"weigh box {number}: {words(number, 15_000)}", text(words(number, 6_000)))
    room.turn(agent, "and the blue box", text("heavy"))
    assert room.session(agent).view.count().tokens > 60_000
    before = len(room.calls)
    room.summaries = [text(f"<analysis>x</analysis><summary>{words(9, 6_000)}</summary>")]
    agent.compact()
    (made,) = room.of(agent, Compacted)
    assert len(room.calls) == before + 1
    assert made.tokens_before > 60_000
    assert made.tokens_after < 20_000
    room.turn(agent, "go on", text("on"))
    room.nothing_refused()


def test_files_variables_and_the_words_of_hooks_stand_after_it(room: CompactRoom) -> None:
    @hooks.pre_compact
    def before(facts: dict[str, Any]) -> str:
        return f"keep the units ({facts['trigger']})"

    @hooks.post_compact
    def after(facts: dict[str, Any]) -> str:
        return "Mind the units." if facts["tokens_after"] < facts["tokens_before"] else ""

    agent = filled(room, 2)
    (room.folder / "a.csv").write_text("x,y\n1,2\n")
    agent.shell.user_ns["weights"] = [1, 2, 3]
    room.turn(agent, "read it", tool("read_file", {"path": "a.csv"}), text("read"))
    agent.compact("keep all weights")
    said = directive_in(room.calls[-1])
    assert said.index("keep all weights") < said.index("keep the units (manual)")
    (made,) = room.of(agent, Compacted)
    assert made.blocks[-1]["text"] == "Mind the units."
    assert made.restored == ("file a.csv", "variables")
    told = plain(made.blocks)
    assert told.index("weigh boxes.") < told.index("read it") < told.index("x,y") < told.rindex("Variables now")


# ---------------------------------------------------------------------- inside a turn


def test_in_the_middle_of_a_turn_with_thinking_nothing_is_refused_nor_of_a_shortened_call(room: CompactRoom) -> None:
    agent = room.agent(window=WINDOW, layer_clear_results=False, layer_store_results=False)
    room.summaries = [Fault(400, "invalid_request_error", "prompt is too long: 41000 tokens > 40000 maximum")]
    result = room.turn(agent, "print much", LONG, LONG, LONG, LONG, LONG, text("printed", thinking="Enough."))
    assert (result.status, result.text) == ("finished", "printed")
    made = room.of(agent, Compacted)
    assert made
    assert all(event.trigger == "auto" for event in made)
    assert room.summaries == [], "the shortened call was made"
    assert "print much" in plain(room.bodies[-1]["messages"][0]["content"])
    room.nothing_refused()
    room.replays(agent)


def test_in_the_middle_of_a_turn_what_its_newest_call_returned_stays_and_the_summary_does_not_pay_for_it(
    room: CompactRoom,
) -> None:
    agent = room.agent(window=WINDOW, layer_clear_results=False, layer_notes=False)
    steps = [tool("python", {"code": f"for n in range(450): print('row', {at}, n * 37)"}) for at in range(14)]
    result = room.turn(agent, "print all", *steps, text("printed", thinking="Enough."))
    assert result.status == "finished"
    made = room.of(agent, Compacted)[0]
    assert made.restored[0] == "the newest results"
    last = max(event.id for event in room.of(agent, ToolReturned) if event.id < made.id)
    returned = next(event for event in room.of(agent, ToolReturned) if event.id == last)
    (kept,) = (block["text"] for block in made.blocks if "one of your newest calls" in str(block.get("text"))[:90])
    assert returned.blocks[0]["text"].strip() in kept
    asked = next(
        body for body in room.bodies if "its text stays whole" in plain(body["messages"][-1]["content"])
    )
    assert len(plain(asked["messages"][-1]["content"])) < 6_000
    assert directive_in(asked).count("\n- python: for n in range(450)") == 1, "what is shortened is what stays"
    assert "does not stay" not in directive_in(asked)
    room.nothing_refused()
    room.replays(agent)


def test_a_second_compaction_keeps_the_request_of_the_turn_word_for_word(room: CompactRoom) -> None:
    agent = room.agent(window=WINDOW, layer_clear_results=False, layer_store_results=False, compact_thrash_turns=0)
    fits = tool("python", {"code": "print('0123456789 ' * 900)"}, thinking="I print a line.")
    result = room.turn(agent, "print 'much', twice", *[fits] * 18, text("printed"))
    assert result.status == "finished"
    assert len(room.of(agent, Compacted)) >= 2
    assert "print 'much', twice" in plain(room.bodies[-1]["messages"][0]["content"])
    assert len([body for body in room.calls if "weigh boxes." in plain(body["messages"][0]["content"])]) >= 1
    room.nothing_refused()


def test_a_compaction_while_calls_are_open_is_refused_and_changes_nothing(room: CompactRoom) -> None:
    seen: list[str] = []
    agent = room.agent()
    room.turn(agent, "hello " + words(1, 2_000), text("hi"))

    @hooks.post_tool
    def look(facts: dict[str, Any]) -> None:
        seen.append("called")

    agent.shell.user_ns["agent"] = agent
    code = "try:\n    agent.compact()\nexcept Exception as problem:\n    print(type(problem).__name__, problem)"
    room.turn(agent, "compact from inside", tool("python", {"code": code}), text("tried"))
    result = room.of(agent, ToolReturned)[-1]
    assert "UsageError a turn is running" in plain(result.blocks)
    assert room.of(agent, Compacted) == []
    room.nothing_refused()


def test_the_models_own_tool_compacts_once_all_results_are_in(room: CompactRoom) -> None:
    agent = filled(room, 2)
    wanted = [("python", {"code": "40 + 2"}), ("compact", {"instructions": "keep the 42"})]
    both = calls(wanted, thinking="Room, please.")
    result = room.turn(agent, "make room, then go on", both, text("went on"))
    assert (result.status, result.text) == ("finished", "went on")
    (made,) = room.of(agent, Compacted)
    assert made.trigger == "model"
    assert "keep the 42" in directive_in(room.calls[-1])
    assert "42" in plain(room.calls[-1]["messages"][-1]["content"])
    assert "shortened" not in directive_in(room.calls[-1]), "nothing is"
    assert not [block for block in made.blocks if "one of your newest calls" in str(block.get("text"))[:90]]
    assert "make room, then go on" in plain(room.bodies[-1]["messages"][0]["content"])
    room.nothing_refused()


def test_a_call_of_the_models_tool_that_was_refused_compacts_nothing(room: CompactRoom) -> None:
    agent = filled(room, 2)
    room.turn(agent, "make room", tool("compact", {"instructions": 5}), text("went on"))
    assert "compact: wrong arguments" in plain(room.bodies[-1]["messages"][-1]["content"])
    assert (room.calls, room.of(agent, Compacted)) == ([], [])
    room.turn(agent, "make room", tool("compact", {"instructions": None}), text("went on"))
    assert [made.trigger for made in room.of(agent, Compacted)] == ["model"]
    room.nothing_refused()


def test_where_nothing_is_to_be_gained_the_model_that_asks_is_told_so_with_numbers_and_nothing_is_paid(
    room: CompactRoom,
) -> None:
    agent = room.agent(window=WINDOW)
    room.turn(agent, f"weigh box 1: {words(1, 900)}", text("done"))
    result = room.turn(agent, "make room", tool("compact", {}), text("went on"))
    assert (result.status, result.text) == ("finished", "went on")
    assert room.calls == []
    assert room.of(agent, Compacted) == []
    told = plain(room.bodies[-1]["messages"][-1]["content"])
    said = re.search(
        r"Nothing was compacted: ([\d,]+) of 40,000 tokens are in use; there is nothing to compact: of .{3,40} about "
        r"[\d,]+ tokens could go, and a summary pays from 2,000 on\. Go on with the request\.",
        told,
    )
    assert int(said[1].replace(",", "")) == pytest.approx(room.server.messages[-1].prompt_tokens, rel=0.05)
    assert "where it is not, you are told why right after this" in told
    more = [tool("python", {"code": f"print({words(3, 4_000)!r})"}), tool("compact", {}), text("done")]
    assert room.turn(agent, "print, then make room", tool("compact", {}), *more).status == "finished"
    assert [made.trigger for made in room.of(agent, Compacted)] == ["model"], "there is something now"
    room.nothing_refused()
    room.replays(agent)


def test_a_model_that_asks_again_and_again_gets_one_compaction_a_turn(room: CompactRoom) -> None:
    agent = filled(room, 2)
    room.turn(agent, "compact", *[tool("compact", {})] * 3, text("done"))
    assert len(room.of(agent, Compacted)) == 1
    assert "a second compaction within one turn is not made" in plain(room.bodies[-1]["messages"][-1]["content"])
    room.nothing_refused()


# ---------------------------------------------------------------------- no sound summary

BAD: dict[str, tuple[Answer, str]] = {
    "empty": (text("<summary>  </summary>"), "is empty"),
    "null": (Reply(()), "empty"),
    "none": (text("I go on. The steps are:\n" + "\n".join(f"{n}. step {n}" for n in range(1, 10))), "no summary in"),
    "only analysis": (text("<analysis>Boxes. <b>many</b></analysis>"), "only an analysis"),
    "open analysis": (text("<analysis>Boxes, and"), "only an analysis"),
    "a tool call": (tool("python", {"code": "1"}, say="<summary>all well</summary>"), "called a tool"),
    "longer": (lambda body: text(f"<summary>{words(5, 9_000)}</summary>"), "longer than what it replaces"),
    "refused": (Reply(({"type": "text", "text": "no"},), "refusal"), "refused"),
    "cut": (text("<summary>1. Request", stop="max_tokens"), "cut off"),
    "an error": (Fault(400, "invalid_request_error", "something is wrong"), "something is wrong"),
    "overloaded": (Fault(529, "overloaded_error", "busy"), "overloaded"),
}


def test_without_a_sound_summary_the_conversation_stays_as_it_was(room: CompactRoom) -> None:
    agent = filled(room, 2)
    view = room.session(agent).view
    before = view.wire()
    for number, (kind, (answer, why)) in enumerate(BAD.items(), 1):
        room.summaries = [answer]
        with pytest.raises(CompactionFailed, match=why):
            agent.compact()
        assert view.wire() == before, kind
        failed = room.of(agent, LayerFailed)
        assert [event.layer for event in failed] == ["summarize", "compaction"] * number, kind
        assert room.session(agent).history.compact_failures == number
    assert room.turn(agent, "still there?", text("yes")).status == "finished"
    assert [e for e in room.server.refused if e.status != 400] == []
    room.replays(agent)


def test_three_failures_open_the_breaker_and_a_success_closes_it(room: CompactRoom) -> None:
    agent = full(room)
    room.summaries = [text("no")] * 3
    for number in range(5):
        assert room.turn(agent, f"more {number}", text("ok")).status == "finished"
    assert len(room.calls) == 3  # the fourth and fifth turn do not try
    why = "An earlier attempt at this summary could not be used (no summary in the reply)."
    assert [why in directive_in(call) for call in room.calls] == [False, True, True]
    stops = [event for event in room.of(agent, LayerFailed) if event.stopped]
    assert len(stops) == 1
    assert "3 failures in a row" in stops[0].why
    assert OFF in stops[0].why
    assert [event.words for event in room.of(agent, LayerDecision) if event.layer == "compaction"] == [OFF]
    session = room.session(agent)
    session.record(msgspec.structs.replace(room.of(agent, ModelChosen)[-1], id=0, parent=0))
    room.summaries = [text("<summary>boxes</summary>")]
    assert "compacted" in agent.compact()
    assert why not in directive_in(room.calls[-1]), "that was another model"
    assert room.session(agent).history.compact_failures == 0
    room.turn(agent, f"fill {words(1, 25_000)}", text(words(2, 8_000)))
    room.turn(agent, "again", text("ok"))
    assert room.of(agent, Compacted)[-1].trigger == "auto"
    room.nothing_refused()


def test_a_window_that_is_full_again_at_once_is_explained_and_not_compacted_again(room: CompactRoom) -> None:
    agent = room.agent(
        window=WINDOW, layer_clear_results=False, layer_store_results=False, auto_compact_percent=50
    )
    huge = tool("python", {"code": "print('0123456789 ' * 2600)"})
    agent.settings.tool_output_chars = 90_000
    result = room.turn(agent, "print", huge, huge, huge, huge, text("done"))
    assert len(room.of(agent, Compacted)) >= 1
    said = [event.words for event in room.of(agent, LayerDecision) if "full again" in event.words]
    assert result.status == "finished"
    assert len(said) == 1
    assert "system prompt and tools take" in said[0]
    room.nothing_refused()


def test_what_always_stays_is_measured_first_and_told_once_with_the_numbers(room: CompactRoom) -> None:
    agent = room.agent(window=200_000, auto_compact_percent=1)
    for _ in range(2):
        room.turn(agent, "hello", text("ok"), text("ok"))
    said = [event.words for event in room.of(agent, LayerDecision) if event.layer == "summarize"]
    assert len(said) == 1 or said[0] != said[1]
    assert "tools" in said[0]
    assert "threshold 2,000" in said[0]
    assert "tokens always stay" in said[0]
    assert room.calls == []
    assert room.of(agent, LayerFailed) == []


# ---------------------------------------------------------------------- the call itself is too long


def rounds_in(bodies: list[dict[str, Any]]) -> list[int]:
    return [sum(message["role"] == "assistant" for message in body["messages"]) for body in bodies]


def test_the_oldest_rounds_are_left_out_until_the_stated_gap_is_covered(room: CompactRoom) -> None:
    agent = filled(room, 6, 2_500, window=200_000)
    for gap, least in ((1_500, 1), (9_000, 3), (60_000, 5)):
        said = f"prompt is too long: {200_000 + gap} tokens > 200000 maximum"
        room.summaries = [Fault(400, "invalid_request_error", said)]
        agent.compact()
        first, second = rounds_in(room.calls[-2:])
        assert first - second >= least, gap
        assert "newest request is: weigh box 5" in directive_in(room.calls[-1])
        agent.compact("--undo")
    assert len(room.of(agent, Compacted)) == 3
    assert room.turn(agent, "go on", text("ok")).status == "finished"


def test_a_gap_that_cannot_be_read_drops_a_fifth_of_the_rounds_three_times_at_most(room: CompactRoom) -> None:
    agent = filled(room, 10, 600)
    before = room.session(agent).view.wire()
    too_long = Fault(400, "invalid_request_error", "prompt is too long")
    room.summaries = [too_long] * 9
    with pytest.raises(CompactionFailed, match="does not fit the window"):
        agent.compact()
    assert rounds_in(room.calls) == [10, 8, 6, 4]
    assert room.session(agent).view.wire() == before
    room.summaries = [too_long] * 3
    agent.compact()
    assert rounds_in(room.calls)[4:] == [10, 8, 6, 4]


def test_a_text_is_cut_only_where_the_words_about_it_are_shorter() -> None:
    def cut(chars: int, room: int, kind: str) -> str:
        said = {"type": "text", "text": "x" * chars}
        call = {"type": "tool_use", "id": "c", "name": "page", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c", "content": [said]}
        content = [said] if kind == "text" else [result]
        messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": content}]
        order = ForkOrder(purpose="", directive="", max_tokens=1, shorten={"c": room})
        order = msgspec.structs.replace(order, text_chars=room) if kind == "text" else order
        [made] = shortened(messages, order)[-1]["content"]
        return str((made if kind == "text" else made["content"][0])["text"])

    for kind in ("text", "tool_result"):
        assert cut(1_008, 1_000, kind) == "x" * 1_008
        sizes = [len(cut(1_000 + gap, 1_000, kind)) - (1_000 + gap) for gap in range(1, 300)]
        assert max(sizes) == 0, "never longer than what it stands for"
        assert "characters are left out of this copy" in cut(1_300, 1_000, kind)


@pytest.mark.parametrize(("tokens", "whole"), [(7_000, True), (11_000, False)])
def test_where_a_result_has_all_but_filled_the_window_it_is_shortened_and_the_summary_gets_room(
    room: CompactRoom, tokens: int, whole: bool
) -> None:
    agent = filled(room, 2, 11_500, window=WINDOW, layer_clear_results=False, layer_store_results=False)

    def as_long_as_told(body: dict[str, Any]) -> Reply:
        told = re.search(r"room for about ([\d,]+) tokens", directive_in(body))
        return text(f"<summary>{words(9, int(told[1].replace(',', '')))}</summary>")

    room.summaries = [as_long_as_told]
    big = tool("python", {"code": f"print({words(7, tokens)!r})"}, thinking="all at once")
    result = room.turn(agent, "weigh all", big, text("weighed"))
    assert result.status == "finished", result.message
    [call] = room.calls
    [made] = room.of(agent, Compacted)
    assert made.tokens_before > 33_400
    assert call["messages"][0]["content"][-1]["text"].startswith("weigh box 0: item 0-0")
    assert ("characters are left out of this copy" not in plain(call["messages"][-1]["content"])) is whole
    assert ("shortened" not in directive_in(call)) is whole
    if not whole:  # the result is too large to come back: its file is named, which is there
        path = re.search(r"does not stay beside the summary; it is kept whole in (\S+), which", directive_in(call))
        [returned] = room.of(agent, ToolReturned)
        left = (room.session(agent).journal.folder / path[1]).read_text(encoding="utf-8")
        assert returned.blocks[0]["text"].strip() in left
        assert path[1] in plain(made.blocks)
    thought = [block["type"] for block in call["messages"][-2]["content"]]
    assert thought == ["thinking", "tool_use"], "what stands before the result is what the provider has"
    assert room.of(agent, LayerFailed) == []
    room.nothing_refused()


def test_rounds_are_dropped_from_the_oldest_and_never_the_newest() -> None:
    message = {"content": [{"type": "text", "text": words(1, 1_000)}]}
    messages = [{**message, "role": role} for role in ("user", "assistant") * 5]
    assert rounds_to_drop(messages, 0, 1, 1.0) == 1
    assert rounds_to_drop(messages, 1, 2_000, 1.0) == 3
    assert rounds_to_drop(messages, 0, 10**6, 1.0) == 4
    assert rounds_to_drop(messages, 0, 0, 1.0) == 1
    assert stated_gap("prompt is too long: 210,500 tokens > 200,000 maximum") == 10_500
    assert stated_gap("prompt is too long") == 0


# ---------------------------------------------------------------------- the server says it is too long


def test_a_prompt_that_the_server_finds_too_long_is_compacted_and_asked_once_more(tmp_path: Path) -> None:
    with compact_room(tmp_path, window=30_000, any_model=True) as room:
        agent = room.agent(model="my-model", window=200_000)
        for number in range(2):
            room.turn(agent, f"box {number} {words(number, 10_000)}", text("ok"))
        result = room.turn(agent, f"and {words(7, 11_000)} the end", text("made it"))
        assert (result.status, result.text) == ("finished", "made it")
        (made,) = room.of(agent, Compacted)
        assert made.trigger == "reactive"
        refused = [str(exchange.error) for exchange in room.server.refused if exchange in room.server.messages]
        assert [error.split(":")[0] for error in refused] == ["prompt is too long"]
        room.replays(agent)


def test_a_prompt_that_stays_too_long_ends_the_turn_with_one_line(tmp_path: Path) -> None:
    with compact_room(tmp_path, window=30_000, any_model=True) as room:
        agent = room.agent(model="my-model", window=200_000)
        room.turn(agent, f"box {words(1, 9_000)}", text("ok"))
        result = room.turn(agent, f"and {words(7, 32_000)}", text("never"))
        assert result.status == "failed"
        assert "window is full" in result.message
        assert room.turn(agent, "hello", text("hi")).status in ("finished", "failed")


def test_a_window_that_ran_out_in_the_reply_and_a_body_over_the_limit_are_compacted(room: CompactRoom) -> None:
    agent = filled(room, 2)
    half = text("The first half, ", stop="model_context_window_exceeded")
    result = room.turn(agent, "tell me all", half, text("and the second."))
    assert (result.status, result.text) == ("finished", "and the second.")
    assert [event.trigger for event in room.of(agent, Compacted)] == ["reactive"]
    assert "The first half" in plain(room.calls[-1]["messages"][-2]["content"])
    room.nothing_refused()
    large = Fault(413, "request_too_large", "Request exceeds 33554432 bytes > limit")
    assert room.turn(agent, f"go {words(3, 2_000)}", large, text("ok")).status == "finished"
    assert [event.trigger for event in room.of(agent, Compacted)] == ["reactive"] * 2


# ---------------------------------------------------------------------- pictures


def picture(size: int = 64) -> str:
    import io

    from PIL import Image

    made = io.BytesIO()
    Image.new("RGB", (size, size), "red").save(made, "PNG")
    return base64.b64encode(made.getvalue()).decode()


def test_pictures_stay_in_the_call_unless_they_are_refused(room: CompactRoom) -> None:
    agent = filled(room, 2)
    (room.folder / "red.png").write_bytes(base64.b64decode(picture()))
    room.turn(agent, "look", tool("read_file", {"path": "red.png"}), text("red"))
    room.summaries = [Fault(400, "invalid_request_error", "messages.4.content.0: image could not be processed")]
    agent.compact()
    kinds = [
        {part["type"] for m in body["messages"] for block in m["content"] for part in block.get("content", ())}
        for body in room.calls[-2:]
    ]
    assert "image" in kinds[0]
    assert "image" not in kinds[1]
    assert "[image]" in plain([b for m in room.calls[-1]["messages"] for b in m["content"]])
    assert len(room.of(agent, Compacted)) == 1
    assert room.turn(agent, "go on", text("ok")).status == "finished"


# ---------------------------------------------------------------------- stops


def test_a_stop_at_any_await_leaves_the_conversation_or_the_whole_boundary(room: CompactRoom) -> None:
    hooks.pre_compact(_pause)
    hooks.post_compact(_pause)
    agent = filled(room, 2, compact_failures=1_000)
    session = room.session(agent)
    outcomes: list[str] = []

    async def tried(main: Any, step: int) -> bool:
        room.summaries = [replace(GOOD, delay=0.002)]  # else a slow machine reads several events at once
        before, wire = len(room.of(agent, Compacted)), session.view.wire()
        model = agent.connections.get(agent.model, agent.endpoint())
        await agent.connect_now(session, model)
        engine = Engine(session, agent.workspace(session, main))
        ended = await _stopped_at(engine.compact("manual"), step)
        made = len(room.of(agent, Compacted)) - before
        outcomes.append(f"{ended} {made}")
        assert made == 1 or session.view.wire() == wire
        assert made == (1 if ended == "done" else 0)
        return ended == "done"

    step = 0
    done = False
    while not done:
        with agent.occupied() as main:
            at = step
            done = main.run_blocking(lambda at=at, main=main: tried(main, at))
        step += 1
        assert step < 400
    assert step > 8, outcomes
    assert room.turn(agent, "go on", text("ok")).status == "finished"
    room.nothing_refused()
    room.replays(agent)


async def _pause(facts: dict[str, Any]) -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)


async def _stopped_at(work: Coroutine[Any, Any, Any], step: int) -> str:
    """Run the work and cancel it at its `step`-th suspension."""
    task = asyncio.ensure_future(_counted(work, step))
    try:
        await task
    except asyncio.CancelledError:
        return "stopped"
    return "done"


async def _counted(work: Coroutine[Any, Any, Any], step: int) -> Any:
    @types.coroutine
    def drive() -> Generator[Any, Any, Any]:
        at, error = 0, None
        while True:
            try:
                waits = work.send(None) if error is None else work.throw(error)
            except StopIteration as ended:
                return ended.value
            error = None
            if at == step and (task := asyncio.current_task()) is not None:
                task.cancel()
            at += 1
            try:
                yield waits
            except BaseException as problem:  # noqa: BLE001 - handed on to the work
                error = problem

    return await drive()


# ---------------------------------------------------------------------- other days, other models


def test_a_smaller_window_of_another_model_is_compacted_into(room: CompactRoom) -> None:
    agent = filled(room, 3, 12_000, window=200_000)
    agent.settings.model, agent.settings.window = "claude-opus-5-5", WINDOW
    result = room.turn(agent, "go on", text("small"))
    assert (result.status, result.text) == ("finished", "small")
    assert [event.trigger for event in room.of(agent, Compacted)] == ["auto"]
    room.nothing_refused()


def test_a_stored_result_with_a_handle_is_listed_with_the_call_it_is_of_and_how_long_the_handle_holds() -> None:
    call = {"type": "tool_use", "id": "a", "name": "python", "input": {"code": "x" * 300}}
    stored = text_block('<persisted-output path="s/a.txt" handle="_agent[\'r1\']">\n0\n</persisted-output>')
    result = {"type": "tool_result", "tool_use_id": "a", "content": [stored]}
    gone = Range(first=1, last=2, blocks=(call, result), tokens=9, words="turn 1", whole=True, tail=True)
    heading, line = plain(head_of("done", gone)).split("\n")[-2:]
    assert heading.endswith("again (a handle is gone with its kernel, the file stays):")
    assert line == f"- path=\"s/a.txt\" handle=\"_agent['r1']\" of python {{\"code\":\"{'x' * 91}…"


def test_stored_results_stay_reachable_after_compactions_and_another_day_the_same_bytes_go_out(
    room: CompactRoom,
) -> None:
    agent = filled(room, 1)
    room.turn(agent, "print", tool("python", {"code": "print('abc ' * 20000)"}), text("printed"))
    agent.compact()
    (made,) = room.of(agent, Compacted)
    kept = ' of python {"code":"print(\'abc \' * 20000)"}'
    [line] = [line for line in plain(made.blocks).split("\n") if line.startswith("- path=")]
    assert "tool-results/" in line
    assert line.endswith(kept)
    for number in (3, 4):
        room.turn(agent, f"another box: {words(number)}", text("weighed"))
    agent.compact()
    assert line in plain(room.of(agent, Compacted)[-1].blocks).split("\n")
    room.turn(agent, "go on", text("ok"))
    wire = room.session(agent).view.wire()
    later = room.resumed(agent)
    assert room.session(later).view.wire() == wire
    assert room.turn(later, "here again", text("ok")).status == "finished"
    assert "weigh boxes." in plain(room.bodies[-1]["messages"][0]["content"])
    room.nothing_refused()


def test_the_prompt_is_short_and_has_nine_sections() -> None:
    prompt = files("ipyagent.context").joinpath("summarize_prompt.md").read_text(encoding="utf-8")
    assert estimate_text(prompt) < 900
    assert [line.split(".")[0] for line in prompt.splitlines() if line[:1].isdigit()] == list("123456789")
    assert prompt.index("<analysis>") < prompt.index("<summary>")
