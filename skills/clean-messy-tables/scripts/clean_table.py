"""Cleaning that says what it did: every function returns a new object and the account of it, and nothing is guessed.

What cannot be read stays missing and is listed, so that a person can decide.
"""

from __future__ import annotations

import math
import numbers
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pandas as pd

PLACEHOLDERS = ("", "-", "--", "?", "na", "n/a", "nan", "none", "null", "unknown", "missing", "#n/a", "not available")
_MONEY = r"(?:[$€£¥₹]|(?:USD|EUR|GBP|CHF)(?![a-z]))"
_MARKS = re.compile(r"(?P<kept>(?<=\d)[.,:/-](?=\d)|[+#%<>=]|^-|-$)|[\W_]")
_BLANKS = r" \u00a0\u2009\u202f"


@dataclass(frozen=True)
class Converted:
    """`values` with what could not be read as missing; `unread` those texts with how often each came, most
    frequent first; `rate` the share of the values present before that were read (1.0 when there were none)."""

    values: pd.Series
    unread: pd.Series
    rate: float

    def __str__(self) -> str:
        if not len(self.unread):
            return f"{self.rate:.1%} read"
        few = ", ".join(f"{text!r} ×{count}" for text, count in self.unread.head(5).items())
        return f"{self.rate:.1%} read; not read: {few}"


def clean_names(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[int, tuple[str, str]]]:
    """The table under plain, unique names (lower case, words joined by "_", letters of any script kept; levels
    joined), and what was renamed: position -> (before, after)."""
    taken: set[str] = set()
    names, renamed = [], {}
    for at, name in enumerate(table.columns):
        before = " ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        plain = unicodedata.normalize("NFKC", before).replace("%", " pct ").casefold()
        plain = re.sub(r"\W+", "_", plain).strip("_") or f"column_{at + 1}"
        after, number = plain, 2
        while after in taken:
            after, number = f"{plain}_{number}", number + 1
        taken.add(after)
        names.append(after)
        if after != name:
            renamed[at] = (before, after)
    cleaned = table.copy()
    cleaned.columns = pd.Index(names, dtype=object)
    return cleaned, renamed


