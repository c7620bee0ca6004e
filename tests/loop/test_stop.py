"""Stop in every state of a turn: nothing runs after it, no request stays open, the next turn works."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from loop_rig import Person, Rig, result_text
from pace import within

from ipyagent.journal.events import (
    AssistantMessage,
    PermissionAnswered,
    PermissionAsked,
    Streamed,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserMessage,
)
from ipyagent.journal.protocols import PermissionAnswer
from ipyagent.kernel.output import OutputLog
from ipyagent.loop.budget import spent_today
from ipyagent.parts.mcp.entries import put_entry
from ipyagent.parts.memory.transaction import HISTORY
from ipyagent.practice.replies import Fault, Reply, calls, fault, text, tool

LONG = text("word " * 5_000, delay=0.02)
"""Takes 100 s, unless it is stopped."""


def children() -> list[str]:
    return [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]


def stopped(rig: Rig, condition: Callable[[], bool], person: Person | None = None) -> list[Any]:
    """Stop a turn once `condition` holds; its events. What is asserted holds after every stop."""
    rig.seen = person = person or Person(can_ask=False)
    stopper = rig.stop_when(condition)
    began = time.monotonic()
    result = rig.turn("go", person)
    assert time.monotonic() - began < within(5, 90)
    stopper.join()
    assert result.status == "stopped"
    until = time.monotonic() + within(2, 60)
    while rig.server.open_streams and time.monotonic() < until:
        time.sleep(0.01)
    assert rig.server.open_streams == 0
    events = list(person.events)
    rig.server._queue.clear()
    rig.server.script(text("and on we go"))
    assert rig.turn("go on").text == "and on we go"
    assert [exchange.error for exchange in rig.server.refused] == []
    assert len(person.events) == len(events), "something happened after the stop"
    kept = {event.id: event for event in rig.events()}
    assert all(kept[event.id] == event for event in events)
    assert isinstance(events[-1], TurnEnded)
    return events


def streams(rig: Rig) -> bool:
    return any(isinstance(event, Streamed) for event in rig.seen.events)


THOUGHT = {"type": "thinking", "thinking": "hm " * 400, "signature": ""}
MOMENTS: dict[str, tuple[Reply | Fault, Callable[[Rig], bool]]] = {
    "it waits for the model": (replace(text("late"), first_delay=100.0), lambda rig: rig.server.open_streams > 0),
    "the model writes": (LONG, streams),
    "the model thinks": (Reply((THOUGHT, {"type": "text", "text": "so"}), delay=0.02), streams),
    "a call is written": (
        tool("python", {"code": "ran = 1\n" * 400}, delay=0.02),
        lambda rig: any("python" in phase for phase in rig.seen.phases),
    ),
    "it waits to try again": (
        fault(529, retry_after=25), lambda rig: any("trying again" in phase for phase in rig.seen.phases)
    ),
}


@pytest.mark.paced
def test_a_stop_at_each_moment_of_a_request_keeps_what_was_shown_of_its_text(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(max_retry_wait=30.0)
    for moment, (reply, comes) in MOMENTS.items():
        rig.server.script(reply)
        events = stopped(rig, lambda comes=comes: comes(rig))
        said = [event for event in events if isinstance(event, AssistantMessage)]
        shown = "".join(event.text for event in events if isinstance(event, Streamed) and event.channel == "text")
        assert [(one.partial, one.stop_reason) for one in said] == [(True, "stopped")] * (shown != ""), moment
        assert bool(said) is (moment == "the model writes")
        assert all(one.blocks[0]["text"].startswith(shown.strip()) for one in said)
        assert "ran" not in rig.agent.shell.user_ns
        asked = str(rig.server.messages[-1].body["messages"][-1])
        assert ("<context>\\nThe user stopped your work on the request above.\\n" in asked) is (not said), moment


@pytest.mark.paced
def test_stop_while_code_runs_keeps_its_output(rig: Rig) -> None:
    code = "import time\nfor step in range(1000):\n    print('step', step, flush=True)\n    time.sleep(0.01)"
    rig.server.script(calls([("python", {"code": code}), ("python", {"code": "second = 1"})]))
    events = stopped(rig, lambda: any(isinstance(event, Streamed) for event in rig.seen.events))
    first, second = [event for event in events if isinstance(event, ToolReturned)]
    assert first.is_error
    assert "step 0" in first.blocks[0]["text"]
    assert "not run" in second.blocks[0]["text"]
    reached = rig.agent.shell.user_ns["step"]
    time.sleep(0.1)
    assert rig.agent.shell.user_ns["step"] == reached
    assert "second" not in rig.agent.shell.user_ns
    assert len([event for event in events if isinstance(event, ToolCalled)]) == 1


@pytest.mark.paced
def test_stop_ends_a_shell_commands_processes(rig: Rig) -> None:
    rig.server.script(tool("shell", {"command": "echo begun; sleep 71; echo done"}))
    stopped(rig, lambda: any("sleep 71" in line for line in children()))
    until = time.monotonic() + 3
    while any("sleep 71" in line for line in children()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any("sleep 71" in line for line in children())


@pytest.mark.paced
def test_stop_while_a_question_is_open(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(mode="ask")
    rig.server.script(tool("python", {"code": "ran = 1"}))
    person = Person()
    events = stopped(rig, lambda: bool(person.asked), person)
    assert "ran" not in rig.agent.shell.user_ns
    assert any(isinstance(event, PermissionAsked) for event in events)
    assert [event.by for event in events if isinstance(event, PermissionAnswered)] == ["stop"]
    assert result_text(rig.results()[0]) == "This call was not run. The user stopped the turn."


@pytest.mark.paced
def test_stop_while_connecting_to_a_silent_server(make_rig: Callable[..., Rig]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        rig = make_rig(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        person = Person(can_ask=False)
        stopper = threading.Timer(0.4, rig.agent.stop)  # asking for the model's window takes 5 s at most
        stopper.start()
        began = time.monotonic()
        result = rig.turn("go", person)
        assert result.status == "stopped"
        assert time.monotonic() - began < within(4, 60)
        assert [type(event) for event in person.events[-2:]] == [UserMessage, TurnEnded]


def test_a_stop_between_turns_does_nothing(rig: Rig) -> None:
    rig.turn()
    rig.agent.stop()
    rig.server.script(text("fine"))
    assert rig.turn().text == "fine"


@pytest.mark.paced
def test_leaving_the_loop_early_stops_the_turn(rig: Rig) -> None:
    rig.server.script(LONG)

    async def leave() -> None:
        began = time.monotonic()
        async with aclosing(rig.agent.run("go")) as events:
            async for event in events:
                if isinstance(event, Streamed):
                    break
        assert time.monotonic() - began < within(3, 50)
        assert not rig.agent.busy
        rig.server.script(text("second"))
        said = [event async for event in rig.agent.run("go on")]
        assert said[-1].status == "finished"

    asyncio.run(leave())
    assert rig.server.open_streams == 0
    assert [event.status for event in rig.of(TurnEnded)] == ["stopped", "finished"]
    assert [exchange.error for exchange in rig.server.refused] == []


def test_a_plain_break_stops_the_turn_as_well(rig: Rig) -> None:
    rig.server.script(LONG)

    async def leave() -> None:
        async for event in rig.agent.run("go"):
            if isinstance(event, Streamed):
                break
        for _ in range(6_000):
            await asyncio.sleep(0.01)
            if any(isinstance(event, TurnEnded) for event in rig.events()) and rig.server.open_streams == 0:
                break
        await asyncio.sleep(0.05)

    asyncio.run(leave())
    assert rig.server.open_streams == 0
    rig.server.script(text("fine"))
    assert rig.turn().text == "fine"


def test_a_stop_at_any_moment_leaves_a_valid_session(rig: Rig) -> None:
    rig.turn("begin")
    for after in (0.0, 0.01, 0.02, 0.04, 0.06, 0.1, 0.15, 0.2):
        rig.server.script(
            calls([("python", {"code": "import time; time.sleep(0.03)"})] * 2, thinking="Hm. " * 10, delay=0.002),
            text("word " * 20, delay=0.002),
        )
        stopper = threading.Timer(after, rig.agent.stop)
        stopper.start()
        assert rig.turn("go").status in ("stopped", "finished")
        stopper.join()
        rig.server._queue.clear()
    rig.server.script(text("fine"))
    assert rig.turn().text == "fine"
    whole = [exchange for exchange in rig.server.refused if exchange.body is not None]  # not cut off in mid-sending
    assert [exchange.error for exchange in whole] == []


HOLDS = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1], mode=0o600):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process holds this lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield
        process.kill()


class Beats:
    """Looks a hundred times a second whether the agent's loop still turns; `longest`: seconds that it stood still."""

    def __init__(self, rig: Rig) -> None:
        self.longest = 0.0
        self._task = rig.agent._thread.start(self._beat)
        self._rig = rig

    async def _beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now

    def end(self) -> float:
        self._rig.agent._thread.cancel(self._task)
        return self.longest


