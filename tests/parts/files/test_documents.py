"""PDF, Parquet and Excel files as `read_file` gives them: real files, broken ones, and without their libraries."""

from __future__ import annotations

import asyncio
import datetime
import io
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pandas
import pyarrow
import pytest
from pyarrow import parquet
from pypdf import PdfReader, PdfWriter
from reportlab.pdfgen.canvas import Canvas
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.parts.files import tools as files_tools
from ipyagent.parts.files.documents import cut_line
from ipyagent.parts.files.tools import read_file


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
        "--- page 3 of 7 ---\ntext 3\n--- page 4 of 7 ---\ntext 4\n[pages 3-4 of 7; continue with offset=5]"
    )
    assert read(here, "a.pdf", offset=7).endswith("[pages 7-7 of 7]")
    with pytest.raises(ToolFailure, match="`offset` is 8, but there are 7 pages"):
        read(here, "a.pdf", offset=8)
    here.limits["tool_output_chars"] = 2_000
    (here.root / "a.pdf").write_bytes(pdf(*["\n".join(["some words of a line"] * 30)] * 9))
    shown = read(here, "a.pdf")
    assert len(shown) < 2_100
    assert shown.endswith("[pages 1-3 of 9; continue with offset=4]"), "whole pages of a long one"


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


def test_parquet_comes_as_schema_and_first_rows_also_empty_or_broken(here: ShellWorkspace) -> None:
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
    assert shown.startswith("t.parquet: 25,000 rows x 4 columns, 3 row groups\n\ncolumns:\n  n: int64, 0 to 24999\n")
    assert "  day: date32[day], 2024-01-01 to 2024-01-01\n  tags: list<element: string>\n" in shown
    assert "9\t2024-01-01\t['a', 'b']\t" + "x" * 79 + "…" in shown
    assert shown.count("\n") < 20
    parquet.write_table(pyarrow.table({"n": pyarrow.array([], pyarrow.int64())}), here.root / "empty.parquet")
    assert "0 rows x 1 column, 1 row group" in read(here, "empty.parquet")
    (here.root / "broken.parquet").write_bytes(b"PAR1" + b"\0" * 40)
    with pytest.raises(ToolFailure, match=r"broken\.parquet cannot be read as Parquet"):
        read(here, "broken.parquet")


def test_parquet_columns_are_told_by_their_place(here: ShellWorkspace) -> None:
    twice = pyarrow.Table.from_arrays([pyarrow.array([1, 2]), pyarrow.array(["x", "y"])], names=["a", "a"])
    parquet.write_table(twice, here.root / "twice.parquet")
    assert read(here, "twice.parquet").endswith("a\ta\n1\tx\n2\ty")
    parquet.write_table(pyarrow.table({"s": [{"x": 1, "y": 2}], "t": ["p\tq\nr"]}), here.root / "nested.parquet")
    nested = read(here, "nested.parquet")
    assert "1 row x 2 columns, 1 row group\n" in nested
    assert nested.endswith("s\tt\n{'x': 1, 'y': 2}\tp\\tq\\nr")
    wide = pyarrow.table({f"c{number}": [number] for number in range(250)})
    parquet.write_table(wide, here.root / "wide.parquet")
    assert "[… 50 more columns]" in read(here, "wide.parquet")
    parquet.write_table(pyarrow.table({"n": range(9)}), here.root / "groups.parquet", row_group_size=2)
    assert "first 9 rows:" in read(here, "groups.parquet")


