"""A request put in terms of one DataFrame: which columns are measured, grouped and filtered.

Words in a grouping zone ("by …", "按 … ") are groups, other numeric columns are measures, values are filters; a
later amendment replaces or adds to what came before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from .columns import Mention, find, find_flags, find_values
from .frames import Frame
from .intents import GROUPING, Ask
from .names import fresh, quoted, short
from .phrases import STAT_NAMES, english, stat

_STOP = re.compile(
    r"\b(?:what|show|compute|calculate|find|give|get|averages?|means?|medians?|sums?|totals?|max\w*|min\w*|for"
    r"|where|with|of|is"
    r"|are|from|only|among|there|do)\b|[;。?]|计算|统计|求|的|平均|均值|中位|总|最|画|分组|有|多少|看",
    re.I,
)
_NUMBER = r"(-?\d[\d,]*\.?\d*)"
_OPERATORS = (
    (">=", r">=|≥|at least|no less than|不少于|至少|不低于"),
    ("<=", r"<=|≤|at most|no more than|至多|不超过|不高于"),
    (
        ">",
        r">|over|above|(?:more|greater|larger|higher|bigger|longer|older|heavier|later) than|exceed(?:s|ing)?"
        r"|大于|超过|高于|多于",
    ),
    ("<", r"<|under|below|(?:less|lower|smaller|fewer|shorter|younger|lighter|earlier) than|小于|低于|少于|不到|不足"),
    ("==", r"==?|equals?(?: to)?|等于|为|是"),
)
_ADJECTIVES = {
    "older": "age", "younger": "age", "heavier": "weight", "lighter": "weight", "longer": "length", "shorter": "length",
    "cheaper": "price", "taller": "height",
}  # fmt: skip
_COUNTS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "five": 5,
    "ten": 10,
    "一": 1,
    "二": 2,
    "两": 2,
    "三": 3,
    "四": 4,
    "五": 5,
    "十": 10,
}


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition: the column, an operator, and the value as Python source."""

    column: str
    operator: str
    value: str

    def code(self, frame: str) -> str:
        """The condition in pandas."""
        column = f"{frame}[{quoted(self.column)}]"
        return f"{column}.isin({self.value})" if self.operator == "in" else f"{column} {self.operator} {self.value}"

    def __str__(self) -> str:
        return f"{self.column} {self.operator.replace('==', '=')} {self.value}".replace('"', "")


@dataclass(frozen=True, slots=True)
class Query:
    """What to compute on a frame. `mentions`: columns in the order of the request; `first`: its first words."""

    frame: Frame
    kind: str
    words: str
    stat: str
    mentions: tuple[str, ...]
    measures: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    taken: frozenset[str] = frozenset()

    @property
    def part(self) -> str:
        """A name for the filtered rows, such as `male_penguins`, that the user has not given to anything."""
        values = [each.value.strip('"') for each in self.filters if each.operator == "==" and '"' in each.value]
        words = [short(value) for value in values if value.isascii()][:2]
        fits = len(values) == len(self.filters) and all(re.fullmatch(r"[a-z]\w{2,15}", word) for word in words)
        name = "_".join([*words, self.frame.name]) if words and fits else f"{self.frame.name}_subset"
        return fresh(name, self.taken)

    @property
    def condition(self) -> str:
        """All conditions as one pandas expression; empty without any."""
        conditions = [each.code(self.frame.name) for each in self.filters]
        return conditions[0] if len(conditions) == 1 else " & ".join(f"({each})" for each in conditions)

    @property
    def source(self) -> str:
        """The name to compute from: that of the filtered rows when there are conditions."""
        return self.part if self.filters else self.frame.name

    @property
    def start(self) -> str:
        """The line that makes the subset, or nothing."""
        return f"{self.part} = {self.frame.name}[{self.condition}]\n" if self.filters else ""

    @property
    def where(self) -> str:
        """The filters in words, in brackets, or nothing."""
        return f" ({'; '.join(map(str, self.filters))})" if self.filters else ""

    def many(self, otherwise: int = 5) -> int:
        """How many rows "top 5" or "前三个" asks for."""
        found = re.search(r"(?:top|first|前|bottom)?\s*(\d+)", self.words)
        if found and 0 < int(found[1]) <= 100:
            return int(found[1])
        return next(
            (n for word, n in _COUNTS.items() if re.search(rf"\b{word}\b" if word.isascii() else word, self.words)),
            otherwise,
        )


def listed(columns: Sequence[str]) -> str:
    """The columns as a Python list."""
    return f"[{', '.join(map(quoted, columns))}]"


def resolve(ask: Ask, frame: Frame, taken: Collection[str] = ()) -> Query:
    """The query that an ask means on a frame; `taken` are names of the user's."""
    words = english(ask.text, frame.own)
    if frame.name.lower() not in {column.lower() for column in frame.columns}:
        words = re.sub(rf"(?<!\w){re.escape(frame.name)}(?!\w)", " ", words)
    query = _read(words, frame, ask.kind)
    for how, said in ask.amendments:
        query = _amended(query, how, english(said, frame.own))
    return replace(query, taken=frozenset(taken))


def _zones(words: str, mentions: Sequence[Mention]) -> list[tuple[int, int]]:
    """Spans after a grouping word, up to a word that ends them and is no part of a column's name."""
    spans, found = [(each.start, each.end) for each in mentions], []
    for marker in GROUPING.finditer(words):
        stops = (stop.start() for stop in _STOP.finditer(words, marker.end()))
        end = next((at for at in stops if not any(a <= at < b for a, b in spans)), len(words))
        found.append((marker.end(), end))
    return found


