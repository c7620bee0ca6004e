"""Documents as text: a PDF's pages. Foreign files: whatever is wrong with them becomes a sentence."""

from __future__ import annotations

import io
import struct
import zlib

from ipyagent.errors import ToolFailure
from ipyagent.tools.answers import clean
from ipyagent.tools.worker import Stop

NO_TEXT = "[no text on this page: a scan, a drawing or empty]"


def pdf_text(data: bytes, whole: bool, offset: int, limit: int, most: int, stop: Stop) -> str:
    """The text of a PDF's pages from page `offset` on, at most `limit` pages and as many as fit into `most`
    characters; says which pages there are besides. Raises ToolFailure."""
    if not whole:
        raise ToolFailure("the PDF is too large to read here; use python with pypdf")
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError:
        raise ToolFailure("reading a PDF needs pypdf: run `%pip install pypdf` with the python tool") from None
    texts: list[str] = []
    length = 0
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolFailure("the PDF is encrypted; open it with python, pypdf and its password")
        pages = reader.pages
        count = len(pages)
        if offset > count:
            raise ToolFailure(f"`offset` is {offset}, but there are {count} pages")
        for number in range(offset - 1, min(count, offset - 1 + limit)):
            stop.check()
            text = f"--- page {number + 1} of {count} ---\n{pages[number].extract_text().strip() or NO_TEXT}"
            length += len(text) + 1
            if length > most and texts:
                break
            texts.append(text)
    except (
        PyPdfError, DependencyError, ValueError, LookupError, TypeError, AttributeError, NotImplementedError,
        RecursionError, AssertionError, struct.error, zlib.error,
    ) as problem:  # fmt: skip
        raise ToolFailure(f"the PDF cannot be read: {type(problem).__name__}: {problem}") from None
    last = offset - 1 + len(texts)
    if offset > 1 or last < count:
        more = f"; go on with offset={last + 1}" if last < count else ""
        texts.append(f"[pages {offset}-{last} of {count}{more}]")
    return clean("\n".join(texts))
