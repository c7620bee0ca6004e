"""Extraction waits until it is worth it and reads what is cheapest; what waits is looked at on its last occasion."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from extract_room import ExtractRoom, creating, directive_in, extract_room, memory_file
from kernels import ROOT
from notes_room import until
from rooms import KEY, MODEL

from ipyagent import Agent, Options, hooks
from ipyagent.assembly.requests import NullSurface
from ipyagent.extension.context_report import report
from ipyagent.journal.events import (
    Compacted,
    ForkEnded,
    LayerFailed,
    MemoryExtracted,
    MemorySaved,
    NotesWritten,
    SystemPromptFrozen,
    ToolReturned,
)
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.protocols import TurnStatus
from ipyagent.model.prices import cost_of
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.commands import run_memory
from ipyagent.parts.memory.extract import UNWATCHED
from ipyagent.parts.memory.extractor import LONGEST_WAIT, SAVING
from ipyagent.practice.model import answer as practice
from ipyagent.practice.replies import Fault, Reply, calls, fault, refusal, text
from ipyagent.practice.server import Exchange

SMALL = "claude-haiku-5-5"
FACT = "The presentation is on 2026-12-10."
"""What is worth a memory and has no cue."""
SUMMARY = text("<analysis>x</analysis><summary>short</summary>")
PLOTS = "/memories/project/plots.md"


@pytest.fixture
def room(tmp_path: Path) -> Iterator[ExtractRoom]:
    with extract_room(tmp_path) as made:
        yield made


def saving(body: dict[str, Any]) -> Reply | Fault:
    """The fact is saved where it is said, the first time; else what the practice model answers."""
    told = str(body["messages"])
    if FACT in told and '"tool_result"' not in told.replace("'", '"'):
        return creating("/memories/project/presentation.md", FACT, "project")
    return practice(body)


def waiting(room: ExtractRoom, **settings: Any) -> Agent:
    """An agent with the settings as they come."""
    room.extraction = saving
    return room.agent(**{"extract_words": 150, "extract_from": "cheapest", "background_percent": 15.0, **settings})


def looked(room: ExtractRoom) -> list[Exchange]:
    return room.asked(extractions=True)


def seen(exchange: Exchange) -> str:
    """All that a small model was shown."""
    [message] = exchange.body["messages"][:1]
    return "\n".join(block["text"] for block in message["content"])


# ---------------------------------------------------------------------- what it reads


def test_a_cue_has_the_small_model_read_a_transcript_with_the_memory_tool_alone(room: ExtractRoom) -> None:
    agent = waiting(room)
    room.turn(agent, "Draw `x`.\nWe always report medians, never means.", text("drawn " * 400))
    [asked] = looked(room)
    assert asked.body["model"] == SMALL
    assert [tool["name"] for tool in asked.body["tools"]] == ["memory"]
    assert "cache_control" not in str(asked.body)
    assert '<user turn="1">\nDraw `x`.\nWe always report medians, never means.\n</user>' in seen(asked)
    assert "transcript above" in directive_in(asked.body)
    assert len(room.memories()) == 1
    [check, fork] = sorted(room.events(agent, ForkEnded), key=lambda fork: fork.purpose)
    assert (check.purpose, check.model, check.requests) == ("check", SMALL, 1)
    assert (fork.purpose, fork.model) == ("extraction", SMALL)
    assert fork.cost == cost_of(SMALL, fork.usage)
    assert fork.cost < 0.1 * (cost_of(MODEL, fork.usage) or 0.0)


def test_without_a_small_model_the_cached_conversation_is_read_while_it_is_cheaper(room: ExtractRoom) -> None:
    agent = waiting(room, model=SMALL, extract_words=0, background_percent=100.0)
    room.turn(agent, "We always report medians. " * 200, text("fine"))
    [asked] = looked(room)
    assert asked.body["model"] == SMALL
    assert "newest 2 messages above" in directive_in(asked.body)
    agent.settings.prompt_cache = False
    room.turn(agent, "and on", text("fine"))
    assert "transcript above" in directive_in(looked(room)[-1].body or {}), "what is not cached is read in short"
    assert looked(room)[-1].body["model"] == SMALL  # type: ignore[index]


def test_a_small_model_that_fails_leaves_it_to_the_main_model_and_is_left_alone(room: ExtractRoom) -> None:
    agent = waiting(room, max_retries=0, background_percent=100.0)

    def no_small(body: dict[str, Any]) -> Reply | Fault:
        return fault(404) if body["model"] == SMALL else text("Nothing to save.")

    room.extraction = no_small
    for number in range(4):
        room.turn(agent, f"We always report medians of group {number}.")
    assert [asked.body["model"] for asked in looked(room) if asked.body] == [SMALL, MODEL] * 3 + [MODEL]
    assert room.events(agent, LayerFailed) == []
    assert len(room.events(agent, MemoryExtracted)) == 4


def test_more_than_is_read_at_once_is_read_in_pieces_and_nothing_is_left_out(room: ExtractRoom) -> None:
    agent = waiting(room, extract_tokens=500)
    for number in range(6):
        room.turn(agent, f"say {number} " + "the thing is so and so " * 25, text("ok"))
    agent.new()
    assert until(lambda: len(looked(room)) >= 3)
    told = "".join(seen(asked) for asked in looked(room))
    assert [told.count(f"say {number} ") for number in range(6)] == [1] * 6


def test_more_messages_than_it_may_draw_on_are_read_in_a_transcript(room: ExtractRoom) -> None:
    agent = room.agent(extract_from="cheapest", small_model=MODEL, extract_messages=2)
    room.turn(agent, "always medians", calls([("python", {"code": "1"})]), text("b"))
    [asked] = looked(room)
    assert "always medians" in seen(asked)
    assert "transcript above" in directive_in(asked.body or {})


# ---------------------------------------------------------------------- when


def test_it_waits_for_enough_words(room: ExtractRoom) -> None:
    agent = waiting(room, extract_words=12)
    room.turn(agent, FACT)
    room.turn(agent, "mean of x")
    assert looked(room) == []
    room.turn(agent, "and now tell me the mean of y too")
    [asked] = looked(room)
    assert FACT in seen(asked)
    assert len(room.memories()) == 1
    assert [event.upto for event in room.events(agent, MemoryExtracted)] == [agent.session.journal.last - 4]  # type: ignore[union-attr]


def test_what_the_agent_saved_itself_is_no_reason_to_look_at_once(room: ExtractRoom) -> None:
    agent = waiting(room)
    room.turn(agent, "from now on plots are blue", creating(PLOTS, "from now on plots are blue"), text("saved"))
    assert looked(room) == []
    refused = [
        {"command": "create", "path": PLOTS, "file_text": "x"},
        {"command": "create", "path": "/memories/project/b.md", "file_text": memory_file("from now on plots are blue")},
        {"command": "str_replace", "path": PLOTS, "old_str": "blue", "new_str": "blue"},
        {"command": "delete", "path": "/memories/project/c.md"},
        {"command": "rename", "old_path": "/memories/project/c.md", "new_path": "/memories/project/d.md"},
        {"command": "create", "path": "/memories/project/e.md", "file_text": "no hook wants this"},
    ]

    @hooks.pre_tool
    def deny(facts: dict[str, Any]) -> dict[str, str] | None:
        return {"deny": "not this"} if "no hook" in str(facts["input"]) else None

    try:
        room.turn(agent, "go on", calls([("memory", each) for each in refused]), text("saved already"))
    finally:
        hooks.remove(deny)
    returned = room.events(agent, ToolReturned)[1:]
    assert [each.is_error for each in returned] == [True] * len(refused)
    assert looked(room) == [], "nothing of it is a memory that could not be saved"
    room.turn(agent, "always in euros")
    assert f"The agent saved in these turns itself: {PLOTS}." in directive_in(looked(room)[0].body or {})


def test_what_waits_is_looked_at_when_the_session_is_left(room: ExtractRoom) -> None:
    agent = waiting(room)
    room.turn(agent, FACT)
    left = agent.session
    agent.new()
    assert until(lambda: any(isinstance(event, MemoryExtracted) for event in read_events(left.journal.path)))
    assert len(room.memories()) == 1


def test_what_waits_is_looked_at_when_the_kernel_ends_which_a_server_that_is_gone_does_not_hold_up(
    room: ExtractRoom,
) -> None:
    agent = waiting(room, extract_end_seconds=5.0, max_retries=4, max_retry_wait=60.0)
    room.turn(agent, FACT)
    session = agent.session
    room.extraction = fault(529)
    agent.part(MemoryPart).extracting.close()
    assert len(looked(room)) == 1, "it is not tried again"
    assert not any(isinstance(event, MemoryExtracted) for event in read_events(session.journal.path))
    before, again = len(looked(room)), waiting(room)
    room.turn(again, FACT)
    assert len(looked(room)) == before
    again.close()
    [last] = looked(room)[before:]
    assert last.body["model"] == SMALL
    assert len(room.memories()) == 1


def test_what_waits_is_looked_at_in_a_pause(room: ExtractRoom) -> None:
    agent = waiting(room, extract_quiet_minutes=0.5 / 60)
    room.turn(agent, FACT)
    assert looked(room) == []
    assert until(lambda: len(looked(room)) == 1)
    assert until(lambda: len(room.memories()) == 1)


def test_what_waits_is_looked_at_before_a_compaction_whose_index_has_it(room: ExtractRoom) -> None:
    agent = waiting(room)
    room.turn(agent, f"{FACT} Tell me of it. " + "more " * 100, text("long " * 2_000))
    room.turn(agent, "go on", text("long " * 2_000))
    room.replies = [SUMMARY]
    agent.compact("")
    [asked] = looked(room)
    assert FACT in seen(asked)
    [name] = room.memories()
    [head] = [event for event in room.events(agent, SystemPromptFrozen) if event.why == "after a compaction"]
    assert name in str(head.system)
    assert head.id > room.events(agent, Compacted)[0].id > room.events(agent, MemorySaved)[0].id


class Phases(NullSurface):
    """Remembers what was shown as going on; `stop` is called once memories are being saved."""

    def __init__(self, stop: Callable[[], object] = lambda: None) -> None:
        self.phases: list[str] = []
        self._stop = stop

    def status(self, status: TurnStatus) -> None:
        if status.phase not in self.phases[-1:]:
            self.phases.append(status.phase)
        if status.phase == SAVING:
            threading.Thread(target=self._stop).start()


def compacting(room: ExtractRoom, agent: Agent, surface: Phases) -> str:
    """How a turn ended in which the model asks for a compaction."""
    room.replies = [calls([("compact", {})]), SUMMARY, text("fine")]
    return agent.prepare("compact", Options(), surface).run_blocking().status


def test_a_turn_says_that_its_compaction_waits_for_memories_and_a_stop_ends_the_wait(room: ExtractRoom) -> None:
    agent, gate = waiting(room), threading.Event()

    def held(body: dict[str, Any]) -> Reply | Fault:
        assert gate.wait(60)
        return saving(body)

    room.turn(agent, f"{FACT} Tell me of it. " + "more " * 100, text("long " * 2_000))
    room.turn(agent, "go on", text("long " * 2_000))
    room.extractions = [held]
    began = time.monotonic()
    assert compacting(room, agent, Phases(agent.stop)) == "stopped"
    assert time.monotonic() - began < LONGEST_WAIT / 2
    assert room.events(agent, Compacted) == room.events(agent, MemoryExtracted) == []
    gate.set()
    room.settle(agent)
    assert len(room.events(agent, MemoryExtracted)) == 1, "what was begun goes on behind it"
    seen = Phases()
    assert compacting(room, agent, seen) == "finished"
    room.settle(agent)
    assert SAVING not in seen.phases, "the stopped turn is looked through later, nothing else waits"
    room.turn(agent, f"{FACT} " + "more " * 100, text("long " * 2_000))
    room.turn(agent, "go on", text("long " * 2_000))
    seen = Phases()
    assert compacting(room, agent, seen) == "finished"
    at = seen.phases.index(SAVING)
    assert seen.phases[at - 1] == seen.phases[at + 1] == "compacting"


def test_background_work_beyond_its_share_of_the_money_waits_for_its_last_occasion(room: ExtractRoom) -> None:
    agent = waiting(room, extract_from="conversation")
    room.turn(agent, "always medians")
    room.turn(agent, "always in euros")
    assert len(looked(room)) == 1, "that one was dear"
    agent.close()
    assert len(looked(room)) == 2


# ---------------------------------------------------------------------- with the notes


def test_one_fork_serves_notes_and_extraction_when_both_are_due_and_may_do_what_one_of_them_may(
    room: ExtractRoom,
) -> None:
    agent = waiting(room, layer_notes=True, notes_start=100)
    (room.folder / "a.txt").write_text("a")
    bad = calls([("write_file", {"path": "a.txt", "content": "b"}), ("python", {"code": "x = 1"})])
    room.extractions = [bad, practice]
    room.turn(agent, "We always report medians. " + "Tell me more. " * 100, text("fine " * 50))
    assert (room.folder / "a.txt").read_text() == "a"
    assert "x" not in agent.shell.user_ns
    results = looked(room)[1].body["messages"][-1]["content"]  # type: ignore[index]
    assert all("may not run in this background work" in str(block) for block in results)
    agent.new()
    for name in room.memories():
        (room.folder / ".ipyagent" / "memory" / name).unlink()
    before = len(looked(room))
    room.turn(agent, "We always report medians, never means. " + "Tell me more. " * 100, text("fine " * 50))
    [asked] = looked(room)[before:]
    assert asked.body["model"] == MODEL
    [fork] = [fork for fork in room.events(agent, ForkEnded) if fork.purpose != "check"]
    assert (fork.purpose, fork.also, fork.requests) == ("notes", "extraction", 1)
    assert fork.cost == cost_of(MODEL, fork.usage)
    [kept] = room.memories().values()
    assert "medians" in kept
    [written] = room.events(agent, NotesWritten)
    assert written.calls > 0
    [done] = room.events(agent, MemoryExtracted)
    assert done.files
    room.turn(agent, "go on")
    assert len(looked(room)) == before + 1


def test_what_a_shared_fork_failed_to_look_at_is_looked_at_before_a_compaction(room: ExtractRoom) -> None:
    settings = {"layer_notes": True, "notes_start": 100, "max_retries": 0, "extract_from": "conversation"}
    agent, gate = waiting(room, background_percent=100.0, **settings), threading.Event()
    room.extractions = [fault(529), fault(400)]
    room.turn(agent, f"Never forget: {FACT} " + "Tell me more. " * 100, text("long " * 4_000))
    [fork, alone] = room.events(agent, ForkEnded)
    assert (fork.purpose, fork.also, alone.purpose) == ("notes", "extraction", "extraction")
    assert room.events(agent, MemoryExtracted) == []
    room.replies = [SUMMARY]
    agent.compact("")
    [done] = room.events(agent, MemoryExtracted)
    assert done.files
    assert done.id < room.events(agent, Compacted)[0].id

    def held(body: dict[str, Any]) -> Reply:
        assert gate.wait(60)
        return refusal("no")

    agent.new()
    room.extractions = [held]
    room.turn(agent, f"Never forget: {FACT} " + "Tell me more. " * 100, text("long " * 4_000), settle=False)
    assert compacting(room, agent, Phases(gate.set)) == "finished"
    room.settle(agent)
    assert room.events(agent, ForkEnded)[1].also == "extraction", "it ended while the compaction waited"
    assert room.events(agent, MemoryExtracted)[0].id < room.events(agent, Compacted)[0].id


# ---------------------------------------------------------------------- after a crash


def crashed(room: ExtractRoom) -> Path:
    """The transcript of a session whose process was killed before its turn was looked through."""
    code = (
        "import os, signal\n"
        "from ipyagent import Agent\n"
        f"agent = Agent()\nagent.run_sync({FACT!r})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environ = {
        **os.environ, "ANTHROPIC_BASE_URL": room.server.url, "ANTHROPIC_API_KEY": KEY, "IPYAGENT_MODEL": MODEL,
        "IPYAGENT_HOME": str(room.home), "PYTHONPATH": str(ROOT), "IPYAGENT_RECALL": "false",
        "IPYTHONDIR": str(room.home / "ipython"), "IPYAGENT_DREAMING": "false",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=room.folder, env=environ, capture_output=True, timeout=60)
    assert done.returncode == -9, done.stderr.decode()
    [path] = room.folder.rglob(TRANSCRIPT)
    assert not any(isinstance(event, MemoryExtracted) for event in read_events(path))
    return path


def test_after_a_crash_the_next_session_or_a_resumed_one_looks_at_what_waited_once(room: ExtractRoom) -> None:
    path = crashed(room)
    left = path.read_bytes()
    agent = waiting(room)
    room.turn(agent, "hello")
    assert room.session(agent).journal.path != path
    [asked] = looked(room)
    assert FACT in seen(asked)
    assert "hello" not in seen(asked)
    assert len(room.memories()) == 1
    old = list(read_events(path))
    [saved] = [event for event in old if isinstance(event, MemorySaved)]
    assert saved.by == "extraction"
    assert any(isinstance(event, MemoryExtracted) for event in old)
    room.turn(waiting(room), "hello")
    assert len(looked(room)) == 1, "once"

    def as_it_was(transcript: bytes) -> None:
        """Nobody has looked, and there is no memory."""
        for each in room.agents:
            each.close()
        path.write_bytes(transcript)
        for name in room.memories():
            (room.folder / ".ipyagent" / "memory" / name).unlink()

    as_it_was(left)
    before = len(looked(room))
    agent = waiting(room)
    agent.resume(path.parent.name)
    room.turn(agent, "mean of x")
    [asked] = looked(room)[before:]
    assert FACT in seen(asked)
    assert len(room.memories()) == 1
    # what was said while it was off is nobody's after a crash either
    as_it_was(b"".join(line for line in left.splitlines(keepends=True) if b'"LayerDecided"' not in line))
    before = len(looked(room))
    room.turn(waiting(room), "hello")
    assert looked(room)[before:] == []


# ---------------------------------------------------------------------- what it cost


def test_context_tells_requests_and_dollars_by_kind_and_the_share_of_background_work(room: ExtractRoom) -> None:
    agent = waiting(room)
    room.turn(agent, "We always report medians.")
    run_memory(agent, "off")
    assert UNWATCHED in report(agent, [])
    run_memory(agent, "on")
    lines = report(agent, []).splitlines()
    assert not any(UNWATCHED in line for line in lines), "it tells what holds now"
    at = lines.index("what they were for:")
    spent = agent.session.history.spent  # type: ignore[union-attr]
    assert [line.split()[:2] for line in lines[at + 1 : at + 3]] == [["conversation", "1"], ["extraction", "1"]]
    assert lines[at + 1].endswith(f"${spent['conversation'].cost:.4f}")
    assert lines[at + 2].endswith(f"${spent['extraction'].cost:.4f}")
    share = spent["extraction"].cost / (spent["extraction"].cost + spent["conversation"].cost)  # type: ignore[operator]
    assert lines[at + 3] == f"work in the background: {100 * share:.1f} % of the money"
