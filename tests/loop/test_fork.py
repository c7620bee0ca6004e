"""Forks: served from the parent's cache, held to their permit, costs in the journal, nothing left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from notes_room import NotesRoom, until, words

from ipyagent.errors import ModelError, ToolFailure
from ipyagent.extension.context_report import summary
from ipyagent.journal.events import Compacted, ForkEnded, UsageReported
from ipyagent.journal.protocols import Forked, ForkOrder, ToolOutput
from ipyagent.journal.view import ContextView
from ipyagent.loop.fork import run_fork
from ipyagent.practice.replies import Reply, calls, fault, refusal, text, tool
from ipyagent.practice.server import Exchange

DIRECTIVE = "<aside>Say in a word what this is about.</aside>"
MINIMUM = 1_024


def fork(agent: Any, order: ForkOrder | None = None, **more: Any) -> Forked:
    given = order or ForkOrder(purpose="test", directive=DIRECTIVE, **more)
    future = agent._thread.start(lambda: run_fork(agent.session, given))
    forked: Forked = future.result(10)
    return forked


def talked(room: NotesRoom, turns: int = 3, **settings: Any) -> Any:
    agent = room.agent(layer_notes=False, **settings)
    for number in range(turns):
        steps = [tool("python", {"code": f"print({words(number, 300)!r})"}, thinking="hm") for _ in range(2)]
        room.turn(agent, f"turn {number} " + words(number, 500), *steps, text(f"answer {number}", thinking="so"))
    return agent


def share(fork: Exchange, parent: Exchange) -> float:
    """How much of the parent's prompt the fork read from the cache."""
    return float(fork.usage["cache_read_input_tokens"]) / parent.prompt_tokens


def test_after_a_turn_the_parents_prefix_is_read_from_the_cache_and_the_conversation_stays(room: NotesRoom) -> None:
    agent = talked(room)
    parent = room.server.messages[-1]
    before = str(agent.session.view.wire())
    requests, cost = agent.session.history.totals.requests, agent.session.history.totals.cost
    room.replies = [text("weights")]
    assert fork(agent).text == "weights"
    assert share(room.server.messages[-1], parent) >= 0.99
    sent = room.server.messages[-1].body
    assert (sent["system"], sent["tools"]) == (parent.body["system"], parent.body["tools"])
    assert str(sent).count("cache_control") <= 4
    assert str(agent.session.view.wire()) == before
    [ended] = room.events(agent, ForkEnded)
    assert (ended.purpose, ended.status, ended.requests) == ("test", "finished", 1)
    assert ended.usage.cache_read > MINIMUM
    assert agent.session.history.totals.requests == requests + 1
    assert agent.session.history.totals.cost == pytest.approx(cost + ended.cost)
    reported = sum(event.cost for event in room.events(agent, UsageReported))
    assert agent.session.history.totals.cost == pytest.approx(reported + ended.cost)
    assert f"{requests + 1} requests" in summary(agent)
    room.turn(agent, "and on", text("on"))
    assert ContextView.of(room.events(agent)).messages == agent.session.view.messages


@pytest.mark.parametrize("work", ["a summary", "one round of calls", "several"])
def test_of_a_fork_only_what_will_be_read_is_written_to_the_cache(room: NotesRoom, work: str) -> None:
    agent = talked(room)
    permit = None if work == "a summary" else lambda name, given: "not here"
    enough = (lambda: True) if work == "one round of calls" else None
    room.replies = [text("weights")]
    fork(agent, permit=permit, enough=enough)
    aside = room.server.messages[-1]
    assert ("cache_control" in aside.body["messages"][-1]["content"][-1]) == (work == "several")
    if work == "a summary":
        assert aside.usage["cache_creation_input_tokens"] == 0, "what it takes the place of is read no more"
    room.turn(agent, "go on", text("fine"))
    written = [exchange.usage["cache_creation_input_tokens"] for exchange in (aside, room.server.messages[-1])]
    assert sum(written) < 200


def test_in_the_middle_of_a_turn_too(room: NotesRoom) -> None:
    agent = talked(room)
    made: list[Exchange] = []

    async def in_between() -> None:
        forked = await run_fork(agent.session, ForkOrder(purpose="test", directive=DIRECTIVE))
        assert forked.status == "finished"
        made.append(room.server.messages[-1])

    room.replies = [
        tool("variables", {}, thinking="look"),
        lambda body: _pause(agent, body, in_between),
        text("between"),
        text("the end", thinking="done"),
    ]
    parents = len(room.server.messages)
    result = agent.run_sync("go")
    assert result.text == "the end", result
    [aside] = made
    assert share(aside, room.server.messages[parents]) >= 0.99
    last = room.server.messages[-1]
    assert "<aside>" not in str(last.body)


