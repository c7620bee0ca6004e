"""Whole conversations with the practice model: loading, follow-ups, errors, a restart, what is outside its rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from palmerpenguins import load_penguins
from practice_room import Room, numbers

from ipyagent.practice.model.understanding import answer

PENGUINS = load_penguins()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    """A room with penguins.csv in its folder, loaded as `penguins` by the user."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    PENGUINS.to_csv(tmp_path / "penguins.csv", index=False)
    made = Room(tmp_path)
    made.namespace["penguins"] = PENGUINS.copy()
    return made


def mean(by: list[str], column: str = "body_mass_g") -> list[float]:
    return [round(value, 2) for value in PENGUINS.groupby(by)[column].mean()]


@pytest.mark.parametrize(
    "asked",
    [
        "load penguins.csv",
        "Please read the file 'penguins.csv'",
        "读取 penguins.csv 文件",
        "加载penguins.csv",
        "open @penguins.csv as birds",
    ],
)
def test_a_file_is_loaded_into_a_named_variable(room: Room, asked: str) -> None:
    del room.namespace["penguins"]
    said = room.ask(asked)
    name = "birds" if "birds" in asked else "penguins"
    assert room.namespace[name].shape == (344, 8)
    assert f"`{name}`" in said
    assert {344, 8} <= set(numbers(said))


@pytest.mark.parametrize("asked", ["load the palmer penguins data set", "加载企鹅数据集"])
def test_a_package_data_set_is_loaded(room: Room, asked: str) -> None:
    del room.namespace["penguins"]
    room.ask(asked)
    assert "palmerpenguins" in room.code
    assert room.namespace["penguins"].shape == (344, 8)


def test_other_formats_are_loaded(room: Room) -> None:
    PENGUINS.to_parquet(room.folder / "p.parquet")
    PENGUINS.to_json(room.folder / "p.json", orient="records")
    for name in ("p.parquet", "p.json"):
        assert 344 in numbers(room.ask(f"load {name}"))


def test_follow_ups_build_on_the_request_before_them(room: Room) -> None:
    room.ask("average body mass by species")
    island = room.ask("and by island?")
    assert set(mean(["island"])) <= set(numbers(island))
    males = PENGUINS[PENGUINS["sex"] == "male"]
    said = room.ask("now only for the males")
    assert {round(v, 2) for v in males.groupby("island")["body_mass_g"].mean()} <= set(numbers(said))
    said = room.ask("plot that")
    assert "plt.subplots" in room.code
    assert round(males.groupby("island")["body_mass_g"].mean().max(), 2) in numbers(said)
    said = room.ask("what about bill depth?")
    assert "bill_depth_mm" in room.code


def test_follow_ups_work_in_chinese(room: Room) -> None:
    room.ask("按物种计算平均体重")
    assert set(mean(["island"])) <= set(numbers(room.ask("那按岛屿呢")))
    assert set(mean(["island", "sex"])) <= set(numbers(room.ask("再按性别")))
    said = room.ask("只看雌性")
    females = PENGUINS[PENGUINS["sex"] == "female"]
    assert {round(v, 2) for v in females.groupby("island")["body_mass_g"].mean()} <= set(numbers(said))
    room.ask("画出来")
    assert "plt.subplots" in room.code


def test_small_talk_does_not_break_a_follow_up(room: Room) -> None:
    room.ask("average body mass by species")
    room.ask("thanks!")
    room.ask("list files")
    assert set(mean(["sex"])) <= set(numbers(room.ask("and by sex?")))


def test_the_median_replaces_the_mean(room: Room) -> None:
    room.ask("average body mass by species")
    said = room.ask("and the median?")
    assert set(PENGUINS.groupby("species")["body_mass_g"].median()) <= set(numbers(said))


def test_the_conversation_is_told_from_the_messages(room: Room) -> None:
    room.ask("load penguins.csv")
    room.ask("how many rows?")
    said = room.ask("what did we talk about?")
    assert "load penguins.csv" in said
    assert "how many rows?" in said
    assert "load penguins.csv" in room.ask("What was my first question?")
    assert "how many rows?" in room.ask("我们刚才讨论了什么")
    assert "load penguins.csv" in room.ask("我的第一个问题是什么")


def test_a_lost_variable_is_named_and_rebuilt(room: Room) -> None:
    del room.namespace["penguins"]
    room.ask("load penguins.csv as df")
    room.ask("average body mass by species")
    room.namespace.clear()
    said = room.ask(
        "how many rows does df have?", "<context>\nThe kernel was restarted.\ngone: df (DataFrame 344 x 8)\n</context>"
    )
    assert "gone" in said
    assert "DataFrame 344 x 8" in said
    assert 'pd.read_csv("penguins.csv")' in said
    assert "groupby" not in said
    said = room.ask("yes, rebuild it")
    assert room.namespace["df"].shape == (344, 8)
    assert 344 in numbers(said)
    assert 344 in numbers(room.ask("how many rows does df have?"))


