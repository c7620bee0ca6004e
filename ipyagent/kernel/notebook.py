"""A notebook file as cells with lasting names. Every change is made in the file's own text: what is not
changed keeps every byte, and what comes out is valid, or it is refused. The only importer of nbformat."""

from __future__ import annotations

import codecs
import difflib
import hashlib
import itertools
import json
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from ipyagent.errors import ToolFailure
from ipyagent.kernel.cell_marks import HIDE, mark_of

# ---- Names for cells that last as long as a session: the cell's own id, and where it has none (formats before 4.5)
# or shares it with another cell, one that is derived and then follows the cell through every edit.


@dataclass(frozen=True)
class KnownIds:
    """`ids` of the cells of a file whose bytes have this SHA-256, with a print of each cell's kind and source."""

    digest: str
    ids: tuple[str, ...]
    prints: tuple[str, ...]


def print_of(cell: Mapping[str, Any]) -> str:
    """What tells a cell by its content."""
    source = cell.get("source")
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    return hashlib.sha256(f"{cell.get('cell_type')}\0{text}".encode("utf-8", "replace")).hexdigest()


def own_id(cell: Mapping[str, Any]) -> str:
    """The id that the file gives a cell, "" when it gives none."""
    ident = cell.get("id")
    return ident if isinstance(ident, str) else ""


def ids_of(cells: Sequence[Mapping[str, Any]], digest: str, known: KnownIds | None) -> KnownIds:
    """A name for every cell, each different. What was named before keeps its name: in the same bytes every
    cell, in others every cell whose content is where it was, or that alone changed between two such."""
    prints = tuple(map(print_of, cells))
    if known is not None and known.digest == digest and len(known.ids) == len(cells):
        return known
    kept = _kept(known, prints) if known is not None else {}
    times = Counter(own_id(cell) for cell in cells)
    taken = {own for own in times if own}
    ids: list[str] = []
    for number, (cell, print_) in enumerate(zip(cells, prints, strict=True)):
        own, before = own_id(cell), kept.get(number, "")
        if own:
            shared = before.rpartition("~")[0] == own and before not in ids
            name = before if shared else own if times[own] == 1 else _free(own, {*taken, *kept.values()})
        else:
            name = before if before and before not in taken else _derived(print_, taken)
        ids.append(name)
        taken.add(name)
    return KnownIds(digest, tuple(ids), prints)


def _free(own: str, taken: set[str]) -> str:
    """For a cell that shares its id: the id with a number; "~" stands in no id."""
    return next(made for number in itertools.count(1) if (made := f"{own}~{number}") not in taken)


def _derived(print_: str, taken: set[str]) -> str:
    """For a cell without id: eight digits of its content, and for the same content once more others."""
    more = (hashlib.sha256(f"{print_}{number}".encode()).hexdigest() for number in itertools.count(2))
    return next(made for digits in itertools.chain([print_], more) if (made := digits[:8]) not in taken)


