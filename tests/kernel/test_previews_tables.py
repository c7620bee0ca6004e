"""Tables and arrays are told by shape, types and missing values; what is sampled is said to be."""

import datetime
import functools
import pathlib
import re
import sys
import types
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from preview_checks import shown

from ipyagent.kernel.previews import numbers_in_text
from ipyagent.kernel.variables import describe, summarize, survey

# ------------------------------------------------------------------ tables


@functools.cache
def million() -> Any:
    rng = np.random.default_rng(0)
    rows = 1_000_000
    frame = {f"f{n}": rng.random(rows) for n in range(10)}
    frame["f3"][::7] = np.nan
    for n in range(4):
        frame[f"i{n}"] = rng.integers(0, 100, rows)
    words = np.array(["alpha", "beta", None], dtype=object)[rng.integers(0, 3, rows)]
    table = pd.DataFrame(frame)
    for n in range(3):
        table[f"o{n}"] = pd.Series(words, dtype=object)
    for n in range(2):
        table[f"s{n}"] = pd.Series(words, dtype="str")
    table["when"] = pd.date_range("2020", periods=rows, freq="s", tz="UTC")
    return table


def test_a_million_rows_are_sampled_and_out_of_time_no_count_is_claimed() -> None:
    text = shown(million())
    assert "DataFrame 1000000 x 20 (missing sampled): f0 f64" in text
    assert "f3 f64 (142,858 missing)" in text
    assert re.search(r"o0 obj \(~\d+% missing\)", text)
    assert not re.search(r"o0 obj \([\d,]+ missing\)", text)
    text = describe("t", million(), seconds=0.0)
    assert "DataFrame 1000000 x 20" in text
    assert not re.search(r"[\d,]+ missing", text)
    assert len(describe("t", million(), seconds=0.0, limit=50).encode()) <= 50


def test_rows_of_times_and_of_several_levels_are_told_apart() -> None:
    times = pd.date_range("2026-10-25", periods=9, freq="h", tz="Europe/Berlin")
    text = describe("t", pd.DataFrame({"x": range(9)}, index=times))
    assert ", 2026-10-25 00:00:00+02:00 to 2026-10-25 07:00:00+01:00\n" in text.split("  x:")[0]
    assert "  [2026-10-25 00:00:00+02:00] 0\n  [2026-10-25 01:00:00+02:00] 1\n" in text
    levels = pd.MultiIndex.from_tuples([("Brooklyn", "Boutique hotel"), ("Brooklyn", "Chain")], names=["city", "sort"])
    columns = pd.MultiIndex.from_product([["mean", "median"], ["star_rating"]])
    text = describe("t", pd.DataFrame([[1, 2], [3, 4]], index=levels, columns=columns))
    assert "rows (first, last): ('mean', 'star_rating') | ('median', 'star_rating')\n" in text
    assert "  [('Brooklyn', 'Boutique hotel')] 1 | 2\n  [('Brooklyn', 'Chain')] 3 | 4" in text
    series = describe("s", pd.Series([1.0, 2.0], times[:2], name="x"))
    assert "  [2026-10-25 01:00:00+02:00] 2" in series
    assert series.count("1 to 2") == 1


def test_a_column_is_told_by_what_it_is_called_and_holds() -> None:
    columns: dict[Any, Any] = {
        " DIR": [1, 2], "": [None, None], 3: [1.5, 2.5], "3": ["x", "y"], "none": [np.nan] * 2, "t": [(1,), (1, 2)],
        "o": pd.Categorical(["a", "b"], ["c", "b", "a"], ordered=True), "pin code ": ["wert1234", "wert5678"],
        "password ": ["wert1234", "wert5678"],
    }  # fmt: skip
    text = describe("t", pd.DataFrame(columns))
    for told in (
        "  ' DIR': i64", "  '': obj, all 2 missing\n", "  3: f64, 1.5", "  '3': str", "  none: f64, all 2 missing\n",
        "(1,), (1, 2)", "  o: cat(3, ordered): 'c' < 'b' < 'a'\n", "  'password ': str, values […masked]",
        "\nrows (first, last): ' DIR' | '' | 3 | '3' | none | ",
    ):  # fmt: skip
        assert told in text
    assert " ' DIR' i64, '' obj (2 missing), 3 f64, '3' str," in shown(pd.DataFrame(columns))
    assert " ' DIR' i64, '3' str" in shown(pl.DataFrame({" DIR": [1], "3": ["x"]}))
    rows = 2_500_000  # counted in a sample
    assert "(~100% missing)" in shown(pd.DataFrame({"x": np.full(rows, np.nan), "y": np.zeros(rows)}))
    assert "……" not in "".join(describe("t", pd.DataFrame(columns), limit=limit) for limit in range(100, 700))


