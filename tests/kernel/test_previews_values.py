"""Containers, texts, single values, functions and resources; secrets are masked in all of them."""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import io
import json
import os
import pathlib
import re
import sqlite3
import sys
import threading
import time
import types
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hostile import HOSTILE, Spy, make
from preview_checks import shown

from ipyagent.kernel import variables
from ipyagent.kernel.previews import clip, one_line
from ipyagent.kernel.variables import preview, summarize

describe = functools.partial(variables.describe, seconds=60)
"""As it is with time: a look ends early on a busy machine."""

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


def test_millions_of_items_are_sampled_and_huge_numbers_not_printed() -> None:
    numbers = list(range(3_000_000))
    began = time.thread_time()
    set(map(type, numbers))
    whole = time.thread_time() - began
    began = time.thread_time()
    text = summarize({"numbers": numbers})
    assert time.thread_time() - began < whole / 2
    assert "list 3,000,000 of int: [0, 1, 2" in text
    assert "last: 2999999" in shown(numbers)
    assert "set 1,000,000" in shown(set(range(1_000_000)))
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


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
Pair = collections.namedtuple("Pair", "left right")


def test_plain_values_are_shown_as_they_are() -> None:
    for value, text in [
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
        (datetime.datetime(2024, 1, 2, tzinfo=BERLIN), "2024-01-02T00:00:00+01:00 Europe/Berlin"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.time(1, 2), "01:02:00"),
        (datetime.timedelta(days=2), "2 days"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (re.compile("a+"), "'a+'"),
        (Point(1, "q"), "Point object (test_previews_values): x=1, y='q'"),
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
    ]:
        assert text in shown(value)


def test_defaults_and_raw_files_of_the_user_are_neither_filled_nor_called() -> None:
    value: Any = collections.defaultdict(lambda: Spy.calls.append("made"))
    shown(value)
    assert dict(value) == {}
    Spy.calls.clear()
    hostile = make(HOSTILE["plain"][0])

    def function(a: Any = hostile) -> None: ...

    shown(function)
    assert Spy.calls == []
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


def cells(text: str) -> tuple[Any, Any]:
    # pandas' own text type cannot hold a lone surrogate
    return pd.DataFrame({"a": [text]}, dtype=object), np.array([text], dtype=object)


@pytest.mark.parametrize(
    "text", ["\ud800", "\x00", "\x1b]0;title\x07", "\x1b[2J", "a\r\nb\u2028c\u202e", "\x85", "😀 变量"]
)
def test_no_control_character_gets_through(text: str) -> None:
    for value in (text, [text], {text: text}, *cells(text), Point(1, text)):
        shown(value)
    named = {text: 1}
    assert all(line.isprintable() for line in summarize(named).split("\n"))


def test_long_texts_show_their_beginning_and_end_and_are_cut_between_characters() -> None:
    text = describe("log", "first line\n" + "middle\n" * 5000 + "last words")
    assert "5,002 lines" in text
    assert "first line" in text
    assert "last words" in text
    for size in range(12):
        for text in ("变量变量变量", "😀😀😀", "abcdefghijklmnop", "é" * 9):
            cut = clip(text, size)
            assert len(cut.encode()) <= size
            assert text.startswith(cut.rstrip("…")), size
        assert one_line("plain") == "plain", size


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
    def typed(a: list[int], b: "int | None" = None, c: int | None = 3, d: Callable[..., Any] = len) -> None: ...

    assert "(a: list, b: int | None = None, c: int | NoneType = 3, d: Callable" in shown(typed)
    assert "lambda (x, y=2)" in shown(lambda x, y=2: x)
    assert "class Point, made from (x: int, y: str)" in shown(Point)
    assert "method shown" not in shown("".join)
    assert "method __init__" in shown(Point(1, "q").__init__)
    assert "partial of def sample" in shown(functools.partial(sample, 1))
    assert "cached def sample(" in shown(functools.cache(sample))
    assert "builtin function len" in shown(len)
    assert "module json" in describe("json", json)


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
    buffers = [io.StringIO("x"), io.BytesIO(), sys.stdout]
    for value in (threading.RLock(), threading.Event(), threading.current_thread(), *buffers):
        shown(value)


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
        pd.DataFrame({"password": [99887766, 99887766]}),
        {"password": login.encode()},
        Pair(1, f"password={login}"),
    ]
    for place in places:
        text = shown(place)
        assert login not in text, place
        assert "9988" not in text
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
