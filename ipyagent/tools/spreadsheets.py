"""An Excel workbook in a few lines: each sheet with its columns, kinds, size and first rows, or the rows that are
asked for. Of a long sheet only the first rows are read; values are those that Excel computed last, and a formula that
never was is named as one."""

from __future__ import annotations

import datetime
import io
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.tools.answers import clean
from ipyagent.tools.tables import (
    MISSING,
    MOST_COLUMNS,
    NO_NAME,
    ROWS,
    Pages,
    kind_of,
    of_the_first,
    short,
    without_values,
)
from ipyagent.tools.worker import Stop

MOST_SHEETS = 20
PROFILED = 50_000
"""Cells of a sheet that are profiled: about a second of openpyxl."""
LOOKED_AT = 20_000
"""Empty rows after which a sheet is not read on: a gap may be in the middle, and formatted ones at the end."""
UNPACKED = 512 * 1024 * 1024
"""Bytes that a workbook may unpack to."""
_WHERE = "more rows: give `offset`, or python with pandas.read_excel"


@dataclass(frozen=True)
class _Formula:
    """A cell whose formula was never computed."""

    text: str


def workbook_text(data: bytes, name: str, pages: Pages, stop: Stop) -> str:
    """A description of an .xlsx or .xlsm file, or the rows of its sheets. Raises ToolFailure."""
    try:
        import openpyxl
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError:
        raise ToolFailure(f"reading {name} needs openpyxl: run `%pip install openpyxl` with the python tool") from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > UNPACKED:
                raise ToolFailure(f"{name} unpacks to more than {UNPACKED:,} bytes; open it with python")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions that it leaves out
            book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
            formulas = openpyxl.load_workbook(io.BytesIO(data), read_only=True)
            parts = [f"{name}: {len(book.worksheets)} sheet{'s' * (len(book.worksheets) != 1)}"]
            for sheet in book.worksheets[:MOST_SHEETS]:
                parts.append(_sheet_text(sheet, formulas[sheet.title], pages, stop))
    except (
        InvalidFileException, zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError, IndexError, OSError,
        SyntaxError, EOFError, NotImplementedError, RecursionError,
    ) as problem:  # fmt: skip
        raise ToolFailure(f"{name} cannot be read as an Excel workbook: {type(problem).__name__}: {problem}") from None
    if len(book.worksheets) > MOST_SHEETS:
        parts.append(f"[… {len(book.worksheets) - MOST_SHEETS} more sheets]")
    return clean("\n\n".join(parts))


def _sheet_text(sheet: Any, formulas: Any, pages: Pages, stop: Stop) -> str:
    declared, most = sheet.max_row, None if pages.profile else pages.last + 1
    rows, rest = _rows(sheet, most, stop)
    if not rows or any(not row or len(row) < len(rows[0]) or None in row for row in rows):
        written, more = _rows(formulas, most, stop)
        rows, rest = _with_formulas(rows, written), max(rest, more)  # "" before "at least" before "more than"
    hidden = "" if sheet.sheet_state == "visible" else f" ({sheet.sheet_state})"
    title = f"sheet {short(sheet.title)!r}{hidden}"
    filled = [row for row in rows if any(value is not None for value in row)]
    if not filled:
        return f"{title}: empty"
    header, *filled = filled
    first = next(at for at, row in enumerate(rows) if row is header)
    width = max(len(header), *(len(row) for row in filled)) if filled else len(header)
    columns = f"{width}" if width <= MOST_COLUMNS else f"more than {MOST_COLUMNS}"
    counted = f"{len(filled):,} rows"
    if rest:  # what a file says of its size may be wrong, and the rest is not read
        said = f" (the file says {declared - first - 1:,})" if declared else ""
        counted = f"{rest} {counted}{said}"
    lines = [f"{title}: {counted} x {columns} columns", ""]
    heading = "\t".join(_cell(value) for value in header[:MOST_COLUMNS])
    if not pages.profile:
        asked = enumerate(filled[pages.offset - 1 : pages.last], pages.offset)
        texts = [(number, "\t".join(_cell(value) for value in row[:MOST_COLUMNS])) for number, row in asked]
        try:
            return "\n".join([lines[0], f"     \t{heading}", *pages.shown(texts, len(filled), rest)])
        except ToolFailure as problem:  # another sheet may have them
            return f"{lines[0]}\n[{problem}]"
    lines += [f"columns{of_the_first(len(filled), not rest)}:"]
    for number in range(min(width, MOST_COLUMNS)):
        stop.check()
        kind = _kind([row[number] if number < len(row) else None for row in filled])
        name = _cell(header[number] if number < len(header) else None) or NO_NAME
        lines.append(f"  {name}: {without_values(name, kind)}")
    lines += ["", f"first {min(ROWS, len(filled))} rows:", heading]
    lines += ["\t".join(_cell(value) for value in row[:MOST_COLUMNS]) for row in filled[:ROWS]]
    if len(filled) > ROWS or rest:
        lines.append(f"[{_WHERE}]")
    return "\n".join(lines)


