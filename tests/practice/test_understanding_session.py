"""Requests about the session: memory, skills, plans, sub-agents, compaction, summaries, JSON; and real tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from practice_room import TOOLS, Room, numbers

from ipyagent.practice.model.understanding import answer

TABLES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "tables"


def _room(folder: Path, *extra: dict[str, Any]) -> Room:
    room = Room(folder, TOOLS)
    room.tools += list(extra)
    return room


class Memories:
    """A memory directory that answers like the tool."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def __call__(self, input: dict[str, Any]) -> str:
        command, path = input["command"], input["path"]
        if command == "create":
            self.files[path] = input["file_text"]
            return f"created {path}"
        if command == "delete":
            del self.files[path]
            return f"deleted {path}"
        return self.files[path] if path in self.files else "\n".join(self.files)


def test_facts_are_remembered_recalled_and_forgotten(tmp_path: Path) -> None:
    room = _room(tmp_path, {"name": "memory", "input_schema": {"type": "object"}})
    memories = room.answers["memory"] = Memories()
    room.ask("Remember that I always want plots in grayscale")
    room.ask("记住：数据在每周一更新")
    assert len(memories.files) == 2
    text = next(text for text in memories.files.values() if "grayscale" in text)
    assert text.startswith("---\nname: ")
    assert "type: feedback" in text
    assert "**Why:**" in text
    assert "grayscale" in room.ask("What do you remember about plots in grayscale?")
    room.ask("forget the plots in grayscale")
    assert not any("grayscale" in text for text in memories.files.values())


@pytest.mark.parametrize(
    ("asked", "tool"),
    [
        ("remember that the sky is blue", "memory"), ("load the plots skill", "load_skill"),
        ("make a plan to load, clean and plot the data", "plan"), ("compact the conversation", "compact"),
        ("delegate: count the files", "agent"), ("记住明天开会", "memory"), ("压缩上下文", "compact"),
    ],
)  # fmt: skip
def test_a_missing_tool_is_said_to_be_missing(tmp_path: Path, asked: str, tool: str) -> None:
    room = _room(tmp_path)
    assert f"`{tool}`" in room.ask(asked)
    assert not room.calls


def test_the_skill_whose_description_fits_is_loaded(tmp_path: Path) -> None:
    names = ["clean-tables", "statistical-tests", "time-series"]
    schema = {"type": "object", "properties": {"name": {"type": "string", "enum": names}}, "required": ["name"]}
    room = _room(tmp_path, {"name": "load_skill", "input_schema": schema})
    room.system = (
        "Skills:\n- clean-tables: mend messy columns and headers\n- statistical-tests: choose and run "
        "hypothesis tests\n"
        "- time-series: dates, resampling, seasonality"
    )
    room.answers["load_skill"] = lambda asked: f'<skill name="{asked["name"]}">\n# Steps\n1. Look\n2. Test\n</skill>'
    said = room.ask("load a skill for hypothesis testing with tests")
    assert room.calls == [("load_skill", {"name": "statistical-tests"})]
    assert "1. Look" in said
    room.ask("使用 time-series 技能")
    assert room.calls == [("load_skill", {"name": "time-series"})]


def test_a_plan_has_the_steps_of_the_request(tmp_path: Path) -> None:
    item = {"type": "object", "properties": {"content": {"type": "string"}, "status": {"enum": ["pending", "done"]}}}
    item["required"] = ["content", "status"]
    schema = {"type": "object", "properties": {"steps": {"type": "array", "items": item}}, "required": ["steps"]}
    room = _room(tmp_path, {"name": "plan", "input_schema": schema})
    room.answers["plan"] = "ok"
    room.ask("make a plan: load the file, then find missing values, then plot")
    ((_, arguments),) = room.calls
    assert [each["content"] for each in arguments["steps"]] == ["load the file", "find missing values", "plot"]
    assert {each["status"] for each in arguments["steps"]} == {"pending"}


def test_work_is_delegated_and_the_answer_reported(tmp_path: Path) -> None:
    schema = {
        "type": "object", "required": ["description", "prompt", "type"],
        "properties": {
            "description": {"type": "string"}, "prompt": {"type": "string"},
            "type": {"enum": ["fork", "explore", "general"]},
        },
    }  # fmt: skip
    room = _room(tmp_path, {"name": "agent", "input_schema": schema})
    room.answers["agent"] = "The child counted 7 files."
    assert "7 files" in room.ask("use a sub-agent to count the files")
    assert room.calls[0][1]["prompt"] == "count the files"
    assert room.calls[0][1]["type"] == "general"


def test_a_schema_gets_a_minimal_instance() -> None:
    schema = {
        "type": "object", "required": ["files", "sure", "n", "kind"],
        "properties": {
            "files": {"type": "array", "items": {"type": "string"}}, "sure": {"type": "boolean"},
            "n": {"type": "integer", "minimum": 2}, "kind": {"enum": ["a", "b"]}, "more": {"type": "string"},
        },
    }  # fmt: skip
    body = {
        "messages": [{"role": "user", "content": "pick"}],
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }
    (block,) = answer(body).content
    assert json.loads(block["text"]) == {"files": [], "sure": False, "n": 2, "kind": "a"}


