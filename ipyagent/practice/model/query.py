"""A request put in terms of one DataFrame: which columns are measured, grouped and filtered.

Words in a grouping zone ("by …", "按 … ") are groups, other numeric columns are measures, values are filters; a
later amendment replaces or adds to what came before it. What is a condition by its words but was read as none is
kept in `loose`: whoever answers names it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from . import dates
from .columns import Mention, find
from .comparing import comparisons
from .conditions import Condition, Filter, flags, gaps, values
from .frames import Frame
from .having import Having, by_rows, by_stat
from .intents import GROUPING, Ask
from .names import fresh, quoted, short
from .overlooked import loose
from .phrases import STAT_NAMES, english, stat

_STOP = re.compile(
    r"\b(?:what|show|compute|calculate|find|give|get|averages?|means?|medians?|sums?|totals?|max\w*|min\w*|for"
    r"|where|with|of|is"
    r"|are|from|only|among|there|do|excluding|except|excludes?|other than|without|not|but|in|since|after"
    r"|before)\b|除|[;。?]|计算|统计|求|的|平均|均值|中位|总|最|画|分组|有|多少|看",
    re.I,
)
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
_OR = re.compile(r"\bor\b|或者?", re.I)


@dataclass(frozen=True, slots=True)
class Query:
    """What to compute on a frame. `mentions`: columns in the order of the request; `words`: its first words.

    `rest`: the words without those of the conditions. `units`: groups by parts of dates. `either`: one of the
    conditions is enough. `having`: a condition on groups. `loose`: words that would be conditions and are not read.
    `base`: how many of the filters, from the first, say of which rows a share is asked.
    """

    frame: Frame
    kind: str
    words: str
    stat: str
    mentions: tuple[str, ...]
    measures: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    taken: frozenset[str] = frozenset()
    rest: str = ""
    units: tuple[dates.Unit, ...] = ()
    either: bool = False
    having: Having | None = None
    loose: tuple[str, ...] = ()
    base: int = 0

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
        joined = " | " if self.either else " & "
        return conditions[0] if len(conditions) == 1 else joined.join(f"({each})" for each in conditions)

    @property
    def source(self) -> str:
        """The name to compute from: that of the filtered rows when there are conditions."""
        return self.part if self.filters else self.frame.name

    @property
    def start(self) -> str:
        """The line that makes the subset, or nothing."""
        return f"{self.part} = {self.frame.name}[{self.condition}]\n" if self.filters else ""

    @property
    def told(self) -> str:
        """The conditions in words."""
        return (" or " if self.either else "; ").join(map(str, self.filters))

    @property
    def where(self) -> str:
        """The filters in words, in brackets, or nothing."""
        return f" ({self.told})" if self.filters else ""

    def many(self, otherwise: int = 5) -> int:
        """How many rows "top 5" or "前三个" asks for."""
        found = re.search(r"(?:top|first|前|bottom)\s*(\d+)", self.rest) or re.search(r"(\d+)", self.rest)
        if found and 0 < int(found[1]) <= 100:
            return int(found[1])
        return next(
            (n for word, n in _COUNTS.items() if re.search(rf"\b{word}\b" if word.isascii() else word, self.rest)),
            otherwise,
        )


def listed(columns: Sequence[str]) -> str:
    """The columns as a Python list."""
    return f"[{', '.join(map(quoted, columns))}]"


def resolve(ask: Ask, frame: Frame, taken: Collection[str] = ()) -> Query:
    """The query that an ask means on a frame; `taken` are names of the user's."""
    query = _read(english(ask.text, frame.own), frame, ask.kind)
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


def _without(words: str, spans: Sequence[tuple[int, int]]) -> str:
    """The words with blanks in place of these spans."""
    for start, end in spans:
        words = words[:start] + " " * (end - start) + words[end:]
    return words


