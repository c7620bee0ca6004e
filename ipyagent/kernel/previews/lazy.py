"""What computes or is used up when it is read is named and left alone: lazy frames, queries, grouped
tables, generators and other iterators."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from ipyagent.kernel.previews._kind import MISSING, Kind, class_name, instance_dict, stored
from ipyagent.kernel.previews._look import Family, Group, Look

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
_ITERATORS = (map, filter, zip, enumerate, reversed, types.GeneratorType, types.AsyncGeneratorType, types.CoroutineType)


def _is_lazy(kind: Kind) -> bool:
    return any(kind.comes_from(top, *names) for top, names in _LAZY)


def _lazy_line(value: Any, look: Look, width: int) -> str:
    kind = look.kind(value)
    words = [f"{kind.name} ({kind.module}), lazy: not computed"]
    source = stored(value, "obj")
    if kind.top == "pandas" and source is not MISSING:
        words.append(f"over {look.short(source)}")
        keys = stored(value, "keys")
        if keys is not MISSING and keys is not None:
            words.append(f"by {look.line(keys, 80)}")
    data = stored(value, "data")
    if kind.top == "pandas" and data is not MISSING:
        words.append(f"over {look.short(data)}")
    model = stored(value, "model")
    if model is not MISSING and look.kind(model).is_a(type):
        words.append(f"of {class_name(model)}")
    if "_result_cache" in instance_dict(value):
        words.append("results cached" if type(stored(value, "_result_cache")) is list else "not fetched")
    return ", ".join(words)


def _is_iterator(kind: Kind) -> bool:
    if kind.exactly(*_ITERATORS):
        return True
    return kind.module == "itertools" or (kind.module == "builtins" and kind.name.endswith("iterator"))


def _iterator_line(value: Any, look: Look, width: int) -> str:
    kind = look.kind(value)
    if kind.exactly(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType):
        name = stored(value, "__qualname__")
        code = next((getattr(value, a) for a in ("gi_code", "cr_code", "ag_code") if hasattr(value, a)), None)
        called = name if type(name) is str else code.co_qualname if code is not None else ""
        frame = next((getattr(value, a) for a in ("gi_frame", "cr_frame", "ag_frame") if hasattr(value, a)), None)
        return f"{kind.name} {called} ({'finished' if frame is None else 'not consumed'})"
    return f"{kind.name} iterator (not consumed)"


def _block(value: Any, look: Look, width: int) -> Iterator[str]:
    yield _lazy_line(value, look, width)
    yield "  compute a few rows of it with the python tool to see more"


FAMILIES = (
    Family(
        "lazy frames and queries", Group.FRAMES, _is_lazy, lambda value, kind: f"{kind.top} {kind.name} (lazy)",
        _lazy_line, _block, 5,
    ),
    Family("iterators", Group.CONTAINERS, _is_iterator, lambda value, kind: kind.name, _iterator_line, None, 20),
)
