"""`load_skill`: an enum of what is known, open to what came later, never cleared, free of questions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rooms import PartHost
from tools_workspace import ShellWorkspace

from ipyagent.config import IPyAgent
from ipyagent.errors import ToolFailure
from ipyagent.parts.skills import MOST_NAMES, TOOL, SkillAccess, Skills, tool_for
from ipyagent.parts.skills.loaded import Loaded
from ipyagent.project import Project
from ipyagent.tools.catalogue import builtin_tools


def schema(names: list[str]) -> Any:
    return tool_for(names).input_schema["properties"]["name"]


def test_the_schema_names_what_is_known_in_the_same_bytes_and_a_long_list_is_the_catalogues_business() -> None:
    assert schema(["b", "a"])["enum"] == ["a", "b"]
    assert tool_for(["b", "a"]).input_schema == tool_for(["a", "b"]).input_schema
    assert tool_for(["a"]).input_schema["required"] == ["name"]
    assert "enum" in schema([f"s{number}" for number in range(MOST_NAMES)])
    assert "enum" not in schema([f"s{number}" for number in range(MOST_NAMES + 1)])


def test_it_asks_nothing_writes_nothing_and_its_results_stay(tmp_path: Path) -> None:
    tool, workspace = tool_for(["a"]), ShellWorkspace(tmp_path)
    assert tool.validate({"name": "later"}) == {"name": "later"}, "a name that came later is taken"
    for given, why in (({}, "`name`: missing"), ({"name": 3}, "valid string")):
        with pytest.raises(ToolFailure, match=why):
            tool.validate(given)
    assert tool.permission({"name": "a"}, workspace) == "none"
    assert not tool.writes({"name": "a"}, workspace)
    assert not tool.recreatable
    assert TOOL not in builtin_tools(), "without a skill there is no such tool"


def test_its_result_is_the_body(tmp_path: Path) -> None:
    folder = tmp_path / "home" / ".ipyagent" / "skills" / "plots"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: plots\ndescription: draws\n---\nName the axes.\n")
    project = Project(tmp_path / "work", tmp_path / "home" / ".ipyagent")
    workspace = ShellWorkspace(tmp_path)
    tool = tool_for(["plots"])
    with pytest.raises(ToolFailure, match="skills are off"):
        asyncio.run(tool.run({"name": "plots"}, workspace))
    recorded: list[Any] = []
    workspace.skills = SkillAccess(
        Skills(PartHost(project, IPyAgent(environ={}))), Loaded(), recorded.append
    )
    output = asyncio.run(tool.run({"name": "plots"}, workspace))
    assert output.note == "skill plots"
    assert output.blocks[0]["text"].endswith("Name the axes.\n</skill>")
    assert [event.name for event in recorded] == ["plots"]
    with pytest.raises(ToolFailure, match="near: plots"):
        asyncio.run(tool.run({"name": "plot"}, workspace))
