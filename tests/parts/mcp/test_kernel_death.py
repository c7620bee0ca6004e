"""No server outlives its kernel, however the kernel ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from mcp_room import gone, odd
from rooms import Room, room

from ipyagent.practice.replies import text
from ipyagent.practice.replies import tool as calls
from ipyagent.practice.server import PracticeServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]


def running(place: Room, server: PracticeServer) -> list[int]:
    """Start a kernel whose agent has called two servers, one of which has started a process of its own session;
    the ids of all three."""
    user = place.home
    user.mkdir(exist_ok=True)
    servers = {"a": odd("stubborn"), "b": odd()}
    (user / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    place.ok("%load_ext ipyagent")
    server.script(calls("mcp__b__spawn", {}), text("done"))
    place.ok("%%agent\nplease")
    kernel = psutil.Process(pid_of(place))
    found = [process.pid for process in kernel.children(recursive=True) if _of_servers(process)]
    assert len(found) >= 3, [process.cmdline() for process in kernel.children(recursive=True)]
    return found


def pid_of(place: Room) -> int:
    return int(place.ok("import os; print('VALUE', os.getpid())").value)


def _of_servers(process: psutil.Process) -> bool:
    line = " ".join(process.cmdline())
    return "odd_server" in line or "time.sleep(600)" in line or "guard.py" in line


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", ["killed", "shut down"])
def test_no_server_outlives_its_kernel(tmp_path: Path, how: str) -> None:
    with PracticeServer() as server, room(tmp_path, server=server, IPYAGENT_MODE="auto") as place:
        pids = running(place, server)
        if how == "killed":
            os.kill(pid_of(place), signal.SIGKILL)
            time.sleep(0.1)
        place.close()
        assert gone(pids, within=6), [psutil.Process(pid).cmdline() for pid in pids if psutil.pid_exists(pid)]
