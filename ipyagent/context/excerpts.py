"""What a stored text or file looks like, in few characters, by its kind; nothing is invented: an
excerpt is made of the text's own lines, and says what lies between them."""

from __future__ import annotations

import json
from typing import Any

from ipyagent.journal.stored import lines_of

JSON_CHARS = 4_000_000
"""Longer texts are not parsed to see whether they are JSON."""
ITEMS = 40
"""Keys of a JSON object that are listed."""
_HEADS = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"%PDF-", "pdf"),
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gz"),
    (b"PAR1", "parquet"),
)
_TRACEBACK = "Traceback (most recent call last)"


def kind_of_text(text: str) -> str:
    """A file name's ending for the text: "json", "csv" or "txt"."""
    head = text.lstrip()[:1]
    if head in ("{", "[") and _parsed(text) is not None:
        return "json"
    rows = text[:20_000].split("\n")[:-1][:20]
    for mark in (",", "\t"):
        counts = {row.count(mark) for row in rows if '"' not in row}
        if len(rows) >= 3 and len(counts) == 1 and counts != {0}:
            return "csv" if mark == "," else "tsv"
    return "txt"


def kind_of_bytes(data: bytes) -> str:
    """A file name's ending for bytes; "bin" when they have no known beginning."""
    return next((kind for head, kind in _HEADS if data.startswith(head)), "bin")


def excerpt(text: str, kind: str, limit: int) -> str:
    """The text in about `limit` characters: of JSON its keys and lengths, of a traceback the
    innermost frames and the message, of anything else the first and the last lines."""
    if len(text) <= limit:
        return text
    if kind == "json" and (shape := _shape(_parsed(text), limit // 2)):
        return f"{shape}\n{_ends(text, limit - len(shape), 1 / 2)}"
    at = text.rfind(_TRACEBACK)
    if at >= 0:
        if len(text) - at <= limit * 3 // 4:
            before = _ends(text[:at], limit - (len(text) - at), 1 / 2)
            return f"{before.rstrip()}\n{text[at:]}".lstrip("\n")
        return _ends(text, limit, 1 / 5)
    return _ends(text, limit, 2 / 3 if kind in ("csv", "tsv") else 1 / 2)


def _ends(text: str, limit: int, share: float) -> str:
    """First and last lines, `share` of the room for the first."""
    if len(text) <= limit:
        return text
    lines = lines_of(text)
    room = max(0, int(limit * share))
    first: list[str] = []
    while len(first) < len(lines) and len(lines[len(first)]) < room:
        room -= len(lines[len(first)]) + 1
        first.append(lines[len(first)])
    if not first:
        first.append(lines[0][: max(20, room)] + " …")
    room = max(0, limit - sum(len(line) + 1 for line in first))
    last: list[str] = []
    while len(last) < len(lines) - len(first) and len(lines[-1 - len(last)]) < room:
        room -= len(lines[-1 - len(last)]) + 1
        last.append(lines[-1 - len(last)])
    if not last and len(lines) > len(first):
        last.append("… " + lines[-1][-max(20, room) :])
    elif not last:
        return f"{first[0]}\n… {text[-max(20, room):]}"
    left = len(lines) - len(first) - len(last)
    between = [f"[… {left:,} lines between …]"] if left else []
    return "\n".join([*first, *between, *reversed(last)])


def _parsed(text: str) -> Any:
    """The JSON value that the text is; None when it is none."""
    if len(text) > JSON_CHARS:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def _shape(value: Any, limit: int) -> str:
    """Keys with what they hold, or a list's length and what its items are."""
    if isinstance(value, list):
        line = f"JSON array of {len(value):,}"
        if value and isinstance(value[0], dict):
            line += f"; the first item has: {_keys(value[0])}"
        return line[:limit]
    return f"JSON object of {len(value):,}: {_keys(value)}"[:limit] if isinstance(value, dict) else ""


def _keys(value: dict[str, Any]) -> str:
    named = [f"{key[:60]} ({_size(item)})" for key, item in list(value.items())[:ITEMS]]
    return ", ".join(named) + (", …" if len(value) > ITEMS else "")


def _size(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{'object' if isinstance(value, dict) else 'array'} of {len(value):,}"
    return f"text of {len(value):,}" if isinstance(value, str) and len(value) > 40 else json.dumps(value)
