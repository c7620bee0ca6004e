"""Reads what tools really answered: literals, tables, listings, errors.

Every number the practice model says was cut out of a result by this module. What cannot be read is shown as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

TRIES = 10
"""First and last brackets of a result from which a literal is tried to be read."""
Rows = list[list[str]]

_DENIED = re.compile(r"\bdenied\b|\bwas not run\b|not (?:allowed|permitted)|permission|read[_ -]only mode|拒绝", re.I)
_ERROR = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure))(?::\s*(.*))?$")
_FRAME = re.compile(
    r"^[\W_]*+(?P<name>[^\W\d]\w*)\W.*?\b(?:DataFrame"
    r"|frame)\b(?:\D*(?P<rows>\d[\d,]{0,14})\s*+(?:rows\s*+)?[x×,*]\s*(?P<columns>\d{1,9}))?"
)
_GONE = re.compile(r"\bgone\s*[:：]\s*(?P<listed>.*)|(?<!\w)(?P<name>\w+)`? is gone", re.I)


def denied(text: str) -> bool:
    """Whether an error result says that permission was refused."""
    return bool(_DENIED.search(text)) and "PermissionError" not in text


def error(text: str) -> tuple[str, str]:
    """Type and message of the last exception in a traceback; the last line and no type when there is none."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        found = _ERROR.match(line)
        if found:
            return found[1], found[2] or ""
    return "", lines[-1] if lines else ""


