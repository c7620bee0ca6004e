"""The practice model is careful with the user: few calls that need a permission, no name of theirs taken."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from palmerpenguins import load_penguins
from practice_room import Room, numbers

from ipyagent.practice.model import schema
from ipyagent.practice.model.knowledge import touches

PENGUINS = load_penguins()


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A room whose session tells of the variables, with `penguins` loaded by the user."""
    matplotlib.use("Agg")
    made = Room(tmp_path)
    made.reminds = True
    made.namespace["penguins"] = PENGUINS.copy()
    return made


ONE_CALL = [
    "average body mass by species",
    "how many rows are there?",
    "any missing values?",
    "plot body mass by flipper length",
    "correlation between body mass and flipper length",
    "profile penguins",
    "top 3 heaviest penguins",
    "按物种计算平均体重",
    "how many Gentoo are there",
    "how many penguins have a body mass over 5000?",
    "average body mass of males by island",
    "fit a linear regression of body mass on flipper length",
    "画体重和鳍长的散点图，按物种着色",
    "value counts of species",
    "draw a histogram of flipper length by species",
    "bar chart of average body mass by island",
    "有多少只巴布亚企鹅？",
]


@pytest.mark.parametrize("asked", ONE_CALL)
def test_a_request_is_one_python_call(room: Room, asked: str) -> None:
    room.ask(asked)
    assert room.python_calls <= 1, room.calls
    assert not [text for text, failed in room.results if failed]


def test_what_is_known_is_not_looked_up_again(room: Room) -> None:
    room.ask("how many Gentoo are there")
    said = room.ask("average body mass of Chinstrap penguins by sex")
    assert [name for name, _ in room.calls] == ["python"]
    chinstrap = PENGUINS[PENGUINS["species"] == "Chinstrap"]
    assert {round(each, 2) for each in chinstrap.groupby("sex")["body_mass_g"].mean()} <= set(numbers(said))
    assert room.ask("what columns are there?")
    assert not room.calls


def test_an_attached_variable_needs_no_look(room: Room) -> None:
    from ipyagent.kernel.variables import describe

    block = f'<variable name="penguins">\n{describe("penguins", PENGUINS)}\n</variable>'
    room.ask("average body mass by species in @penguins", block)
    assert [name for name, _ in room.calls] == ["python"]


def test_a_table_that_the_user_changed_is_looked_at_again(room: Room) -> None:
    room.ask("how many Gentoo are there")
    cell = "penguins['species'] = penguins['species'].replace('Gentoo', 'Emperor')"
    exec(cell, room.namespace)
    said = room.ask("how many Emperor are there", f"<context>\nRun by the user since:\n```\n{cell}\n```\n</context>")
    assert (PENGUINS["species"] == "Gentoo").sum() in numbers(said)


def test_a_column_renamed_unseen_is_noticed(room: Room) -> None:
    room.ask("average body mass by species")
    room.reminds = False
    room.namespace["penguins"] = PENGUINS.rename(columns={"species": "kind"})
    said = room.ask("average body mass by island")
    assert round(PENGUINS.groupby("island")["body_mass_g"].mean().max(), 2) in numbers(said)
    assert "`kind`" in room.ask("average body mass by species")


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("df['x'] = 1", True), ("df.loc[0, 'x'] = 1", True), ("df = df.dropna()", True), ("df.insert(0, 'y', 1)", True),
        ("df.drop(columns='x', inplace=True)", True), ("clean(df)", True), ("other = df", True), ("del df", True),
        ("df['x'].fillna(0, inplace=True)", True), ("df.x += 1", True), ("!tool df", True), ("model.fit(df)", True),
        ("df.groupby('a')['x'].mean()", False), ("part = df[df['x'] > 1]", False), ("len(df)", False),
        ("print(df.head())", False), ("ax.plot(df['x'])", False), ("other['x'] = df['x']", False), ("dfs = 1", False),
    ],
)  # fmt: skip
def test_all_but_reading_counts_as_a_change(code: str, changed: bool) -> None:
    assert touches(code, "df") is changed


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("average body mass by species", "body_mass_by_species"), ("any missing values?", "missing_by_column"),
        ("plot body mass by flipper length", "fig"), ("plot body mass by flipper length", "ax"),
        ("average body mass of the males by species", "male_penguins"), ("drop the missing values", "penguins_clean"),
        ("fit a linear regression of body mass on flipper length", "residuals"),
        ("draw a histogram of flipper length by species", "part"),
        ("compare males and females in body mass", "difference"),
        ("box plot of body mass by species", "values"), ("top 3 heaviest penguins", "largest_body_mass"),
        ("which columns are most correlated?", "correlations"), ("load the palmer penguins data set", "penguins"),
    ],
)  # fmt: skip
def test_names_of_the_user_are_left_alone(room: Room, asked: str, name: str) -> None:
    mine = room.namespace.get(name, {"made": "by the user"})
    room.namespace[name] = mine
    before = set(room.namespace)
    room.ask(asked)
    assert not [text for text, failed in room.results if failed]
    assert room.namespace[name] is mine
    assert f"{name}_2" in set(room.namespace) - before


