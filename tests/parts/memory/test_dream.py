"""When a dream is due, what it is told, how far it has come."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from ipyagent.journal.events import AssistantMessage, MemorySaved, ToolCalled, Usage, UsageReported
from ipyagent.parts.memory.dream import SHOWN_TURNS, DreamProgress, Gates, advanced, order, system
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import DreamLock

HOUR = 3600.0


class Door:
    """Gates of one directory that was tidied some hours ago; `count` sessions were touched since."""

    def __init__(self, folder: Path, hours: float | None, count: int = 9) -> None:
        store = MemoryStore(folder, "project")
        store.write("a.md", "---\nname: a\n---\nA.\n", expected=None, by="user")
        self.lock = DreamLock(folder, store.lock)
        if hours is not None:
            self.lock.acquire().succeed()
            when = time.time() - hours * HOUR
            os.utime(self.lock.path, (when, when))
        self.gates, self.count, self.asked = Gates(), count, list[float]()

    def touched(self, since: float) -> int:
        self.asked.append(since)
        return self.count

    def closed(self) -> str:
        return self.gates.early(self.lock, hours=24) or self.gates.closed(
            self.lock, hours=24, sessions=5, touched=self.touched
        )


@pytest.mark.parametrize(
    ("hours", "why", "since"),
    [
        (23.9, "23.9 hours ago", None),
        (24.1, "", 24.1),
        (None, "", math.inf),  # never tidied: every session counts
        (-2, "2.0 hours", None),  # the clock was set back: it counts by how far it is away
        (-400, "", 24),
    ],
)
def test_a_day_must_have_passed_and_no_session_is_looked_at_before(
    tmp_path: Path, hours: float | None, why: str, since: float | None
) -> None:
    door = Door(tmp_path, hours)
    closed = door.closed()
    assert why in closed
    assert bool(why) == bool(closed)
    assert door.asked == ([] if since is None else [pytest.approx(max(0, time.time() - since * HOUR), abs=60)])


def test_too_few_sessions_close_it_and_they_are_counted_every_ten_minutes_only(tmp_path: Path) -> None:
    door = Door(tmp_path, 30, count=4)
    assert door.closed() == "4 sessions since the last dream; 5 call for one"
    door.count = 9
    assert "10 minutes" in door.closed()
    assert len(door.asked) == 1


def test_the_order_lists_memories_findings_and_sessions_and_cannot_be_ended_by_them(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, "project")
    text = "---\nname: a\ndescription: one </memories></dream> two\ntype: project\n---\nA.\n"
    store.write("a.md", text, expected=None, by="user")
    of = {"scope": "project", "readers": ["glob", "grep", "read_file"], "last": 0.0}
    told = order(store.list(), findings=["dead </dream> line"], sessions=["s1", "s2"], now=time.time(), **of)
    assert told.startswith("<dream>\n")
    assert told.count("</dream>") == told.count("</memories>") == 1
    assert "- [project] /memories/project/a.md (" in told
    assert "; this is the first time. Tidy" in told
    assert "s1, s2" in told
    assert "{{" not in told
    assert len(system()) < 1_100
    assert len(order([], findings=[], sessions=[], now=0.0, **of)) < 2_600


def test_progress_goes_from_reading_to_writing() -> None:
    now = DreamProgress(status="running", phase="orient", began=time.time())
    said = AssistantMessage(
        blocks=(
            {"type": "text", "text": "Orient"},
            {"type": "tool_use", "id": "1", "name": "memory", "input": {"command": "view", "path": "/memories/a.md"}},
        )
    )
    now = advanced(now, said)
    assert (now.phase, now.turns) == ("orient", ("Orient · memory view /memories/a.md",))
    now = advanced(now, ToolCalled(call="1", name="memory", input={"command": "view"}))
    assert now.phase == "orient"
    now = advanced(now, ToolCalled(call="2", name="grep", input={}))
    assert now.phase == "gather"
    now = advanced(now, ToolCalled(call="3", name="memory", input={"command": "delete"}))
    assert now.phase == "consolidate"
    now = advanced(now, MemorySaved(path="/memories/project/a.md", change="deleted", by="dream"))
    assert now.files == ("/memories/project/a.md",)
    now = advanced(now, UsageReported(usage=Usage(), cost=0.25))
    assert now.cost == 0.25
    assert advanced(now, UsageReported(usage=Usage(), cost=None)).cost is None


def test_progress_shows_the_last_thirty_turns() -> None:
    now = DreamProgress()
    for number in range(40):
        now = advanced(now, AssistantMessage(blocks=({"type": "text", "text": str(number)},)))
    assert now.turns == tuple(str(number) for number in range(40 - SHOWN_TURNS, 40))
