"""`%compact`: what it says and does, in scripts and in a kernel."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compact_room import GOOD, CompactRoom, compact_room, directive_in, plain, words
from rooms import Room, room

from ipyagent import Agent
from ipyagent.assembly.compaction import CompactOptions, parse_compact
from ipyagent.errors import CompactionFailed, UsageError
from ipyagent.journal.events import Compacted, DecisionUndone, ForkEnded, LayerFailed, TurnsRemoved
from ipyagent.practice.replies import Reply, text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.reports.timeline import Shares


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made


def weighed(place: CompactRoom, turns: int = 5) -> Agent:
    agent = place.agent(memory=False)  # a head of its own size would move the figures
    for number in range(1, turns + 1):
        said = f"weigh box {number}: {words(number, 1_000)}"
        place.turn(agent, said, tool("python", {"code": f"print({number} * 7)"}, thinking="7?"), text(f"done {number}"))
    return agent


def sent(place: CompactRoom, agent: Agent) -> str:
    """All text of the next request."""
    place.turn(agent, "go on", text("ok"))
    place.nothing_refused()
    place.replays(agent)
    return "\n".join(plain(message["content"]) for message in place.bodies[-1]["messages"])


# ---------------------------------------------------------------------- the line


def test_the_line_is_wishes_and_options_in_any_order() -> None:
    assert parse_compact("") == CompactOptions()
    assert parse_compact("keep the --from 3 weights") == CompactOptions(instructions="keep the weights", start=3)
    assert parse_compact("--from 2 --up-to=4") == CompactOptions(start=2, upto=4)
    assert parse_compact("--snip 12:20") == CompactOptions(snip=(12, 20))
    assert parse_compact("--snip 3 --dry-run") == CompactOptions(snip=(3, 3), dry_run=True)
    assert parse_compact("--undo") == CompactOptions(undo=True)
    assert parse_compact("don't lose \"it\"") == CompactOptions(instructions="don't lose \"it\"")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("--form 3", "did you mean --from"),
        ("--from", "takes a turn's number"),
        ("--from 0", "1 or more"),
        ("--from x", "not 'x'"),
        ("--from 4 --up-to 2", "is after"),
        ("--snip 5:3", "A:B"),
        ("--snip 0:3", "A:B"),
        ("--undo please", "combined with"),
        ("--snip 1:2 --from 3", "combined with"),
    ],
)
def test_a_wrong_line_gives_one_line_that_says_what_is_right(line: str, part: str) -> None:
    with pytest.raises(UsageError, match=part) as caught:
        parse_compact(line)
    assert "\n" not in str(caught.value)


def test_without_a_conversation_or_beyond_its_end_it_says_so(place: CompactRoom) -> None:
    agent = place.agent()
    with pytest.raises(UsageError, match="no conversation"):
        agent.compact()
    place.turn(agent, "hello", text("hi"))
    with pytest.raises(UsageError, match="the conversation has 1 turn"):
        agent.compact("--from 2")
    with pytest.raises(UsageError, match="no compaction to undo"):
        agent.compact("--undo")
    with pytest.raises(CompactionFailed, match="of turn 1 about"):
        agent.compact()
    assert place.calls == []


# ---------------------------------------------------------------------- what it does


def test_the_answer_says_what_went_what_stayed_and_what_it_cost_and_a_dry_run_does_nothing(place: CompactRoom) -> None:
    agent = weighed(place)
    requests, events = len(place.bodies), len(place.events(agent))
    said = agent.compact("--up-to 3 --dry-run")
    assert "would summarise turns 1 to 3" in said
    assert "nothing was done" in said
    assert (len(place.bodies), len(place.events(agent))) == (requests, events)
    before = Shares().of(place.session(agent).view)
    lines = agent.compact("keep all weights").splitlines()
    (made,) = place.of(agent, Compacted)
    assert len(lines) == 2
    assert f"turns 1 to 5 (summary): {made.tokens_before:,} → {made.tokens_after:,} tokens" in lines[0]
    assert "a request from cache" in lines[0]
    assert "it cost $0." in lines[0]
    assert "your newest request" in lines[1]
    assert "%compact --undo" in lines[1]
    after = Shares().of(place.session(agent).view)
    assert before["summaries"] == 0
    assert after["summaries"] > 20
    assert after["user"] <= before["user"], "a summary is counted as one, not as the user's words"
    assert "- keep all weights" in directive_in(place.calls[-1])
    told = sent(place, agent)
    assert "weigh boxes." in told
    assert "weigh box 5" in told
    assert "done 4" not in told
    said = told.split("<user-messages>", 1)[1].split("</user-messages>", 1)[0]
    assert [f"[{turn}] weigh box {turn}" in said for turn in range(1, 6)] == [True] * 4 + [False]


def test_from_keeps_the_beginning_byte_for_byte(place: CompactRoom) -> None:
    agent = weighed(place)
    before = place.session(agent).view.wire(marks=False)[2]
    agent.compact("--from 3")
    after = place.session(agent).view.wire(marks=False)[2]
    same = next(i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    assert same == 8  # two turns of four messages
    assert "Summarise only turns 3 to 5" in directive_in(place.calls[-1])
    told = sent(place, agent)
    assert "Turns 3 to 5 of the conversation were taken out" in told
    assert told.index("weigh box 2") < told.index("taken out") < told.index("[3] weigh box 3")
    assert told.count("weigh box 2") == told.count("weigh box 5") == 1


def test_up_to_keeps_the_end_and_one_up_to_a_later_turn_takes_the_first_along(place: CompactRoom) -> None:
    agent = weighed(place)
    agent.compact("--up-to 3")
    told = sent(place, agent)
    assert told.index("[3] weigh box 3") < told.index("weigh box 4")
    assert told.index("weigh boxes.") < told.index("weigh box 4") < told.index("weigh box 5")
    assert told.count("weigh box 5") == 1
    with pytest.raises(CompactionFailed, match="already compacted"):
        agent.compact("--up-to 2")
    place.summaries = [text("<summary>Four boxes.</summary>")]
    agent.compact("--up-to 4")
    told = sent(place, agent)
    assert "weigh boxes." not in told
    assert told.index("Four boxes.") < told.index("weigh box 5")


def test_a_second_one_from_a_later_turn_leaves_the_first(place: CompactRoom) -> None:
    agent = weighed(place)
    agent.compact("--up-to 2")
    place.summaries = [text("<summary>The last boxes.</summary>")]
    agent.compact("--from 4")
    told = sent(place, agent)
    assert told.index("weigh boxes.") < told.index("weigh box 3") < told.index("The last boxes.")


def test_snip_leaves_a_line_without_a_call_and_undo_brings_back_the_newest_decision_then_the_one_before(
    place: CompactRoom,
) -> None:
    agent = weighed(place)
    before, requests = place.session(agent).view.wire(marks=False)[2], len(place.bodies)
    assert "would take out turns 2 to 3" in agent.compact("--snip 2:3 --dry-run")
    assert place.of(agent, TurnsRemoved) == []
    assert "took out turns 2 to 3" in agent.compact("--snip 2:3")
    assert len(place.bodies) == requests
    (made,) = place.of(agent, TurnsRemoved)
    assert made.saved > 900
    snipped = place.session(agent).view.wire(marks=False)[2]
    agent.compact()
    assert "undone" in agent.compact("--undo")
    assert place.session(agent).view.wire(marks=False)[2] == snipped
    told = sent(place, agent)
    assert "[turns 2 to 3 of this conversation were taken out by the user; kept in tool-results/left-1.txt]" in told
    assert "weigh box 2" not in told
    assert "weigh box 1" in told
    assert "weigh box 4" in told
    agent.compact("--undo")
    assert place.session(agent).view.wire(marks=False)[2][: len(before)] == before
    assert len(place.of(agent, DecisionUndone)) == 2
    assert "weigh box 2" in sent(place, agent)


def test_a_turn_that_was_stopped_in_mid_work_can_be_compacted(place: CompactRoom) -> None:
    agent = weighed(place, 3)
    slow = tool("python", {"code": "import time; time.sleep(20)"}, thinking="I wait.")
    timer = threading.Timer(0.8, agent.stop)
    timer.start()
    assert place.turn(agent, f"wait {words(9)}", slow).status == "stopped"
    assert "compacted" in agent.compact()
    assert "weigh boxes." in sent(place, agent)


def test_a_stop_leaves_the_conversation_as_it_was(place: CompactRoom) -> None:
    agent = weighed(place, 3)
    before = place.session(agent).view.wire()
    place.summaries = [Reply(GOOD.content, delay=0.5)]
    threading.Timer(0.6, agent.stop).start()
    said = agent.compact()
    (fork,) = place.of(agent, ForkEnded)
    assert said == "stopped: the conversation is unchanged" + (f"; it cost ${fork.cost:.4f}" if fork.cost else "")
    assert place.session(agent).view.wire() == before
    assert place.of(agent, LayerFailed) == [], "a stop is no failure"
    assert place.session(agent).history.compact_failures == 0
    assert "compacted" in agent.compact()


# ---------------------------------------------------------------------- in a kernel


@pytest.fixture
def kernel_room(tmp_path: Path) -> Iterator[Room]:
    def answer(body: dict[str, object]) -> Reply:
        return GOOD if directive_in(body) else text("ok")  # type: ignore[arg-type] # a JSON body

    with PracticeServer(answer) as server, room(tmp_path, server=server, IPYAGENT_LAYER_NOTES="false") as made:
        made.ok("%load_ext ipyagent")
        yield made


def test_the_magic_and_the_command_say_the_same(kernel_room: Room) -> None:
    for number in range(2):
        kernel_room.ok(f"%%agent\nbox {number}: {words(number, 1_000)}")
    assert "would summarise turns 1 to 2" in kernel_room.ok("%compact --dry-run").streams
    assert "compacted turns 1 to 2" in kernel_room.ok("%compact keep {braces} and $x").streams
    assert "undone" in kernel_room.ok("%agent compact --undo").streams
    assert "did you mean --undo" in kernel_room.refuses("%compact --und")
    asked = [e.body for e in kernel_room.server.messages if e.body and directive_in(e.body)]
    assert "keep {braces} and $x" in directive_in(asked[-1])


def test_an_interrupt_ends_it_and_the_next_cell_works(kernel_room: Room) -> None:
    for number in range(2):
        kernel_room.ok(f"%%agent\nbox {number}: {words(number, 1_000)}")
    kernel_room.server.script(Reply(GOOD.content, delay=1.0))
    pid = int(kernel_room.ok("import os; print(os.getpid())").streams)

    def interrupt() -> None:
        time.sleep(1.5)
        os.kill(pid, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    began = time.monotonic()
    cell = kernel_room.run("%compact")
    assert time.monotonic() - began < 8
    assert cell.reply["status"] == "error"
    assert cell.reply["ename"] == "KeyboardInterrupt"
    assert not [event for event in kernel_room.events() if isinstance(event, Compacted)]
    assert "compacted" in kernel_room.ok("%compact").streams


