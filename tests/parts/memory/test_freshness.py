from __future__ import annotations

import os
import time
import types
from pathlib import Path
from typing import Any

import pandas as pd

from ipyagent.parts.memory.recall import facts, look_up, named_in

DAY = 86_400


def told(text: str, namespace: dict[str, Any], folder: Path, written: float | None = None) -> list[str]:
    names = named_in(text)
    now = time.time()
    return facts(names, look_up(names, namespace), (folder,), now, now if written is None else written)


def test_a_file_that_is_there_tells_when_it_changed_and_one_that_is_not_is_missed(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("a\n1\n")
    then = time.time() - 3 * DAY - 60
    os.utime(tmp_path / "orders.csv", (then, then))
    lines = told("Load `orders.csv`, not data/old_orders.parquet.", {}, tmp_path)
    assert lines == ["`orders.csv` exists, changed 3 days ago", "`data/old_orders.parquet` is not there"]
    assert told("Load orders.csv first.", {}, tmp_path, written=then - 60) == [
        "`orders.csv` exists, changed 3 days ago, after this was written"
    ]


def test_columns_are_looked_for_in_the_tables(tmp_path: Path) -> None:
    space = {"df": pd.DataFrame({"price": [1], "qty": [2]})}
    text = "Group by `df.region`, sum `df['price']`; the column `qty` is a count, column `tax` too."
    lines = told(text, space, tmp_path)
    assert "`df.region` no longer exists" in lines
    assert "`df` has the column `price`" in lines
    assert "`df` has the column `qty`" in lines
    assert "`df` has no column `tax` now" in lines
    assert told("Use `df.groupby`.", {"df": pd.DataFrame({"a": [1]})}, tmp_path) == ["`df.groupby` exists"]
    assert told("Prefer `seaborn` and `viridis`.", {}, tmp_path) == [], "what names nothing here is no news"


def test_what_the_memory_calls_a_variable_or_function_is_missed(tmp_path: Path) -> None:
    lines = told("The variable `orders` is made by `load_orders()`.", {}, tmp_path)
    assert lines == ["`orders` is not in this kernel", "`load_orders` is not defined in this kernel"]
    space = {"orders": pd.DataFrame({"a": [1]}), "load_orders": lambda: None}
    assert told("The variable `orders` is made by `load_orders()`.", space, tmp_path) == [
        "`orders` is here (DataFrame with 1 column)",
        "`load_orders` is defined here",
    ]


def test_a_function_is_found_in_the_file_that_is_named_with_it(tmp_path: Path) -> None:
    (tmp_path / "prep.py").write_text("def clean_orders(df):\n    return df\n")
    there, gone = (told(f"`{name}()` in `prep.py` does it", {}, tmp_path) for name in ("clean_orders", "mend_orders"))
    assert there[0] == "`clean_orders` is in `prep.py`"
    assert gone[0] == "`mend_orders` is in none of the files named"


class Trap:
    """Runs when it is looked at the wrong way."""

    ran = False

    def __getattr__(self, name: str) -> Any:
        type(self).ran = True
        raise RuntimeError("the user's code ran")

    def __getitem__(self, key: str) -> Any:
        type(self).ran = True
        return 1

    def __contains__(self, key: str) -> bool:
        type(self).ran = True
        return True

    @property
    def slow(self) -> int:
        type(self).ran = True
        return 1


def test_looking_never_runs_the_users_code(tmp_path: Path) -> None:
    trap = Trap()
    told("`t.slow`, `t.other`, `t['x']`, `t.method()`, the column `x` of `t`", {"t": trap}, tmp_path)
    assert not Trap.ran


def test_members_of_modules_dicts_and_plain_objects(tmp_path: Path) -> None:
    module = types.ModuleType("prep")
    module.clean = lambda: None  # type: ignore[attr-defined]
    space = {"prep": module, "settings": {"depth": 3}}
    lines = told("`prep.clean()`, `prep.gone`, `settings['depth']`, `settings['width']`", space, tmp_path)
    assert lines == [
        "`prep.clean` is defined here",
        "`prep.gone` no longer exists",
        "`settings` has the key `depth`",
        "`settings` has no key `width` now",
    ]


def test_looking_is_bounded_and_places_that_could_hang_are_not_asked(tmp_path: Path) -> None:
    for name in ("//server/share/a.csv", "~other/a.csv", "https://example.org/a.csv", "a\x00.csv"):
        assert told(f"Load `{name}`", {}, tmp_path) == [], name
    text = " ".join(f"`file{number}.csv`" for number in range(500))
    assert len(named_in(text)) <= 12
    assert len(told(text, {}, tmp_path)) <= 8
