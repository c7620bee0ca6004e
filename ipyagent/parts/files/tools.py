"""`read_file`, `write_file`, `edit_file`: any file in a form the model can use, in bounded pieces and never waiting; a
whole text at once, over an existing file only when it was read and is unchanged; an exact piece of a text replaced."""

from __future__ import annotations

import codecs
import datetime
import glob as globs
import io
import struct
import time
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.escape import counted
from ipyagent.journal.journal import FOLDER, lines_of
from ipyagent.journal.protocols import PermissionQuestion, ReadStamp, ToolOutput, Workspace
from ipyagent.kernel.notebook import KnownIds, Notebook
from ipyagent.parts.files.documents import (
    MISSING,
    MOST_COLUMNS,
    NO_NAME,
    ROWS,
    Pages,
    Stop,
    cut_line,
    delimited_text,
    in_worker,
    kind_of,
    of_the_first,
    parquet_text,
    short,
    without_values,
)
from ipyagent.tools.answers import capped, clean, fitting, picture, text_block, text_output
from ipyagent.tools.changes import (
    MOST_NOTEBOOK,
    Decoded,
    PendingChange,
    current,
    decode,
    known,
    left_out,
    refuse_stand_in,
)
from ipyagent.tools.notebook_view import full_text
from ipyagent.tools.paths import digest, in_force, read_bytes, reading, resolved, shown, writable
from ipyagent.tools.schema import tool

# ---- `read_file`: any file in a form the model can use, read in bounded pieces and never waiting.

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


