"""Scripts of the bundled skills that read, clean, join and query tables: right on plain ones, whole on hostile ones."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
from bundled_room import clean, hostile, join, large, model, profile, series, sql, tests

HOSTILE = hostile()


def test_any_table_is_profiled_and_left_as_it_was() -> None:
    for odd in HOSTILE:
        table = HOSTILE[odd]
        before = table.copy(deep=True)
        found = profile.profile(table)
        assert (found.rows, found.width) == table.shape, odd
        assert len(found.columns) == table.shape[1], odd
        assert str(found), odd
        pd.testing.assert_frame_equal(table, before)


def test_a_profile_names_what_is_odd() -> None:
    rows = 200
    table = pd.DataFrame({
        "empty": [None] * rows, "code": [-999] * 4 + list(range(50, 50 + rows - 4)), "one": 1,
        "text": ["1,200"] * 150 + ["N/A"] * 50, "case": ["Oslo", "oslo"] * 100, "day": ["2024-01-02"] * rows,
        "mixed": [1, "x"] * 100,
    })  # fmt: skip
    table = pd.concat([table, table.iloc[[7]]], ignore_index=True)
    told = "\n".join(profile.profile(table).warnings)
    for wanted in ("3 rows repeat", "empty: every value is missing", "code: 4 × -999", "text: numbers kept as text",
                   "written as text ('n/a')", "case: values that differ in case", "day: dates kept as text",
                   "mixed: mixed types (int, str)", "one: one value only"):  # fmt: skip
        assert wanted in told
    plain = pd.DataFrame({"a": [1.0, 2.0, 3.5], "b": ["x", "y", "z"]})
    assert profile.profile(plain).warnings == ()


def test_any_table_is_cleaned_and_left_as_it_was() -> None:
    for odd in HOSTILE:
        table = HOSTILE[odd]
        before = table.copy(deep=True)
        named, _ = clean.clean_names(table)
        assert named.columns.is_unique, odd
        blanked, _ = clean.blank_placeholders(table)
        assert blanked.shape == table.shape, odd
        assert list(blanked.index) == list(table.index), odd
        for at in range(table.shape[1]):
            got = clean.numbers_from_text(table.iloc[:, at].astype(object))
            assert len(got.values) == len(table), odd
            clean.spellings(table.iloc[:, at])
        pd.testing.assert_frame_equal(table, before)


def test_names_stay_unique_and_readable() -> None:
    table = pd.DataFrame([[1] * 6], columns=["Größe (m)", "grösse m", "A", "a", "", "a 2"])
    named, renamed = clean.clean_names(table)
    assert list(named.columns)[:5] == ["grösse_m", "grösse_m_2", "a", "a_2", "column_5"]
    assert named.columns.is_unique
    assert renamed[0] == ("Größe (m)", "grösse_m")


def test_numbers_are_read_and_the_rest_is_listed() -> None:
    read = clean.numbers_from_text
    got = read(pd.Series(["$1,234.50", "(12)", "12%", "−3", "1 234", "1,23", "5 kg", None, 7], index=list("abcdefghi")))
    assert got.values.dropna().to_dict() == {"a": 1234.5, "b": -12, "c": 0.12, "d": -3, "e": 1234, "i": 7}
    assert dict(got.unread) == {"1,23": 1, "5 kg": 1}
    assert got.rate == pytest.approx(6 / 8)
    assert list(read(pd.Series(["1.234,5", "0,5"]), decimal=",").values) == [1234.5, 0.5]
    with pytest.raises(ValueError, match="decimal"):
        read(pd.Series(["1"]), decimal=";")


def test_dates_are_never_guessed() -> None:
    values = pd.Series(["03/04/2021", "31/01/2021", "2021-05-06", "soon", None])
    got = clean.dates_from_text(values, ["%d/%m/%Y", "%Y-%m-%d"])
    assert list(got.values.dropna()) == [pd.Timestamp(2021, 4, 3), pd.Timestamp(2021, 1, 31), pd.Timestamp(2021, 5, 6)]
    assert dict(got.unread) == {"soon": 1}
    assert clean.ambiguous_dates(values) == (1, 0, 1)
    clocks = pd.Series(["2024-03-31 02:30", "2024-10-27 02:30", "2024-07-01 12:00"])
    local = clean.dates_from_text(clocks, ["%Y-%m-%d %H:%M"], tz="Europe/Berlin")
    assert list(local.values.isna()) == [True, True, False]
    assert str(local.values.dt.tz) == "Europe/Berlin"


def test_placeholders_go_but_not_where_they_are_answers() -> None:
    table = pd.DataFrame({"a": [" x ", "N/A", "?"], "garden": ["none", "big", "none"]})
    got, told = clean.blank_placeholders(table, keep=["garden"])
    assert got["a"].isna().sum() == 2
    assert got["a"][0] == "x"
    assert list(got["garden"]) == ["none", "big", "none"]
    assert told["count"].sum() == 2
    assert set(clean.spellings(pd.Series(["Oslo", "oslo ", "Bern"]))["value"]) == {"Oslo", "oslo "}


def test_a_join_that_would_multiply_rows_is_refused() -> None:
    left = pd.DataFrame({"k": ["a", "b", None, "c"], "v": [1, 2, 3, 4]})
    right = pd.DataFrame({"k": ["a", "a", "b", None], "w": [1, 2, 3, 4]})
    report = join.key_report(left, right, "k")
    assert (report.left_only, report.right_only, report.inner_rows) == (2, 1, 3)
    assert len(join.checked_join(left, right, "k", how="inner", expect="1:m")) == report.inner_rows
    with pytest.raises(ValueError, match="repeat on the right"):
        join.checked_join(left, right, "k")
    outer = join.checked_join(left, right, "k", how="outer", expect="1:m")
    assert dict(outer["_merge"].value_counts()) == {"both": 3, "left_only": 2, "right_only": 1}
    with pytest.raises(ValueError, match="until they agree"):
        join.checked_join(left, right.assign(k=[1, 2, 3, 4]), "k", expect="m:m")
    with pytest.raises(KeyError, match="no column 'x'"):
        join.key_report(left, right, "x")
    with pytest.raises(ValueError, match="2 columns 'a'"):
        join.key_report(HOSTILE["repeated names"], left.rename(columns={"k": "a"}), "a")
    assert "case and blanks" in str(join.key_report(pd.DataFrame({"k": ["A "]}), pd.DataFrame({"k": ["a"]}), "k"))
    empty = left.iloc[:0]
    assert len(join.checked_join(empty, right, "k", expect="m:m")) == 0


def test_reconciling_finds_each_difference_once() -> None:
    old = pd.DataFrame({"k": [1, 2, 3], "名": ["x", "y", None], "v": [1.0, np.nan, 3.0]})
    new = pd.DataFrame({"k": [1, 2, 4], "名": ["x", "z", None], "v": [1.001, 2.0, 3.0]})
    found = join.reconcile(old, new, "k", tolerance=0.01)
    assert list(zip(found["k"], found["column"], found["what"], strict=True)) == [
        (2, "名", "value"), (2, "v", "value"), (3, "", "left only"), (4, "", "right only"),
    ]  # fmt: skip
    assert join.reconcile(old, old, "k").empty
    with pytest.raises(ValueError, match="repeat or are missing"):
        join.reconcile(pd.concat([old, old]), new, "k")
    old, new = old.assign(名=["x", "y", "?"]), new.assign(名=["x", "z", "?"])
    two = join.reconcile(old, new, ["k", "名"], columns=["v"], tolerance=0.01)
    assert dict(two["what"].value_counts()) == {"left only": 2, "right only": 2}


@pytest.mark.parametrize("odd", [name for name, table in HOSTILE.items() if table.shape[1]])
def test_any_table_can_be_queried(odd: str) -> None:
    table = HOSTILE[odd]
    got = sql.query('SELECT * FROM "t"', {"t": table})
    assert got.shape == table.shape
    assert list(got.columns) == list(sql.schema({"t": table})["column"])


def test_sql_reads_only_and_takes_values_as_parameters() -> None:
    table = pd.DataFrame({"a": [1, 2, 3], "naïve name": ["x", "it's", None]})
    got = sql.query('SELECT a FROM t WHERE "naïve name" = :wanted', {"t": table}, {"wanted": "it's"})
    assert got["a"].tolist() == [2]
    for bad in ("DROP TABLE t", "DELETE FROM t", "ATTACH 'x.db' AS x", "PRAGMA writable_schema = 1",
                "SELECT 1; SELECT 2", "SELECT nothing FROM t", "SELECT load_extension('x')", ""):  # fmt: skip
        with pytest.raises(ValueError):
            sql.query(bad, {"t": table})
    with pytest.raises(ValueError, match="more than 2 rows"):
        sql.query("SELECT a FROM t", {"t": table}, most=2)
    assert "SCAN t" in sql.plan("SELECT a FROM t WHERE a > 1", {"t": table})
    wide = pd.DataFrame(np.full((2, 1_500), np.inf))
    assert sql.query("SELECT * FROM w", {"w": wide}).shape == (2, 1_500)
    with pytest.raises(ValueError, match="select some first"):
        sql.query("SELECT * FROM w", {"w": pd.DataFrame(np.zeros((1, 2_001)))})
    times = sql.query("SELECT min(t) AS t FROM z", {"z": HOSTILE["zones"]})
    assert times["t"][0] == "2024-03-29 23:00:00+00:00"


def test_duckdb_answers_the_same_or_says_what_to_install() -> None:
    table = pd.DataFrame({"a": [1, 2, 3]})
    try:
        import duckdb  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install duckdb"):
            sql.query("SELECT sum(a) AS s FROM t", {"t": table}, engine="duckdb")
        return
    assert int(sql.query("SELECT sum(a) AS s FROM t", {"t": table}, engine="duckdb")["s"][0]) == 6


@pytest.mark.slow
def test_three_times_the_rows_take_about_three_times_as_long() -> None:
    steps = {
        "profile": lambda table: profile.profile(table),
        "placeholders": lambda table: clean.blank_placeholders(table),
        "numbers": lambda table: clean.numbers_from_text(table["price"]),
        "join": lambda table: join.checked_join(table, table[["id", "value"]], "id", expect="1:1"),
        "reconcile": lambda table: join.reconcile(table, table, "id"),
        "sql": lambda table: sql.query("SELECT city, avg(value) FROM t GROUP BY 1", {"t": table}),
        "compare": lambda table: tests.compare(table, "value", "arm"),
        "associate": lambda table: tests.associate(table, "arm", "city"),
        "suspects": lambda table: model.suspects(table, "arm"),
        "times": lambda table: series.check_times(table["when"]),
    }
    tables = [large(rows) for rows in (1_000, 101_000, 303_000)]  # up to 100,000 a difference is tried by shuffling
    for name, work in steps.items():
        spent = []
        for table in tables:  # with the first it imports
            runs = []
            for _ in range(2):
                began = time.process_time()
                work(table)
                runs.append(time.process_time() - began)
            spent.append(min(runs))
        assert spent[2] < 5 * spent[1] + 0.1, (name, spent)
