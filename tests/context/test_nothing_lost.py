"""Whatever no summary covers and the user did not take out is in the view, or is named with how it comes back."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from agent_room import until
from any_order import Walk
from compact_room import CompactRoom, directive_in, plain, words
from PIL import Image

from ipyagent import tool as make_tool
from ipyagent.agent import Options
from ipyagent.assembly.requests import NullSurface
from ipyagent.journal.events import (
    Compacted,
    Event,
    MessageReceived,
    NotesWritten,
    PermissionAnswered,
    PermissionAsked,
    ResultsCleared,
    SystemReminder,
    TurnEnded,
    TurnsRemoved,
    UserMessage,
)
from ipyagent.journal.protocols import PermissionAnswer
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.session_state import SessionState
from ipyagent.practice.replies import Fault, text, tool

TOO_LONG = Fault(400, "invalid_request_error", "prompt is too long: 41000 tokens > 40000 maximum")
TOO_LARGE = Fault(413, "request_too_large", "Request exceeds 33554432 bytes")
COMPACT = tool("compact", {"instructions": "keep all"})
ZEBRA = text("<analysis>so</analysis><summary>1. Request and intent: remember ZEBRA.</summary>")


def sent(room: CompactRoom, number: int = -1) -> str:
    """All text of the messages of a request."""
    return "\n".join(plain(message["content"]) for message in room.bodies[number]["messages"])


def bare(blocks: Any) -> Any:
    """The same without cache marks."""
    if isinstance(blocks, dict):
        return {key: bare(value) for key, value in blocks.items() if key != "cache_control"}
    return [bare(block) for block in blocks] if isinstance(blocks, list) else blocks


# ---------------------------------------------------------------------- what the user said


def said_block(room: CompactRoom) -> str:
    return sent(room).split("<user-messages>\n", 1)[1].split("\n</user-messages>", 1)[0]


def test_what_the_user_said_stands_word_for_word_after_five_forgetful_summaries(room: CompactRoom) -> None:
    agent = room.agent()
    said = []
    for number in range(1, 6):
        said.append(f"Rule {number}: never touch file {number}.csv,\nreport in unit {number}.")
        room.turn(agent, said[-1], text(words(number, 1_500)))
        agent.compact()
    room.turn(agent, "and now?", text("ok"))
    newest = said.pop()
    assert said_block(room) == "\n".join(f"[{number}] {text}" for number, text in enumerate(said, 1))
    assert sent(room).count(newest) == 1
    assert sent(room).count("<user-messages>") == 1
    room.nothing_refused()
    room.replays(agent)


class Refusing(NullSurface):
    can_ask = True

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        return PermissionAnswer("deny", "whole euros please", "user")


def test_what_the_user_typed_when_refusing_a_call_and_that_a_turn_was_stopped_stands_there_too(
    room: CompactRoom,
) -> None:
    agent = room.agent(mode="ask")
    room.replies = [tool("python", {"code": "x = 1"}), text(words(1, 1_500))]
    assert agent.prepare("sum it", Options(), Refusing()).run_blocking().status == "finished"

    def stopped(words: str) -> None:
        room.replies = [replace(text("late"), first_delay=100.0)]
        stop = threading.Thread(target=lambda: (until(lambda: room.server.open_streams > 0), agent.stop()), daemon=True)
        stop.start()
        result = agent.run_sync(words)
        assert (result.status, result.cost) == ("stopped", None), "nobody has said what it costs"

    stopped("for every month")
    room.turn(agent, "weigh " + words(2, 1_500), text(words(3, 1_500)))
    context = "<context>\nThe user stopped your work on the request above.\n"
    assert f"for every month\n{context}" in sent(room)
    stopped("by day " + words(4, 1_500))
    agent.compact("--snip 4")
    room.turn(agent, "as before", text("fine"))
    assert sent(room).count(context) == 1, "what the request above was has been taken out"
    room.turn(agent, "go on", text("fine"))
    agent.compact()
    room.turn(agent, "and now?", text("ok"))
    said = said_block(room).split("\n")
    assert said[:2] == ["[1] sum it", "[1, refusing python] whole euros please"]
    assert said[2] == "[2, stopped by the user] for every month"
    room.nothing_refused()


def test_what_the_user_typed_is_said_of_what_was_asked_and_the_time_they_took_counts_once() -> None:
    history = SessionState()
    asked = [("a", "python"), ("b", "shell"), ("c:budget-9", "budget")]
    events: list[Event] = [UserMessage(text="go", blocks=())]
    events += [PermissionAsked(call=call, tool=tool, title="", text="") for call, tool in asked]
    said = [("b", "not there"), ("a", "whole euros"), ("c:budget-9", "dear"), ("lost", "no")]
    events += [PermissionAnswered(call=call, answer="deny", by="user", reason=words) for call, words in said]
    for number, event in enumerate(events, 1):
        history.apply(msgspec.structs.replace(event, id=number, at=float(number)))
    assert [(what, words) for _, _, what, words in history.said(1, 99)][1:] == [
        ("refusing shell", "not there"), ("refusing python", "whole euros"), ("refusing to go on", "dear"),
        ("refusing a call", "no"),
    ]  # fmt: skip
    assert history.waited == 5.0


def test_long_messages_of_the_user_are_cut_before_short_ones_and_the_cut_is_said(room: CompactRoom) -> None:
    agent = room.agent(window=40_000)
    room.turn(agent, "Never touch raw.csv.", text("I won't."))
    room.turn(agent, f"Here is a log: {words(1, 9_000)} That was the log.", text("I see."))
    room.turn(agent, f"And a table: {words(2, 5_000)} That was the table.", text("I see."))
    room.turn(agent, "What is in it?", text("Boxes."))
    agent.compact()
    room.turn(agent, "and now?", text("ok"))
    block = said_block(room)
    assert estimate_text(block) < 4_200
    assert block.startswith("[1] Never touch raw.csv.\n[2] Here is a log: item 1-0")
    assert block.count("characters left out …]") == 2
    assert "That was the log.\n[3] And a table" in block
    assert "where characters or turns are left out, this says so" in sent(room)
    path = sent(room).rsplit("kept word for word in ", 1)[1].split(" ", 1)[0]
    assert words(1, 9_000) in (room.session(agent).journal.folder / path).read_text()


def test_a_turn_that_the_user_took_out_is_not_said_again(room: CompactRoom) -> None:
    agent = room.agent()
    for number in range(1, 4):
        room.turn(agent, f"Rule {number}.", text(words(number, 600)))
    agent.compact("--snip 2")
    agent.compact()
    room.turn(agent, "and now?", text("ok"))
    assert said_block(room) == "[1] Rule 1."


# ---------------------------------------------------------------------- a summary's call that does not fit


@make_tool(permission="none", writes=False)
def page() -> Any:
    """A small picture."""
    return Image.new("RGB", (300, 300), (9, 40, 90))


def dropped(room: CompactRoom, agent: Any, gap: int) -> str:
    """What stands first in a call for a summary that was too long by so many tokens, after a compaction."""
    room.summaries = [ZEBRA]
    agent.compact()
    room.turn(agent, "Rule 2: report in kg.", text(words(3, 2_500)))
    for number in (4, 5):
        room.turn(agent, f"weigh {number}", text(words(number, 2_500)))
    said = f"prompt is too long: {200_000 + gap} tokens > 200000 maximum"
    room.summaries = [Fault(400, "invalid_request_error", said)]
    agent.compact("all of it")
    assert len(room.calls) == 3
    assert sum(m["role"] == "assistant" for m in room.calls[-1]["messages"]) < 3
    return plain(room.calls[-1]["messages"][0]["content"])


@pytest.mark.parametrize("gap", [100, 2_800])
def test_the_summary_before_and_the_users_words_are_carried_where_rounds_are_left_out(
    room: CompactRoom, gap: int
) -> None:
    agent = room.agent(reserve_tokens=1_000)
    room.turn(agent, "Rule 1: never touch raw.csv.", text(words(1, 2_500)))
    room.turn(agent, "go", text(words(2, 2_500)))
    first = dropped(room, agent, gap)
    assert "remember ZEBRA" in first
    assert "Rule 1: never touch raw.csv." in first
    assert "Rule 2: report in kg." in first
    assert first.endswith("(earlier parts of the conversation are left out here)")
    assert "stands first: carry all of it over" in directive_in(room.calls[-1])


def test_the_users_words_are_cut_last_where_everything_is_too_long(room: CompactRoom) -> None:
    agent = room.agent(reserve_tokens=1_000)
    told = f"Rule 1: {words(6, 250)} and never touch raw.csv, {words(7, 250)}"
    room.turn(agent, told, text("ok"))
    room.turn(agent, "go", text(words(2, 4_000)))
    room.turn(agent, "go on", text(words(3, 900)))
    too_long = Fault(400, "invalid_request_error", "prompt is too long: 260000 tokens > 200000 maximum")
    room.summaries = [too_long, too_long]
    agent.compact("all of it")
    first, second = room.calls[1:3]
    assert all(told in plain(call["messages"][0]["content"]) for call in (first, second))
    answers = [plain(call["messages"][1]["content"]) for call in (first, second)]
    assert len(answers[1]) < len(answers[0]) < len(words(3, 900)), "the newest answer is cut before it"


def test_notes_stand_for_the_rounds_that_they_cover(room: CompactRoom) -> None:
    agent = room.agent(reserve_tokens=1_000)
    room.turn(agent, "go", text(words(1, 2_500)))
    session = room.session(agent)
    (session.journal.folder / "notes.md").write_text("# Worklog\nThe OWL weighs 7 kg.\n")
    session.record(NotesWritten(upto=session.journal.last, tokens=20))
    for number in (4, 5):
        room.turn(agent, f"weigh {number}", text(words(number, 2_500)))
    room.summaries = [Fault(400, "invalid_request_error", "prompt is too long: 200900 tokens > 200000 maximum")]
    agent.compact("all of it")
    assert "The OWL weighs 7 kg." in plain(room.calls[-1]["messages"][0]["content"])
    assert "The OWL weighs 7 kg." not in plain(room.calls[-2]["messages"][0]["content"])


@pytest.mark.parametrize("picture", [False, True])
def test_results_are_shortened_before_any_round_is_left_out_the_newest_first(room: CompactRoom, picture: bool) -> None:
    agent = room.agent(reserve_tokens=1_000, layer_clear_results=False)
    agent.shell.user_ns.update(page=page)
    room.turn(agent, "look", tool("page", {}) if picture else text("ok"), text("ok"))
    for number in (1, 2):
        call = tool("python", {"code": f"print({words(number, 1_000 * number)!r})"}, thinking="I look.")
        room.turn(agent, f"weigh {number}", call, text("ok", thinking="So."))
    room.summaries = [Fault(400, "invalid_request_error", "prompt is too long: 200100 tokens > 200000 maximum")]
    agent.compact()
    whole, short = room.calls[-2:]
    first = len(whole["messages"]) - 3
    assert len(short["messages"]) == len(whole["messages"])
    assert bare(short["messages"][:first]) == bare(whole["messages"][:first]), "what the provider has of it stays"
    assert "are left out of this copy; the tool can give them again" in plain(short["messages"][first]["content"])
    usage = room.server.messages[-1].usage
    parent = next(each for each in reversed(room.server.messages) if len(each.body["messages"]) == first - 1)
    assert usage["cache_read_input_tokens"] >= 0.99 * parent.prompt_tokens, "and is read, up to what is shortened"
    assert usage["cache_creation_input_tokens"] == 0, "what a summary takes the place of is read no more"
    assert [e.error for e in room.server.refused if "too long" not in str(e.error)] == []


# ---------------------------------------------------------------------- what is taken back


def thoughtful(room: CompactRoom, **settings: Any) -> Any:
    """An agent after two turns with thinking and tools, whose instructions have changed meanwhile."""
    rules = room.folder / "AGENTS.md"
    rules.write_text("Weigh in kg.")
    agent = room.agent(**settings)
    for number in (1, 2):
        call = tool("python", {"code": f"print({words(number, 700)!r})"}, thinking=f"I look {number}.")
        room.turn(agent, f"weigh {number}. {words(number, 700)}", call, text(f"done {number}", thinking="So."))
    rules.write_text("Weigh in pounds.")
    return agent


@pytest.mark.parametrize(
    ("line", "later"),
    [("", False), ("", True), ("--from 2", True), ("--up-to 1", False), ("--snip 1", True), ("--snip 2", False),
     ("--step", False), ("two", True), ("--step", True), ("--up-to 1", True)],
)  # fmt: skip
def test_what_is_taken_back_goes_out_as_the_bytes_that_the_provider_has(
    room: CompactRoom, line: str, later: bool
) -> None:
    """At once, or later, after a turn and a resume."""
    agent = thoughtful(room)
    before = room.bodies[-1]
    held = room.server.messages[-1].usage
    agent.compact("" if line == "two" else line)
    if later:
        room.turn(agent, "and now?", text("later", thinking="hm"))
    if line == "two":
        room.turn(agent, f"and these? {words(5, 700)}", text(words(6, 900), thinking="hm"))
        agent.compact()
    if later:
        agent = room.resumed(agent)
    agent.compact("--undo")
    if line == "two":
        agent.compact("--undo")
    room.turn(agent, "go on", text("ok"))
    after = room.bodies[-1]
    assert bare(after["system"]) == bare(before["system"])
    assert bare(after["tools"]) == bare(before["tools"])
    size = len(before["messages"])
    assert bare(after["messages"][:size]) == bare(before["messages"])
    usage = room.server.messages[-1].usage
    assert usage["cache_read_input_tokens"] >= held["cache_read_input_tokens"] + held["cache_creation_input_tokens"]
    count = room.session(agent).view.count().tokens
    told = sum(usage[f"{kind}input_tokens"] for kind in ("", "cache_read_", "cache_creation_"))
    assert abs(count - told - usage["output_tokens"]) < 0.05 * told
    room.nothing_refused()
    room.replays(agent)


def test_a_head_that_came_for_another_reason_stays_when_a_compaction_is_taken_back(room: CompactRoom) -> None:
    agent = thoughtful(room)
    agent.compact()
    room.turn(agent, "and now?", text("later"))
    agent.setup.system_prompt.renew(room.session(agent), "the project is trusted")
    (room.folder / "AGENTS.md").write_text("Weigh in stones.")
    room.turn(agent, "and now?", text("later"))
    assert "in stones" in str(room.bodies[-1]["system"])
    agent.compact("--undo")
    room.turn(agent, "go on", text("ok"))
    assert "in stones" in str(room.bodies[-1]["system"])
    room.nothing_refused()
    room.replays(agent)


# ---------------------------------------------------------------------- a request that is set aside


@pytest.mark.parametrize(("refusal", "long"), [(TOO_LONG, True), (TOO_LARGE, True), (TOO_LONG, False)])
def test_a_summary_made_inside_a_turn_stays_when_its_request_is_set_aside(
    room: CompactRoom, refusal: Fault, long: bool
) -> None:
    agent = room.agent()
    room.turn(agent, f"remember ZEBRA. {words(1, 3_000)}", text("I do"))
    room.summary = ZEBRA
    asked = f"make room. {words(2, 3_000) if long else ''}"
    result = room.turn(agent, asked, COMPACT, refusal, refusal)
    assert result.status == "failed"
    assert room.of(agent, Compacted)[0].trigger == "model"
    assert bool(room.of(agent, TurnsRemoved)) is long
    assert ("was set aside" in result.message) is long
    room.turn(agent, "what was I to remember?", text("ZEBRA"))
    assert "remember ZEBRA" in sent(room)
    if long:
        assert "item 2-7" not in sent(room)
        assert "with the 1 reply to it" not in result.message, "the reply is in the summary"
        path = sent(room).rsplit("kept word for word in ", 1)[1].split(" ", 1)[0]
        assert "item 2-7 weighs" in (room.session(agent).journal.folder / path).read_text()
        assert "%compact --undo puts the request back" in result.message
    else:
        assert "make room." in sent(room)
    room.replays(agent)


def test_a_request_that_was_set_aside_comes_back_and_so_does_what_the_summary_replaced(room: CompactRoom) -> None:
    agent = room.agent()
    room.turn(agent, f"remember ZEBRA. {words(1, 3_000)}", text("I do"))
    room.summary = ZEBRA
    room.turn(agent, f"make room. {words(2, 3_000)}", COMPACT, TOO_LONG, TOO_LONG)
    agent = room.resumed(agent)
    agent.compact("--undo")
    room.turn(agent, "go on", text("ok"))
    assert "item 2-7 weighs" in sent(room)
    assert "<summary>" in sent(room)
    while room.session(agent).view.undoable is not None:
        agent.compact("--undo")
    room.turn(agent, "go on", text("ok"))
    assert "<summary>" not in sent(room)
    assert all(part in sent(room) for part in ("remember ZEBRA", "item 1-7 weighs", "item 2-7 weighs", "go on"))
    room.replays(agent)


def test_when_the_request_after_a_reactive_compaction_is_too_long_as_well_the_summary_stays(room: CompactRoom) -> None:
    agent = room.agent()
    half = text("The first half, ", stop="model_context_window_exceeded")
    for replies in ((TOO_LONG, TOO_LONG), (half, TOO_LONG)):
        room.turn(agent, f"remember ZEBRA. {words(1, 4_000)}", text("I do"))
        room.summary = ZEBRA
        result = room.turn(agent, f"and this: {words(3, 3_000)}", *replies)
        assert "was set aside" in result.message
        room.turn(agent, "what was I to remember?", text("ZEBRA"))
        assert "remember ZEBRA" in sent(room)
        assert "item 3-7" not in sent(room)
    room.replays(agent)


def test_messages_of_others_and_turns_taken_out_meanwhile_stay_what_they_were(room: CompactRoom) -> None:
    agent = room.agent(layer_summarize=False)
    room.turn(agent, f"remember ZEBRA. {words(1, 1_000)}", text("I do"))

    def told(body: dict[str, Any]) -> Fault:
        session = room.session(agent)
        session.record(MessageReceived(message="m1", sender="lead", text="<message>the LION is out</message>"))
        session.record(SystemReminder(text="<context>helper-1 has found the OWL</context>", layer="children", upto=3))
        return TOO_LONG

    result = room.turn(agent, f"and this: {words(3, 3_000)}", told)
    assert "was set aside" in result.message
    room.turn(agent, "and?", text("ok"))
    assert all(part in sent(room) for part in ("ZEBRA", "the LION is out", "found the OWL"))
    assert "item 3-7" not in sent(room)
    room.replays(agent)


# ---------------------------------------------------------------------- what is said is true


@pytest.mark.parametrize("ended", [False, True])
def test_words_in_place_of_dropped_thinking_say_whether_the_request_is_open(ended: bool) -> None:
    walk = Walk()
    walk.say(0, 0, 0)
    for number in (1, 2):
        walk.reply(0, 0, 1)
        walk.give(number, 1, 9)
    if ended:
        walk.add(TurnEnded(status="stopped"))
        walk.say(1, 0, 0)
    else:
        walk.remind(1, 0, 0)
    walk.add(ResultsCleared(calls=(walk._any_call(0),), text="[Previous: used {tool}]", layer="clear_results"))
    walk.check()
    told = [plain(message["content"]) for message in walk.view.messages if message["role"] == "assistant"]
    assert told[-1] == (
        "(this turn ended here)"
        if ended
        else "(Earlier reasoning was dropped to save room. The request is still open.)"
    )
