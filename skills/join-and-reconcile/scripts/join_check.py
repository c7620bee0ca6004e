"""Joins whose effect on the rows is known before it happens, and two tables compared value by value.

A join that would multiply rows the caller did not expect to be multiplied is an error, not a larger table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

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
        one, other = left[name].dtype, right[name].dtype
        if _family(left[name]) != _family(right[name]):
            problems.append(f"{name}: {one} on the left, {other} on the right; nothing meets until they agree")
        elif _is_text(left[name]):
            one_side, other_side = (set(table[name].dropna().astype(str)) for table in (left, right))
            plain = [{each.strip().casefold() for each in side} for side in (one_side, other_side)]
            more = len(plain[0] & plain[1]) - len(one_side & other_side)
            if more > 0:
                problems.append(f"{name}: {more} more values meet without case and blanks at the ends")
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
    than `tolerance` apart; missing equals missing. Raises ValueError when a key repeats or is missing."""
    names = _names(key)
    for table, side in ((left, "left"), (right, "right")):
        keys = _keys(table, names, side)
        if keys.isna().any() or keys.duplicated().any():
            raise ValueError(f"the {side} table has keys that repeat or are missing; reconcile needs one row a key")
    shared = [name for name in left.columns if name in right.columns and name not in names]
    wanted = list(columns) if columns is not None else shared
    a, b = left.set_index(names), right.set_index(names)
    both = a.index.intersection(b.index)
    a_both, b_both = a.loc[both], b.loc[both]
    found = []
    for name in wanted:
        one, other = a_both[name], b_both[name]
        numbers = all(_family(each) == "number" for each in (one, other))
        if numbers:
            x, y = one.to_numpy(float, na_value=np.nan), other.to_numpy(float, na_value=np.nan)
            gap = np.abs(x - y)
            differ = (gap > tolerance) & (x != y) | (np.isnan(x) != np.isnan(y))
        else:
            x, y = one.astype(object).to_numpy(), other.astype(object).to_numpy()
            missing = (one.isna().to_numpy(), other.isna().to_numpy())
            differ = (one.astype(str).to_numpy() != other.astype(str).to_numpy()) & ~(missing[0] & missing[1])
        at = np.flatnonzero(differ)
        part = both[at].to_frame(index=False)
        part.columns = pd.Index(names)
        part["column"], part["left"], part["right"] = str(name), list(x[at]), list(y[at])
        part["difference"] = (y[at] - x[at]) if numbers else np.nan
        part["what"] = "value"
        found.append(part.astype({"left": object, "right": object}))
    for lone, what in ((a.index.difference(b.index), "left only"), (b.index.difference(a.index), "right only")):
        part = lone.to_frame(index=False)
        part.columns = pd.Index(names)
        found.append(part.assign(column="", left=None, right=None, difference=np.nan, what=what))
    kept = [part for part in found if len(part)]
    heads = [*names, "column", "left", "right", "difference", "what"]
    return pd.concat(kept, ignore_index=True)[heads] if kept else pd.DataFrame(columns=heads)


def _names(on: str | Sequence[Any]) -> list[Any]:
    names = [on] if isinstance(on, (str, tuple)) else list(on)
    if not names:
        raise ValueError("name at least one key column")
    return names


def _keys(table: pd.DataFrame, names: list[Any], side: str) -> pd.Series:
    """One value a row, missing where any part of the key is."""
    for name in names:
        times = int(sum(each == name for each in table.columns))
        if times == 0:
            raise KeyError(f"the {side} table has no column {name!r}; it has {', '.join(map(str, table.columns[:20]))}")
        if times > 1:
            raise ValueError(f"the {side} table has {times} columns {name!r}; rename them first")
    if len(names) == 1:
        return table[names[0]]
    keys = pd.Series(list(zip(*(table[name] for name in names), strict=True)), index=table.index, dtype=object)
    return keys.mask(table[names].isna().any(axis=1))


def _is_text(values: pd.Series) -> bool:
    return values.dtype == object or isinstance(values.dtype, pd.StringDtype)


def _family(values: pd.Series) -> str:
    types, dtype = pd.api.types, values.dtype
    if values.empty or values.isna().all():
        return "number" if types.is_numeric_dtype(dtype) else "text" if _is_text(values) else str(dtype)
    if types.is_bool_dtype(dtype):
        return "truth"
    if types.is_numeric_dtype(dtype):
        return "number"
    if isinstance(dtype, pd.DatetimeTZDtype):
        return "time with a zone"
    if types.is_datetime64_any_dtype(dtype):
        return "time"
    if isinstance(dtype, pd.CategoricalDtype):
        return _family(pd.Series(dtype.categories))
    return "text" if _is_text(values) else str(dtype)