def _read(words: str, frame: Frame, kind: str) -> Query:
    shape = frame.shape
    having = by_rows(words, frame.name, frame.columns) if kind not in ("fit", "correlate", "drop", "fill") else None
    if frame.name.lower() not in {column.lower() for column in frame.columns}:
        words = _blanked(words, frame.name)
    exact = [each for each in find(words, frame.columns) if each.score >= 20 and re.search(r"\d", each.column)]
    spans = [having.span] if having else []
    made = dates.conditions(words, shape, [*spans, *((each.start, each.end) for each in exact)])
    spans += [(each.start, each.end) for each in made]

    def free(at: int) -> bool:
        return not any(a <= at < b for a, b in spans)

    made += comparisons(words, shape, free)
    spans += [(each.start, each.end) for each in made]
    mentions = [each for each in find(_masked(words, spans), frame.columns) if free(each.start)]
    units = [] if kind == "compare" else [each for each in dates.units(words, shape) if free(each.start)]
    if units:
        mentions = [each for each in mentions if not any(u.start <= each.start < u.end for u in units)]
    if kind not in ("missing", "drop", "fill", "columns"):
        gapped = gaps(words, mentions, shape)
        made += gapped
        spans += [(each.start, each.end) for each in gapped]
    zones = [] if kind in ("fit", "top") else _zones(words, mentions)
    zoned = [each for each in mentions if any(a <= each.start < b for a, b in zones) and free(each.start)]
    named = values(words, shape, find(_masked(words, spans), frame.columns), free)
    spans += [(each.start, each.end) for each in named]
    # "By doctor excluding ward A" does not group by ward.
    zoned = [each for each in zoned if not any(v.start <= each.start < v.end for v in named)]
    flagged: list[Condition] = []
    if kind not in ("compare", "fit", "correlate"):
        flagged = flags(words, shape, bare=kind in ("how_many", "share"), free=free)
    flagged = [each for each in flagged if each.filter.column not in {other.column for other in zoned}]
    conditions = [*made, *named, *flagged]
    spans += [(each.start, each.end) for each in flagged]
    filters = tuple(dict.fromkeys(each.filter for each in sorted(conditions, key=lambda each: each.start)))
    filtered = {each.filter.column for each in flagged}
    mentions = [each for each in mentions if free(each.start) or each in zoned]
    zoned = _groups(words, kind, frame, zoned, mentions)
    free_columns = [each.column for each in mentions if each not in zoned and each.column not in filtered]
    groups = list(dict.fromkeys(each.column for each in zoned))
    if not groups and kind in ("group", "values", "compare", "profile"):
        groups = [c for c in free_columns if not frame.numeric(c)] or (free_columns[:1] if kind == "values" else [])
        groups = [] if units and kind != "compare" and all(frame.temporal(each) for each in groups) else groups
    if kind == "values" and not groups and not units:
        groups = free_columns[:1]
    measures = [column for column in free_columns if frame.numeric(column) and column not in groups]
    order = [each.column for each in mentions if each.column not in filtered]
    asked = stat(_unnamed(words, mentions))
    on = by_stat(words, made, mentions, frame.few) if kind not in ("fit", "correlate", "compare") else None
    if on and having is None:
        having, filters = on, tuple(each for each in filters if each != on.filter)
    found = [*((each.start, each.end) for each in mentions), *((each.start, each.end) for each in units)]
    told = loose(words, kind, [*spans, *found], _many_span(words, kind, spans))
    base = 0
    either, wrong = _alternatives(words, conditions, filters)
    if kind == "share":
        filters, base = _base(words, conditions, [each.filter for each in flagged], filters)
    rest = _without(words, [*spans, *((each.start, each.end) for each in units)])
    return Query(
        frame, kind, words, asked, tuple(dict.fromkeys(order)), tuple(dict.fromkeys(measures)), tuple(groups), filters,
        rest=rest, units=tuple(units), either=either, having=having, loose=(*told, *wrong), base=base,
    )  # fmt: skip


_JOINED = re.compile(r",|&|/|\b(?:and|by|per|each|for|with)\b|和|与|、|及|按|每|各|再|跟", re.I)


def _groups(
    words: str, kind: str, frame: Frame, zoned: Sequence[Mention], mentions: Sequence[Mention]
) -> list[Mention]:
    """The columns of the grouping zones that are groups: "compare web and shop by revenue" measures revenue, and so
    does 各城市金额, where nothing joins the two."""
    numbers = [each for each in mentions if each not in zoned and frame.numeric(each.column)]
    if kind == "compare" and not numbers:
        return [each for each in zoned if not frame.numeric(each.column)]
    kept: list[Mention] = []
    for each in zoned:
        between = words[kept[-1].end : each.start] if kept else ","
        if not frame.numeric(each.column) or _JOINED.search(between):
            kept.append(each)
    return kept


