"""Extraction behind the turns of a real agent: when it runs, what its fork may do, what stays of it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from extract_room import ExtractRoom, creating, directive_in, extract_room, memory_file
from notes_room import until
from pace import within

from ipyagent import Options, hooks
from ipyagent.assembly.requests import NullSurface
from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    FileChanged,
    ForkEnded,
    LayerFailed,
    MemoryExtracted,
    MemorySaved,
    TurnEnded,
)
from ipyagent.journal.view import ContextView
from ipyagent.loop.budget import spent_today
from ipyagent.parts.memory.commands import run_memory
from ipyagent.practice.replies import Reply, calls, fault, refusal, text, tool

PLOTS = "/memories/project/plots.md"


@pytest.fixture
def room(tmp_path: Path) -> Iterator[ExtractRoom]:
    with extract_room(tmp_path) as made:
        yield made


def held(gate: threading.Event, reply: Reply | None = None) -> Any:
    """A reply that comes once the gate is open."""

    def answer(body: dict[str, Any]) -> Reply:
        assert gate.wait(10)
        return reply or text("Nothing to save.")

    return answer


def results(body: dict[str, Any]) -> list[str]:
    """What the calls of the newest round gave."""
    return ["".join(part["text"] for part in block["content"]) for block in body["messages"][-1]["content"]]


# ---------------------------------------------------------------------- what it does


def test_what_the_user_said_is_saved_and_told_with_its_undo_and_what_it_took(room: ExtractRoom) -> None:
    agent = room.agent()
    long = text("Medians are robust. " * 300)  # the fork is the first that sends it, and the next turn reads it
    result = room.turn(agent, "I am a surgeon. We always report medians, never means. Hello!", long)
    assert "type: user" in room.memories("user")["user_surgeon.md"]
    [(name, kept)] = room.memories().items()
    assert "report medians" in kept
    assert "**Why:**" in kept
    assert "**How to apply:**" in kept
    saved = room.events(agent, MemorySaved)
    assert {event.by for event in saved} == {"extraction"}
    told = [line for line in agent.notices if line.startswith("saved: ")]
    assert f"saved: {name} (undo: %memory forget {name})" in told
    [done] = room.events(agent, MemoryExtracted)
    assert sorted(done.files) == sorted(event.path for event in saved)
    forks = room.events(agent, ForkEnded)
    assert all(fork.seconds > 0 and fork.usage.output > 0 and (fork.cost or 0) > 0 for fork in forks)
    assert agent.setup.spending.written(5)
    spent = (result.cost or 0.0) + sum(fork.cost for fork in forks)
    assert spent_today(agent.project.spend) == pytest.approx(spent, abs=2e-6)
    usages = [fork.usage for fork in forks if fork.purpose == "extraction"]
    assert sum(usage.cache_read for usage in usages) > 500
    assert sum(usage.cache_write for usage in usages) > 500
    said = next(line for line in run_memory(agent, "stats").splitlines() if "extraction: " in line)
    assert re.findall(r"([\d,]+) (input|read from cache|written to it|output)\b", said) == [
        (f"{sum(getattr(usage, name) for usage in usages):,}", word)
        for name, word in (("input", "input"), ("cache_read", "read from cache"), ("cache_write", "written to it"),
                           ("output", "output"))
    ]  # fmt: skip
    assert "2 memories saved" in said


def test_it_begins_once_the_turn_has_ended_on_the_disk_from_its_cache_and_makes_no_folder_for_nothing(
    room: ExtractRoom,
) -> None:
    agent = room.agent()
    seen: list[bool] = []

    def look(body: dict[str, Any]) -> Reply:
        seen.append(any(isinstance(event, TurnEnded) for event in room.events(agent)))
        return text("Nothing to save.")

    room.extraction = look
    room.turn(agent, "what is the mean of column a?" + " tell me more." * 300)
    assert seen == [True]
    assert room.events(agent, MemorySaved) == []
    assert not (room.folder / ".ipyagent" / "memory").exists()
    [fork] = room.events(agent, ForkEnded)
    assert fork.purpose == "extraction"
    assert fork.usage.cache_read > 0.6 * fork.usage.prompt
    turn, order = room.asked(extractions=False)[0].body, room.asked(extractions=True)[0].body
    assert order["system"] == turn["system"]
    assert order["tools"] == turn["tools"]


def test_a_fact_that_changed_is_brought_up_to_date_in_its_file(room: ExtractRoom) -> None:
    agent = room.agent()
    path, old, new = "/memories/project/deadline.md", "the deadline is 2026-12-10", "the deadline is 2026-12-20"
    room.extractions = [creating(path, old, "project")]
    room.turn(agent, f"{old}.")
    edits = [("memory", {"command": "str_replace", "path": path, "old_str": f"{lead}{old}", "new_str": f"{lead}{new}"})
             for lead in ("description: ", "---\n")]  # fmt: skip
    room.extractions = [calls([("memory", {"command": "view", "path": path})]), calls(edits)]
    room.turn(agent, f"{new}.")
    [(name, kept)] = room.memories().items()
    assert "2026-12-20" in kept
    assert "2026-12-10" not in kept
    created, *changed = room.events(agent, MemorySaved)
    assert created.change == "created"
    assert {event.change for event in changed} == {"changed"}
    assert all(event.revision for event in changed)
    room.turn(agent, f"Remember: {new}.")
    assert len(room.events(agent, MemorySaved)) == 1 + len(changed), "it says so already"
    assert list(room.memories()) == [name]


def test_it_is_told_what_exists_and_how_much_it_may_use_and_nothing_of_it_enters_the_conversation(
    room: ExtractRoom,
) -> None:
    agent = room.agent()
    room.turn(agent, "we always report medians")
    room.turn(agent, "a", tool("python", {"code": "1"}), tool("python", {"code": "2"}), text("b"))
    assert "extract-memories" not in str(room.asked(extractions=False)[-1].body["messages"])
    assert ContextView.of(room.events(agent)).messages == agent.session.view.messages
    assert len(room.events(agent, AssistantMessage)) == 4
    first, second = (directive_in(one.body or {}) for one in room.asked(extractions=True))
    assert "newest 2 messages" in first
    assert "(none yet)" in first
    assert "newest 6 messages" in second
    assert "- [feedback] /memories/project/" in second
    assert time.strftime("%Y-%m-%d") in second


# ---------------------------------------------------------------------- when it runs


def test_only_if_enabled_only_with_memory_and_only_while_there_is_money(room: ExtractRoom) -> None:
    for settings in ({"max_cost_per_day": 1e-9}, {"extraction": False}, {"memory": False}):
        agent = room.agent(**settings)
        agent.setup.note_spent(0.0)
        room.turn(agent, "we always report medians")
        agent.close()
    assert room.asked(extractions=True) == []
    assert room.memories() == {}


def test_not_after_a_turn_that_was_said_aside_stopped_or_failed(room: ExtractRoom) -> None:
    agent = room.agent(max_retries=0)
    room.replies = [text("fine"), text("fine"), fault(500)]
    assert agent.run_sync("aside", fork=True).status == "finished"
    assert agent.run_sync("aside", fresh=True).status == "finished"
    assert agent.run_sync("we always report medians").status == "failed"
    room.replies = [text("word " * 300, delay=0.02)]
    stopper = threading.Timer(0.2, agent.stop)
    stopper.start()
    assert agent.run_sync("talk").status == "stopped"
    room.settle(agent)
    assert room.asked(extractions=True) == []


def test_every_nth_turn_and_all_since_then_are_looked_through(room: ExtractRoom) -> None:
    agent = room.agent(extract_every=3)
    for number in range(7):
        room.turn(agent, f"turn {number}")
    asked = [directive_in(one.body or {}) for one in room.asked(extractions=True)]
    assert len(asked) == 2
    assert all("newest 6 messages" in each for each in asked)


def test_a_turn_in_which_the_agent_saved_something_is_looked_through_and_what_it_saved_is_named(
    room: ExtractRoom,
) -> None:
    agent = room.agent()
    saving = creating(PLOTS, "we always plot in blue")
    room.turn(agent, "remember: we always plot in blue. Always cite the source.", saving, text("saved"))
    [asked] = room.asked(extractions=True)
    assert f"The agent saved in these turns itself: {PLOTS}." in directive_in(asked.body or {})
    assert "where the user said otherwise later, bring it up to date or delete it" in directive_in(asked.body or {})
    assert len(room.memories()) == 2
    room.turn(agent, "now another thing")
    assert "saved in these turns" not in directive_in(room.asked(extractions=True)[-1].body or {})


def test_remember_is_acted_on_at_once_by_the_agent_itself(room: ExtractRoom) -> None:
    agent = room.agent(model="practice", base_url="")
    result = room.turn(agent, "remember that we always report medians")
    assert "Saved in `/memories/project/" in result.text
    [saved] = room.events(agent, MemorySaved)
    assert saved.by == "agent"
    assert [event.by for event in room.events(agent, MemorySaved)] == ["agent"], "nothing is left to save"
    again = room.turn(agent, "remember that we always report medians")
    assert "says so already" in again.text
    assert len(room.memories()) == 1


def test_one_at_a_time_the_newest_is_kept_and_one_trailing_run_ignores_n(room: ExtractRoom) -> None:
    agent, gate = room.agent(extract_every=1), threading.Event()
    room.extractions = [held(gate, creating("/memories/project/nests.md", "Herons nest in March.", "project"))]
    room.turn(agent, "turn 0", settle=False)
    assert until(lambda: len(room.asked(extractions=True)) == 1)
    agent.settings.extract_every = 50
    for number in range(1, 4):
        room.turn(agent, f"turn {number}", settle=False)
    assert len(room.asked(extractions=True)) == 1, "one at a time"
    gate.set()
    room.settle(agent)
    first, trailing = room.asked(extractions=True)
    assert "newest 6 messages" in directive_in(trailing.body or {}), "of turns 1 to 3"
    assert first.finished <= trailing.received
    assert "\nturn: 1\n" in room.memories()["nests.md"], "what is saved late bears the turn that it comes of"
    room.turn(agent, "turn 4")
    assert len(room.asked(extractions=True)) == 2, "and N counts again"


def test_a_turn_under_way_is_no_part_of_it(room: ExtractRoom) -> None:
    """A trailing run begins while the next turn is at a tool: it has the conversation up to the turn before."""
    agent, gate = room.agent(), threading.Event()
    room.extractions = [held(gate)]
    room.turn(agent, "turn 0", settle=False)
    room.turn(agent, "turn 1", settle=False)  # asks for a trailing run

    def while_it_works(body: dict[str, Any]) -> Reply:
        gate.set()
        assert until(lambda: len(room.events(agent, MemoryExtracted)) == 2)
        return text("done")

    room.turn(agent, "turn 2 is secret", tool("python", {"code": "1"}), while_it_works)
    _, trailing, third = room.asked(extractions=True)
    assert "turn 1" in str(trailing.body)
    assert "turn 2" not in str(trailing.body)
    assert "turn 2" in str(third.body)
    assert [event.upto for event in room.events(agent, MemoryExtracted)] == [
        event.id for event in room.events(agent, TurnEnded)
    ]


def test_a_resumed_session_goes_on_where_it_was(room: ExtractRoom) -> None:
    agent = room.agent()
    for number in range(3):
        room.turn(agent, f"turn {number}")
    name = agent.session.journal.session
    agent.close()
    again = room.agent()
    again.resume(name)
    room.turn(again, "turn 3")
    assert "newest 2 messages" in directive_in(room.asked(extractions=True)[-1].body or {})


def test_background_work_is_not_looked_through(room: ExtractRoom) -> None:
    """Notes and extractions leave no turns: neither calls for another extraction."""
    agent = room.agent(layer_notes=True, notes_start=100, extract_every=2)
    room.replies = [text("ok"), text("notes")]
    agent.run_sync("tell me. " * 200)
    assert agent.session.background.wait(10)
    room.settle(agent)
    assert room.events(agent, ForkEnded)[-1].purpose == "notes"
    assert room.asked(extractions=True) == []


# ---------------------------------------------------------------------- what its fork may do


def test_it_may_not_write_run_code_or_leave_the_project(room: ExtractRoom) -> None:
    agent = room.agent()
    (room.folder / "data.csv").write_text("a\n1\n")
    seen: list[str] = []

    def look(body: dict[str, Any]) -> Reply:
        seen.extend(results(body))
        return text("done")

    forbidden: list[tuple[str, dict[str, Any]]] = [
        ("python", {"code": "x = 1"}),
        ("write_file", {"path": "a.txt", "content": "x"}),
        ("edit_file", {"path": "data.csv", "old": "1", "new": "2"}),
        ("shell", {"command": "touch made.txt"}),
        ("shell", {"command": "cat data.csv > made.txt"}),
        ("shell", {"command": "cat /etc/passwd"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("variables", {}),
        ("compact", {}),
    ]
    room.extractions = [calls(forbidden), look]
    room.turn(agent, "hello")
    assert len(seen) == len(forbidden)
    assert all("may not run in this background work: only `memory`" in said for said in seen)
    assert (room.folder / "data.csv").read_text() == "a\n1\n"
    assert not (room.folder / "made.txt").exists()
    assert "x" not in agent.shell.user_ns
    assert room.events(agent, FileChanged) == []


def test_it_may_read_and_look_at_memories_and_what_it_read_was_not_read_by_the_model(room: ExtractRoom) -> None:
    agent = room.agent()
    (room.folder / "data.csv").write_text("a\n1\n")
    seen: list[str] = []

    def look(body: dict[str, Any]) -> Reply:
        seen.extend(results(body))
        return text("done")

    reading = [
        ("read_file", {"path": "data.csv"}),
        ("grep", {"pattern": "1"}),
        ("glob", {"pattern": "*.csv"}),
        ("memory", {"command": "view", "path": "/memories"}),
    ]
    room.extractions = [calls(reading), look]
    room.turn(agent, "hello")
    assert len(seen) == len(reading)
    assert all("may not run" not in said for said in seen)
    assert "data.csv" in seen[1]
    assert "/memories/project" in seen[3]
    edit = tool("edit_file", {"path": "data.csv", "old": "1", "new": "2"})
    room.turn(agent, "edit it", edit, text("done"))
    assert (room.folder / "data.csv").read_text() == "a\n1\n", "a file is read before it is edited"


def test_hooks_of_the_user_hold_for_it_too_and_a_write_that_was_refused_may_be_mended(room: ExtractRoom) -> None:
    agent = room.agent()

    @hooks.pre_tool
    def deny(facts: dict[str, Any]) -> dict[str, str] | None:
        return {"deny": "not today"} if facts["tool"] == "memory" else None

    try:
        room.extractions = [creating(PLOTS, "we always plot in blue")]
        room.turn(agent, "we always plot in blue")
    finally:
        hooks.remove(deny)
    assert room.memories() == {}
    bad = calls([("memory", {"command": "create", "path": "/memories/../x.md", "file_text": "x"})])
    room.extractions = [bad, creating(PLOTS, "we always plot in blue")]
    room.turn(agent, "we always plot in blue")
    assert list(room.memories()) == ["plots.md"]


def test_it_has_so_many_replies_and_ends_once_all_is_written(room: ExtractRoom) -> None:
    agent = room.agent(extract_turns=3)
    view = calls([("memory", {"command": "view", "path": "/memories"})])
    room.extractions = [view] * 10
    room.turn(agent, "hello")
    assert len(room.asked(extractions=True)) == 3
    assert len(room.events(agent, MemoryExtracted)) == 1, "the cursor moves on all the same"
    room.extractions = [view, creating(PLOTS, "we always plot in blue"), text("a last word")]
    room.turn(agent, "we always plot in blue")
    assert len(room.asked(extractions=True)) == 5, "the last word is not paid for"
    assert "plots.md" in room.memories()


def test_what_was_saved_before_it_failed_stays_and_the_turns_come_again(room: ExtractRoom) -> None:
    agent = room.agent(max_retries=0)
    half = [
        ("memory", {"command": "create", "path": PLOTS, "file_text": memory_file("we always plot in blue")}),
        ("memory", {"command": "view", "path": "/memories/project/none.md"}),
    ]
    room.extractions = [calls(half), fault(500)]
    room.turn(agent, "we always plot in blue")
    assert "plots.md" in room.memories()
    assert room.events(agent, MemoryExtracted) == []
    [failed] = room.events(agent, LayerFailed)
    assert failed.layer == "extraction"
    room.turn(agent, "go on")
    assert "newest 4 messages" in directive_in(room.asked(extractions=True)[-1].body or {})


def test_failures_in_a_row_end_it_for_the_session_and_disturb_nothing(room: ExtractRoom) -> None:
    agent = room.agent(max_retries=0)
    room.extractions = [fault(500), refusal("no"), fault(400), text("never")]
    for number in range(5):
        assert room.turn(agent, f"turn {number}", text("fine")).text == "fine"
    assert len(room.asked(extractions=True)) == 3
    assert [event.stopped for event in room.events(agent, LayerFailed)] == [False, False, True]


# ---------------------------------------------------------------------- the user, money, time


class Watcher(NullSurface):
    """A surface that stays once it is closed, as the panel does."""

    def __init__(self, *, broken: bool = False) -> None:
        self.events: list[Event] = []
        self.afterwards: list[Event] = []
        self.closed, self.broken = False, broken

    def show(self, event: Event) -> None:
        assert not self.closed
        self.events.append(event)

    def later(self, event: Event) -> None:
        self.afterwards.append(event)
        if self.broken:
            raise AttributeError("the page is gone")

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("broken", [False, True])
def test_the_cell_that_asked_tells_what_was_saved_and_one_that_cannot_is_no_failure(
    room: ExtractRoom, broken: bool
) -> None:
    agent, first = room.agent(), Watcher(broken=broken)
    room.extractions = [replace(creating(PLOTS, "we always plot in blue"), first_delay=0.1)]
    agent.prepare("we always plot in blue", Options(), first).run_blocking()
    room.settle(agent)
    [saved] = first.afterwards
    assert isinstance(saved, MemorySaved)
    assert saved.path == PLOTS
    assert len(room.asked(extractions=True)) == 1, "the model is not told of an error"
    assert any(line.startswith("saved") for line in agent.notices) == broken


def test_while_the_next_turn_runs_its_cell_tells(room: ExtractRoom) -> None:
    agent, first, second, gate = room.agent(), Watcher(), Watcher(), threading.Event()
    room.extractions = [held(gate, creating(PLOTS, "we always plot in blue"))]
    agent.prepare("we always plot in blue", Options(), first).run_blocking()

    def once_it_is_saved(body: dict[str, Any]) -> Reply:
        gate.set()
        assert until(lambda: bool(room.memories()))
        time.sleep(0.05)
        return text("late")

    room.replies = [once_it_is_saved]
    agent.prepare("next", Options(), second).run_blocking()
    assert first.afterwards == []
    assert any(isinstance(event, MemorySaved) for event in second.events)
    room.settle(agent)


@pytest.mark.paced
def test_no_request_of_it_precedes_the_answer_and_the_next_turn_is_not_held_up(room: ExtractRoom) -> None:
    agent, gate = room.agent(), threading.Event()
    room.extraction = held(gate)
    began = time.monotonic()
    for number in range(4):
        assert room.turn(agent, f"turn {number}", text(f"said {number}"), settle=False).text == f"said {number}"
    assert time.monotonic() - began < within(5, 100), "an extraction hangs, and no turn waits for it"
    order = [bool(directive_in(one.body or {})) for one in room.server.messages]
    assert order[0] is False, "the answer is asked for first"
    assert order.count(True) == 1
    answered = room.asked(extractions=False)[0].finished
    assert room.asked(extractions=True)[0].received >= answered
    gate.set()
    room.settle(agent)
    spans = [(one.received, one.finished) for one in room.asked(extractions=True)]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
