"""Joins whose effect on the rows is known before it happens, and two tables compared value by value.

A join that would multiply rows the caller did not expect to be multiplied is an error, not a larger table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pandas as pd

_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
Expect = Literal["1:1", "1:m", "m:1", "m:m"]


@dataclass(frozen=True)
class KeyReport:
    """Of two tables and a key: rows, rows with a missing key, keys that repeat, rows without a partner, the rows
    that an inner join gives, and `problems`, a sentence each."""

    left_rows: int
    right_rows: int
    left_missing: int
    right_missing: int
    left_repeated: int
    right_repeated: int
    left_only: int
    right_only: int
    inner_rows: int
    problems: tuple[str, ...]

    def __str__(self) -> str:
        facts = [
            f"left  {self.left_rows:,} rows, {self.left_missing:,} without key, {self.left_repeated:,} keys repeat, "
            f"{self.left_only:,} rows without partner",
            f"right {self.right_rows:,} rows, {self.right_missing:,} without key, {self.right_repeated:,} keys repeat, "
            f"{self.right_only:,} rows without partner",
            f"an inner join gives {self.inner_rows:,} rows",
        ]
        return "\n".join([*facts, *(f"- {problem}" for problem in self.problems)])


def key_report(left: pd.DataFrame, right: pd.DataFrame, on: str | Sequence[Any]) -> KeyReport:
    """What joining on the columns `on` would do. Raises KeyError for a column that is not there, ValueError for one
    that is there more than once."""
    names = _names(on)
    ours, theirs = _keys(left, names, "left"), _keys(right, names, "right")
    problems = []
    for at, name in enumerate(names):
        one, other = _uncategorised(left[name]), _uncategorised(right[name])
        kinds = _family(one), _family(other)
        if kinds[0] != kinds[1]:
            told = _told(one, kinds[0]), _told(other, kinds[1])
            problems.append(f"{name}: {told[0]} on the left, {told[1]} on the right; nothing meets until they agree")
        elif kinds[0] == "text":
            one_side, other_side = (set(each.dropna().astype(str)) for each in (one, other))
            plain = [{each.strip().casefold() for each in side} for side in (one_side, other_side)]
            more = len(plain[0] & plain[1]) - len(one_side & other_side)
            if more > 0:
                problems.append(f"{name}: {more} more values meet without case and blanks at the ends")
        elif kinds[0] == "number":
            problems += [f"{name}: {problem}" for problem in _inexact(one, other)]
        if at == 0 and len(left) and len(right) and not set(ours.dropna()) & set(theirs.dropna()):
            problems.append("no key is on both sides")
    a, b = ours.dropna().value_counts(), theirs.dropna().value_counts()
    both = a.index.intersection(b.index)
    return KeyReport(
        len(left), len(right), int(ours.isna().sum()), int(theirs.isna().sum()), int((a > 1).sum()), int((b > 1).sum()),
        int(ours.isna().sum() + a[~a.index.isin(both)].sum()), int(theirs.isna().sum() + b[~b.index.isin(both)].sum()),
        int((a.loc[both] * b.loc[both]).sum()), tuple(problems),
    )  # fmt: skip


def checked_join(
    left: pd.DataFrame,
    right: pd.DataFrame,
    on: str | Sequence[Any],
    *,
    how: Literal["left", "inner", "right", "outer"] = "left",
    expect: Expect = "m:1",
) -> pd.DataFrame:
    """The join, with a column `_merge` telling where each row comes from; rows without a key meet nothing (pandas
    lets them meet each other). `expect` as in the keys' relation left:right. Raises ValueError when a side that must
    have unique keys has not, or key types differ."""
    names = _names(on)
    report = key_report(left, right, names)
    if bad := [problem for problem in report.problems if "until they agree" in problem]:
        raise ValueError("; ".join(bad))
    if expect[0] == "1" and report.left_repeated:
        raise ValueError(f"{report.left_repeated:,} keys repeat on the left, where {expect} wants one row each")
    if expect[-1] == "1" and report.right_repeated:
        raise ValueError(f"{report.right_repeated:,} keys repeat on the right, where {expect} wants one row each")
    empty = right[names].isna().any(axis=1)
    joined = left.merge(right[~empty], on=names, how=how, indicator=True)
    if how in ("right", "outer") and empty.any():
        lone = right[empty].copy()
        lone["_merge"] = pd.Categorical(["right_only"] * len(lone), categories=joined["_merge"].cat.categories)
        clash = (set(left.columns) & set(right.columns)) - set(names)
        lone = lone.rename(columns={name: f"{name}_y" for name in clash})
        joined = pd.concat([joined, lone], ignore_index=True)
    return joined


def reconcile(
    left: pd.DataFrame,
    right: pd.DataFrame,
    key: str | Sequence[Any],
    columns: Sequence[Any] | None = None,
    *,
    tolerance: float = 0.0,
) -> pd.DataFrame:
    """Where two versions of a table differ: one row for each difference with the key, `column`, `left`, `right`,
    `difference` (numbers only) and `what` ("value", "left only", "right only"). Numbers differ when they are more
    than `tolerance` apart, whole numbers and decimals of any size exactly; times when they are other instants; missing
    equals missing. `columns` None: those that both have; `attrs` names the others. Raises ValueError when a key
    repeats or is missing."""
    names = _names(key)
    for table, side in ((left, "left"), (right, "right")):
        keys = _keys(table, names, side)
        if keys.isna().any() or keys.duplicated().any():
            raise ValueError(f"the {side} table has keys that repeat or are missing; reconcile needs one row a key")
    for name in names:
        one, other = _uncategorised(left[name]), _uncategorised(right[name])
        if bad := [each for each in _inexact(one, other) if "until they agree" in each]:
            raise ValueError(f"{name}: {bad[0]}")
    lone = [[name for name in dict.fromkeys(one.columns) if name not in other.columns]
            for one, other in ((left, right), (right, left))]  # fmt: skip
    shared = [name for name in dict.fromkeys(left.columns) if name in right.columns and name not in names]
    wanted = list(columns) if columns is not None else shared
    for name in wanted:
        _only(left, name, "left")
        _only(right, name, "right")
    a, b = (_plain_keys(table, names).set_index(names) for table in (left, right))
    both = a.index.intersection(b.index)
    a_both, b_both = a.loc[both], b.loc[both]
    found = []
    for name in wanted:
        x, y, gap, differ = _compared(a_both[name], b_both[name], tolerance)
        at = np.flatnonzero(differ)
        part = both[at].to_frame(index=False)
        part.columns = pd.Index(names)
        part["column"], part["left"], part["right"] = str(name), list(x[at]), list(y[at])
        part["difference"] = gap[at]
        part["what"] = "value"
        found.append(part.astype({"left": object, "right": object}))
    for keys, what in ((a.index.difference(b.index), "left only"), (b.index.difference(a.index), "right only")):
        part = keys.to_frame(index=False)
        part.columns = pd.Index(names)
        found.append(part.assign(column="", left=None, right=None, difference=np.nan, what=what))
    kept = [part for part in found if len(part)]
    heads = [*names, "column", "left", "right", "difference", "what"]
    told = pd.concat(kept, ignore_index=True)[heads] if kept else pd.DataFrame(columns=heads)
    told.attrs = {"columns on the left only": lone[0], "columns on the right only": lone[1]}
    return told


def _compared(one: pd.Series, other: pd.Series, tolerance: float) -> tuple[np.ndarray, ...]:
    """Both columns' values, right minus left (NaN for what are no numbers), and where they differ."""
    one, other = (_uncategorised(each).reset_index(drop=True) for each in (one, other))
    gone, away = one.isna().to_numpy(), other.isna().to_numpy()
    there = ~gone & ~away
    kinds = {_family(one), _family(other)}
    x, y = one.astype(object).to_numpy(), other.astype(object).to_numpy()
    gap = np.full(len(one), np.nan)
    if kinds == {"number"}:
        p, q = (each.to_numpy(float, na_value=np.nan) for each in (one, other))
        with np.errstate(invalid="ignore"):
            gap = q - p
        large = np.isfinite(p) & np.isfinite(q) & ((np.abs(p) >= 2**53) | (np.abs(q) >= 2**53))
        if object in (one.dtype, other.dtype) or "decimal" in f"{one.dtype}{other.dtype}":
            large = np.isfinite(p) & np.isfinite(q)
        for at in np.flatnonzero(large):  # floats cannot tell these apart
            if {type(x[at]), type(y[at])} not in ({Decimal, float}, {Decimal, np.float64}):  # 1.1 is no decimal 1.1
                gap[at] = float(_fraction(y[at]) - _fraction(x[at]))
        differ = (np.abs(gap) > tolerance) | (there & np.isnan(gap) & (p != q))
    elif len(kinds) == 1 and kinds <= {"time", "time with a zone"}:
        p, q = (each.dt.tz_convert("UTC") if each.dt.tz is not None else each for each in (one, other))
        differ = there & (p != q).to_numpy(bool, na_value=False)
    else:
        p, q = (np.array([str(value) for value in values], dtype=object) for values in (x, y))
        differ = there & (p != q)
    return x, y, gap, differ | (gone != away)


