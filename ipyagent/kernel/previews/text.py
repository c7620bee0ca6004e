"""Texts and bytes: length, beginning and, in depth, the end. Escaped to one line, secrets masked before
anything is cut. Also says of a column of texts that most of them are numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ipyagent.kernel.previews._kind import TypeInfo
from ipyagent.kernel.previews._look import CONTEXT, Group, PreviewContext, PreviewHandler, clip, one_line, quoted
from ipyagent.redaction import mask

WHOLE = 100_000
"""Longest text that is masked as a whole, so that its end may be shown."""
NUMBER_CHARS = 40
"""A longer text is no number."""
_NUMBER = re.compile(
    r"\s*[-+−]?\s?(?:[$€£¥]\s?)?[-+]?"
    r"(?:\d{1,3}(?:[,' ]\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+,\d+|\d+(?:[.,]\d*)?|[.,]\d+)"
    r"(?:[eE][-+]?\d+)?\s?[%€$£]?\s*"
)


def _text(value: Any, kind: TypeInfo) -> str:
    return f"{kind.name} {str.__len__(value):,}"


def text_line(value: Any, look: PreviewContext, width: int) -> str:
    # a subclass of str; exact texts are shown by the look itself
    return f"{look.kind(value).name} {look.text(value, max(8, width - 20))}"


def text_block(value: Any, look: PreviewContext, width: int) -> Iterator[str]:
    text = str.__getitem__(value, slice(None))
    length = len(text)
    if length <= 200:
        yield look.text(value, 700)
        return
    lines = f", {text.count(chr(10)) + 1:,} lines" if length <= 10_000_000 else ""
    yield f"{look.kind(value).name} of {length:,} characters{lines}"
    whole = length <= WHOLE
    shown = mask(text) if whole else mask(text[:WHOLE])
    room = max(100, (width - 200) // 2)
    if len(shown) <= room and whole:
        yield from (f"  {one_line(line)}" for line in shown.splitlines() or [""])
        return
    start = clip(shown, room)
    yield from (f"  {one_line(line)}" for line in start.splitlines())
    if whole:
        yield f"  … ends: {quoted(shown[-max(40, room // 8) :], room)}"


def _bytes(value: Any, kind: TypeInfo) -> str:
    base: Any = bytes if kind.is_a(bytes) else bytearray
    return f"{kind.name} {base.__len__(value):,}"


def bytes_line(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    base: Any = bytes if kind.is_a(bytes) else bytearray
    head = base.__getitem__(value, slice(0, width + CONTEXT))
    text = mask(bytes(head).decode("latin-1"))
    shown = "".join(c if " " <= c <= "~" or c == "…" else f"\\x{ord(c):02x}" for c in text[:width])
    prefix = f"{_bytes(value, kind)}: "
    return f"{prefix}b{quoted(shown, width - len(prefix) - 1)}"


def numbers_in_text(cells: Iterable[Any], *, of: str = "") -> str:
    """Of a column of texts that is mostly numbers (at least three, four of five): "text: 66 of 67 are numbers,
    others: '-'", with the commonest others; "" for any other column. Missing cells (no text) and empty texts are not
    counted. `of` stands behind the count of all ("sampled")."""
    numbers, others, count = 0, Counter[str](), 0
    for cell in cells:
        if type(cell) is not str or not cell:
            continue
        count += 1
        if len(cell) <= NUMBER_CHARS and _NUMBER.fullmatch(cell):
            numbers += 1
        elif len(others) < 1_000 or cell in others:
            others[cell[:NUMBER_CHARS]] += 1
        if count >= 50 and numbers * 2 < count:
            return ""
    if numbers < 3 or numbers * 5 < count * 4:
        return ""
    said = f" {of}" if of else ""
    if numbers == count:
        return f"text: all {count:,}{said} are numbers"
    named = ", ".join(quoted(mask(other), 24) for other, _ in others.most_common(4))
    return f"text: {numbers:,} of {count:,}{said} are numbers, others: {named}{', …' if len(others) > 4 else ''}"


FAMILIES = (
    PreviewHandler("texts", Group.SCALARS, lambda kind: kind.is_a(str), _text, text_line, text_block, 60),
    PreviewHandler("bytes", Group.SCALARS, lambda kind: kind.is_a(bytes, bytearray), _bytes, bytes_line, None, 60),
)
