"""Any other object: its type and what is stored in it. Nothing of it is called: no repr, no property,
no length."""

from __future__ import annotations

import _thread
import functools
import inspect
import io
import itertools
import linecache
import os
import pathlib
import sqlite3
import sys
import types
from collections.abc import Iterator
from typing import Any

from ipyagent.kernel.previews._context import (
    MISSING,
    Group,
    PreviewContext,
    PreviewHandler,
    TypeInfo,
    class_dict,
    class_module,
    class_name,
    clip,
    facts,
    instance_dict,
    loaded,
    of_library,
    of_types,
    one_line,
    own_name,
    slots,
    stored,
)

MOST = 200
"""Attributes that are looked at."""


def _attributes(value: Any) -> dict[str, Any]:
    own = instance_dict(value)
    kept = stored(own.get("_param__private"), "values")  # of the library param, with all that has a default
    if type(kept) is dict:
        own = {name: item for name, item in kept.items() if item is not None and type(item) not in (list, dict, tuple)}
    found = dict(itertools.islice(own.items(), MOST))
    return {
        name: item
        for name, item in {**slots(value), **found}.items()
        if type(name) is str and not name.startswith("_")
    }


def _from(kind: TypeInfo) -> str:
    return "" if kind.module in ("__main__", "builtins", "") else f" ({one_line(kind.module)})"


def _is_the_users(kind: TypeInfo) -> bool:
    """Whether the class was written by the user, so that the names of its methods tell something: not one that was
    installed or is Python's own."""
    file = loaded(kind.module, "__file__")
    if type(file) is not str:  # a cell, or what has no file
        return kind.top not in sys.builtin_module_names
    place = pathlib.PurePath(file)
    try:
        here = os.getcwd()
    except OSError:  # the folder is gone
        return False
    return place.is_relative_to(here) and not {"site-packages", "dist-packages"} & set(place.parts)


def line(value: Any, look: PreviewContext, width: int) -> str:
    """Of the user's objects as much as fits, of a library's a few facts."""
    ours = _is_the_users(look.kind(value)) or look.kind(value).is_a(BaseException)
    return (_line if ours else facts(_line))(value, look, width)


