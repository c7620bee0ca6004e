"""Tables of polars and pyarrow: shape, columns, types, null counts (kept by both, so exact and free)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipyagent.escape import counted
from ipyagent.kernel.previews._context import Group, PreviewContext, PreviewHandler, TypeInfo, clip, of_library
from ipyagent.kernel.previews.values import numbers_in_text, truth_words
from ipyagent.redaction.names import name_strength

_WORDS = {"String": "str", "Int": "i", "UInt": "u", "Float": "f", "Boolean": "bool", "Datetime": "dt", "double": "f64"}


def type_word(dtype: Any) -> str:
    """A type of polars or pyarrow in a few characters."""
    text = str(dtype)
    if text.startswith("Datetime("):  # Datetime(time_unit='us', time_zone='UTC')
        return f"dt[{', '.join(part.partition('=')[2].strip(chr(39)) for part in text[9:-1].split(', '))}]".replace(
            ", None]", "]"
        )
    for long, short in _WORDS.items():
        if text.startswith(long):
            return clip(short + text[len(long) :], 40)
    return clip(text, 40)


def _shape(value: Any) -> tuple[int, int]:
    return (value.num_rows, value.num_columns) if hasattr(value, "num_rows") else (value.height, value.width)


def _names(value: Any) -> list[str]:
    return list(value.schema.names) if hasattr(value, "num_rows") else list(value.columns)


def _column(value: Any, at: int) -> tuple[str, int, Any]:
    """Type word, number of nulls and the column."""
    if hasattr(value, "num_rows"):
        column = value.column(at)
        return type_word(column.type), column.null_count, column
    column = value.to_series(at)
    return type_word(column.dtype), column.null_count(), column


def _cells(column: Any, start: int, stop: int) -> list[Any]:
    part = column.slice(start, stop - start)
    return list(part.to_list() if hasattr(part, "to_list") else part.to_pylist())


def _numbers(word: str, column: Any, label: str, look: PreviewContext) -> str:
    """That a column of texts is mostly numbers; "" for any other. At most 4,000 cells are read."""
    if word not in ("str", "string", "large_string", "string_view") or name_strength(label) == 2 or look.spent(0.5):
        return ""
    rows, cells = len(column), []
    for start in (0,) if rows <= 4_000 else range(0, rows - 40, rows // 100):
        cells += _cells(column, start, start + (rows if rows <= 4_000 else 40))
    return numbers_in_text(cells, of="" if rows <= 4_000 else "sampled")


def _truths(column: Any) -> str:
    """How many truth values of a column are True and how many False."""
    if callable(column.null_count):  # polars
        return truth_words(int(column.sum() or 0), len(column) - column.null_count())
    return truth_words(sum(part.true_count for part in getattr(column, "chunks", [column])),
                       len(column) - column.null_count)  # fmt: skip


def short(value: Any, kind: TypeInfo) -> str:
    rows, columns = _shape(value)
    return f"{kind.top} {kind.name} {rows} x {columns}"


def _columns(value: Any, look: PreviewContext) -> Iterator[str]:
    for at, name in enumerate(_names(value)):
        word, nulls, column = _column(value, at)
        label = look.label(name, 40)
        words = "; ".join(filter(None, (f"{nulls:,} null" if nulls else "", _numbers(word, column, label, look))))
        yield f"{look.heading(name, 40)} {word}" + (f" ({words})" if words else "")


def line(value: Any, look: PreviewContext, width: int) -> str:
    head = short(value, look.kind(value))
    if width < 60 and look.depth > 1:
        return f"<{head}>"
    return f"{head}: {look.items(_columns(value, look), width - len(head) - 2, _shape(value)[1])}"


def block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    rows, columns = _shape(value)
    names = _names(value)
    yield short(value, look.kind(value))
    shown = min(columns, max(8, width // 100))
    for at in range(shown):
        word, nulls, column = _column(value, at)
        label = look.label(names[at], 60)
        cells = (look.cell(cell, 40, label) for cell in _cells(column, 0, 4))
        told = _numbers(word, column, label, look)
        facts = ", ".join(filter(None, (word, f"{nulls:,} null" if nulls else "", told)))
        if word == "bool" and rows and name_strength(label) < 2:
            yield f"  {look.heading(names[at], 60)}: {facts}, {_truths(column)}"
            continue
        yield f"  {look.heading(names[at], 60)}: {facts}, e.g. {look.items(cells, 140, None)}"
    if columns > shown:
        more = (look.heading(name, 30) for name in names[shown:])
        yield f"  {counted(columns - shown, 'more column')}: {look.items(more, 400, columns - shown)}"
    wide = min(columns, 12)
    each = max(10, min(60, width // 8 // max(1, wide)))
    for start, stop in ((0, min(3, rows)), (max(3, rows - 2), rows)):
        cells_of = [_cells(_column(value, at)[2], start, stop) for at in range(wide)]
        for at in range(start, stop):
            row = (look.cell(column[at - start], each, names[n]) for n, column in enumerate(cells_of))
            yield f"  [{at}] " + " | ".join(row)


def series_short(value: Any, kind: TypeInfo) -> str:
    return f"{kind.top} {kind.name} {type_word(value.dtype)} {value.len()}"


def series_line(value: Any, look: PreviewContext, width: int) -> str:
    nulls = value.null_count()
    head = f"{series_short(value, look.kind(value))} {look.label(value.name, 40)}"
    told = _numbers(type_word(value.dtype), value, look.label(value.name, 40), look)
    words = "; ".join(filter(None, (f"{nulls:,} null" if nulls else "", told)))
    head += f" ({words})" if words else ""
    if value.len() and value.dtype.is_numeric() and value.len() <= 2_000_000 and name_strength(str(value.name)) < 2:
        low, high, mean = value.min(), value.max(), value.mean()
        if low is not None:
            return f"{head}: {look.cell(low, 40)} to {look.cell(high, 40)}, mean {look.cell(float(mean), 40)}"
    if value.len() and str(value.dtype) == "Boolean" and name_strength(str(value.name)) < 2:
        return f"{head}: {_truths(value)}"
    if value.len() and value.dtype.is_temporal() and value.len() <= 2_000_000 and value.min() is not None:
        return f"{head}: {look.cell(value.min(), 40)} to {look.cell(value.max(), 40)}"
    cells = (look.cell(cell, 40, value.name) for cell in _cells(value, 0, 20))
    return f"{head}: {look.items(cells, width - len(head.encode()) - 2, value.len())}"


def series_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    yield series_line(value, look, 300)
    cells = (look.cell(cell, 60, value.name) for cell in _cells(value, 0, 20))
    yield f"  first: {look.items(cells, 600, value.len())}"


def _is_table(kind: TypeInfo) -> bool:
    if kind.genuine("polars") and kind.is_library("polars", "DataFrame"):
        return True
    return kind.top == "pyarrow" and kind.is_library("pyarrow", "Table", "RecordBatch")


def _arrow(value: Any, look: PreviewContext, width: int) -> str:
    """Of pyarrow schemas, types and columns."""
    kind = look.kind(value)
    if kind.is_library("pyarrow", "Schema"):
        named = (f"{look.label(field.name, 40)} {type_word(field.type)}" for field in list(value)[:60])
        return f"pyarrow Schema {len(value)}: {look.items(named, max(20, min(width, 200)), len(value))}"
    if not kind.is_library("pyarrow", "Array", "ChunkedArray"):
        return f"pyarrow {type_word(value)}"
    nulls = f" ({value.null_count:,} null)" if value.null_count else ""
    head = f"pyarrow {kind.name} {type_word(value.type)} {len(value)}{nulls}"
    cells = (look.cell(cell, 40) for cell in _cells(value, 0, 12))
    return f"{head}: {look.items(cells, max(20, min(width, 200) - len(head)), len(value))}"


def _schema(value: Any, look: PreviewContext, width: int) -> str:
    known = list(dict.items(value))
    named = (f"{look.label(name, 40)} {type_word(of)}" for name, of in known[:60])
    return f"polars Schema {len(known)}: {look.items(named, max(20, min(width, 200)), len(known))}"


FAMILIES = (
    of_library(
        "arrow columns", _arrow, "pyarrow", "Schema", "Array", "ChunkedArray", "DataType",
        genuine="pyarrow", group=Group.ARRAYS, order=10,
    ),
    of_library(
        "polars schemas", _schema, "polars", "Schema", genuine="polars", group=Group.CONTAINERS,
        short=lambda value, kind: f"polars Schema {dict.__len__(value)}", order=10,
    ),
    PreviewHandler("polars and arrow tables", Group.FRAMES, _is_table, short, line, block, 10),
    PreviewHandler(
        "polars series", Group.FRAMES, lambda kind: kind.genuine("polars") and kind.is_library("polars", "Series"),
        series_short, series_line, series_block, 10,
    ),
)
