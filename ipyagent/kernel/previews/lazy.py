"""What computes or is used up when it is read is named and left alone: lazy frames, queries, grouped
tables, generators and other iterators. Columns are told where the object knows them."""

from __future__ import annotations

import threading
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
    class_name,
    clip,
    facts,
    instance_dict,
    one_line,
    own_name,
    slots,
    stored,
)
from ipyagent.kernel.previews.pandas_tables import dtype_word, plain_table
from ipyagent.kernel.previews.polars_tables import type_word

_LAZY: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("polars", ("LazyFrame", "Expr", "GroupBy", "LazyGroupBy", "DynamicGroupBy", "RollingGroupBy")),
    ("pandas", ("GroupBy", "BaseGroupBy", "BaseWindow", "Styler", "StylerRenderer", "Resampler")),
    ("dask", ()),
    ("dask_expr", ()),
    ("sqlalchemy", ("Query", "ClauseElement", "Result", "ChunkedIteratorResult", "CursorResult", "AppenderQuery")),
    ("django", ("QuerySet", "RawQuerySet", "BaseManager")),
    ("ibis", ()),
    ("pyspark", ()),
    ("duckdb", ("DuckDBPyRelation",)),
    ("_duckdb", ("DuckDBPyRelation",)),
    ("peewee", ("BaseQuery", "ModelSelect")),
    ("snowflake", ()),
    ("vaex", ()),
    ("modin", ()),
    ("datatable", ()),
)
SCHEMA_SECONDS = 0.05
"""How long the names of a lazy frame's columns may take: the header of a file may have to be read for them."""
_ITERATORS = (map, filter, zip, enumerate, reversed, types.GeneratorType, types.AsyncGeneratorType, types.CoroutineType)


def _lazy_line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    words = [f"{kind.name} ({kind.module}), lazy: not computed", *_columns(value, kind, look, width - 60)]
    source = stored(value, "obj")
    if kind.top == "pandas" and source is not MISSING:
        words.append(f"over {look.short(source)}")
        keys = stored(value, "keys")
        if keys is not MISSING and keys is not None:
            words.append(f"by {look.line(keys, 80)}")
    data = stored(value, "data")
    if kind.top == "pandas" and data is not MISSING:
        words.append(f"over {look.short(data)}")
        caption = stored(value, "caption")
        words.append(f"caption {look.line(caption, 60)}" if type(caption) is str else "")
    model = stored(value, "model")
    if model is not MISSING and look.kind(model).is_a(type):
        words.append(f"of {class_name(model)}")
    if "_result_cache" in instance_dict(value):
        words.append("results cached" if type(stored(value, "_result_cache")) is list else "not fetched")
    return ", ".join(filter(None, words))


def _columns(value: Any, kind: TypeInfo, look: PreviewContext, width: int) -> list[str]:
    """Columns, shape or expression that the object knows without computing."""
    named: list[str] = []
    if kind.genuine("polars") and kind.is_library("polars", "LazyFrame"):
        schema = _schema(value)
        if schema is None:
            return ["columns not read"]
        named = [f"{look.label(name, 40)} {type_word(dtype)}" for name, dtype in schema.items()]
    elif kind.genuine("polars") and kind.is_library("polars", "Expr"):
        return [clip(one_line(str(value)), 120)]
    elif kind.top == "sqlalchemy":
        return _selected(value, look)
    elif kind.top in ("duckdb", "_duckdb"):
        named = [f"{look.label(name, 40)} {one_line(str(of))}" for name, of in _relation(value, kind)]
        step = stored(stored(value, "_step"), "text")
        if type(step) is str:
            return [f"{_counted(named)}: {look.items(iter(named), 90, len(named))}", f"from {look.line(step, 60)}"]
    elif kind.top in ("dask", "dask_expr") and (kind.genuine("dask") or kind.genuine("dask_expr")):
        meta = stored(value, "_meta")
        expression = stored(value, "_expr")
        meta = stored(expression, "_meta") if meta is MISSING else meta
        if kind.name == "Array" and stored(value, "shape") == ():
            return [f"{dtype_word(meta.dtype) if look.kind(meta).genuine('numpy', 'scipy') else ''} scalar".strip()]
        if kind.name == "Array":
            shape, chunks = stored(value, "shape"), slots(value).get("_Array__chunks")
            size = "x".join(map(str, shape)) if type(shape) is tuple else "?"
            parts = "x".join(str(len(part)) for part in chunks) if type(chunks) is tuple else "?"
            first = "x".join(str(part[0]) for part in chunks if part) if type(chunks) is tuple else "?"
            dtype = dtype_word(meta.dtype) if look.kind(meta).genuine("numpy", "scipy") else ""
            return [f"{dtype} {size} in {parts} chunks of {first}".strip()]
        empty = plain_table(meta, kind.name) if look.kind(meta).is_library("pandas", kind.name) else MISSING
        if empty is not MISSING and kind.name == "DataFrame":
            pairs = zip(empty.columns.tolist(), empty.dtypes.tolist(), strict=True)
            named = [f"{look.label(name, 40)} {dtype_word(dtype)}" for name, dtype in pairs]
        elif empty is not MISSING and kind.name == "Series":
            return [f"{look.label(empty.name, 40)} {dtype_word(empty.dtype)}"]
        key = stored(value, "_key")
        if type(key) is str:
            return [look.line(key, 60)]
    if not named:
        return []
    return [f"{_counted(named)}: {look.items(iter(named), max(40, min(width, 160)), len(named))}"]