def test_parquet_values_that_python_cannot_hold_are_told(here: ShellWorkspace) -> None:
    bad = pyarrow.StringArray.from_buffers(1, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\xff"))
    for column, wanted in (
        (pyarrow.array([10_000_000], pyarrow.date32()), "29349-01-26"),
        (pyarrow.array([2**62], pyarrow.duration("s")), str(2**62)),
        (pyarrow.array([1], pyarrow.timestamp("us", "Foo/Bar")), "(timestamp[us, tz=Foo/Bar] that cannot be shown)"),
        (bad, "(string that cannot be shown)"),
    ):
        parquet.write_table(pyarrow.table({"a": column}), here.root / "odd.parquet")
        assert read(here, "odd.parquet").endswith(f"first 1 row:\na\n{wanted}")


# ---------------------------------------------------------------------- CSV


def size_of(frame: pandas.DataFrame) -> str:
    rows, columns = frame.shape
    return f"{rows:,} row{'s' * (rows != 1)} x {columns:,} column{'s' * (columns != 1)}"


def table(here: ShellWorkspace, text: str, name: str = "t.csv") -> str:
    (here.root / name).write_bytes(text.encode())
    return read(here, name)


def test_kinds_of_the_first_rows_are_told_as_such(here: ShellWorkspace) -> None:
    rows = "".join(f"{number},{'a' if number <= 5_000 else 'b'}\n" for number in range(1, 10_001))
    shown = table(here, f"id,kind\n{rows}")
    assert shown.startswith("t.csv: 10,000 rows x 2 columns")
    assert "\n\ncolumns:\n  id: integer, 1 to 10000\n  kind: text, 'a', 'b'\n" in shown
    rows = "".join(f"{number},{'x' * 990}\n" for number in range(1, 10_001))
    large = table(here, f"id,text\n{rows}")
    assert large.startswith("t.csv: 10,000 rows x 2 columns")
    assert "columns (kinds and values of the first 5,022 rows only):\n  id: integer, 1 to 5022\n" in large
    assert "\n\ncolumns:\n  id: integer, 1 to 2\n" in table(here, "id,x\n1,2\n2,3\n")


def test_rows_end_where_csv_ends_them(here: ShellWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_tools, "MOST", 1_600_000)
    shown = table(here, "id,text\n1,hello\u2028world\n2,b\x0cc\n3,x\u0085y\n")
    assert shown.startswith("t.csv: 3 rows x 2 columns")
    assert "  id: integer, 1 to 3\n" in shown
    assert table(here, "id,x\r" + "1,2\r" * 2_000).startswith("t.csv: 2,000 rows x 2 columns")
    assert table(here, "id,x\n" + '1,"a\n\nb"\n\n' * 1_500).startswith("t.csv: 1,500 rows x 2 columns")
    long = table(here, "id,x\n" + ('1,"' + "\n" * 900 + '"\n') * 2_000)
    assert long.startswith("t.csv: more than 1,7")  # 1.6 of 1.8 MB are read, of 2,000 rows


def test_the_separator_is_the_one_outside_of_quotes(here: ShellWorkspace) -> None:
    for text, separator, columns in (
        ('"Sales, total";"Profit, net"\n1;2\n', ";", ["Sales, total: integer, 1 to 1", "Profit, net: integer, 2 to 2"]),
        ("Sales, total;Net, all\n1,5;2,5\n", ";", ["Sales, total: text, '1,5'", "Net, all: text, '2,5'"]),
        ("id,text\n1,a;b\n2,c\n", ",", ["id: integer, 1 to 2", "text: text, 'a;b', 'c'"]),
        ('"a\nb"|c\n1|2\n', "|", ["a\\nb: integer, 1 to 1", "c: integer, 2 to 2"]),
    ):
        shown = table(here, text)
        assert f"x 2 columns, {len(text)} bytes, separator {separator!r}" in shown
        assert shown.split("columns:\n")[1].split("\n\n")[0].split("\n") == [f"  {column}" for column in columns]


def test_a_column_is_what_pandas_would_make_of_it(here: ShellWorkspace) -> None:
    shown = table(here, 'zip,u,big,miss,n,q\n00123,1_0,9007199254740993,#N/A,1e3,"a,b"\n00456,٣,0.5,3\n')
    assert "  zip: integer, 123 to 456, some with leading zeros\n  u: text, '1_0', '٣'\n" in shown
    assert "  big: number, 0.5 to 9007199254740993\n  miss: integer, 3 to 3, 1 of 2 missing\n" in shown
    assert "  n: number, 1e3 to 1e3, 1 of 2 missing\n  q: text, 'a,b', 1 of 2 missing\n" in shown
    assert '\n00123,1_0,9007199254740993,#N/A,1e3,"a,b"\n' in shown
    assert "[1 of 2 rows have another number of fields than the header: 2]" in shown


def as_told(text: str) -> dict[str, str]:
    return dict(line[2:].split(": ", 1) for line in text.split("columns:\n")[1].split("\n\n")[0].split("\n"))


def as_pandas_has_it(column: pandas.Series[Any], told: str) -> None:
    """Hold what is told of a column against pandas."""
    count, missing = len(column), int(column.isna().sum())
    assert told.endswith(f", {missing:,} of {count:,} missing") == (0 < missing < count), told
    if missing == count:
        assert told == "empty"
    elif pandas.api.types.is_numeric_dtype(column) and column.dtype != bool:
        word, ends = told.split(f", {missing:,} of ")[0].removesuffix(", some with leading zeros").split(", ")
        assert [float(end) for end in ends.split(" to ")] == [column.min(), column.max()]
        assert word == "number" or (column.dropna() % 1 == 0).all()
    elif told.startswith("text: "):
        numbers = pandas.to_numeric(column, errors="coerce").notna().sum()
        assert re.match(rf"text: ({numbers:,} of {count - missing:,}|all {count - missing:,}) are numbers", told), told
    else:
        different = column.dropna().astype(str).nunique()
        assert told.startswith("text, ")
        assert different <= 6 or f"{different:,} different in {count - missing:,}" in told


TABLES = sorted((Path(__file__).resolve().parents[4] / "shared/data/tables").glob("*.csv"))


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.name)
def test_real_tables_are_told_as_pandas_has_them(here: ShellWorkspace, file: Path) -> None:
    (here.root / file.name).write_bytes(file.read_bytes())
    frame, shown = pandas.read_csv(file), read(here, file.name)
    assert shown.startswith(f"{file.name}: {size_of(frame)}, ")
    told = as_told(shown)
    assert len(told) == len(frame.columns)
    for column, words in zip(frame.columns, told.values(), strict=True):
        as_pandas_has_it(frame[column], words)
    page = read(here, file.name, offset=len(frame) - 1)
    assert page.endswith(f"[rows {len(frame) - 1:,}-{len(frame):,} of {len(frame):,}]")


