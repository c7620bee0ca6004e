"""Every type the user may have is shown in few bytes and little time, and never asked anything."""

import ast
import asyncio
import collections
import csv
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
import types
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ipyagent.kernel.previews import Kind, clip, families, find, one_line, open_look
from ipyagent.kernel.variables import describe, preview, short_types, summarize

LIMIT = 4000
SECONDS = 0.2


def shown(value: Any, name: str = "value") -> str:
    """All views of a value, each checked: bytes, time (twice the promise), one printable line each."""
    texts = []
    look: list[tuple[int, Callable[[], str]]] = [
        (LIMIT, lambda: describe(name, value)),
        (2000, lambda: preview(value)),
        (1500, lambda: summarize({name: value})),
        (300, lambda: describe(name, [value], limit=300)),
        (300, lambda: summarize({name: {"inside": value}}, limit=300)),
        (120, lambda: short_types({name: value}).get(name, "")),
    ]
    for limit, call in look:
        start = time.perf_counter()
        text = call()
        took = time.perf_counter() - start
        assert took < 2 * SECONDS, f"{took:.3f} s"
        assert len(text.encode()) <= limit
        assert all(line.isprintable() for line in text.split("\n")), ascii(text)
        texts.append(text)
    return "\n".join(texts)


# ------------------------------------------------------------------ nothing of the user's is called


class Spy:
    """Records every call that reaches it."""

    calls: ClassVar[list[str]] = []