def _counted(named: list[str]) -> str:
    return f"{len(named)} column{'s' * (len(named) != 1)}"


def _selected(value: Any, look: PreviewContext) -> list[str]:
    """What a select of sqlalchemy reads."""
    parts = stored(value, "_raw_columns")
    names = [stored(part, "name") for part in parts[:12]] if type(parts) is list else []
    owners = [stored(stored(part, "table"), "name") for part in parts[:12]] if type(parts) is list else []
    told = [
        f"{str.__str__(owner)}.{str.__str__(name)}" if look.kind(owner).is_a(str) else str.__str__(name)
        for name, owner in zip(names, owners, strict=True)
        if look.kind(name).is_a(str)
    ]
    return [f"of {look.items(iter(told), 100, len(told))}"] if told else []


def _schema(value: Any) -> dict[str, Any] | None:
    """Names and types of a LazyFrame's columns; None when they are not there at once. A function of the user that
    makes the schema (`pipe_with_schema`) is not called where the frame is its direct product."""
    plan = stored(value, "_ldf")
    name = getattr(plan, "_node_name", None)
    node = name() if name is not None and TypeInfo(type(plan)).name == "PyLazyFrame" else ""
    if "Python" in node or "Pipe" in node or any(each.name == "ipyagent-schema" for each in threading.enumerate()):
        return None
    found: list[dict[str, Any]] = []

    def read() -> None:
        try:
            found.append(dict(value.collect_schema()))
        except Exception:  # noqa: BLE001 - a file that is gone, a plan that fails: nothing is known of its columns
            return

    thread = threading.Thread(target=read, name="ipyagent-schema", daemon=True)
    thread.start()
    thread.join(SCHEMA_SECONDS)
    return found[0] if found else None


def _relation(value: Any, kind: TypeInfo) -> list[tuple[str, Any]]:
    """Columns of a duckdb relation: known since it was made."""
    schema = slots(value).get("_schema", stored(value, "_schema"))
    if type(schema) is tuple and len(schema) == 2:
        names, types_of = schema
    elif type(class_dict(kind.cls).get("columns")) is property and not slots(value):
        names, types_of = value.columns, value.types  # the library's own, in C++: bound when it was made
    else:
        return []
    return [(name, of) for name, of in zip(names, types_of, strict=False) if type(name) is str]


def _is_iterator(kind: TypeInfo) -> bool:
    if kind.exactly(*_ITERATORS):
        return True
    return kind.module == "itertools" or (kind.module == "builtins" and kind.name.endswith("iterator"))


def _iterator_line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    if kind.exactly(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType):
        name = stored(value, "__qualname__")
        code = next((getattr(value, a) for a in ("gi_code", "cr_code", "ag_code") if hasattr(value, a)), None)
        called = name if type(name) is str else code.co_qualname if code is not None else ""
        frame = next((getattr(value, a) for a in ("gi_frame", "cr_frame", "ag_frame") if hasattr(value, a)), None)
        return f"{kind.name} {called} ({'finished' if frame is None else 'not consumed'})"
    return f"{kind.name} iterator (not consumed)"


def _block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    yield _lazy_line(value, look, width)
    yield "  compute a few rows of it with the python tool to see more"


FAMILIES = (
    PreviewHandler(
        "lazy frames and queries", Group.FRAMES,
        lambda kind: any(kind.comes_from(top, *names) for top, names in _LAZY),
        lambda value, kind: f"{kind.top} {kind.name} (lazy)", facts(_lazy_line), _block, 5,
    ),
    PreviewHandler("iterators", Group.CONTAINERS, _is_iterator, own_name, _iterator_line, None, 20),
)  # fmt: skip
