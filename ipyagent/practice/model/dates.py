"""Dates in a request: which days "in March 2026", "since 2024", "2026年3月" are, and "by month" as a grouping.

A span is half open: from its first day up to the day after its last. A month without a year is that month of every
year. Words that tell a date by today's ("last month", "yesterday") are read by nobody here: who answers says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from .columns import Mention, find
from .conditions import Condition, Filter, Shape
from .names import quoted

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
_MONTH += r"|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
_YEAR = r"(?:1[5-9]|20|21)\d\d"
_SPECS = (
    ("day", rf"(?P<y>{_YEAR})[-/.](?P<m>\d\d?)[-/.](?P<d>\d\d?)(?!\d)"),
    ("day", rf"(?P<y>{_YEAR})\s*年\s*(?P<m>\d\d?)\s*月\s*(?P<d>\d\d?)\s*[日号]"),
    ("day", rf"(?P<n>{_MONTH})\s+(?P<d>\d\d?)(?:st|nd|rd|th)?,?\s+(?P<y>{_YEAR})(?!\d)"),
    ("day", rf"(?P<d>\d\d?)(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<n>{_MONTH}),?\s+(?P<y>{_YEAR})(?!\d)"),
    ("month", rf"(?P<y>{_YEAR})-(?P<m>\d\d)(?![-\d])"),
    ("month", rf"(?P<y>{_YEAR})\s*年\s*(?P<m>\d\d?)\s*月(?:份)?"),
    ("month", rf"(?P<n>{_MONTH})(?:\s+of)?,?\s+(?P<y>{_YEAR})(?!\d)"),
    ("quarter", rf"Q(?P<q>[1-4])\s*(?:of\s+)?(?P<y>{_YEAR})(?!\d)|(?P<y2>{_YEAR})\s*[-/]?\s*Q(?P<q2>[1-4])(?!\d)"),
    ("quarter", rf"(?P<o>first|second|third|fourth|last|1st|2nd|3rd|4th)\s+quarter\s+(?:of |in )?(?P<y>{_YEAR})(?!\d)"),
    ("half", rf"(?P<o>first|second)\s+half\s+(?:of\s+|in\s+)?(?P<y>{_YEAR})(?!\d)"),
    ("half", rf"(?P<y>{_YEAR})\s*年?\s*(?P<h>[上下])半年"),
    ("quarter", rf"(?P<y>{_YEAR})\s*年\s*第?(?P<q>[1-4一二三四])\s*季度"),
    ("year", rf"(?P<y>{_YEAR})\s*年"),
    ("year", rf"(?<![\d.,$€£¥-])(?P<y>{_YEAR})(?![\d.,]*\d|\s*[-/]\d|%)"),
    ("every month", rf"(?P<n>{_MONTH})(?!\s*\d)"), ("every month", r"(?<!\d)(?P<m>1[0-2]|[1-9])\s*月(?:份)?(?!\d)"),
    ("every quarter", r"Q(?P<q>[1-4])(?!\d)|第(?P<q2>[1-4一二三四])季度"),
)  # fmt: skip
_AFTER = (
    (">=", r"\b(?:since|from|on or after|starting(?: in| from)?|as of)\s*$|自从?\s*$|从\s*$"),
    (">", r"\b(?:after|later than|past)\s*$|晚于\s*$|在?\s*$(?=\x00)"),
    ("<=", r"\b(?:until|till|up to|through|on or before|by the end of)\s*$|截至\s*$|截止到?\s*$"),
    ("<", r"\b(?:before|prior to|earlier than)\s*$|早于\s*$"),
    ("!=", r"\b(?:not|except(?: for)?|excluding|outside(?: of)?|other than)\s+(?:in|on|during|from|for)?\s*$"
           r"|(?:不是|不在|除了?|不包括|不含)\s*$"),
)  # fmt: skip
_BEHIND = (
    (">=", r"\s*(?:以来|(?:及|或)?以后|及之后|onwards?\b|or later\b|and later\b)"), (">", r"\s*(?:之后|后(?!来))"),
    ("<=", r"\s*(?:及以前|及之前|or earlier\b|and earlier\b)"), ("<", r"\s*(?:之前|以前|前)"),
    ("!=", r"\s*(?:以外|之外)"),
)  # fmt: skip
_IN = re.compile(r"\b(?:in|during|of|for|on|at|from|year|within|date(?:d)?)\s*(?:the\s+)?(?:year\s+|month\s+)?$", re.I)
_TO = re.compile(r"\s*(?:and|to|until|till|through|-|–|~|到|至|和|与)\s*$", re.I)
_BETWEEN = re.compile(r"(?:\b(?:between|from)|从|介于|在)\s*$", re.I)
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_WEEKDAY = re.compile(
    rf"\b(?:on\s+(?:a\s+)?)?(?:({'|'.join(_DAYS)})s?|(weekends?)|(weekdays))\b"
    r"|(?:周|星期)(?:([一二三四五六日天])|(末))", re.I
)  # fmt: skip
_UNIT_WORDS = {
    "hourly": "hour", "daily": "day", "weekly": "week", "monthly": "month", "quarterly": "quarter", "yearly": "year",
    "annual": "year", "annually": "year", "年": "year", "年份": "year", "季度": "quarter", "月": "month",
    "月份": "month", "月度": "month", "年度": "year", "周": "week", "星期": "weekday", "星期几": "weekday", "日": "day",
    "天": "day", "小时": "hour", "day of the week": "weekday", "day of week": "weekday",
}  # fmt: skip
_UNIT = re.compile(
    r"\b(?:by|per|each|every|which|what|over(?: the)?|across(?: the)?|for each|in each|and)\s+(?:the\s+)?"
    r"(?P<a>day of (?:the )?week|weekday|year|quarter|month|week|day|hour)s?\b(?! old)"
    r"|\b(?P<b>hourly|daily|weekly|monthly|quarterly|yearly|annual(?:ly)?)\b"
    r"|(?:按照?|每一?个?|各个?|逐|和|与|随|哪一?个?)\s*(?P<c>星期几|季度|年份|年度|月份|月度|小时|星期|年|月|周|日|天)"
    r"(?!龄|薪|收入|费|期|[一二三四五六七八九十\d])"
    r"|(?P<d>月度|季度|年度)(?=\S)"
    r"|(?:by|per|each|every|按|每)\s*(?P<e>year|quarter|month|week|weekday|day|hour)(?![a-z])",
    re.I,
)
_CALENDAR = {"year": ".dt.year", "quarter": ".dt.quarter", "month": ".dt.month", "weekday": ".dt.day_name()",
             "hour": ".dt.hour", "week": '.dt.to_period("W").astype(str)', "day": ".dt.date"}  # fmt: skip
_LINEAR = {"quarter": '.dt.to_period("Q").astype(str)', "month": '.dt.to_period("M").astype(str)'}


@dataclass(frozen=True, slots=True)
class Spec:
    """A date as said: its first day and the day after its last, or a part of every year."""

    start: int
    end: int
    said: str
    first: date | None = None
    after: date | None = None
    part: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Unit:
    """A grouping by a part of a date: `unit` of `column`, whose words stand at `start` to `end`."""

    unit: str
    column: str
    dtype: str
    start: int
    end: int

    def code(self, frame: str, *, linear: bool = False) -> str:
        """The part of the date in pandas; `linear`: months and quarters of different years are kept apart."""
        dates = f"{frame}[{quoted(self.column)}]{as_dates(self.dtype)}"
        return dates + (_LINEAR if linear else _CALENDAR).get(self.unit, _CALENDAR[self.unit])


def as_dates(dtype: str) -> str:
    """What makes dates of a column of texts."""
    return "" if dtype.lower().startswith(("datetime", "period")) else '.astype("datetime64[ns]")'


def units(words: str, shape: Shape) -> list[Unit]:
    """Groupings by parts of a date column that are no columns themselves."""
    found = []
    for match in _UNIT.finditer(words):
        said = next(filter(None, match.groups()), "").lower()
        unit = _UNIT_WORDS.get(said, said)
        column = _column(words, shape)
        is_column = any(
            each.start < match.end() and match.end() - len(said) < each.end for each in find(words, shape.columns)
        )
        if column and not is_column and unit in _CALENDAR:
            found.append(Unit(unit, column, shape.dtypes[column], *match.span()))
    return found[:2]


def conditions(words: str, shape: Shape, taken: Sequence[tuple[int, int]]) -> list[Condition]:
    """Conditions on dates, or on a column of years, and the spans they take."""
    dates = _column(words, shape)
    year = next((each for each in shape.numbers if each.strip().lower() in ("year", "年份", "年")), "")
    if not year and not dates:
        year = next((each for each in shape.numbers if re.search(r"(?:^|[_ ])year$", each.strip(), re.I)), "")
    made: list[Condition] = []
    specs = [each for each in _specs(words) if not any(a < each.end and each.start < b for a, b in taken)]
    at = 0
    while at < len(specs):
        spec, begin, end = specs[at], specs[at].start, specs[at].end
        other = specs[at + 1] if at + 1 < len(specs) else None
        joined = other is not None and _TO.fullmatch(words[end : other.start])
        before = _BETWEEN.search(words[:begin])
        linked = words[end : other.start].strip() not in ("and", "和", "与") if other else False
        if other is not None and joined:
            spec, other = _with_year(spec, other)
        if other is not None and joined and (before or linked) and spec.part == other.part == "month" and dates:
            part = f"{as_dates(shape.dtypes[dates])}.dt.month"
            months = Filter(dates, "between", f"{spec.number}, {other.number}", part)
            made.append(Condition(months, before.start() if before else begin, other.end))
            at += 2
            continue
        if other is not None and joined and (before or linked) and spec.first and other.after:
            begin, end = before.start() if before else begin, other.end
            tail = re.match(r"\s*(?:之间|期间|的)", words[end:])
            spec = Spec(begin, end, f"{spec.said} to {other.said}", spec.first, other.after)
            made += _made(spec, "", dates, year, shape, begin, end + (tail.end() if tail else 0))
            at += 2
            continue
        at += 1
        operator, begin, end = _operator(words, begin, end)
        if operator or _clear(words, spec, bool(dates)):
            lead = _IN.search(words[:begin]) if not operator else None
            made += _made(spec, operator, dates, year, shape, lead.start() if lead else begin, end)
    return [*_merged(made), *(_weekdays(words, dates, shape) if dates else [])]


def _merged(made: list[Condition]) -> list[Condition]:
    """The conditions, several years or months of one column as one: "in 1952 and 2007" is either."""
    by_kind: dict[tuple[str, str, str], list[Condition]] = {}
    for each in made:
        by_kind.setdefault((each.filter.column, each.filter.part, each.filter.operator), []).append(each)
    merged: list[Condition] = []
    for (column, part, operator), alike in by_kind.items():
        if len(alike) == 1 or operator not in ("==", "within"):
            merged += alike
            continue
        values = [each.filter.value for each in alike]
        said = ", ".join(each.filter.said or each.filter.value for each in alike)
        either = Filter(column, "in", f"[{', '.join(values)}]", part, said)
        if operator == "within":
            either = Filter(column, "within any", "; ".join(values), part, said)
        merged += [Condition(either, each.start, each.end) for each in alike]
    return merged


def _with_year(spec: Spec, other: Spec) -> tuple[Spec, Spec]:
    """Two months of which one has a year, both with it: "from March to May 2026", 2026年2月到4月."""
    if spec.part == "month" and other.first:
        year = other.first.year - (spec.number > other.first.month)
        spec = Spec(spec.start, spec.end, f"{year}-{spec.number:02}", date(year, spec.number, 1),
                    _next_month(year, spec.number))  # fmt: skip
    elif other.part == "month" and spec.first:
        year = spec.first.year + (other.number < spec.first.month)
        other = Spec(other.start, other.end, f"{year}-{other.number:02}", date(year, other.number, 1),
                     _next_month(year, other.number))  # fmt: skip
    return spec, other


def _column(words: str, shape: Shape) -> str:
    """The column of dates that is meant: the one named, else the first."""
    named: list[Mention] = find(words, shape.dates)
    return named[0].column if named else next(iter(shape.dates), "")


def _specs(words: str) -> list[Spec]:
    """All dates in the text, in its order, those that say more first where they overlap."""
    found: list[Spec] = []
    for kind, pattern in _SPECS:
        for match in re.finditer(pattern, words, re.I):
            if any(match.start() < each.end and each.start < match.end() for each in found):
                continue
            if spec := _spec(kind, match):
                found.append(spec)
    return sorted(found, key=lambda each: each.start)


def _spec(kind: str, match: re.Match[str]) -> Spec | None:
    parts = match.groupdict()
    year = int(parts.get("y") or parts.get("y2") or 0)
    month = int(parts["m"]) if parts.get("m") else _month(parts["n"]) if parts.get("n") else 0
    quarter = parts.get("q") or parts.get("q2") or ""
    number = int(quarter) if quarter.isdigit() else "一二三四".find(quarter) + 1 if quarter else 0
    if parts.get("o"):
        number = {"f": 1, "s": 2, "t": 3, "l": 4}.get(parts["o"][0].lower(), 0) or int(parts["o"][0])
        number = 4 if parts["o"].lower() == "fourth" else number
    where = match.span()
    try:
        if kind == "half":
            number = number or "上下".index(parts["h"]) + 1
            return Spec(*where, f"{year} H{number}", date(year, number * 6 - 5, 1), _next_month(year, number * 6))
        if kind == "day":
            day = date(year, month, int(parts["d"]))
            return Spec(*where, str(day), day, day + timedelta(1))
        if kind == "month":
            return Spec(*where, f"{year}-{month:02}", date(year, month, 1), _next_month(year, month))
        if kind == "quarter":
            first = number * 3 - 2
            return Spec(*where, f"{year} Q{number}", date(year, first, 1), _next_month(year, first + 2))
        if kind == "year":
            return Spec(*where, str(year), date(year, 1, 1), date(year + 1, 1, 1))
    except ValueError:
        return None
    if kind == "every month" and match[0].lower().startswith("may") and not match[0].startswith("May"):
        return None
    return Spec(*where, match[0], part="quarter" if number else "month", number=number or month)


def _month(name: str) -> int:
    return next(at for at, each in enumerate(_MONTHS, 1) if each == name.lower()[:3])


def _next_month(year: int, month: int) -> date:
    return date(year + month // 12, month % 12 + 1, 1)


def _operator(words: str, begin: int, end: int) -> tuple[str, int, int]:
    """The operator around a date, and the span with it."""
    for operator, pattern in _BEHIND:
        if found := re.match(pattern, words[end:], re.I):
            lead = re.search(r"(?:自从?|从|在|除了?)\s*$", words[:begin])
            return operator, lead.start() if lead else begin, end + found.end()
    for operator, pattern in _AFTER:
        found = re.search(pattern, words[:begin], re.I)
        # "from" a date with nothing behind it says since.
        if found and found.end() > found.start():
            return operator, found.start(), end
    return "", begin, end


def _clear(words: str, spec: Spec, has_dates: bool) -> bool:
    """Whether a date without an operator is one: years and months need "in", 年 or the like."""
    said = words[spec.start : spec.end]
    if spec.part:
        return has_dates and ("月" in said or "季" in said or bool(_IN.search(words[: spec.start])) or said[0] == "Q")
    plain_year = re.fullmatch(r"\d{4}", said)
    return not plain_year or bool(_IN.search(words[: spec.start])) or bool(
        re.search(r"[=＝:：是为]\s*$|^\s*$|[\u3400-\u9fff]\s*$", words[: spec.start])
        or re.match(r"\s*(?:[\u3400-\u9fff]|$|[?,.;])", words[spec.end :]) or has_dates
    )  # fmt: skip


def _made(spec: Spec, operator: str, dates: str, year: str, shape: Shape, begin: int, end: int) -> list[Condition]:
    """The condition on the column there is: a year's on a column of years, others on one of dates."""
    whole = spec.first is not None and spec.after is not None and (spec.first.month, spec.first.day) == (1, 1)
    whole = whole and spec.after is not None and (spec.after.month, spec.after.day) == (1, 1)
    if year and whole and spec.first and spec.after:
        low, high = spec.first.year, spec.after.year - 1
        if low == high:
            return [Condition(Filter(year, operator or "==", str(low)), begin, end)]
        return [Condition(Filter(year, "between", f"{low}, {high}"), begin, end)]
    if not dates:
        return []
    cast = as_dates(shape.dtypes[dates])
    if spec.part:
        wanted = operator if operator == "!=" else "=="
        only = Filter(dates, wanted, str(spec.number), f"{cast}.dt.{spec.part}", said=spec.said)
        return [Condition(only, begin, end)]
    first, after = quoted(str(spec.first)), quoted(str(spec.after))
    if operator in ("", "!="):
        name = "within" if not operator else "not within"
        return [Condition(Filter(dates, name, f"{first}, {after}", cast, said=spec.said), begin, end)]
    bound = after if operator in (">", "<=") else first
    plain = {">": ">=", ">=": ">=", "<": "<", "<=": "<"}[operator]
    return [Condition(Filter(dates, plain, bound, cast), begin, end)]


def _weekdays(words: str, dates: str, shape: Shape) -> list[Condition]:
    cast, made = as_dates(shape.dtypes[dates]), []
    for match in _WEEKDAY.finditer(words):
        name, weekend, weekdays, chinese, end = match.groups()
        if weekend or end or weekdays:
            made.append(
                Condition(
                    Filter(dates, "<" if weekdays else ">=", "5", f"{cast}.dt.dayofweek"),
                    *match.span(),
                )
            )
            continue
        number = _DAYS.index(name.lower()) if name else min("一二三四五六日天".index(chinese), 6)
        made.append(
            Condition(Filter(dates, "==", quoted(_DAYS[number].capitalize()), f"{cast}.dt.day_name()"), *match.span())
        )
    return made
