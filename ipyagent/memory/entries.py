"""Two texts that grew from one are merged by entry: no entry that either side wrote is lost.

An entry is a list item with the lines that go on with it, a heading, a fenced block or a paragraph. An entry
that one side removed and the other left alone goes; one that both changed stays in both wordings.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from typing import Any

from ipyagent.headers import read_headed, write_headed

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_NEW = -9
"""The place of an entry that theirs has not."""
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")


def merged(base: str | None, theirs: str, mine: str) -> str:
    """`theirs` with the changes that lead from `base` to `mine`. Without a base only additions count: what
    either has, the result has. Headers are merged key by key; where both changed one, mine counts."""
    their, my = read_headed(theirs.encode()), read_headed(mine.encode())
    old = read_headed(base.encode()) if base is not None else None
    body = _merged_bodies(old.body if old is not None else None, their.body, my.body)
    if not their.fields and not my.fields:
        return body
    fields = _merged_fields(old.fields if old is not None else {}, their.fields, my.fields)
    for side, text in ((their, theirs), (my, mine)):  # a header that stays is not rewritten
        if fields == side.fields and list(fields) == list(side.fields) and not side.problems:
            return text[: len(text) - len(side.body)] + body
    return write_headed(fields, body)


def entries(text: str) -> list[str]:
    """The entries in their order, each with the empty lines after it; joined they are the text."""
    found: list[list[str]] = []
    fence = ""
    for line in _LINE.findall(text):
        before = found[-1][-1] if found else ""
        opened = _FENCE.match(line)
        if fence:
            found[-1].append(line)
            if opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        starts = (
            not found
            or bool(opened)
            or bool(_ITEM.match(line))
            or bool(_HEADING.match(line))
            or bool(_HEADING.match(before))
            or (not before.strip() and bool(line.strip()) and not line.startswith((" ", "\t")))
        )
        if starts and line.strip():
            found.append([line])
        elif found:
            found[-1].append(line)
        else:
            found.append([line])
        if opened:
            fence = opened[1]
    return ["".join(lines) for lines in found]


def _merged_bodies(base: str | None, theirs: str, mine: str) -> str:
    their, my = entries(theirs), entries(mine)
    there, now = Counter(map(str.strip, their)), Counter(map(str.strip, my))
    before = Counter(map(str.strip, entries(base))) if base is not None else there
    gone = before - now if base is not None else Counter[str]()
    added = now - before
    if base is not None:
        added -= there - before  # both added the same
    kept: list[tuple[int, str]] = []
    for at in reversed(range(len(their))):  # of equal ones the last go first
        entry = their[at]
        if gone[entry.strip()] > 0:
            gone[entry.strip()] -= 1
        else:
            kept.append((at, entry))
    kept.reverse()
    places: dict[str, list[int]] = {}
    for at, (_, entry) in enumerate(kept):
        places.setdefault(entry.strip(), []).append(at)
    after: dict[int, list[str]] = {}
    at = -1
    for entry in my:  # what is new goes behind the entry that it stands behind in mine
        key = entry.strip()
        if added[key] > 0:
            added[key] -= 1
            after.setdefault(at, []).append(entry)
        else:
            spots = places.get(key, [])
            at = next(iter(spots[bisect_right(spots, at) :]), at)
    result = [(_NEW, entry) for entry in after.get(-1, [])]
    for at, placed in enumerate(kept):
        result += [placed, *((_NEW, entry) for entry in after.get(at, []))]
    return _joined(result)


def _joined(parts: list[tuple[int, str]]) -> str:
    """The text of entries that came from two places, each with where it stood in theirs. Those that were
    neighbours there stay as they are; of others each ends its line, and paragraphs and headings keep their
    distance."""
    text = ""
    for (before, last), (at, part) in pairwise([(_NEW, ""), *parts]):
        if text and at != before + 1:
            text += "" if text.endswith("\n") else "\n"
            block = not _ITEM.match(part) and not _HEADING.match(last) and bool(part.strip())
            text += "\n" if block and text.strip() and not text.endswith("\n\n") else ""
        text += part
    return text


def _merged_fields(base: dict[str, Any], theirs: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    fields = {key: value for key, value in theirs.items() if key in mine or key not in base or base[key] != value}
    for key, value in mine.items():
        if key not in base or base[key] != value:
            fields[key] = value
        elif key in theirs:
            fields[key] = theirs[key]
    return fields
