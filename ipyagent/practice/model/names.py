"""Names for results and words for axes, made from column names: readable, and never a name of the user's."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Collection, Sequence

_UNITS = {
    "mm": "mm", "cm": "cm", "m": "m", "km": "km", "g": "g", "kg": "kg", "mg": "mg", "lb": "lb", "s": "s", "sec": "s",
    "ms": "ms", "usd": "USD", "eur": "EUR", "pct": "%", "percent": "%", "deg": "°", "hz": "Hz", "c": "°C", "f": "°F",
}  # fmt: skip


def fresh(name: str, taken: Collection[str]) -> str:
    """The name, or the first of `name_2`, `name_3`, … that is not taken."""
    number, found = 2, name
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def short(column: str) -> str:
    """A column as a part of a variable's name: lower case, without its unit; empty when no letter is left."""
    parts = re.sub(r"\W+", "_", column, flags=re.ASCII).strip("_").lower().split("_")
    return "_".join(parts[:-1] if len(parts) > 1 and parts[-1] in _UNITS else parts)


def result(what: str, keys: Sequence[str] = ()) -> str:
    """A name such as `body_mass_by_species`; what is left out does not fit."""
    by = "_and_".join(filter(None, map(short, keys[:2])))
    name = "_by_".join(filter(None, [short(what), by]))
    name = name if len(name) <= 40 else by or short(what)[:40]
    name = name.strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"result_{name}".strip("_")


def label(column: str) -> str:
    """A column as the words on an axis, with its unit in brackets: `body_mass_g` is Body mass (g)."""
    words = column.strip().replace("$", r"\$").split("_")
    unit = _UNITS.get(words[-1].lower(), "") if len(words) > 1 else ""
    text = " ".join(words[:-1] if unit else words).strip() or column.strip()
    return text[:1].upper() + text[1:] + (f" ({unit})" if unit else "")


def plain(column: str) -> str:
    """A column as words inside a title: no unit, no capital of its own making."""
    words = column.strip().replace("$", r"\$").split("_")
    return " ".join(words[:-1] if len(words) > 1 and words[-1].lower() in _UNITS else words)


def quoted(text: str) -> str:
    """The text as a Python string in double quotes."""
    return json.dumps(text, ensure_ascii=False)
