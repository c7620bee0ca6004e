"""Numbers of the bundled scripts against the truth known another way, on values where careless code gives others:
changes of clocks, whole numbers beyond 2**53, infinities, categories that no row has, decimals, names that repeat."""

from __future__ import annotations

import datetime
from decimal import Decimal
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from bundled_room import clean, join, model, plots, profile, series, sql, tests

LARGE = 2**53


# ---------------------------------------------------------------- cleaning


def test_a_number_is_read_only_as_it_is_written() -> None:
    for text, number in [
    ("6'2", None), ("5'10", None), ("12 34", None), ("3 4 5", None), ("$1$2", None), ("1 234,567", None),
    ("0,123", None), ("(-5)", None), ("((5))", None), ("--5", None), ("€5%", None), ("5 EURO", None), ("1e999", None),
    ("1'234'567.5", 1234567.5), ("1\u00a0234", 1234), ("1 234 567", 1234567), ("-$5", -5), ("$-5", -5), ("($5)", -5),
    ("5 EUR", 5), ("EUR5", 5), (".5", 0.5), ("12 %", 0.12), ("6.02e23", 6.02e23), (str(LARGE), LARGE),
    (str(LARGE + 1), None), (LARGE + 1, None), (10**400, None), (Decimal("1.5"), 1.5), (np.bool_(True), None),
]:
        got = clean.numbers_from_text(pd.Series([text], dtype=object))
        assert got.values.dropna().tolist() == ([] if number is None else [number])
        assert (got.rate, len(got.unread)) == ((0, 1) if number is None else (1, 0))


def test_numbers_that_are_numbers_have_no_decimal_sign() -> None:
    read = clean.numbers_from_text
    values = pd.Series([1.25, 2.125], dtype="float32")
    assert read(values, decimal=",").values.tolist() == [1.25, 2.125]


def test_dates_of_any_century_are_read_and_now_is_none() -> None:
    read = clean.dates_from_text
    got = read(pd.Series(["1600-01-01", "2020-01-01", "now", "Today"]), ["%Y-%m-%d"])
    assert got.values.dropna().tolist() == [pd.Timestamp("1600-01-01"), pd.Timestamp("2020-01-01")]
    assert dict(got.unread) == {"now": 1, "Today": 1}
    fine = read(pd.Series(["1600-01-01", "2020-01-01 00:00:00.123456789"]), ["%Y-%m-%d", "%Y-%m-%d %H:%M:%S.%f"])
    assert fine.values.dropna().tolist() == [pd.Timestamp("2020-01-01 00:00:00.123456789")]
    assert dict(fine.unread) == {"1600-01-01": 1}


def test_placeholders_among_categories_go_too() -> None:
    kinds = pd.CategoricalDtype(["y", " x", "N/A"], ordered=True)
    got, told = clean.blank_placeholders(pd.DataFrame({"a": pd.Series([" x", "N/A", "y", None], dtype=kinds)}))
    assert got["a"].dropna().tolist() == ["x", "y"]
    assert (list(got["a"].cat.categories), got["a"].cat.ordered) == (["y", "x"], True)
    assert told.values.tolist() == [["a", "N/A", 1]]


def test_spellings_that_mean_something_else_are_kept_apart() -> None:
    spellings = clean.spellings
    assert spellings(pd.Series(["1.5 kg", "15 kg", "A+", "A", "A-", "-5", "5", "C#", "C", "10³", "103"])).empty
    same = spellings(pd.Series(["New-York", "new york", "ＡＢ", "ab", "é", "e", "1.5kg", "1.5 kg"]))
    assert len(same) == 8


# ---------------------------------------------------------------- joining


def pair(left: object, right: object) -> tuple[pd.DataFrame, pd.DataFrame]:
    return tuple(pd.DataFrame({"k": range(len(each)), "v": each}) for each in (left, right))


def test_two_versions_differ_where_their_values_do() -> None:
    for left, right, differences in [
    ([LARGE + 1, 5], [LARGE, 5], [-1]),
    ([LARGE + 1, 5], [float(LARGE), 5.0], [-1]),
    (pd.array([LARGE + 1, None], "Int64"), pd.array([LARGE, None], "Int64"), [-1]),
    (pd.Categorical([LARGE + 1, 2, None]), pd.Categorical([LARGE, 2, 3]), [-1, np.nan]),
    (np.array([2**64 - 1], "uint64"), np.array([2**64 - 2], "uint64"), [-1]),
    ([Decimal("1.0"), Decimal("2.02")], [Decimal("1.00"), Decimal("2.00")], [-0.02]),
    ([Decimal("1.1"), None], [1.1, np.nan], []),
    (pd.Series([1, 2.5, None], dtype=object), [1.0, 2.5, np.nan], []),
    ([np.inf, -np.inf, 1], [np.inf, np.inf, np.nan], [np.inf, np.nan]),
    (["nan", "None", "<NA>", None], [None, None, None, None], [np.nan] * 3),
    (pd.to_datetime(["2024-01-01"] * 2), pd.DatetimeIndex(["2024-01-01", "2024-01-01 05:00"]), [np.nan]),
    (pd.DatetimeIndex(["2024-01-01"], tz="UTC"), pd.DatetimeIndex(["2024-01-01 01:00"], tz="Europe/Berlin"), []),
    ([1j], [1 + 1j], [np.nan]),
]:
        found = join.reconcile(*pair(left, right), "k", tolerance=0.01)
        assert found["difference"].tolist() == pytest.approx(differences, nan_ok=True)