def spying(name: str, *bases: type) -> type:
    """A class whose every special method and property records its call and raises."""

    def record(method: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            Spy.calls.append(method)
            raise RuntimeError(method)

        return call

    specials = [
        "__repr__", "__str__", "__len__", "__iter__", "__next__", "__bool__", "__eq__", "__ne__", "__lt__",
        "__hash__", "__getattr__", "__getattribute__", "__getitem__", "__contains__", "__dir__", "__format__",
        "__sizeof__", "__array__", "__dataframe__", "__int__", "__float__", "__index__", "__length_hint__",
        "__reversed__", "__call__", "__enter__", "keys", "items", "values", "head", "shape", "dtypes",
        "columns", "_repr_html_", "_repr_mimebundle_", "_ipython_display_",
    ]
    body: dict[str, Any] = {special: record(special) for special in specials}
    body["__class__"] = property(record("__class__"))
    body["attribute"] = property(record("property"))
    return type(name, bases, body)


class Meta(type):
    """A metaclass that lies and records."""

    def __getattribute__(cls, name: str) -> Any:
        Spy.calls.append(f"meta {name}")
        return type.__getattribute__(cls, name)

    def __eq__(cls, other: object) -> bool:
        Spy.calls.append("meta ==")
        return True

    def __hash__(cls) -> int:
        Spy.calls.append("meta hash")
        return 1

    def __instancecheck__(cls, instance: object) -> bool:
        Spy.calls.append("meta isinstance")
        return True

    def __repr__(cls) -> str:
        Spy.calls.append("meta repr")
        return "lie"

    def mro(cls) -> list[type]:
        return type.mro(cls)

    def __len__(cls) -> int:
        Spy.calls.append("meta len")
        return 1


class Tricky(metaclass=Meta):
    """Made by the metaclass."""

    def __init__(self) -> None:
        self.inner = 7


def make(cls: type, *args: Any) -> Any:
    """An instance, made without the class's own methods."""
    for base in (list, dict, set, tuple, str, int, float, bytes, datetime.datetime, np.ndarray):
        if issubclass_plainly(cls, (base,)):
            made = base.__new__(cls, *args)
            if base in (list, dict, set):
                base.__init__(made, *args)
            return made
    return object.__new__(cls)


HOSTILE: dict[str, tuple[type, tuple[Any, ...]]] = {
    "plain": (spying("Plain"), ()),
    "list": (spying("MyList", list), ([1, 2],)),
    "dict": (spying("MyDict", dict), ({"a": 1},)),
    "set": (spying("MySet", set), ({1},)),
    "tuple": (spying("MyTuple", tuple), ((1, 2),)),
    "str": (spying("MyStr", str), ("text",)),
    "int": (spying("MyInt", int), (7,)),
    "float": (spying("MyFloat", float), (7.5,)),
    "bytes": (spying("MyBytes", bytes), (b"x",)),
    "datetime": (spying("MyTime", datetime.datetime), (2024, 1, 2)),
    "array": (spying("MyArray", np.ndarray), ((2,),)),
    "metaclass": (Tricky, ()),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_method_of_a_users_class_is_called(name: str) -> None:
    cls, args = HOSTILE[name]
    value = make(cls, *args)
    inside = [value]
    Spy.calls.clear()
    text = shown(value)
    shown(inside)
    assert Spy.calls == []
    assert type.__dict__["__name__"].__get__(cls) in text


@pytest.mark.parametrize("name", HOSTILE)
def test_the_class_itself_is_shown_without_its_metaclass(name: str) -> None:
    Spy.calls.clear()
    assert "class " in shown(HOSTILE[name][0])
    assert Spy.calls == []


def test_hostile_values_in_tables_and_arrays_are_not_called() -> None:
    values = [make(cls, *args) for cls, args in HOSTILE.values() if not issubclass_plainly(cls, (np.ndarray,))]
    column = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        column[at] = value
    frame = pd.DataFrame({"cells": pd.Series(column, dtype=object)})
    Spy.calls.clear()
    assert "cells obj" in shown(frame)
    shown(frame["cells"])
    shown(column)
    shown({"frame": frame, "column": column})
    assert Spy.calls == []


def issubclass_plainly(cls: type, bases: tuple[type, ...]) -> bool:
    return any(one is base for one in type.__dict__["__mro__"].__get__(cls) for base in bases)


class FrameOfMine(pd.DataFrame):  # type: ignore[misc]
    def __len__(self) -> int:
        Spy.calls.append("len")
        return super().__len__()

    @property
    def columns(self) -> Any:
        Spy.calls.append("columns")
        raise RuntimeError("columns")

    def __getitem__(self, key: Any) -> Any:
        Spy.calls.append("getitem")
        raise RuntimeError("getitem")

    @property
    def shape(self) -> Any:
        Spy.calls.append("shape")
        raise RuntimeError("shape")


def test_a_subclass_of_dataframe_is_read_as_pandas_would() -> None:
    value = FrameOfMine({"a": [1, 2]})
    Spy.calls.clear()
    assert "FrameOfMine 2 x 1: a i64" in shown(value)
    assert Spy.calls == []


class Slow:
    def __init__(self) -> None:
        self.size = 3

    def __repr__(self) -> str:
        time.sleep(10)
        return "slow"


class Loud:
    def __repr__(self) -> str:
        print("loud")
        raise ValueError("no repr")

    @property
    def now(self) -> int:
        raise AssertionError("a property was read")


class Answers:
    """Answers to every attribute, and lies about its class."""

    def __getattr__(self, name: str) -> Any:
        Spy.calls.append(name)
        return self

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        Spy.calls.append("__class__")
        return dict

    def __len__(self) -> int:
        raise RuntimeError("len")


class OwnDict:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        Spy.calls.append("__dict__")
        raise RuntimeError("dict")


class Slotted:
    __slots__ = ("empty", "left", "right")

    def __init__(self) -> None:
        self.left = 1
        self.right = "r"


def test_objects_show_what_is_stored_and_nothing_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Spy.calls.clear()
    assert "Slow object (test_previews): size=3" in shown(Slow())
    assert "Loud object" in shown(Loud())
    assert "Answers object" in shown(Answers())
    assert "OwnDict object" in shown(OwnDict())
    assert "left=1, right='r'" in shown(Slotted())
    assert Spy.calls == []
    assert capsys.readouterr() == ("", "")


def test_a_module_name_that_lies_does_not_make_a_class_known() -> None:
    def record(self: Any, *args: Any) -> Any:
        Spy.calls.append("called")
        raise RuntimeError

    for module, name in (
        ("pandas", "DataFrame"), ("numpy", "ndarray"), ("torch", "Tensor"), ("polars", "DataFrame"),
        ("sklearn.base", "X"), ("matplotlib.figure", "Figure"), ("builtins", "list_iterator"),
        ("pandas", "Timestamp"), ("scipy.sparse", "csr_matrix"),
    ):
        body = {"__module__": module, "shape": property(record), "__repr__": record, "__len__": record}
        value = type(name, (), body)()
        Spy.calls.clear()
        assert name in shown(value)
        assert Spy.calls == []


class Zone(datetime.tzinfo):
    def utcoffset(self, when: Any) -> Any:
        Spy.calls.append("utcoffset")
        return datetime.timedelta(0)

    def tzname(self, when: Any) -> str:
        Spy.calls.append("tzname")
        return "mine"

    def dst(self, when: Any) -> Any:
        Spy.calls.append("dst")
        return None


def test_a_time_zone_of_the_user_is_named_and_not_asked() -> None:
    Spy.calls.clear()
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=Zone())
    assert "2024-01-02T03:04:05 (time zone: a Zone, not asked)" in shown(moment)
    shown(datetime.time(3, 4, tzinfo=Zone()))
    assert Spy.calls == []


# ------------------------------------------------------------------ lazy things stay lazy


def test_generators_and_iterators_are_not_consumed() -> None:
    generator = (n for n in [1, 2, 3])
    mapped = map(str, [1, 2])
    counted = itertools.count()
    listed = iter([1, 2])
    rows = csv.reader(io.StringIO("a,b\n"))
    words = ["generator", "map", "count", "list_iterator", "reader"]
    for value, word in zip([generator, mapped, counted, listed, rows], words, strict=True):
        assert word in shown(value)
    assert list(generator) == [1, 2, 3]
    assert list(mapped) == ["1", "2"]
    assert next(counted) == 0
    assert list(listed) == [1, 2]
    assert next(rows) == ["a", "b"]
    list(generator)
    assert "finished" in shown(generator)


def test_coroutines_are_not_started() -> None:
    async def job() -> int:
        return 1

    waiting = job()
    assert "coroutine" in shown(waiting)
    assert asyncio.run(waiting) == 1


def test_a_lazy_frame_is_not_collected() -> None:
    ran = []

    def note(frame: Any) -> Any:
        ran.append(1)
        return frame

    lazy = pl.DataFrame({"a": [1]}).lazy().map_batches(note)
    assert "LazyFrame (polars.lazyframe.frame), lazy: not computed" in shown(lazy)
    assert "lazy" in shown(pl.col("a") + 1)
    assert ran == []


def query(module: str, name: str, **stored: Any) -> Any:
    def refuse(self: Any, *args: Any) -> Any:
        Spy.calls.append("computed")
        raise RuntimeError("computed")

    specials = ["__len__", "__iter__", "__repr__", "__str__", "__bool__", "__getitem__", "compute", "__getattr__"]
    value = type(name, (), {"__module__": module, **dict.fromkeys(specials, refuse)})()
    value.__dict__.update(stored)
    return value


def test_queries_are_not_run() -> None:
    class Model:
        pass

    Spy.calls.clear()
    django = shown(query("django.db.models.query", "QuerySet", model=Model, _result_cache=None))
    assert "lazy: not computed, of Model, not fetched" in django
    assert "lazy: not computed" in shown(query("sqlalchemy.orm.query", "Query", session=1))
    assert "lazy: not computed" in shown(query("dask.dataframe.core", "DataFrame", _meta=1))
    assert "Query object" in shown(query("mydb", "Query", where="x"))
    assert Spy.calls == []


def test_grouped_tables_and_styles_are_not_computed() -> None:
    frame = pd.DataFrame({"a": [1, 1], "b": [1, 2]})
    assert "over DataFrame 2 x 2, by 'a'" in shown(frame.groupby("a"))
    assert "not computed" in shown(frame.rolling(2))
    assert "SeriesGroupBy" in shown(frame.groupby("a")["b"])
    pytest.importorskip("jinja2")
    called = []
    style = frame.style.map(lambda cell: called.append(1) or "")
    assert "Styler" in shown(style)
    assert called == []


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


def test_a_million_rows_are_sampled_and_said_to_be() -> None:
    text = shown(million())
    assert "DataFrame 1000000 x 20 (missing sampled): f0 f64" in text
    assert "f3 f64 (142,858 missing)" in text
    assert re.search(r"o0 obj \(~\d+% missing\)", text)
    assert not re.search(r"o0 obj \([\d,]+ missing\)", text)


def test_small_tables_are_counted_exactly() -> None:
    frame = pd.DataFrame({"a": [1.0, None, None], "b": pd.Series(["x", None, "y"], dtype=object), "c": [1, 2, 3]})
    text = shown(frame)
    assert "DataFrame 3 x 3: a f64 (2 missing), b obj (1 missing), c i64" in text
    assert "~" not in text


def test_a_table_out_of_time_does_not_claim_a_count() -> None:
    text = describe("t", million(), seconds=0.0)
    assert "DataFrame 1000000 x 20" in text
    assert not re.search(r"[\d,]+ missing", text)
    assert len(describe("t", million(), seconds=0.0, limit=50).encode()) <= 50


def test_wide_tables_name_how_many_columns_are_left() -> None:
    wide = pd.DataFrame(np.zeros((50, 1700)), columns=[f"column_{n}" for n in range(1700)])
    assert re.search(r"column_0 f64, .*… 1,\d\d\d more", shown(wide))


def test_long_cells_are_cut() -> None:
    frame = pd.DataFrame({"text": ["lorem ipsum " * 4200] * 200})
    assert "text str" in shown(frame)


def test_odd_column_names_are_shown() -> None:
    class Label:
        def __repr__(self) -> str:
            raise AssertionError("repr")

    frame = pd.DataFrame([[1, 2, 3, 4, 5, 6, 7]])
    frame.columns = pd.Index(["a", "a", 3, None, (1, 2), "x\ny\x1b[31m", Label()], dtype=object)
    text = shown(frame)
    assert "a i64, a i64, 3 i64, None i64, (1, 2) i64" in text
    assert "x⏎y\\x1b[31m" in text


def test_multiindex_rows_and_columns_are_named() -> None:
    frame = pd.DataFrame(
        np.ones((4, 4)),
        index=pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["letter", "number"]),
        columns=pd.MultiIndex.from_product([["x", "y"], [1, 2]]),
    )
    text = shown(frame)
    assert "indexed by (letter, number): ('x', 1) f64" in text
    assert "[('a', 1)]" in text


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
    assert "Series f64 3 length (1 missing): 1, 2, nan" in shown(pd.Series([1, 2, None], name="length"))
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


