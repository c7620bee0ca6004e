"""The practice model takes the skill that is named, and does what its body says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from practice_room import TOOLS, Room

LISTED = (
    "<skills>\nSkills are instructions.\n"
    "- egret-census: Counts nests of egrets per colony from a census sheet. Use it for colony counts.\n"
    "- write-minutes: Writes the minutes of a meeting from notes.\n</skills>"
)
BODY = """# Census

Read the sheet, then count.

```python
import csv
sheet = list(csv.DictReader(open("<file>")))
```

```python
print(sum(int(row["nests"]) for row in sheet), "nests")
```

```text
not code
```

```python
print("<other thing>")
```
"""


def skill(name: str, body: str = BODY, folder: str = "skills/x") -> str:
    head = f"Folder: {folder} (paths below are relative to it)"
    return f'<skill name="{name}" version="0123456789ab">\n{head}\n\n{body}\n</skill>'


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nests.csv").write_text("colony,nests\nnorth,12\nsouth,30\n")
    made = Room(tmp_path, TOOLS)
    made.tools.append({"name": "load_skill", "input_schema": {"type": "object"}})
    made.system = LISTED
    made.answers["load_skill"] = lambda asked: skill(asked["name"])
    return made


def names(room: Room) -> list[str]:
    return [name for name, _ in room.calls]


def test_a_skill_is_loaded_by_its_name_and_followed(room: Room) -> None:
    said = room.ask("use the skill egret-census on nests.csv")
    assert names(room) == ["load_skill", "python", "python"]
    assert room.calls[0][1] == {"name": "egret-census"}
    assert "42 nests" in said
    assert "step 3 (<other thing>)" in said


def test_a_loaded_skill_goes_before_the_request(room: Room) -> None:
    said = room.ask("please do nests.csv", skill("egret-census"))
    assert names(room) == ["python", "python"]
    assert "42 nests" in said


def test_one_that_the_user_names_again_is_followed_from_where_it_stands(room: Room) -> None:
    room.ask("please do nests.csv", skill("egret-census"))
    again = "The user wants you to go by the skill egret-census, which is in the context already."
    assert "42 nests" in room.ask("nests.csv once more", f"<context>\n{again}\n</context>")
    assert names(room) == ["python", "python"]


def test_a_named_skill_is_used_for_work_and_else_only_shown(room: Room) -> None:
    room.ask("use the egret-census skill on nests.csv")
    assert names(room) == ["load_skill", "python", "python"]
    said = room.ask("load the egret-census skill")
    assert names(room) == ["load_skill"]
    assert "# Census" in said


def test_one_that_is_in_the_context_already_is_followed_from_there(room: Room) -> None:
    room.ask("use the skill egret-census on nests.csv")
    room.answers["load_skill"] = lambda asked: "The skill egret-census is in the context already: follow it."
    assert "42 nests" in room.ask("use the skill egret-census on nests.csv")


def test_a_skill_told_of_in_a_reminder_is_known(room: Room) -> None:
    news = (
        "<context>\nSkills on the disk have changed.\nNew, or described otherwise than in your list of skills:\n"
        "- heron-diary: Keeps a diary of heron sightings.\n</context>"
    )
    room.ask("use the skill heron-diary on nests.csv", news)
    assert room.calls[0] == ("load_skill", {"name": "heron-diary"})


def test_df_is_the_table_that_the_request_names(room: Room) -> None:
    room.ask("load nests.csv as `nests`")
    body = "```python\nprint(len(df), 'df', '<this folder>/scripts')\n```\n"
    room.answers["load_skill"] = lambda asked: skill(asked["name"], body)
    assert "2 df skills/x/scripts" in room.ask("use the skill egret-census for nests")


def test_an_error_ends_the_work_and_names_the_step(room: Room) -> None:
    room.answers["load_skill"] = lambda asked: skill(asked["name"], "```python\nprint(1)\n```\n```python\n1 / 0\n```\n")
    said: Any = room.ask("use the skill egret-census on nests.csv")
    assert "Step 2 of `egret-census`" in said
    assert "ZeroDivisionError" in said


def test_a_body_without_code_is_told_in_its_points(room: Room) -> None:
    room.answers["load_skill"] = lambda asked: skill(asked["name"], "# Minutes\n\n1. Who was there\n2. What was said")
    said = room.ask("use the skill write-minutes on my notes")
    assert "> 1. Who was there" in said
    assert names(room) == ["load_skill"]


def test_the_table_of_a_skill_is_the_one_that_the_request_names(room: Room) -> None:
    room.reminds = True
    (room.folder / "boats.csv").write_text("boat,length,flag\n" + "".join(f"b{n},{n},x\n" for n in range(40)))
    room.ask("load nests.csv as `birds`")
    room.ask("load boats.csv as `boats`")
    room.ask("mean length of boats by flag")
    room.ask("mean nests of birds by colony")
    body = "```python\nprint('on', '<table>')\n```\n"
    room.answers["load_skill"] = lambda asked: skill(asked["name"], body)
    assert "Left out" in room.ask("use the skill egret-census for nests by colony")
    assert "on boats" in room.ask("use the skill egret-census on boats")
    assert "on birds" in room.ask("use the skill egret-census on birds please")


def test_a_notebook_is_the_file_of_a_skill(room: Room) -> None:
    room.answers["load_skill"] = lambda asked: skill(asked["name"], "```python\nprint('on <file>')\n```\n")
    assert "on work/census.ipynb" in room.ask("use the skill egret-census on work/census.ipynb")
    assert "on nests.csv" in room.ask("use the skill egret-census on nests.csv")


CAREFUL = (
    "<skills>\nSkills are instructions.\n"
    "- careful-tests: Tests whether a difference is significant, p value. Use for A/B tests.\n"
    "- careful-models: Trains and evaluates a prediction model. Use to predict or classify a target.\n</skills>"
)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("use the skill careful-tests to test nests of north and south", "careful-tests"),
        ("use the skill careful-models to predict nests from colony", "careful-models"),
        ("用技能 careful-tests 检查南北的差异", "careful-tests"),
    ],
)
def test_a_test_or_a_trained_model_goes_by_the_skill_that_is_named(room: Room, asked: str, name: str) -> None:
    room.system, room.reminds = CAREFUL, True
    room.ask("load nests.csv as `birds`")
    body = "```python\nprint('with care on <table>', '<target>')\n```\n"
    room.answers["load_skill"] = lambda asked: skill(asked["name"], body)
    said = room.ask(asked)
    assert room.calls[0] == ("load_skill", {"name": name})
    if name == "careful-models":
        assert "with care on birds nests" in said
    else:
        assert "Left out" in said or "没有做" in said


def test_shared_words_load_no_skill(room: Room) -> None:
    room.system = CAREFUL + LISTED
    room.ask("load nests.csv as `birds`")
    for asked in (
        "Sing a song about winter", "Run the census of egret nests in nests.csv", "fit nests by colony",
        "Write the minutes of the meeting from my notes", "compare nests of north and south", "mean nests by colony",
    ):  # fmt: skip
        room.ask(asked)
        assert "load_skill" not in names(room), asked
