"""A summary of the user's variables keeps to its bytes and its time, and names what it leaves out."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from preview_checks import timed as timed_call

from ipyagent.kernel.variables import describe, preview, short_types, summarize, survey

SECONDS = 0.2


def timed(namespace: dict[str, Any], **options: Any) -> str:
    text, took = timed_call(lambda: summarize(namespace, **options))
    assert took < 2 * SECONDS
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


def test_a_frame_is_told_by_shape_types_and_missing_values_also_beside_many_single_values() -> None:
    text = timed({"df": penguins()})
    assert text == "df  DataFrame 344 x 4: species str, island str, bill_length_mm f64 (2 missing), year i64"
    namespace: dict[str, Any] = {"df": penguins()} | {f"share_{n}": n / 7 for n in range(80)}
    assert "df  DataFrame 344 x 4: species str, island str" in timed(namespace)


def test_constants_come_first_then_the_largest_tables_models_and_what_was_made_on_the_way() -> None:
    from sklearn.linear_model import LinearRegression

    def function() -> None: ...

    namespace = {
        "number": 1, "function": function, "items": [1], "array": np.arange(3), "RATE": 0.19, "df": penguins(),
        "clean": penguins().dropna(), "model": LinearRegression(), "top": penguins().head(),
        "mask": penguins().year > 9, "new": penguins(), "word": "w",
    }  # fmt: skip
    names = [line.split("  ")[0] for line in timed(namespace).splitlines()]
    kept = ["RATE", "new", "df", "clean", "top", "model", "word", "number", "mask", "array", "items"]
    assert names == [*kept, "functions: function() -> None"]


def test_what_is_no_variable_of_the_user_is_left_out() -> None:
    own = ["In", "Out", "_", "__", "___", "_i", "_ii", "_iii", "_i1", "_i23", "_12", "_ih", "_oh", "_dh"]
    own += ["exit", "quit"]
    namespace: dict[str, Any] = dict.fromkeys([*own, "get_ipython", "__builtins__", "__name__"], 1)
    namespace |= {"np": np, "mine": 1, "_private": 2, "made": types.ModuleType("made")}
    assert timed(namespace) == "_private  2\nmine  1"
    assert short_types(namespace) == {"mine": "int", "_private": "int"}
    first = object()
    assert summarize({"open": first, "x": 1}, hidden={"open"}) == "x  1"
    assert summarize({"open": first, "x": 1}, hidden={"open": first}) == "x  1"
    assert summarize({"open": 5}, hidden={"open": first}) == "open  5"
    assert summarize({}) == ""
    assert short_types({}) == {}
    namespace: Any = {1: 2, None: 3, "x": 4}
    assert summarize(namespace) == "x  4"


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 10, 40, 60, 100, 200, 500, 1500, 5000])
def test_the_limit_holds_for_any_number_of_variables(limit: int) -> None:
    for count in (1, 2, 10, 300):
        namespace: dict[str, Any] = {f"变量_{n}": ["😀" * 100] * n for n in range(count)}
        assert len(summarize(namespace, limit=limit).encode()) <= limit
        for value in (namespace, "😀" * 5000, penguins()):
            assert len(describe("名" * 50, value, limit=limit).encode()) <= limit
            assert len(preview(value, limit=limit).encode()) <= limit


def test_what_did_not_fit_or_had_no_time_is_counted_and_named() -> None:
    text = timed({f"name_{n}": "x" * 200 for n in range(60)})
    *shown, rest = text.splitlines()
    assert rest.startswith(f"… and {60 - len(shown)} more: name_")
    assert len(shown) > 5
    text = summarize({"a": penguins(), "b": 2}, seconds=0.0)
    assert text == "… and 2 more: b, a"


def test_weird_names_are_shown_escaped() -> None:
    text = timed({"变量": 1, "😀": 2, "a\nb": 3, "\x1b[31m": 4, "\ud800": 5, "n" * 500: 6, "é": 7})
    assert "变量  1" in text
    assert "😀  2" in text
    assert "a⏎b  3" in text
    assert "\\ud800  5" in text
    assert all(line.isprintable() for line in text.split("\n"))


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
    return timed_call(call)[1]


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


@settings(max_examples=40, deadline=None)
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


# ------------------------------------------------------------------ changes only


def cells(*sources: str) -> dict[str, Any]:
    """A namespace in which these cells ran."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    run_in(namespace, *sources)
    return namespace