PROMISED = within(0.3, 3.0)
"""Seconds by which a held lock or a slow disk may make a stop longer than one that meets neither: a lock is waited for
five seconds. How soon a person feels a stop is measured by the timed tests."""


def stop_takes(rig: Rig, reply: Reply, ready: Callable[[], object], answer: Any = "once") -> tuple[float, float]:
    """Seconds from the stop of a turn that waits to its end, and the longest that the loop stood still meanwhile."""
    beats, person, stops = Beats(rig), Person(PermissionAnswer(answer)), list[float]()

    def stop() -> None:
        while not ready():
            time.sleep(0.01)
        time.sleep(0.3)
        stops.append(time.monotonic())
        rig.agent.stop()

    rig.server._queue.clear()
    rig.server.script(reply, text("not stopped"))
    threading.Thread(target=stop).start()
    assert rig.turn("go", person).status == "stopped"
    return time.monotonic() - stops[0], beats.end()


def more(rig: Rig, kind: type[Any]) -> Callable[[], bool]:
    """Whether there is an event of this kind that was not there now."""
    before = sum(isinstance(event, kind) for event in rig.events())
    return lambda: sum(isinstance(event, kind) for event in rig.events()) > before


NOTE = "---\nname: db\ndescription: the base\ntype: project\n---\nIt is on heron."