def test_no_name_that_was_there_is_rebound(room: Room) -> None:
    common = "summary subset fig ax model_data missing counts profile group name part values target design error r"
    for name in common.split():
        room.namespace[name] = f"my {name}"
    for asked in ONE_CALL:
        room.ask(asked)
    assert {name: room.namespace[name] for name in common.split()} == {name: f"my {name}" for name in common.split()}


def test_its_own_result_may_be_made_anew(room: Room) -> None:
    room.ask("average body mass by species")
    room.ask("average body mass by species")
    assert "body_mass_by_species_2" not in room.namespace


def test_the_first_line_of_code_tells_what_it_does(room: Room) -> None:
    room.ask("average body mass by species")
    first = 'body_mass_by_species = penguins.groupby("species")["body_mass_g"].agg(["mean", "count"]).round(2)'
    assert room.code.startswith(first)
    room.ask("draw a histogram of flipper length")
    telling = [row for row in room.code.splitlines() if row and not row.startswith(("import", "from"))]
    assert telling[0] == 'flipper_length_values = penguins["flipper_length_mm"].dropna()'


def test_large_numbers_are_plain_and_small_ones_keep_their_digits(room: Room) -> None:
    room.namespace.clear()
    room.namespace["trade"] = pd.DataFrame(
        {"country": ["a", "a", "b"], "gdp": [4.42e10 + 7, 4.42e10 + 9, 1.5e6], "share": [0.001234, 0.001236, 0.00456]}
    )
    said = room.ask("average gdp by country")
    assert "44,200,000,008" in said
    assert "1,500,000" in said
    assert "e+" not in said
    said = room.ask("average share by country")
    assert {0.001235, 0.00456} <= set(numbers(said))
    assert "88,400,000,016" in room.ask("total gdp by country")
    assert "44,200,000,009" in room.ask("top 2 gdp")


def test_a_group_table_too_long_to_print_is_cut_by_size(room: Room) -> None:
    room.namespace.clear()
    room.namespace["long"] = pd.DataFrame({"town": [f"t{n % 150}" for n in range(600)], "x": range(600)})
    said = room.ask("average x by town")
    assert "t149" in said
    assert "lowest" not in said


@pytest.mark.parametrize(
    "asked",
    [
        "scatter plot of body mass against flipper length coloured by species",
        "plot body mass against flipper length, colored by species", "画体重和鳍长的散点图，按物种着色",
    ],
)  # fmt: skip
def test_a_scatter_plot_is_coloured_and_labelled(room: Room, asked: str) -> None:
    import matplotlib.pyplot as plt

    room.ask(asked)
    axes = plt.gcf().axes[0]
    assert {axes.get_xlabel(), axes.get_ylabel()} == {"Flipper length (mm)", "Body mass (g)"}
    assert axes.get_title()
    legend = axes.get_legend()
    assert legend is not None
    assert [each.get_text() for each in legend.get_texts()] == ["Adelie", "Chinstrap", "Gentoo"]
    plt.close("all")


