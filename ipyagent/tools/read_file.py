"""`read_file`: any file in a form the model can use, read in bounded pieces and never waiting."""

from __future__ import annotations

import codecs
import datetime
import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Permission, PermissionQuestion, ToolOutput, Workspace
from ipyagent.journal.stored import FOLDER, LONGEST_LINE, lines_of
from ipyagent.kernel.notebook import Notebook
from ipyagent.kernel.notebook_ids import KnownIds
from ipyagent.tools.answers import capped, clean, fitting, picture, text_block, text_output
from ipyagent.tools.changes import MOST_NOTEBOOK
from ipyagent.tools.encodings import decode
from ipyagent.tools.notebook_view import full_text
from ipyagent.tools.paths import digest, read_bytes, read_permission, resolved, shown
from ipyagent.tools.schema import tool
from ipyagent.tools.tables import (
    MISSING,
    MOST_COLUMNS,
    NO_NAME,
    ROWS,
    Pages,
    delimited_text,
    kind_of,
    of_the_first,
    parquet_text,
    short,
    without_values,
)
from ipyagent.tools.worker import Stop, in_worker

MOST = 16 * 1024 * 1024
"""Bytes read of one file."""
LINES = 2_000
"""Lines shown when `limit` is left out."""
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_KINDS = {
    b"PK\x03\x04": "a zip archive or office document",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "a program",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x89HDF\r\n\x1a\n": "HDF5 data",
    b"\x93NUMPY": "a NumPy array",
    b"\xd0\xcf\x11\xe0": "an old or encrypted Office document",
    b"\x80\x04\x95": "a pickle",
    b"\x80\x05\x95": "a pickle",
}
_WORKBOOKS = (".xlsx", ".xlsm", ".xltx", ".xltm")


def _permission(arguments: dict[str, Any], workspace: Workspace) -> Permission:
    return read_permission(arguments["path"], workspace)


def _question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    path = resolved(arguments["path"], workspace)
    return PermissionQuestion(title="Read a file outside the project?", text=str(path))


def _pattern(arguments: dict[str, Any], workspace: Workspace) -> str:
    import glob

    return f"read_file({glob.escape(str(resolved(arguments['path'], workspace)))})"


@tool(
    permission=_permission,
    parallel=True,
    recreatable=True,
    writes=False,
    question=_question,
    pattern=_pattern,
    store_chars=MOST,  # it gives pages, and what is read of a stored result is not stored again
)
async def read_file(path: str, offset: int = 1, limit: int | None = None, *, workspace: Workspace) -> ToolOutput:
    """Read a file: text with line numbers, a picture, a PDF's text, a notebook's cells; of CSV, TSV, Parquet and Excel
    columns, number of rows and first rows (a CSV's lines as text: give `offset`).

    Args:
        offset: First line, from 1; of a PDF the first page.
        limit: Most lines or pages.
    """
    if offset < 1 or (limit is not None and limit < 1):
        raise ToolFailure("`offset` and `limit` are at least 1")
    target = resolved(path, workspace)
    name = shown(target, workspace)
    most = min(workspace.limit("tool_output_chars"), workspace.limit("store_chars"))

    def work(stop: Stop) -> tuple[ToolOutput, str]:
        cells = target.suffix.lower() == ".ipynb"
        data, size = read_bytes(target, MOST_NOTEBOOK if cells else MOST)
        stop.check()
        mark = digest(data) if len(data) == size else ""
        if cells and mark and (found := _notebook(data, workspace.cell_ids.get(target))) is not None:
            workspace.cell_ids[target] = found.known
            return text_output(_lined(full_text(found, name), offset, limit or LINES, most, ""), note="notebook"), mark
        return _shown(target, name, data, size, offset, limit, most, stop), mark

    output, mark = await in_worker(work)
    if mark:
        workspace.read_stamps[target] = mark
    return output


def _notebook(data: bytes, known: KnownIds | None) -> Notebook | None:
    """The notebook, None when it is none of format 4: then it is text."""
    try:
        return Notebook.read(data, known)
    except ToolFailure:
        return None


