"""What a form answers is what pandas gives, on any table and under any display options, or it says that it can't."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from practice_room import TOOLS, Room
from vega_datasets import local_data  # type: ignore[import-untyped]

from ipyagent.practice.model.forms import FORMS
from ipyagent.practice.model.tables import LOOK, key

matplotlib.use("agg")
VEGA = ("burtin", "cars", "crimea", "seattle_weather")
MORE = (
    "airports", "anscombe", "barley", "driving", "iowa_electricity", "iris", "la_riots", "seattle_temps", "sf_temps",
    "stocks", "us_employment", "wheat",
)  # fmt: skip
"""Looked at in the slow group."""


def shop() -> pd.DataFrame:
    """Names with spaces, capitals, units, signs; gaps in values and groups; a yes/no column, categories, dates."""
    rng, n = np.random.default_rng(7), 400
    table = pd.DataFrame(
        {
            "Order ID": np.arange(1000, 1000 + n), "Region (EMEA)": rng.choice(["North", "South", "East"], n),
            "channel": pd.Categorical(rng.choice(["web", "shop"], n), categories=["web", "shop", "fax"]),
            "day": pd.to_datetime("2026-01-01") + pd.to_timedelta(rng.integers(0, 270, n), unit="D"),
            "units": pd.array(rng.integers(1, 20, n), dtype="Int64"), "price_eur": rng.gamma(2, 15, n).round(2),
            "returned": rng.random(n) < 0.12, "Note|x": rng.choice(["a|b", "c, d", 'e "f"'], n),
        }
    )  # fmt: skip
    table.loc[rng.choice(n, 23, replace=False), "price_eur"] = np.nan
    table.loc[rng.choice(n, 9, replace=False), "Region (EMEA)"] = None
    return table


def others() -> dict[str, pd.DataFrame]:
    """Tables of our own beside those of the data sets."""
    small = np.random.default_rng(3).normal(1e-4, 1e-5, 50)
    big = pd.DataFrame({"店铺": list("甲乙丙甲乙") * 10, "金额": np.arange(50) * 1e9 + 0.5, "数量": range(50)})
    same = pd.DataFrame({"who": ["a", "a", "b", "b"], "x": [1, 1, 1, 1], "y": [2.5, 2.5, 2.5, 2.5]})
    numbers = pd.DataFrame({0: [1.5, 2.5, np.nan], 1: [3, 4, 5], "k": ["u", "v", "u"]})
    return {"shop": shop(), "tiny": pd.DataFrame({"g": list("ab") * 25, "v": small, "w": -small}), "销售": big,
            "same": same, "numbered": numbers,
            "empty": pd.DataFrame({"g": pd.Series([], dtype=str), "v": []})}  # fmt: skip


def table_of(name: str) -> pd.DataFrame:
    if name == "penguins":
        from palmerpenguins import load_penguins  # type: ignore[import-untyped]

        return pd.DataFrame(load_penguins())
    return pd.DataFrame(getattr(local_data, name)()) if name in (*VEGA, *MORE) else others()[name]


@pytest.fixture(params=[*VEGA, "penguins", *others(), *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Room, pd.DataFrame]]:
    """A conversation over one table, with display options that hide nearly everything."""
    options = ("display.max_rows", 2, "display.max_columns", 1, "display.precision", 0, "display.width", 10,
               "display.max_colwidth", 3, "display.float_format", "<{:.0f}>".format)  # fmt: skip
    room = Room(tmp_path)
    room.namespace["data_" + str(len(request.param))] = table_of(request.param)
    with pd.option_context(*options):
        yield room, table_of(request.param)


def cells(said: str) -> list[list[str]]:
    """The rows of the Markdown table in an answer."""
    lines = [line for line in said.splitlines() if line.startswith("| ")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[1:]]


def close(said: str, value: Any) -> bool:
    """Whether a number is said with four digits, or as nothing where there is none."""
    if value is pd.NA or value != value:
        return said in ("", "nan", "(missing)", "<NA>")
    return abs(float(said) - float(value)) <= 6e-4 * abs(float(value)) + 1e-12


def bold(said: str) -> list[str]:
    return re.findall(r"\*\*(-?[\d.]+(?:e[+-]?\d+)?|nan)\*\*", said)


def numbers_of(table: pd.DataFrame) -> list[Any]:
    kinds = {c: table[c].dtype for c in table.columns}
    return [c for c, kind in kinds.items() if pd.api.types.is_numeric_dtype(kind) and kind != "bool"]


def groups_of(table: pd.DataFrame) -> list[Any]:
    found = [c for c in table.columns if c not in numbers_of(table) and not str(table[c].dtype).startswith("date")]
    return [c for c in found if table[c].nunique() <= 30]


def test_rows_missing_values_and_statistics_are_those_of_pandas(told: tuple[Room, pd.DataFrame]) -> None:
    room, table = told
    assert bold(room.ask("How many rows are there?")) == [str(len(table))]
    assert bold(room.ask("which values are missing?")) == [str(table.isna().sum().sum())]
    for column in numbers_of(table)[:3]:
        for stat in ("mean", "median", "sum", "min", "max"):
            said = room.ask(f"what is the {stat} of `{column}`?")
            if table[column].count() == 0:
                assert "no values" in said
            else:
                assert close(bold(said)[0], getattr(table[column], stat)()), said


def test_groups_and_counts_are_those_of_pandas(told: tuple[Room, pd.DataFrame]) -> None:
    room, table = told
    for group in groups_of(table)[:2]:
        counts = table[group].value_counts(dropna=False)
        said = cells(room.ask(f"how many rows per `{group}`"))
        assert sorted(int(row[1]) for row in said) == sorted(counts)[-40:]
        for column in numbers_of(table)[:2]:
            wanted = table.groupby(group, dropna=False, observed=True)[column].mean()
            rows = {" ".join(row[0].split()): row[1] for row in cells(room.ask(f"average `{column}` by `{group}`"))}
            for label, value in wanted.items():
                shown = "(missing)" if pd.isna(label) else " ".join(str(label).split())
                assert close(rows[shown], value), (group, column, label)


def test_scatter_plots_and_a_value_are_those_of_pandas(told: tuple[Room, pd.DataFrame]) -> None:
    room, table = told
    numbers, groups = numbers_of(table), groups_of(table)
    if len(numbers) > 1:
        said = room.ask(f"plot `{numbers[0]}` by `{numbers[1]}`")
        both = table[[numbers[0], numbers[1]]].dropna()
        assert re.search(rf"n = {len(both)}\b", said)
        r = table[numbers[0]].corr(table[numbers[1]])
        assert f"r = {r:.2f};" in said
    for value in table[groups[0]].dropna().unique()[:2].tolist() if groups else []:
        room.ask("How many rows are there?")
        said = room.ask(f"only {value}")
        if sum(key(each) == key(value) for name in groups for each in table[name].dropna().unique().tolist()) == 1:
            assert bold(said) == [str(int((table[groups[0]] == value).sum()))], said


ORDERS = pd.DataFrame({"city": ["north", "south", "north"], "sex": ["males", "f", "f"],
                       "amount": [10.0, 20.0, 40.0], "weight": [1, 2, 5]})  # fmt: skip
EXPECTED = {
    "load": "python", "profile": "python", "missing": "python", "count": "python",
    "statistic": "python", "plot": "python", "again": "python", "rebuild": "python", "list": "variables",
    "read": "read_file", "run": "python", "remember": "memory", "use": "load_skill", "plan": "plan", "so far": "",
}  # fmt: skip


def all_tools(folder: Path) -> Room:
    room = Room(folder, (*TOOLS, "memory", "load_skill", "plan"))
    room.namespace["orders"] = ORDERS
    room.system = "<skills>\n- profile-a-dataset: Looks.\n</skills>"
    for name in ("memory", "plan"):
        room.answers[name] = "done"
    room.answers["load_skill"] = '<skill name="profile-a-dataset">\n- look\n</skill>'
    (folder / "orders.csv").write_text(ORDERS.to_csv(index=False))
    (folder / "notes.md").write_text("# Notes\n")
    return room


def test_there_are_at_most_25_forms() -> None:
    assert len(FORMS) <= 25
    assert [form.name for form in FORMS] == list(EXPECTED)


MISSING = ("Load one first", "请先加载", "There is no answered question", "前面没有已回答", "nothing that is gone",
           "不知道有什么丢失")  # fmt: skip


@pytest.mark.parametrize("language", [0, 1], ids=["English", "Chinese"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_form_answers_its_examples_and_in_an_empty_kernel_says_what_is_missing(
    tmp_path: Path, form: Any, language: int
) -> None:
    for empty in (False, True):
        (tmp_path / str(empty)).mkdir()
        room = all_tools(tmp_path / str(empty))
        if empty:
            del room.namespace["orders"]
        elif form.name in ("again", "rebuild"):
            room.ask("average amount of orders" if form.name == "again" else "load orders.csv as orders")
        said = room.ask(form.example[language])
        tools = [name for name, _ in room.calls]
        assert not any(failed for _, failed in room.results), room.results
        worked = (tools[-1] if tools else "") == EXPECTED[form.name] and (
            tools[-1:] != ["python"] or form.name in ("load", "run", "rebuild") or room.code != LOOK
        )
        assert worked or (empty and any(words in said for words in MISSING)), said


def test_what_no_form_matches_whole_is_not_computed(tmp_path: Path) -> None:
    for at, asked in enumerate([
        "averge amount by city", "average amonut by city", "which city is the best?", "predict the amount",
        "make the report nicer", "average amount by month", "average city", "how many orders were late",
        "how many rows where city is Berlin", "average amount where city is north or city is south",
        "average amount by city excluding north", "平均单价", "哪个城市最好",
        "amount 的同比增长", "delete the outliers", "how many rows where amount > 10",
        "average amount for the last 30 days",
    ]):
        here = tmp_path / str(at)
        here.mkdir()
        room = all_tools(here)
        said = room.ask(asked)
        codes = [given["code"] for name, given in room.calls if name == "python"]
        assert all(code == LOOK or code.startswith("print({column:") for code in codes), said
        assert "ANTHROPIC_API_KEY" in said or "help" in said or "No value" in said or "中没有" in said, asked


def test_two_requests_in_one_are_both_done_or_the_one_that_is_not_is_named(tmp_path: Path) -> None:
    room = all_tools(tmp_path)
    said = room.ask("How many rows are in orders, then show the average amount by city")
    assert bold(said) == ["3"]
    assert "| north | 25 |" in said
    said = room.ask("average amount; then mail it to Ada")
    assert "23.33" in said
    assert "Not done, and not taken into account: “mail it to Ada”" in said
    said = room.ask("average amount and total weight by city")
    assert bold(said) == []
    assert room.code == LOOK


def test_a_name_that_fits_twice_is_asked_about(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.namespace["trips"] = pd.DataFrame({"price_usd": [1.0], "price_eur": [2.0], "from": ["Rome"], "to": ["rome"]})
    assert "`price_usd`, `price_eur`" in room.ask("average price")
    room.ask("how many rows are there?")
    assert "`from` = Rome, `to` = rome" in room.ask("only for Rome")
    room.namespace["flights"] = pd.DataFrame({"price_usd": [3.0]})
    both = room.ask("average price_usd")
    assert "more than one way" in both
    assert 'flights["price_usd"].mean()' in both
    assert bold(room.ask("average price_usd in flights")) == ["3"]
    room.namespace["twins"] = pd.DataFrame([[1, 2]], columns=["a", "a"])
    assert "may be several columns: `a`" in room.ask("average a of twins")


SMALL = pd.DataFrame({"g": list("xxyy"), "who": list("abcb"), "Value": [1, 2, 2, 2], "v": [1.0, 2.0, np.nan, np.nan],
                      "Sex": ["female", "male", "female", "male"], "big": [1, 2, 3, 9007199254740993],
                      "Date": pd.to_datetime(["2026-01-01"] * 4)})  # fmt: skip


def test_what_is_answered_is_right_or_it_says_that_it_cannot(tmp_path: Path) -> None:
    for at, (asked, says, never) in enumerate([
        ("sum of v by g", "| y | (missing) | 0 |", "lowest"),
        ("按 g 计算平均 v", "| y | （缺失） | 0 |", "(missing)"),
        ("max Value by g", "The maximum of `Value` by `g` in `t`:", "highest for"),
        ("mean Value by who", "| a | 1 | 1 |", "lowest for b"),
        ("profile t", "9007199254740993 |", "9007199254740992"),
        ("max of big", "maximum **9007199254740993**", "no column"),
        ("average nothing in t", "`t` has no column", "No table has"),
        ("how many rows in where Value = 1", "ANTHROPIC_API_KEY", "no table"),
        ("describe the oldest passenger", "I find no table", "no column"),
        ("plot v by v", "Name two different columns.", "twice"),
        ("plot v by Date", "`Date` holds dates", "n ="),
        ("average g in t", "`g` of `t` holds no numbers", "mean **"),
        ("average v by v", "cannot be value and group", "mean **"),
        ("which column has the most missing values?", "ANTHROPIC_API_KEY", "the skill `"),
        ("now only for the male", "There is no answered question", "no pandas table"),
    ]):
        here = tmp_path / str(at)
        here.mkdir()
        room = all_tools(here)
        room.namespace |= {"t": SMALL, "orders": ORDERS[["weight"]].rename(columns={"weight": "kilos"})}
        room.system = "<skills>\n- clean-messy-tables: Cleans missing values in the columns of messy tables.\n</skills>"
        said = room.ask(asked)
        assert says in said
        assert never not in said.replace("help", "")


def test_what_cannot_be_done_is_told_of_the_table_in_question(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.namespace |= {
        "hotel": pd.DataFrame({"city": ["Rome"], "nights": [2]}),
        "insurance": pd.DataFrame({"charges": [1.0, 2.0], "region": ["n", "s"], "smoker": ["yes", "no"]}),
        "policies": pd.DataFrame({"charges": [3.0], "region": ["e"]}),
    }
    asked = "average charges by region for the smokers"
    for table, column in (("policies", "charges"), ("insurance", "charges"), ("insurance", "smoker")):
        room.ask(f"how many rows per {column} in {table}?")
        room.ask("how are you?")
        assert f"`{table}` has no column “region for the smokers”" in room.ask(asked)
    room.ask("how many rows per city in hotel?")
    assert "`insurance` has no column “region for the smokers”" in room.ask(asked), "hotel has no charges"
    assert "`hotel` has no column “size”" in room.ask("average size")
    assert "`policies` has no column “size”" in room.ask("average size in policies")


def test_only_applies_to_the_last_answered_question_and_to_none_in_the_same_text(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.namespace["t"] = SMALL
    room.ask("max big by who")
    assert "no column “foo”" in room.ask("average foo")
    assert "The maximum of `big` by `who` in `t` where `Sex` = male" in room.ask("now only for the male")
    for asked in ("average Value by Sex; now only for b", "dance a little; now only for b"):
        assert "There is no answered question" in room.ask(asked)


def test_what_is_printed_beside_the_table_is_no_row_of_it(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.namespace["t"] = SMALL
    figure = "matplotlib Figure 6.4 x 4.8 in, 1 axes: title 'Boxplot'"
    room.answers["python"] = lambda given: (
        room._python(given["code"])[0].partition("[rebound")[0] + figure * ("boxplot" in given["code"])
    )
    assert [row[0] for row in cells(room.ask("plot Value by who"))] == ["a", "b", "c"]


def test_what_was_done_names_what_was_not_answered(tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.ask("sing a song")
    said = room.ask("what have we done so far?")
    assert "So far you asked 1 thing:" in said
    assert "not answered" in said


def test_a_plan_has_a_step_for_each_thing_to_do(tmp_path: Path) -> None:
    room = all_tools(tmp_path)
    assert "3. plot orders" in room.ask("make a plan to load, clean and plot orders")


def test_a_file_is_loaded_and_profiled_and_a_table_that_is_gone_is_built_again(tmp_path: Path) -> None:
    room = all_tools(tmp_path)
    del room.namespace["orders"]
    said = room.ask("Profile orders.csv.")
    assert "Loaded `orders.csv` as `orders`" in said
    assert "`orders`: **3** rows, **4** columns; missing values: 0" in said
    for asked in ("average amount of orders", "describe orders"):
        room.namespace.pop("orders", None)
        assert "`orders` is gone" in room.ask(asked)
    assert "Rebuilt `orders`: 3 rows" in room.ask("Yes, rebuild it.")
    assert "no answered question" not in room.ask("average amount of orders")
    room.system += "\nPlots always have units on their axes."
    room.namespace["birds"] = pd.DataFrame({"body_mass_g": [1.0, 2.0], "bill_mm": [3.0, 5.0]})
    room.ask("plot body mass by bill")
    assert 'xlabel="bill (mm)", ylabel="body mass (g)"' in room.code
