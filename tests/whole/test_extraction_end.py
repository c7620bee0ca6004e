"""How extractions end: with the session, the agent, a script, a kernel. Nothing is left half written."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from extract_room import ExtractRoom, creating, directive_in, extract_room
from kernels import ROOT, Kernel
from notes_room import until
from pace import within
from rooms import KEY, MODEL, Room, room

from ipyagent.errors import JournalError
from ipyagent.journal.events import ForkEnded, MemoryExtracted, MemorySaved
from ipyagent.journal.journal import read_events
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.extractor import LONGEST_END
from ipyagent.practice.replies import Reply, text
from ipyagent.practice.server import PracticeServer

PLOTS = "/memories/project/plots.md"
FACT = "we always plot in blue"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ExtractRoom]:
    with extract_room(tmp_path) as made:
        yield made


def slow(seconds: float) -> Reply:
    """An extraction that takes its time."""
    return replace(creating(PLOTS, FACT), first_delay=seconds)


def part_files(folder: Path) -> list[str]:
    """What a write leaves that was cut off."""
    kept = (".md", ".lock", ".jsonl", ".json", ".gitignore")
    memory = folder / ".ipyagent" / "memory"
    return [path.name for path in memory.rglob("*") if path.is_file() and not path.name.endswith(kept)]


# ---------------------------------------------------------------------- the agent


def test_closing_the_agent_waits_for_what_runs(place: ExtractRoom) -> None:
    agent = place.agent()
    place.extraction = slow(0.6)
    place.turn(agent, FACT, settle=False)
    session = agent.session
    agent.close()
    assert list(place.memories()) == ["plots.md"]
    assert any(isinstance(event, MemoryExtracted) for event in read_events(session.journal.path))


def test_it_waits_a_minute_and_no_longer() -> None:
    assert LONGEST_END == 60.0


@pytest.mark.paced
def test_what_does_not_end_in_time_is_cancelled_cleanly(place: ExtractRoom) -> None:
    agent = place.agent()
    place.extraction = slow(30)
    place.turn(agent, FACT, settle=False)
    session = agent.session
    assert until(lambda: place.server.open_streams == 1)
    began = time.monotonic()
    agent.part(MemoryPart).extracting.close(0.4)
    assert 0.35 < time.monotonic() - began < within(0.9, 60)
    assert until(lambda: place.server.open_streams == 0, 0.5)
    assert place.memories() == {}
    assert part_files(place.folder) == []
    events = list(read_events(session.journal.path))
    assert [event.status for event in events if isinstance(event, ForkEnded)] == ["stopped"]
    assert not any(isinstance(event, MemoryExtracted) for event in events), "the turns come again"
    agent.close()


@pytest.mark.paced
def test_with_nothing_under_way_the_end_takes_no_time(place: ExtractRoom) -> None:
    agent = place.agent()
    place.turn(agent, "hello")
    began = time.monotonic()
    agent.part(MemoryPart).extracting.close(exiting=True)
    assert time.monotonic() - began < within(0.05, 60)


@pytest.mark.paced
def test_an_interrupt_ends_the_waiting(place: ExtractRoom) -> None:
    agent = place.agent()
    place.extraction = slow(30)
    place.turn(agent, FACT, settle=False)
    assert until(lambda: place.server.open_streams == 1)
    began = time.monotonic()
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        agent.part(MemoryPart).extracting.close()
    assert time.monotonic() - began < within(1.5, 60)
    assert until(lambda: place.server.open_streams == 0, 0.5)


# ---------------------------------------------------------------------- the session is left


@pytest.mark.paced
def test_a_new_session_does_not_wait_and_what_runs_is_still_saved(place: ExtractRoom) -> None:
    agent = place.agent()
    place.extractions = [slow(0.8)]
    place.turn(agent, FACT, settle=False)
    left = agent.session
    began = time.monotonic()
    agent.new()
    assert time.monotonic() - began < within(0.3, 60)
    assert place.turn(agent, "hello", text("hi"), settle=False).text == "hi"
    assert until(lambda: "plots.md" in place.memories(), 3)

    def is_closed() -> bool:
        try:
            left.record(MemorySaved(path=PLOTS, change="created", by="user"))
        except JournalError:
            return True
        return False

    assert until(lambda: any(isinstance(e, MemoryExtracted) for e in read_events(left.journal.path)))
    assert until(is_closed), "nobody holds the session any more"


@pytest.mark.paced
def test_taking_up_the_very_session_again_ends_what_runs_there(place: ExtractRoom) -> None:
    agent = place.agent()
    place.extractions = [slow(20)]
    place.turn(agent, FACT, settle=False)
    left = agent.session
    assert until(lambda: place.server.open_streams == 1)
    agent.new()
    began = time.monotonic()
    again = agent.resume(left.journal.session)
    assert time.monotonic() - began < within(1.0, 60)
    assert again.journal.session == left.journal.session, "no copy of it"
    place.turn(agent, "go on")
    assert "newest 4 messages" in directive_in(place.asked(extractions=True)[-1].body or {})


# ---------------------------------------------------------------------- a script

SCRIPT = """
import sys, time
from pathlib import Path
from ipyagent import Agent, IPyAgent
agent = Agent(settings=IPyAgent(layer_notes=False, recall=False, dreaming=False, mode="auto"), folder=Path(sys.argv[1]))
print(agent.run_sync("we always plot in blue").status, flush=True)
print("end", flush=True)
"""


def script(place: ExtractRoom, **environ: str) -> subprocess.Popen[str]:
    given = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ANTHROPIC_BASE_URL": place.server.url,
        "ANTHROPIC_API_KEY": KEY,
        "IPYAGENT_MODEL": MODEL,
        "IPYAGENT_HOME": str(place.home),
        **environ,
    }
    command = [sys.executable, "-c", SCRIPT, str(place.folder)]
    return subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_script_that_ends_without_closing_saves_first(place: ExtractRoom) -> None:
    """Also what needs threads, as reading files does, while the interpreter goes down."""
    from ipyagent.practice.replies import calls

    (place.folder / "a.txt").write_text("x\n")
    place.extractions = [replace(calls([("read_file", {"path": "a.txt"})]), first_delay=0.8), slow(0.3)]
    running = script(place)
    out, err = running.communicate(timeout=30)
    assert out.split() == ["finished", "end"]
    assert err == ""
    assert running.returncode == 0
    assert list(place.memories()) == ["plots.md"]
    second = str(place.asked(extractions=True)[1].body)
    assert "cannot schedule" not in second
    assert "may not run" not in second


@pytest.mark.paced
def test_an_interrupt_at_the_end_of_a_script_ends_it_at_once(place: ExtractRoom) -> None:
    place.extraction = slow(25)
    running = script(place)
    assert running.stdout.readline().strip() == "finished"
    assert running.stdout.readline().strip() == "end"
    assert until(lambda: place.server.open_streams == 1)
    time.sleep(0.3)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert time.monotonic() - began < within(5, 60)  # the process itself takes a second or two to end
    assert "Traceback" not in err
    assert place.memories() == {}
    assert part_files(place.folder) == []


# ---------------------------------------------------------------------- a kernel


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running


@pytest.fixture
def lab(tmp_path: Path, server: PracticeServer) -> Iterator[Room]:
    settings = {"IPYAGENT_EXTRACTION": "true", "IPYAGENT_RECALL": "false", "IPYAGENT_DREAMING": "false"}
    with room(tmp_path, server=server, **settings) as made:
        yield made


def ask(lab: Room, extraction: Reply) -> Kernel:
    """A turn in a real kernel whose extraction is under way when this returns."""
    lab.ok("%load_ext ipyagent")
    lab.server.script(text("fine"), extraction)
    lab.ok(f"%%agent\n{FACT}")
    assert until(lambda: any(directive_in(one.body or {}) for one in lab.server.messages))
    return lab.kernel


def end_of(kernel: Kernel, **how: Any) -> float:
    """Shut a kernel down as a front-end does; seconds that took."""
    kernel.client.stop_channels()
    began = time.monotonic()
    kernel.manager.shutdown_kernel(**how)
    return time.monotonic() - began


def test_a_kernel_that_is_shut_down_saves_first(lab: Room) -> None:
    end_of(ask(lab, slow(0.6)))
    assert (lab.folder / ".ipyagent" / "memory" / "plots.md").exists()
    assert any(isinstance(event, MemoryExtracted) for event in lab.events())


@pytest.mark.paced
def test_shutdown_and_restart_do_not_hang_on_one_that_hangs(lab: Room) -> None:
    """Jupyter gives a kernel 2.5 s after asking, then ends it."""
    seconds = end_of(ask(lab, slow(60)), restart=True)
    assert seconds < within(8.0, 60)
    assert part_files(lab.folder) == []
    events = lab.events()  # every line is whole
    assert not any(isinstance(event, MemoryExtracted) for event in events)


def test_a_killed_kernel_leaves_whole_files_and_the_turns_come_again(lab: Room) -> None:
    kernel = ask(lab, slow(5))
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)
    assert part_files(lab.folder) == []
    assert not any(isinstance(event, MemoryExtracted) for event in lab.events())


def test_the_cell_that_asked_is_told_of_what_was_saved_once_it_is_over(lab: Room) -> None:
    lab.ok("%load_ext ipyagent", headless=False)
    lab.server.script(text("fine"), slow(0.8))
    cell = lab.ok(f"%%agent\n{FACT}", headless=False)
    assert "saved:" not in str(cell.data)
    client, found = lab.kernel.client, []
    end = time.monotonic() + 10
    while not found and time.monotonic() < end:
        try:
            got = client.get_iopub_msg(timeout=0.2)
        except queue.Empty:
            continue
        if got["msg_type"] == "update_display_data" and "saved: plots.md" in str(got["content"]["data"]):
            found.append(got)
    [update] = found
    shown = update["content"]["data"]
    assert "%memory forget plots.md" in shown["text/plain"]
    assert "fine" in shown["text/plain"], "the answer stands there still"
    assert lab.ok("print('quiet')").streams == "quiet\n"
