"""A kernel that is killed at any moment has lost nothing that it had shown, and the next request is valid."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import killed_session

from ipyagent.journal.events import AssistantMessage, ToolReturned, TurnEnded, UserMessage
from ipyagent.journal.journal import TRANSCRIPT
from ipyagent.loop.session import Session
from ipyagent.practice.server.models import catalogue
from ipyagent.practice.server.rules import check_conversation

ROOT = Path(__file__).parents[2]
CARD = catalogue(200_000, 64_000, None)["practice"]


def shown_until_killed(folder: Path, chance: random.Random) -> list[list[str]]:
    """Start the session, kill it after some number of shown lines, and give what had been shown."""
    killed = subprocess.Popen(
        [sys.executable, killed_session.__file__, str(folder), str(chance.randrange(10**6))],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        lines = [killed.stdout.readline() for _ in range(chance.randint(1, 120))]
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
    lines += killed.stdout.read().splitlines(keepends=True)  # shown while we were killing it
    killed.stdout.close()
    return [line.split() for line in lines if line.endswith("\n")]


def check_survival(folder: Path, shown: list[list[str]]) -> None:
    """Everything shown is there, nothing is open, the server takes the next request."""
    before = (folder / "s" / TRANSCRIPT).read_bytes()
    session, problems = Session.open(folder / "s")
    kinds = {event.id: type(event).__name__ for event in session.journal.read()}
    assert [[str(i), kinds.get(i)] for i in (int(line[0]) for line in shown)] == shown
    assert (folder / "s" / TRANSCRIPT).read_bytes().startswith(before)
    assert all(problem.torn or "cut off by a crash" in problem.what for problem in problems), problems
    assert session.view.open_calls == {}
    assert not session.history.unfinished
    events = list(session.journal.read())
    replies = [event for event in events if isinstance(event, AssistantMessage)]
    called = [block["id"] for reply in replies for block in reply.blocks if block["type"] == "tool_use"]
    returned = [event.call for event in events if isinstance(event, ToolReturned)]
    assert sorted(called) == sorted(returned), "every call has exactly one journalled result"
    crash = [event for event in events if isinstance(event, TurnEnded) and event.status == "stopped"]
    for event in events:
        if isinstance(event, ToolReturned) and event.note in ("cut off", "not run"):
            assert event.is_error
            assert crash
    session.record(UserMessage(text="go on", blocks=({"type": "text", "text": "go on"},)))
    assert session.view.sendable
    check_conversation(session.view.wire()[2], CARD)
    session.journal.close()
    again, _ = Session.open(folder / "s")
    assert again.view.wire() == session.view.wire(), "what is live is what is read again"
    again.journal.close()


def kill_rounds(tmp_path: Path, rounds: int, seed: int) -> None:
    """Kill that many sessions, four at a time."""
    chances = [random.Random(seed + number) for number in range(rounds)]
    folders = [tmp_path / str(number) for number in range(rounds)]
    with ThreadPoolExecutor(4) as together:
        for folder, shown in zip(folders, together.map(shown_until_killed, folders, chances), strict=True):
            check_survival(folder, shown)


def test_what_was_shown_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    kill_rounds(tmp_path, 8, seed=1)