@tool(
    **reading("read_file", "Read a file outside the project?"),
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
        before, now = workspace.read_stamps.get(target), ReadStamp(mark, offset, limit)
        workspace.read_stamps[target] = before if before == ReadStamp(mark) else now  # whole it stays
    return output


def _notebook(data: bytes, known: KnownIds | None = None) -> Notebook | None:
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
        about = f"{kind}, {size:,} bytes"
        return ToolOutput(blocks=(text_block(f"{name}: {about}"), picture(data, kind)), note=about)
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
    return text_output(_lined(text, offset, limit or LINES, most, remark), note=counted(lines, "line"))


def _lined(text: str, offset: int, limit: int, most: int, remark: str) -> str:
    """Lines from `offset` on, numbered, as many as fit; says which lines there are besides."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if offset > len(lines):
        be = "is" if len(lines) == 1 else "are"
        raise ToolFailure(f"`offset` is {offset}, but there {be} {counted(len(lines), 'line')}")
    shown_lines: list[str] = []
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        shown_lines.append(f"{number:>5}\t{cut_line(line, 'line')}")
    shown_lines = shown_lines[: fitting(shown_lines, most)]
    last = offset - 1 + len(shown_lines)
    if last < len(lines) or offset > 1:
        more = f"; continue with offset={last + 1}" if last < len(lines) else ""
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
            be = "is" if count == 1 else "are"
            raise ToolFailure(f"`offset` is {offset}, but there {be} {counted(count, 'page')}")
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
        more = f"; continue with offset={last + 1}" if last < count else ""
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
            parts = [f"{name}: {counted(len(book.worksheets), 'sheet')}"]
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
    columns = counted(width, "column") if width <= MOST_COLUMNS else f"more than {MOST_COLUMNS} columns"
    size = counted(len(filled), "row")
    if rest:  # what a file says of its size may be wrong, and the rest is not read
        said = f" (the file says {declared - first - 1:,})" if declared else ""
        size = f"{rest} {size}{said}"
    lines = [f"{title}: {size} x {columns}", ""]
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
    lines += ["", f"first {counted(min(ROWS, len(filled)), 'row')}:", heading]
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


# ---- `write_file`: a whole file at once; over an existing file only when it was read and is unchanged.

def planned_write(path: str, content: str, workspace: Workspace) -> PendingChange:
    """The change this call makes now. Raises ToolFailure."""
    target = writable(path, workspace)
    if target.suffix.lower() == ".ipynb" and current(target) is None:
        raise ToolFailure(f"{path}: a notebook is made by cells: notebook(action='insert') creates it")
    before = known(target, workspace)
    refuse_notebook(target, before)
    old = Decoded("") if before is None else decode(before)
    if old is None:
        raise ToolFailure(f"{path} is a binary file; write it with python")
    refuse_stand_in(content, old.text)
    if old.newline not in content:
        content = content.replace("\n", old.newline)
    return PendingChange(target, before, old.encode(content))


def refuse_notebook(path: Path, data: bytes | None) -> None:
    """Raise ToolFailure for a notebook that can be read: it is changed by cells. A broken one is text."""
    if path.suffix.lower() == ".ipynb" and data is not None and _notebook(data) is not None:
        raise ToolFailure(
            f"{path.name} is a notebook; change its cells by id with the notebook tool (action='read' first)"
        )


def _write_question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    change = planned_write(arguments["path"], arguments["content"], workspace)
    return change.question("Create" if change.before is None else "Overwrite", workspace)


def _write_pattern(arguments: dict[str, Any], workspace: Workspace) -> str:
    cut = " cut short" if _left_out(arguments, workspace) else ""  # a yes to others is none to such a call
    return f"write_file({globs.escape(subject(arguments['path'], workspace))}{cut})"


def _write_destructive(arguments: dict[str, Any], workspace: Workspace) -> str:
    return _left_out(arguments, workspace) or in_force(subject(arguments["path"], workspace), workspace.root)


def _left_out(arguments: dict[str, Any], workspace: Workspace) -> str:
    change = planned_write(arguments["path"], arguments["content"], workspace)
    old = decode(change.before) if change.before is not None else None
    return left_out(arguments["content"], old.text) if old is not None else ""


def subject(path: str, workspace: Workspace) -> str:
    """What a permission rule is compared with: the path relative to the project."""
    return writable(path, workspace).relative_to(workspace.root).as_posix()


@tool(permission="ask", writes=True, question=_write_question, pattern=_write_pattern, destructive=_write_destructive)
async def write_file(path: str, content: str, *, workspace: Workspace) -> ToolOutput:
    """Write a text file inside the project, with the folders it needs. A file that exists must have been read with
    `read_file` in this session and be unchanged since; its encoding and line ends are kept. To change a part use
    `edit_file`.
    """
    change = planned_write(path, content, workspace)
    name = shown(change.path, workspace)
    if change.before == change.after:
        return text_output(f"{name} has this content already", note="no change")
    await change.write(workspace)
    workspace.read_stamps[change.path] = ReadStamp(digest(change.after))  # all of it is known
    verb = "created" if change.before is None else "written"
    return text_output(f"{verb} {name} ({len(change.after):,} bytes)", note=change.counts())


# ---- `edit_file`: an exact piece of a file's text is replaced, once unless told otherwise.

def planned_edit(path: str, old: str, new: str, replace_all: bool, workspace: Workspace) -> PendingChange:
    """The change this call makes now. Raises ToolFailure."""
    target = writable(path, workspace)
    before = known(target, workspace)
    if before is None:
        raise ToolFailure(f"no file {path}; create it with write_file")
    refuse_notebook(target, before)
    decoded = decode(before)
    if decoded is None:
        raise ToolFailure(f"{path} is a binary file; change it with python")
    if not old:
        raise ToolFailure("`old` is empty: give the exact text to replace")
    if old == new:
        raise ToolFailure("`old` and `new` are the same: nothing to change")
    text = decoded.text
    for end in ("\r\n", "\r"):  # the model writes \n for any line end
        if old not in text and end in text:
            old = old.replace("\r\n", "\n").replace("\n", end)
    if decoded.newline != "\n":
        new = new.replace("\r\n", "\n").replace("\n", decoded.newline)
    refuse_stand_in(new, text)
    count = text.count(old)
    if count == 0:
        refuse_stand_in(old, text)
        raise ToolFailure(f"`old` is not in {path}{_nearest(old, text)}")
    if count > 1 and not replace_all:
        raise ToolFailure(f"`old` is in {path} {count} times: add lines around it, or set replace_all")
    return PendingChange(target, before, decoded.encode(text.replace(old, new)))


def _nearest(old: str, text: str) -> str:
    """Where the text that is most like `old`'s first full line stands."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    best, place, found = 0.0, 0, ""
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(first[:200])
    until = time.monotonic() + 0.2
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if time.monotonic() > until:
            break
        matcher.set_seq1(line.strip()[:200])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, place, found = ratio, number, line
    if best < 0.5:
        return "; nothing in it is like it"
    return f"; nearest is line {place}: {found[:200]!r}"


def _edit_question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    return planned_edit(**arguments, workspace=workspace).question("Edit", workspace)


def _edit_pattern(arguments: dict[str, Any], workspace: Workspace) -> str:
    cut = " cut short" if left_out(arguments["new"], arguments["old"]) else ""
    return f"edit_file({globs.escape(subject(arguments['path'], workspace))}{cut})"


def _edit_destructive(arguments: dict[str, Any], workspace: Workspace) -> str:
    standing = in_force(subject(arguments["path"], workspace), workspace.root)
    return left_out(arguments["new"], arguments["old"]) or standing


@tool(permission="ask", writes=True, question=_edit_question, pattern=_edit_pattern, destructive=_edit_destructive)
async def edit_file(path: str, old: str, new: str, replace_all: bool = False, *, workspace: Workspace) -> ToolOutput:
    """Replace an exact piece of text in a file inside the project, which must have been read with `read_file` in this
    session and be unchanged since.

    Args:
        old: The exact text, without line numbers; it must occur once.
    """
    change = planned_edit(path, old, new, replace_all, workspace)
    await change.write(workspace)
    return text_output(f"edited {shown(change.path, workspace)} ({change.counts()} lines)", note=change.counts())