def _fraction(value: Any) -> Fraction:
    return Fraction(value.item() if isinstance(value, np.generic) else value)


def _names(on: str | Sequence[Any]) -> list[Any]:
    names = [on] if isinstance(on, (str, tuple)) else list(on)
    if not names:
        raise ValueError("name at least one key column")
    return names


def _keys(table: pd.DataFrame, names: list[Any], side: str) -> pd.Series:
    """One value a row, missing where any part of the key is."""
    held = [_uncategorised(_only(table, name, side)) for name in names]
    if len(names) == 1:
        return held[0]
    keys = pd.Series(list(zip(*held, strict=True)), index=table.index, dtype=object)
    return keys.mask(table[names].isna().any(axis=1))


def _only(table: pd.DataFrame, name: Any, side: str) -> pd.Series:
    times = int(sum(each == name for each in table.columns))
    if times == 0:
        raise KeyError(f"the {side} table has no column {name!r}; it has {', '.join(map(str, table.columns[:20]))}")
    if times > 1:
        raise ValueError(f"the {side} table has {times} columns {name!r}; rename them first")
    return table[name]


def _plain_keys(table: pd.DataFrame, names: list[Any]) -> pd.DataFrame:
    made = table.copy(deep=False)
    for name in names:
        made[name] = _uncategorised(table[name])
    return made


