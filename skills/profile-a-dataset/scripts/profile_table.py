"""What a table holds, column by column, and what in it should make one stop. Never changes the table.

Columns are taken by position, so that names may repeat, be no text, or have several levels.
"""

from __future__ import annotations

import datetime
import numbers
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

MANY_MISSING = 0.2
SAMPLE = 20_000
"""Values of a text column that are looked at for numbers and dates kept as text."""
PLACEHOLDERS = frozenset(("", "-", "--", "?", ".", "na", "n/a", "nan", "none", "null", "unknown", "missing", "#n/a"))
SENTINELS = (-9999, -999, -99, 999, 9999, 99999)


@dataclass(frozen=True)
class Profile:
    """`rows`, `width`; `bytes` in memory; `duplicate_rows` beyond the first of each; `columns` one row a column of
    the table; `warnings` a sentence each, the gravest first."""

    rows: int
    width: int
    bytes: int
    duplicate_rows: int
    columns: pd.DataFrame
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.rows:,} rows × {self.width:,} columns, {self.bytes / 1e6:,.1f} MB, "
        head += f"{self.duplicate_rows:,} repeated rows"
        with pd.option_context("display.max_columns", 30, "display.width", 200):
            body = self.columns.head(40).to_string(index=False) if self.width else "(no columns)"
        more = f"\n… and {self.width - 40} more columns in .columns" if self.width > 40 else ""
        told = "\n".join(f"- {warning}" for warning in self.warnings) or "- nothing stands out"
        return f"{head}\n{body}{more}\nWarnings\n{told}"


def profile(table: pd.DataFrame) -> Profile:
    """The profile of a table of any size and shape. Raises TypeError for what is no DataFrame."""
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"profile() takes a DataFrame, not {type(table).__name__}; a Series goes in as s.to_frame()")
    facts, warnings = [], _of_table(table)
    for at, name in enumerate(table.columns):
        fact, found = _column(table.iloc[:, at], label(name))
        facts.append(fact)
        warnings += found
    repeated = _repeated(table)
    if repeated:
        warnings.insert(0, f"{repeated:,} rows repeat an earlier row in every column: is that an error of loading?")
    names = ["column", "dtype", "kind", "missing", "distinct", "low", "middle", "high"]
    columns = pd.DataFrame(facts, columns=names)
    size = int(table.memory_usage(deep=True).sum())
    return Profile(len(table), table.shape[1], size, repeated, columns, tuple(warnings))


def label(name: Any) -> str:
    """A column's name as text; the levels of a MultiIndex joined by " / "."""
    return " / ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def kind_of(values: pd.Series) -> str:
    """ "empty", "truth", "number", "time", "duration", "category", "text", "mixed", "nested" or "other" (objects of
    one type that is none of these)."""
    held = values.dropna()
    if held.empty:
        return "empty"
    types = pd.api.types
    if types.is_bool_dtype(values.dtype):
        return "truth"
    if isinstance(values.dtype, pd.CategoricalDtype):
        return "category"
    if types.is_numeric_dtype(values.dtype):
        return "number"
    if types.is_datetime64_any_dtype(values.dtype) or isinstance(values.dtype, pd.PeriodDtype):
        return "time"
    if types.is_timedelta64_dtype(values.dtype):
        return "duration"
    if values.dtype != object:
        return "text"
    found = {type(value) for value in held}
    if found & {list, dict, set, tuple, np.ndarray}:
        return "nested"
    if found == {str} or found == {bool}:
        return "text" if found == {str} else "truth"
    if all(issubclass(kind, (numbers.Number, Decimal)) and kind is not bool for kind in found):
        return "number"
    if len(found) == 1:
        return "time" if issubclass(next(iter(found)), (datetime.date, datetime.time)) else "other"
    return "mixed"