def _shown(
    path: Path, name: str, data: bytes, size: int, offset: int, limit: int | None, most: int, stop: Stop
) -> ToolOutput:
    whole = len(data) == size
    if not data:
        return text_output(f"{name} is empty", note="empty")
    kind = next((kind for head, kind in _PICTURES.items() if data.startswith(head)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind:
        if not whole:
            raise ToolFailure(f"{name} is a picture of {size:,} bytes, too large to show")
        return ToolOutput(blocks=(text_block(f"{name}:"), picture(data, kind)), note=f"{kind}, {size:,} bytes")
    suffix = path.suffix.lower()
    pages = Pages(offset, limit, most)
    if data.startswith(b"%PDF-"):
        return text_output(capped(pdf_text(data, whole, offset, limit or LINES, most, stop), most), note="PDF text")
    if data.startswith(b"PAR1"):
        return text_output(capped(parquet_text(path, name, pages, stop), most), note="Parquet")
    if data.startswith(b"PK\x03\x04") and suffix in _WORKBOOKS:
        if not whole:
            raise ToolFailure(f"{name} has {size:,} bytes, too many to read here; use python with pandas.read_excel")
        return text_output(capped(workbook_text(data, name, pages, stop), most), note="Excel workbook")
    decoded = decode(data, whole=whole)
    if decoded is None:
        what = next((what for head, what in _KINDS.items() if data.startswith(head)), "binary data")
        raise ToolFailure(f"{name} is {what} of {size:,} bytes, not text; open it with python")
    if suffix in (".csv", ".tsv", ".tab"):
        about = f"{size:,} bytes" + (f", {decoded.encoding}" if decoded.encoding != "utf-8" else "")
        about += ", a byte order mark first" * (decoded.mark == codecs.BOM_UTF8)
        about += ", lines end with CR alone" * (decoded.newline == "\r")
        table = delimited_text(decoded.text, name, about, whole, "\t" if suffix != ".csv" else "", pages, stop)
        if table is not None:
            return text_output(capped(table, most), note="table")
    text = decoded.text.replace("\r\n", "\n").replace("\r", "\n")
    if path.parent.name == FOLDER:  # a stored result is read to its end, however long its lines are
        text = "\n".join(lines_of(text))
    lines = text.count("\n") + (not text.endswith("\n"))
    remark = f"[{name}: read as {decoded.encoding}]\n" if decoded.encoding != "utf-8" else ""
    if not whole:
        remark += f"[{name} has {size:,} bytes: only the first {MOST:,} are read here; use python for the rest]\n"
    return text_output(_lined(text, offset, limit or LINES, most, remark), note=f"{lines:,} line{'s' * (lines != 1)}")


def _lined(text: str, offset: int, limit: int, most: int, remark: str) -> str:
    """Lines from `offset` on, numbered, as many as fit; says which lines there are besides."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if offset > len(lines):
        raise ToolFailure(f"`offset` is {offset}, but there are {len(lines):,} lines")
    shown_lines: list[str] = []
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        if len(line) > LONGEST_LINE:
            line = f"{line[:LONGEST_LINE]}[… {len(line) - LONGEST_LINE:,} more characters in this line]"
        shown_lines.append(f"{number:>5}\t{line}")
    shown_lines = shown_lines[: fitting(shown_lines, most)]
    last = offset - 1 + len(shown_lines)
    if last < len(lines) or offset > 1:
        more = f"; go on with offset={last + 1}" if last < len(lines) else ""
        shown_lines.append(f"[lines {offset:,}-{last:,} of {len(lines):,}{more}]")
    return clean(remark + "\n".join(shown_lines))


# ------------------------------------------------------------------ documents
# Documents as text: a PDF's pages. Foreign files: whatever is wrong with them becomes a sentence.


NO_TEXT = "[no text on this page: a scan, a drawing or empty]"


def pdf_text(data: bytes, whole: bool, offset: int, limit: int, most: int, stop: Stop) -> str:
    """The text of a PDF's pages from page `offset` on, at most `limit` pages and as many as fit into `most`
    characters; says which pages there are besides. Raises ToolFailure."""
    if not whole:
        raise ToolFailure("the PDF is too large to read here; use python with pypdf")
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError:
        raise ToolFailure("reading a PDF needs pypdf: run `%pip install pypdf` with the python tool") from None
    texts: list[str] = []
    length = 0
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolFailure("the PDF is encrypted; open it with python, pypdf and its password")
        pages = reader.pages
        count = len(pages)
        if offset > count:
            raise ToolFailure(f"`offset` is {offset}, but there are {count} pages")
        for number in range(offset - 1, min(count, offset - 1 + limit)):
            stop.check()
            text = f"--- page {number + 1} of {count} ---\n{pages[number].extract_text().strip() or NO_TEXT}"
            length += len(text) + 1
            if length > most and texts:
                break
            texts.append(text)
    except (
        PyPdfError, DependencyError, ValueError, LookupError, TypeError, AttributeError, NotImplementedError,
        RecursionError, AssertionError, struct.error, zlib.error,
    ) as problem:  # fmt: skip
        raise ToolFailure(f"the PDF cannot be read: {type(problem).__name__}: {problem}") from None
    last = offset - 1 + len(texts)
    if offset > 1 or last < count:
        more = f"; go on with offset={last + 1}" if last < count else ""
        texts.append(f"[pages {offset}-{last} of {count}{more}]")
    return clean("\n".join(texts))


# ------------------------------------------------------------------ spreadsheets
# An Excel workbook in a few lines: each sheet with its columns, kinds, size and first rows, or the rows that are
# asked for. Of a long sheet only the first rows are read; values are those that Excel computed last, and a formula
# that never was is named as one.


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
