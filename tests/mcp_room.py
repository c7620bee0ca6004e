"""A project with MCP servers and an agent in it, whose model is scripted; servers are real processes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from rooms import KEY, MODEL

from ipyagent import Agent, IPyAgent
from ipyagent.journal.events import Event, SystemPromptFrozen, ToolReturned
from ipyagent.parts.mcp import McpManager
from ipyagent.practice.replies import text
from ipyagent.practice.replies import tool as calls
from ipyagent.practice.server import PracticeServer

ODD = str(Path(__file__).parent / "parts" / "mcp" / "odd_server.py")


def odd(*mode: str, **more: Any) -> dict[str, Any]:
    """The entry of the odd server in a mode."""
    return {"command": sys.executable, "args": ["-S", ODD, *mode], **more}


class McpRoom:
    """`agent` is made on first use; `put` writes the project's mcp.json, `own` the user's."""

    def __init__(self, place: Path, server: PracticeServer) -> None:
        self.root, self.home, self.server = place / "project", place / "home", server
        self.root.mkdir()
        self.settings: dict[str, Any] = {}
        self.pids: set[int] = set()
        self._agent: Agent | None = None

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            given = {"base_url": self.server.url, "model": MODEL, "mode": "auto", "max_retry_wait": 0.01}
            given |= {"extraction": False, "mcp_timeout": 2.0, "mcp_startup_timeout": 10.0, **self.settings}
            self._agent = Agent(settings=IPyAgent(environ={}, **given), folder=self.root)
        return self._agent

    def put(self, servers: dict[str, Any], *, trusted: bool = True) -> None:
        folder = self.root / ".ipyagent"
        folder.mkdir(exist_ok=True)
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        if trusted:
            self.agent.trust()
            self.agent.part(McpManager).approve()
            self.agent.notices.clear()

    def own(self, servers: dict[str, Any]) -> None:
        self.home.mkdir(exist_ok=True)
        (self.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))

    def ask(self, *replies: tuple[str, dict[str, Any]]) -> list[ToolReturned]:
        """A turn in which the model makes these calls one after another; their results."""
        self.server.script(*(calls(name, given) for name, given in replies), text("done"))
        before = self.agent.session.journal.last if self.agent.session is not None else 0
        result = self.agent.run_sync("please")
        assert result.text == "done", result
        self.pids |= set(self.processes())
        return [event for event in self.events() if isinstance(event, ToolReturned) and event.id > before]

    def one(self, tool: str, /, **given: Any) -> ToolReturned:
        """The result of one call."""
        return self.ask((tool, given))[-1]

    def events(self) -> list[Event]:
        session = self.agent.session
        return [] if session is None else list(session.journal.read())

    def heads(self) -> list[SystemPromptFrozen]:
        return [event for event in self.events() if isinstance(event, SystemPromptFrozen)]

    def listed(self) -> list[str]:
        """Names of the tools in the newest request."""
        body = self.server.messages[-1].body
        return [tool["name"] for tool in body["tools"]]

    def processes(self) -> list[int]:
        """The odd servers of this test that live, and what they started."""
        mine = psutil.Process().children(recursive=True)
        return [process.pid for process in mine if _is_odd(process)]

    def close(self) -> None:
        if self._agent is not None:
            self.pids |= set(self.processes())
            self._agent.close()
            self._agent = None


def _is_odd(process: psutil.Process) -> bool:
    try:
        return any("odd_server" in part or "time.sleep(600)" in part for part in process.cmdline())
    except psutil.Error:
        return False


def said(result: ToolReturned) -> str:
    return "\n".join(block["text"] for block in result.blocks if block["type"] == "text")


def gone(pids: Sequence[int], within: float = 5.0) -> bool:
    """Whether all of the processes have ended, waiting a little."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if not any(_lives(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running
    assert [exchange.error for exchange in running.refused] == []


@pytest.fixture
def mcp_room(tmp_path: Path, server: PracticeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[McpRoom]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    room = McpRoom(tmp_path, server)
    yield room
    room.close()
    assert gone(sorted(room.pids)), [psutil.Process(pid) for pid in room.pids if _lives(pid)]