def literal(text: str) -> Any:
    """The Python literal a result ends with (dict, list, tuple, number, text), or None."""
    text = text.strip()
    for first, last in ("{}", "[]", "()"):
        if not text.endswith(last):
            continue
        starts = [match.start() for match in re.finditer(re.escape(first), text)]
        for start in starts if len(starts) <= 2 * TRIES else [*starts[:TRIES], *starts[-TRIES:]]:
            try:
                return ast.literal_eval(text[start:])
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
    try:
        return ast.literal_eval(text.removeprefix("Out:").strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def shape(text: str) -> tuple[str, str] | None:
    """Rows and columns from a printed `(344, 8)` or `344 rows x 8 columns`."""
    found = re.search(r"\((\d+), (\d+)\)", text) or re.search(r"(\d[\d,]*)(?: rows)? ?[x×] ?(\d+)", text)
    return (found[1], found[2]) if found else None


def named(text: str, label: str) -> str | None:
    """The number printed after `label =` or `label:`."""
    found = re.search(rf"{re.escape(label)}\s*[=:]\s*(-?[\d.,]+(?:e[+-]?\d+)?|nan|inf|-inf)", text)
    return found[1].rstrip(".,") if found else None


def number(text: str) -> float | None:
    """A cell of a table as a number, or None."""
    try:
        return float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return None


def pretty(text: str, least: int = 5) -> str:
    """A printed number with commas between thousands when it has `least` digits; its digits stay as they are."""
    found = re.fullmatch(r"(-?)(\d+)(\.\d+)?", text)
    return text if not found or len(found[2]) < least else f"{found[1]}{int(found[2]):,}{found[3] or ''}"


def rows(text: str, headers: Sequence[str]) -> Rows:
    """Rows of a printed pandas table: index label first, then one cell per header; empty when not found.

    pandas aligns columns right, so a cell ends where its header ends; a table too wide for the line goes on in
    further blocks, whose cells are joined to the rows before.
    """
    lines = re.sub(r"^Out:[ \n]", "", text, flags=re.M).splitlines()
    todo, number_ = list(headers), 0
    table: Rows = []
    while todo and number_ < len(lines):
        line, ends, position = lines[number_], [], 0
        for header in todo:
            at = re.compile(rf"(?:(?<=\s)|^){re.escape(header.strip())}(?=\s|$)").search(line, position)
            if at is None:
                break
            ends.append(at.end())
            position = at.end()
        number_ += 1
        if not ends:
            continue
        block: Rows = []
        if number_ < len(lines) and _is_index_name(lines[number_], ends):
            number_ += 1
        while number_ < len(lines) and lines[number_].strip() and not lines[number_].startswith("["):
            block.append(_cells(lines[number_], ends))
            number_ += 1
        todo = todo[len(ends) :]
        if not table:
            table = block
        elif len(block) == len(table):
            table = [old + new[1:] for old, new in zip(table, block, strict=True)]
    return [] if todo else [row for row in table if row[0] not in ("...", "..")]


def _is_index_name(line: str, ends: Sequence[int]) -> bool:
    return bool(line.strip()) and not line[ends[0] - 1 :].strip() and len(line.rstrip()) < ends[0]


def _cells(line: str, ends: Sequence[int]) -> list[str]:
    first = line[: ends[0]].rstrip()
    label = (
        re.match(r"(\d+)\s+(.*)$", first) or re.match(r"(.*?)\s{2,}(\S.*)$", first) or re.match(r"(.*)\s(\S+)$", first)
    )
    cells = [label[1].strip(), label[2].strip()] if label else ["", first.strip()]
    return cells + [line[start:end].strip() for start, end in pairwise(ends)]


def series(text: str) -> Rows:
    """Label and value of each line of a printed Series; name and dtype lines are left out."""
    found = (
        re.match(r"^\s*(\S.*?)\s{2,}(\S+)$", line) for line in re.sub(r"^Out:[ \n]", "", text, flags=re.M).splitlines()
    )
    return [[each[1], each[2]] for each in found if each and not each[1].startswith(("dtype", "Name:", "Length:"))]


def frames(text: str) -> dict[str, tuple[int, int]]:
    """DataFrames in the listing of the `variables` tool: name to rows and columns (0, 0 when not said)."""
    found: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        each = _FRAME.match(line)
        if each and not _GONE.search(line):
            found[each["name"]] = (int((each["rows"] or "0").replace(",", "")), int(each["columns"] or 0))
    return found


def gone(text: str) -> dict[str, str]:
    """Variables that a reminder or listing says are gone, with what they were ("DataFrame 344 x 8")."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        each = _GONE.search(line)
        if each and each["name"]:
            found[each["name"]] = ""
        elif each:
            for name, what in re.findall(r"([^\W\d]\w*)\s*\(([^)]*)\)", each["listed"]):
                found[name] = what
            bare = re.sub(r"\([^)]*\)", "", each["listed"])
            found.update(
                {name: "" for name in re.findall(r"(?:^|,)\s*`?([^\W\d]\w*)`?\s*(?=,|$)", bare) if name not in found}
            )
    return found


def markdown(headers: Sequence[str], table: Rows, most: int = 20) -> str:
    """A Markdown table of the rows, numbers to the right; pipes in cells are escaped."""
    right = [all(number(row[at]) is not None for row in table) for at in range(len(headers))]
    for at, header in enumerate(headers):
        if right[at] and not re.search(r"(?:^|[_\W])(?:id|code|zip|year|index)$|Id$", header.strip()):
            whole = all(re.search(r"\.0+$", row[at]) or "." not in row[at] for row in table)
            least = 4 if any(abs(number(row[at]) or 0) >= 10_000 for row in table) else 5
            cells = [pretty(re.sub(r"\.0+$", "", row[at]) if whole else row[at], least) for row in table]
            table = [[*row[:at], cell, *row[at + 1 :]] for row, cell in zip(table, cells, strict=True)]
    lines = [
        "| " + " | ".join(header.strip() for header in headers) + " |",
        "|" + "|".join("---:" if each else "---" for each in right) + "|",
    ]
    for row in table[:most]:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    if len(table) > most:
        lines.append(f"\n… {len(table) - most} more")
    return "\n".join(lines)


def extremes(table: Rows, value: int) -> tuple[list[str], list[str]] | None:
    """The rows with the largest and the smallest number in column `value`."""
    known = [(each, row) for row in table if (each := number(row[value])) is not None and each == each]
    if not known:
        return None
    return max(known, key=lambda each: each[0])[1], min(known, key=lambda each: each[0])[1]


def names(listing: str) -> list[str]:
    """Paths in the answer of `glob`, one a line."""
    lines = [line.strip().lstrip("-* ").split("  ")[0].strip() for line in listing.splitlines()]
    return [line for line in lines if re.fullmatch(r"[^\s:][^:]*\.\w+", line)]


def fields(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties of a tool's input schema."""
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}