def _rows(sheet: Any, most: int | None, stop: Stop) -> tuple[list[Sequence[Any]], str]:
    """The first `most` rows that are not empty (None: as many as have PROFILED cells) and the empty ones between
    them, without empty cells at their ends, and what stands before their number when there are others ("more than")
    or may be ("at least"). A row of more than MOST_COLUMNS has one more."""
    sheet.reset_dimensions()  # what a file says of its size may be wrong
    rows: list[Sequence[Any]] = []
    cells = filled = empty = 0
    for number, row in enumerate(sheet.iter_rows(max_col=MOST_COLUMNS + 1, values_only=True), 1):
        if number % 500 == 0:
            stop.check()
        width = max((place for place, value in enumerate(row, 1) if value is not None), default=0)
        empty = 0 if width else empty + 1
        if empty > LOOKED_AT:
            return rows, "at least"
        if width and (cells > PROFILED if most is None else filled >= most):
            return rows, "more than"
        rows.append(row[:width])
        cells, filled = cells + width, filled + bool(width)
    return rows, ""


def _with_formulas(rows: list[Sequence[Any]], written: list[Sequence[Any]]) -> list[Sequence[Any]]:
    """The rows of values with the formulas that have none."""
    made: list[Sequence[Any]] = []
    for one, other in zip_longest(rows, written, fillvalue=()):
        row = list(one) + [None] * (len(other) - len(one))
        for place, value in enumerate(other):
            text = getattr(value, "text", value)  # an array's formula is an object that has it
            if row[place] is None and isinstance(text, str) and text.startswith("="):
                row[place] = _Formula(text)
        made.append(row)
    return made


def _kind(values: Sequence[Any]) -> str:
    if open_ := [value for value in values if isinstance(value, _Formula)]:
        said = f"formula that was not computed yet, {short(open_[0].text)}"
        rest = [value for value in values if not isinstance(value, _Formula)]
        return said if len(open_) == len(values) else f"{_kind(rest)}; {len(open_)} of {len(values)}: {said}"
    given = [value for value in values if value is not None and not (isinstance(value, str) and value in MISSING)]
    times = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
    kinds = {type(value) for value in given}
    missing = len(values) - len(given)
    tail = f", {missing} of {len(values)} missing" if missing else ""
    if len(kinds) == 1 and issubclass(next(iter(kinds)), times):
        return f"{next(iter(kinds)).__name__}, {min(given)} to {max(given)}{tail}"
    if kinds == {bool}:
        return f"truth, {sum(given)} of {len(given)} true{tail}"
    texts = ["" if value is None else str(value) for value in values]
    if str in kinds and (found := kind_of(texts)).startswith(("integer", "number")):
        return f"text that reads as {found}"
    if len(kinds - {int, float}) and len(kinds) > 1:
        return f"mixed ({', '.join(sorted(kind.__name__ for kind in kinds))}), {kind_of(texts)}"
    return kind_of(texts)


def _cell(value: Any) -> str:
    value = value.text if isinstance(value, _Formula) else value
    return "" if value is None else short(str(value).replace("\t", " "))
