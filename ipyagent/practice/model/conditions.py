"""Conditions in a request: named values, what is not wanted, yes/no columns, and what is missing.

Every condition keeps the span of the words it was read from: what no condition took is told to the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .columns import Mention, find_flags, find_values
from .names import quoted

Span = tuple[int, int]

_EMPTY = re.compile(
    r"(?:\b(?:no|without(?: any| an?)?|lacks?|lacking|missing|an? (?:missing|unknown|empty)|unknown|empty|blank"
    r"|(?:don't|doesn't|do not|does not|didn't|did not) have(?: an?| any)?|(?:has|have)n't(?: an?| any)?)\s+(?:the\s+)?"
    r"|(?<!有)(?:没有|没|无|缺少?|缺失|未填)\s*)$",
    re.I,
)
_EMPTY_BEHIND = re.compile(
    r"\s*(?:is|are|was|were|has been|值|的|为|是)?\s*(?P<not>not\s+|n't\s+|不|非)?(?:missing|null|nan|none|empty|blank"
    r"|unknown|缺失|为?空|空值|未知|不存在)\b",
    re.I,
)
_KNOWN = re.compile(r"\b(?:have|has|had|with)\s+(?:an?\s+|any\s+|a known\s+|known\s+)$|(?<!没)有\s*$", re.I)
NOT = re.compile(
    r"(?:\bnot\b|n't\b|\bexcept(?:ing)?(?: for)?\b|\bexclud(?:e|es|ed|ing)\b|\bother than\b|\bapart from\b"
    r"|\baside from\b"
    r"|\bbesides\b|\bwithout\b|\bnon\b-?|\bneither\b|\bnor\b|\bbut\b(?=\s*$)|\boutside(?: of)?\b|\bignor(?:e|ing)\b"
    r"|\bleav(?:e|ing) out\b|\bnone of\b|!=|<>|≠|不是|不在|不为|不等于|不属于|不来自|不包括|不包含|不含|不算"
    r"|并非|非|除了?|排除|去掉|剔除|没有"
    r"|没(?!有))",
    re.I,
)
BETWEEN_NOT = re.compile(
    r"\s*(?:(?:in|from|on|at|of|the|an?|any|be|been|being|equal|to|for|is|those|rows?|people|with|by|come|coming|live"
    r"|living|and|or|nor|value|\"|'|“|‘|=|,|来自|在|属于|住在|是|为|的|和|与|或|、)\s*)*",
    re.I,
)
_LIST = re.compile(r"[\s\"'”’“‘]*(?:,|and|or|nor|&|、|和|与|或|以及|及)(?:\s*(?:in|from|the|of))*[\s\"'“‘]*", re.I)
_BUT = re.compile(r"\s*[\"'”’]?\s*(?:的)?(?:以外|之外|除外|外)的?")

_COMPARES = re.compile(
    r"\s*(?:is|are|was|were)?\s*(?:of|over|above|below|under|more|less|fewer|greater|higher|lower|between|equal|at|not"
    r"|that|exceeding|up to|[\d<>=]|是|为|大|小|高|低|超|不|在)", re.I
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition: the column, an operator, and the value as Python source.

    Operators besides those of Python: `in`, `not in`, `between` (both ends count), `within` and `not within` (the
    second end does not), `missing`, `known`. `part`: what is taken of the column first; `said`: the value in words.
    """

    column: str
    operator: str
    value: str = ""
    part: str = ""
    said: str = ""

    def code(self, frame: str) -> str:
        """The condition in pandas."""
        column = f"{frame}[{quoted(self.column)}]{self.part}"
        if self.operator == "within any":
            spans = (f'({column}.between({each}, inclusive="left"))' for each in self.value.split("; "))
            return f"({' | '.join(spans)})"
        forms = {
            "in": f"{column}.isin({self.value})", "not in": f"~{column}.isin({self.value})",
            "between": f"{column}.between({self.value})", "not between": f"~{column}.between({self.value})",
            "within": f'{column}.between({self.value}, inclusive="left")',
            "not within": f'~{column}.between({self.value}, inclusive="left")',
            "missing": f"{column}.isna()", "known": f"{column}.notna()",
        }  # fmt: skip
        return forms.get(self.operator, f"{column} {self.operator} {self.value}")

    def __str__(self) -> str:
        if self.operator in ("missing", "known"):
            return f"{self.column} {'missing' if self.operator == 'missing' else 'not missing'}"
        column = self.column
        if self.part.endswith(".dt.dayofweek"):
            return f"{column} on {'weekends' if self.operator == '>=' else 'weekdays'}"
        if found := re.search(r"\.dt\.(\w+?)(?:\(\))?$", self.part):
            column = f"{found[1].replace('_name', '').replace('dayofweek', 'day')} of {self.column}"
        words = {"==": "=", "!=": "≠", "within": "in", "within any": "in", "not within": "not in"}
        value = self.said or (self.value.replace(", ", " and ") if "between" in self.operator else self.value)
        return f"{column} {words.get(self.operator, self.operator)} {value}".replace('"', "")


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter and the span of the words that ask for it."""

    filter: Filter
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a table's columns: dtypes, numeric columns, dates, values that may be named, smallest values."""

    dtypes: Mapping[str, str]
    numbers: Sequence[str]
    dates: Sequence[str]
    values: Mapping[str, Sequence[str]]
    lows: Mapping[str, float] = field(default_factory=dict)
    highs: Mapping[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Column names in order."""
        return list(self.dtypes)


def gaps(words: str, mentions: Sequence[Mention], shape: Shape) -> list[Condition]:
    """Conditions on what is missing: "no price", "without a region", "price is missing", "没有价格"."""
    made: list[Condition] = []
    for each in mentions:
        if set(map(str.lower, shape.values.get(each.column, ()))) <= YES | NO and shape.values.get(each.column):
            continue
        before = _EMPTY.search(words[: each.start])
        behind = _EMPTY_BEHIND.match(words[each.end :])
        known = _KNOWN.search(words[: each.start])
        if behind:
            name = "known" if behind["not"] else "missing"
            made.append(Condition(Filter(each.column, name), each.start, each.end + behind.end()))
        elif before:
            # "no children" where they are counted says none.
            counted = shape.lows.get(each.column) == 0 and shape.dtypes[each.column].lower().startswith(("int", "uint"))
            gap = Filter(each.column, "==", "0") if counted else Filter(each.column, "missing")
            made.append(Condition(gap, before.start(), each.end))
        elif known and not _COMPARES.match(words[each.end :]) and (
            words[known.start() :][:1] != "有" or re.match(r"\s*(?:的|值)", words[each.end :])
        ):  # fmt: skip
            made.append(Condition(Filter(each.column, "known"), known.start(), each.end))
    return made


YES = frozenset({"yes", "true", "1", "y", "1.0"})
NO = frozenset({"no", "false", "0", "n", "0.0"})


def values(words: str, shape: Shape, mentions: Sequence[Mention], free: Callable[[int], bool]) -> list[Condition]:
    """Values of columns that are named, those with a "not" before them as what is not wanted."""
    found = [each for each in find_values(words, shape.values, mentions) if free(each.start)]
    wanted: dict[str, list[tuple[Mention, int, int]]] = {}
    unwanted: dict[str, list[tuple[Mention, int, int]]] = {}
    last: tuple[Mention, bool] | None = None
    for each in found:
        head = words[: each.start]
        start, end = each.start, each.end
        named = [other for other in mentions if other.column == each.column and other.end <= each.start]
        lead = re.search(r"\s*(?:=+|is|are|was|were|:|：|为|是|的值是)?\s*[\"'“‘]?\s*$", head, re.I)
        if named and lead and lead.start() == named[-1].end:
            start = named[-1].start
        is_not, begin = _negated(words, each, named[-1] if named else None)
        if not is_not and last and last[1] and last[0].column == each.column:
            is_not = bool(_LIST.fullmatch(words[last[0].end : each.start]))
        tail = _BUT.match(words[end:])
        if tail and (is_not or re.match(r"\s*[\"'”’]?\s*(?:以外|之外|除外)", words[end:])):
            is_not, end = True, end + tail.end()
            alike = last and last[0].column == each.column and wanted.get(each.column)
            if last and alike and not last[1] and _LIST.fullmatch(words[last[0].end : each.start]):
                unwanted.setdefault(each.column, []).append(alike.pop())  # 华东和华南以外: neither of them
                wanted = {key: kept for key, kept in wanted.items() if kept}
        start = min(start, begin if is_not and begin >= 0 else start)
        (unwanted if is_not else wanted).setdefault(each.column, []).append((each, start, end))
        last = (each, is_not)
    made = []
    for groups, one, many in ((wanted, "==", "in"), (unwanted, "!=", "not in")):
        for column, named_values in groups.items():
            source = list(dict.fromkeys(_source(shape, column, each.value or "") for each, _, _ in named_values))
            several = Filter(column, many, f"[{', '.join(source)}]")
            only = Filter(column, one, source[0]) if len(source) == 1 else several
            made += [Condition(only, start, end) for _, start, end in named_values]
    return made


def _negated(words: str, each: Mention, named: Mention | None) -> tuple[bool, int]:
    """Whether a "not" belongs to a value, and where it starts."""
    head = words[: each.start]
    if named is not None:
        head = head[: named.start] + " " * (named.end - named.start) + head[named.end :]
    at = list(NOT.finditer(head))
    if not at or not BETWEEN_NOT.fullmatch(head[at[-1].end() :]):
        return False, -1
    if re.search(r"有没有$|是不是$|whether or not$", words[: at[-1].end()]):
        return False, -1
    return True, at[-1].start()


def _source(shape: Shape, column: str, value: str) -> str:
    return value if column in shape.numbers or shape.dtypes[column].startswith("bool") else quoted(value)


def flags(words: str, shape: Shape, *, bare: bool, free: Callable[[int], bool]) -> list[Condition]:
    """Yes/no columns as conditions ("who survived", "not returned")."""
    made = []
    for each, start in find_flags(words, shape.values, bare=bare):
        if free(each.start):
            value = _source(shape, each.column, each.value or "")
            made.append(Condition(Filter(each.column, "==", value), start, each.end))
    return made
