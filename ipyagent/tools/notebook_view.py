"""A notebook as the model reads it: every cell with its id, sources whole where they fit, outputs short. What
its author hid stays hidden, and no output, however large, comes in whole."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Block
from ipyagent.kernel.cell_marks import HIDE
from ipyagent.kernel.notebook import Cell, Notebook, joined
from ipyagent.tools.answers import capped, clean, picture, plain
from ipyagent.tools.changes import MOST_NOTEBOOK
from ipyagent.tools.paths import read_bytes

OUTPUT = 600
"""Characters shown of one output in the whole notebook, and (next) of one cell that was asked for."""
OUTPUT_ALONE = 6_000
OUTPUTS = 4
"""Outputs shown of a cell in the whole notebook."""
_HEAD = 200_000
"""Characters looked at of one output's text: its end is not worth the time."""
PICTURES = ("image/png", "image/jpeg", "image/gif")


def head_of(cell: Cell) -> str:
    """The line above a cell."""
    return f"--- cell {cell.number}: {cell.kind}, id {cell.ident} ---"


def hidden(cell: Cell) -> ToolFailure:
    """What a request for a hidden cell is answered."""
    return ToolFailure(f"cell {cell.ident} is hidden by its author ({HIDE}): it is neither shown, changed nor run")


def hidden_lines(path: Path) -> Container[int]:
    """The numbers of the file's lines that belong to hidden cells, from 1; all of a file that has some and cannot be
    read as a notebook."""
    try:
        data, _ = read_bytes(path, MOST_NOTEBOOK)
        if HIDE.encode() not in data:
            return ()
        notebook = Notebook.read(data)
    except ToolFailure:
        return range(sys.maxsize)
    text = notebook.layout.text
    lines: set[int] = set()
    for cell, place in zip(notebook.cells, notebook.layout.places, strict=True):
        if cell.hidden:
            first = _line_ends(text[: place.start]) + 1
            lines.update(range(first, first + _line_ends(text[place.start : place.end]) + 1))
    return lines


def _line_ends(text: str) -> int:
    """Line ends as grep and read_file count them: \\n, \\r\\n and a lone \\r."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def whole_text(notebook: Notebook, name: str, most: int) -> str:
    """Every cell in about `most` characters: long sources are shortened first, then outputs go, then only the
    first line of each cell is left."""
    count = len(notebook.cells)
    title = f"{name}: {count} cell{'s' * (count != 1)}, format 4.{notebook.minor}"
    for source, outputs in ((most, True), (1_500, True), (600, False), (80, False)):
        parts = [title if source == most else f"{title}; shortened: give `cell` for one in full"]
        for cell in notebook.cells:
            parts += [head_of(cell), *_body(cell, source, OUTPUT if outputs else 0)]
        text = "\n".join(parts)
        if len(text) <= most:
            return clean(text)
    return capped(clean(text), most)


def full_text(notebook: Notebook, name: str) -> str:
    """Every cell with its whole source: what `read_file` gives in pages."""
    title = f"{name}: {len(notebook.cells)} cells; cells are changed with the notebook tool, by id"
    parts = [line for cell in notebook.cells for line in (head_of(cell), *_body(cell, len(cell.source), OUTPUT))]
    return "\n".join([title, *parts])


def cell_text(cell: Cell, most: int) -> str:
    """One cell in full, its outputs still bounded."""
    if cell.hidden:
        raise hidden(cell)
    return capped(clean("\n".join([head_of(cell), *_body(cell, most, OUTPUT_ALONE)])), most)


def pictures_of(cell: Cell, most: int = 2) -> list[Block]:
    """The pictures among a cell's outputs, those that can be sent."""
    import base64
    import binascii

    found: list[Block] = []
    for output in cell.outputs:
        bundle = output.get("data")
        for kind in PICTURES:
            text = joined(bundle.get(kind)) if isinstance(bundle, Mapping) else ""
            if text and len(found) < most:
                try:
                    found.append(picture(base64.b64decode(text), kind))
                except (ToolFailure, binascii.Error, ValueError):
                    continue  # its line in the text says that there is one
    return found


def _body(cell: Cell, source: int, output: int) -> list[str]:
    if cell.hidden:
        return ["[hidden by its author]"]
    more = len(cell.source) - source
    parts = [cell.source if more <= 0 else f"{cell.source[:source]}\n[… {more:,} more characters]"]
    names = cell.value.get("attachments")
    if isinstance(names, Mapping) and names:
        parts.append(f"[attachments: {', '.join(map(str, names))}]")
    if not output:
        return parts + [f"[{len(cell.outputs)} outputs]"] * bool(cell.outputs)
    shown = cell.outputs if output > OUTPUT else cell.outputs[:OUTPUTS]
    parts += [capped(f"Output: {_output(item)}", output) for item in shown[:50]]
    left = len(cell.outputs) - len(shown[:50])
    return parts + [f"[{left} more output{'s' * (left > 1)}]"] * bool(left)


def _output(output: Mapping[str, Any]) -> str:
    match output.get("output_type"):
        case "stream":
            return plain(joined(output.get("text"))[:_HEAD])
        case "error":
            return plain(f"{output.get('ename')}: {str(output.get('evalue'))[:_HEAD]}")
        case _:
            found = output.get("data")
            bundle = found if isinstance(found, Mapping) else {}
            text = plain(joined(bundle.get("text/plain"))[:_HEAD])
            others = [f"[{kind}]" for kind in bundle if not text or kind.startswith("image/")]
            return "\n".join([text] * bool(text) + others)