def _uncategorised(values: pd.Series) -> pd.Series:
    """Categories as what they are: those that no row has would count as keys."""
    if not isinstance(values.dtype, pd.CategoricalDtype):
        return values
    dtype, types = values.dtype.categories.dtype, pd.api.types
    if values.isna().any() and dtype.kind in "biu" and not types.is_extension_array_dtype(dtype):
        nullable = {"b": "boolean", "u": "UInt64"}.get(dtype.kind, "Int64")
        return values.astype(object).astype(nullable)
    return values.astype(dtype)


def _inexact(one: pd.Series, other: pd.Series) -> list[str]:
    """What keeps numbers as keys from meeting exactly, a sentence each."""
    kinds = []
    for values in (one, other):
        types = pd.api.types
        if _family(values) != "number":
            return []
        whole = types.is_object_dtype(values.dtype) or types.is_signed_integer_dtype(values.dtype)
        kinds.append("signed" if whole else "unsigned" if types.is_integer_dtype(values.dtype) else "float")
    numbers = pd.concat([pd.to_numeric(each, errors="coerce").astype("Float64") for each in (one, other)])
    if not (numbers.abs() >= 2**53).any():
        return []
    if kinds[0] != kinds[1]:
        return [f"whole numbers beyond 2**53, {one.dtype} on the left and {other.dtype} on the right, are taken for "
                "each other until they agree"]  # fmt: skip
    return ["floats beyond 2**53 stand for several whole numbers"] if kinds[0] == "float" else []


def _is_text(values: pd.Series) -> bool:
    return values.dtype == object or isinstance(values.dtype, pd.StringDtype)


def _told(values: pd.Series, kind: str) -> str:
    return f"{values.dtype} of {kind}" if pd.api.types.is_object_dtype(values.dtype) else str(values.dtype)


def _family(values: pd.Series) -> str:
    types, dtype = pd.api.types, values.dtype
    if values.empty or values.isna().all():
        return "number" if types.is_numeric_dtype(dtype) else "text" if _is_text(values) else str(dtype)
    if types.is_bool_dtype(dtype):
        return "truth"
    if types.is_complex_dtype(dtype):
        return "complex"
    if types.is_numeric_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype):
        return "time" if values.dt.tz is None else "time with a zone"
    if isinstance(dtype, pd.CategoricalDtype):
        return _family(pd.Series(dtype.categories))
    if types.is_object_dtype(dtype):
        kind = types.infer_dtype(values, skipna=True)
        return {"boolean": "truth", "date": "date"}.get(kind, "number" if kind in _NUMBERS else "text")
    return "text" if _is_text(values) else str(dtype)
