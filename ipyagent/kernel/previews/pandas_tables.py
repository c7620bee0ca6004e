"""pandas tables: shape, columns, types, missing values, a few rows. Counts are exact for small tables
and marked `~` when they come from a sample. Cells are read by position, never compared or formatted
by pandas, so that nothing stored in them runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ipyagent.escape import counted
from ipyagent.kernel.previews._context import (
    MISSING,
    Group,
    PreviewContext,
    PreviewHandler,
    TypeInfo,
    clip,
    instance_dict,
    loaded,
    of_library,
    stored,
)
from ipyagent.kernel.previews.values import known_zone, numbers_in_text, truth_words
from ipyagent.redaction.names import name_strength

EXACT_CELLS = 2_000_000
EXACT_OBJECTS = 2_000
TEXTS = 20_000
"""Cells of a text column that are read to say whether they are numbers; 2,000 for its word in a line."""
SAMPLE = 2_000
_SHORT = {"float": "f", "int": "i", "uint": "u"}
_LIBRARIES = ("pandas", "numpy", "pyarrow", "geopandas", "pandas_stubs")


def plain_table(value: Any, name: str) -> Any:
    """A DataFrame or Series of pandas' own class over the same blocks: the user may have overridden
    anything in a subclass. MISSING when this pandas has no way to make one."""
    cls = getattr(sys.modules["pandas"], name)
    if type(value) is cls:
        return value
    blocks = instance_dict(value).get("_mgr", MISSING)
    if blocks is MISSING or not hasattr(cls, "_from_mgr"):
        return MISSING
    made = cls._from_mgr(blocks, blocks.axes)
    if name == "Series":  # which the blocks do not have
        called = instance_dict(value).get("_name")
        object.__setattr__(made, "_name", called if type(called) in (str, int, float, tuple) else None)
    return made


def dtype_word(dtype: Any) -> str:
    """A dtype in a few characters: f64, i64, str, obj, bool, dt64[ns], cat(5)."""
    kind = TypeInfo(type(dtype))
    if kind.top not in _LIBRARIES:
        return clip(kind.name, 30)
    if kind.name == "CategoricalDtype":
        ordered = ", ordered" if dtype.ordered else ""
        return f"cat({len(dtype.categories)}{ordered})" if dtype.categories is not None else "cat"
    if kind.name == "IntervalDtype":
        return f"interval {dtype_word(dtype.subtype)}" if dtype.subtype is not None else "interval"
    if kind.name == "SparseDtype":
        return f"sparse {dtype_word(dtype.subtype)}"
    text = str(dtype) if is_known(dtype) else f"datetime64[{dtype.unit}, a {TypeInfo(type(dtype.tz)).name}]"
    for long, short in (("datetime64", "dt64"), ("timedelta64", "td64"), ("object", "obj"), ("string", "str")):
        if text.startswith(long):
            return clip(short + text[len(long) :], 40)
    base = text.rstrip("0123456789")
    return clip(_SHORT.get(base, base) + text[len(base) :], 40)


def is_readable(column: Any) -> bool:
    """Whether reading the column runs library code alone (a user may write an extension dtype, or a time zone)."""
    return is_known(column.dtype)


def is_known(dtype: Any) -> bool:
    """Whether a dtype is a library's own, with a time zone that is, and so its categories or the ends of its
    intervals."""
    kind = TypeInfo(type(dtype))
    if kind.name == "CategoricalDtype" and kind.top in _LIBRARIES:
        return dtype.categories is None or is_readable(dtype.categories)
    if kind.name == "IntervalDtype" and kind.top in _LIBRARIES:
        return dtype.subtype is None or is_known(dtype.subtype)
    return kind.top in _LIBRARIES and (kind.name != "DatetimeTZDtype" or known_zone(dtype.tz))


def _unknown(index: Any) -> list[Any]:
    """The dtypes of an index, or of the levels of one, whose labels cannot be read."""
    levels = list(index.levels) if TypeInfo(type(index)).name == "MultiIndex" else [index]
    return [level.dtype for level in levels if not is_readable(level)]


def _cells(column: Any, start: int, stop: int) -> list[Any]:
    if not is_readable(column):
        return []
    part = column.iloc[start:stop]
    return list(part.tolist()) if hasattr(part, "tolist") else list(part)


def _is_missing(cell: Any) -> bool:
    if cell is None or cell is loaded("pandas", "NaT") or cell is loaded("pandas", "NA"):
        return True
    number = type(cell) is float or TypeInfo(type(cell)).genuine("numpy")
    return bool(number and type(cell).__name__.startswith("float") and cell != cell)  # NaN alone differs from itself


def missing(column: Any, exact_cells: int, look: PreviewContext) -> tuple[str, bool]:
    """How many values are missing: the words ("" for none) and whether the count is exact."""
    rows = len(column)
    if rows == 0:
        return "", True
    dtype = column.dtype
    letter = getattr(dtype, "kind", "O") if TypeInfo(type(dtype)).top == "numpy" else "x"
    if letter in "iub":
        return "", True
    if not is_readable(column) or look.spent(0.8):
        return "", False
    objects = letter in "OV"
    most = EXACT_OBJECTS if objects else EXACT_CELLS if letter in "fcmM" else exact_cells
    exact = rows <= most and not look.spent(0.4)
    part = column if exact else column.iloc[:: max(1, -(-rows // (400 if objects else SAMPLE)))]
    count = sum(map(_is_missing, part.tolist())) if objects else int(part.isna().sum())
    if exact or len(part) == rows:
        return (f"{count:,} missing" if count else ""), True
    share = 100 * count / len(part)
    return f"~{share:{'.2g' if share < 99.5 else '.0f'}}% missing", False


def _with_readable_labels(frame: Any) -> tuple[Any, str]:
    """The frame, and "", or where the labels of its columns cannot be read the same with numbers for them, and that it
    is so: taking a column out of a frame reads its label."""
    if not (unknown := _unknown(frame.columns)):
        return frame, ""
    numbered = frame.copy(deep=False)
    numbered.columns = range(len(frame.columns))
    return numbered, f" (columns by position, labels {dtype_word(unknown[0])} not asked)"


def _column(frame: Any, at: int) -> Any:
    return frame.iloc[:, at]


def numbers_of(column: Any, look: PreviewContext, most: int) -> str:
    """That a column of texts is mostly numbers, see `numbers_in_text`; "" for any other, and when time is short."""
    if dtype_word(column.dtype) not in ("obj", "str") or not is_readable(column) or look.spent(0.5):
        return ""
    if name_strength(look.label(column.name, 60)) == 2:
        return ""
    rows = len(column)
    step = max(1, -(-rows // most))
    return numbers_in_text(column.iloc[::step].tolist(), of="sampled" if step > 1 else "")


def _head(frame: Any, kind: TypeInfo) -> str:
    return f"{kind.name} {len(frame)} x {len(frame.columns)}"


def _columns(frame: Any, look: PreviewContext, sampled: list[bool]) -> Iterator[str]:
    labels = frame.columns
    columns = len(labels)
    for at in range(columns):
        column = _column(frame, at)
        words, exact = missing(column, EXACT_CELLS // max(1, min(columns, 40)), look)
        if not exact:
            sampled.append(True)
            words = "" if words.startswith("~0%") else words
        told = numbers_of(column, look, SAMPLE)
        words = "; ".join(filter(None, (words, told)))
        name = look.heading(labels[at], 40)
        yield f"{name} {dtype_word(column.dtype)}" + (f" ({words})" if words else "")


def _index_words(index: Any, look: PreviewContext) -> str:
    kind = TypeInfo(type(index))
    if kind.name == "RangeIndex" and index.name is None:
        return ""
    if kind.name == "MultiIndex":
        return f" indexed by ({', '.join(look.heading(name, 30) for name in list(index.names)[:5])})"
    name = "" if index.name is None else f" {look.heading(index.name, 30)}"
    return f" indexed by{name} {dtype_word(index.dtype)}"


def _reference(table: Any, kind: TypeInfo) -> str:
    """The coordinate system of a geopandas table or column."""
    if not kind.is_library("geopandas", "GeoDataFrame", "GeoSeries"):
        return ""
    columns = [table] if not hasattr(table, "columns") else [_column(table, at) for at in range(len(table.columns))]
    for column in columns[:200]:
        if TypeInfo(type(column.dtype)).genuine("geopandas"):
            name = stored(stored(column.array, "_crs"), "srs")
            return f"; geometry in {clip(name, 60)}" if type(name) is str else ""
    return ""


def frame_short(value: Any, kind: TypeInfo) -> str:
    frame = plain_table(value, "DataFrame")
    return kind.name if frame is MISSING else _head(frame, kind)


def frame_line(value: Any, look: PreviewContext, width: int) -> str:
    frame = plain_table(value, "DataFrame")
    kind = look.kind(value)
    if frame is MISSING:
        return kind.name
    frame, labels = _with_readable_labels(frame)
    head = _head(frame, kind)
    if width < 60 and look.depth > 1:
        return f"<{head}>"
    head += _index_words(frame.index, look) + labels
    sampled: list[bool] = []
    columns = look.items(_columns(frame, look, sampled), width - len(head.encode()) - 22, len(frame.columns))
    return f"{head}{' (missing sampled)' if sampled else ''}: {columns}{_reference(frame, kind)}"


def frame_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    frame = plain_table(value, "DataFrame")
    kind = look.kind(value)
    if frame is MISSING:
        yield f"{kind.name} ({kind.module})"
        return
    frame, labels = _with_readable_labels(frame)
    rows, columns = frame.shape
    own = "" if kind.module.startswith("pandas") else f" ({kind.module}, a pandas DataFrame)"
    index = _index_words(frame.index, look) + _span(frame.index, look)
    yield f"{_head(frame, kind)}{own}{index}{labels}{_reference(frame, kind)}"
    shown = min(columns, max(8, width // 110))
    exact_cells = EXACT_CELLS // max(1, shown)
    for at in range(shown):
        column = _column(frame, at)
        yield f"  {look.heading(frame.columns[at], 60)}: {column_words(column, look, exact_cells, 160)}"
    if columns > shown:
        more = (look.heading(frame.columns[at], 30) for at in range(shown, columns))
        yield f"  {counted(columns - shown, 'more column')}: {look.items(more, min(width // 5, 600), columns - shown)}"
    if not rows:
        return
    names = [look.label(frame.columns[at], 40) for at in range(min(columns, 12))]
    each = max(10, min(60, width // 8 // max(1, len(names))))
    top = [_cells(_column(frame, at), 0, 3) for at in range(len(names))]
    end = [_cells(_column(frame, at), max(3, rows - 2), rows) for at in range(len(names))]
    heads = [look.heading(frame.columns[at], 40) for at in range(len(names))]
    yield "rows (first, last): " + " | ".join(heads) + (" | …" if columns > len(names) else "")
    for cells, start in ((top, 0), (end, max(3, rows - 2))):
        for at in range(max((len(column) for column in cells), default=0)):
            row = [
                look.cell(column[at], each, name) if at < len(column) else "?"
                for name, column in zip(names, cells, strict=True)
            ]
            yield f"  [{_row_label(frame.index, start + at, look)}] " + " | ".join(row)


def _row_label(index: Any, at: int, look: PreviewContext) -> str:
    width = 72 if TypeInfo(type(index)).name == "MultiIndex" and index.nlevels > 1 else 36
    return str(at) if _unknown(index) else look.heading(index[at], width)


def _span(index: Any, look: PreviewContext) -> str:
    """From when to when the times of an index reach."""
    if not len(index) or getattr(index.dtype, "kind", "O") != "M" or not is_readable(index):
        return ""
    return f", {_range(sys.modules['pandas'].Series(index.array), look, EXACT_CELLS, '')}"


def column_words(column: Any, look: PreviewContext, exact_cells: int, width: int) -> str:
    """Type, missing values and range or examples of one column."""
    rows = len(column)
    words, exact = missing(column, exact_cells, look)
    text = dtype_word(column.dtype)
    if exact and words == f"{rows:,} missing":
        return f"{text}, all {words}"
    text += f", {words}" if words else "" if exact else ", missing not counted"
    if rows == 0 or not is_readable(column) or look.spent(0.7):
        return text
    letter = getattr(column.dtype, "kind", "O")
    name = look.label(column.name, 60)
    if name_strength(name) == 2:
        return f"{text}, values […masked]"
    if letter in "iufM" and not hasattr(column.dtype, "categories"):
        told = _range(column, look, exact_cells, name)
        return f"{text}, {told}" if told else text
    if letter == "b":
        return f"{text}, {_truths(column, exact_cells)}"
    if getattr(column.dtype, "ordered", False):
        return f"{text}: {_categories(column.dtype, look, width - len(text))}"
    if told := numbers_of(column, look, TEXTS):
        text += f", {told}"
    seen: list[str] = []
    for cell in _cells(column, 0, 60):
        if _is_missing(cell):
            continue
        shown = look.line(cell, 40, name)
        if shown not in seen:
            seen.append(shown)
        if len(seen) == 5 or look.spent(0.9):
            break
    return f"{text}, e.g. {look.items(iter(seen), width - len(text), None).removesuffix(', …')}" if seen else text


def _range(column: Any, look: PreviewContext, exact_cells: int, name: str) -> str:
    """The least and the largest value of numbers or dates, and the mean of numbers; of a sample `~` says so. "" when
    all that was looked at is missing."""
    letter, rows = getattr(column.dtype, "kind", "O"), len(column)
    whole = rows <= exact_cells
    part = column if whole else column.iloc[:: -(-rows // 10_000)]
    low, high = part.min(), part.max()
    if _is_missing(low):
        return ""
    text = f"{'' if whole else '~'}{look.cell(low, 40, name)} to {look.cell(high, 40, name)}"
    return text + (f", mean {'' if whole else '~'}{float(part.mean()):.6g}" if letter in "iuf" else "")


def _truths(column: Any, exact_cells: int) -> str:
    """How many truth values are True and how many False; of a sample the share."""
    rows = len(column)
    if rows <= exact_cells:
        return truth_words(int(column.sum()), int(column.count()))
    part = column.iloc[:: -(-rows // 10_000) | 1]  # an odd step: what alternates is not all alike
    return f"~{100 * int(part.sum()) / max(1, int(part.count())):.0f}% True"


def series_short(value: Any, kind: TypeInfo) -> str:
    series = plain_table(value, "Series")
    return kind.name if series is MISSING else f"{kind.name} {dtype_word(series.dtype)} {len(series)}"


def _categories(dtype: Any, look: PreviewContext, width: int) -> str:
    named = (look.line(each, 40) for each in dtype.categories[:12].tolist())
    return look.items(named, width, len(dtype.categories), " < " if dtype.ordered else ", ")


def _series_head(value: Any, series: Any, look: PreviewContext) -> str:
    name = "" if series.name is None else f" {look.heading(series.name, 40)}"
    return series_short(value, look.kind(value)) + name + _index_words(series.index, look)


def series_line(value: Any, look: PreviewContext, width: int) -> str:
    series = plain_table(value, "Series")
    if series is MISSING:
        return look.kind(value).name
    name = "" if series.name is None else look.label(series.name, 40)
    words, exact = missing(series, EXACT_CELLS, look)
    head = _series_head(value, series, look)
    told = numbers_of(series, look, SAMPLE)
    words = "; ".join(filter(None, (words, told)))
    head += (f" ({words})" if words else "" if exact else " (missing sampled)") + _reference(series, look.kind(value))
    width = min(width, 240)
    categories = series.dtype.categories if TypeInfo(type(series.dtype)).name == "CategoricalDtype" else None
    if categories is not None and is_readable(series):
        return f"{head}: categories {_categories(series.dtype, look, max(20, width - len(head) - 14))}"
    numbers = getattr(series.dtype, "kind", "O") in "iufM" and not hasattr(series.dtype, "categories")
    if numbers and len(series) and is_readable(series) and not look.spent(0.7) and name_strength(name) < 2:
        told = _range(series, look, EXACT_CELLS, name)
        return f"{head}: {told}" if told else head
    if len(series) and getattr(series.dtype, "kind", "O") == "b" and is_readable(series) and name_strength(name) < 2:
        return f"{head}: {_truths(series, EXACT_CELLS)}"
    cells = (look.cell(cell, 40, name) for cell in _cells(series, 0, 20))
    return f"{head}: {look.items(cells, width - len(head.encode()) - 2, len(series))}"


def series_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    series = plain_table(value, "Series")
    if series is MISSING:
        yield look.kind(value).name
        return
    yield _series_head(value, series, look) + _span(series.index, look) + _reference(series, look.kind(value))
    yield f"  {column_words(series, look, EXACT_CELLS, 300)}"
    rows = len(series)
    name = "" if series.name is None else look.label(series.name, 40)
    for start, stop in ((0, 8), (max(8, rows - 4), rows)):
        for at, cell in enumerate(_cells(series, start, stop), start):
            yield f"  [{_row_label(series.index, at, look)}] {look.cell(cell, 200, name)}"


def index_line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    head = f"{kind.name} {len(value)}"
    if kind.name == "MultiIndex":
        head += f" ({', '.join(look.label(name, 30) for name in list(value.names)[:6])})"
    elif kind.name != "RangeIndex":
        head += f" {dtype_word(value.dtype)}"
    if _unknown(value):
        return head
    width = min(width, 240)
    return f"{head}: {look.items((look.line(v, 40) for v in value[:20].tolist()), width - len(head), len(value))}"


def _dtype_name(value: Any, look: PreviewContext, width: int) -> str:
    return f"{'numpy' if look.kind(value).top == 'numpy' else 'pandas'} dtype {dtype_word(value)}"


def _is_dtype(kind: TypeInfo) -> bool:
    return kind.genuine("numpy", "pandas") and (
        kind.is_library("numpy", "dtype") or kind.is_library("pandas.api.extensions", "ExtensionDtype")
    )


FAMILIES = (
    PreviewHandler(
        "pandas frame", Group.FRAMES, lambda kind: kind.is_library("pandas", "DataFrame"),
        frame_short, frame_line, frame_block, 10,
    ),
    PreviewHandler(
        "pandas series", Group.FRAMES, lambda kind: kind.is_library("pandas", "Series"),
        series_short, series_line, series_block, 10,
    ),
    PreviewHandler(
        "data types", Group.SCALARS, _is_dtype, lambda value, kind: dtype_word(value), _dtype_name, None, 10
    ),
    of_library(
        "pandas index", index_line, "pandas", "Index", "Categorical", genuine="pandas", group=Group.ARRAYS,
        short=lambda value, kind: f"{kind.name} {len(value)}", order=10,
    ),
)  # fmt: skip
