"""Differences between groups with their size and their uncertainty, by resampling: no normal distribution assumed.

Missing values are dropped and counted. The same `seed` gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

MOST_CELLS = 20_000_000
"""Random numbers drawn at once; more are drawn in parts."""


@dataclass(frozen=True)
class Comparison:
    """Two groups and a number. `difference` is mean of `second` minus mean of `first`, `low` and `high` its 95 %
    interval; `p` of a permutation test of the difference in units of its error (so that groups may spread
    differently), two-sided; `g` the difference in standard deviations (Hedges), `above` the
    chance that a value of `second` exceeds one of `first` (ties half); `notes` what to keep in mind."""

    first: str
    second: str
    counts: tuple[int, int]
    means: tuple[float, float]
    medians: tuple[float, float]
    difference: float
    low: float
    high: float
    p: float
    g: float
    above: float
    dropped: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{name}: n={count:,}, mean {_shown(mean, self.difference)}, median {_shown(median, self.difference)}"
            for name, count, mean, median in zip(
                (self.first, self.second), self.counts, self.means, self.medians, strict=True
            )
        ]
        lines += [
            f"difference {self.difference:.4g} (95 % interval {self.low:.4g} to {self.high:.4g}), p = {self.p:.2g}",
            f"in standard deviations {self.g:.2f}; {self.second} is the higher one in {self.above:.0%} of pairs",
        ]
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)])


def compare(table: pd.DataFrame, value: Any, group: Any, *, pair: tuple[Any, Any] | None = None, draws: int = 4_000,
            seed: int = 0) -> Comparison:  # fmt: skip
    """Compare a numeric column between two groups; `pair` names them when there are more. Raises ValueError when
    there are not exactly two groups or one has fewer than two values, TypeError for a column of no numbers."""
    values, groups = _only(table, value), _only(table, group)
    types, dtype = pd.api.types, values.dtype
    if not types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype) or types.is_complex_dtype(dtype):
        raise TypeError(f"{value!r} is {values.dtype}; convert it to numbers first, or use associate() for categories")
    given = values.to_numpy(float, na_value=np.nan)
    held = np.isfinite(given) & groups.notna().to_numpy()
    names = list(pair) if pair is not None else sorted(groups[held].unique(), key=str)
    if len(names) != 2:
        raise ValueError(f"{len(names)} groups ({', '.join(map(str, names[:8]))}); name two with pair=(a, b)")
    x, y = (given[held & (groups == name).to_numpy(bool, na_value=False)] for name in names)
    for name, each in zip(names, (x, y), strict=True):
        if len(each) < 2:
            raise ValueError(f"group {name!r} has {len(each)} values; at least two are needed, and twenty are wanted")
    random = np.random.default_rng(seed)
    pooled, size = np.concatenate([x, y]), len(x)
    for _ in range(2):  # large numbers close together keep their digits; the first mean is rounded
        pooled -= pooled.mean()
    squares, rounding = float(pooled @ pooled), 1e-12 * float(np.abs(pooled).max())
    gap, real = pooled[size:].mean() - pooled[:size].mean(), _in_errors(pooled, size, squares, rounding)
    hits, booted = 0, []
    for _ in range(draws):
        if len(pooled) > 100_000:
            break
        random.shuffle(pooled)
        hits += _in_errors(pooled, size, squares, rounding) >= real * (1 - 1e-9)
    else:
        p = (hits + 1) / (draws + 1)
        for each in (x, y):
            part = max(1, MOST_CELLS // len(each))
            booted.append(np.concatenate([
                each[random.integers(0, len(each), (min(part, draws - at), len(each)))].mean(axis=1)
                for at in range(0, draws, part)
            ]))  # fmt: skip
        low, high = np.quantile(booted[1] - booted[0], [0.025, 0.975])
    notes = []
    if lost := int((~held).sum()):
        endless = int(np.isinf(given).sum())
        more = f", {endless:,} of them infinite" if endless else ""
        notes.append(f"{lost:,} rows without value or group left out{more}")
    if not booted:  # means of so many values are normal; resampling would only cost time
        error = float(np.sqrt(x.var(ddof=1) / len(x) + y.var(ddof=1) / len(y)))
        p, low, high = _normal_p(gap / error) if error else float(gap == 0), gap - 1.96 * error, gap + 1.96 * error
        notes.append("more than 100,000 values: interval and p by the normal approximation")
    if min(len(x), len(y)) < 20:
        notes.append("a group has fewer than 20 values: treat the interval as rough")
    if max(len(x), len(y)) > 10_000 and abs(_hedges(x, y)) < 0.1:
        notes.append("with so many values trifles become significant: judge the size of the difference")
    if any(_skewed(each) for each in (x, y)):
        notes.append("a group is strongly skewed: report the medians too, and consider the logarithm")
    return Comparison(
        str(names[0]), str(names[1]), (len(x), len(y)), (float(x.mean()), float(y.mean())),
        (float(np.median(x)), float(np.median(y))), float(gap), float(low), float(high), float(p),
        _hedges(x, y), _above(x, y), lost, tuple(notes),
    )  # fmt: skip


@dataclass(frozen=True)
class Association:
    """Two columns of categories: `counts`, `shares` within rows, `v` (Cramér, 0 to 1), `p` of a permutation test."""

    counts: pd.DataFrame
    shares: pd.DataFrame
    v: float
    p: float
    notes: tuple[str, ...]

    def __str__(self) -> str:
        notes = "".join(f"\n- {note}" for note in self.notes)
        return f"{self.counts}\n\n{self.shares.round(3)}\nCramér's V {self.v:.2f}, p = {self.p:.2g}{notes}"


def associate(table: pd.DataFrame, one: Any, other: Any, *, draws: int = 2_000, seed: int = 0) -> Association:
    """Whether two columns of categories go together. Raises ValueError when one has fewer than two values, or more
    than 50 (group them first)."""
    first, second = _only(table, one), _only(table, other)
    held = (first.notna() & second.notna()).to_numpy()
    a, names_a = pd.factorize(first[held], sort=False)
    b, names_b = pd.factorize(second[held], sort=False)
    for name, names in ((one, names_a), (other, names_b)):
        if not 2 <= len(names) <= 50:
            raise ValueError(f"{name!r} has {len(names)} values; two to 50 can be compared")
    shape = (len(names_a), len(names_b))

    def chi(left: np.ndarray, right: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        counts = np.bincount(left * shape[1] + right, minlength=shape[0] * shape[1]).reshape(shape)
        expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / counts.sum()
        return float(((counts - expected) ** 2 / expected).sum()), counts, expected

    real, counts, expected = chi(a, b)
    rounds = min(draws, max(99, 200_000_000 // max(1, len(a) * 20)))
    random = np.random.default_rng(seed)
    hits = sum(chi(a, random.permutation(b))[0] >= real * (1 - 1e-12) for _ in range(rounds))
    frame = pd.DataFrame(counts, index=pd.Index(names_a, name=one), columns=pd.Index(names_b, name=other))
    rare = int((expected < 5).sum())
    notes = (f"{int((~held).sum()):,} rows with a missing value left out",) if not held.all() else ()
    notes += (f"{rare} cells expect fewer than five: merge rare values",) if rare else ()
    shares = frame.div(frame.sum(axis=1), axis=0)
    strength = float(np.sqrt(real / len(a) / (min(shape) - 1)))
    return Association(frame, shares, strength, (hits + 1) / (rounds + 1), notes)


def holm(p_values: Mapping[str, float]) -> pd.DataFrame:
    """P values of several tests, corrected so that one false alarm among all keeps its probability (Holm): `p`,
    `corrected`, smallest first. Raises ValueError for one outside 0 to 1."""
    if bad := [name for name, p in p_values.items() if not 0 <= p <= 1]:
        raise ValueError(f"no probability: {', '.join(bad)}")
    ordered = sorted(p_values.items(), key=lambda pair: pair[1])
    rows, floor = [], 0.0
    for at, (name, p) in enumerate(ordered):
        floor = max(floor, min(1.0, p * (len(ordered) - at)))
        rows.append((name, p, floor))
    return pd.DataFrame(rows, columns=["test", "p", "corrected"])


def _only(table: pd.DataFrame, name: Any) -> pd.Series:
    values = table[name]
    if isinstance(values, pd.DataFrame):
        raise ValueError(f"{name!r} names {values.shape[1]} columns; rename them first")
    return values


def _normal_p(z: float) -> float:
    from math import erfc, sqrt

    return erfc(abs(z) / sqrt(2))


def _hedges(x: np.ndarray, y: np.ndarray) -> float:
    free = len(x) + len(y) - 2
    spread = np.sqrt(((len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)) / free)
    gap = y.mean() - x.mean()
    if not spread:
        return float("nan") if gap else 0.0
    return float(gap / spread * (1 - 3 / (4 * free - 1)))


def _in_errors(values: np.ndarray, size: int, squares: float, rounding: float) -> float:
    """How many standard errors lie between the means of the first `size` values and the rest; the mean of all is 0,
    `squares` the sum of their squares."""
    first, others = values[:size], len(values) - size
    total, part = float(first.sum()), float(first @ first)
    gap = abs(total / size + total / others)
    if gap <= rounding:
        return 0.0
    error = (part - total**2 / size) / (size - 1) / size + (squares - part - total**2 / others) / (others - 1) / others
    return gap / error**0.5 if error > (1e-7 * gap) ** 2 else float("inf")


def _shown(value: float, difference: float) -> str:
    """With as many digits as the difference needs to be seen."""
    digits = 4
    if value and difference and np.isfinite(value):
        digits += max(0, int(np.floor(np.log10(abs(value))) - np.floor(np.log10(abs(difference)))))
    return f"{value:.{min(digits, 15)}g}"


def _above(x: np.ndarray, y: np.ndarray) -> float:
    ordered = np.sort(x)
    below, upto = np.searchsorted(ordered, y, "left"), np.searchsorted(ordered, y, "right")
    return float((below + upto).mean() / 2 / len(x))


def _skewed(values: np.ndarray) -> bool:
    spread = values.std()
    return bool(spread and abs(((values - values.mean()) ** 3).mean() / spread**3) > 2)
