"""`mcp.json`: read leniently, written without losing anything, variables filled in late."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ipyagent.errors import SettingError
from ipyagent.parts.mcp.entries import FILE_BYTES, entry_of, expanded, put_entry, read_entries


def read(tmp_path: Path, content: str | bytes) -> Any:
    path = tmp_path / "mcp.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_entries(path, "project", tmp_path)


def test_one_bad_entry_hides_no_other(tmp_path: Path) -> None:
    servers = {
        "good": {"command": "x", "args": ["a", 1], "env": {"N": 5}, "autoApprove": ["all"]},
        "both": {"command": "x", "url": "http://127.0.0.1"},
        "none": {},
        "list": [],
        "sse": {"type": "sse", "url": "http://127.0.0.1"},
        "file": {"url": "file:///etc/passwd"},
        "args": {"command": "x", "args": "a b"},
        "env": {"command": "x", "env": ["A=1"]},
        "late": {"command": "x", "timeout": "soon"},
        "long": {"url": "https://127.0.0.1/mcp", "timeout": 60000},
    }
    entries = read(tmp_path, json.dumps({"mcpServers": servers}))
    assert [entry.name for entry in entries.found] == ["good", "long"]
    assert (entries.found[0].args, entries.found[0].env) == (("a", "1"), {"N": "5"})
    assert len(entries.problems) == 10
    assert any("'autoApprove' is not known" in line for line in entries.problems)
    assert any("60000 is in seconds" in line for line in entries.problems)
    with pytest.raises(SettingError, match="must be one of read, project, open, not 'readonly'"):
        entry_of("a", {"command": "x", "sandbox": "readonly"}, "user", tmp_path)
    confined, _ = entry_of("a", {"command": "x", "sandbox": "read"}, "user", tmp_path)
    assert 'at the sandbox level "read"' in confined.shown()
    assert len(read(tmp_path, b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x"}}}').found) == 1
    huge = ("[" * 100_000, "1" * (FILE_BYTES + 1))
    for content in ("", "[]", "{", "{}", '{"mcpServers": []}', b"\xff\xfe\x00", *huge):
        entries = read(tmp_path, content)
        assert (entries.found, len(entries.problems)) == ((), 1), "a hopeless file is one problem"


def test_no_file_is_no_problem_and_a_projects_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    assert read_entries(tmp_path / "mcp.json", "user", tmp_path).problems == ()
    (tmp_path / "elsewhere.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    (tmp_path / "mcp.json").symlink_to(tmp_path / "elsewhere.json")
    entries = read_entries(tmp_path / "mcp.json", "project", tmp_path)
    assert (entries.found, len(entries.problems)) == ((), 1)
    assert len(read_entries(tmp_path / "mcp.json", "user", tmp_path).found) == 1
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        assert len(read_entries(path, "user", tmp_path).problems) == 1


def test_variables_are_filled_in_late_and_a_missing_one_is_named(tmp_path: Path) -> None:
    raw = {"url": "https://${HOST:-127.0.0.1}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    entry, _ = entry_of("a", raw, "user", tmp_path)
    assert entry.line == "https://${HOST:-127.0.0.1}/mcp"
    with pytest.raises(SettingError, match="TOKEN is not set"):
        expanded(entry, {})
    made = expanded(entry, {"TOKEN": "${HOST}"})
    assert (made.url, made.headers) == ("https://127.0.0.1/mcp", {"Authorization": "Bearer ${HOST}"})
    assert made.digest == entry.digest


def test_the_digest_is_of_name_and_text_and_not_of_their_order(tmp_path: Path) -> None:
    def digest(name: str, raw: dict[str, Any]) -> str:
        return entry_of(name, raw, "project", tmp_path)[0].digest

    one = digest("a", {"command": "x", "args": ["1"]})
    assert one == digest("a", {"args": ["1"], "command": "x"})
    assert len({one, digest("b", {"command": "x", "args": ["1"]}), digest("a", {"command": "x", "args": ["2"]}),
                digest("a", {"command": "x", "args": ["1"], "env": {"A": "1"}})}) == 4  # fmt: skip


def test_writing_one_server_keeps_all_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "mcp.json"
    assert put_entry(path, "a", {"command": "x"}) is False
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "other": {"keep": "ü"}}))
    assert put_entry(path, "b", {"url": "https://127.0.0.1"}) is False
    assert put_entry(path, "a", None) is True
    assert json.loads(path.read_text()) == {"mcpServers": {"b": {"url": "https://127.0.0.1"}}, "other": {"keep": "ü"}}
    assert [entry.name for entry in path.parent.iterdir()] == ["mcp.json"]
