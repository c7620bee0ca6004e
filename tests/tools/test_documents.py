"""PDF, Parquet and Excel files as `read_file` gives them: real files, broken ones, and without their libraries."""

from __future__ import annotations

import asyncio
import datetime
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow
import pytest
from pyarrow import parquet
from pypdf import PdfReader, PdfWriter
from reportlab.pdfgen.canvas import Canvas
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.tools.read_file import read_file


def read(workspace: ShellWorkspace, path: str, **more: Any) -> str:
    output = asyncio.run(read_file.run({"path": path, **more}, workspace))
    return "".join(block.get("text", "") for block in output.blocks)


@pytest.fixture
def here(tmp_path: Path) -> ShellWorkspace:
    return ShellWorkspace(tmp_path)


# ---------------------------------------------------------------------- PDF


def pdf(*pages: str) -> bytes:
    file = io.BytesIO()
    canvas = Canvas(file)
    for page in pages:
        for row, line in enumerate(page.split("\n")):
            canvas.drawString(72, 780 - 14 * row, line)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def test_a_pdf_comes_as_the_text_of_its_pages(here: ShellWorkspace) -> None:
    (here.root / "a.pdf").write_bytes(pdf("Bill length\nin mm", "", "The end"))
    shown = read(here, "a.pdf")
    assert shown == (
        "--- page 1 of 3 ---\nBill length\nin mm\n--- page 2 of 3 ---\n"
        "[no text on this page: a scan, a drawing or empty]\n--- page 3 of 3 ---\nThe end"
    )


def test_pages_are_chosen_by_offset_and_limit(here: ShellWorkspace) -> None:
    (here.root / "a.pdf").write_bytes(pdf(*(f"text {number}" for number in range(1, 8))))
    assert read(here, "a.pdf", offset=3, limit=2) == (
        "--- page 3 of 7 ---\ntext 3\n--- page 4 of 7 ---\ntext 4\n[pages 3-4 of 7; go on with offset=5]"
    )
    assert read(here, "a.pdf", offset=7).endswith("[pages 7-7 of 7]")
    with pytest.raises(ToolFailure, match="`offset` is 8, but there are 7 pages"):
        read(here, "a.pdf", offset=8)


def test_a_long_pdf_gives_whole_pages_and_says_where_to_go_on(here: ShellWorkspace) -> None:
    here.limits["tool_output_chars"] = 2_000
    (here.root / "a.pdf").write_bytes(pdf(*["\n".join(["some words of a line"] * 30)] * 9))
    shown = read(here, "a.pdf")
    assert len(shown) < 2_100
    assert shown.endswith("[pages 1-3 of 9; go on with offset=4]")


def test_an_encrypted_pdf_is_read_only_without_a_password(here: ShellWorkspace) -> None:
    for name, password in (("open.pdf", ""), ("shut.pdf", "secret")):
        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("inside"))))
        writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
        writer.write(here.root / name)
    assert "inside" in read(here, "open.pdf")
    with pytest.raises(ToolFailure, match="encrypted; open it with python"):
        read(here, "shut.pdf")


@pytest.mark.filterwarnings("ignore")
def test_a_broken_pdf_is_a_sentence(here: ShellWorkspace) -> None:
    whole = pdf("some text", "more")
    (here.root / "none.pdf").write_bytes(b"%PDF-1.4\nbroken")
    with pytest.raises(ToolFailure, match="the PDF cannot be read: "):
        read(here, "none.pdf")
    said = []
    for cut in range(20, len(whole), 37):  # whatever is left of it: a text or a sentence
        (here.root / "cut.pdf").write_bytes(whole[:cut])
        try:
            said.append(read(here, "cut.pdf"))
        except ToolFailure as problem:
            said.append(str(problem))
    assert all(text.startswith(("--- page 1", "the PDF cannot be read: ")) for text in said)


# ---------------------------------------------------------------------- Parquet


def test_parquet_comes_as_schema_and_first_rows(here: ShellWorkspace) -> None:
    table = pyarrow.table(
        {
            "n": range(25_000),
            "day": [datetime.date(2024, 1, 1)] * 25_000,
            "tags": [["a", "b"]] * 25_000,
            "long": ["x" * 500] * 25_000,
        }
    )
    parquet.write_table(table, here.root / "t.parquet", row_group_size=10_000)
    shown = read(here, "t.parquet")
    assert shown.startswith("t.parquet: 25,000 rows x 4 columns, 3 row groups\n\ncolumns:\n  n: int64\n  day: date32")
    assert "tags: list<element: string>" in shown
    assert "9\t2024-01-01\t['a', 'b']\t" + "x" * 79 + "…" in shown
    assert shown.count("\n") < 20