@pytest.mark.paced
@pytest.mark.parametrize("lock", ["rules", "memory", "mailbox", "costs"])
def test_a_held_lock_holds_up_neither_the_stop_nor_the_panel(make_rig: Callable[..., Rig], lock: str) -> None:
    rig = make_rig(mode="ask", messages=True, trust_all=True)
    rig.turn("begin")
    asleep, _ = stop_takes(rig, tool("python", {"code": "import time\ntime.sleep(30)"}), more(rig, ToolCalled))
    project, session = rig.agent.project, rig.agent.session
    match lock:
        case "rules":
            path, reply = Path(f"{project.rules}.lock"), tool("python", {"code": "ran = 1"})
        case "memory":
            path = project.folder / "memory" / HISTORY / "lock"
            reply = tool("memory", {"command": "create", "path": "/memories/project/db.md", "file_text": NOTE})
        case "costs":  # noted at the end
            path, reply = Path(f"{project.spend}.lock"), tool("python", {"code": "import time\ntime.sleep(30)"})
            assert rig.agent.setup.spending.written(5)
        case _:
            path = session.journal.folder / "inbox.lock"
            reply = tool("send_message", {"to": session.journal.session, "message": "hello there"})
            rig.agent.new()
            rig.turn("begin again")
    with held(path):
        waits, answer = (PermissionAsked, "always") if lock == "rules" else (ToolCalled, "once")
        took, stood = stop_takes(rig, reply, more(rig, waits), answer)
    print(f"stop of a turn that waits for {lock}: {took * 1000:.0f} ms, of a sleep {asleep * 1000:.0f} ms")
    assert took < asleep + PROMISED
    assert stood < within(1.0, 3.0)
    if lock == "rules":
        assert "ran" not in rig.agent.shell.user_ns
        answered = rig.of(PermissionAnswered)[-1]
        assert (answered.answer, answered.by) == ("deny", "stop")
    elif lock != "costs":
        assert [event.note for event in rig.of(ToolReturned)][-1] == "cut off"


@pytest.mark.paced
def test_a_held_file_of_servers_is_waited_for_no_longer_than_an_interrupt(tmp_path: Path) -> None:
    file, times = tmp_path / "mcp.json", list[float]()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.3, lambda: (times.append(time.monotonic()), os.kill(os.getpid(), signal.SIGINT)))
        with held(tmp_path / "mcp.json.lock"):
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                put_entry(file, "one", {"command": "none"})
        assert time.monotonic() - times[0] < PROMISED
    finally:
        signal.signal(signal.SIGINT, before)
    assert not file.exists()
    put_entry(file, "one", {"command": "none"})
    assert "one" in file.read_text()