def test_polars_and_arrow_tables_are_counted_exactly() -> None:
    frame = pl.DataFrame({"a": [1, 2, None], "b": ["x", "y", "z"]})
    text = shown(frame)
    assert "polars DataFrame 3 x 2: a i64 (1 null), b str" in text
    assert "[2] None | 'z'" in text
    assert "polars Series i64 3 a (1 null): 1, 2, None" in shown(frame["a"])
    assert "pyarrow Table 3 x 2" in shown(frame.to_arrow())
    thing = object()
    assert "Object" in shown(pl.DataFrame({"o": pl.Series([thing, thing], dtype=pl.Object)}))
    assert "polars DataFrame 1000000 x 1" in shown(pl.DataFrame({"n": range(1_000_000)}))


# ------------------------------------------------------------------ arrays


def test_a_mapped_array_is_not_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(8 * 500_000_000)
    mapped = np.memmap(path, dtype="f8", mode="r", shape=(500_000, 1000))
    assert "memmap f64 500000x1000 memory-mapped, not read: 0, 0, 0" in shown(mapped)
    assert "memory-mapped, not read" in shown(np.asarray(mapped)[10:])
    assert "mean" not in describe("m", mapped)


def test_arrays_of_every_kind_are_shown() -> None:
    assert "ndarray f64 3x4" in shown(np.arange(12.0).reshape(3, 4))
    assert "min 0, max 11, mean 5.5" in shown(np.arange(12.0).reshape(3, 4))
    assert "~min 0, max" in shown(np.arange(4_000_000.0).reshape(2000, 2000))
    assert "ndarray obj 3: 1, 'a', None" in shown(np.array([1, "a", None], dtype=object))
    assert "struct(a i32, b f64)" in shown(np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]))
    for value in (
        np.float64(1.5), np.array(3), np.zeros((0, 5)), np.zeros((2, 3, 4, 5)), np.ma.masked_array([1, 2], [True, False]),
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


# ------------------------------------------------------------------ containers, text, scalars


def test_deep_and_circular_containers_end() -> None:
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(40):
        inner["down"] = {}
        inner = inner["down"]
    assert "<dict 1>" in shown(deep)
    ring: list[Any] = [1]
    ring.append(ring)
    loop: dict[str, Any] = {}
    loop["me"] = loop
    assert "<itself>" in shown(ring)
    assert "<itself>" in shown(loop)
    shown([loop, ring] * 10)


def test_ten_million_items_are_sampled() -> None:
    numbers = list(range(10_000_000))
    start = time.perf_counter()
    text = summarize({"numbers": numbers})
    assert time.perf_counter() - start < 0.05
    assert "list 10,000,000 of int: [0, 1, 2" in text
    assert "last: 9999999" in shown(numbers)
    assert "set 1,000,000" in shown(set(range(1_000_000)))


def test_huge_numbers_are_not_printed() -> None:
    huge = 10**100_000
    assert "int of about 100,001 digits" in shown(huge)
    assert "Decimal of about" in shown(decimal.Decimal("1" * 100_000))
    shown(fractions.Fraction(huge, 3))
    shown(range(huge))
    assert "int of about" in shown({"inside": huge})


class Colour(enum.Enum):
    RED = "r"


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: str


Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (2.5, "2.5"),
        (None, "None"),
        (True, "True"),
        (1 + 2j, "(1+2j)"),
        ("a\nb", "'a⏎b'"),
        (b"\x00ab", "b'\\x00ab'"),
        (bytearray(b"ab"), "bytearray 2"),
        (decimal.Decimal("1.20"), "Decimal 1.20"),
        (fractions.Fraction(1, 3), "1/3"),
        (pathlib.PurePosixPath("/a/b"), "'/a/b'"),
        (Colour.RED, "Colour.RED = 'r'"),
        (Level.LOW | Level.HIGH, "Level."),
        (datetime.datetime(2024, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), "2024-01-02T00:00:00+01:00 Europe/Berlin"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.time(1, 2), "01:02:00"),
        (datetime.timedelta(days=2), "2 days"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (re.compile("a+"), "'a+'"),
        (Point(1, "q"), "Point object (test_previews): x=1, y='q'"),
        (Pair(1, 2), "Pair(left=1, right=2)"),
        ({1, 2}, "set 2 of int: {1, 2}"),
        (frozenset(), "frozenset 0"),
        (collections.deque([1], maxlen=3), "deque 1"),
        (collections.defaultdict(list, a=[1]), "defaultdict 1: {'a': [1]}"),
        (collections.OrderedDict(a=1), "OrderedDict 1"),
        (collections.Counter("aab"), "Counter 2: {'a': 2, 'b': 1}"),
        (types.SimpleNamespace(a=1), "SimpleNamespace object (types): a=1"),
        (types.MappingProxyType({}), "mappingproxy (not read)"),
        ({}.keys(), "dict_keys (not read)"),
        (range(3), "range(0, 3)"),
        (ValueError("wrong"), "ValueError: 'wrong'"),
        (..., "Ellipsis"),
    ],
)
def test_plain_values_are_shown_as_they_are(value: Any, text: str) -> None:
    assert text in shown(value)


