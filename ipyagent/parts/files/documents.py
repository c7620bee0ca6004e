"""A table file in a few lines: columns with their kinds, the number of rows, the first rows; or the rows that are
asked for. A CSV of up to 5 MB is profiled as a whole, of a larger one what its first 5 MB hold, and it says so."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from ipyagent.errors import ToolFailure
from ipyagent.escape import counted, cut
from ipyagent.journal.journal import LONGEST_LINE
from ipyagent.kernel.previews import numbers_in_text
from ipyagent.redaction import mask, mask_named
from ipyagent.redaction.names import name_strength
from ipyagent.tools.answers import clean, fitting

# ---- Work off the agent thread that a cancelled call stops: the worker asks `Stop.check` between its steps, and a
# worker changes nothing outside itself.

T = TypeVar("T")


class Stopped(Exception):
    """Raised inside a worker whose call was cancelled."""


class Stop:
    """Set once, when the call is cancelled."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises Stopped when the call was cancelled."""
        if self._event.is_set():
            raise Stopped


async def in_worker(work: Callable[[Stop], T]) -> T:
    """The result of `work` in a thread. Cancelling returns at once; the thread ends at its next
    `check`."""
    stop = Stop()
    try:
        return await asyncio.to_thread(work, stop)
    except asyncio.CancelledError:
        stop.set()
        raise


ROWS = 10
"""Rows shown when none are asked for."""
PROFILED = 5_000_000
"""Characters of a CSV whose cells are profiled."""
MOST_CELLS, MOST_UNPACKED = 2_000_000, 50_000_000
"""Cells and bytes of a Parquet file that is profiled; of a larger one the types are told."""
MOST_COLUMNS = 200
NO_NAME = "(no name)"
MISSING = frozenset(
    (
        "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
        "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
    )
)  # fmt: skip
"""Texts that pandas reads as missing."""
_CELL = 80
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)", re.I)
_QUOTED = re.compile(r"'([^']+)'")
_SEPARATORS = "\t;|,"


@dataclass(frozen=True)
class Pages:
    """Which rows are asked for: from `offset` (1 is the first below the header) at most `limit` in at most `most`
    characters; `offset` 1 without `limit` asks for the profile."""

    offset: int
    limit: int | None
    most: int

    @property
    def profile(self) -> bool:
        return self.offset == 1 and self.limit is None

    @property
    def last(self) -> int:
        """The last row asked for."""
        return self.offset - 1 + (self.limit or 2_000)

    def shown(self, rows: Iterable[tuple[int, str]], count: int, more: str = "") -> list[str]:
        """The numbered rows that fit, and a line that says which they are. `more` stands before `count` when there
        are others beyond it. Raises ToolFailure when there is none."""
        if self.offset > count:
            there = f"{more}{' ' * bool(more)}{counted(count, 'row')}"
            raise ToolFailure(f"`offset` is {self.offset}, but there {'is' if there == '1 row' else 'are'} {there}")
        lines: list[str] = []
        for number, row in rows:
            lines.append(f"{number:>5}\t{cut_line(row, 'row')}")
        lines = lines[: fitting(lines, self.most)]
        last = self.offset - 1 + len(lines)
        on = f"; continue with offset={last + 1}" if last < count else ""
        return [*lines, f"[rows {self.offset:,}-{last:,} of {more}{' ' * bool(more)}{count:,}{on}]"]


def cut_line(line: str, what: str) -> str:
    """A line (`what` it is: a line, a row) in LONGEST_LINE characters, where the words about the rest are shorter."""
    more = f"[… {len(line) - LONGEST_LINE:,} more characters in this {what}]"
    return f"{line[:LONGEST_LINE]}{more}" if len(line) - LONGEST_LINE > len(more) else line