@pytest.mark.parametrize(("data", "options", "remark"), [
    (b"a,b\r1,x\r2,y\r3,z", {}, "bytes, lines end with CR alone, separator"),
    (b"\xef\xbb\xbfa,b\r\n1,2\r\n", {}, "bytes, a byte order mark first, separator"),
    (b"a;b\n1,5;2\n2,5;3\n3,25;4\n", {"sep": ";"}, ""),
    (b'a,b\n1,"two\n lines"\n\n2,"quote ""q"" here"\n', {}, ""),
    (b"only\n1\n2\n \n\n-\n", {}, ""),
    (b'a\n""\n1\n', {}, ""),
    (b"a,b\n1\n2,3\n", {}, "[1 of 2 rows have another number of fields than the header: 1]"),
    (b"a,b\n1,2,3\n4,5,6\n", {}, "[every row has one field more than the header; pandas makes the first field"),
    ("a,b\n1,Z\u00fcrich\n2,Bern\n".encode("latin-1"), {"encoding": "latin-1"}, "bytes, latin-1, separator"),
    ("a\tb\n1\tx\n2\ty\n".encode("utf-16"), {"sep": "\t", "encoding": "utf-16"}, "bytes, utf-16-le, separator"),
    (b"a,b\n 1, NA\n2 ,x\n\t3,NA\n", {}, ""),
    (b"a,b\n1,inf\n2,-1e400\n+3,.5\n", {}, ""),
    (b"a,a,\n1,2,3\n", {}, ""),
], ids=range(13))  # fmt: skip
def test_odd_files_are_told_as_pandas_has_them(
    here: ShellWorkspace, data: bytes, options: dict[str, str], remark: str
) -> None:
    (here.root / "t.csv").write_bytes(data)
    frame, shown = pandas.read_csv(io.BytesIO(data), **options), read(here, "t.csv")  # type: ignore[call-overload]
    if frame.index.equals(pandas.RangeIndex(len(frame))):
        assert shown.startswith(f"t.csv: {size_of(frame)}, ")
    else:
        frame = frame.reset_index()
    lines = [line[2:] for line in shown.split("columns:\n")[1].split("\n\n")[0].split("\n")]
    for column, words in zip(frame.columns, lines, strict=True):
        if "1,5" not in data.decode("latin-1") or column != "a":  # pandas needs to be told of the decimal comma
            as_pandas_has_it(frame[column], words.split(": ", 1)[1])
        else:
            assert words == "a: text: all 3 are numbers"
    assert remark in shown