def run_in(namespace: dict[str, Any], *sources: str) -> None:
    for source in sources:
        exec(compile(source, "<cell>", "exec"), namespace)


def test_only_what_is_new_changed_or_gone_is_told_again() -> None:
    namespace = cells("import pandas as pd\nRATE = 1.19\nname = 'a'")
    run_in(namespace, "df = pd.DataFrame({'x': [1, 2]})\ndef f(a, b=2): ...")
    text, told = survey(namespace, None)
    assert text == "RATE  1.19\ndf  DataFrame 2 x 1: x i64\nname  'a'\nfunctions: f(a, b=2)"
    assert survey(namespace, told)[0] == ""
    run_in(namespace, "RATE = 1.07\ndel name\ndef g(): ...\ndef f(a): return a\nnew = [1]")
    text, told = survey(namespace, told)
    assert text.splitlines() == [
        "changed: RATE  1.07", "new: new  list 1 of int: [1]", "changed functions: f(a)",
        "new functions: g()", "gone: name",
    ]
    assert survey(namespace, told) == ("", told)
    assert told.names == {"RATE", "df", "new"}


TIMES = "import pandas as pd\ntimes = pd.date_range('2026-10-25', periods=9, freq='h', tz='Europe/Berlin')\n"
IN_PLACE = {
    "frame": ("import pandas as pd\nv = pd.DataFrame({'x': range(1000), 't': ['a'] * 1000})", "v.loc[500, 'x'] = 7"),
    "text in a frame": ("import pandas as pd\nv = pd.DataFrame({'t': ['a'] * 1000})", "v.loc[500, 't'] = 'b'"),
    "object column": ("import pandas as pd\nv = pd.DataFrame({'t': [[1], 2.5, 'a']})", "v['t'][0].append(2)"),
    "index": ("import pandas as pd\nv = pd.DataFrame({'x': [1, 2]})", "v.index = [5, 6]"),
    "categories": ("import pandas as pd\nv = pd.Series(list('aab'), dtype='category')", "v[0] = 'b'"),
    "series": ("import pandas as pd\nv = pd.Series([1.5, 2, 3])", "v.iloc[1] = 2.5"),
    "time zone": (TIMES + "v = pd.DataFrame({'t': times})", "v.loc[3, 't'] += pd.Timedelta(1, 'us')"),
    "plain times": (TIMES + "v = pd.DataFrame({'t': times.tz_localize(None)})", "v.loc[3, 't'] = pd.NaT"),
    "periods": (TIMES + "v = pd.DataFrame({'t': times.tz_localize(None).to_period('h')})", "v.loc[3, 't'] += 1"),
    "intervals": ("import pandas as pd\nv = pd.Series(pd.interval_range(0, 9))", "v[3] = pd.Interval(0, 2)"),
    "nullable": ("import pandas as pd\nv = pd.DataFrame({'n': pd.array([1, 2, None])})", "v.loc[2, 'n'] = 1"),
    "arrow": (TIMES + "v = pd.DataFrame({'t': times.astype('timestamp[us, UTC][pyarrow]')})", "v.loc[3, 't'] = None"),
    "index of times": (TIMES + "v = pd.DataFrame({'x': range(9)}, index=times)", "v.index = v.index[::-1]"),
    "multiindex": (TIMES + "v = pd.Series(range(9), [list('aabbccddd'), times])", "v.index = v.index[::-1]"),
    "name of the index": ("import pandas as pd\nv = pd.DataFrame({'x': [1, 2]})", "v.index.name = 'n'"),
    "polars": ("import polars as pl\nv = pl.DataFrame({'x': [1, 2]})", "v[0, 'x'] = 9"),
    "array": ("import numpy as np\nv = np.zeros((300, 300))", "v[150, 150] = 1"),
    "list": ("v = list(range(500))", "v[400] = -1"),
    "long list": ("v = list(range(100_000))", "v[-1] = -1"),
    "nested": ("v = {'a': [{'b': [1, 2]}]}", "v['a'][0]['b'].append(3)"),
    "set": ("v = {1, 2}", "v.add(3)"),
    "own object": ("class C: pass\nv = C()\nv.items = [1]", "v.items.append(2)"),
    "function": ("def v(): return 1", "def v(): return 2"),
}


