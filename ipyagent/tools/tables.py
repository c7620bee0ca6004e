"""A table file in a few lines: columns with their kinds, the number of rows, the first rows. Read
cheaply: what is already in memory of a text file, the footer and one batch of a Parquet file."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path

from ipyagent.errors import ToolFailure
from ipyagent.tools.answers import clean

ROWS = 10
"""Rows shown."""
SAMPLE = 1_000
"""Rows from which a column's kind is guessed."""
_CELL = 80


def delimited_text(text: str, name: str, size: int, whole: bool, delimiter: str) -> str | None:
    """A description of CSV or TSV text, None when it does not read as a table of two columns or
    rows. `delimiter` "" means: find out."""
    if not delimiter:
        first = text.partition("\n")[0]
        delimiter = max(",;\t|", key=first.count)
    try:
        rows = list(islice(csv.reader(_lines(text), delimiter=delimiter), SAMPLE + 1))
    except csv.Error:
        return None
    if len(rows) < 2 or not rows[0]:
        return None
    header, sample = rows[0], [row for row in rows[1:] if row]
    count = text.count("\n") - text.startswith("\n") - (1 if text.endswith("\n") else 0)
    if len(rows) <= SAMPLE and whole:
        counted = f"{len(sample):,} rows"
    elif whole:
        counted = f"about {count:,} rows"
    else:
        counted = f"more than {count:,} rows"
    lines = [f"{name}: {counted} x {len(header)} columns, {size:,} bytes, separator {delimiter!r}", "", "columns:"]
    for number, column in enumerate(header[:200]):
        values = [row[number] for row in sample if number < len(row)]
        lines.append(f"  {short(column)}: {kind_of(values)}")
    if len(header) > 200:
        lines.append(f"  [… {len(header) - 200:,} more columns]")
    lines += ["", f"first {min(ROWS, len(sample))} rows:"]
    for row in [header, *sample[:ROWS]]:
        lines.append(delimiter.join(short(value) for value in row[:200]))
    uneven = sum(len(row) != len(header) for row in sample)
    if uneven:
        lines.append(f"[{uneven:,} of the first {len(sample):,} rows have another number of fields than the header]")
    return clean("\n".join(lines))


def _lines(text: str) -> list[str]:
    # csv wants the line ends; far more text than SAMPLE rows need is not split.
    return text[:4_000_000].splitlines(keepends=True)


def kind_of(values: list[str]) -> str:
    """What a column of text holds: integers, numbers or text, with range and what is missing."""
    filled = [value.strip() for value in values if value.strip() not in ("", "NA", "NaN", "nan", "null", "NULL")]
    missing = len(values) - len(filled)
    tail = f", {missing} of {len(values)} missing" if missing else ""
    if not filled:
        return "empty"
    for kind, parse in (("integer", int), ("number", float)):
        try:
            numbers = [parse(value) for value in filled]
        except ValueError:
            continue
        return f"{kind}, {min(numbers)} to {max(numbers)}{tail}"
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
            batch = next(file.iter_batches(batch_size=ROWS), None)
            head = batch.slice(0, ROWS).to_pylist() if batch is not None else []
    except (pyarrow.ArrowException, OSError) as problem:
        raise ToolFailure(f"{name} cannot be read as Parquet: {problem}") from None
    size = f"{meta.num_rows:,} rows x {meta.num_columns} columns, {meta.num_row_groups} row groups"
    lines = [f"{name}: {size}", "", "columns:"]
    lines += [f"  {field.name}: {field.type}" for field in list(schema)[:200]]
    lines += ["", f"first {len(head)} rows:", "\t".join(short(column) for column in schema.names[:200])]
    lines += ["\t".join(short(str(row[column])) for column in schema.names[:200]) for row in head]
    return clean("\n".join(lines))

