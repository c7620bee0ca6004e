"""`session_end` hooks when the kernel or a script ends, for a bounded time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import ROOT
from rooms import Room, room

from ipyagent.practice.server import PracticeServer

HOOK = """
import ipyagent

@ipyagent.hooks.session_end
async def note(facts):
    with open("ended.txt", "a") as file:
        print(facts["session"], file=file)
"""


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running


@pytest.fixture
def lab(tmp_path: Path, server: PracticeServer) -> Iterator[Room]:
    with room(tmp_path, server=server, IPYAGENT_RECALL="false", IPYAGENT_DREAMING="false") as made:
        yield made


def end(lab: Room) -> float:
    kernel = lab.kernel
    kernel.client.stop_channels()
    began = time.monotonic()
    kernel.manager.shutdown_kernel()
    return time.monotonic() - began


def test_a_session_that_is_left_and_a_kernel_that_is_shut_down_tell_functions_and_commands_once(lab: Room) -> None:
    lab.home.mkdir(exist_ok=True)
    log = lab.folder / "log.txt"
    (lab.home / "hooks.json").write_text(json.dumps({"session_end": [f"cat >> {log}; echo >> {log}"]}))
    (lab.home / "hooks.json").chmod(0o600)
    lab.ok("%load_ext ipyagent")
    lab.ok(HOOK)
    lab.asks("hello")
    left = lab.transcripts()[-1].parent.name
    lab.ok("%agent new")
    assert (lab.folder / "ended.txt").read_text().split() == [left]
    lab.asks("hello")
    name = lab.transcripts()[-1].parent.name
    lab.ok("%agent new")
    end(lab)  # without a session since
    assert (lab.folder / "ended.txt").read_text().split() == [left, name], "those that were left are not ended again"
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert told == [{"session": left}, {"session": name}]


def test_a_hook_that_hangs_does_not_keep_the_kernel(lab: Room) -> None:
    lab.ok("%load_ext ipyagent")
    lab.ok("import ipyagent, time\nipyagent.hooks.session_end(lambda facts: time.sleep(60))")
    lab.ok(HOOK)
    lab.asks("hello")
    assert end(lab) < 6
    assert (lab.folder / "ended.txt").exists()


def test_a_script_that_ends_tells_them_too(tmp_path: Path, server: PracticeServer) -> None:
    code = HOOK + (
        "from ipyagent import Agent, IPyAgent\n"
        f"agent = Agent(settings=IPyAgent(base_url={server.url!r}, model='practice', extraction=False))\n"
        "print(agent.run_sync('hello').status, agent.session.journal.session)\n"
    )
    environ = {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "IPYAGENT_HOME": str(tmp_path / "home"),
        "ANTHROPIC_API_KEY": "none", "HOME": str(tmp_path),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["finished", *(tmp_path / "ended.txt").read_text().split()]