def test_a_time_zone_or_an_index_of_the_users_is_not_asked() -> None:
    asked: list[str] = []

    class Zone(datetime.tzinfo):
        def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
            asked.append("utcoffset")
            return datetime.timedelta(hours=1)

        dst = utcoffset

        def __str__(self) -> str:
            return str(self.utcoffset(None))

        __repr__ = __str__

    times = pd.DatetimeIndex(["2026-10-25", "2026-10-26", "2026-10-27"], tz=Zone())
    days = pd.IntervalIndex.from_breaks(times)
    levels = pd.MultiIndex.from_arrays([["a", "b"], times[:2]])
    labels = {"times": times[:2], "days": days, "both": levels, "kinds": pd.CategoricalIndex(times[:2])}
    values: dict[str, Any] = labels | {
        "one": times[0], "day": days[0], "days_listed": list(days), "cat": pd.Categorical(times), "array": days.array,
        "objects": pd.DataFrame({"day": pd.Series(list(days), dtype=object)}),
    }  # fmt: skip
    for name, index in labels.items():
        values[f"rows_{name}"] = pd.DataFrame({"x": [1, 2]}, index=index)
        values[f"columns_{name}"] = pd.DataFrame([[1, 2]], columns=index)
        if name != "both":
            values |= {f"in_{name}": pd.DataFrame({"x": index}), f"series_{name}": pd.Series(index)}
    values["ordered"] = pd.Series(pd.Categorical(times, ordered=True))
    asked.clear()
    text = summarize(values, limit=9_000, seconds=5)
    text += "".join(describe(name, value, seconds=5) for name, value in values.items())
    _, told = survey(values, None, seconds=5)
    assert survey(values, told, seconds=5)[0] == ""
    assert asked == []
    assert "no preview" not in text
    assert "no further preview" not in text
    assert "indexed by dt64[us, a Zone]" in text
    moment = "2026-10-2{}T23:00:00.000000 UTC (time zone: a Zone, not asked)".format
    assert f"Timestamp {moment(4)}" in text
    assert f"Interval ({moment(4)}, {moment(5)}]" in text
    for name, what in (("times", "dt64[us, a Zone]"), ("days", "interval dt64[us, a Zone]"), ("kinds", "cat(2)")):
        head = f"columns_{name}  DataFrame 1 x 2 (columns by position, labels {what} not asked)"
        assert f"{head}: 0 i64, 1 i64\n" in text
        assert f"{head}\n  0: i64, 1 to 1, mean 1\n" in text
    assert list(values["columns_days"].columns) == list(days)

    class Own(pd.Index):
        @property
        def names(self) -> Any:
            asked.append("names")
            return super().names

        array = names

    frame = pd.DataFrame({"x": [1, 2]})
    frame._mgr.axes[1] = Own._simple_new(np.array([5, 6]))
    assert type(frame.index) is Own
    asked.clear()
    survey({"frame": frame}, survey({"frame": frame}, None, seconds=5)[1], seconds=5)
    assert asked == []


def test_small_tables_of_pandas_polars_and_arrow_are_counted_exactly() -> None:
    frame = pd.DataFrame({"a": [1.0, None, None], "b": pd.Series(["x", None, "y"], dtype=object), "c": [1, 2, 3]})
    text = shown(frame)
    assert "DataFrame 3 x 3: a f64 (2 missing), b obj (1 missing), c i64" in text
    assert "~" not in text
    frame = pl.DataFrame({"a": [1, 2, None], "b": ["x", "y", "z"]})
    text = shown(frame)
    assert "polars DataFrame 3 x 2: a i64 (1 null), b str" in text
    assert "[2] None | 'z'" in text
    assert "polars Series i64 3 a (1 null): 1 to 2, mean 1.5" in shown(frame["a"])
    assert "pyarrow Table 3 x 2" in shown(frame.to_arrow())
    thing = object()
    assert "Object" in shown(pl.DataFrame({"o": pl.Series([thing, thing], dtype=pl.Object)}))
    assert "polars DataFrame 1000000 x 1" in shown(pl.DataFrame({"n": range(1_000_000)}))


def test_wide_tables_name_how_many_columns_are_left() -> None:
    wide = pd.DataFrame(np.zeros((50, 1700)), columns=[f"column_{n}" for n in range(1700)])
    assert re.search(r"column_0 f64, .*… 1,\d\d\d more", shown(wide))
    for frame in (wide, pl.from_pandas(wide)):
        texts = [describe("t", frame[list(wide.columns[:n])]) for n in range(20, 45)]
        counts = {count for text in texts for count in re.findall(r"(\S+ more columns?): ", text)}
        assert {"1 more column", "2 more columns"} < counts


