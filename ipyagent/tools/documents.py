"""Documents as text: a PDF's pages, a notebook's cells. Foreign files: whatever is wrong with
them becomes a sentence."""

from __future__ import annotations

import json
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.tools.answers import capped, plain
from ipyagent.tools.worker import Stop

OUTPUT = 1_000
"""Characters shown of one output of a notebook cell."""


def pdf_text(data: bytes, whole: bool, offset: int, limit: int, stop: Stop) -> str:
    """The text of a PDF's pages from `offset` on. Raises ToolFailure."""
    if not whole:
        raise ToolFailure("the PDF is too large to read here; use python with pypdf")
    try:
        from pypdf import PdfReader  # type: ignore[import-not-found, unused-ignore]  # optional
        from pypdf.errors import PyPdfError  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ToolFailure("reading a PDF needs pypdf: run `%pip install pypdf` with the python tool") from None
    import io

    try:
        pages = PdfReader(io.BytesIO(data)).pages
        texts = []
        for number in range(offset - 1, min(len(pages), offset - 1 + limit)):
            stop.check()
            texts.append(f"--- page {number + 1} of {len(pages)} ---\n{pages[number].extract_text()}")
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ToolFailure(f"the PDF cannot be read: {problem}") from None
    return "\n".join(texts) or f"there are {len(pages)} pages; `offset` is the first page to show"


def notebook_text(text: str, name: str) -> str | None:
    """A notebook's cells and short outputs, None when `text` is no notebook. Cells tagged
    `agent-hide` are named and not shown."""
    try:
        notebook = json.loads(text)
    except ValueError:
        return None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        return None
    parts = [f"{name}: {len(notebook['cells'])} cells"]
    for number, cell in enumerate(notebook["cells"]):
        if not isinstance(cell, dict):
            continue
        kind, ident = cell.get("cell_type", "?"), cell.get("id", "")
        metadata = cell.get("metadata")
        tags = metadata.get("tags") if isinstance(metadata, dict) else None
        parts.append(f"--- cell {number}: {kind}{f', id {ident}' if ident else ''} ---")
        if isinstance(tags, list) and "agent-hide" in tags:
            parts.append("[hidden by its author]")
            continue
        parts.append(_joined(cell.get("source")))
        outputs = cell.get("outputs")
        if isinstance(outputs, list):
            parts.extend(_output(item) for item in outputs if isinstance(item, dict))
    return "\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    match output.get("output_type"):
        case "stream":
            text = _joined(output.get("text"))
        case "error":
            text = f"{output.get('ename')}: {output.get('evalue')}"
        case _:
            bundle = output.get("data")
            bundle = bundle if isinstance(bundle, dict) else {}
            text = _joined(bundle.get("text/plain"))
            kinds = [kind for kind in bundle if kind.startswith("image/")]
            text = "\n".join([text] * bool(text) + [f"[{kind}]" for kind in kinds])
    return "Output: " + capped(plain(text), OUTPUT)


def _joined(source: Any) -> str:
    if isinstance(source, list):
        return "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""