def test_the_selector_picks_from_the_manifest() -> None:
    schema = {
        "type": "object",
        "required": ["names"],
        "properties": {"names": {"type": "array", "items": {"type": "string"}}},
    }
    asked = (
        "Query: which colours for the sales plots?\n"
        "- [feedback] plots.md (2026-01-02T00:00:00Z): colours and fonts for plots\n"
        "- [project] deadline.md (2026-01-02T00:00:00Z): when the report is due\n"
    )
    body = {
        "messages": [{"role": "user", "content": asked}],
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }
    assert json.loads(answer(body).content[0]["text"]) == {"names": ["plots.md"]}


def test_a_summary_keeps_every_user_message_and_the_code(tmp_path: Path) -> None:
    pd.DataFrame({"g": ["a", "b", "b"], "x": [1.0, 2.0, 4.0]}).to_csv(tmp_path / "t.csv", index=False)
    room = _room(tmp_path)
    room.ask("load t.csv")
    room.ask("average x by g")
    room.messages.append(
        {"role": "user", "content": "Summarise. Use <analysis>…</analysis> and then <summary>…</summary>."}
    )
    (block,) = answer(room.body()).content
    text = block["text"]
    assert text.startswith("<analysis>")
    assert text.endswith("</summary>")
    for kept in ("load t.csv", "average x by g", 'pd.read_csv("t.csv")', "9. Next step"):
        assert kept in text


# The table, a question about it, its grouping column and its value column.
QUESTIONS = [
    ("YAHOO-BTC_USD_D.csv", "average close by year", "Date", "Close"),
    ("auto-mpg.csv", "average mpg by cylinders", "cylinders", "mpg"),
    ("baro_2015.csv", "average wind speed by dir", " DIR", " WINDSPEED"),
    ("cost_data_with_errors.csv", "mean deaths by max storm cat", "max_storm_cat", "deaths"),
    ("gapminder_cleaned.csv", "average life expectancy by continent", "continent", "lifeexp"),
    ("hotel_data.csv", "按 hotel type 计算平均评论数", "hotel_type", "review_count"),
    ("insurance.csv", "各地区的平均费用", "region", "charges"),
    ("oecd_education_spending.csv", "average value by location", "LOCATION", "Value"),
    ("titanic.csv", "survival rate by sex", "Sex", "Survived"),
    ("unemployement_industry.csv", "average Mar.2020 by industry", "Industry and class of worker", "Mar.2020"),
]


@pytest.mark.skipif(not TABLES.is_dir(), reason="the tables are not beside the repository")
@pytest.mark.parametrize(("name", "asked", "group", "value"), QUESTIONS, ids=[each[0] for each in QUESTIONS])
def test_a_real_table_is_loaded_profiled_and_grouped(
    tmp_path: Path, name: str, asked: str, group: str, value: str
) -> None:
    shutil.copy(TABLES / name, tmp_path)
    table = pd.read_csv(tmp_path / name)
    room = Room(tmp_path)
    assert {*table.shape} <= set(numbers(room.ask(f"load {name}")))
    said = room.ask("profile it")
    assert {*table.shape, table.isna().sum().sum()} <= set(numbers(said))
    assert "```" not in said
    said = room.ask("any missing values?")
    if table.isna().any(axis=None):
        assert table.isna().sum().sum() in numbers(said)
    said = room.ask(asked)
    keys = pd.to_datetime(table[group]).dt.year if group == "Date" else table[group]
    most = table.groupby(keys)[value].mean().max()
    assert any(abs(most - each) < 0.006 for each in numbers(said)), said
    assert not [text for text, failed in room.results if failed]


@pytest.mark.skipif(not TABLES.is_dir(), reason="the tables are not beside the repository")
def test_conditions_are_read_from_the_words(tmp_path: Path) -> None:
    for name in ("titanic.csv", "insurance.csv", "gapminder_cleaned.csv", "auto-mpg.csv"):
        shutil.copy(TABLES / name, tmp_path)
    titanic, insurance = pd.read_csv(tmp_path / "titanic.csv"), pd.read_csv(tmp_path / "insurance.csv")
    world, cars = pd.read_csv(tmp_path / "gapminder_cleaned.csv"), pd.read_csv(tmp_path / "auto-mpg.csv")
    room = Room(tmp_path)

    def says(asked: str, value: float) -> None:
        said = room.ask(asked)
        assert any(abs(value - each) < 0.006 for each in numbers(said)), (asked, said)

    room.ask("load titanic.csv")
    says("how many passengers survived?", titanic["Survived"].sum())
    says(
        "average age of females in pclass 3",
        titanic[(titanic["Sex"] == "female") & (titanic["Pclass"] == 3)]["Age"].mean(),
    )
    says("what is the mean fare of passengers older than 30", titanic[titanic["Age"] > 30]["Fare"].mean())
    room.ask("load insurance.csv")
    quiet = insurance[insurance["smoker"] == "no"]
    says("average charges for non-smokers by region", quiet.groupby("region")["charges"].mean().max())
    means = insurance.groupby("smoker")["charges"].mean()
    says("compare charges of smokers and non-smokers", means["yes"])
    room.ask("load the gapminder data")
    year = world[world["year"] == 2007]
    says("average life expectancy by continent in 2007", year.groupby("continent")["lifeexp"].mean().max())
    says("top 3 countries by population in 2007", year["pop"].max())
    room.ask("load auto-mpg.csv")
    says("how many cars with 8 cylinders", (cars["cylinders"] == 8).sum())
    says("平均马力是多少", cars["horsepower"].mean())
    says("最重的3辆车", cars["weight"].max())