def test_a_default_dict_is_not_filled_by_looking() -> None:
    value: Any = collections.defaultdict(lambda: Spy.calls.append("made"))
    shown(value)
    assert dict(value) == {}


def cells(text: str) -> tuple[Any, Any]:
    # pandas' own text type cannot hold a lone surrogate
    return pd.DataFrame({"a": [text]}, dtype=object), np.array([text], dtype=object)


@pytest.mark.parametrize("text", ["\ud800", "\x00", "\x1b]0;title\x07", "\x1b[2J", "a\r\nb\u2028c\u202e", "\x85", "😀 变量"])
def test_no_control_character_gets_through(text: str) -> None:
    for value in (text, [text], {text: text}, *cells(text), Point(1, text)):
        shown(value)
    named = {text: 1}
    assert all(line.isprintable() for line in summarize(named).split("\n"))


@pytest.mark.parametrize("size", range(12))
def test_text_is_cut_between_characters(size: int) -> None:
    for text in ("变量变量变量", "😀😀😀", "abcdefghijklmnop", "é" * 9):
        cut = clip(text, size)
        assert len(cut.encode()) <= size
        assert text.startswith(cut.rstrip("…"))
    assert one_line("plain") == "plain"


def test_long_texts_show_their_beginning_and_end() -> None:
    text = describe("log", "first line\n" + "middle\n" * 5000 + "last words")
    assert "5,002 lines" in text
    assert "first line" in text
    assert "last words" in text


