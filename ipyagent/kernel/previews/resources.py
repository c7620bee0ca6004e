"""Things outside memory: connections, files, locks, processes. Their state is told, nothing is read."""

from __future__ import annotations

import _thread
import io
import sqlite3
from typing import Any

from ipyagent.kernel.previews._kind import MISSING, Kind, instance_dict
from ipyagent.kernel.previews._look import Family, Group, Look

_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_LOCKS = (_thread.LockType, _thread.RLock)


def _name(value: Any, kind: Kind) -> str:
    return f"{kind.top} {kind.name}" if kind.top not in ("builtins", "_io", "_thread") else kind.name


def _file(value: Any, look: Look, width: int) -> str:
    kind = look.kind(value)
    raw = value
    if type(raw) is io.TextIOWrapper:
        raw = raw.buffer
    if type(raw) in (io.BufferedReader, io.BufferedWriter, io.BufferedRandom):
        raw = raw.raw
    # anything else at the bottom may be an object of the user
    if type(raw) is not io.FileIO:
        return f"{kind.name} over a {look.kind(raw).name}"
    name = instance_dict(raw).get("name", MISSING)
    shown = look.line(name, max(10, width - 40)) if type(name) in (str, int, bytes) else "?"
    return f"file {shown} {raw.mode}, {'closed' if raw.closed else 'open'} ({kind.name})"


def _memory_file(value: Any, look: Look, width: int) -> str:
    return f"{look.kind(value).name} ({'closed' if value.closed else 'open'}, not read)"


def _connection(value: Any, look: Look, width: int) -> str:
    try:
        busy = sqlite3.Connection.__dict__["in_transaction"].__get__(value)
    except sqlite3.Error:
        return "sqlite3 Connection, closed"
    return "sqlite3 Connection, open" + (", in a transaction" if busy else "")


def _cursor(value: Any, look: Look, width: int) -> str:
    columns = sqlite3.Cursor.__dict__["description"].__get__(value)
    if not columns:
        return "sqlite3 Cursor, no rows"
    names = (look.label(column[0], 40) for column in columns[:30])
    return f"sqlite3 Cursor (rows not fetched): {look.items(names, max(10, width - 40), len(columns))}"


def _lock(value: Any, look: Look, width: int) -> str:
    if type(value) is _thread.LockType:
        return f"lock, {'locked' if value.locked() else 'free'}"
    return "RLock"


FAMILIES = (
    Family("files", Group.OBJECTS, lambda kind: kind.exactly(*_FILES), _name, _file, None, 40),
    Family(
        "files in memory", Group.OBJECTS, lambda kind: kind.exactly(io.StringIO, io.BytesIO),
        _name, _memory_file, None, 40,
    ),
    Family(
        "sqlite connections", Group.OBJECTS, lambda kind: kind.is_a(sqlite3.Connection),
        lambda value, kind: "sqlite3 Connection", _connection, None, 40,
    ),
    Family(
        "sqlite cursors", Group.OBJECTS, lambda kind: kind.is_a(sqlite3.Cursor),
        lambda value, kind: "sqlite3 Cursor", _cursor, None, 40,
    ),
    Family("locks", Group.OBJECTS, lambda kind: kind.exactly(*_LOCKS), _name, _lock, None, 40),
)