def _some(held: pd.Series) -> pd.Series:
    """All values, or an even sample from the whole length, so that what is odd further down is seen too."""
    return held if len(held) <= SAMPLE else held.iloc[:: -(-len(held) // SAMPLE)]


def _distinct(values: pd.Series) -> int:
    try:
        return int(values.nunique())
    except TypeError:  # lists and the like have no hash
        return int(values.dropna().map(repr).nunique())


def _repeated(table: pd.DataFrame) -> int:
    if not len(table) or not table.shape[1]:
        return 0
    plain = table.set_axis(range(table.shape[1]), axis=1)  # pandas looks columns up by name, which may be NaN
    try:
        return int(plain.duplicated().sum())
    except TypeError:
        return int(plain.astype(str).duplicated().sum())


def _of_table(table: pd.DataFrame) -> list[str]:
    warnings = []
    if not len(table):
        warnings.append("the table has no rows")
    names = pd.Index([label(name) for name in table.columns])
    if names.has_duplicates:
        warnings.append(f"column names repeat: {_few(names[names.duplicated()].unique())}; select them by position")
    if odd := [name for name in names if name != name.strip() or not name.strip()]:
        warnings.append(f"column names with blanks at an end or none at all: {_few(map(repr, odd))}")
    if isinstance(table.columns, pd.MultiIndex):
        warnings.append(f"column names have {table.columns.nlevels} levels")
    if len(table) and table.index.has_duplicates:
        warnings.append("the index repeats: .loc returns several rows for one label")
    return warnings


def _few(names: Any) -> str:
    found = [str(name) for name in names]
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def _column(values: pd.Series, name: str) -> tuple[tuple[Any, ...], list[str]]:
    kind, count = kind_of(values), len(values)
    missing = float(values.isna().mean()) if count else 0.0
    distinct = _distinct(values)
    low = middle = high = ""
    warnings: list[str] = []
    if kind == "empty" and count:
        warnings.append(f"{name}: every value is missing")
    elif missing > MANY_MISSING:
        warnings.append(f"{name}: {_share(missing)} missing; find out why before filling or dropping")
    if kind == "number":
        low, middle, high = _numbers(values, name, warnings)
    elif kind in ("time", "duration"):
        held = values.dropna()
        try:
            low, high = str(held.min()), str(held.max())
        except TypeError:
            warnings.append(f"{name}: times with and without a zone, which have no order")
    elif kind in ("text", "category", "truth"):
        common = values.value_counts().head(1)
        middle = f"{str(common.index[0])[:24]!r} ×{int(common.iloc[0]):,}" if len(common) else ""
        if kind == "text":
            _texts(values.dropna(), name, distinct, warnings)
    elif kind == "mixed":
        found = sorted({type(value).__name__ for value in values.dropna()})
        warnings.append(f"{name}: mixed types ({', '.join(found)})")
    elif kind == "other":
        warnings.append(f"{name}: values are of type {type(values.dropna().iloc[0]).__name__}")
    if distinct == 1 and count > 1 and not missing:
        warnings.append(f"{name}: one value only")
    return (name, str(values.dtype), kind, _share(missing), distinct, low, middle, high), warnings


def _share(part: float) -> str:
    """Neither none nor all when it is not."""
    return "<0.1%" if 0 < part < 0.0005 else ">99.9%" if 0.9995 <= part < 1 else f"{part:.1%}"


def _numbers(values: pd.Series, name: str, warnings: list[str]) -> tuple[str, str, str]:
    given = values.dropna()
    if pd.api.types.is_complex_dtype(given.dtype) or any(isinstance(value, complex) for value in _some(given)):
        return "", "", ""
    found = given.to_numpy(dtype=float)
    if infinite := int(np.isinf(found).sum()):
        warnings.append(f"{name}: {infinite:,} infinite values; means and models break on them")
        found = found[np.isfinite(found)]
    if not found.size:
        return "", "", ""
    low, first, middle, third, high = np.quantile(found, [0, 0.25, 0.5, 0.75, 1])
    spread = third - first
    for sentinel in SENTINELS:
        share = int((found == sentinel).sum())
        if share and (sentinel in (low, high)) and abs(sentinel - middle) > 5 * spread:
            warnings.append(f"{name}: {share:,} × {sentinel}, far from the rest: a code for missing?")
    far = int(((found < first - 6 * spread) | (found > third + 6 * spread)).sum()) if spread else 0
    if far:
        warnings.append(f"{name}: {far:,} values lie more than six quartile ranges outside the middle half")
    if pd.api.types.is_integer_dtype(values.dtype):  # to the last digit, which floats have not beyond 2**53
        return str(given.min()), f"{middle:.15g}", str(given.max())
    return f"{low:.6g}", f"{middle:.6g}", f"{high:.6g}"


def _texts(held: pd.Series, name: str, distinct: int, warnings: list[str]) -> None:
    some = _some(held).astype(str)
    plain = some.str.strip().str.lower()
    hidden = plain[plain.isin(PLACEHOLDERS)]
    if len(hidden):
        warnings.append(f"{name}: missing values written as text ({_few(map(repr, hidden.unique()))})")
    real = some[~plain.isin(PLACEHOLDERS)]
    if not len(real):
        return
    if pd.to_numeric(real.str.replace(r"[,$€£%\s]", "", regex=True), errors="coerce").notna().mean() > 0.9:
        warnings.append(f"{name}: numbers kept as text")
    elif real.str.match(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}").mean() > 0.9:
        warnings.append(f"{name}: dates kept as text")
    elif distinct < len(held) and plain.nunique() < some.nunique():
        warnings.append(f"{name}: values that differ in case or blanks only")