# ------------------------------------------------------------------ functions, resources, libraries


def sample(
    first: int, /, second: str = "x", *rest: Any, flag: bool = False, password: str = "hunter2hunter", **more: Any
) -> str:
    """Say something."""
    return ""


def test_functions_and_classes_show_their_signature() -> None:
    text = shown(sample)
    assert "def sample(first: int, /, second: str = 'x', *rest: Any, flag: bool = False, password: str" in text
    assert "hunter2" not in text
    assert "Say something." in text
    assert "lambda (x, y=2)" in shown(lambda x, y=2: x)
    assert "class Point, made from (x: int, y: str)" in shown(Point)
    assert "method shown" not in shown("".join)
    assert "method __init__" in shown(Slow().__init__)  # type: ignore[misc]
    assert "partial of def sample" in shown(functools.partial(sample, 1))
    assert "cached def million()" in shown(million)
    assert "builtin function len" in shown(len)
    assert "module json" in describe("json", json)


def test_a_default_value_of_the_user_is_not_called() -> None:
    Spy.calls.clear()
    hostile = make(HOSTILE["plain"][0])

    def function(a: Any = hostile) -> None: ...

    shown(function)
    assert Spy.calls == []


def test_source_of_a_cell_is_shown_from_memory() -> None:
    import linecache

    code = "def from_cell(a):\n    return a + 1\n"
    linecache.cache["<cell 1>"] = (len(code), None, code.splitlines(True), "<cell 1>")
    names: dict[str, Any] = {}
    exec(compile(code, "<cell 1>", "exec"), names)
    assert "return a + 1" in describe("from_cell", names["from_cell"])
    del linecache.cache["<cell 1>"]