def test_an_empty_and_a_broken_parquet_file(here: ShellWorkspace) -> None:
    parquet.write_table(pyarrow.table({"n": pyarrow.array([], pyarrow.int64())}), here.root / "empty.parquet")
    assert "0 rows x 1 columns" in read(here, "empty.parquet")
    (here.root / "broken.parquet").write_bytes(b"PAR1" + b"\0" * 40)
    with pytest.raises(ToolFailure, match=r"broken\.parquet cannot be read as Parquet"):
        read(here, "broken.parquet")


# ---------------------------------------------------------------------- Excel


def test_a_workbook_comes_as_sheets_with_columns_kinds_and_first_rows(here: ShellWorkspace) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "penguins"
    sheet.append(["species", "mass", "when", "ok", "twice"])
    for number in range(40):
        when = datetime.datetime(2024, 1, 1 + number % 28)
        mass = None if number == 3 else 3_000.5 + number
        sheet.append(["Adelie" if number % 2 else "Gentoo", mass, when, True, f"=B{number + 2}*2"])
    book.create_sheet("notes").sheet_state = "hidden"
    book.save(here.root / "p.xlsx")
    shown = read(here, "p.xlsx")
    assert shown.startswith("p.xlsx: 2 sheets\n\nsheet 'penguins': 40 rows x 5 columns\n\ncolumns:\n")
    assert "  species: text, 'Adelie', 'Gentoo'\n" in shown
    assert "  mass: number, 3000.5 to 3039.5, 1 of 40 missing\n" in shown
    assert "  when: datetime, 2024-01-01 00:00:00 to 2024-01-28 00:00:00\n" in shown
    assert "  twice: formula that was not computed yet, =B2*2\n" in shown
    assert "first 10 rows:\nspecies\tmass\twhen\tok\ttwice\nGentoo\t3000.5\t2024-01-01 00:00:00\tTrue" in shown
    assert "[more rows: python with pandas.read_excel]" in shown
    assert shown.endswith("sheet 'notes' (hidden): empty")


def test_a_sheet_that_says_it_is_huge_is_as_small_as_it_is(here: ShellWorkspace) -> None:
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    book.active.append([1, "x\ty\nz"])
    book.save(here.root / "small.xlsx")
    with zipfile.ZipFile(here.root / "small.xlsx") as archive, zipfile.ZipFile(here.root / "lie.xlsx", "w") as lie:
        for entry in archive.namelist():
            content = archive.read(entry).replace(b'ref="A1:B2"', b'ref="A1:XFD1048576"')
            lie.writestr(entry, content)
    shown = read(here, "lie.xlsx")
    assert "sheet 'Sheet': 1 rows x 2 columns" in shown
    assert shown.endswith("first 1 rows:\na\tb\n1\tx y\\nz")


def test_a_long_sheet_is_not_read_to_its_end(here: ShellWorkspace) -> None:
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("long")
    for number in range(3_000):
        sheet.append([number])
    book.save(here.root / "long.xlsx")
    assert "sheet 'long': more than 1,000 rows x 1 columns" in read(here, "long.xlsx")


def test_a_broken_workbook_and_a_bomb_are_sentences(here: ShellWorkspace) -> None:
    (here.root / "none.xlsx").write_bytes(b"PK\x03\x04 and then nothing")
    with zipfile.ZipFile(here.root / "other.xlsx", "w") as other:
        other.writestr("word/document.xml", "<x/>")
    for name in ("none.xlsx", "other.xlsx"):
        with pytest.raises(ToolFailure, match="cannot be read as an Excel workbook"):
            read(here, name)
    with zipfile.ZipFile(here.root / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bomb:
        for number in range(9):
            bomb.writestr(f"{number}.xml", b"\0" * (64 * 1024 * 1024))
    with pytest.raises(ToolFailure, match="unpacks to more than"):
        read(here, "bomb.xlsx")
    (here.root / "old.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600)
    with pytest.raises(ToolFailure, match="old or encrypted Office document"):
        read(here, "old.xls")


# ---------------------------------------------------------------------- without the libraries


@pytest.mark.parametrize(("name", "content", "library"), [
    ("a.pdf", b"%PDF-1.4\n", "pypdf"), ("a.parquet", b"PAR1", "pyarrow"), ("a.xlsx", b"PK\x03\x04", "openpyxl"),
])  # fmt: skip
def test_without_its_library_one_line_says_how_to_get_it(
    here: ShellWorkspace, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, library: str
) -> None:
    (here.root / name).write_bytes(content)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ToolFailure) as caught:
        read(here, name)
    assert f"needs {library}: run `%pip install {library}` with the python tool" in str(caught.value)
    assert "\n" not in str(caught.value)