def test_a_table_that_is_none_is_shown_as_lines(here: ShellWorkspace) -> None:
    (here.root / "empty.csv").write_bytes(b"")
    assert read(here, "empty.csv") == "empty.csv is empty"
    assert table(here, "a,b\n").endswith("    1\ta,b")
    assert table(here, "\n").endswith("    1\t")
    assert "[a quote that opens in row 2 is not closed: the rest of the file is in that row]" in table(
        here, 'a,b\n1,2\n3,"x\n4,5\n6,7\n'
    )


def test_rows_of_tables_are_chosen_by_offset_and_limit(here: ShellWorkspace) -> None:
    frame = pandas.DataFrame({"n": range(1, 3_001), "s": [f"row, {number}" for number in range(1, 3_001)]})
    frame.to_csv(here.root / "t.csv", index=False, lineterminator="\r\n")
    frame.to_parquet(here.root / "t.parquet", row_group_size=700)
    frame.to_excel(here.root / "t.xlsx", index=False)
    for name, cells in (("t.csv", '{},"row, {}"'), ("t.parquet", "{}\trow, {}"), ("t.xlsx", "{}\trow, {}")):
        rows = [f" {number}\t{cells.format(number, number)}" for number in range(1_399, 1_403)]
        page = read(here, name, offset=1_399, limit=4)
        count = "more than 1,402" if name == "t.xlsx" else "3,000"
        on = "" if name == "t.xlsx" else "; continue with offset=1403"
        assert page.endswith("\n".join(["", *rows, f"[rows 1,399-1,402 of {count}{on}]"])), page
        assert read(here, name, limit=1).count("\n") in (3, 5)
        assert read(here, name, offset=3_000).endswith("[rows 3,000-3,000 of 3,000]")
        here.limits["tool_output_chars"] = 1_000
        page = read(here, name, limit=2_000)
        assert re.search(r"\[rows 1-\d+ of (more than 2,000|3,000); continue with offset=\d+\]$", page)
        here.limits.clear()
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(ToolFailure, match="`offset` is 3001, but there are 3,000 rows"):
            read(here, name, offset=3_001)
    assert "[`offset` is 3001, but there are 3,000 rows]" in read(here, "t.xlsx", offset=3_001)
    with pytest.raises(ToolFailure, match="at least 1"):
        read(here, "t.csv", limit=0)


def test_a_small_parquet_file_is_profiled_as_pandas_has_it(here: ShellWorkspace) -> None:
    frame = pandas.DataFrame({
        "f": [1.5, float("nan"), 3.25, None], "i": pandas.array([1, None, 3, 7], "Int64"),
        "b": [True, False, True, True], "s": ["1", "2", "3", "4"], "none": [None] * 4,
        "t": pandas.to_datetime(["2024-01-02", None, "2023-05-01", None]),
    })  # fmt: skip
    frame.to_parquet(here.root / "t.parquet")
    lines = read(here, "t.parquet").split("columns:\n")[1].split("\n\n")[0].split("\n")
    assert lines[:5] == [
        "  f: double, 1.5 to 3.25, 2 of 4 missing", "  i: int64, 1 to 7, 1 of 4 missing", "  b: bool, 3 of 4 true",
        f"  s: {lines[3].split()[1][:-1]}, text: all 4 are numbers", "  none: null, empty",
    ]  # fmt: skip
    assert lines[5].endswith(", 2023-05-01 00:00:00 to 2024-01-02 00:00:00, 2 of 4 missing")


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
    assert "[more rows: give `offset`, or python with pandas.read_excel]" in shown
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
    assert "sheet 'Sheet': 1 row x 2 columns" in shown
    assert shown.endswith("first 1 row:\na\tb\n1\tx y\\nz")


def test_a_long_sheet_is_not_read_to_its_end(here: ShellWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_tools, "PROFILED", 5_000)
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("long")
    for number in range(60):
        sheet.append([number] * 100)
    book.save(here.root / "long.xlsx")
    assert "sheet 'long': more than 50 rows x 100 columns" in read(here, "long.xlsx")


def sheet_of(here: ShellWorkspace, *rows: list[Any]) -> str:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(here.root / "s.xlsx")
    return read(here, "s.xlsx")


