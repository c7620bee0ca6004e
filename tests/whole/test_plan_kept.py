"""The plan in a session: it stands after a compaction and in a resumed session until all of it is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, compact_room, plain, words

from ipyagent.journal.events import Compacted, PlanWritten, Step
from ipyagent.parts.plan import Plan
from ipyagent.practice.replies import text, tool


@pytest.fixture
def room(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made


def steps(*states: str) -> dict[str, Any]:
    return {"steps": [{"step": f"step {number}", "state": state} for number, state in enumerate(states, 1)]}


def test_an_unfinished_plan_stands_again_after_a_compaction(room: CompactRoom) -> None:
    agent = room.agent()
    agent.shell.user_ns["boxes"] = [1, 2, 3]
    room.turn(agent, "weigh " + words(1, 2_000), tool("plan", steps("done", "doing", "pending")), text("begun"))
    (made,) = room.of(agent, PlanWritten)
    assert made.steps == (Step("step 1", "done"), Step("step 2", "doing"), Step("step 3"))
    room.turn(agent, "go on " + words(2, 2_000), text("ok"))
    agent.compact("")
    (compacted,) = room.of(agent, Compacted)
    assert compacted.restored[-2:] == ("plan", "variables")
    room.turn(agent, "and now?", text("step 2"))
    told = plain(room.bodies[-1]["messages"][0]["content"])
    assert "Your plan, as you last wrote it:\n- [done] step 1\n- [doing] step 2\n- [pending] step 3" in told
    room.nothing_refused()
    room.replays(agent)


def test_a_finished_or_dropped_plan_does_not_come_back(room: CompactRoom) -> None:
    for last in (steps("done", "done"), steps()):
        agent = room.agent()
        begun = tool("plan", steps("done", "doing"))
        room.turn(agent, "weigh " + words(1, 2_000), begun, tool("plan", last), text("done"))
        room.turn(agent, "more " + words(2, 2_000), text("ok"))
        agent.compact("")
        assert "plan" not in room.of(agent, Compacted)[-1].restored


def test_a_resumed_session_has_its_plan(room: CompactRoom) -> None:
    agent = room.agent()
    room.turn(agent, "weigh", tool("plan", steps("doing", "pending")), text("begun"))
    name = room.session(agent).journal.session
    agent.close()
    again = room.agent()
    again.resume(name)
    plan = room.session(again).folded(Plan).written
    assert plan.steps[0] == Step("step 1", "doing")