def _pause(agent: Any, body: dict[str, Any], work: Callable[[], Any]) -> Reply:
    """The second request of the turn is being answered: the view ends with the results."""
    asyncio.run_coroutine_threadsafe(work(), agent._thread.loop).result(10)
    return tool("variables", {}, thinking="once more")


def test_after_a_compaction_and_another_too(room: NotesRoom) -> None:
    agent = talked(room, 4)
    for number in range(2):
        starts = [turn.first for turn in agent.session.history.turns]
        blocks = ({"type": "text", "text": "So far: " + words(50 + number, 400)},)
        agent.session.record(
            Compacted(trigger="manual", method="summary", first=1, last=starts[-2] - 1, blocks=blocks)
        )
        room.turn(agent, f"go on {number}", tool("python", {"code": "1"}, thinking="hm"), text("fine", thinking="ok"))
        parent = room.server.messages[-1]
        fork(agent)
        assert share(room.server.messages[-1], parent) >= 0.99


def test_a_call_runs_only_if_the_order_permits_it(room: NotesRoom) -> None:
    agent = talked(room, 1)
    asked: list[tuple[str, dict[str, Any]]] = []

    def answer(name: str, given: dict[str, Any]) -> ToolOutput:
        asked.append((name, given))
        if "bad" in str(given):
            raise ToolFailure("not that")
        return ToolOutput(blocks=({"type": "text", "text": "noted"},))

    order = ForkOrder(
        purpose="test", directive=DIRECTIVE, max_turns=3, answer=answer,
        permit=lambda name, given: "" if name == "write_file" else "only write_file",
    )  # fmt: skip
    many: list[tuple[str, dict[str, Any]]] = [
        ("python", {"code": "leaked = 1"}), ("write_file", {"path": "x", "content": "good"}),
        ("write_file", {"path": "x", "content": "bad"}), ("write_file", {"path": 5}), ("nothing", {}),
    ]  # fmt: skip
    room.replies = [calls(many), text("done")]
    assert fork(agent, order).text == "done"
    assert asked == [("write_file", dict(many[1][1])), ("write_file", dict(many[2][1]))]
    body = room.server.messages[-1].body
    results = body["messages"][-1]["content"]
    assert [bool(block.get("is_error")) for block in results] == [True, False, True, True, True]
    assert "leaked" not in agent.shell.user_ns
    assert not (room.folder / "x").exists()


def test_without_a_permit_a_call_ends_the_fork(room: NotesRoom) -> None:
    agent = talked(room, 1)
    room.replies = [tool("python", {"code": "leaked = 1"})]
    forked = fork(agent)
    assert (forked.status, forked.called) == ("limit", True)
    assert "leaked" not in agent.shell.user_ns


@pytest.mark.parametrize(("reply", "status"), [(fault(500), "failed"), (refusal(), "refused")])
def test_a_failed_fork_leaves_only_its_cost(room: NotesRoom, reply: Any, status: str) -> None:
    agent = talked(room, 1, max_retries=0)
    before = str(agent.session.view.wire())
    room.replies = [reply]
    try:
        assert fork(agent).status == status
    except ModelError:
        assert status == "failed"
    [ended] = room.events(agent, ForkEnded)
    assert ended.status == status
    assert ended.message
    assert str(agent.session.view.wire()) == before
    assert room.turn(agent, "still there?", text("here")).text == "here"


def test_a_turns_stop_stops_the_fork_it_waits_for(room: NotesRoom) -> None:
    """A compaction's fork is a part of the turn: it ends with it."""
    agent = talked(room, 6, window=32_000)
    agent.settings.auto_compact_percent = 20
    agent.settings.layer_clear_results = False
    room.replies = [text("word " * 400, delay=0.05)]

    def stop() -> None:
        assert until(lambda: room.server.open_streams == 1)
        agent.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    result = agent.run_sync("newest")
    stopper.join()
    assert result.status == "stopped"
    assert [event.status for event in room.events(agent, ForkEnded)] == ["stopped"]
    assert until(lambda: room.server.open_streams == 0)
