"""Whatever no summary covers and the user did not take out is in the view, or is named with how it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, compact_room, plain, words

from ipyagent.journal.events import Compacted, MessageReceived, Reminded, Snipped
from ipyagent.practice.replies import Fault, text, tool

TOO_LONG = Fault(400, "invalid_request_error", "prompt is too long: 41000 tokens > 40000 maximum")
TOO_LARGE = Fault(413, "request_too_large", "Request exceeds 33554432 bytes")
COMPACT = tool("compact", {"instructions": "keep all"})
ZEBRA = text("<analysis>so</analysis><summary>1. Request and intent: remember ZEBRA.</summary>")


@pytest.fixture
def room(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made


def sent(room: CompactRoom, number: int = -1) -> str:
    """All text of the messages of a request."""
    return "\n".join(plain(message["content"]) for message in room.bodies[number]["messages"])


def bare(blocks: Any) -> Any:
    """The same without cache marks."""
    if isinstance(blocks, dict):
        return {key: bare(value) for key, value in blocks.items() if key != "cache_control"}
    return [bare(block) for block in blocks] if isinstance(blocks, list) else blocks


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


@pytest.mark.parametrize("line", ["", "--from 2", "--up-to 1", "--snip 1", "--snip 2", "--step", "two"])
@pytest.mark.parametrize(("turns", "resumed"), [(0, False), (1, True)])
def test_what_is_taken_back_goes_out_as_the_bytes_that_the_provider_has(
    room: CompactRoom, line: str, turns: int, resumed: bool
) -> None:
    agent = thoughtful(room)
    before = room.bodies[-1]
    held = room.server.messages[-1].usage
    agent.compact("" if line == "two" else line)
    for _ in range(turns):
        room.turn(agent, "and now?", text("later", thinking="hm"))
    if line == "two":
        room.turn(agent, f"and these? {words(5, 700)}", text(words(6, 900), thinking="hm"))
        agent.compact()
    if resumed:
        name = room.session(agent).journal.session
        agent.close()
        agent = room.agent()
        agent.resume(name)
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
    assert held is not None
    assert usage is not None
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
    agent.bench.head.renew(room.session(agent), "the project is trusted")
    (room.folder / "AGENTS.md").write_text("Weigh in stones.")
    room.turn(agent, "and now?", text("later"))
    assert "in stones" in str(room.bodies[-1]["system"])
    agent.compact("--undo")
    room.turn(agent, "go on", text("ok"))
    assert "in stones" in str(room.bodies[-1]["system"])
    room.nothing_refused()
    room.replays(agent)


# ---------------------------------------------------------------------- a request that is set aside


@pytest.mark.parametrize("refusal", [TOO_LONG, TOO_LARGE])
@pytest.mark.parametrize("long", [False, True])
def test_a_summary_made_inside_a_turn_stays_when_its_request_is_set_aside(
    room: CompactRoom, refusal: Fault, long: bool
) -> None:
    agent = room.agent()
    room.turn(agent, f"remember ZEBRA. {words(1, 2_000)}", text("I do"))
    room.summary = ZEBRA
    asked = f"make room. {words(2, 3_000) if long else ''}"
    result = room.turn(agent, asked, COMPACT, refusal, refusal)
    assert result.status == "failed"
    assert room.of(agent, Compacted)[0].trigger == "model"
    assert bool(room.of(agent, Snipped)) is long
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
    room.turn(agent, f"remember ZEBRA. {words(1, 2_000)}", text("I do"))
    room.summary = ZEBRA
    room.turn(agent, f"make room. {words(2, 3_000)}", COMPACT, TOO_LONG, TOO_LONG)
    name = room.session(agent).journal.session
    agent.close()
    agent = room.agent()
    agent.resume(name)
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
        session.record(Reminded(text="<context>helper-1 has found the OWL</context>", layer="children", upto=3))
        return TOO_LONG

    result = room.turn(agent, f"and this: {words(3, 3_000)}", told)
    assert "was set aside" in result.message
    room.turn(agent, "and?", text("ok"))
    assert all(part in sent(room) for part in ("ZEBRA", "the LION is out", "found the OWL"))
    assert "item 3-7" not in sent(room)
    room.replays(agent)