def test_a_change_in_place_is_told_and_a_cell_that_makes_the_same_again_changes_nothing() -> None:
    for sort, (before, change) in IN_PLACE.items():
        namespace = cells(before)
        _, told = survey(namespace, None, seconds=5)
        assert survey(namespace, told, seconds=5)[0] == "", sort
        if sort != "own object":
            run_in(namespace, before)
            text, told = survey(namespace, told, seconds=5)  # the change is one of the object that is told now
            assert text == "", sort
        run_in(namespace, change)
        text, told = survey(namespace, told, seconds=5)
        assert text.startswith("changed functions: v" if sort == "function" else "changed: v  "), sort
        assert survey(namespace, told, seconds=5)[0] == "", sort


def test_what_cannot_be_compared_runs_no_code_and_is_told_when_it_is_another_object() -> None:
    namespace = cells(
        "class Evil(list):\n    def __eq__(self, other): raise SystemExit\n    def __hash__(self): raise SystemExit\n"
        "    def __iter__(self): raise SystemExit\nv = Evil([1, 2])\nw = {'inside': Evil()}"
    )
    _, told = survey(namespace, None)
    assert survey(namespace, told)[0] == ""
    run_in(namespace, "v = Evil([1, 2])")
    assert survey(namespace, told)[0].startswith("changed: v  ")


def test_what_there_was_no_time_to_compare_keeps_what_was_known_and_is_never_called_changed() -> None:
    namespace = cells("import pandas as pd\ndf = pd.DataFrame({'x': [1, 2]})\nn = [1]")
    _, first = survey(namespace, None, seconds=5)
    run_in(namespace, "df.loc[0, 'x'] = 7\nnew = 1")
    text, told = survey(namespace, first, seconds=0.0)
    assert text == "… and 1 more new: new\nmay have changed (too little time to compare): df, n"
    assert survey(namespace, told, seconds=0.0)[0] == "may have changed (too little time to compare): new"
    text, told = survey(namespace, told, seconds=5)
    assert text == "changed: df  DataFrame 2 x 1: x i64\nmay have changed (too little time to compare): new"
    assert survey(namespace, told, seconds=5)[0] == ""
    run_in(namespace, "n[0] = 2")  # of it and of `new` it was said, and they were compared since
    text, told = survey(namespace, told, seconds=0.0)
    assert text == "may have changed (too little time to compare): df"
    assert survey(namespace, told, seconds=0.0)[0] == ""
    assert survey(namespace, told, seconds=5)[0] == "changed: n  list 1 of int: [2]"
    _, told = survey({name: value for name, value in namespace.items() if name != "n"}, told, seconds=5)
    _, told = survey(namespace, told, seconds=5)
    assert survey(namespace, told, seconds=0.0)[0] == "may have changed (too little time to compare): n"
    namespace["n"] = {1: 2}  # its type is told in no time
    assert "… and 1 more changed: n\n" in survey(namespace, first, seconds=0.0)[0]
    _, told = survey(namespace, None, seconds=0.0)
    text, told = survey(namespace, told, seconds=5)
    assert text == "may have changed (too little time to compare): df, n, new"
    assert survey(namespace, told, seconds=5)[0] == ""