def blank_placeholders(
    table: pd.DataFrame, extra: Iterable[str] = (), keep: Iterable[Any] = ()
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table with texts that stand for "missing" made missing and blanks at the ends of texts removed, and what
    was blanked: one row for each column and text. `keep`: columns in which such words are real answers."""
    words = {word.casefold() for word in (*PLACEHOLDERS, *extra)}
    kept = set(keep)
    columns, told = [], []
    for at, name in enumerate(table.columns):
        values = table.iloc[:, at]
        groups = isinstance(values.dtype, pd.CategoricalDtype)
        if name not in kept and _is_text(values.cat.categories.to_series() if groups else values):
            plain = values.astype(values.cat.categories.dtype) if groups else values
            plain = plain.map(lambda value: value.strip() if isinstance(value, str) else value)
            known = plain.map(lambda value: isinstance(value, str) and value.casefold() in words).astype(bool)
            if known.any():
                counts = plain[known].value_counts()
                told += [(str(name), text, int(count)) for text, count in counts.items()]
                plain = plain.mask(known)
            values = _grouped(plain, values, words) if groups else plain
        columns.append(values)
    if not columns:
        return table.copy(), pd.DataFrame(told, columns=["column", "text", "count"])
    cleaned = pd.concat([each.set_axis(range(len(table))) for each in columns], axis=1)
    cleaned.index, cleaned.columns = table.index, table.columns
    return cleaned, pd.DataFrame(told, columns=["column", "text", "count"])


def numbers_from_text(values: pd.Series, *, decimal: str = ".") -> Converted:
    """Numbers out of texts such as "$1,234.50", "(12)" and "1 234". A per cent sign divides by 100. `decimal`
    "." or ","; the other one, a blank or an apostrophe groups thousands and is read only where it does so; signs of
    money stand at one end. Whole numbers beyond 2**53 that a float64 cannot hold stay unread: they are identifiers.
    Raises ValueError for another `decimal`."""
    if decimal not in (".", ","):
        raise ValueError(f"decimal is '.' or ',', not {decimal!r}")
    group = "," if decimal == "." else "."
    point = re.escape(decimal)
    whole = rf"(?!0)\d{{1,3}}(?P<group>[{_BLANKS}'’{group}])\d{{3}}(?:(?P=group)\d{{3}})*|\d+"
    shape = re.compile(
        rf"(?P<sign>[+-]?)(?P<money>{_MONEY}\s*)?(?P<inner>[+-]?)(?P<number>(?:{whole})(?:{point}\d*)?|{point}\d+)"
        rf"(?P<power>e[+-]?\d+)?\s*(?P<end>%|{_MONEY})?",
        re.I,
    )

    def read(value: Any) -> float | None:
        if isinstance(value, (bool, complex)):
            return None
        if isinstance(value, (numbers.Real, Decimal)):
            return _held(value)
        text = str(value).strip().replace("−", "-")
        negative = text.startswith("(") and text.endswith(")")
        found = shape.fullmatch(text[1:-1].strip() if negative else text)
        if found is None or (found["money"] and found["end"]):
            return None
        if negative + bool(found["sign"]) + bool(found["inner"]) > 1:
            return None
        plain = re.sub(rf"[{_BLANKS}'’{group}]", "", found["number"]).replace(decimal, ".")
        number = float(plain + found["power"]) if found["power"] else _held(plain)
        if number is None or math.isinf(number):
            return None
        minus = negative or "-" in (found["sign"], found["inner"])
        return (-number if minus else number) / (100 if found["end"] == "%" else 1)

    return _converted(values, read, "float64")


def _held(value: Any) -> float | None:
    """The number as a float, None for one so large that floats leave out whole numbers, and it is among these."""
    try:
        number = float(value)
    except OverflowError:
        return None
    large = 2**53 <= abs(number) < math.inf and isinstance(value, (str, numbers.Integral, Decimal))
    return None if large and Decimal(number) != Decimal(str(value)) else number


def dates_from_text(values: pd.Series, formats: Iterable[str], *, tz: str | None = None) -> Converted:
    """Times out of texts, by the given strptime formats in order; day and month are never guessed. With `tz` the
    result has that zone: naive times are taken as local there, and those that do not exist or come twice at a
    change of clocks become missing. Values with an offset need "%z" in the format and `tz`; a number is read as the
    text that it prints as, "now" and "today" are not read."""
    texts = values.astype(object).where(values.notna(), None).map(lambda value: str(value).strip(), na_action="ignore")
    zone = tz or "UTC"
    left = pd.Series(texts.to_numpy(), index=range(len(texts)), dtype=object)
    left[left.map(lambda text: isinstance(text, str) and text.lower() in ("now", "today")).astype(bool)] = None
    parts = []
    for form in formats:
        if "%z" in form and tz is None:
            raise ValueError("a format with %z needs tz, the zone that the result is to have")
        held = left.dropna()
        if "%z" in form:
            got = pd.to_datetime(held, format=form, errors="coerce", utc=True).dt.tz_convert(zone)
        else:
            got = pd.to_datetime(held, format=form, errors="coerce")
            got = got.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
        parts.append(got.dropna())
        left = left.drop(parts[-1].index)
    # Microseconds reach from the year 1 to 9999; nanoseconds, where a text has them, only from 1677 to 2262.
    fine = any((part.dt.nanosecond != 0).any() for part in parts)
    found = pd.Series(pd.NaT, index=range(len(texts)), dtype=f"datetime64[{'ns' if fine else 'us'}, {zone}]")
    for part in parts:
        if fine:
            part = part[(part >= pd.Timestamp.min.tz_localize("UTC")) & (part <= pd.Timestamp.max.tz_localize("UTC"))]
        found[part.index] = part.astype(found.dtype)
    if tz is None:
        found = found.dt.tz_localize(None)
    return _account(values, found.set_axis(values.index))


def ambiguous_dates(values: pd.Series) -> tuple[int, int, int]:
    """For texts like 03/04/2021: how many can be day first only, month first only, and either."""
    parts = values.dropna().astype(str).str.extract(r"^\s*(\d{1,2})[-/.](\d{1,2})[-/.]\d{2,4}").dropna().astype(int)
    first, second = parts[0], parts[1]
    day, month = (first > 12) & (second <= 12), (second > 12) & (first <= 12)
    return int(day.sum()), int(month.sum()), int(((first <= 12) & (second <= 12)).sum())


def spellings(values: pd.Series) -> pd.DataFrame:
    """Groups of values that are the same but for case, blanks, accents and punctuation (marks between digits, a minus
    before or after all, and + # % < > = make a difference: 1.5 and 15, A+ and A); `keep` is the most frequent
    spelling of its group, `count` how often `value` comes. Empty when there is none."""
    counts = values.dropna().astype(str).value_counts()
    plain = pd.Series([_plain(text) for text in counts.index], index=counts.index, dtype=object)
    rows = []
    for key, group in counts.groupby(plain.to_numpy()):
        if len(group) > 1 and key:
            rows += [(group.idxmax(), text, int(count)) for text, count in group.items()]
    return pd.DataFrame(rows, columns=["keep", "value", "count"])


def _plain(text: str) -> str:
    wide = "".join(unicodedata.normalize("NFKC", sign) if _of_width(sign) else sign for sign in text)
    marks = unicodedata.normalize("NFD", wide.casefold())
    marks = "".join(sign for sign in marks if not unicodedata.combining(sign))
    return _MARKS.sub(lambda found: found["kept"] or "", marks)


def _of_width(sign: str) -> bool:
    return unicodedata.decomposition(sign).startswith(("<wide>", "<narrow>"))


def _grouped(plain: pd.Series, before: pd.Series, words: set[str]) -> pd.Series:
    """Texts as categories again, in the order that they had."""
    stripped = [name.strip() if isinstance(name, str) else name for name in before.cat.categories]
    names = [name for name in dict.fromkeys(stripped) if not isinstance(name, str) or name.casefold() not in words]
    return plain.astype(pd.CategoricalDtype(pd.Index(names, dtype=plain.dtype), ordered=before.cat.ordered))


def _is_text(values: pd.Series) -> bool:
    return values.dtype == object or isinstance(values.dtype, pd.StringDtype)


def _converted(values: pd.Series, read: Any, dtype: str) -> Converted:
    distinct: dict[Any, Any] = {}
    got = []
    for value in values.array:
        if pd.api.types.is_scalar(value) and not pd.isna(value):
            key = (type(value), value)
            if key not in distinct:
                distinct[key] = read(value)
            got.append(distinct[key])
        else:
            got.append(None)
    return _account(values, pd.Series(got, index=values.index, dtype=dtype, name=values.name))


def _account(values: pd.Series, found: pd.Series) -> Converted:
    found.name = values.name
    given = values.notna().to_numpy()
    lost = given & found.isna().to_numpy()
    unread = values[lost].astype(str).value_counts()
    return Converted(found, unread, 1.0 if not given.any() else 1 - lost.sum() / given.sum())
