"""Names for cells that last as long as a session: the cell's own id, and where it has none (formats before
4.5) or shares it with another cell, one that is derived and then follows the cell through every edit."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
    number = 1
    while (made := f"{own}~{number}") in taken:
        number += 1
    return made


def _derived(print_: str, taken: set[str]) -> str:
    """For a cell without id: eight digits of its content, and for the same content once more others."""
    number, made = 2, print_[:8]
    while made in taken:
        made, number = hashlib.sha256(f"{print_}{number}".encode()).hexdigest()[:8], number + 1
    return made


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