def _read(words: str, frame: Frame, kind: str) -> Query:
    filters, used = _comparisons(words, frame)
    mentions = [each for each in find(words, frame.columns) if not any(a <= each.start < b for a, b in used)]
    zones = [] if kind in ("fit", "top") else _zones(words, mentions)
    zoned = [each for each in mentions if any(a <= each.start < b for a, b in zones)]
    values = find_values(words, frame.values, mentions)
    flags = [] if kind == "compare" else find_flags(words, frame.values, bare=kind == "how_many")
    flags = [each for each in flags if each.column not in {other.column for other in zoned}]
    conditions = [] if kind in ("fit", "correlate") else [*values, *flags]
    filters = (*filters, *_conditions([each for each in conditions if not _inside(each, used)], frame))
    filtered = {each.column for each in flags}
    free = [each.column for each in mentions if each not in zoned and each.column not in filtered]
    groups = [each.column for each in zoned]
    if not groups and kind in ("group", "values", "compare", "profile"):
        groups = [column for column in free if not frame.numeric(column)] or (free[:1] if kind == "values" else [])
    if kind == "values" and not groups:
        groups = free[:1]
    measures = [column for column in free if frame.numeric(column) and column not in groups]
    order = [each.column for each in mentions if each.column not in filtered]
    return Query(
        frame, kind, words, stat(_unnamed(words, mentions)), tuple(order), tuple(measures), tuple(groups), filters
    )


def _unnamed(words: str, mentions: Sequence[Mention]) -> str:
    """The words without full column names: a column "Total" does not ask for a sum."""
    for each in sorted(mentions, key=lambda m: -m.start):
        if each.score >= 9:
            words = words[: each.start] + " " + words[each.end :]
    return words


def _inside(mention: Mention, spans: Sequence[tuple[int, int]]) -> bool:
    return any(a <= mention.start < b for a, b in spans)


def _conditions(mentions: Sequence[Mention], frame: Frame) -> list[Filter]:
    by_column: dict[str, list[str]] = {}
    for each in mentions:
        if each.value is not None and each.value not in by_column.setdefault(each.column, []):
            by_column[each.column].append(each.value)
    made = []
    for column, values in by_column.items():
        dtype = frame.dtypes[column]
        source = [value if frame.numeric(column) or dtype.startswith("bool") else quoted(value) for value in values]
        made.append(
            Filter(column, "==", source[0]) if len(source) == 1 else Filter(column, "in", f"[{', '.join(source)}]")
        )
    return made


def _comparisons(words: str, frame: Frame) -> tuple[tuple[Filter, ...], list[tuple[int, int]]]:
    """Conditions on numbers ("body mass over 4000", "older than 30", "8 cylinders") and the spans they take."""
    made: list[Filter] = []
    spans: list[tuple[int, int]] = []
    numeric = [column for column in frame.columns if frame.numeric(column)]
    for match in re.finditer(rf"\b({'|'.join(_ADJECTIVES)}) than {_NUMBER}", words, re.I):
        column = next((each.column for each in find(_ADJECTIVES[match[1].lower()], numeric)), None)
        if column:
            operator = "<" if match[1].lower() in ("younger", "lighter", "shorter", "cheaper") else ">"
            made.append(Filter(column, operator, match[2].replace(",", "")))
            spans.append(match.span())
    for match in re.finditer(r"\b(?:in|for|during|of|year)\s+((?:19|20)\d\d)\b|((?:19|20)\d\d)\s*年", words, re.I):
        column = next((each for each in numeric if each.strip().lower() == "year"), None)
        if column:
            made.append(Filter(column, "==", match[1] or match[2]))
            spans.append(match.span())
    for each in find(words, numeric):
        if _inside(each, spans):
            continue
        rest = words[each.end :]
        for operator, pattern in _OPERATORS:
            found = re.match(rf"\s*(?:is|are|was|that|which|values?|of)?\s*(?:{pattern})\s*{_NUMBER}", rest, re.I)
            if found:
                made.append(Filter(each.column, operator, found[1].replace(",", "").rstrip(".")))
                spans.append((each.start, each.end + found.end()))
                break
        else:
            before = re.search(rf"(?<![\w.]){_NUMBER}\s*$", words[: each.start])
            after = re.match(rf"\s*{_NUMBER}(?![\w.])", rest)
            number = (after or before) if not re.search(r"top|first|largest|前|bins?", words, re.I) else None
            if number and number[1] in frame.values.get(each.column, ()):
                made.append(Filter(each.column, "==", number[1]))
                spans.append(
                    (
                        min(each.start, number.start() if number is before else each.start),
                        each.end + (number.end() if number is after else 0),
                    )
                )
    return tuple(made), spans


def _amended(query: Query, how: str, said: str) -> Query:
    frame = query.frame
    if how == "chart":
        return replace(query, words=f"{query.words} ; {said}")
    new = _read(said, frame, "how_many" if how == "only" else "group")
    named = tuple(new.mentions)
    kept = tuple(old for old in query.filters if old.column not in {each.column for each in new.filters})
    query = replace(query, filters=(*kept, *new.filters))
    if how in ("by", "also") and named:
        groups = (*query.groups, *named) if how == "also" else named
        query = replace(
            query, groups=tuple(dict.fromkeys(groups)), measures=tuple(m for m in query.measures if m not in named)
        )
    elif how == "about" and named:
        numbers = tuple(name for name in named if frame.numeric(name) and not (frame.few(name) and query.groups))
        others = tuple(name for name in named if name not in numbers)
        query = replace(query, measures=numbers or query.measures, groups=others or query.groups)
    if new.stat in STAT_NAMES and new.stat != "count":
        query = replace(query, stat=new.stat)
    changed = {*query.measures, *query.groups}
    order = [*query.measures, *query.groups] if named and not changed <= set(query.mentions) else query.mentions
    return replace(query, mentions=tuple(order))
