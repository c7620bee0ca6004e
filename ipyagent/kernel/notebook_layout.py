"""A notebook's JSON with the place of every cell in its text, so that a change of one cell leaves every
other character of the file as it was: indent, key order, escapes, numbers, line ends."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_LARGE_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[01])[0-9a-fA-F]{4}")
KEYS = ("attachments", "cell_type", "execution_count", "id", "metadata", "outputs", "source")
"""Of a cell, in the order that nbformat writes them."""


@dataclass(frozen=True)
class Member:
    """`"key": value` in the text: the key begins at `at`, the value stands from `start` to `end`; `gap` is the
    white space before the key."""

    at: int
    start: int
    end: int
    gap: str


@dataclass(frozen=True)
class Place:
    """One cell: its object stands from `start` to `end`; `value` is it as Python values."""

    start: int
    end: int
    members: Mapping[str, Member]
    value: Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """`text` is the whole file; the list of cells stands between `opening` and `closing`, the places of its
    brackets; `value` is the notebook as Python values."""

    text: str
    value: Mapping[str, Any]
    places: tuple[Place, ...]
    opening: int
    closing: int
    _members: Mapping[str, Member]

    @classmethod
    def read(cls, text: str) -> Layout:
        """Raises ValueError for what is no JSON object with a list of cells, each an object."""
        start = _skip(text, 0)
        members, value, end = _object(text, start)
        if _skip(text, end) != len(text):
            raise ValueError(f"there is more after the end of the notebook, at character {end:,}")
        cells = members.get("cells")
        if cells is None or not isinstance(value["cells"], list):
            raise ValueError("there is no list of cells in it")
        places: list[Place] = []
        at = _skip(text, cells.start + 1)
        for _ in value["cells"]:
            inner, cell, end = _object(text, at)
            places.append(Place(at, end, inner, cell))
            at = _skip(text, end)
            if text[at] == ",":
                at = _skip(text, at + 1)
        return cls(text, value, tuple(places), cells.start, cells.end - 1, members)

    # ------------------------------------------------------------------ how it is written

    @cached_property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    @cached_property
    def ascii(self) -> bool:
        """Whether characters beyond ASCII are written as escapes."""
        return self.text.isascii() and _LARGE_ESCAPE.search(self.text) is not None

    @cached_property
    def indent(self) -> str:
        """What one level is indented by; "" when the cells stand in one line."""
        for place in self.places:
            for member in place.members.values():
                outer, inner = _column(self._before(place.start)), _column(member.gap)
                if "\n" not in member.gap:
                    return ""
                if len(inner) > len(outer) and inner.startswith(outer):
                    return inner[len(outer) :]
        gap = next((member.gap for member in self._members.values()), "")
        return _column(gap) if "\n" in gap else ""

    @cached_property
    def _separators(self) -> tuple[str, str]:
        colon = next(
            (self.text[member.at : member.start].rpartition('"')[2] for member in self._members.values()), ": "
        )
        if self.indent:
            return ",", colon
        gaps = [member.gap for place in self.places for member in list(place.members.values())[1:]]
        gaps += [member.gap for member in list(self._members.values())[1:]]
        return "," + (gaps[0] if gaps else " "), colon

    @cached_property
    def lists(self) -> bool:
        """Whether a source is written as a list of lines."""
        forms = [type(place.value.get("source")) for place in self.places]
        return forms.count(list) >= forms.count(str)

    def keys(self, kind: str) -> tuple[str, ...]:
        """The order of the keys in a cell of this kind."""
        alike = [place for place in self.places if place.value.get("cell_type") == kind] or list(self.places)
        order = [key for key in (alike[0].members if alike else ()) if key in KEYS]
        if list(order) == sorted(order):
            return KEYS
        if "id" not in order and "cell_type" in order:
            order.insert(order.index("cell_type") + 1, "id")
        return (*order, *(key for key in KEYS if key not in order))

    def dumps(self, value: Any, column: str) -> str:
        """`value` as this file writes it, for a place that is indented by `column`."""
        if not self.indent:
            return json.dumps(value, ensure_ascii=self.ascii, separators=self._separators)
        text = json.dumps(value, ensure_ascii=self.ascii, indent=self.indent, separators=self._separators)
        return text.replace("\n", self.newline + column)

    def _before(self, at: int) -> str:
        """The white space before a place."""
        head = self.text[:at]
        return head[len(head.rstrip(" \t\r\n")) :]

    # ------------------------------------------------------------------ changes: each gives the new text

    def with_value(self, number: int, key: str, value: Any) -> str:
        """One value of a cell is another one; a list stays in one line where it stood in one."""
        member = self.places[number].members[key]
        old = self.text[member.start : member.end]
        if self.indent and isinstance(value, list) and old.strip("[] \t") and "\n" not in old and old[0] == "[":
            made = json.dumps(value, ensure_ascii=self.ascii)
        else:
            made = self.dumps(value, _column(member.gap))
        return self.text[: member.start] + made + self.text[member.end :]

    def with_member(self, number: int, key: str, value: Any, before: str) -> str:
        """A cell gets one key more, in front of another."""
        member = self.places[number].members[before]
        _, colon = self._separators
        made = json.dumps(key) + colon + json.dumps(value, ensure_ascii=self.ascii) + ","
        gap = member.gap if self.indent else self._separators[0][1:]
        return self.text[: member.at] + made + gap + self.text[member.at :]

    def with_cell(self, at: int, cell: str) -> str:
        """A cell more, as text: it is then number `at`."""
        places = self.places
        if not places:
            outer = _column(self._members["cells"].gap)
            inner = f"{self.newline}{outer}{self.indent}" if self.indent else ""
            tail = f"{self.newline}{outer}" if self.indent else ""
            return self.text[: self.opening + 1] + inner + cell + tail + self.text[self.closing :]
        between = self._separators[0][1:]
        if self.indent or len(places) > 1:
            between = self._before(places[min(1, len(places) - 1)].start)
        if at < len(places):
            return self.text[: places[at].start] + cell + "," + between + self.text[places[at].start :]
        return self.text[: places[-1].end] + "," + between + cell + self.text[places[-1].end :]

    def without_cell(self, number: int) -> str:
        """One cell less."""
        places = self.places
        if len(places) == 1:
            return self.text[: self.opening + 1] + self.text[self.closing :]
        if number + 1 < len(places):
            return self.text[: places[number].start] + self.text[places[number + 1].start :]
        return self.text[: places[number - 1].end] + self.text[places[number].end :]

    def cell_text(self, number: int) -> str:
        """A cell as it stands in the file."""
        return self.text[self.places[number].start : self.places[number].end]

    def new_cell(self, cell: Mapping[str, Any]) -> str:
        """A cell's text in this file's style."""
        column = _column(self._before(self.places[0].start)) if self.places else ""
        if not self.places and self.indent:
            column = _column(self._members["cells"].gap) + self.indent
        ordered = {key: cell[key] for key in self.keys(str(cell["cell_type"])) if key in cell}
        return self.dumps(ordered, column)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _column(gap: str) -> str:
    return gap.rpartition("\n")[2] if "\n" in gap else ""


def _object(text: str, at: int) -> tuple[dict[str, Member], dict[str, Any], int]:
    """The members of the JSON object that begins at `at`, its value, and where it ends. Of a key that comes
    twice the last one counts, as in every reader. Raises ValueError."""
    if text[at : at + 1] != "{":
        raise ValueError(f"a JSON object was expected at character {at:,}")
    members: dict[str, Member] = {}
    value: dict[str, Any] = {}
    before = at + 1
    at = _skip(text, before)
    while text[at : at + 1] != "}":
        key, end = _DECODER.raw_decode(text, at)
        colon = _skip(text, end)
        if not isinstance(key, str) or text[colon : colon + 1] != ":":
            raise ValueError(f"a key and a colon were expected at character {at:,}")
        start = _skip(text, colon + 1)
        value[key], end = _DECODER.raw_decode(text, start)
        members[key] = Member(at, start, end, text[before:at])
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            before = at + 1
            at = _skip(text, before)
        elif text[at : at + 1] != "}":
            raise ValueError(f"a comma or the end of an object was expected at character {at:,}")
    return members, value, at + 1