def test_a_variable_of_the_users_own_cell_is_rebuilt_from_it(room: Room) -> None:
    cell = "import pandas as pd\nscores = pd.DataFrame({'x': [1, 2, 5]})"
    told = f"Run by the user since the last request:\n```\n{cell}\n```"
    room.namespace["scores"] = pd.DataFrame({"x": [1, 2, 5]})
    assert 3 in numbers(room.ask("how many rows does scores have?", f"<context>\n{told}\n</context>"))
    room.namespace.clear()
    resumed = (
        "This conversation is resumed in a new kernel. What was said still holds as a record; the variables of the "
        "earlier kernel are gone, results from it may be out of date.\n"
        "gone: scores (DataFrame 3 x 1)\nVariables now: none."
    )
    said = room.ask("average x of scores", f"<context>\n{resumed}\n</context>")
    assert "'x': [1, 2, 5]" in said
    room.ask("重建")
    assert list(room.namespace["scores"]["x"]) == [1, 2, 5]


def test_a_read_only_mode_stops_the_turn(room: Room) -> None:
    room.answers["variables"] = "penguins  DataFrame 344 x 2: species str, body_mass_g f64 (2 missing)"
    room.deny = {"python"}
    room.denial = "python was not run: mode is read_only, nothing may be changed. Leave it with `%agent mode ask`."
    assert "%agent mode ask" in room.ask("how many rows?")
    assert len(room.calls) == 2


def test_a_lost_variable_is_noticed_without_a_reminder(room: Room) -> None:
    del room.namespace["penguins"]
    room.ask("读取 penguins.csv")
    room.namespace.clear()
    said = room.ask("有多少行")
    assert "不在了" in said
    room.ask("重建")
    assert 344 in numbers(room.ask("有多少行"))


def test_a_missing_file_leads_to_files_of_similar_names(room: Room) -> None:
    said = room.ask("load pengins.csv")
    assert "penguins.csv" in said
    assert [name for name, _ in room.calls] == ["python", "glob"]
    assert 344 in numbers(room.ask("yes"))


def test_a_file_elsewhere_is_found_by_its_name(room: Room) -> None:
    (room.folder / "deep").mkdir()
    (room.folder / "penguins.csv").rename(room.folder / "deep" / "birds.csv")
    assert "`deep/birds.csv`" in room.ask("load birds.csv")
    assert room.namespace["birds"].shape == (344, 8)


def test_a_file_in_another_encoding_is_read_a_second_way(room: Room) -> None:
    (room.folder / "umlaut.csv").write_bytes("name,x\nKöln,1\nMünchen,2\n".encode("latin-1"))
    assert 2 in numbers(room.ask("load umlaut.csv"))
    assert list(room.namespace["umlaut"]["name"]) == ["Köln", "München"]


def test_a_missing_package_is_named_with_its_install_line(room: Room) -> None:
    said = room.ask("run: import no_such_package_here")
    assert "%pip install no_such_package_here" in said


def test_an_unknown_column_lists_the_columns(room: Room) -> None:
    said = room.ask("average wingspan by species")
    assert "groupby" not in room.code or "body_mass_g" in said
    said = room.ask("average body mass by favourite colour")
    assert "`species`" in said


def test_without_data_it_says_how_to_load_some(room: Room) -> None:
    room.namespace.clear()
    assert "load" in room.ask("average body mass by species").lower()


def test_a_denial_stops_the_turn(room: Room) -> None:
    room.deny = {"python"}
    said = room.ask("how many rows?")
    assert "not allowed" in said
    assert "IPyAgent.mode" in said
    assert len(room.calls) == 2


def test_looking_around_makes_parallel_calls(room: Room) -> None:
    said = room.ask("look around")
    assert room.rounds == [2]
    assert "penguins.csv" in said
    assert "344" in said
    room.ask("看看这里有什么")
    assert room.rounds == [2]


@pytest.mark.parametrize("asked", ["Write me a poem about the sea", "给我写一首诗", "What is the capital of France?"])
def test_what_is_outside_the_rules_is_said_to_be(room: Room, asked: str) -> None:
    said = room.ask(asked)
    assert not room.calls
    assert "ANTHROPIC_API_KEY" in said
    assert "%agent model" in said
    assert re.search("practice model|练习模型", said)


def test_it_introduces_itself_once(room: Room) -> None:
    assert "practice model" in room.ask("how many rows?")
    assert "practice model" not in room.ask("how many columns are there?")


def test_the_same_body_gets_the_same_reply_and_ids_are_unique(room: Room) -> None:
    room.ask("look around")
    room.ask("profile the data")
    room.ask("profile the data")
    ids = [b["id"] for m in room.messages if m["role"] == "assistant" for b in m["content"] if b["type"] == "tool_use"]
    assert len(ids) == len(set(ids)) > 4
    body = room.body(thinking={"type": "adaptive"})
    body["messages"] = room.messages[:1]
    assert answer(body) == answer(json.loads(json.dumps(body)))


def test_thinking_is_given_when_it_is_asked_for(room: Room) -> None:
    body = room.body(thinking={"type": "adaptive"})
    body["messages"] = [{"role": "user", "content": "how many rows?"}]
    assert answer(body).content[0]["type"] == "thinking"
    assert answer({**body, "thinking": {"type": "disabled"}}).content[0]["type"] != "thinking"


def test_attached_variables_and_reminders_are_not_the_request(room: Room) -> None:
    room.namespace["other"] = pd.DataFrame({"x": [1, 2, 3]})
    said = room.ask(
        "how many rows?", '<variable name="other">DataFrame 3 x 1</variable>', "<context>write a poem</context>"
    )
    assert 3 in numbers(said)
    assert "`other`" in said


def test_a_variable_is_shown_in_depth(room: Room) -> None:
    room.namespace["threshold"] = 41.5
    assert "41.5" in room.ask("what is threshold?")
    assert "`threshold`" in room.ask("find the variable treshold")
