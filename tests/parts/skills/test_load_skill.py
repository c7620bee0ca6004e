"""`load_skill`: an enum of what is known, open to what came later, never cleared, free of questions; and `/name` at the
start of a request, which loads a skill too, while everything else is text."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from skill_room import Shelved, make
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import SkillLoaded
from ipyagent.parts import TakenIn
from ipyagent.parts.skills import MOST_NAMES, TOOL, read_slash, tool_for
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
    room, workspace, tool = Shelved(tmp_path), ShellWorkspace(tmp_path), tool_for(["plots"])
    make(room.folder / "plots", body="Name the axes.")
    with pytest.raises(ToolFailure, match="skills are off"):
        asyncio.run(tool.run({"name": "plots"}, workspace))
    workspace.skills = room.access
    output = asyncio.run(tool.run({"name": "plots"}, workspace))
    assert output.note == "skill plots"
    assert output.blocks[0]["text"].endswith("Name the axes.\n</skill>")
    assert [event.name for event in room.events if isinstance(event, SkillLoaded)] == ["plots"]
    with pytest.raises(ToolFailure, match="near: plots"):
        asyncio.run(tool.run({"name": "plot"}, workspace))


# ---------------------------------------------------------------------- a slash


@pytest.fixture
def room(tmp_path: Path) -> Shelved:
    made = Shelved(tmp_path)
    for name in ("clean-tables", "plots"):
        make(made.folder / name)
    make(made.folder / "odd", name="Odd Name")
    made.skills.look()
    return made


@pytest.mark.parametrize(
    ("text", "skills", "asked"),
    [
        ("/plots draw df", ("plots",), "draw df"),
        ("\n  /plots\n\ndraw df", ("plots",), "draw df"),
        ("/plots /clean-tables go", ("plots", "clean-tables"), "go"),
        ("/plots /plots go", ("plots",), "go"),
        ("/Clean_Tables x", ("clean-tables",), "x"),
        ("/odd-name x", ("Odd Name",), "x"),
        ("/plots", ("plots",), "Go by the skill plots now."),
        ("/plots /etc/passwd", ("plots",), "/etc/passwd"),
        ("draw /plots", (), ""),
        ("/home/user/plots is a file", (), ""),
        ("/plots.csv", (), ""),
        ("//plots", (), ""),
        ("/", (), ""),
        ("", (), ""),
    ],
)
def test_only_names_at_the_start_count(room: Shelved, text: str, skills: tuple[str, ...], asked: str) -> None:
    assert read_slash(text, room.skills) == TakenIn(skills, asked, ())


def test_an_unknown_name_is_text_and_said_to_be(room: Shelved) -> None:
    found = read_slash("/clean-table x", room.skills)
    assert (found.value, found.request) == ((), "")
    (notice,) = found.notices
    assert "no skill 'clean-table'; did you mean /clean-tables?" in notice


def test_off_is_off(tmp_path: Path) -> None:
    room = Shelved(tmp_path, skills=False)
    make(room.folder / "plots")
    room.skills.look()
    assert read_slash("/plots x", room.skills) == TakenIn((), "", ())


def test_what_was_asked_for_beforehand_goes_once(room: Shelved) -> None:
    room.skills.asked.append("plots")
    assert read_slash("draw", room.skills).value == ("plots",)
    assert read_slash("draw", room.skills).value == ()
