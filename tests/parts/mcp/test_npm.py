"""The public npm servers over stdio: listed and used. They are installed once for the tests, from the registry that
npm is set up for; without npm or registry these tests are left out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp_room import McpRoom, gone, said

from ipyagent.parts.mcp import McpManager, run_mcp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PACKAGES = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not here")
    place = tmp_path_factory.mktemp("npm")
    done = subprocess.run(
        [npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", *PACKAGES],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"npm cannot install the servers here: {done.stderr.strip()[-300:]}")
    return place / "node_modules" / ".bin"


def entry(binaries: Path, name: str, *args: str) -> dict[str, Any]:
    return {"command": str(binaries / name), "args": list(args)}


def test_the_everything_server_is_listed_and_used(mcp_room: McpRoom, binaries: Path) -> None:
    mcp_room.settings |= {"mcp_timeout": 20.0, "mcp_startup_timeout": 60.0, "mcp_wait": 60.0}
    mcp_room.put({"everything": entry(binaries, "mcp-server-everything", "stdio")})
    echo, added, picture, long, structured, links = mcp_room.ask(
        ("mcp__everything__echo", {"message": "heron"}),
        ("mcp__everything__get-sum", {"a": 40, "b": 2}),
        ("mcp__everything__get-tiny-image", {}),
        ("mcp__everything__trigger-long-running-operation", {"duration": 2, "steps": 4}),
        ("mcp__everything__get-structured-content", {"location": "New York"}),
        ("mcp__everything__get-resource-links", {}),
    )
    assert "heron" in said(echo)
    assert "42" in said(added)
    assert [block["type"] for block in picture.blocks] == ["text", "image"], said(picture)
    assert "completed" in said(long)
    assert "temperature" in said(structured)
    assert "resource" in said(links)
    assert not any(result.is_error for result in (echo, added, picture, long, structured, links))
    outside = [name for name in mcp_room.listed() if name.startswith("mcp__everything__")]
    assert len(outside) >= 10
    assert outside == sorted(outside)
    assert "mcp-servers/everything" in run_mcp(mcp_room.agent, "doctor")
    processes = [server._task for server in mcp_room.agent.part(McpManager).started.values()]
    mcp_room.close()
    assert all(task is not None and task.done() for task in processes)


def test_the_filesystem_server_reads_and_writes_where_it_may(mcp_room: McpRoom, binaries: Path) -> None:
    (mcp_room.root / "data").mkdir()
    (mcp_room.root / "data" / "a.txt").write_text("hello heron")
    mcp_room.settings |= {"mcp_timeout": 20.0, "mcp_startup_timeout": 60.0, "mcp_wait": 60.0}
    mcp_room.put({"fs": entry(binaries, "mcp-server-filesystem", "data")})
    read, written, outside = mcp_room.ask(
        ("mcp__fs__read_text_file", {"path": f"{mcp_room.root}/data/a.txt"}),
        ("mcp__fs__create_directory", {"path": f"{mcp_room.root}/data/new"}),
        ("mcp__fs__read_text_file", {"path": str(mcp_room.home / "trust.json")}),
    )
    assert said(read) == "hello heron"
    assert not written.is_error, said(written)
    assert (mcp_room.root / "data" / "new").is_dir()
    assert outside.is_error


def test_both_together_are_found_by_a_search(mcp_room: McpRoom, binaries: Path) -> None:
    mcp_room.settings |= {"mcp_timeout": 20.0, "mcp_startup_timeout": 60.0, "mcp_wait": 60.0}
    mcp_room.put({
        "everything": entry(binaries, "mcp-server-everything", "stdio"),
        "fs": entry(binaries, "mcp-server-filesystem", "."),
    })  # fmt: skip
    found, called = mcp_room.ask(
        ("tool_search", {"query": "list a directory"}),
        ("call_tool", {"name": "mcp__fs__list_directory", "arguments": {"path": "."}}),
    )
    assert "mcp__fs__list_directory" in said(found)
    assert ".ipyagent" in said(called)
    assert not any(name.startswith("mcp__") for name in mcp_room.listed())
    assert gone([])