def test_columns_on_one_side_are_named_and_repeated_ones_refused() -> None:
    found = join.reconcile(pd.DataFrame({"k": [1], "a": [1]}), pd.DataFrame({"k": [1], "b": [1]}), "k")
    assert found.attrs == {"columns on the left only": ["a"], "columns on the right only": ["b"]}
    twice = pd.DataFrame([[1, 2, 3]], columns=["k", "a", "a"])
    with pytest.raises(ValueError, match="2 columns 'a'"):
        join.reconcile(twice, twice, "k")


@pytest.mark.parametrize("kind", ["float64", "Float64", "uint64", "UInt64"])
def test_keys_that_pandas_would_take_for_each_other_are_refused(kind: str) -> None:
    left, right = pd.DataFrame({"k": [LARGE + 1, 5]}), pd.DataFrame({"k": pd.array([LARGE, 5], kind), "w": 1})
    assert len(left.merge(right, on="k")) == 2  # only 5 is on both sides
    with pytest.raises(ValueError, match="beyond 2"):
        join.checked_join(left, right, "k")
    with pytest.raises(ValueError, match="beyond 2"):
        join.reconcile(left.assign(w=1), right, "k")
    assert len(join.checked_join(left, right.astype({"k": "Int64"}), "k", how="inner")) == 1
    small = right.assign(k=pd.array([4, 5], kind))
    assert len(join.checked_join(left.assign(k=[6, 5]), small, "k", how="inner")) == 1


def test_categories_that_no_row_has_are_no_keys() -> None:
    left = pd.DataFrame({"k": pd.Categorical(["x", "x", "y"], categories=["x", "y", "z"])})
    right = pd.DataFrame({"k": pd.Categorical(["z", "y"], categories=["z", "x", "y"]), "w": [1, 2]})
    report = join.key_report(left, right, "k")
    assert (report.left_only, report.right_only, report.inner_rows) == (2, 1, 1)
    assert len(left.merge(right, on="k")) == report.inner_rows
    found = join.reconcile(left.iloc[1:].assign(w=[5, 2]), right, "k")
    assert found[["k", "what"]].values.tolist() == [["x", "left only"], ["z", "right only"]]
    objects = pd.DataFrame({"k": pd.Series([1, 2], dtype=object)})
    assert join.key_report(objects, pd.DataFrame({"k": [1, 3]}), "k").inner_rows == 1
    assert "until they agree" in str(join.key_report(objects, pd.DataFrame({"k": ["1", "2"]}), "k"))


# ---------------------------------------------------------------- time


BERLIN = pd.date_range("2023-01-01", "2023-12-31", freq="D", tz="Europe/Berlin")
MINUTES = pd.date_range("2024-01-01", periods=400, freq="min", tz="UTC")
TREMBLING = MINUTES + pd.to_timedelta(np.random.default_rng(0).normal(0, 50, 400).round(), "ms")


def test_gaps_are_the_steps_that_are_missing() -> None:
    for times, missing in [
    (BERLIN, []), (BERLIN.delete([84, 85, 150, 301]), [2, 1, 1]),
    (pd.date_range("2020-01-01", periods=200, freq="W", tz="America/New_York"), []),
    (pd.date_range("2023-01-01", "2023-12-31", freq="D", tz="UTC").tz_convert("Europe/Berlin"), []),
    (pd.date_range("2023-01-01", "2023-12-31", freq="h", tz="Europe/Berlin").delete([2000, 2001]), [2]),
    (pd.date_range("2023-01-01", "2023-12-31", freq="6h").tz_localize("Europe/Berlin", ambiguous=True), []),
    (pd.date_range("2023-10-28", "2023-10-31", freq="h").tz_localize("Europe/Berlin", ambiguous=True), [1]),
    (pd.date_range("2015-01-01", periods=60, freq="MS", tz="Europe/Berlin").delete([7]), [1]),
    (pd.date_range("2000-01-31", periods=120, freq="ME").delete([*range(20, 80)]), [60]),
    (pd.date_range("2000-01-01", periods=60, freq="QS").delete([*range(10, 30)]), [20]),
    (pd.date_range("2000-01-01", periods=200, freq="28D").delete([*range(20, 150)]), [130]),
    (TREMBLING, []), (TREMBLING.delete([5, 6, 7, 100]), [3, 1]),
    (MINUTES.insert(10, MINUTES[9] + pd.Timedelta("30s")), []),
]:
        assert list(series.check_times(times).gaps["missing"]) == missing