def test_comparing_a_table_takes_no_longer_than_reading_as_many_texts_and_takes_no_column_apart() -> None:
    rows = 5_000
    times = pd.date_range("2026-01-01", periods=rows, freq="h", tz="Europe/Berlin")
    texts = pd.DataFrame({"t": pd.Series([f"text {n}" for n in range(rows)], dtype=object)})
    wide = pd.DataFrame(np.zeros((5, 900))).assign(word="w")

    def took(table: Any) -> float:
        _, told = survey({"t": table}, None, seconds=5)
        return min(elapsed(lambda: survey({"t": table}, told, seconds=5)) for _ in range(5))

    limit = took(texts)
    for values in (
        times, times.tz_localize(None).to_period("h"), pd.interval_range(0, rows), pd.array(range(rows), dtype="Int64"),
        pd.arrays.SparseArray([0, 1] * (rows // 2)), times.astype("timestamp[us, UTC][pyarrow]"),
    ):  # fmt: skip
        assert took(pd.DataFrame({"t": values})) < 2 * limit, values
    assert took(pd.DataFrame({"t": 1}, index=pd.MultiIndex.from_arrays([texts["t"], times]))) < 3 * limit
    assert took(wide) < min(elapsed(lambda: [wide.iloc[:, at] for at in range(901)]) for _ in range(5))


def test_imported_names_are_never_told() -> None:
    sources = [
        "import math, json as j\nfrom math import pi, sqrt\nfrom collections import (OrderedDict,\n    Counter as C)",
        "from string import ascii_letters, digits as d\nfrom functools import lru_cache, partial\nimport numpy as np",
        "from numpy import sin\nmine = 3\ntau = 6.5\ndigits = 'my own'",
        "@lru_cache\ndef slow(n): ...\nclass Own: ...\nshort = partial(slow, 1)\nlog = print",
    ]
    namespace = cells(*sources)
    assert summarize(namespace, inputs=sources).splitlines() == [
        "digits  'my own'", "tau  6.5", "mine  3", "functions: slow, short", "classes: Own",
    ]


def test_constants_are_never_dropped_first_and_what_is_left_out_is_counted() -> None:
    namespace: dict[str, Any] = {f"CONSTANT_{n}": n for n in range(15)}
    namespace |= {f"list_{n}": list(range(1000)) for n in range(60)} | {"df": penguins()}
    text = timed(namespace)
    assert all(f"CONSTANT_{n}  {n}\n" in text for n in range(15))
    assert "df  DataFrame 344 x 4" in text
    *_, last = text.splitlines()
    shown = sum(line.startswith("list_") for line in text.splitlines())
    assert last.startswith(f"… and {60 - shown} more: list_")


@pytest.mark.parametrize("limit", [0, 10, 60, 200, 1500])
def test_changes_keep_the_limit_too(limit: int) -> None:
    namespace: dict[str, Any] = {f"old_{n}": n for n in range(300)}
    _, told = survey(namespace, None)
    changed = {f"old_{n}": "text " * 50 for n in range(200)} | {f"new_{n}": [n] for n in range(100)}
    assert len(survey(changed, told, limit=limit)[0].encode()) <= max(limit, 310)


def test_a_long_session_of_large_tables_is_compared_within_its_time() -> None:
    rows = 2_000_000
    namespace: dict[str, Any] = {f"t{n}": pd.DataFrame({"x": np.arange(rows), "y": np.ones(rows)}) for n in range(4)}
    _, told = survey(namespace, None)
    assert elapsed(lambda: survey(namespace, told)) < 1.5


def test_a_list_has_a_short_line_beside_others_and_what_a_loop_left_has_none() -> None:
    told = summarize({"weights": [number * 37 % 101 for number in range(400)], "LIMIT": 30, "i": 399, "k": "last"})
    assert [line.split()[0] for line in told.splitlines()] == ["LIMIT", "weights"]
    assert max(len(line.encode()) for line in told.splitlines()) <= 160
    assert "400" in told
