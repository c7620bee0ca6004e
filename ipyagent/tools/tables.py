"""A table file in a few lines: columns with their kinds, the number of rows, the first rows. Read
cheaply: what is already in memory of a text file, the footer and one batch of a Parquet file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.tools.answers import clean

ROWS = 10
"""Rows shown."""
SAMPLE = 1_000
"""Rows from which a column's kind is guessed."""
MISSING = frozenset(
    (
        "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
        "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
    )
)  # fmt: skip
"""Texts that pandas reads as missing."""
_CELL = 80
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)", re.I)
_SEPARATORS = "\t;|,"


def delimited_text(text: str, name: str, size: int, whole: bool, delimiter: str) -> str | None:
    """A description of CSV or TSV text, None when it does not read as a table of two columns or
    rows. `delimiter` "" means: find out."""
    delimiter = delimiter or _separator(text)
    reader = _records(text, delimiter)
    try:
        rows = list(islice(reader, SAMPLE + 1))
        more = sum(1 for row in reader if row)
    except csv.Error:
        return None
    if len(rows) < 2 or not rows[0]:
        return None
    header, sample = rows[0], [row for row in rows[1:] if row]
    # The last record of a part may be cut; it is one of those that are more.
    counted = f"{len(sample) + more:,}" if whole else f"more than {len(sample) + more - 1:,}"
    head = f"{name}: {counted} rows x {len(header)} columns, {size:,} bytes, separator {delimiter!r}"
    lines = [head, "", f"columns{of_the_first(len(sample), whole and not more)}:"]
    for number, column in enumerate(header[:200]):
        values = [row[number] if number < len(row) else "" for row in sample]
        lines.append(f"  {short(column)}: {kind_of(values)}")
    if len(header) > 200:
        lines.append(f"  [… {len(header) - 200:,} more columns]")
    lines += ["", f"first {min(ROWS, len(sample))} rows:"]
    lines += [_record([short(value) for value in row[:200]], delimiter) for row in [header, *sample[:ROWS]]]
    uneven = sum(len(row) != len(header) for row in sample)
    if uneven:
        lines.append(f"[{uneven:,} of the first {len(sample):,} rows have another number of fields than the header]")
    return clean("\n".join(lines))


def of_the_first(rows: int, all_of_them: bool) -> str:
    """What a heading adds when kinds and ranges come from the first rows only."""
    return "" if all_of_them else f" (kinds and values of the first {rows:,} rows only)"


def _records(text: str, delimiter: str) -> Iterator[list[str]]:
    # Lines end with \n, \r or \r\n alone: str.splitlines would end them at U+2028 and form feeds too.
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)


def _record(values: list[str], delimiter: str) -> str:
    # Quoted where it must be, so that a separator within a value shows as one.
    made = io.StringIO()
    csv.writer(made, delimiter=delimiter, lineterminator="").writerow(values)
    return made.getvalue()


def _separator(text: str) -> str:
    """The separator that gives the first records the same number of fields, two or more (of several the one that
    least often stands within a value); else the most frequent of the first record."""
    found: dict[str, int] = {}
    for each in _SEPARATORS:
        try:
            widths = [len(row) for row in islice(_records(text[:1_000_000], each), 20) if row]
        except csv.Error:
            continue
        if widths and widths[0] > 1 and len(set(widths)) == 1:
            return each
        found[each] = widths[0] if widths else 0
    return max(reversed(found), key=lambda each: found[each], default=",")


def kind_of(values: list[str]) -> str:
    """What a column of text holds: integers, numbers or text, with range and what is missing. A number is what
    pandas reads as one: ASCII digits, without "_" between them."""
    filled = [value.strip() for value in values if value.strip() not in MISSING]
    missing = len(values) - len(filled)
    tail = f", {missing} of {len(values)} missing" if missing else ""
    if not filled:
        return "empty"
    if all(_INTEGER.fullmatch(value) for value in filled):
        if any(len(digits := value.lstrip("+-")) > 1 and digits[0] == "0" for value in filled):
            tail = f", some with leading zeros{tail}"
        low, high = (short(str(found(int(value) for value in filled))) for found in (min, max))
        return f"integer, {low} to {high}{tail}"
    if all(_NUMBER.fullmatch(value) for value in filled):
        low, high = (short(found(filled, key=float)) for found in (min, max))
        return f"number, {low} to {high}{tail}"
    different = sorted(set(filled))
    if len(different) <= 6:
        return f"text, {', '.join(repr(short(value, 30)) for value in different)}{tail}"
    return f"text, {len(different)} different in {len(filled)}{tail}"


def short(value: str, most: int = _CELL) -> str:
    """A cell on one line of at most `most` characters."""
    value = value.replace("\n", "\\n").replace("\r", "\\r")
    return value if len(value) <= most else value[: most - 1] + "…"


def parquet_text(path: Path, name: str) -> str:
    """A description of a Parquet file. Raises ToolFailure."""
    try:
        import pyarrow  # type: ignore[import-untyped, unused-ignore]  # ships no stubs
        from pyarrow import parquet
    except ImportError:
        raise ToolFailure(f"reading {name} needs pyarrow: run `%pip install pyarrow` with the python tool") from None
    try:
        with parquet.ParquetFile(path) as file:
            schema, meta = file.schema_arrow, file.metadata
            batch = next((batch for batch in file.iter_batches(batch_size=ROWS) if batch.num_rows), None)
            fields = list(schema)[:200]
            held = [] if batch is None else [batch.column(at).slice(0, ROWS) for at in range(len(fields))]
            # By place: two columns may have one name.
            cells = [[_parquet_cell(value) for value in column] for column in held]
    except (pyarrow.ArrowException, OSError) as problem:
        raise ToolFailure(f"{name} cannot be read as Parquet: {problem}") from None
    size = f"{meta.num_rows:,} rows x {len(schema)} columns, {meta.num_row_groups} row groups"
    lines = [f"{name}: {size}", "", "columns:"]
    lines += [f"  {short(field.name)}: {field.type}" for field in fields]
    if len(schema) > len(fields):
        lines.append(f"  [… {len(schema) - len(fields):,} more columns]")
    head = list(zip(*cells, strict=True))
    lines += ["", f"first {len(head)} rows:", "\t".join(_tabless(field.name) for field in fields)]
    lines += ["\t".join(row) for row in head]
    return clean("\n".join(lines))


def _parquet_cell(value: Any) -> str:
    """A pyarrow scalar as text; what Python cannot hold (a date after the year 9999, text that is not UTF-8, a zone
    that is not known) as Arrow writes it, else as what it is."""
    import pyarrow

    wrong = (pyarrow.ArrowException, ValueError, OverflowError, LookupError, TypeError, ImportError, OSError)
    for kind in (None, pyarrow.string()):
        try:
            return _tabless(str((value if kind is None else value.cast(kind)).as_py()))
        except wrong:
            continue
    return f"({value.type} that cannot be shown)"


def _tabless(value: str) -> str:
    return short(value.replace("\t", "\\t"))