def _blanked(words: str, name: str) -> str:
    """The words without the table's name, as long as before."""
    whole = rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])" if name.isascii() else re.escape(name)
    return re.sub(whole, " " * len(name), words)


def _masked(words: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in spans:
        words = words[:start] + "\x01" * (end - start) + words[end:]
    return words


def _many_span(words: str, kind: str, spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Where the number of rows stands that "top 5" asks for."""
    if kind not in ("top", "rows"):
        return None
    rest = _without(words, spans)
    found = re.search(r"(?:top|first|前|bottom)\s*(\d+)", rest)
    found = found or re.search(r"(?<![A-Za-z0-9_.])(\d{1,3})(?![A-Za-z0-9_.])", rest)
    return found.span() if found else None


def _alternatives(
    words: str, conditions: Sequence[Condition], filters: Sequence[Filter]
) -> tuple[bool, tuple[str, ...]]:
    """Whether any one of the conditions is enough; the "or" that is too much for that in words."""
    ordered = sorted(conditions, key=lambda each: each.start)
    pairs = [(a, b) for a, b in pairwise(ordered) if a.filter != b.filter]
    ors = [(a, b) for a, b in pairs if _OR.search(words[a.end : b.start])]
    if not ors:
        return False, ()
    if len(ors) == len(pairs) == len(filters) - 1:
        return True, ()
    return False, tuple(words[a.start : b.end] for a, b in ors)


def _base(
    words: str, conditions: Sequence[Condition], flagged: Sequence[Filter], filters: Sequence[Filter]
) -> tuple[tuple[Filter, ...], int]:
    """The filters, those first that say of which rows a share is asked, and how many these are.

    They stand before the verb, or before 中 or 里; without one a yes/no column is what is asked of the others.
    """
    cut = re.search(r"\b(?:is|are|was|were|have|has|had|did|that|who)\b|中的?|里面?|占", words, re.I)
    before = {each.filter for each in conditions if cut and each.end <= cut.start() + 1}
    if not before or set(filters) <= before:
        before = set(filters) - set(flagged) if flagged else set()
    head = tuple(each for each in filters if each in before)
    return (*head, *(each for each in filters if each not in before)), len(head) if len(head) < len(filters) else 0


def _unnamed(words: str, mentions: Sequence[Mention]) -> str:
    """The words without full column names: a column "Total" does not ask for a sum."""
    for each in sorted(mentions, key=lambda m: -m.start):
        if each.score >= 9:
            words = words[: each.start] + " " + words[each.end :]
    return words


def _amended(query: Query, how: str, said: str) -> Query:
    frame = query.frame
    if how == "chart":
        return replace(query, words=f"{query.words} ; {said}", rest=f"{query.rest} ; {said}")
    new = _read(said, frame, "how_many" if how == "only" else "group")
    named = tuple(new.mentions)
    kept = tuple(old for old in query.filters if old.column not in {each.column for each in new.filters})
    query = replace(query, filters=(*kept, *new.filters), loose=(*query.loose, *new.loose))
    if how in ("by", "also") and (named or new.units):
        groups = (*query.groups, *named) if how == "also" else named
        units = (*query.units, *new.units) if how == "also" else new.units
        query = replace(
            query, groups=tuple(dict.fromkeys(groups)), measures=tuple(m for m in query.measures if m not in named),
            units=units,
        )  # fmt: skip
    elif how == "about" and named:
        numbers = tuple(name for name in named if frame.numeric(name) and not (frame.few(name) and query.groups))
        others = tuple(name for name in named if name not in numbers)
        query = replace(query, measures=numbers or query.measures, groups=others or query.groups)
    if new.stat in STAT_NAMES and new.stat != "count":
        query = replace(query, stat=new.stat)
    changed = {*query.measures, *query.groups}
    order = [*query.measures, *query.groups] if named and not changed <= set(query.mentions) else query.mentions
    return replace(query, mentions=tuple(order))
