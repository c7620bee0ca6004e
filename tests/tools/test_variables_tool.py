"""The `variables` tool reads what a name or a path of names stands for, and computes nothing."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ipyagent.errors import ToolFailure
from ipyagent.kernel.scope import make_shell
from ipyagent.tools.python import variables

CALLS: list[str] = []


class Room:
    """The part of a workspace that the tool touches."""

    def __init__(self, namespace: dict[str, Any], hidden: Mapping[str, Any] | None = None) -> None:
        self.hidden = hidden or {}
        self.marks: object = None
        self._namespace: dict[str, Any] | None = None
        self._held = namespace

    @property
    def namespace(self) -> dict[str, Any]:
        assert self._namespace is not None, "the namespace was read outside on_main"
        return self._namespace

    async def on_main(self, call: Callable[[], Any]) -> Any:
        self._namespace = self._held
        try:
            return call()
        finally:
            self._namespace = None

    def limit(self, name: str) -> int:
        return 25_000


class Thing:
    def __init__(self) -> None:
        self.size = 3

    @property
    def computed(self) -> int:
        CALLS.append("computed")
        return 1

    def __getattr__(self, name: str) -> Any:
        CALLS.append(name)
        return 1

    def __getitem__(self, key: Any) -> Any:
        CALLS.append("getitem")
        return 1


class Filling(dict[str, Any]):
    def __missing__(self, key: str) -> Any:
        CALLS.append("missing")
        return 1

    def __getitem__(self, key: str) -> Any:
        CALLS.append("getitem")
        return 1


def names() -> dict[str, Any]:
    return {
        "df": pd.DataFrame({"price": [1.5, 2.5], "名": ["a", "b"], 3: [1, 2]}),
        "twice": pd.DataFrame([[1, 2]], columns=["a", "a"]),
        "table": pl.DataFrame({"q": [1, 2]}),
        "d": {"a": {"b": [10, 20, 30]}, 1: "one", (1, 2): "pair"},
        "filling": Filling(x=5),
        "thing": Thing(),
        "array": np.arange(6).reshape(2, 3),
        "text": "hello world",
        "password": "tigertiger9",
    }


def answer(name: str = "") -> str:
    output = asyncio.run(variables.run({"name": name} if name else {}, Room(names())))  # type: ignore[arg-type]
    return str(output.blocks[0]["text"])


def test_without_a_name_every_variable_has_a_line_and_the_shells_own_names_none() -> None:
    text = answer()
    assert [line.split("  ")[0] for line in text.splitlines()] == [
        "df", "table", "twice", "password", "text", "array", "filling", "d", "thing",
    ]
    assert "tigertiger9" not in text
    empty = asyncio.run(variables.run({}, Room({"In": [], "_i1": "x"})))  # type: ignore[arg-type]
    assert empty.blocks[0]["text"] == "The user has no variables yet."
    shell = make_shell()
    shell.run_cell("x_of_mine = [1, 2]\nimport os\nx_of_mine")
    output = asyncio.run(variables.run({}, Room(shell.user_ns, shell.user_ns_hidden)))  # type: ignore[arg-type]
    lines = str(output.blocks[0]["text"]).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["x_of_mine"]


def test_a_path_of_names_is_read() -> None:
    for path, expected in [
        ("df", "DataFrame 2 x 3"),
        ('df["price"]', "Series f64 2 price"),
        ("df.price", "Series f64 2 price"),
        ("df['名']", "Series str 2 名"),
        ("df[3]", "Series i64 2"),
        ("twice['a']", "DataFrame 1 x 2"),
        ("table['q']", "polars Series i64 2 q"),
        ('d["a"]["b"][1]', "20"),
        ("d['a']['b'][-1]", "30"),
        ("d['a']['b'][:2]", "list 2"),
        ("d[1]", "'one'"),
        ("d[1, 2]", "'pair'"),
        ("filling['x']", "5"),
        ("thing.size", "3"),
        ("array[1]", "ndarray i64 3"),
        ("array[1, 2]", "int64 5"),
        ("text[:5]", "'hello'"),
    ]:
        CALLS.clear()
        assert f"{path}  {expected}" in answer(path)
        assert CALLS == [], path


def test_what_is_unknown_or_would_run_code_is_refused_with_a_hint() -> None:
    for path, message in [
        ("pric", "no variable `pric`; there are: "),
        ("tabel", "nearest: table"),
        ("df['prise']", "no such column; nearest: price"),
        ("d['b']", "no such key; there are: a"),
        ("filling['nope']", "no such key; there are: x"),
        ("thing.computed", "stores no `computed`"),
        ("thing[0]", "cannot be read by subscript"),
        ("d['a']['b'][9]", "index out of range"),
        ("d['a']['b'][text]", "must be a constant"),
        ("open('x')", "would have to be computed"),
        ("df.head()", "would have to be computed"),
        ("df + 1", "would have to be computed"),
        ("__import__('os').system('x')", "would have to be computed"),
        ("df[", "is not an expression"),
        ("a = 1", "is not an expression"),
        ("[" * 5000, "is not an expression"),
        ("x\x00", "is not an expression"),
    ]:
        CALLS.clear()
        with pytest.raises(ToolFailure) as failure:
            answer(path)
        assert message in str(failure.value)
        assert CALLS == [], path


def test_the_tool_needs_no_permission_and_may_run_beside_others() -> None:
    room: Any = Room({})
    assert variables.permission({}, room) == "none"
    assert not variables.writes({}, room)
    assert variables.parallel
    assert variables.recreatable
    assert "required" not in variables.input_schema
