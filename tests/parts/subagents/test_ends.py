"""Sub-agents that do not come to their end by themselves: stopped with their parent, out of calls, cut off."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from family_rig import Brain, FamilyRig, newest, until
from rooms import room
from test_children import asks, last_results, order, works

from ipyagent.journal.events import ChildEnded, ChildStarted, SessionStarted, ToolCalled, ToolReturned, TurnEnded
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT, read_events
from ipyagent.loop.session import Session
from ipyagent.parts.subagents import SubagentManager
from ipyagent.parts.subagents.pool import SubagentOrder, SubagentPool
from ipyagent.parts.subagents.subagent import Subagent
from ipyagent.parts.subagents.types import SubagentType, built_in
from ipyagent.practice.replies import Fault, Reply, calls, cut, text, tool
from ipyagent.practice.server import PracticeServer

Make = Callable[..., FamilyRig]
PROMISED = 0.3
"""Seconds, promised to the user; the tests allow for a loaded machine."""
ALLOWED = 1.0

DOING: dict[str, Callable[[dict[str, Any], int], Reply | Fault]] = {
    "python": works("import subprocess\nsubprocess.run(['sleep', '600'])"),
    "shell": lambda body, made: tool("shell", {"command": "sleep 600", "timeout": 600}),
    "model": lambda body, made: cut(text("begun and never ended"), "hang", seconds=60),
}


@pytest.mark.parametrize("doing", list(DOING))
def test_eight_stop_with_their_parent_at_once(make_rig: Make, doing: str) -> None:
    rig = make_rig()
    rig.rules["go"] = asks(*(order(f"job {n}", f"job {n} of eight") for n in range(8)))
    rig.rules["of eight"] = DOING[doing]
    rig.agent.permissions.remember("python(program:sleep)", session=True)
    before = set(psutil.Process().children())
    stopped: list[float] = []

    def at_work() -> bool:
        sleeping = len(set(psutil.Process().children(recursive=True)) - before)
        phases = [child.phase for child in rig.agent.part(SubagentManager).at_work()]
        match doing:
            case "python":  # one runs, seven wait for the main thread
                return sleeping >= 1 and phases.count("running python") == 8
            case "shell":
                return sleeping >= 8
            case _:
                return len(rig.bodies("of eight")) == 8

    def stop() -> None:
        until(at_work)
        time.sleep(0.1)
        stopped.append(time.monotonic())
        rig.agent.stop()

    thread = threading.Thread(target=stop, daemon=True)
    thread.start()
    result = rig.turn("go")
    took = time.monotonic() - stopped[0]
    thread.join(5)
    print(f"8 sub-agents in {doing}: stopped in {took * 1000:.0f} ms")
    assert result.status == "stopped"
    assert took < ALLOWED
    assert [event.status for event in rig.of(ChildEnded)] == ["stopped"] * 8
    for started in rig.of(ChildStarted):
        events = rig.child_events(started.child)
        assert isinstance(events[-1], TurnEnded)
        called = {e.call for e in events if isinstance(e, ToolCalled)}
        assert called == {e.call for e in events if isinstance(e, ToolReturned)}
    assert rig.tasks() == []
    until(lambda: set(psutil.Process().children()) <= before)
    assert rig.turn("and then").text == "ok"
    assert rig.server.refused == []


def test_running_out_of_calls_is_an_answer_and_no_error(make_rig: Make) -> None:
    rig = make_rig(subagent_turns=2)
    rig.rules["go"] = asks(order("endless", "never done"))
    rig.rules["never done"] = lambda body, made: tool("python", {"code": f"hand_back(step_{made}={made})"})
    assert rig.turn("go").status == "finished"
    ((said, failed),) = last_results(rig, "go")
    assert not failed
    assert "[it did not come to its end: " in said
    (ended,) = rig.of(ChildEnded)
    assert (ended.status, ended.requests) == ("limit", 2)
    assert "step_0" in rig.names, "what it had handed back is there"


def test_a_killed_kernels_children_are_told_as_cut_off(tmp_path: Path) -> None:
    brain = Brain()
    jobs = [
        {"task": "wait here", "prompt": "work in front"},
        {"task": "work behind", "prompt": "work behind", "background": True},
    ]
    brain.rules["start"] = lambda body, made: calls([("agent", job) for job in jobs])
    brain.rules["work in front"] = works("import time\ntime.sleep(600)")
    brain.rules["work behind"] = lambda body, made: (
        tool("glob", {"pattern": "*"}) if made == 0 else cut(text("never"), "hang", seconds=60)
    )
    with PracticeServer(brain) as server, room(tmp_path, server=server, IPYAGENT_MODE="auto") as place:
        place.ok("%load_ext ipyagent")
        pid = int(place.ok("import os; print(os.getpid())").streams)
        place.kernel.client.execute("%%agent\nstart")
        until(lambda: len([e for e in server.messages if e.body and newest(e.body) == ("work behind", 1)]) == 1)
        (folder,) = (place.folder / ".ipyagent" / "sessions").glob("*/")
        (front,) = (folder / CHILDREN).glob("wait-here-*")
        until(lambda: any(isinstance(event, ToolCalled) for event in read_events(front / TRANSCRIPT)))
        os.kill(pid, signal.SIGKILL)
        place.restart()
        place.ok("%load_ext ipyagent")
        place.ok("%agent resume")
        brain.rules["and now"] = lambda body, made: text("I see")
        place.ok("%%agent\nand now")
        assert server.refused == []
        sent = str(next(e.body for e in reversed(server.messages) if e.body and newest(e.body)[0] == "and now"))
        assert "cut off" in sent
        assert "The sub-agent 'work-behind' was stopped: cut off: the kernel stopped." in sent
        ends = {e.child.rpartition("-")[0]: e for e in read_events(folder / TRANSCRIPT) if isinstance(e, ChildEnded)}
        assert {name: end.status for name, end in ends.items()} == {"wait-here": "stopped", "work-behind": "stopped"}
        assert ends["work-behind"].requests == 1, "what it had cost until then is known"
        listed = place.ok("%agent subagents").streams
        assert listed.count("cut off: the kernel stopped") == 2, listed
        # it can go on where it was
        child = ends["work-behind"].child
        brain.rules["take it up"] = asks(("agent", {"task": "x", "prompt": "go further", "resume": child}))
        brain.rules["go further"] = lambda body, made: text("further")
        place.ok("%%agent\ntake it up")
        assert server.refused == []
        further = next(e.body for e in server.messages if e.body and newest(e.body)[0] == "go further")
        assert "work behind" in str(further)


class Bare:
    """As much of a nursery as a sub-agent needs that never begins."""

    def kinds(self) -> dict[str, SubagentType]:
        return built_in()

    def number(self, name: str) -> float:
        return 1.0

    async def scope(self, child: Subagent) -> tuple[None, str]:
        return None, ""


def test_a_sub_agent_that_is_stopped_before_its_first_step_ends_too(tmp_path: Path) -> None:
    session = Session.create(tmp_path, SessionStarted(session="20260101-000000-0000", version="0"))
    nobody: Any = None

    async def start_and_stop() -> SubagentPool:
        family = SubagentPool(session, Bare())  # type: ignore[arg-type] # no more is asked for
        await family.start(SubagentOrder(task="count", prompt="count", background=True), nobody, "call")
        family.stop("nobody wants it")
        await asyncio.sleep(0.05)
        return family

    family = asyncio.run(start_and_stop())
    (ended,) = (event for event in session.journal.read() if isinstance(event, ChildEnded))
    assert (ended.status, ended.message) == ("stopped", "nobody wants it")
    assert family.running() == ()
    session.close()
