"""Tools that are not listed are found by words, and called by name."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from typing import Any

import pytest
from tools_workspace import ShellWorkspace

from ipyagent import tool
from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Tool
from ipyagent.tools.catalogue import NAMES_CHARS, ToolCall, ToolSearch, _own, builtin_tools, search


def made(name: str, about: str) -> Tool:
    def work(text: str = "") -> str:
        return f"{name}: {text}"

    work.__doc__ = about
    return tool(name=name)(work)


TOOLS: dict[str, Tool] = {
    each.name: each
    for each in (
        made("mcp__fs__read_file", "Read a file's text."),
        made("mcp__fs__write_file", "Write text to a file."),
        made("mcp__git__commitLog", "Show the newest commits of a repository."),
        made("mcp__cal__create_event", "Put an appointment into the calendar, with a file attached if wanted."),
    )
}


def test_the_best_tool_comes_first_and_what_fits_nothing_finds_nothing() -> None:
    for query, first in {
        "read file": "mcp__fs__read_file",
        "writing text": "mcp__fs__write_file",
        "commit log": "mcp__git__commitLog",
        "calendar appointment": "mcp__cal__create_event",
        "Event": "mcp__cal__create_event",
        "mcp__git__commitLog": "mcp__git__commitLog",
        "select:mcp__cal__create_event,mcp__fs__read_file": "mcp__cal__create_event",
    }.items():
        assert search(query, TOOLS)[0].name == first, query
    assert search("zebra", TOOLS) == search("the of", TOOLS) == []


def test_a_search_gives_schemas_within_the_cap(workspace: ShellWorkspace) -> None:
    workspace.limits["tool_output_chars"] = 2_000
    found = ToolSearch(lambda: TOOLS, TOOLS)
    output = asyncio.run(found.run(found.validate({"query": "file", "limit": 2}), workspace))
    text = str(output.blocks[0]["text"])
    assert output.note == "2 tools"
    assert found.validate({"query": "file", "limit": None}) == found.validate({"query": "file"})
    assert text.count('"properties"') == 2
    assert len(text) < 3_000
    with pytest.raises(ToolFailure, match="mcp__git__commitLog"):
        asyncio.run(found.run(found.validate({"query": "zebra"}), workspace))
    wrong: list[dict[str, Any]] = [{}, {"query": ""}, {"query": 5}, {"query": "x", "limit": "many"}]
    for given in wrong:
        with pytest.raises(ToolFailure, match="tool_search"):
            found.validate(given)


def test_an_answer_is_what_fits_and_short(workspace: ShellWorkspace) -> None:
    ours = {name: tool for name, tool in builtin_tools().items() if getattr(tool, "deferred", "")}
    agent = made("agent", "Have a sub-agent do a task of its own.")
    assert [each.name for each in search("agent", {**ours, "agent": agent})] == ["agent"], "a name alone is that tool"
    assert [each.name for each in search("show the commits", TOOLS)] == ["mcp__git__commitLog"]
    told = f"Makes a report. {'So it is. ' * 200}"
    long = {f"report_{number}": made(f"report_{number}", told) for number in range(5)}
    found = ToolSearch(lambda: long, long)
    text = str(asyncio.run(found.run(found.validate({"query": "make reports"}), workspace)).blocks[0]["text"])
    assert len(text) < 5_000
    assert text.count("arguments: ") == 1
    assert "by its name for its arguments:\n- report_1: Makes a report\n- report_2: Makes" in text


def test_the_description_lists_names_within_bounds() -> None:
    names = [f"mcp__server__a_rather_long_tool_name_{number}" for number in range(500)]
    text = ToolSearch(dict, dict.fromkeys(names, TOOLS["mcp__fs__read_file"])).description
    assert "a_rather_long_tool_name_7" in text
    assert len(text) < NAMES_CHARS + 500
    assert "more" in text


def test_a_call_is_that_tools_own_and_means_the_tool_of_its_name_whatever_else_is_wrong_with_it() -> None:
    call = ToolCall(lambda: TOOLS)
    named, given = call.called({"name": "mcp__fs__read_file", "arguments": '{"text": "x"}'})
    assert (named.name, given) == ("mcp__fs__read_file", {"text": "x"})
    assert call.called({"name": "mcp__fs__read_file", "arguments": None})[1] == {}
    workspace: Any = None
    assert call.pattern({"name": "mcp__fs__read_file", "arguments": {}}, workspace) == "mcp__fs__read_file"
    for wrong in ({"name": "mcp__fs__raed_file", "arguments": {}}, {"name": "mcp__fs__read_file", "arguments": [1]},
                  {"name": "mcp__fs__read_file", "arguments": {"txt": 1}}, {"arguments": {}}):  # fmt: skip
        with pytest.raises(ToolFailure):
            call.validate(wrong)
    call = ToolCall(lambda: TOOLS)
    assert call.meant({"name": "mcp__fs__read_file", "arguments": [1]}) is TOOLS["mcp__fs__read_file"]
    wrong: list[object] = [{}, {"name": ["x"]}, {"name": "mcp__fs__raed_file"}, {"invalid_json": "{"}, "x", None]
    assert [each for each in wrong if call.meant(each) is not None] == []

    def broken() -> dict[str, Any]:
        raise OSError("a part of another package")

    assert ToolCall(broken).meant({"name": "mcp__fs__read_file", "arguments": {}}) is None


def test_tools_are_found_while_other_threads_import() -> None:
    """Agents of a process begin at once, and what one imports becomes a name of the package that another looks through:
    tasks of `agent_map` failed for it."""
    import ipyagent.parts.memory as package

    over, names = threading.Event(), vars(package)

    def imports() -> None:
        for number in itertools.cycle(range(1_000)):
            names[f"made_{number}"] = number
            if number == 999:
                for each in range(1_000):
                    del names[f"made_{each}"]
                if over.is_set():
                    return

    thread, before = threading.Thread(target=imports), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(40):
            assert _own.__wrapped__().keys() == _own().keys()
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)
