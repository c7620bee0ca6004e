"""Stored results: whole tool results in files beside the transcript, written once, never changed."""

from __future__ import annotations

import hashlib
import re

FOLDER = "tool-results"
"""Folder beside the transcript."""
LONGEST_LINE = 2_000
"""Characters of a line as it is shown; a longer one counts and is read as several lines."""

_ODD = re.compile(r"[^A-Za-z0-9_-]")


def file_stem(call: str) -> str:
    """A call's id as the beginning of a file name. Different ids give different stems."""
    stem = _ODD.sub("_", call)[:80]
    if stem and stem == call:
        return stem
    return f"{stem}-{hashlib.sha256(call.encode('utf-8', 'replace')).hexdigest()[:8]}"


def lines_of(text: str) -> list[str]:
    """The lines as `read_file` counts them in a stored result."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if all(len(line) <= LONGEST_LINE for line in lines):
        return lines
    return [line[at : at + LONGEST_LINE] for line in lines for at in range(0, max(1, len(line)), LONGEST_LINE)]