def test_what_is_irregular_has_no_gaps() -> None:
    waits = np.random.default_rng(1).exponential(3_600, 300).cumsum()
    told = series.check_times(pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(waits, "s"))
    assert told.gaps.empty
    assert "gaps cannot be told" in str(told)
    with pytest.raises(ValueError, match="a season of 7"):
        series.seasonal_naive(7)(pd.Series([1.0, 2, 3]), 2)
    with pytest.raises(ValueError, match="missing or infinite"):
        series.backtest(pd.Series([1.0, np.inf, 2, 3]), {}, horizon=1, folds=1)


# ---------------------------------------------------------------- tests


def exact_p(x: np.ndarray, y: np.ndarray) -> float:
    """Of all ways to part the values: the share with a difference of as many standard errors."""
    pooled = np.r_[x, y]

    def errors(first: np.ndarray, second: np.ndarray) -> float:
        gap = abs(first.mean() - second.mean())
        return 0 if gap < 1e-12 else gap / np.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))

    masks = [np.isin(np.arange(len(pooled)), at) for at in combinations(range(len(pooled)), len(x))]
    return float(np.mean([errors(pooled[mask], pooled[~mask]) >= errors(x, y) * (1 - 1e-9) for mask in masks]))


@pytest.mark.parametrize("offset", [0, 1e9, 1e12])
def test_p_does_not_depend_on_where_zero_is(offset: float) -> None:
    x, y = np.array([0.0, 1, 1, 0, 2]), np.array([1.0, 2, 3, 2, 1])
    table = pd.DataFrame({"v": np.r_[x, y] + offset, "g": ["a"] * 5 + ["b"] * 5})
    found = tests.compare(table, "v", "g", draws=6_000)
    assert found.p == pytest.approx(exact_p(x, y), abs=0.02)
    assert found.difference == pytest.approx(1, abs=1e-3)


def test_false_alarms_are_as_rare_when_groups_spread_differently() -> None:
    random = np.random.default_rng(2)
    groups = ["a"] * 20 + ["b"] * 200
    tables = (pd.DataFrame({"v": np.r_[random.normal(0, 5, 20), random.normal(0, 1, 200)], "g": groups})
              for _ in range(200))  # fmt: skip
    assert sum(tests.compare(table, "v", "g", draws=99).p <= 0.05 for table in tables) <= 21  # 10 expected


def test_what_is_left_out_is_told_and_nullable_groups_are_compared() -> None:
    table = pd.DataFrame({"v": pd.array([1, 2, None, 3, 4, 5], "Int64"), "g": pd.array([1, 1, 1, 2, 2, None], "Int64")})
    found = tests.compare(table, "v", "g")
    assert (found.counts, found.means, found.dropped) == ((2, 2), (1.5, 3.5), 2)
    assert "2 rows without value or group left out" in str(found)
    apart = tests.compare(pd.DataFrame({"v": [1.0] * 3 + [2.0] * 3 + [np.inf], "g": list("aaabbbb")}), "v", "g")
    assert np.isnan(apart.g)
    assert "1 of them infinite" in str(apart)
    near = tests.compare(pd.DataFrame({"v": [100_012.25, 100_012.5, 100_015.5, 100_016], "g": list("aabb")}), "v", "g")
    assert "mean 100012.375" in str(near)
    with pytest.raises(TypeError, match="complex"):
        tests.compare(pd.DataFrame({"v": [1j] * 4, "g": list("aabb")}), "v", "g")


# ---------------------------------------------------------------- models