def test_odd_column_names_and_multiindexes_are_shown_and_long_cells_cut() -> None:
    class Label:
        def __repr__(self) -> str:
            raise AssertionError("repr")

    frame = pd.DataFrame([[1, 2, 3, 4, 5, 6, 7]])
    frame.columns = pd.Index(["a", "a", 3, None, (1, 2), "x\ny\x1b[31m", Label()], dtype=object)
    text = shown(frame)
    assert "a i64, a i64, 3 i64, None i64, (1, 2) i64" in text
    assert "x⏎y\\x1b[31m" in text
    frame = pd.DataFrame(
        np.ones((4, 4)),
        index=pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["letter", "number"]),
        columns=pd.MultiIndex.from_product([["x", "y"], [1, 2]]),
    )
    text = shown(frame)
    assert "indexed by (letter, number): ('x', 1) f64" in text
    assert "[('a', 1)]" in text
    frame = pd.DataFrame({"text": ["lorem ipsum " * 4200] * 200})
    assert "text str" in shown(frame)


def test_frames_within_frames_and_dicts_are_short() -> None:
    inner = pd.DataFrame({"q": [1, 2]})
    outer = pd.DataFrame({"cell": [inner, 1]})
    assert "DataFrame 2 x 1" in shown(outer)
    assert "'first': DataFrame 2 x 1: q i64" in shown({"first": inner, "second": outer})


def test_column_types_of_every_kind_are_read() -> None:
    frame = pd.DataFrame(
        {
            "cat": pd.Categorical(["a", "b", None]),
            "when": pd.to_datetime(["2024-01-01", None, "2024-01-03"], utc=True),
            "span": pd.to_timedelta([1, 2, None], "s"),
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "flag": [True, False, True],
            "period": pd.period_range("2024", periods=3, freq="M"),
            "interval": pd.interval_range(0, 3),
            "sparse": pd.arrays.SparseArray([0, 0, 1]),
            "complex": [1j, 2j, 3j],
            "inf": [np.inf, -np.inf, np.nan],
        }
    )
    text = shown(frame)
    for word in ("cat cat(2) (1 missing)", "when dt64[", "whole Int64 (1 missing)", "flag bool", "no further preview"):
        assert (word in text) is (word != "no further preview")
    assert "no preview" not in text
    assert "no preview" not in shown(frame.iloc[:0])
    assert "no preview" not in shown(pd.DataFrame())


def test_series_indexes_and_categories_are_shown() -> None:
    assert "Series f64 3 length (1 missing): 1 to 2, mean 1.5" in shown(pd.Series([1, 2, None], name="length"))
    assert "Index 2 str: 'a', 'b'" in shown(pd.Index(["a", "b"]))
    assert "DatetimeIndex" in shown(pd.date_range("2024", periods=1000))
    assert "RangeIndex 1000000" in shown(pd.RangeIndex(1_000_000))
    assert "MultiIndex 4" in shown(pd.MultiIndex.from_product([[1, 2], [3, 4]]))
    assert "Categorical 2 cat(2)" in shown(pd.Categorical(["a", "b"]))
    assert "Timestamp 2024-01-01 00:00:00+00:00" in shown(pd.Timestamp("2024-01-01", tz="UTC"))
    shown(pd.NaT)
    shown(pd.NA)


def test_an_extension_type_of_the_user_is_named_and_not_read() -> None:
    from pandas.api.extensions import ExtensionDtype

    class Money(ExtensionDtype):  # type: ignore[misc]
        name = "money"
        type = float

        def __str__(self) -> str:
            raise AssertionError("asked")

    from ipyagent.kernel.previews.pandas_tables import dtype_word

    assert dtype_word(Money()) == "Money"


def test_truth_values_are_counted() -> None:
    values = [True, False, None] * 4
    for dtype in ("boolean", "bool[pyarrow]"):
        frame = pd.DataFrame({"on": pd.Series(values, dtype=dtype)})
        assert ": bool" in (text := describe("t", frame))
        assert ", 4 missing, 4 True, 4 False\n" in text
        assert "(4 missing): 4 True, 4 False" in shown(frame["on"])
    plain = pd.Series([True, False, False], name="alone")
    assert "Series bool 3 alone: 1 True, 2 False" in shown(plain)
    assert "  alone: bool, 1 True, 2 False\n" in describe("t", plain.to_frame())
    assert "on: bool, ~50% True" in describe("t", pd.DataFrame({"on": np.arange(6_000_000) % 2 == 0}))
    table = pl.DataFrame({"on": values})
    for each in (table, table.to_arrow()):
        assert "  on: bool, 4 null, 4 True, 4 False\n" in describe("t", each)
    assert "polars Series bool 12 on (4 null): 4 True, 4 False" in shown(table["on"])


