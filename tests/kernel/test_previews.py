"""Every object is shown in few bytes and little time, and is never asked anything."""

import ast
import asyncio
import csv
import datetime
import io
import itertools
import pathlib
import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hostile import HOSTILE, Spy, issubclass_plainly, make
from preview_checks import shown

from ipyagent.kernel.previews import TypeInfo, families, find, open_look
from ipyagent.kernel.variables import summarize

# ------------------------------------------------------------------ nothing of the user's is called


def test_neither_a_users_class_nor_its_metaclass_is_called() -> None:
    for name in HOSTILE:
        cls, args = HOSTILE[name]
        value = make(cls, *args)
        inside = [value]
        Spy.calls.clear()
        text = shown(value)
        shown(inside)
        assert Spy.calls == [], name
        assert type.__dict__["__name__"].__get__(cls) in text, name
    for name in HOSTILE:
        Spy.calls.clear()
        assert "class " in shown(HOSTILE[name][0])
        assert Spy.calls == [], name


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


def test_generators_and_iterators_are_not_consumed_and_coroutines_not_started() -> None:
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


def test_queries_are_not_run_and_grouped_tables_and_styles_not_computed() -> None:
    class Model:
        pass

    Spy.calls.clear()
    django = shown(query("django.db.models.query", "QuerySet", model=Model, _result_cache=None))
    assert "lazy: not computed, of Model, not fetched" in django
    assert "lazy: not computed" in shown(query("sqlalchemy.orm.query", "Query", session=1))
    assert "lazy: not computed" in shown(query("dask.dataframe.core", "DataFrame", _meta=1))
    assert "Query object" in shown(query("mydb", "Query", where="x"))
    assert Spy.calls == []
    frame = pd.DataFrame({"a": [1, 1], "b": [1, 2]})
    assert "over DataFrame 2 x 2, by 'a'" in shown(frame.groupby("a"))
    assert "not computed" in shown(frame.rolling(2))
    assert "SeriesGroupBy" in shown(frame.groupby("a")["b"])
    pytest.importorskip("jinja2")
    called = []
    style = frame.style.map(lambda cell: called.append(1) or "")
    assert "Styler" in shown(style)
    assert called == []


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


def test_a_family_of_another_distribution_is_one_entry_point_and_is_asked_first(tmp_path: pathlib.Path) -> None:
    """As CONTRIBUTING tells it: a tiny distribution, installed as files, in a process of its own."""
    (tmp_path / "gauges.py").write_text(textwrap.dedent("""
        from ipyagent.kernel.previews import PreviewHandler, Group, stored

        class Gauge(list):
            def __init__(self): self.level = 7
            def __repr__(self): raise RuntimeError

        GAUGE = PreviewHandler(
            "gauges", Group.OBJECTS, lambda kind: kind.is_library("gauges", "Gauge"), lambda value, kind: "gauge",
            lambda value, look, width: f"gauge at {stored(value, 'level')}",
        )
    """))
    info = tmp_path / "gauges-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gauges\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ipyagent.previews]\ngauge = gauges:GAUGE\nbroken = gauges:NOTHING\n")
    code = (
        f"import sys, warnings; sys.path.insert(0, {str(tmp_path)!r}); import gauges\n"
        "warnings.simplefilter('always')\nfrom ipyagent.kernel.variables import summarize\n"
        "print(summarize({'g': gauges.Gauge(), 'n': [gauges.Gauge()], 'x': 3}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "x  3\nn  list 1 of Gauge: [gauge at 7]\ng  gauge at 7\n"
    assert "preview 'broken'" in done.stderr


def test_every_family_has_a_name_of_its_own() -> None:
    names = [family.name for family in families()]
    assert len(names) == len(set(names)) > 20
    assert find(TypeInfo(object)).name == "objects"


def test_a_family_that_fails_hides_nothing_else() -> None:
    frame = pd.DataFrame({"a": [1]})
    object.__setattr__(frame, "_mgr", None)
    text = summarize({"broken": frame, "fine": 3})
    assert "fine  3" in text
    assert "DataFrame (no preview:" in text


def test_a_look_that_is_over_says_only_types() -> None:
    look = open_look(0.0)
    assert look.line([1, 2, 3], 60) == "<list 3>"
