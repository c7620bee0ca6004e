"""`read_file`: any file in a form the model can use, read in bounded pieces and never waiting."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Permission, Question, ToolOutput, Workspace
from ipyagent.journal.stored import FOLDER, LONGEST_LINE, lines_of
from ipyagent.kernel.notebook import Notebook
from ipyagent.kernel.notebook_ids import KnownIds
from ipyagent.tools.answers import capped, clean, fitting, picture, text_block, text_output
from ipyagent.tools.changes import MOST_NOTEBOOK
from ipyagent.tools.documents import pdf_text
from ipyagent.tools.encodings import decode
from ipyagent.tools.notebook_view import full_text
from ipyagent.tools.paths import digest, read_bytes, read_permission, resolved, shown
from ipyagent.tools.schema import tool
from ipyagent.tools.spreadsheets import workbook_text
from ipyagent.tools.tables import Pages, delimited_text, parquet_text
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


def _question(arguments: dict[str, Any], workspace: Workspace) -> Question:
    path = resolved(arguments["path"], workspace)
    return Question(title="Read a file outside the project?", text=str(path))


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