def _kept(known: KnownIds, prints: Sequence[str]) -> dict[int, str]:
    """Old names by the new numbers of the cells."""
    kept: dict[int, str] = {}
    matcher = difflib.SequenceMatcher(None, known.prints, prints, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind == "equal" or (kind == "replace" and last - first == end - start == 1):
            kept.update(zip(range(start, end), known.ids[first:last], strict=True))
    old = Counter(known.prints)
    for number, print_ in enumerate(prints):  # moved: told by its content where that is like no other's
        if number not in kept and old[print_] == 1 and prints.count(print_) == 1:
            kept[number] = known.ids[known.prints.index(print_)]
    return kept


Kind: TypeAlias = Literal["code", "markdown", "raw"]
_NEAR = 3


@dataclass(frozen=True)
class Cell:
    """`ident` is what the cell is called by, here and in later edits; `number` counts from 0."""

    number: int
    ident: str
    kind: str
    source: str
    hidden: bool
    value: Mapping[str, Any]

    @property
    def outputs(self) -> list[Mapping[str, Any]]:
        found = self.value.get("outputs")
        return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


@dataclass(frozen=True)
class Notebook:
    """`data` is the file; names of cells are in `known`, to be handed in when the file is read again."""

    data: bytes
    layout: Layout
    known: KnownIds

    @classmethod
    def read(cls, data: bytes, known: KnownIds | None = None) -> Notebook:
        """Raises ToolFailure for what is no notebook of format 4."""
        try:
            layout = Layout.read(data.removeprefix(codecs.BOM_UTF8).decode("utf-8"))
        except UnicodeDecodeError as problem:
            why = f"{problem.reason} at byte {problem.start:,}"
            raise ToolFailure(f"it is not a notebook: not UTF-8 ({why}); save it as UTF-8") from None
        except (ValueError, RecursionError) as problem:
            older = " (it looks like format 3: `jupyter nbconvert --to notebook --nbformat 4` converts it)"
            then = older if b"worksheets" in data else "; repair it with python"
            raise ToolFailure(f"it is not a notebook of format 4: {problem}{then}") from None
        if layout.value.get("nbformat") != 4:
            raise ToolFailure(f"its format is {layout.value.get('nbformat')!r}; only format 4 is read and written")
        cells = [place.value for place in layout.places]
        return cls(data, layout, ids_of(cells, hashlib.sha256(data).hexdigest(), known))

    @classmethod
    def new(cls, cells: Sequence[Mapping[str, Any]] = (), metadata: Mapping[str, Any] | None = None) -> Notebook:
        """A notebook of format 4.5 as nbformat writes it; `cells` as `new_cell` gives them."""
        spec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
        metadata = metadata or {"kernelspec": spec, "language_info": {"name": "python"}}
        whole = {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        text = json.dumps(whole, ensure_ascii=False, indent=1, sort_keys=True)
        return cls.read((text + "\n").encode("utf-8", "replace"))

    def __repr__(self) -> str:
        return f"<Notebook of {len(self.cells)} cells>"

    # ------------------------------------------------------------------ what is in it

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        made = []
        for number, (place, ident) in enumerate(zip(self.layout.places, self.known.ids, strict=True)):
            metadata = place.value.get("metadata")
            tags = metadata.get("tags") if isinstance(metadata, dict) else None
            kind, source = str(place.value.get("cell_type", "?")), joined(place.value.get("source"))
            hidden = mark_of(source, tags) == HIDE
            made.append(Cell(number, ident, kind, source, hidden, place.value))
        return tuple(made)

    @property
    def minor(self) -> int:
        found = self.layout.value.get("nbformat_minor")
        return found if isinstance(found, int) else 0

    def find(self, ident: str) -> Cell:
        """The cell of that name. Raises ToolFailure that lists near ones."""
        for cell in self.cells:
            if cell.ident == ident:
                return cell
        shared = [cell for cell in self.cells if own_id(cell.value) == ident]
        if len(shared) == 1:
            return shared[0]
        if shared:
            listed = "; ".join(map(_line, shared[:8]))
            raise ToolFailure(f"{len(shared)} cells have the id {ident!r}; name one of them: {listed}")
        if not self.cells:
            raise ToolFailure(f"no cell {ident!r}: the notebook has no cells")
        if ident.isdigit() and int(ident) < len(self.cells):
            hint = f"; cells are named by id, not by number: cell {ident} is {_line(self.cells[int(ident)])}"
            raise ToolFailure(f"no cell with the id {ident!r}{hint}")
        starts = [cell.ident for cell in self.cells if ident and cell.ident.startswith(ident)]
        names = starts or difflib.get_close_matches(ident, [cell.ident for cell in self.cells], _NEAR, 0.5)
        near = [cell for cell in self.cells if cell.ident in names[:_NEAR]]
        listed = "; ".join(map(_line, near or self.cells[:_NEAR]))
        raise ToolFailure(f"no cell with the id {ident!r}; {'nearest' if near else 'there are'}: {listed}")

    def problem(self) -> str:
        """Why the file is no valid notebook, in one line; "" when it is."""
        from nbformat.validator import iter_validate

        try:  # unlike `validate`, it repairs nothing on the way
            whole = dict(self.layout.value)
            if self.minor >= 5:  # with an id where the format demands one that is missing
                whole["cells"] = [{"id": f"missing-{number}", **cell} for number, cell in enumerate(whole["cells"])]
            errors = iter_validate(whole, relax_add_props=True)  # type: ignore[no-untyped-call] # nbformat has no types
            problem = next(iter(errors), None)
        except (ValueError, KeyError, TypeError, AttributeError) as wrong:
            return f"{type(wrong).__name__}: {wrong}"[:300]
        if problem is None:
            return ""
        where = "/".join(map(str, getattr(problem, "path", ())))
        said = str(getattr(problem, "message", problem)).split("\n")[0][:300]
        return f"{where}: {said}" if where else said

    # ------------------------------------------------------------------ changes: each gives another notebook

    def inserted(self, at: int, kind: Kind, source: str, metadata: Mapping[str, Any] | None = None) -> Notebook:
        """A new cell that is then number `at`."""
        text = source.rstrip("\n")
        cell = new_cell(kind, text, lists=self.layout.lists, metadata=metadata)
        taken = {*self.known.ids, *(own_id(one.value) for one in self.cells)}
        while cell["id"] in taken:
            cell["id"] = _fresh()
        name = str(cell["id"])
        if self.minor < 5:
            del cell["id"]
        ids = (*self.known.ids[:at], name, *self.known.ids[at:])
        return self._made(self.layout.with_cell(at, self.layout.new_cell(cell)), ids)

    def replaced(self, number: int, source: str) -> Notebook:
        """Another source, in the form that the cell's source has; all else of the cell stays."""
        cell = self.cells[number]
        text = source.rstrip("\n") + cell.source[len(cell.source.rstrip("\n")) :]
        return self.with_values(number, {"source": form(text, isinstance(cell.value.get("source"), list))})

    def with_values(self, number: int, values: Mapping[str, Any]) -> Notebook:
        """Other values for keys that the cell has."""
        notebook = self
        for key, value in values.items():
            notebook = notebook._made(notebook.layout.with_value(number, key, value), self.known.ids)
        return notebook

    def moved(self, number: int, at: int) -> Notebook:
        """The cell is then number `at` of the others and it, its text as it was."""
        text, without = self.layout.cell_text(number), self.deleted(number)
        ids = list(without.known.ids)
        ids.insert(at, self.known.ids[number])
        return without._made(without.layout.with_cell(at, text), tuple(ids))

    def deleted(self, number: int) -> Notebook:
        """The notebook without the cell."""
        ids = (*self.known.ids[:number], *self.known.ids[number + 1 :])
        return self._made(self.layout.without_cell(number), ids)

    def completed(self) -> Notebook:
        """With ids where the format demands them and a cell has none: the names that they have here."""
        notebook = self
        if self.minor >= 5:
            for cell in self.cells:
                if not own_id(cell.value) and "id" not in cell.value and "metadata" in cell.value:
                    text = notebook.layout.with_member(cell.number, "id", cell.ident, before="metadata")
                    notebook = notebook._made(text, self.known.ids)
        return notebook

    def _made(self, text: str, ids: tuple[str, ...]) -> Notebook:
        mark = codecs.BOM_UTF8 if self.data.startswith(codecs.BOM_UTF8) else b""
        try:
            data = mark + text.encode("utf-8")
        except UnicodeEncodeError as problem:
            raise ToolFailure(f"the source holds {text[problem.start]!r}, which no file can hold") from None
        layout = Layout.read(text)
        prints = tuple(print_of(place.value) for place in layout.places)
        return Notebook(data, layout, KnownIds(hashlib.sha256(data).hexdigest(), ids, prints))


def new_cell(
    kind: Kind, source: str, *, lists: bool = True, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A cell with a fresh id, in the order in which nbformat writes its keys."""
    cell: dict[str, Any] = {"cell_type": kind, "id": _fresh(), "metadata": dict(metadata or {})}
    if kind == "code":
        cell = {**cell, "execution_count": None, "outputs": []}
    cell["source"] = form(source, lists)
    return dict(sorted(cell.items()))


def form(source: str, lists: bool) -> list[str] | str:
    """A source as a list of lines or as one string."""
    return source.splitlines(keepends=True) if lists else source


def joined(source: Any) -> str:
    """A source or an output's text, whichever of its two forms it has."""
    if isinstance(source, list):
        return "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""


def nodes(value: Mapping[str, Any]) -> Any:
    """The notebook as nbformat's own objects, sources and outputs joined."""
    import nbformat

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ids that are missing are looked after here
        return nbformat.reads(json.dumps(value), as_version=4)  # type: ignore[no-untyped-call] # as above


def split_output(output: Mapping[str, Any]) -> dict[str, Any]:
    """An output that a kernel gave, its texts as lists of lines, as files have them."""
    made: dict[str, Any] = {key: value for key, value in output.items() if key != "transient"}
    if isinstance(made.get("text"), str):
        made["text"] = made["text"].splitlines(keepends=True)
    if isinstance(made.get("data"), dict):
        made["data"] = {
            kind: value.splitlines(keepends=True)
            if isinstance(value, str) and not kind.startswith("application/")
            else value
            for kind, value in made["data"].items()
        }
    return made


def _fresh() -> str:
    return secrets.token_hex(4)


def _line(cell: Cell) -> str:
    words = "hidden by its author" if cell.hidden else " ".join(cell.source.split())[:50] or "empty"
    return f"{cell.ident} ({cell.kind}: {words})"


# ------------------------------------------------------------------ notebook layout
# A notebook's JSON with the place of every cell in its text, so that a change of one cell leaves every other
# character of the file as it was: indent, key order, escapes, numbers, line ends.


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
class CellSpan:
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
    places: tuple[CellSpan, ...]
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
        places: list[CellSpan] = []
        at = _skip(text, cells.start + 1)
        for _ in value["cells"]:
            inner, cell, end = _object(text, at)
            places.append(CellSpan(at, end, inner, cell))
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
