"""A summary of the user's variables keeps to its bytes and its time, and names what it leaves out."""

import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipyagent.kernel.variables import describe, preview, short_types, summarize

SECONDS = 0.2


def timed(namespace: dict[str, Any], **options: Any) -> str:
    start = time.perf_counter()
    text = summarize(namespace, **options)
    assert time.perf_counter() - start < 2 * SECONDS
    assert len(text.encode()) <= options.get("limit", 1500)
    return text


def penguins() -> Any:
    rows = 344
    rng = np.random.default_rng(1)
    length = rng.normal(44, 5, rows)
    length[[3, 271]] = np.nan
    return pd.DataFrame(
        {
            "species": pd.Series(["Adelie", "Gentoo"] * (rows // 2), dtype="str"),
            "island": pd.Series(["Biscoe", "Dream"] * (rows // 2), dtype="str"),
            "bill_length_mm": length,
            "year": np.arange(rows),
        }
    )


def test_a_frame_is_told_by_shape_types_and_missing_values() -> None:
    text = timed({"df": penguins()})
    assert text == "df  DataFrame 344 x 4: species str, island str, bill_length_mm f64 (2 missing), year i64"


def test_frames_come_first_and_the_newest_first_among_equals() -> None:
    def function() -> None: ...

    namespace = {
        "number": 1, "function": function, "items": [1], "array": np.arange(3),
        "old": penguins(), "new": penguins(), "word": "w",
    }
    names = [line.split("  ")[0] for line in timed(namespace).splitlines()]
    assert names == ["new", "old", "array", "items", "function", "word", "number"]


def test_modules_and_the_shells_own_names_are_left_out() -> None:
    own = ["In", "Out", "_", "__", "___", "_i", "_ii", "_iii", "_i1", "_i23", "_12", "_ih", "_oh", "_dh"]
    own += ["exit", "quit"]
    namespace: dict[str, Any] = dict.fromkeys([*own, "get_ipython", "__builtins__", "__name__"], 1)
    namespace |= {"np": np, "mine": 1, "_private": 2, "made": types.ModuleType("made")}
    assert timed(namespace) == "_private  2\nmine  1"
    assert short_types(namespace) == {"mine": "int", "_private": "int"}


def test_hidden_names_are_left_out_until_the_user_rebinds_them() -> None:
    first = object()
    assert summarize({"open": first, "x": 1}, hidden={"open"}) == "x  1"
    assert summarize({"open": first, "x": 1}, hidden={"open": first}) == "x  1"
    assert summarize({"open": 5}, hidden={"open": first}) == "open  5"


def test_an_empty_namespace_gives_an_empty_text() -> None:
    assert summarize({}) == ""
    assert short_types({}) == {}


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 10, 40, 60, 100, 200, 500, 1500, 5000])
def test_the_limit_holds_for_any_number_of_variables(limit: int) -> None:
    for count in (1, 2, 10, 300):
        namespace: dict[str, Any] = {f"变量_{n}": ["😀" * 100] * n for n in range(count)}
        assert len(summarize(namespace, limit=limit).encode()) <= limit
        for value in (namespace, "😀" * 5000, penguins()):
            assert len(describe("名" * 50, value, limit=limit).encode()) <= limit
            assert len(preview(value, limit=limit).encode()) <= limit


def test_what_did_not_fit_is_counted_and_named() -> None:
    text = timed({f"name_{n}": "x" * 200 for n in range(60)})
    *shown, rest = text.splitlines()
    assert rest.startswith(f"… and {60 - len(shown)} more: name_")
    assert len(shown) > 5


def test_without_time_everything_is_still_named() -> None:
    text = summarize({"a": penguins(), "b": 2}, seconds=0.0)
    assert text == "… and 2 more: a, b"


def test_weird_names_are_shown_escaped() -> None:
    text = timed({"变量": 1, "😀": 2, "a\nb": 3, "\x1b[31m": 4, "\ud800": 5, "n" * 500: 6, "é": 7})
    assert "变量  1" in text
    assert "😀  2" in text
    assert "a⏎b  3" in text
    assert "\\ud800  5" in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_names_that_are_not_text_are_left_out() -> None:
    namespace: Any = {1: 2, None: 3, "x": 4}
    assert summarize(namespace) == "x  4"


def test_short_types_of_500_names_cost_milliseconds() -> None:
    frame = penguins()
    kinds: list[Any] = [frame, 1, "s", [1], {"a": 1}, np.arange(3), len, object(), 1.5, frame["year"]]
    namespace = {f"n{n}": kinds[n % 10] for n in range(500)}
    short_types(namespace)
    best = min(elapsed(lambda: short_types(namespace)) for _ in range(5))
    assert best < 0.010
    result = short_types({"df": frame, "s": frame["year"], "f": timed, "one": 1, "a": np.zeros((2, 3))})
    assert result == {
        "df": "DataFrame 344 x 4", "s": "Series i64 344", "f": "function", "one": "int", "a": "ndarray f64 2x3",
    }


def elapsed(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@pytest.mark.parametrize("rows", [0, 1, 50, 5_000])
@pytest.mark.parametrize("columns", [1, 12, 300])
def test_tables_of_any_shape_keep_the_limits(rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((rows, columns)), columns=[f"column {n}" for n in range(columns)])
    frame["text"] = pd.Series(["word"] * rows, dtype=object)
    assert f"DataFrame {rows} x {columns + 1}" in timed({"t": frame})
    assert elapsed(lambda: describe("t", frame)) < 2 * SECONDS


TABLES = Path(__file__).parents[3] / "shared" / "data" / "tables"


@pytest.mark.skipif(not TABLES.is_dir(), reason="the sample tables are not beside this repository")
def test_real_tables_keep_the_limits() -> None:
    namespace: dict[str, Any] = {}
    for path in sorted(TABLES.glob("*.csv")):
        frame = namespace[path.stem] = pd.read_csv(path)
        text = timed({"t": frame})
        assert f"DataFrame {len(frame)} x {len(frame.columns)}" in text
        for at, label in enumerate(frame.columns):
            count = int(frame.iloc[:, at].isna().sum())
            assert not count or f"({count:,} missing)" in text, label
    assert len(namespace) >= 10
    every = timed(namespace)
    assert all(name in every for name in namespace)


def test_summing_up_does_not_change_the_namespace() -> None:
    namespace: dict[str, Any] = {"df": penguins(), "d": {"a": 1}}
    before = json.dumps({name: sys.getrefcount(value) for name, value in namespace.items()})
    copy = namespace["df"].copy()
    timed(namespace)
    assert list(namespace) == ["df", "d"]
    pd.testing.assert_frame_equal(copy, namespace["df"])
    assert json.dumps({name: sys.getrefcount(value) for name, value in namespace.items()}) == before


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(alphabet=st.characters(), max_size=20), VALUES, max_size=8), st.integers(0, 400))
def test_any_values_give_a_bounded_printable_text(namespace: dict[str, Any], limit: int) -> None:
    for text in (summarize(namespace, limit=limit), describe("x", namespace, limit=limit)):
        assert len(text.encode()) <= limit
        assert all(line.isprintable() for line in text.split("\n"))


def test_warnings_of_a_library_neither_show_nor_break_a_look(recwarn: pytest.WarningsRecorder) -> None:
    import warnings

    frame = pd.DataFrame({"a": [np.inf, -np.inf], "b": [np.nan, np.nan]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = list(warnings.filters)
        assert "a f64" in timed({"t": frame})
        assert "no further preview" not in describe("t", frame) + describe("a", frame.to_numpy())
        assert warnings.filters == filters
    assert not recwarn.list
