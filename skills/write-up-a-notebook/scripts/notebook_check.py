"""What keeps a notebook from being read by others or run again. Only reads the file; needs nothing installed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

LARGE_OUTPUT = 500_000
"""Characters of one cell's outputs above which a notebook is slow to open."""
LONG_CELL = 60
_PATHS = re.compile(r"""['"](?:/(?:home|Users|mnt|tmp|root)/|[A-Za-z]:\\\\?|~/)[^'"\n]*['"]""")
_SECRETS = re.compile(
    r"""(?:api[_-]?key|secret|passw(?:or)?d|token)\s*=\s*['"][^'"\s]{8,}['"]"""
    r"|\b(?:sk-|ghp_|AKIA)[A-Za-z0-9_-]{12,}",
    re.I,
)
_NOISE = re.compile(r"^\s*(?:[!%]\s*)?(?:pip|conda) install\b", re.M)


class Fault(NamedTuple):
    """`cell` counts from 0, -1 for the notebook as a whole."""

    cell: int
    what: str

    def __str__(self) -> str:
        return self.what if self.cell < 0 else f"cell {self.cell}: {self.what}"


def check(path: str | Path) -> list[Fault]:
    """What is wrong, in the order of the cells. Raises ValueError for what is no notebook, OSError."""
    cells = _cells(path)
    found = []
    if not cells:
        return [Fault(-1, "there are no cells")]
    code = [(at, cell) for at, cell in enumerate(cells) if cell.get("cell_type") == "code" and _source(cell).strip()]
    heads = [line for at, cell in enumerate(cells) if cell.get("cell_type") == "markdown" for line in _heads(cell)]
    if not heads:
        found.append(Fault(-1, "no heading: begin with a title, the question and the answer"))
    counts = [(at, cell.get("execution_count")) for at, cell in code]
    run = [count for _, count in counts if isinstance(count, int)]
    if code and not run:
        found.append(Fault(-1, "no cell has been run: restart the kernel and run all"))
    elif run != sorted(run) or len(set(run)) != len(run):
        found.append(Fault(-1, "cells were run out of order: restart the kernel and run all"))
    elif run and run != list(range(1, len(run) + 1)):
        found.append(Fault(-1, "not the numbers of a fresh run: restart the kernel and run all"))
    for at, cell in code:
        found += [Fault(at, what) for what in _of_code(cell, bool(run))]
    return sorted(found, key=lambda fault: fault.cell)


def outline(path: str | Path) -> str:
    """Headings with the cells below them counted: "## Data (cells 3-7: 4 code, 1 text)". Raises ValueError, OSError."""
    cells = _cells(path)
    starts: list[tuple[int, str]] = []
    for at, cell in enumerate(cells):
        if cell.get("cell_type") == "markdown":
            starts += [(at, head) for head in _heads(cell)]
    if not starts or starts[0][0] > 0:
        starts.insert(0, (0, "(before any heading)"))
    lines = []
    for (at, head), (end, _) in zip(starts, [*starts[1:], (len(cells), "")], strict=True):
        part = cells[at:end]
        code = sum(cell.get("cell_type") == "code" for cell in part)
        where = f"cells {at}-{end - 1}" if end - 1 > at else f"cell {at}"
        lines.append(f"{head} ({where}: {code} code, {len(part) - code} text)" if part else head)
    return "\n".join(lines)


def _cells(path: str | Path) -> list[dict[str, Any]]:
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"{path} is no notebook: {problem}") from problem
    cells = held.get("cells") if isinstance(held, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ValueError(f"{path} is no notebook of format 4: it has no list of cells")
    return cells


def _text(value: Any) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _source(cell: dict[str, Any]) -> str:
    return _text(cell.get("source"))


def _heads(cell: dict[str, Any]) -> list[str]:
    text = re.sub(r"^(```|~~~).*?^\1", "", _source(cell), flags=re.S | re.M)
    return [line.strip() for line in text.splitlines() if re.match(r"\s{0,3}#{1,6}\s+\S", line)]


def _of_code(cell: dict[str, Any], others_ran: bool) -> list[str]:
    source, found = _source(cell), []
    outputs = [each for each in cell.get("outputs") or [] if isinstance(each, dict)]
    if others_ran and cell.get("execution_count") is None:
        found.append("has not been run")
    for output in outputs:
        if output.get("output_type") == "error":
            found.append(f"ends with an error ({output.get('ename', '?')})")
        elif output.get("output_type") == "stream" and "Warning" in _text(output.get("text")):
            found.append("shows a warning: mend the cause, or say why it is harmless")
    if (size := len(json.dumps(outputs))) > LARGE_OUTPUT:
        found.append(f"outputs of {size:,} characters: show a part")
    if (lines := source.count("\n") + 1) > LONG_CELL:
        found.append(f"{lines} lines: split it, or move functions into a module")
    if path := _PATHS.search(source):
        found.append(f"a path of one machine, {path[0]}")
    if _SECRETS.search(source):
        found.append("looks like a secret: take it out, and replace the secret itself")
    if _NOISE.search(source):
        found.append("installs packages: list them in a requirements file")
    return found