def test_resources_tell_their_state(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    file = path.open()
    assert "notes.txt' rb, open" in shown(file)
    assert file.read() == "hello"
    file.close()
    assert "closed" in shown(file)
    connection = sqlite3.connect(":memory:")
    cursor = connection.execute("select 1 as one union select 2")
    assert "Connection, open" in shown(connection)
    assert "rows not fetched): one" in shown(cursor)
    assert cursor.fetchall() == [(1,), (2,)]
    connection.close()
    assert "Connection, closed" in shown(connection)
    lock = threading.Lock()
    assert "lock, free" in shown(lock)
    with lock:
        assert "lock, locked" in shown(lock)
    for value in (threading.RLock(), threading.Event(), threading.current_thread(), io.StringIO("x"), io.BytesIO(), sys.stdout):
        shown(value)


def test_a_raw_file_of_the_user_is_not_asked() -> None:
    class Raw(io.RawIOBase):
        def readable(self) -> bool:
            return True

        @property
        def name(self) -> str:
            Spy.calls.append("name")
            return "x"

    value = io.BufferedReader(Raw())
    Spy.calls.clear()
    assert "over a Raw" in shown(value)
    assert Spy.calls == []


def test_estimators_show_parameters_and_whether_they_are_fitted() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.Ridge(alpha=0.5)
    assert "Ridge(alpha=0.5) not fitted" in shown(model)
    model.fit([[1.0], [2.0]], [1.0, 2.0])
    text = shown(model)
    assert "Ridge(alpha=0.5) fitted" in text
    assert "coef_: ndarray f64 1" in text


def test_figures_are_not_drawn() -> None:
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(6, 4))
    axes = figure.subplots()
    axes.plot([1, 2])
    axes.set_title("Growth")
    assert "matplotlib Figure 6 x 4 in, 1 axes: title 'Growth', 1 lines" in shown(figure)
    assert "title 'Growth'" in shown(axes)
    assert "matplotlib Line2D" in shown(axes.lines[0])


