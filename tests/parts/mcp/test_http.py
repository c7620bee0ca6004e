"""A server over streamable HTTP, listed and used; it may go and come back."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_room import McpRoom, said

from ipyagent.parts.mcp import run_mcp

pytestmark = pytest.mark.timeout(60)
SCRIPT = Path(__file__).parent / "http_server.py"


class OverHttp:
    """The server's process on a loopback port."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, str(SCRIPT), str(self.port)], stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError("the server did not come up")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def over_http() -> Iterator[OverHttp]:
    running = OverHttp()
    yield running
    running.end()


def test_a_server_over_http_is_listed_and_used(
    mcp_room: McpRoom, over_http: OverHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO_TOKEN", "heron")
    mcp_room.settings["mcp_timeout"] = 1.0
    mcp_room.put({"web": {"url": over_http.url, "headers": {"X-Who": "${WHO_TOKEN}"}}})
    added, who, large, slow, wrong = mcp_room.ask(
        ("mcp__web__add", {"a": 40, "b": 2}), ("mcp__web__who", {}), ("mcp__web__large", {}), ("mcp__web__slow", {}),
        ("mcp__web__add", {"a": "x", "b": 2}),
    )  # fmt: skip
    assert [said(added), said(who)] == ["42", "heron"]
    assert len(said(large)) < 30_000
    assert "did not answer within 1 s" in said(slow)
    assert wrong.is_error
    assert "heron" not in run_mcp(mcp_room.agent, "doctor")


@pytest.mark.slow
def test_a_server_over_http_that_went_is_taken_up_again(mcp_room: McpRoom, over_http: OverHttp) -> None:
    mcp_room.put({"web": {"url": over_http.url}})
    assert mcp_room.one("mcp__web__end").is_error
    over_http.end()
    assert mcp_room.one("mcp__web__add", a=1, b=2).is_error
    over_http.start()
    assert said(mcp_room.one("mcp__web__add", a=1, b=2)) == "3"


def test_an_address_where_nobody_answers_costs_a_line(mcp_room: McpRoom) -> None:
    mcp_room.put({"web": {"url": "http://127.0.0.1:9/mcp"}})
    mcp_room.ask()
    assert any("web does not run: ConnectError" in line for line in mcp_room.agent.notices)
