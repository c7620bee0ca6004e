"""`/name` at the start of a request loads a skill; everything else is text."""

from __future__ import annotations

from pathlib import Path

import pytest
from skill_room import Shelved, make

from ipyagent.parts import TakenIn
from ipyagent.parts.skills import read_slash


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