def noise(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(random.normal(size=(rows, 4)), columns=list("abcd")).assign(y=random.choice(["x", "z"], rows))


def test_a_model_without_probabilities_is_not_better_for_that() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    scores = model.evaluate(noise(600), "y", linear.RidgeClassifier()).set_index("model")
    assert scores.loc["model", "low"] < 0 < scores.loc["model", "high"]
    assert scores.attrs["loss"] == "share of wrong classes"
    table = noise(600).assign(y=lambda each: np.where(each["a"] > 0, "x", "z"))
    found = model.evaluate(table, "y", linear.RidgeClassifier()).set_index("model")
    train, test = model.split(table, target="y", seed=0)
    usual = table["y"].iloc[train].mode()[0]
    fitted = linear.RidgeClassifier().fit(table[list("abcd")].iloc[train], table["y"].iloc[train])
    wrong = (fitted.predict(table[list("abcd")].iloc[test]) != table["y"].iloc[test]).mean()
    plainest = (table["y"].iloc[test] != usual).mean()
    assert found.loc["model", "better_by"] == pytest.approx(1 - wrong / plainest, abs=0.02)


@pytest.mark.slow
def test_the_interval_is_of_groups_where_the_split_is() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(0)
    person = np.repeat(np.arange(60), 20)
    x, own = random.normal(size=(2, 60))
    table = pd.DataFrame({"p": person, "x": x[person], "y": own[person] + random.normal(0, 0.1, 1_200)})
    width = {}
    for groups in ("p", None):
        judged = model.evaluate(table, "y", linear.Ridge(), drop=("p",), groups=groups)
        scores = judged.set_index("model").loc["linear"]
        width[groups] = scores["high"] - scores["low"]
    assert width["p"] > 2 * width[None]


# ---------------------------------------------------------------- profile, plots, SQL


def test_a_profile_has_ranges_and_shares_as_they_are() -> None:
    rows = 3_000
    table = pd.DataFrame({
        "id": [LARGE + 1] * (rows - 1) + [LARGE + 3], "few": [np.nan] + [1.5] * (rows - 1),
        "most": [1.5] + [np.nan] * (rows - 1), "decimal": [Decimal("1.5"), None] * (rows // 2),
        "day": [datetime.date(2020, 1, 1), None] * (rows // 2), "text": pd.Series(["x" * 50] * rows, dtype=object),
    })  # fmt: skip
    found = profile.profile(table)
    told = found.columns.set_index("column")
    assert tuple(told.loc["id", ["low", "high"]]) == (str(LARGE + 1), str(LARGE + 3))
    assert (told.loc["few", "missing"], told.loc["most", "missing"]) == ("<0.1%", ">99.9%")
    assert (told.loc["decimal", "kind"], told.loc["decimal", "low"]) == ("number", "1.5")
    assert (told.loc["day", "kind"], told.loc["day", "low"]) == ("time", "2020-01-01")
    assert found.bytes == table.memory_usage(deep=True).sum()
    assert not any("mixed" in warning for warning in found.warnings)
    late = pd.DataFrame({"a": pd.Series([1] * 50_001 + ["x"] + [1] * 50_001, dtype=object)})
    assert "mixed types (int, str)" in str(profile.profile(late))


def test_bars_are_judged_along_their_length_and_empty_categories_draw_nothing() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    lying, short = Figure().subplots(), Figure().subplots()
    lying.barh([1, 2, 3], [5, 5, 5])
    assert not any("zero" in fault for fault in plots.faults(lying))
    short.barh([1, 2, 3], [5, 5, 5])
    short.set_xlim(4, 6)
    assert "bars begin at 4, not at zero: their lengths mislead" in plots.faults(short)
    kinds = pd.CategoricalDtype(list("abcdefghijklmnopqrstuvwxyz"))
    table = pd.DataFrame({"n": range(30), "g": pd.Series(list("abc") * 10, dtype=kinds),
                          "t": pd.date_range("2024-01-01", periods=30)})  # fmt: skip
    assert plots.suggest(table, "n", "g").startswith("boxes")
    assert plots.suggest(table, "n", "t") == plots.suggest(table, "t", "n")


def test_sql_gives_numbers_and_times_as_they_are() -> None:
    berlin = pd.Timestamp("2024-01-01", tz="Europe/Berlin")
    table = pd.DataFrame({
        "i": pd.array([LARGE + 1, None], "Int64"), "d": [Decimal("5"), Decimal("100.5")],
        "wait": pd.to_timedelta([10, 2], "D"), "o": pd.Series([berlin, datetime.datetime(2024, 1, 1)], dtype=object),
        "c": pd.Categorical([berlin, None]),
    })  # fmt: skip
    assert sql.query("SELECT i FROM t", {"t": table})["i"].tolist() == [LARGE + 1, pd.NA]
    assert sql.query("SELECT d FROM t WHERE d > 10", {"t": table})["d"].tolist() == [100.5]
    assert sql.query("SELECT max(wait) AS w FROM t", {"t": table})["w"].tolist() == [864_000]
    utc = "2023-12-31 23:00:00+00:00"
    assert sql.query("SELECT o, c FROM t", {"t": table}).iloc[0].tolist() == [utc, utc]
    found = sql.query("SELECT i FROM t WHERE o = ? AND d = ?", {"t": table}, [berlin, np.int64(5)])
    assert found["i"].tolist() == [LARGE + 1]


def test_a_repeated_column_takes_no_other_ones_name() -> None:
    table = pd.DataFrame([[1, 2, 3, 4]], columns=["a", "a", "a_2", "A"])
    assert list(sql.schema({"t": table})["column"]) == ["a", "a_3", "a_2", "A_4"]
    assert sql.query("SELECT a, a_2 FROM t", {"t": table}).values.tolist() == [[1, 3]]