def test_a_sheet_says_what_of_it_was_read(here: ShellWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_tools, "PROFILED", 5_000)
    long = sheet_of(here, [], ["id"], *([number] * 200 for number in range(30)))
    assert "'Sheet': more than 25 rows (the file says 30) x 200 columns" in long
    assert "columns (kinds and values of the first 25 rows only):\n  id: integer, 0 to 24\n" in long
    gap = sheet_of(here, ["id"], [1], [2], *[[None]] * 1_500, [3])
    assert "'Sheet': 3 rows x 1 column\n\ncolumns:\n  id: integer, 1 to 3\n" in gap
    wide = sheet_of(here, [f"c{number}" for number in range(201)], list(range(201)))
    assert "1 row x more than 200 columns" in wide


def test_cells_are_of_the_kind_that_excel_gives_them(here: ShellWorkspace) -> None:
    shown = sheet_of(here, ["zip", "n", "ok", "mix", "gone"], ["123", 1, True, 1, "#N/A"], ["456", 2.5, False, "x", 4])
    assert (
        "  zip: text that reads as integer, 123 to 456\n  n: number, 1 to 2.5\n  ok: truth, 1 of 2 true\n"
        "  mix: mixed (int, str), text, '1', 'x'\n  gone: integer, 4 to 4, 1 of 2 missing\n"
    ) in shown


def test_rows_of_formulas_alone_are_rows(here: ShellWorkspace) -> None:
    shown = sheet_of(here, ["a", "b"], *([f"=ROW()*{number}", f"=A{number}"] for number in range(3)))
    assert "'Sheet': 3 rows x 2 columns\n\ncolumns:\n  a: formula that was not computed yet, =ROW()*0\n" in shown
    some = sheet_of(here, ["a"], [1], ["=A2"], [5])
    assert "  a: integer, 1 to 5; 1 of 3: formula that was not computed yet, =A2\n" in some


def test_a_broken_workbook_and_a_bomb_are_sentences(here: ShellWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    (here.root / "none.xlsx").write_bytes(b"PK\x03\x04 and then nothing")
    with zipfile.ZipFile(here.root / "other.xlsx", "w") as other:
        other.writestr("word/document.xml", "<x/>")
    for name in ("none.xlsx", "other.xlsx"):
        with pytest.raises(ToolFailure, match="cannot be read as an Excel workbook"):
            read(here, name)
    with zipfile.ZipFile(here.root / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bomb:
        for number in range(9):
            bomb.writestr(f"{number}.xml", b"\0" * (1024 * 1024))
    monkeypatch.setattr(files_tools, "UNPACKED", 8 * 1024 * 1024)
    with pytest.raises(ToolFailure, match="unpacks to more than"):
        read(here, "bomb.xlsx")
    (here.root / "old.xls").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600)
    with pytest.raises(ToolFailure, match="old or encrypted Office document"):
        read(here, "old.xls")


# ---------------------------------------------------------------------- without the libraries


def test_without_its_library_one_line_says_how_to_get_it(
    here: ShellWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content, library in (
        ("a.pdf", b"%PDF-1.4\n", "pypdf"), ("a.parquet", b"PAR1", "pyarrow"), ("a.xlsx", b"PK\x03\x04", "openpyxl"),
    ):  # fmt: skip
        (here.root / name).write_bytes(content)
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ToolFailure) as caught:
            read(here, name)
        assert f"needs {library}: run `%pip install {library}` with the python tool" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_csv_of_one_row_is_told_in_the_singular_and_its_name_may_have_braces(here: ShellWorkspace) -> None:
    (here.root / "a{b}.csv").write_text("n,m\n1,2\n")
    shown = read(here, "a{b}.csv")
    assert shown.startswith("a{b}.csv: 1 row x 2 columns, 8 bytes")
    assert shown.endswith("first 1 row:\nn,m\n1,2")
    with pytest.raises(ToolFailure, match=r"but there is 1 row$"):
        read(here, "a{b}.csv", offset=2)
    (here.root / "one.txt").write_text("line\n")
    with pytest.raises(ToolFailure, match=r"but there is 1 line$"):
        read(here, "one.txt", offset=2)


def test_a_line_is_cut_only_where_the_words_about_it_are_shorter() -> None:
    assert cut_line("x" * 2_030, "line") == "x" * 2_030
    assert cut_line("x" * 2_100, "row") == "x" * 2_000 + "[… 100 more characters in this row]"
    assert all(len(cut_line("x" * size, "line")) <= size for size in range(1_990, 2_100))
