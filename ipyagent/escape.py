"""Text that came from outside (a model, a tool, a file, a name) reaches a screen only through here.

Two doors: `plain` for reading (escape sequences and control characters leave, text that could turn the line
around is marked), `exact` for what a person approves (nothing leaves: every character that cannot be seen is
spelled out). What programs print has one more, `kernel.output.output`.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby

# Payloads are dropped only when their end is there: an unfinished sequence must not hide what follows.
SEQUENCE = re.compile(
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x90\x98\x9c-\x9f]{0,4096}(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x90\x98\x9c-\x9f]{0,4096}(?:\x1b\\|\x9c)"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
"""A terminal's escape sequence, whole."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_TURNING = re.compile(r"[\u202a-\u202e\u2066-\u2069]")  # bidirectional embeddings, overrides, isolates
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u1680"
    r"\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ud800-\udfff\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff0-\ufffc\U000110bd\U000110cd\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Controls, format characters, every blank but the usual one, variation selectors, letters and signs without a
shape (fillers, the empty Braille pattern, the null note head), and lone surrogates."""


TAB = 4
"""Columns of a tab in a question."""

WIDE = 64
"""Columns of blanks in a row above which `exact` counts them."""

REPEATED = 6
"""Rows without a word, or equal ones, above which `exact` counts them."""

_BLANKS = re.compile(r"[ \t]{9,}")


def plain(text: str) -> str:
    """The text for reading: newlines and tabs stay, other control characters and terminal escapes
    go, bidirectional overrides become `⟨U+202E⟩`, lone surrogates U+FFFD."""
    text = SEQUENCE.sub("", text.replace("\r\n", "\n"))
    text = _CONTROL.sub(lambda found: "\n" if found[0] in "\r\x0b\x0c\x85\u2028\u2029" else "", text)
    return _SURROGATE.sub("\ufffd", _TURNING.sub(_spelled, text))


def exact(text: str) -> str:
    """Every character of `text`, the unseen ones spelled out (`␛`, `⟨U+200B⟩`), and in words what would push
    the rest out of sight (`⟨600 spaces⟩`, `⟨400 empty lines⟩`): for code and diffs that a person is about to
    approve."""
    spelled = _UNSEEN.sub(_spelled, text.replace("\r\n", "\n"))
    return "\n".join(_counted_rows(_BLANKS.sub(_counted_blanks, spelled).split("\n")))


def exact_line(text: str) -> str:
    """`exact` on one line: tabs and the ends of lines are spelled out too."""
    return exact("".join(_spelled_char(char) if char in "\t\n\r" else char for char in text))


def line(text: str, width: int = 0) -> str:
    """`plain` on one line, white space folded, cut to `width` characters (0: not cut) with `…`."""
    flat = " ".join(plain(text).split())
    return cut(flat, width) if width else flat


def cut(text: str, width: int) -> str:
    """The text in at most `width` characters; what is cut off is shown as `…`."""
    return text if len(text) <= width else text[: width - 1] + "…"


def counted(number: int, one: str, more: str = "") -> str:
    """`1 row`, `2,000 rows`; `more`: the plural where it is not `one` and an s."""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def escape(text: str) -> str:
    """`plain`, ready to stand in HTML text or in a quoted attribute."""
    return html.escape(plain(text))


def _counted_blanks(match: re.Match[str]) -> str:
    tabs = match[0].count("\t")
    spaces = len(match[0]) - tabs
    if spaces + TAB * tabs <= WIDE:
        return match[0]
    parts = [f"{count} {word}{'s' * (count != 1)}" for count, word in ((spaces, "space"), (tabs, "tab")) if count]
    return f"⟨{' and '.join(parts)}⟩"


def _counted_rows(rows: list[str]) -> Iterator[str]:
    """Rows that say nothing, or the same again and again, as one that tells how many they are."""
    for row, group in groupby(rows, key=lambda row: row if row.strip("+- \t") else row.strip()):
        same = list(group)
        if len(same) <= REPEATED:
            yield from same
        elif not row:
            yield f"⟨{len(same):,} empty lines⟩"
        else:
            yield from (row, f"⟨the same line {len(same) - 1:,} times more⟩")


def _spelled(match: re.Match[str]) -> str:
    return _spelled_char(match[0])


def _spelled_char(char: str) -> str:
    if ord(char) < 0x20:
        return chr(0x2400 + ord(char))  # Control Pictures
    if char == "\x7f":
        return "␡"
    if unicodedata.category(char) == "Zs":
        return f"⟨U+{ord(char):04X}⟩ "
    return f"⟨U+{ord(char):04X}⟩"