@pytest.mark.paced
def test_a_held_file_of_costs_holds_up_nothing_and_what_was_spent_is_noted_later(rig: Rig) -> None:
    rig.turn("begin")
    spending = rig.agent.setup.spending
    assert spending.written(5)
    began = time.monotonic()
    rig.turn("and further")
    free = time.monotonic() - began
    assert spending.written(5)
    before, beats = spent_today(rig.agent.project.spend), Beats(rig)
    with held(Path(f"{rig.agent.project.spend}.lock")):
        began = time.monotonic()
        result = rig.turn("go")
        assert time.monotonic() - began < free + PROMISED  # the lock is waited for five seconds
        assert beats.end() < within(1.0, 3.0)
        assert result.cost
        assert spending.today() == pytest.approx(before + result.cost)  # it counts for the limit of the day
        assert spent_today(rig.agent.project.spend) == before
    assert spending.written(5)
    assert spent_today(rig.agent.project.spend) == pytest.approx(before + result.cost, abs=2e-6)


@pytest.mark.paced
@pytest.mark.parametrize("when", ["before a call", "at the end"])
def test_a_slow_disk_holds_up_neither_the_stop_nor_the_panel(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    rig.turn("begin")
    waited = threading.Event()

    def slow(descriptor: int) -> None:  # the system's own, not ours
        waited.set()
        time.sleep(5)

    asleep, _ = stop_takes(rig, tool("python", {"code": "import time\ntime.sleep(30)"}), more(rig, ToolCalled))
    turns = [type(event) for event in rig.events()].count(TurnEnded)
    rig.server._queue.clear()
    beats, stops = Beats(rig), []
    monkeypatch.setattr(os, "fsync", slow)

    def stop() -> None:
        waited.wait(60)
        time.sleep(0.1)
        stops.append(time.monotonic())
        rig.agent.stop()

    rig.server.script(tool("python", {"code": "ran = 1"}) if when == "before a call" else text("done"))
    threading.Thread(target=stop).start()
    status = rig.turn("go").status
    took = time.monotonic() - stops[0]
    print(f"stop on a slow disk, {when}: {took * 1000:.0f} ms, of a sleep {asleep * 1000:.0f} ms")
    assert took < asleep + PROMISED
    assert beats.end() < within(1.0, 3.0)
    monkeypatch.undo()
    assert status == ("stopped" if when == "before a call" else "finished")
    assert "ran" not in rig.agent.shell.user_ns
    assert [type(event) for event in rig.events()].count(TurnEnded) == turns + 1
    rig.server.script(text("fine"))
    assert rig.turn().text == "fine"


def test_an_endless_loop_that_prints_keeps_200_000_characters_and_names_the_rest(rig: Rig) -> None:
    code = "n = 0\nwhile True:\n    n += 1\n    print(n, 'a line of output ' * 50)\n    n == 2_000 and many.set()"
    rig.server.script(tool("python", {"code": code}))
    rig.agent.shell.user_ns["many"] = many = threading.Event()

    def stop() -> None:
        assert many.wait(60)
        rig.agent.stop()

    threading.Thread(target=stop).start()
    assert rig.turn("go").status == "stopped"
    (folder,) = rig.folder.glob(".ipyagent/sessions/*/tool-results")
    (file,) = folder.iterdir()
    assert 190_000 < file.stat().st_size < 210_000
    assert "characters of output left out here" in file.read_text()


def test_what_is_kept_of_an_interrupted_run_is_its_head_and_its_tail_with_the_cut_counted() -> None:
    for bound, lines in ((100, 5), (100, 50), (1_000, 50), (1_000, 500)):
        log = OutputLog(bound)
        for number in range(lines):
            log.write(f"line {number}\n")
        written = "".join(f"line {number}\n" for number in range(lines))
        for most in (None, 40, 200, 5_000):
            got = log.text(most)
            cut = re.search(r"\n… ([\d,]+) characters of output left out here …\n", got)
            if cut is None:
                assert got == written
                continue
            head, tail = got[: cut.start()], got[cut.end() :]
            assert written.startswith(head)
            assert written.endswith(tail)
            assert len(head) + len(tail) + int(cut[1].replace(",", "")) == len(written)
            assert most is None or len(head) + len(tail) <= most
