"""Work behind turns: one at a time, never in the way of the next turn, ended with the session."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from notes_room import LOG, STATE, NotesRoom, noting, until, words
from pace import within

from ipyagent import Options
from ipyagent.assembly.requests import NullSurface
from ipyagent.errors import JournalError
from ipyagent.journal.events import Event, ForkEnded, LayerDecision, LayerFailed, NotesWritten, TurnEnded
from ipyagent.journal.protocols import TurnStatus
from ipyagent.journal.view import ContextView
from ipyagent.kernel.thread import AgentLoop
from ipyagent.loop.background import Background
from ipyagent.loop.budget import spent_today
from ipyagent.practice.replies import Reply, fault, text, tool


@pytest.fixture
def thread() -> Iterator[AgentLoop]:
    made = AgentLoop("test")
    yield made
    made.close()


def slow(said: str, seconds: float = 1.0) -> Any:
    """An update that takes its time."""
    return lambda body: replace(noting((LOG, said))(body), first_delay=seconds)


def held(said: str, gate: threading.Event) -> Any:
    """An update that comes once the gate is open."""

    def answer(body: dict[str, Any]) -> Reply:
        assert gate.wait(60)
        return noting((LOG, said))(body)

    return answer


class Watcher(NullSurface):
    """Remembers what it was shown, and whether anything came once it was closed."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.phases: list[str] = []
        self.closed = False
        self.late: list[Any] = []

    def show(self, event: Event) -> None:
        (self.late if self.closed else self.events).append(event)

    def status(self, status: TurnStatus) -> None:
        (self.late if self.closed else self.phases).append(status.phase)

    def close(self) -> None:
        self.closed = True


# ---------------------------------------------------------------------- the runner


def test_one_at_a_time_and_of_those_that_wait_the_newest(thread: AgentLoop) -> None:
    background = Background()
    ran: list[int] = []
    running = 0

    async def work(number: int) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.05)
        ran.append(number)
        running -= 1

    async def ask_five() -> None:
        for number in range(5):
            background.ask(lambda number=number: work(number))
            await asyncio.sleep(0.002)

    thread.start(ask_five).result(60)
    assert background.busy
    assert background.wait(60)
    assert ran == [0, 4]
    thread.start(ask_five).result(60)
    assert background.wait(60)
    assert ran == [0, 4, 0, 4]


@pytest.mark.paced
def test_closing_ends_what_runs_and_takes_nothing_more(thread: AgentLoop) -> None:
    background = Background()
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            seen.append("ended")

    async def ask() -> None:
        background.ask(work)
        background.ask(work)

    thread.start(ask).result(60)
    time.sleep(0.02)
    began = time.monotonic()
    background.close()
    assert time.monotonic() - began < within(0.3, 20)
    assert not background.busy
    assert seen == ["ended"]
    thread.start(ask).result(60)
    assert background.wait(0)
    background.close()


def test_work_that_was_never_begun_is_closed_too(thread: AgentLoop) -> None:
    background = Background()

    async def work() -> None:
        raise AssertionError("it began")

    async def ask_and_close() -> None:
        background.ask(work)
        background.close()

    thread.start(ask_and_close).result(60)
    assert background.wait(60)


def test_a_closed_journal_ends_it_in_silence(thread: AgentLoop) -> None:
    background = Background()

    async def work() -> None:
        raise JournalError("closed")

    async def ask() -> None:
        background.ask(work)

    thread.start(ask).result(60)
    assert background.wait(60)
    background.close()


# ---------------------------------------------------------------------- behind a turn


def test_the_next_turn_does_not_wait_and_both_are_in_the_journal_whole(room: NotesRoom) -> None:
    agent, gate = room.agent(), threading.Event()
    room.updates = [held("first, a heron", gate)]
    room.turn(agent, words(1, 1_800), settle=False)
    for number in range(3):
        room.turn(agent, f"next {number}", tool("python", {"code": "print(1)"}), text(f"said {number}"), settle=False)
    assert agent.session.background.busy
    gate.set()
    room.settle(agent)
    events = room.events(agent)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert [event.parent for event in events] == list(range(len(events)))
    for line in (agent.session.journal.folder / "transcript.jsonl").read_text().splitlines():
        json.loads(line)
    assert ContextView.of(events).messages == agent.session.view.messages
    assert "first, a heron" in room.notes(agent)
    [written] = [event for event in events if isinstance(event, NotesWritten)]
    first_end = next(event for event in events if isinstance(event, TurnEnded))
    assert written.upto < first_end.id < written.id, "it covers what there was when it began"


def test_never_two_updates_at_once(room: NotesRoom) -> None:
    agent = room.agent(notes_calls=0)
    most = 0

    def watching(body: dict[str, Any]) -> Reply:
        nonlocal most
        most = max(most, room.server.open_streams)
        return slow("x", 0.3)(body)

    room.update = watching
    for number in range(4):
        room.turn(agent, words(number, 1_900), settle=False)
    room.settle(agent)
    assert 2 <= len(room.asked(updates=True)) <= 3
    spans = [(one.received, one.finished) for one in room.asked(updates=True)]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_a_finished_surface_is_shown_nothing_and_the_next_one_no_phase_of_it(room: NotesRoom) -> None:
    agent, gate = room.agent(), threading.Event()
    room.updates = [held("x", gate)]
    first, second = Watcher(), Watcher()
    agent.prepare(words(1, 1_800), Options(), first).run_blocking()
    assert first.phases[-1] == ""

    def once_it_is_written(body: dict[str, Any]) -> Reply:
        gate.set()
        assert agent.session.background.wait(60)
        return text("late")

    room.replies = [once_it_is_written]
    agent.prepare("next", Options(), second).run_blocking()
    assert first.late == second.late == []
    assert not any("note" in phase for phase in first.phases + second.phases)
    assert any(isinstance(event, NotesWritten) for event in second.events)