def _line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    name = one_line(kind.name)
    if kind.is_a(BaseException):
        arguments = BaseException.__dict__["args"].__get__(value)
        cells = (look.line(argument, 200) for argument in arguments)
        return f"{name}{_from(kind)}: {look.items(cells, max(10, width - len(name) - 2), len(arguments))}"
    head = f"{name} object{_from(kind)}" if kind.cls is not object else "object"
    attributes = _attributes(value)
    if not attributes:
        return head
    each = max(16, min(60, width // 3))
    shown = (f"{one_line(name)}={look.line(item, each, name)}" for name, item in attributes.items())
    return f"{head}: {look.items(shown, max(10, width - len(head.encode()) - 2), len(attributes))}"


def block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    kind = look.kind(value)
    if kind.is_a(BaseException):
        yield line(value, look, min(width, 1_000))
        return
    yield f"{one_line(kind.name)} object ({one_line(kind.module) or 'module unknown'})"
    attributes = _attributes(value)
    each = max(60, min(400, width // max(1, min(len(attributes), 12))))
    for name, item in attributes.items():
        yield f"  {one_line(name)}: {look.line(item, each, name)}"
    if len(instance_dict(value)) > MOST:
        yield f"  … {len(instance_dict(value)) - MOST:,} more attributes"
    if not _is_the_users(kind):
        return
    methods = [
        one_line(name)
        for base in kind.mro[:-1]
        if _is_the_users(TypeInfo(base))
        for name in class_dict(base)
        if type(name) is str and not name.startswith("_") and name not in attributes
    ]
    if methods:
        yield f"  class has: {look.items(iter(methods), 400, len(methods))}"


_OBJECTS = (PreviewHandler("objects", Group.OBJECTS, lambda kind: True, own_name, line, block, 1_000),)


# ---- Functions, classes and modules: the signature is read from the code object, defaults are shown as values are,
# the source comes from memory (cells), never from running or importing anything.

_BUILTINS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)


def _annotation(value: Any, depth: int = 0) -> str:
    if type(value) is str:
        return clip(one_line(value), 40)
    kind = TypeInfo(type(value))
    if value is None or kind.is_a(type):
        return "None" if value is None else class_name(value)
    # a generic such as list[int] is told by its origin: its own repr may run a metaclass
    parts = value.__args__ if kind.exactly(types.UnionType) else stored(value, "__args__")
    if "Union" in kind.name and type(parts) is tuple and depth < 3:
        return " | ".join(_annotation(part, depth + 1) for part in parts[:6])
    origin = value.__origin__ if kind.exactly(types.GenericAlias) else stored(value, "__origin__")
    return class_name(origin) if TypeInfo(type(origin)).is_a(type) else kind.name


def signature(function: types.FunctionType, look: PreviewContext, width: int = 300) -> str:
    """`(a: int, *, b=3)` of a Python function."""
    code, names = function.__code__, function.__code__.co_varnames
    count, only = code.co_argcount, code.co_kwonlyargcount
    # a program may have set these to subclasses of its own
    values = tuple.__getitem__(function.__defaults__ or (), slice(-count or None, None))
    defaults = dict(zip(names[count - len(values) : count], values, strict=False))
    keywords = function.__kwdefaults__ or {}
    alone = [name for name in names[count : count + only] if dict.__contains__(keywords, name)]
    defaults |= {name: dict.__getitem__(keywords, name) for name in alone}
    # from 3.14 on reading annotations runs the expressions that the user wrote
    notes: dict[str, Any] = function.__annotations__ if sys.version_info < (3, 14) else {}

    def parameter(name: str, defaults: dict[str, Any] = defaults) -> str:
        note = dict.get(notes, name, MISSING)
        text = name + ("" if note is MISSING else f": {_annotation(note)}")
        equals = "=" if note is MISSING else " = "
        return text + (f"{equals}{look.line(defaults[name], 40, name)}" if name in defaults else "")

    parts = [parameter(name) for name in names[:count]]
    if code.co_posonlyargcount:
        parts.insert(code.co_posonlyargcount, "/")
    after = count + only
    if code.co_flags & inspect.CO_VARARGS:
        parts.append(f"*{parameter(names[after], {})}")
        after += 1
    elif only:
        parts.append("*")
    parts += [parameter(name) for name in names[count : count + only]]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append(f"**{parameter(names[after], {})}")
    returned = dict.get(notes, "return", MISSING)
    back = "" if returned is MISSING else f" -> {_annotation(returned)}"
    return f"({look.items(iter(parts), width, len(parts))}){back}"


def _word(function: types.FunctionType) -> str:
    flags = function.__code__.co_flags
    word = "lambda" if function.__name__ == "<lambda>" else "def"
    return "async def" if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR) else word


def function_line(value: Any, look: PreviewContext, width: int) -> str:
    name = "" if value.__name__ == "<lambda>" else value.__name__
    text = f"{_word(value)} {name}{signature(value, look, max(20, width - len(name) - 6))}"
    doc = value.__doc__.strip() if type(value.__doc__) is str else ""
    doc = clip(one_line(doc.split("\n", 1)[0]), 80)
    return f"{text} — {doc}" if doc and len(text) + 10 < width else text


def source(code: types.CodeType) -> list[str]:
    """Lines of a function's source when they are in memory already (cells of this session)."""
    entry = linecache.cache.get(code.co_filename)
    if not isinstance(entry, tuple) or len(entry) != 4:
        return []
    return inspect.getblock(list(entry[2][code.co_firstlineno - 1 : code.co_firstlineno + 400]))


def function_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    yield function_line(value, look, 400)
    code = value.__code__
    yield f"  from {look.label(value.__module__, 60)}, line {code.co_firstlineno}"
    lines = source(code)
    if lines:
        yield from (f"  | {line.rstrip()}" for line in lines)
    elif type(value.__doc__) is str:
        yield from (f"  {line}" for line in value.__doc__.strip().splitlines()[:40])


def _builtin(value: Any, look: PreviewContext, width: int) -> str:
    return f"builtin function {clip(one_line(value.__name__), 60)}"


def _method(value: Any, look: PreviewContext, width: int) -> str:
    function = value.__func__
    plain = type(function) is types.FunctionType
    inner = f"{function.__name__}{signature(function, look)}" if plain else look.short(function)
    return f"method {inner} of a {look.kind(value.__self__).name}"


def _partial(value: Any, look: PreviewContext, width: int) -> str:
    called = look.line(value.func, max(20, width // 2))
    return f"partial of {called}, {len(value.args)} positional and {len(value.keywords)} named arguments set"


def _cached(value: Any, look: PreviewContext, width: int) -> str:
    inner = instance_dict(value).get("__wrapped__")
    return f"cached {look.line(inner, max(20, width - 8))}" if type(inner) is types.FunctionType else "cached function"


def class_line(value: Any, look: PreviewContext, width: int) -> str:
    mro = TypeInfo(value).mro
    bases = [class_name(base) for base in mro[1:-1]][:3]
    own = class_dict(value)
    text = f"class {class_name(value)}" + (f"({', '.join(bases)})" if bases else "")
    init = own.get("__init__")
    if type(init) is types.FunctionType:
        made_from = signature(init, look, max(20, width // 2))
        text += f", made from {made_from.replace('(self, ', '(').replace('(self)', '()')}"
    public = [name for name in own if type(name) is str and not name.startswith("_")]
    if public:
        text += f": {look.items(iter(map(one_line, public)), max(10, width - len(text.encode()) - 2), len(public))}"
    return text


def class_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    yield f"{class_line(value, look, 300)} ({class_module(value)})"
    own = class_dict(value)
    if doc := own.get("__doc__"):
        yield from (f"  {line}" for line in (doc.strip().splitlines()[:20] if type(doc) is str else ()))
    for name, member in list(own.items())[:100]:
        if type(name) is not str or (name.startswith("_") and name != "__init__"):
            continue
        inner = member.__func__ if type(member) in (staticmethod, classmethod) else member
        if type(inner) is types.FunctionType:
            word = {staticmethod: "static ", classmethod: "class "}.get(type(member), "")
            yield f"  {word}{_word(inner)} {name}{signature(inner, look)}"
        else:
            yield f"  {one_line(name)}: {'property' if type(member) is property else look.line(member, 100, name)}"


def module_line(value: Any, look: PreviewContext, width: int) -> str:
    own = instance_dict(value)
    name = own.get("__name__")
    version = own.get("__version__")
    return f"module {name if type(name) is str else '?'}" + (f" {version}" if type(version) is str else "")


_CALLABLES = (
    of_types("functions", Group.FUNCTIONS, function_line, types.FunctionType, word="function", block=function_block),
    of_types("builtin functions", Group.FUNCTIONS, _builtin, *_BUILTINS, word="builtin function"),
    of_types("methods", Group.FUNCTIONS, _method, types.MethodType, word="method"),
    of_types("partials", Group.FUNCTIONS, _partial, functools.partial, word="partial"),
    of_types("cached functions", Group.FUNCTIONS, _cached, functools._lru_cache_wrapper, word="function"),
    PreviewHandler(
        "classes", Group.FUNCTIONS, lambda kind: kind.is_a(type), lambda value, kind: f"class {class_name(value)}",
        class_line, class_block, 40,
    ),
    PreviewHandler(
        "modules", Group.FUNCTIONS, lambda kind: kind.is_a(types.ModuleType), lambda value, kind: "module",
        module_line, None, 40,
    ),
)  # fmt: skip


# ---- Things outside memory: connections, files, locks, processes. Their state is told, nothing is read.

_FILES = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_LOCKS = (_thread.LockType, _thread.RLock)


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


def _column(value: Any, look: PreviewContext, width: int) -> str:
    return f"sqlalchemy Column {_schema_column(value, look)}"


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


_RESOURCES = (
    of_library(
        "rows of a result", _row, "sqlalchemy", "Row", genuine="sqlalchemy", group=Group.CONTAINERS, order=4
    ),
    of_library("engines", _engine, "sqlalchemy", "Engine", "Connection", genuine="sqlalchemy", order=4),
    of_library("tables of a schema", _schema_table, "sqlalchemy", "Table", genuine="sqlalchemy", order=4),
    of_library("columns of a schema", _column, "sqlalchemy", "Column", genuine="sqlalchemy", order=4),
    of_types("files", Group.OBJECTS, _file, *_FILES),
    of_types("files in memory", Group.OBJECTS, _memory_file, io.StringIO, io.BytesIO),
    PreviewHandler(
        "sqlite connections", Group.OBJECTS, lambda kind: kind.is_a(sqlite3.Connection),
        lambda value, kind: "sqlite3 Connection", _connection, None, 40,
    ),
    PreviewHandler(
        "sqlite cursors", Group.OBJECTS, lambda kind: kind.is_a(sqlite3.Cursor),
        lambda value, kind: "sqlite3 Cursor", _cursor, None, 40,
    ),
    of_types("locks", Group.OBJECTS, _lock, *_LOCKS),
)  # fmt: skip


FAMILIES = (*_CALLABLES, *_RESOURCES, *_OBJECTS)
