"""Scripts of the bundled skills that compute: right where the answer is known, clear where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundled_room import check, hostile, model, plots, series, tests

HOSTILE = hostile()


# ---------------------------------------------------------------- time series


def test_gaps_repeats_and_zones_are_told() -> None:
    days = pd.date_range("2024-01-01", periods=30, freq="D")
    told = series.check_times(days)
    assert told.problems == ()
    assert told.step == "1 days 00:00:00"
    holes = series.check_times(pd.Series(days.delete([5, 6, 20])))
    assert list(holes.gaps["missing"]) == [2, 1]
    assert "not sorted" in str(series.check_times(days[::-1]))
    local = pd.Series(pd.date_range("2024-10-27", periods=8, freq="h", tz="Europe/Berlin").tz_localize(None))
    assert series.check_times(local).repeated == 1
    assert "no time zone" in str(series.check_times(local))
    assert series.check_times(HOSTILE["zones"]["t"]).problems == ()
    business = series.check_times(pd.bdate_range("2024-01-01", periods=60))
    assert "business calendar" in str(business)
    assert series.check_times(pd.date_range("2020-01-31", periods=30, freq="ME")).problems == ()
    for few in ([], ["2024-01-01"], [None, None]):
        assert series.check_times(pd.to_datetime(pd.Series(few, dtype=object))).step == ""
    with pytest.raises(TypeError, match="parse them first"):
        series.check_times(pd.Series(["2024-01-01"]))


def test_a_forecast_sees_the_past_alone() -> None:
    values = pd.Series(np.tile([1.0, 5.0, 9.0, 2.0, 7.0, 3.0, 8.0], 12))
    seen: list[int] = []

    def peeking(past: pd.Series, steps: int) -> np.ndarray:
        seen.append(len(past))
        return np.zeros(steps)

    table = series.backtest(values, {"season": series.seasonal_naive(7), "zero": peeking}, horizon=7, folds=3)
    assert table["forecast"][0] == "season"
    assert table["mae"][0] == 0
    assert seen == [63, 70, 77]
    line = series.backtest(pd.Series(np.arange(50.0)), {"drift": series.drift}, horizon=5)
    assert line.set_index("forecast").loc["drift", "mae"] == pytest.approx(0)
    with pytest.raises(ValueError, match="missing"):
        series.backtest(pd.Series([1, None, 3.0]), {}, horizon=1)
    with pytest.raises(ValueError, match="too few"):
        series.backtest(pd.Series([1.0]), {}, horizon=1)


# ---------------------------------------------------------------- tests


def test_a_difference_comes_with_its_size_and_interval() -> None:
    random = np.random.default_rng(3)
    values = np.r_[random.normal(0, 1, 200), random.normal(1, 1, 200)]
    table = pd.DataFrame({"v": values, "g": ["a"] * 200 + ["b"] * 200})
    found = tests.compare(table, "v", "g", draws=1_000)
    assert found.low < 1 < found.high
    assert found.p < 0.01
    assert 0.7 < found.g < 1.3
    assert found.above == pytest.approx(0.76, abs=0.06)
    assert tests.compare(table, "v", "g", draws=1_000) == found
    same = pd.DataFrame({"v": random.normal(size=200), "g": ["a", "b"] * 100})
    assert tests.compare(same, "v", "g", draws=1_000).p > 0.01
    constant = pd.DataFrame({"v": [1.0] * 6, "g": ["a", "b"] * 3})
    assert tests.compare(constant, "v", "g").p == 1


def test_false_alarms_come_as_often_as_they_should() -> None:
    random = np.random.default_rng(5)
    groups = ["a", "b"] * 20
    tables = (pd.DataFrame({"v": random.exponential(size=40), "g": groups}) for _ in range(300))
    alarms = sum(tests.compare(table, "v", "g", draws=99).p <= 0.05 for table in tables)
    assert 4 <= alarms <= 28  # 15 expected; 3.5 standard deviations to either side


def test_what_cannot_be_compared_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="0 groups"):
        tests.compare(HOSTILE["no rows"], "a", "b")
    with pytest.raises(TypeError, match="convert it to numbers"):
        tests.compare(HOSTILE["mixed"], "a", "b")
    with pytest.raises(ValueError, match="names 2 columns"):
        tests.compare(HOSTILE["repeated names"], "a", "b")
    with pytest.raises(ValueError, match="has 1 values; at least two"):
        tests.compare(pd.DataFrame({"v": [1.0, 2, 3], "g": ["a", "a", "b"]}), "v", "g")
    three = pd.DataFrame({"v": range(9), "g": list("abc") * 3})
    with pytest.raises(ValueError, match="pair="):
        tests.compare(three, "v", "g")
    assert tests.compare(three, "v", "g", pair=("a", "c")).difference == 2
    with pytest.raises(ValueError, match="two to 50"):
        tests.associate(HOSTILE["all missing"], "a", "b")


def test_categories_that_go_together_are_found() -> None:
    table = pd.DataFrame({"x": ["a", "b"] * 50, "y": ["c", "d"] * 50, "z": ["c", "c", "d", "d"] * 25})
    assert tests.associate(table, "x", "y", draws=200).v == pytest.approx(1)
    assert tests.associate(table, "x", "z", draws=200).p > 0.5
    assert list(tests.holm({"a": 0.04, "b": 0.01, "c": 0.03})["corrected"]) == pytest.approx([0.03, 0.06, 0.06])


# ---------------------------------------------------------------- models


def model_table(rows: int = 400) -> pd.DataFrame:
    random = np.random.default_rng(7)
    x = random.normal(size=rows)
    return pd.DataFrame({
        "id": np.arange(rows), "x": x, "город": random.choice(["a", "b", None], rows),
        "when": pd.date_range("2024-01-01", periods=rows, freq="h", tz="Asia/Tokyo"), "empty": np.nan,
        "person": np.arange(rows) // 4, "y": np.where(x + random.normal(0, 0.5, rows) > 0, "yes", "no"),
        "amount": 3 * x + 1,
    })  # fmt: skip


def test_columns_that_give_the_answer_away_are_named() -> None:
    table = model_table().assign(later=lambda each: each["y"] == "yes")
    found = dict(model.suspects(table, "y").values)
    assert {"id", "later", "empty"} <= set(found)
    assert "x" not in found
    twice = table.assign(double=table["amount"] * 2)
    assert "double" in dict(model.suspects(twice, "amount").values)
    for odd in HOSTILE.values():
        if odd.shape[1] and odd.columns.is_unique:
            model.suspects(odd, odd.columns[0])


def test_no_person_and_no_moment_is_on_both_sides() -> None:
    table = model_table()
    train, test = model.split(table, groups="person")
    assert not set(table["person"].iloc[train]) & set(table["person"].iloc[test])
    train, test = model.split(table.sample(frac=1, random_state=0), time="when")
    mixed = table.sample(frac=1, random_state=0)
    assert mixed["when"].iloc[train].max() < mixed["when"].iloc[test].min()
    train, test = model.split(table, target="y")
    assert sorted([*train, *test]) == list(range(len(table)))
    with pytest.raises(ValueError, match="both are needed"):
        model.split(HOSTILE["one row"])
    with pytest.raises(ValueError, match="groups or time"):
        model.split(table, groups="person", time="when")


@pytest.mark.slow
def test_a_model_is_judged_beside_the_plainest() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    table = model_table()
    scores = model.evaluate(table, "y", drop=("id", "amount")).set_index("model")
    assert scores.loc["plainest", "balanced_accuracy"] == 0.5
    assert scores.loc["linear", "low"] > 0.2
    numbers = model.evaluate(table, "amount", drop=("id", "y"), time="when").set_index("model")
    assert numbers.loc["linear", "r2"] > 0.99
    noise = table.assign(y=np.random.default_rng(1).choice(["yes", "no"], len(table)))[["x", "город", "y"]]
    judged = model.evaluate(noise, "y", linear.LogisticRegression())
    assert judged.set_index("model").loc["linear", "low"] < 0.05
    with pytest.raises(ValueError, match="classes; two are needed"):
        model.evaluate(HOSTILE["all missing"], "a")
    with pytest.raises(ValueError, match="unique names"):
        model.evaluate(pd.DataFrame([[1, 2, "x"], [3, 4, "y"]] * 20, columns=["a", "a", "b"]), "b")


# ---------------------------------------------------------------- plots


def test_a_plot_is_suggested_for_any_column() -> None:
    for odd in HOSTILE:
        table = HOSTILE[odd]
        if not table.columns.is_unique:
            with pytest.raises(KeyError, match="names 2 columns"):
                plots.suggest(table, "a")
            continue
        assert all(plots.suggest(table, name) for name in table.columns), odd
        pairs = [(one, two) for one in table.columns[:9] for two in table.columns[:9] if one != two]
        assert all(plots.suggest(table, *pair) for pair in pairs), odd


def test_faults_of_a_drawn_plot_are_named_and_a_finished_one_has_none() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    def axes():
        return Figure(figsize=(6, 4)).subplots()

    assert plots.faults(axes()) == ["nothing is drawn"]
    bars = axes()
    bars.bar(["a", "b"], [101, 102])
    bars.set_ylim(100, 103)
    told = "\n".join(plots.faults(bars))
    assert "no title" in told
    assert "not at zero" in told
    lines = axes()
    for at in range(9):
        lines.plot([1, 2, 3], [at, at, at])
    assert any("9 series" in fault for fault in plots.faults(lines))
    names = axes()
    names.bar([f"a rather long name {at}" for at in range(12)], range(1, 13))
    assert any("cover each other" in fault for fault in plots.faults(names))
    cloud = axes()
    cloud.scatter(range(6_000), range(6_000))
    assert any("6,000 points" in fault for fault in plots.faults(cloud))
    good = axes()
    good.bar(["a", "b"], [3, 5])
    plots.finish(good, title="b is larger", x="", y="count", source="test")
    assert plots.faults(good) == []
    with pytest.raises(TypeError, match="matplotlib axes"):
        plots.faults(3)


# ---------------------------------------------------------------- notebooks


def notebook(path: Path, *cells: dict) -> Path:
    path.write_text(json.dumps({"cells": list(cells), "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
    return path


def code(source: str | list[str], count: int | None = None, *outputs: dict) -> dict:
    return {"cell_type": "code", "source": source, "execution_count": count, "outputs": [*outputs]}


def test_what_hinders_a_reader_is_named_with_its_cell(tmp_path: Path) -> None:
    path = notebook(
        tmp_path / "é.ipynb",
        code("import os", 2),
        code("x = open('/home/me/data.csv')", 1, {"output_type": "error", "ename": "OSError"}),
        code("api_key = 'abcdefghijk'"),
        code("!pip install x", 3, {"output_type": "stream", "text": ["FutureWarning: x"]}),
    )
    told = "\n".join(map(str, check.check(path)))
    for wanted in ("no heading", "out of order", "cell 1: a path of one machine",
                   "cell 1: ends with an error (OSError)", "cell 2: has not been run", "cell 2: looks like a secret",
                   "cell 3: installs packages", "cell 3: shows a warning"):  # fmt: skip
        assert wanted in told
    text = {"cell_type": "markdown", "source": ["# Title\n", "```\n# no heading\n```"], "metadata": {}}
    good = notebook(tmp_path / "good.ipynb", text, code("x = 1", 1), code(["y = 2\n", "y"], 2))
    assert check.check(good) == []
    assert check.outline(good) == "# Title (cells 0-2: 2 code, 1 text)"
    assert check.check(notebook(tmp_path / "none.ipynb"))[0].what == "there are no cells"
    (tmp_path / "bad.ipynb").write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match="no notebook"):
        check.check(tmp_path / "bad.ipynb")