# ------------------------------------------------------------------ secrets


def test_secrets_are_masked_wherever_they_are_stored() -> None:
    secret = "sk-ant-" + "api03-aB3dE6gH9jK2mN5pQ8sT"
    login = "tiger" + "tiger99"
    places: list[Any] = [
        secret,
        [secret],
        {"x": secret},
        {secret: 1},
        {"password": login, "nested": {"db_password": login}},
        dict(os.environ, API_KEY=login),
        pd.DataFrame({"password": [login, login], "note": [secret, "ok"]}),
        pd.Series([login], name="password"),
        pl.DataFrame({"password": [login], "note": [secret]}),
        np.array([secret], dtype=object),
        np.array([secret]),
        Point(1, secret),
        types.SimpleNamespace(token=secret, passwd=login),
        secret.encode(),
        f"postgres://ann:{login}@host/db",
        ValueError(f"bad key {secret}"),
        "x" * 500 + secret,
        secret * 3 + "x" * 5000,
        {"password": [login]},
        {"password": login.encode()},
        Pair(1, f"password={login}"),
    ]
    for place in places:
        text = shown(place)
        assert login not in text, place
        assert secret[7:] not in text, place
    for text in (describe("db_password", login), summarize({"db_password": login})):
        assert text == "db_password  'tige…[12 masked]'"
    assert "12345678" not in describe("password", 12345678) + summarize({"password": 12345678})
    for limit in range(20, 200):
        assert "aB3dE6" not in preview({"k": secret}, limit=limit)


def test_the_environment_shows_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AAA_PLAIN", "visible-value")
    text = shown(os.environ)
    assert "values not shown" in text
    assert "visible-value" not in text


# ------------------------------------------------------------------ the package itself


def test_no_library_is_imported_for_a_look() -> None:
    code = textwrap.dedent(
        """
        import sys
        from ipyagent.kernel.variables import describe, summarize
        class A: pass
        summarize({"a": 1, "b": [1], "c": A(), "d": len}); describe("a", {"x": 1.5})
        heavy = {"pandas", "numpy", "polars", "sklearn", "matplotlib", "scipy", "IPython", "torch"} & set(sys.modules)
        print(sorted(heavy))
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ast.literal_eval(done.stdout) == []


def test_a_family_of_another_package_is_found_and_asked_first(tmp_path: pathlib.Path) -> None:
    (tmp_path / "toys.py").write_text(
        "from ipyagent.kernel.previews import Family, Group\n"
        "class Toy: pass\n"
        "TOY = Family('toys', Group.ARRAYS, lambda kind: kind.is_a(Toy), lambda v, k: 'a toy', lambda v, look, w: 'a toy!')\n"
    )
    info = tmp_path / "toys-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ipyagent.previews]\ntoy = toys:TOY\nbroken = toys:NOTHING\n")
    code = (
        "import toys, warnings\n"
        "warnings.simplefilter('always')\n"
        "from ipyagent.kernel.variables import summarize\n"
        "print(summarize({'t': toys.Toy(), 'n': 3}))\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(pathlib.Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.stdout == "t  a toy!\nn  3\n"
    assert "preview 'broken'" in done.stderr


def test_every_family_has_a_name_of_its_own() -> None:
    names = [family.name for family in families()]
    assert len(names) == len(set(names)) > 20
    assert find(Kind(object)).name == "objects"


def test_a_family_that_fails_hides_nothing_else() -> None:
    frame = pd.DataFrame({"a": [1]})
    object.__setattr__(frame, "_mgr", None)
    text = summarize({"broken": frame, "fine": 3})
    assert "fine  3" in text
    assert "DataFrame (no preview:" in text


def test_a_look_that_is_over_says_only_types() -> None:
    look = open_look(0.0)
    assert look.line([1, 2, 3], 60) == "<list 3>"


