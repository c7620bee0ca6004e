"""What a table is like, as far as the session's own descriptions tell it: nothing is guessed from a cut line.

Two forms are read: the one line of a listing (`penguins  DataFrame 344 x 8: species str, …`), which tells names and
dtypes, and the block of one variable, which also tells ranges of numbers and examples of texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_DTYPE = (
    r"(?:[iuf]\d+|[UI]+nt\d+|Float\d+|bool(?:ean)?|str|obj|cat\(\d+\)|cat|dt64(?:\[[^\]]*\])?|td64(?:\[[^\]]*\])?"
    r"|period\[[^\]]*\])"
)
_MISSING = r"(?: \((?P<missing>~?[\d.,]+%? missing)?(?:(?:; )?text: [^)]*)?\))?"
_HEAD = re.compile(r"^(?P<name>[^\W\d]\w*)  DataFrame (?P<rows>\d+) x (?P<columns>\d+)(?P<rest>.*)$")
_COLUMN = re.compile(rf"(?P<column>.+?) (?P<dtype>{_DTYPE}){_MISSING}(?:, |$)")
_LINE = re.compile(
    rf"^  (?P<column>.+?): (?P<dtype>{_DTYPE})(?P<missing>, ~?[\d.,]+%? missing)?(?:, missing not counted)?"
    r"(?:, text: .*? are numbers(?:, others: .*?)?)?"
    r"(?:, ~?(?P<low>\S.*?) to ~?(?P<high>\S.*?)(?:, mean ~?(?P<mean>\S+))?|, e\.g\. (?P<examples>.*))?$"
)
_LONG = {"f": "float", "i": "int", "u": "uint", "obj": "object", "cat": "category"}
_YES_NO = {"0": "1", "1": "0", "yes": "no", "no": "yes", "true": "false", "false": "true", "y": "n", "n": "y"}


@dataclass(frozen=True, slots=True)
class Range:
    """Smallest value, largest value and mean of a numeric column."""

    low: float
    high: float
    mean: float


@dataclass(frozen=True, slots=True)
class Schema:
    """A table's columns with their dtypes as pandas names them.

    `deep`: whether ranges of numbers and examples of texts were told too. `examples` are values of text columns, never
    all of them for certain.
    """

    name: str
    rows: int
    dtypes: Mapping[str, str]
    deep: bool = False
    ranges: Mapping[str, Range] = field(default_factory=dict)
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    categories: Mapping[str, int] = field(default_factory=dict)


def dtype(word: str) -> str:
    """The pandas name of a dtype that a description shortens: f64 is float64, cat(3) is category."""
    base = word.split("(")[0]
    if base in _LONG:
        return _LONG[base]
    if found := re.fullmatch(r"([iuf])(\d+)", word):
        return _LONG[found[1]] + found[2]
    return word.replace("dt64", "datetime64").replace("td64", "timedelta64")


def line(text: str) -> Schema | None:
    """The schema in one line of a listing; None when the line is cut or tells no columns."""
    head = _HEAD.match(text.rstrip("\n"))
    if head is None or ": " not in head["rest"]:
        return None
    told = head["rest"].split(": ", 1)[1]
    found, at = [], 0
    while match := _COLUMN.match(told, at):
        found.append((match["column"], match["dtype"]))
        at = match.end()
    if at != len(told):
        return None
    return _schema(head, found)


def block(text: str) -> Schema | None:
    """The schema in the description of one variable; None when columns are left out or named unclearly."""
    lines = text.splitlines()
    head = _HEAD.match(lines[0]) if lines else None
    if head is None:
        return None
    columns = [match for match in map(_LINE.match, lines[1 : 1 + int(head["columns"])]) if match]
    made = _schema(head, [(match["column"], match["dtype"]) for match in columns])
    if made is None:
        return None
    ranges = {match["column"]: value for match in columns if (value := _range(match))}
    examples = {
        match["column"]: tuple(told)
        for match in columns
        if match["examples"] and (told := _literals(match["examples"])) and not _is_number(match["dtype"])
    }
    return Schema(made.name, made.rows, made.dtypes, True, ranges, examples, made.categories)


def _schema(head: re.Match[str], found: list[tuple[str, str]]) -> Schema | None:
    names = [name for name, _ in found]
    # A digit may be the number 0 or the text "0", an escape or a cut stands for something else.
    unclear = any(name.strip().isdigit() or re.search(r"[…⏎\\]|masked", name) for name in names)
    if unclear or len(set(names)) != len(names) or len(names) != int(head["columns"]):
        return None
    sizes = {name: int(size[1]) for name, word in found if (size := re.fullmatch(r"cat\((\d+)\)", word))}
    return Schema(head["name"], int(head["rows"]), {name: dtype(word) for name, word in found}, categories=sizes)


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"[iuf]\d+|[UI]+nt\d+|Float\d+", word))


def _range(match: re.Match[str]) -> Range | None:
    try:
        low, high = float(match["low"] or ""), float(match["high"] or "")
        return Range(low, high, float(match["mean"] or "nan")) if low == low else None
    except ValueError:
        return None


def _literals(text: str) -> list[str]:
    """The quoted texts and words of a list of examples; cut ones are left out."""
    found = re.findall(r"'((?:[^'\\]|\\.)*)'(?:, |$)|\b(True|False)\b", text)
    return [each for quoted, word in found if (each := quoted or word) and "…" not in each]


def categories(text: str) -> dict[str, dict[str, int]] | None:
    """Counts of each value of each column, in a printed dict of dicts; None when there is none."""
    if text.strip().removeprefix("Out:").strip() == "{}":
        return {}
    for start in (found.start() for found in re.finditer(r"\{(?=[\"'])", text)):
        end = text.find("}}", start)
        try:
            value = ast.literal_eval(text[start : end + 2]) if end != -1 else None
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, dict) and all(isinstance(each, dict) for each in value.values()):
            return {
                str(column): {str(key): int(count) for key, count in counts.items() if isinstance(count, int)}
                for column, counts in value.items()
            }
    return None


def opposite(values: tuple[str, ...]) -> tuple[str, ...]:
    """Yes/no examples with the answer that is not among them; other values as they are."""
    if len(values) == 1 and values[0].lower() in _YES_NO:
        other = _YES_NO[values[0].lower()]
        return (*values, other.capitalize() if values[0][0].isupper() else other)
    return values