def test_colour_is_a_follow_up_of_a_plot(room: Room) -> None:
    room.ask("plot body mass by flipper length")
    for asked in ("colour it by species", "now colour by sex", "按岛屿着色"):
        room.ask(asked)
        assert "ax.scatter" in room.code
        assert "legend" in room.code
        assert "flipper_length_mm" in room.code


def test_what_was_done_is_listed_in_both_languages(room: Room) -> None:
    room.ask("按物种计算平均体重")
    room.ask("any missing values?")
    for asked in ("到目前为止我们做了什么？", "What have we done so far?"):
        lines = room.ask(asked).splitlines()
        assert lines[2].startswith("1. **按物种计算平均体重**")
        assert "5076.02" in lines[3]
        assert lines[4].startswith("2. **any missing values?**")
        assert lines[5].endswith("in 11 of 344 rows")


def test_a_listing_that_is_cut_tells_no_columns() -> None:
    whole = "df  DataFrame 3 x 3: a, b f64 (1 missing),  c str, d cat(3)"
    told = schema.line(whole)
    assert told is not None
    assert dict(told.dtypes) == {"a, b": "float64", " c": "str", "d": "category"}
    for cut in ("df  DataFrame 3 x 9: a f64, … 8 more", "df  DataFrame 3 x 1: a…", "df  DataFrame 3 x 1: 0 f64"):
        assert schema.line(cut) is None


def test_a_wide_table_is_read_by_code(room: Room) -> None:
    wide = pd.DataFrame({f"column_with_a_long_name_{n}": [n, n + 1] for n in range(120)})
    wide["g"] = ["a", "b"]
    room.namespace = {"wide": wide}
    assert 119.5 in numbers(room.ask("average column_with_a_long_name_119"))


def test_what_names_nothing_is_said_to_be_left_out(room: Room) -> None:
    assert "“martian”" in room.ask("how many martian penguins are there")
    assert "leaves that out" not in room.ask("how many women are there")
    assert room.python_calls == 1


@pytest.mark.parametrize("asked", ["any outliers in bill depth?", "outliers of body mass in Chinstrap", "体重的离群值"])
def test_outliers_are_counted_by_the_quartiles(room: Room, asked: str) -> None:
    part = PENGUINS[PENGUINS["species"] == "Chinstrap"] if "Chinstrap" in asked else PENGUINS
    values = part["bill_depth_mm" if "bill" in asked else "body_mass_g"]
    low, high = values.quantile(0.25), values.quantile(0.75)
    expected = ((values < low - 1.5 * (high - low)) | (values > high + 1.5 * (high - low))).sum()
    said = room.ask(asked)
    assert numbers(said.split("**")[1])[0] == expected
    assert round(high + 1.5 * (high - low), 2) in numbers(said)


def test_the_last_error_is_explained(room: Room) -> None:
    assert "has failed" in room.ask("why did that fail?")
    room.ask("run: print(undefined_thing)")
    for asked in ("why did that fail?", "为什么出错了"):
        said = room.ask(asked)
        assert "name 'undefined_thing' is not defined" in said
        assert "`print(undefined_thing)`" in said
        assert not room.calls


@pytest.mark.parametrize(("others", "patience"), [(30, 9.0), (40, 9.0), (60, 9.0), (300, 9.0), (5, 0.0)])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [("How many rows has wanted?", "3"), ("What is the mean of weight in wanted?", "5"), ("wanted 有多少行？", "3")],
)
def test_a_named_table_that_the_listing_had_no_room_for_is_the_one(
    tmp_path: Path, asked: str, expected: str, others: int, patience: float
) -> None:
    room = Room(tmp_path)
    room.reminds, room.patience = True, patience
    room.namespace["wanted"] = pd.DataFrame({"weight": [1.0, 5.0, 9.0]})
    for number in range(others):
        room.namespace[f"other_{number}"] = pd.DataFrame({"weight": range(100 + number), "height": 1})
    said = room.ask(asked)
    assert "wanted  DataFrame" not in str(room.messages[0])
    assert re.search(rf"\b{expected}\b", said), said
    assert "other_" not in said
    assert not any("other_" in str(given) for name, given in room.calls)