def test_a_turns_stop_leaves_it_alone(room: NotesRoom) -> None:
    agent = room.agent()
    room.updates = [slow("still written", 0.5)]
    room.turn(agent, words(1, 1_800), settle=False)
    room.replies = [text("word " * 300, delay=0.02)]
    stopper = threading.Timer(0.2, agent.stop)
    stopper.start()
    assert agent.run_sync("talk").status == "stopped"
    room.settle(agent)
    assert "still written" in room.notes(agent)


@pytest.mark.paced
def test_new_ends_it_at_once_and_leaves_the_notes_as_they_were_and_closing_ends_it_too(room: NotesRoom) -> None:
    agent = room.agent()
    room.update = slow("never", 100.0)
    room.turn(agent, words(1, 1_800), settle=False)
    session = agent.session
    assert until(lambda: room.server.open_streams == 1)
    began = time.monotonic()
    agent.new()
    assert time.monotonic() - began < within(0.3, 50)
    assert until(lambda: room.server.open_streams == 0, within(0.3, 60))
    assert not (session.journal.folder / "notes.md").exists()
    ended = [event for event in session.journal.read() if isinstance(event, ForkEnded)]
    assert [event.status for event in ended] == ["stopped"]
    room.update = noting((STATE, "fresh"))
    assert room.turn(agent, "hello", text("hi")).text == "hi"
    room.update = slow("never", 100.0)
    room.turn(agent, words(1, 1_800), settle=False)
    assert until(lambda: room.server.open_streams == 1)
    began = time.monotonic()
    agent.close()
    assert time.monotonic() - began < within(2.5, 50)
    assert until(lambda: room.server.open_streams == 0, within(0.5, 60))


def test_its_failure_steps_aside(room: NotesRoom) -> None:
    agent = room.agent(max_retries=0)
    room.updates = [fault(529), fault(401)]
    assert room.turn(agent, words(1, 1_800), text("fine")).status == "finished"
    [failed] = room.events(agent, LayerFailed)
    assert failed.layer == "notes"
    assert room.turn(agent, "and on", text("on")).text == "on"


def test_nothing_follows_a_turn_that_was_stopped_failed_or_said_aside(room: NotesRoom) -> None:
    agent = room.agent(max_retries=0)
    room.replies = [fault(500)]
    assert agent.run_sync(words(1, 3_000)).status == "failed"
    room.settle(agent)
    assert agent.run_sync("aside", fork=True).status == "finished"
    time.sleep(0.05)
    assert room.asked(updates=True) == []


def test_past_the_limit_of_the_day_it_does_not_begin(room: NotesRoom) -> None:
    agent = room.agent(max_cost_per_day=1e-6)
    assert room.turn(agent, words(1, 1_800)).status == "finished", "nothing had been spent when it began"
    assert room.turn(agent, "and on").status == "limit"
    assert room.asked(updates=True) == []


def test_what_it_costs_counts_for_the_day(room: NotesRoom) -> None:
    agent = room.agent()
    result = room.turn(agent, words(1, 1_800))
    [fork] = room.events(agent, ForkEnded)
    assert fork.cost > 0
    assert agent.setup.spending.written(5)
    assert spent_today(agent.project.spend) == pytest.approx((result.cost or 0.0) + fork.cost, abs=2e-6)


def test_records_from_the_main_thread_keep_their_own_ids(room: NotesRoom) -> None:
    """`%agent undo` writes on the main thread while background work writes on its own."""
    agent = room.agent(layer_notes=False)
    room.turn(agent, "hello")
    session = agent.session

    async def many() -> None:
        for number in range(300):
            session.record(LayerDecision(layer="a", words=str(number)))
            await asyncio.sleep(0)

    future = agent._thread.start(many)
    for number in range(300):
        session.record(LayerDecision(layer="b", words=str(number)))
    future.result(60)
    ids = [event.id for event in room.events(agent)]
    assert ids == list(range(1, len(ids) + 1))


def test_a_fault_in_the_background_is_told_once_with_a_report_and_the_next_piece_is_done(room: NotesRoom) -> None:
    agent = room.agent()
    agent.run_sync("hello")
    session, done = agent.session, threading.Event()
    loop = agent._thread.running
    assert loop is not None
    assert session.background.wait(60)
    agent.notices.clear()

    async def broken() -> None:
        await asyncio.sleep(0.05)
        raise ZeroDivisionError("heron")

    async def whole() -> None:
        done.set()

    for _ in range(2):
        done.clear()
        assert session.background.ask_from_outside(loop, broken)
        assert session.background.ask_from_outside(loop, whole)
        assert done.wait(60)
        assert session.background.wait(60)
    (line,) = agent.notices
    assert "internal error in the background, ZeroDivisionError: heron" in line
    assert "ZeroDivisionError" in Path(line.rpartition(": ")[2]).read_text()
