"""Money and savings that are told are those that the server counted, also where a reply never came whole and where
a decision was taken back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from notes_room import NotesRoom, until, words

from ipyagent.extension.context_report import report
from ipyagent.extension.work_cells import roll_back
from ipyagent.journal.events import (
    CacheBroken,
    Compacted,
    DecisionUndone,
    ForkEnded,
    ResultsCleared,
    ResultStored,
    UsageReported,
)
from ipyagent.journal.protocols import ForkOrder
from ipyagent.loop.budget import add_spent, spent_today, today
from ipyagent.loop.fork import run_fork
from ipyagent.loop.session_state import MOST_TAKEN, SessionState
from ipyagent.model.prices import cost_of, rates_of
from ipyagent.practice.replies import Reply, calls, text, tool
from ipyagent.practice.server import Exchange
from ipyagent.project import update_object
from ipyagent.reports.timeline import timeline


def agent_of(room: NotesRoom, **settings: Any) -> Any:
    return room.agent(layer_notes=False, **{"subagents": False, **settings})


def raw(agent: Any) -> str:
    return report(agent, ["--raw"])


def billed(exchange: Exchange) -> tuple[int, int, int]:
    usage = exchange.usage
    return usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]


# ---------------------------------------------------------------------- stopped


def test_a_stopped_reply_is_paid_for(room: NotesRoom) -> None:
    agent = agent_of(room)
    room.replies = [text("word " * 400, delay=0.02)]

    def stop() -> None:
        until(lambda: bool(agent.session and agent.session.journal.last and room.server.open_streams))
        threading.Event().wait(0.4)
        agent.stop()

    threading.Thread(target=stop, daemon=True).start()
    result = agent.run_sync("weigh " + words(1, 6_000))
    assert result.status == "stopped"
    [told] = room.events(agent, UsageReported)
    asked = room.server.messages[-1]
    assert told.stopped
    assert (told.usage.input, told.usage.cache_read, told.usage.cache_write) == billed(asked)
    assert 1 < told.usage.output < 400
    assert told.cost == cost_of(agent.session.info.model, told.usage)
    assert result.cost == pytest.approx(told.cost)
    assert timeline(room.events(agent)).bars[0].cost == pytest.approx(told.cost)
    assert f"{told.usage.prompt:,} prompt tokens" in report(agent, [])
    expected = agent.session.view.count().tokens
    room.turn(agent, "go on", text("fine"))
    assert room.server.messages[-1].prompt_tokens == pytest.approx(expected, rel=0.02)
    assert room.events(agent, CacheBroken) == []


def test_so_is_a_fork_that_is_cancelled(room: NotesRoom) -> None:
    agent = agent_of(room)
    room.turn(agent, "weigh " + words(1, 3_000), text("done"))
    room.replies = [text("word " * 400, delay=0.02)]
    order = ForkOrder(purpose="test", directive="<aside>x</aside>")
    forked = agent._thread.start(lambda: run_fork(agent.session, order))
    assert until(lambda: room.server.open_streams == 1)
    threading.Event().wait(0.3)
    agent._thread.cancel(forked)
    with pytest.raises(asyncio.CancelledError):
        forked.result(5)
    assert until(lambda: room.server.open_streams == 0)
    [ended] = room.events(agent, ForkEnded)
    usage = ended.usage
    assert (usage.input, usage.cache_read, usage.cache_write) == billed(room.server.messages[-1])
    assert usage.output > 1
    assert (ended.status, ended.requests, ended.cost) == ("stopped", 1, cost_of(agent.session.info.model, usage))


# ---------------------------------------------------------------------- each response by itself


def test_a_price_by_the_length_of_the_prompt_is_that_of_each_response(room: NotesRoom) -> None:
    agent = agent_of(room, model="claude-haiku-5-5")
    room.turn(agent, "weigh " + words(1, 45_000), text("done"))
    room.replies = [calls([("variables", {})]), text("fine")]
    order = ForkOrder(purpose="test", directive="<aside>x</aside>", permit=lambda name, given: "no", max_turns=3)
    agent._thread.start(lambda: run_fork(agent.session, order)).result(60)
    [ended] = room.events(agent, ForkEnded)
    assert ended.requests == 2
    assert ended.usage.prompt > 100_000, "the limit from which a token costs five times as much"
    each = [usage.usage for usage in room.server.messages[-2:]]
    assert all(usage["input_tokens"] + usage["cache_read_input_tokens"] < 100_000 for usage in each)
    assert ended.cost < 0.003


def test_rates_are_those_of_a_prompt_of_that_length() -> None:
    small, large = rates_of("claude-haiku-5-5", prompt=100_000), rates_of("claude-haiku-5-5", prompt=100_001)
    assert (large.read / small.read, large.output / small.output) == (pytest.approx(5.0), pytest.approx(5.0))
    assert rates_of("claude-sonnet-5-5", prompt=900_000) == rates_of("claude-sonnet-5-5")


def test_money_that_was_spent_is_told_whatever_answers_now(room: NotesRoom) -> None:
    agent = agent_of(room)
    room.turn(agent, "weigh " + words(1, 3_000), text("done"))
    paid = agent.session.history.totals.cost
    agent.settings.model = "practice"
    assert agent.run_sync("hello").status == "finished"
    assert f"cost: ${paid:.4f} (the practice model" in report(agent, [])


def test_what_the_practice_model_would_have_cost_has_hours_in_it(room: NotesRoom) -> None:
    agent = room.agent(layer_notes=False, model="practice", base_url="", cache_ttl="1h")
    assert agent.run_sync("hello").status == "finished"
    usage = agent.session.history.totals.usage
    assert usage.cache_write == usage.cache_write_1h > 1_000
    assert f"${cost_of('claude-sonnet-5-5', usage):.4f}" in report(agent, [])


def test_a_picture_that_is_kept_in_a_file_besides_is_no_saving(room: NotesRoom) -> None:
    agent = agent_of(room)
    code = "import matplotlib.pyplot as plt\nplt.figure()\nplt.plot([1, 2, 4])\nplt.show()"  # another test's is open
    room.turn(agent, "draw", tool("python", {"code": code}), text("done"))
    assert [event.tokens for event in room.events(agent, ResultStored)] == [0]
    assert '"image"' in raw(agent)
    assert "kept out" not in report(agent, [])
    assert timeline(room.events(agent)).marks == ()


# ---------------------------------------------------------------------- taken back


def test_a_turn_that_is_put_back_is_there_for_whatever_comes_next(room: NotesRoom) -> None:
    agent = agent_of(room)
    for number in range(1, 5):
        room.turn(agent, f"weigh box {number}: {words(number, 1_200)}", text(f"done {number}"))
    agent.compact("--snip 4")
    assert "box 4" not in raw(agent)
    agent.compact("--undo")
    assert "kept out" not in report(agent, [])
    room.replies = [text("<summary>boxes were weighed</summary>")]
    assert "your newest request" in agent.compact()
    assert "weigh box 4" in raw(agent)


def test_a_turn_can_be_rolled_back_again(room: NotesRoom) -> None:
    agent = agent_of(room)
    for number in range(1, 4):
        room.turn(agent, f"weigh box {number}", text(f"done {number}"))
    roll_back(agent, "2")
    agent.compact("--undo")
    assert "box 2" in raw(agent)
    assert "took out turn 2" in roll_back(agent, "2")
    assert "box 2" not in raw(agent)


def test_a_compaction_that_is_taken_back_is_none(room: NotesRoom) -> None:
    agent = agent_of(room, window=20_000)

    def answer(body: dict[str, Any]) -> Reply:
        asked = "<summary>" in str(body["messages"][-1])
        return text("<summary>boxes were weighed</summary>" if asked else "done")

    for number in range(1, 5):
        room.replies = [answer] * 4
        room.turn(agent, f"weigh box {number}: {words(number, 3_500)}")
        if room.events(agent, Compacted):
            break
    history = agent.session.history
    assert [event.trigger for event in room.events(agent, Compacted)] == ["auto"]
    assert history.compacted_at > 0
    assert "kept out" in report(agent, [])
    assert "summarize      took the place of" in report(agent, [])
    agent.compact("--undo")
    assert history.compacted_at == -1
    assert "took the place of" not in report(agent, [])
    assert "compaction" not in str(history.savings)


# ---------------------------------------------------------------------- turns


def test_what_the_turns_cost_adds_up_to_the_session(room: NotesRoom) -> None:
    agent = room.agent(notes_start=1_000)
    for number in range(1, 5):
        room.turn(agent, f"weigh box {number}: {words(number, 1_500)}", text(f"done {number}"))
    agent.compact()

    def summed(name: str) -> float:
        return float(sum(getattr(bar, name) for bar in timeline(room.events(agent)).bars))

    totals = agent.session.history.totals
    assert room.events(agent, ForkEnded), "there was work behind the turns"
    assert summed("cost") == pytest.approx(totals.cost)
    assert summed("requests") == totals.requests


def test_what_can_be_taken_back_is_kept_and_not_every_result(tmp_path: Path) -> None:
    history = SessionState()
    for number in range(1, 5_001):
        history.apply(ResultStored(id=number, call=f"c{number}", chars=10, path="x", tokens=3))
    assert len(history._taken) == 0
    for number in range(5_001, 8_001):
        history.apply(ResultsCleared(id=number, layer="clearing", calls=("c",), saved=5, text=""))
    assert len(history._taken) == MOST_TAKEN
    history.apply(DecisionUndone(id=8_001, event=8_000))
    assert history.savings["clearing"].tokens == 5 * 2_999
    history.apply(DecisionUndone(id=8_002, event=5_001))
    assert history.savings["clearing"].tokens == 5 * 2_999, "too long ago: what it saved stays saved"


# ---------------------------------------------------------------------- the cost of a day


SPENDS = """
import sys, pathlib
from ipyagent.loop.budget import add_spent
for _ in range(40):
    assert add_spent(pathlib.Path(sys.argv[1]), 0.01)
"""


def test_kernels_that_end_their_turns_together_lose_no_money(tmp_path: Path) -> None:
    path = tmp_path / "spend.json"
    at_work = [subprocess.Popen([sys.executable, "-c", SPENDS, str(path)]) for _ in range(3)]
    assert [process.wait(30) for process in at_work] == [0, 0, 0]
    assert spent_today(path) == 1.2


def test_other_days_stay_and_a_file_that_is_none_counts_as_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spend.json"
    path.write_text('{"2020-01-01": 3.5}')
    assert add_spent(path, 0.25)
    assert json.loads(path.read_text()) == {"2020-01-01": 3.5, today(): 0.25}
    for broken in ("[1]", "{", "[" * 100_000, f'{{"{today()}": "much"}}'):
        path.write_text(broken)
        assert spent_today(path) == 0.0
    other = tmp_path / "other.json"
    update_object(other, {"a": 1})
    assert update_object(other, lambda stands: {"b": len(stands)}) == {"a": 1, "b": 1}