def delimited_text(
    text: str, name: str, about: str, whole: bool, delimiter: str, pages: Pages, stop: Stop
) -> str | None:
    """A description of CSV or TSV text, or its rows as they stand in the file; None when it does not read as a table
    of two columns or rows. `about` is what else is known of the file ("1,234 bytes"), `delimiter` "" means: find
    out. Raises ToolFailure."""
    delimiter = delimiter or _separator(text)
    records = _Records(text, delimiter, stop)

    def title(rows: int, columns: int) -> str:
        size = f"{'' if whole else 'more than '}{counted(rows, 'row')} x {counted(columns, 'column')}"
        return f"{name}: {size}, {about}, separator {delimiter!r}"

    try:
        header = next(records, [])
        if not header:
            return None
        header_line = records.raw
        if not pages.profile:
            asked = [(at, records.raw) for at, _ in enumerate(records, 1) if pages.offset <= at <= pages.last]
            count = records.count - 1 - (not whole)
            asked, more = [row for row in asked if row[0] <= count], "" if whole else "more than"
            head = title(count, len(header))
            return clean("\n".join([head, f"     \t{header_line}", *pages.shown(asked, count, more)]))
        taken: list[list[str]] = []
        for row in records:
            taken.append(row)
            if records.chars > PROFILED:
                break
        for _ in records:
            pass
    except csv.Error:
        return None
    total = records.count - 1
    if not total:
        return None
    if not whole:  # the last record of a part may be cut
        taken, total = taken[: total - 1], total - 1
    odd = [at for at, row in enumerate(taken, 1) if len(row) != len(header)]
    by_one = len(odd) == len(taken) and all(len(row) == len(header) + 1 for row in taken)
    if by_one:
        header = ["", *header]
    lines = [title(total, len(header)), ""]
    lines += [f"columns{of_the_first(len(taken), len(taken) == total and whole)}:"]
    for number, column in enumerate(header[:MOST_COLUMNS]):
        stop.check()
        values = [row[number] if number < len(row) else "" for row in taken]
        lines.append(f"  {short(column) or NO_NAME}: {without_values(column, kind_of(values))}")
    if len(header) > MOST_COLUMNS:
        lines.append(f"  [… {counted(len(header) - MOST_COLUMNS, 'more column')}]")
    lines += ["", f"first {counted(min(ROWS, len(taken)), 'row')}:"]
    made = io.StringIO()  # quoted where it must be, so that a separator within a value shows as one
    rows = [[short(value) for value in row[:MOST_COLUMNS]] for row in [header, *taken[:ROWS]]]
    csv.writer(made, delimiter=delimiter, lineterminator="\n").writerows(rows)
    lines.append(made.getvalue().removesuffix("\n"))
    if by_one:
        lines.append("[every row has one field more than the header; pandas makes the first field the index]")
    elif odd:
        where = ", ".join(f"{at:,}" for at in odd[:5]) + (", …" if len(odd) > 5 else "")
        lines.append(f"[{len(odd):,} of {len(taken):,} rows have another number of fields than the header: {where}]")
    if whole and records.raw.count('"') % 2:
        lines.append(f"[a quote that opens in row {total:,} is not closed: the rest of the file is in that row]")
    return clean("\n".join(lines))


def of_the_first(rows: int, all_of_them: bool) -> str:
    """What a heading adds when kinds and ranges come from the first rows only."""
    return "" if all_of_them else f" (kinds and values of the first {counted(rows, 'row')} only)"


class _Records:
    """The records of delimited text without blank lines; `raw` is the newest as it stands in the file, `count` how
    many there were, `chars` how long they were."""

    def __init__(self, text: str, delimiter: str, stop: Stop | None = None) -> None:
        # Lines end with \n, \r or \r\n alone: str.splitlines would end them at U+2028 and form feeds too.
        self._reader = csv.reader(self._fed(io.StringIO(text, newline="")), delimiter=delimiter)
        self._lines: list[str] = []
        self._stop = stop
        self.count = self.chars = 0

    def _fed(self, source: Iterable[str]) -> Iterator[str]:
        for line in source:
            self._lines.append(line)
            self.chars += len(line)
            yield line

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        before, self._lines = self._lines, []
        while True:
            try:
                row = next(self._reader)
            except StopIteration:
                self._lines = before
                raise
            if len(row) > 1 or (row and (row[0].strip(" \t") or '"' in self._lines[0])):  # as pandas skips them
                self.count += 1
                if self._stop is not None and self.count % 1_000 == 0:
                    self._stop.check()
                return row
            self._lines.clear()

    @property
    def raw(self) -> str:
        return "".join(self._lines).replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")


def _separator(text: str) -> str:
    """The separator that gives the first records the same number of fields, two or more (of several the one that
    least often stands within a value); else the most frequent of the first record."""
    found: dict[str, int] = {}
    for each in _SEPARATORS:
        try:
            widths = [len(row) for row in islice(_Records(text[:1_000_000], each), 20)]
        except csv.Error:
            continue
        if widths and widths[0] > 1 and len(set(widths)) == 1:
            return each
        found[each] = widths[0] if widths else 0
    return max(reversed(found), key=lambda each: found[each], default=",")


def kind_of(values: Sequence[str]) -> str:
    """What a column of text holds: integers, numbers or text, with range and what is missing. A number is what
    pandas reads as one: ASCII digits, without "_" between them; of text that is mostly numbers it says so."""
    filled = [value for value in values if value not in MISSING]
    missing = len(values) - len(filled)
    tail = f", {missing:,} of {len(values):,} missing" if missing else ""
    if not filled:
        return "empty"
    numbers = [value.strip(" \t") for value in filled]
    if all(map(_INTEGER.fullmatch, numbers)):
        if any(len(digits := value.lstrip("+-")) > 1 and digits[0] == "0" for value in numbers):
            tail = f", some with leading zeros{tail}"
        whole = [int(value) for value in numbers]
        return f"integer, {short(str(min(whole)))} to {short(str(max(whole)))}{tail}"
    if all(map(_NUMBER.fullmatch, numbers)):
        low, high = (short(found(numbers, key=float)) for found in (min, max))
        return f"number, {low} to {high}{tail}"
    if said := numbers_in_text(filled):
        return f"{said}{tail}"
    different = sorted(set(filled))
    if len(different) <= 6:
        return f"text, {', '.join(repr(short(value, 30)) for value in different)}{tail}"
    return f"text, {len(different):,} different in {len(filled):,}{tail}"