# ------------------------------------------------------------------ arrays


def test_a_mapped_array_is_not_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(8 * 500_000_000)
    mapped = np.memmap(path, dtype="f8", mode="r", shape=(500_000, 1000))
    assert "memmap f64 500000x1000 memory-mapped, not read: 0, 0, 0" in shown(mapped)
    assert "memory-mapped, not read" in shown(np.asarray(mapped)[10:])
    assert "mean" not in describe("m", mapped)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_arrays_of_every_kind_are_shown() -> None:
    assert "ndarray f64 3x4" in shown(np.arange(12.0).reshape(3, 4))
    assert "min 0, max 11, mean 5.5" in shown(np.arange(12.0).reshape(3, 4))
    assert "~min 0, max" in shown(np.arange(4_000_000.0).reshape(2000, 2000))
    assert "ndarray obj 3: 1, 'a', None" in shown(np.array([1, "a", None], dtype=object))
    assert "struct(a i32, b f64)" in shown(np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]))
    for value in (
        np.float64(1.5), np.array(3), np.zeros((0, 5)), np.zeros((2, 3, 4, 5)),
        np.ma.masked_array([1, 2], [True, False]),
        np.array(["a", "b"]), np.array([np.nan, np.nan]), np.array(["2024-01-01"], dtype="M8[D]"), np.matrix([[1]]),
        np.zeros(1, dtype=[("a", "O")])[0], np.dtype("f8"), np.random.default_rng(0), np.sin, np.array([1 + 2j]),
        np.array([True, False]), np.float32(2), np.bool_(True), np.str_("x"), np.zeros(3, dtype="f2"),
    ):
        assert "no preview" not in shown(value)
        assert "no further preview" not in shown(value)


def test_sparse_matrices_are_not_made_dense() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    places = np.arange(10_000)
    matrix = sparse.csr_matrix((np.ones(10_000), (places, places)), shape=(100_000, 100_000))
    assert "csr_matrix f64 100000x100000 sparse, 10,000 stored" in shown(matrix)
    assert "coo_array" in shown(sparse.coo_array(matrix))
    assert "lil_matrix" in shown(matrix.tolil())


def test_a_tensor_is_told_by_shape_type_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        __module__ = "torch"
        shape = (2, 3)
        dtype = "torch.float32"
        device = "cuda:0"
        requires_grad = True

        def __repr__(self) -> str:
            raise AssertionError("values were read")

    Tensor.__qualname__ = "Tensor"
    stand_in = types.ModuleType("torch")
    stand_in.Tensor = Tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    assert "torch Tensor float32 2x3, on cuda:0, requires grad" in shown(Tensor())


# ------------------------------------------------------------------ texts that are numbers


def test_a_column_of_text_that_is_mostly_numbers_says_so_in_pandas_polars_and_arrow() -> None:
    cells = [f"{n}.5" for n in range(66)] + ["-"]
    said = "text: 66 of 67 are numbers, others: '-'"
    frame = pl.DataFrame({"price": cells})
    for made in (pd.DataFrame({"price": cells}), frame, frame.to_arrow()):
        assert said in describe("t", made)
        assert said in summarize({"t": made})
    assert said in describe("s", pd.Series(cells, dtype=object))
    assert said in summarize({"s": pl.Series("price", cells)})


def test_what_counts_as_a_number_in_text_and_of_a_long_column_a_sample_does() -> None:
    assert numbers_in_text(["1,234", "-5 %", "$ 7.50", "1.234,50", "3e-4", ".5", "12 000", "n/a", "5", "6"]) == (
        "text: 9 of 10 are numbers, others: 'n/a'"
    )
    assert numbers_in_text(["1", None, "2", "", "3", float("nan")]) == "text: all 3 are numbers"
    assert numbers_in_text(["2020-01-01"] * 9) == numbers_in_text(["a", "1", "2"]) == numbers_in_text(["1", "2"]) == ""
    assert numbers_in_text(["1"] * 100 + list("abcdef")).endswith("others: 'a', 'b', 'c', 'd', …")
    frame = pd.DataFrame({"price": [str(n) for n in range(300_000)]})
    assert re.search(r"text: all [\d,]+ sampled are numbers", summarize({"t": frame}))
    assert "1" * 50_000 not in numbers_in_text(["1" * 50_000] * 3 + ["1"] * 30)
