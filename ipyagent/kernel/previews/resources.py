"""Things outside memory: connections, files, locks, processes. Their state is told, nothing is read."""

from __future__ import annotations

import _thread
import io
import sqlite3
from typing import Any

from ipyagent.kernel.previews._kind import MISSING, TypeInfo, instance_dict, slots, stored
from ipyagent.kernel.previews._look import Group, PreviewContext, PreviewHandler

_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_LOCKS = (_thread.LockType, _thread.RLock)


def _name(value: Any, kind: TypeInfo) -> str:
    return f"{kind.top} {kind.name}" if kind.top not in ("builtins", "_io", "_thread") else kind.name


def _file(value: Any, look: PreviewContext, width: int) -> str:
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


def _memory_file(value: Any, look: PreviewContext, width: int) -> str:
    return f"{look.kind(value).name} ({'closed' if value.closed else 'open'}, not read)"


def _connection(value: Any, look: PreviewContext, width: int) -> str:
    try:
        busy = sqlite3.Connection.__dict__["in_transaction"].__get__(value)
    except sqlite3.Error:
        return "sqlite3 Connection, closed"
    return "sqlite3 Connection, open" + (", in a transaction" if busy else "")


def _cursor(value: Any, look: PreviewContext, width: int) -> str:
    columns = sqlite3.Cursor.__dict__["description"].__get__(value)
    if not columns:
        return "sqlite3 Cursor, no rows"
    names = (look.label(column[0], 40) for column in columns[:30])
    return f"sqlite3 Cursor (rows not fetched): {look.items(names, max(10, width - 40), len(columns))}"


def _lock(value: Any, look: PreviewContext, width: int) -> str:
    if type(value) is _thread.LockType:
        return f"lock, {'locked' if value.locked() else 'free'}"
    return "RLock"


# ---------------------------------------------------------------------- sqlalchemy


def _engine(value: Any, look: PreviewContext, width: int) -> str:
    """An engine or connection: driver, host and database; user and password are left out."""
    engine = stored(value, "engine") if look.kind(value).name != "Engine" else value
    url = stored(engine, "url")
    if not look.kind(url).is_a(tuple) or tuple.__len__(url) < 6:
        return f"sqlalchemy {look.kind(value).name}"
    driver, _, _, host, port, database = tuple.__getitem__(url, slice(0, 6))
    place = "".join(str(part) for part in (host, ":" if port else None, port) if type(part) in (str, int))
    named = look.label(database, 60) if type(database) is str else ""
    return f"sqlalchemy {look.kind(value).name} {look.label(driver, 40)}://{look.label(place, 60)}/{named}"


def _schema_table(value: Any, look: PreviewContext, width: int) -> str:
    columns = slots(stored(value, "_columns")).get("_collection", [])
    named = [_schema_column(row[1], look) for row in columns[:40] if type(row) is tuple and len(row) > 1]
    name = look.label(_text(stored(value, "fullname")), 60)
    return f"sqlalchemy Table {name}: {look.items(iter(named), 180, len(columns))}"


def _schema_column(value: Any, look: PreviewContext) -> str:
    told = f"{look.label(_text(stored(value, 'name')), 40)} {look.kind(stored(value, 'type')).name}"
    return told + (" primary key" if stored(value, "primary_key") is True else "")


def _text(value: Any) -> str:
    # names are of a subclass of str that quotes
    return str.__str__(value)[:200] if TypeInfo(type(value)).is_a(str) else "?"


def _row(value: Any, look: PreviewContext, width: int) -> str:
    cells = value._data
    keys = value._parent._keys if type(cells) is tuple else ()
    shown = (f"{look.label(key, 30)}={look.line(cell, 60, str(key))}" for key, cell in zip(keys, cells, strict=False))
    return f"Row({look.items(shown, max(20, width - 6), len(cells))})"


FAMILIES = (
    PreviewHandler(
        "rows of a result", Group.CONTAINERS,
        lambda kind: kind.genuine("sqlalchemy") and kind.is_library("sqlalchemy", "Row"), _name, _row, None, 4,
    ),
    PreviewHandler(
        "engines", Group.OBJECTS,
        lambda kind: kind.genuine("sqlalchemy") and kind.is_library("sqlalchemy", "Engine", "Connection"),
        _name, _engine, None, 4,
    ),
    PreviewHandler(
        "tables of a schema", Group.OBJECTS,
        lambda kind: kind.genuine("sqlalchemy") and kind.is_library("sqlalchemy", "Table"),
        _name, _schema_table, None, 4,
    ),
    PreviewHandler(
        "columns of a schema", Group.OBJECTS,
        lambda kind: kind.genuine("sqlalchemy") and kind.is_library("sqlalchemy", "Column"), _name,
        lambda value, look, width: f"sqlalchemy Column {_schema_column(value, look)}", None, 4,
    ),
    PreviewHandler("files", Group.OBJECTS, lambda kind: kind.exactly(*_FILES), _name, _file, None, 40),
    PreviewHandler(
        "files in memory", Group.OBJECTS, lambda kind: kind.exactly(io.StringIO, io.BytesIO),
        _name, _memory_file, None, 40,
    ),
    PreviewHandler(
        "sqlite connections", Group.OBJECTS, lambda kind: kind.is_a(sqlite3.Connection),
        lambda value, kind: "sqlite3 Connection", _connection, None, 40,
    ),
    PreviewHandler(
        "sqlite cursors", Group.OBJECTS, lambda kind: kind.is_a(sqlite3.Cursor),
        lambda value, kind: "sqlite3 Cursor", _cursor, None, 40,
    ),
    PreviewHandler("locks", Group.OBJECTS, lambda kind: kind.exactly(*_LOCKS), _name, _lock, None, 40),
)