def without_values(name: str, said: str) -> str:
    """What is said of a column, without values where its name says that they are secrets."""
    if name_strength(name) == 2:
        return f"{said.partition(',')[0]}, values […masked]"
    return _QUOTED.sub(lambda found: f"'{mask_named(name, found[1])}'", said) if name_strength(name) else said


def short(value: str, most: int = _CELL) -> str:
    """A cell on one line of at most `most` characters; no half of a secret is left."""
    value = mask(value) if len(value) > most else value
    value = value.replace("\n", "\\n").replace("\r", "\\r")
    return cut(value, most)


def parquet_text(path: Path, name: str, pages: Pages, stop: Stop) -> str:
    """A description of a Parquet file, or its rows. Raises ToolFailure."""
    try:
        import pyarrow  # type: ignore[import-untyped, unused-ignore]  # ships no stubs
        from pyarrow import parquet
    except ImportError:
        raise ToolFailure(f"reading {name} needs pyarrow: run `%pip install pyarrow` with the python tool") from None
    try:
        with parquet.ParquetFile(path) as file:
            schema, meta = file.schema_arrow, file.metadata
            fields = list(schema)[:MOST_COLUMNS]
            count, last = meta.num_rows, ROWS if pages.profile else pages.last
            rows = _parquet_rows(file, pages.offset, min(last, count), len(fields), stop)
            heading = "\t".join(_tabless(field.name) for field in fields)
            size = f"{counted(count, 'row')} x {counted(len(schema), 'column')}"
            title = f"{name}: {size}, {counted(meta.num_row_groups, 'row group')}"
            if not pages.profile:
                return clean("\n".join([title, f"     \t{heading}", *pages.shown(rows, count)]))
            unpacked = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
            if count * len(schema) <= MOST_CELLS and unpacked <= MOST_UNPACKED:
                columns = file.read().columns  # by place: two may have one name
                words = [_parquet_words(column) for column in columns[: len(fields)]]
            else:
                words = [""] * len(fields)
            head = [row for _, row in rows]
    except (pyarrow.ArrowException, OSError) as problem:
        raise ToolFailure(f"{name} cannot be read as Parquet: {problem}") from None
    lines = [title, "", "columns:"]
    told = [without_values(field.name, f"{field.type}{said}") for field, said in zip(fields, words, strict=True)]
    lines += [f"  {short(field.name)}: {said}" for field, said in zip(fields, told, strict=True)]
    if len(schema) > len(fields):
        lines.append(f"  [… {counted(len(schema) - len(fields), 'more column')}]")
    lines += ["", f"first {counted(len(head), 'row')}:", heading, *head]
    return clean("\n".join(lines))


def _parquet_rows(file: Any, first: int, last: int, width: int, stop: Stop) -> Iterator[tuple[int, str]]:
    """(number, cells) of the rows `first` to `last`; row groups before and behind them are not read."""
    start, groups, before = 1, [], 0
    for at in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(at).num_rows
        if start + size <= first:
            before += size
        elif start <= last:
            groups.append(at)
        start += size
    number = before
    for batch in file.iter_batches(batch_size=1_000, row_groups=groups) if groups else ():
        stop.check()
        skipped = max(0, first - 1 - number)
        if skipped < batch.num_rows:
            taken = last - max(number, first - 1)
            held = [batch.column(at).slice(skipped, taken) for at in range(width)]
            cells = [[_parquet_cell(value) for value in column] for column in held]
            for offset, row in enumerate(zip(*cells, strict=True), number + skipped + 1):
                yield offset, "\t".join(row)
        number += batch.num_rows
        if number >= last:
            return


def _parquet_words(column: Any) -> str:
    """What a column holds beside its type: range, few different texts, what is missing (NaN too, as pandas has it);
    "" for a kind of which pyarrow cannot tell."""
    import pyarrow
    from pyarrow import compute, types

    kind, count = column.type, len(column)
    missing, said = column.null_count, ""
    try:
        if types.is_string(kind) or types.is_large_string(kind):
            values = [value for value in column.to_pylist() if value is not None]
            different = sorted(set(values))
            few = len(different) <= 6
            said = numbers_in_text(values) or (
                ", ".join(repr(short(value, 30)) for value in different)
                if few
                else f"{len(different):,} different in {len(values):,}"
            )
        elif types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind) or types.is_decimal(kind):
            if types.is_floating(kind):
                missing += compute.sum(compute.is_nan(column)).as_py() or 0
            ends = compute.min_max(column)
            said = f"{_parquet_cell(ends['min'])} to {_parquet_cell(ends['max'])}"
        elif types.is_boolean(kind):
            said = f"{compute.sum(column).as_py() or 0:,} of {count - missing:,} true"
    except (pyarrow.ArrowException, ValueError, OverflowError):
        said = ""
    if missing == count:
        return ", empty"
    return (f", {said}" if said else "") + (f", {missing:,} of {count:,} missing" if missing else "")


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
