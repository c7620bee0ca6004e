"""An Excel workbook in a few lines: each sheet with its columns, kinds, size and first rows. Only the first rows
are read; values are those that Excel computed last, and a formula that never was is named as one."""

from __future__ import annotations

import datetime
import io
import warnings
import zipfile
from collections.abc import Sequence
from itertools import islice
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.tools.answers import clean
from ipyagent.tools.tables import ROWS, SAMPLE, kind_of, short
from ipyagent.tools.worker import Stop

MOST_SHEETS = 20
MOST_COLUMNS = 200
UNPACKED = 512 * 1024 * 1024
"""Bytes that a workbook may unpack to."""
_WHERE = "more rows: python with pandas.read_excel"


def workbook_text(data: bytes, name: str, stop: Stop) -> str:
    """A description of an .xlsx or .xlsm file. Raises ToolFailure."""
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
                stop.check()
                parts.append(_sheet_text(sheet, formulas[sheet.title]))
    except (
        InvalidFileException, zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError, IndexError, OSError,
        SyntaxError, EOFError, NotImplementedError, RecursionError,
    ) as problem:  # fmt: skip
        raise ToolFailure(f"{name} cannot be read as an Excel workbook: {type(problem).__name__}: {problem}") from None
    if len(book.worksheets) > MOST_SHEETS:
        parts.append(f"[… {len(book.worksheets) - MOST_SHEETS} more sheets]")
    return clean("\n\n".join(parts))


def _sheet_text(sheet: Any, formulas: Any) -> str:
    declared = sheet.max_row
    rows = _rows(sheet)
    hidden = "" if sheet.sheet_state == "visible" else f" ({sheet.sheet_state})"
    title = f"sheet {short(sheet.title)!r}{hidden}"
    if not rows:
        return f"{title}: empty"
    first = next(number for number, row in enumerate(rows) if any(value is not None for value in row))
    header, body = rows[first], rows[first + 1 :]
    width = max(len(row) for row in rows)
    filled = [row for row in body if any(value is not None for value in row)]
    if len(rows) <= SAMPLE:
        counted = f"{len(filled):,} rows"
    else:
        counted = f"about {declared - first - 1:,} rows" if declared else f"more than {SAMPLE:,} rows"
    lines = [f"{title}: {counted} x {width} columns", "", "columns:"]
    computed: list[Sequence[Any]] | None = None
    for number in range(width):
        values = [row[number] if number < len(row) else None for row in filled]
        kind = _kind(values)
        if kind == "empty" and filled:
            computed = _rows(formulas)[first + 1 :] if computed is None else computed
            kind = _formula([row[number] for row in computed if number < len(row)]) or kind
        lines.append(f"  {_cell(header[number] if number < len(header) else None) or '(no name)'}: {kind}")
    lines += ["", f"first {min(ROWS, len(filled))} rows:"]
    lines += ["\t".join(_cell(value) for value in row) for row in [header, *filled[:ROWS]]]
    if len(filled) > ROWS:
        lines.append(f"[{_WHERE}]")
    return "\n".join(lines)


def _rows(sheet: Any) -> list[Sequence[Any]]:
    """The first rows, without empty cells at their ends, without empty rows at the end."""
    sheet.reset_dimensions()  # what a file says of its size may be wrong
    rows: list[Sequence[Any]] = []
    for row in islice(sheet.iter_rows(max_col=MOST_COLUMNS, max_row=SAMPLE + 1, values_only=True), SAMPLE + 1):
        width = max((place for place, value in enumerate(row, 1) if value is not None), default=0)
        rows.append(row[:width])
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _kind(values: Sequence[Any]) -> str:
    given = [value for value in values if value is not None]
    times = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
    kinds = {type(value) for value in given}
    if len(kinds) == 1 and issubclass(next(iter(kinds)), times):
        missing = len(values) - len(given)
        tail = f", {missing} of {len(values)} missing" if missing else ""
        return f"{next(iter(kinds)).__name__}, {min(given)} to {max(given)}{tail}"
    return kind_of(["" if value is None else str(value) for value in values])


def _formula(values: Sequence[Any]) -> str:
    """What an empty column holds if formulas that were never computed."""
    found = next((value for value in values if isinstance(value, str) and value.startswith("=")), "")
    return f"formula that was not computed yet, {short(found)}" if found else ""


def _cell(value: Any) -> str:
    return "" if value is None else short(str(value).replace("\t", " "))
