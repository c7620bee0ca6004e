"""The scripts of the bundled skills as modules, and tables that are hard on them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd

SKILLS = Path(__file__).resolve().parents[3] / "skills"


def script(skill: str, name: str) -> ModuleType:
    """A script of a skill, imported without touching sys.path."""
    spec = importlib.util.spec_from_file_location(f"bundled_{name}", SKILLS / skill / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


profile = script("profile-a-dataset", "profile_table")
clean = script("clean-messy-tables", "clean_table")
join = script("join-and-reconcile", "join_check")
sql = script("sql-in-a-notebook", "sql_frames")
series = script("time-series", "series_check")
tests = script("statistical-tests", "compare_groups")
model = script("train-and-evaluate", "honest_model")
plots = script("plots-that-read-well", "read_well")
check = script("write-up-a-notebook", "notebook_check")


def hostile() -> dict[str, pd.DataFrame]:
    """Tables that break careless code, by what is odd about each."""
    times = pd.date_range("2024-03-30", periods=48, freq="h", tz="Europe/Berlin")
    levels = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    return {
        "nothing": pd.DataFrame(),
        "no rows": pd.DataFrame({"a": pd.Series(dtype=float), "b": pd.Series(dtype=object)}),
        "no columns": pd.DataFrame(index=range(5)),
        "one row": pd.DataFrame({"a": [1], "b": ["x"]}),
        "all missing": pd.DataFrame({"a": [None] * 30, "b": [np.nan] * 30, "c": [pd.NaT] * 30}),
        "mixed": pd.DataFrame({"a": [1, "x", None, 2.5, True, b"y"], "b": [[1], {"k": 1}, None, (1,), {2}, "s"]}),
        "repeated names": pd.DataFrame([[1, 2, "x"], [3, 4, "y"]], columns=["a", "a", "b"]),
        "levels": pd.DataFrame(np.arange(9).reshape(3, 3), columns=levels, index=levels),
        "zones": pd.DataFrame({"t": times, "v": np.arange(48.0)}),
        "wide": pd.DataFrame(np.arange(900.0).reshape(3, 300), columns=[f"c{at}" for at in range(300)]),
        "other scripts": pd.DataFrame({"größe": [1.5, 2], "价格": ["一", "二"], "имя\u00a0": ["ж", "Ж"]}),
        "numbers as names": pd.DataFrame({0: [1, 2], 1.5: [3, 4], None: [5, 6]}),
        "infinite": pd.DataFrame({"a": [1.0, np.inf, -np.inf, np.nan]}),
        "nullable": pd.DataFrame({"i": pd.array([1, None, 3], "Int64"), "b": pd.array([True, None, False], "boolean"),
                                  "c": pd.Categorical(["x", None, "y"]),
                                  "p": pd.period_range("2024", periods=3, freq="M"),
                                  "d": pd.to_timedelta([1, None, 3], "h"), "z": [1j, 2j, 3j]}),
    }  # fmt: skip


def large(rows: int) -> pd.DataFrame:
    """Rows of numbers, texts, groups and times."""
    random = np.random.default_rng(1)
    return pd.DataFrame({
        "id": np.arange(rows), "value": random.normal(10, 2, rows), "arm": random.choice(["a", "b"], rows),
        "city": random.choice(["Oslo", "Zürich", "東京", "N/A"], rows),
        "price": random.choice(["$1,200.50", "(3)", "12%", "?"], rows),
        "when": pd.date_range("2000-01-01", periods=rows, freq="min"),
    })  # fmt: skip
