"""Is a series fit for analysis over time, and does a forecast beat doing nothing? Nothing looks into the future.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

Forecast = Callable[[pd.Series, int], "np.ndarray"]
"""Takes the past and a number of steps, gives that many values."""


@dataclass(frozen=True)
class TimeReport:
    """`step` the most common distance ("" for fewer than two times); `gaps` one row each with `after`, `before` and
    `missing` (how many steps); `problems` a sentence each."""

    count: int
    first: pd.Timestamp | None
    last: pd.Timestamp | None
    zone: str
    step: str
    repeated: int
    gaps: pd.DataFrame
    problems: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.count:,} times, {self.first} to {self.last}, zone {self.zone or 'none'}, step {self.step or '?'}"
        return "\n".join([head, *(f"- {problem}" for problem in self.problems or ("regular and complete",))])


def check_times(times: pd.Series | pd.DatetimeIndex) -> TimeReport:
    """What is odd about a column or index of times. Raises TypeError when they are not times: texts must be parsed
    first, with a stated format."""
    values = pd.Series(times).reset_index(drop=True)
    if not pd.api.types.is_datetime64_any_dtype(values.dtype):
        raise TypeError(f"times are {values.dtype}; parse them first: pd.to_datetime(values, format=...)")
    problems = []
    zone = str(values.dt.tz) if values.dt.tz is not None else ""
    if missing := int(values.isna().sum()):
        problems.append(f"{missing:,} times are missing")
    held = values.dropna()
    if not held.is_monotonic_increasing:
        problems.append("not sorted by time: sort before any shift, diff or rolling")
    if repeated := int(held.duplicated().sum()):
        problems.append(f"{repeated:,} times repeat: several series in one, or the hour that comes twice in autumn")
    ordered = held.drop_duplicates().sort_values().reset_index(drop=True)
    if len(ordered) < 2:
        first = ordered.iloc[0] if len(ordered) else None
        empty = pd.DataFrame(columns=["after", "before", "missing"])
        return TimeReport(len(values), first, first, zone, "", repeated, empty, tuple(problems))
    clock, step = _clock(ordered, zone)
    steps = clock.diff().dropna()
    parts = _whole_steps(clock, step)
    wide = parts > 1
    usual = ((steps - step).abs() <= 0.1 * step).mean()
    even = _calendar(step) or usual >= 0.25 or ((steps - parts * step).abs() <= 0.1 * step).mean() >= 0.9
    if not even:
        problems.append(f"irregular: the most common distance, {step}, is that of {usual:.0%} of the steps, so gaps "
                        "cannot be told; resample before modelling")  # fmt: skip
        wide[:] = False
    at = steps.index[wide]
    gaps = pd.DataFrame({
        "after": ordered.loc[at - 1].to_numpy(), "before": ordered.loc[at].to_numpy(), "missing": parts[wide] - 1,
    })  # fmt: skip
    if len(gaps):
        problems.append(f"{len(gaps):,} gaps, {int(gaps['missing'].sum()):,} steps of {step} missing; the longest "
                        f"{int(gaps['missing'].max()):,}")  # fmt: skip
        weekend = (ordered.loc[at - 1].dt.day_of_week == 4).mean()
        if step == pd.Timedelta("1D") and weekend > 0.8:
            problems.append("most gaps are weekends: a business calendar, not missing data")
    if even and not _calendar(step):
        uneven = int((steps < 0.9 * step).sum()), int(((steps - parts * step).abs()[steps > step] > 0.1 * step).sum())
        for many, what in zip(uneven, ("shorter than the common one", "no whole number of common ones"), strict=True):
            if many:
                problems.append(f"{many:,} steps are {what}: irregular, resample before modelling")
    if not zone and step < pd.Timedelta("1D"):
        problems.append("no time zone: local or UTC? Changes of clocks cannot be told from gaps and repeats")
    return TimeReport(len(values), ordered.iloc[0], ordered.iloc[-1], zone, str(step), repeated, gaps, tuple(problems))


def _clock(ordered: pd.Series, zone: str) -> tuple[pd.Series, pd.Timedelta]:
    """The times in which the steps are even, and the common step. Days, weeks and months are even by the clock on the
    wall, whose days have 23 to 25 hours; hours and less are even in time that passes."""
    step = _common(ordered.diff().dropna())
    if not zone or step <= pd.Timedelta("1h"):
        return ordered, step
    wall = ordered.dt.tz_localize(None)
    local = _common(wall.diff().dropna())
    odd = [int((each.diff().dropna() != size).sum()) for each, size in ((ordered, step), (wall, local))]
    return (wall, local) if odd[1] < odd[0] else (ordered, step)


def _common(steps: pd.Series) -> pd.Timedelta:
    """The most frequent step; the middle one where times tremble so that no two steps are alike."""
    sizes = [pd.Timedelta(steps.mode().iloc[0]), pd.Timedelta(steps.median())]
    return max(sizes, key=lambda size: ((steps - size).abs() <= 0.1 * size).mean())


def _calendar(step: pd.Timedelta) -> bool:
    return pd.Timedelta("27D") < step < pd.Timedelta("400D")


def _whole_steps(clock: pd.Series, step: pd.Timedelta) -> np.ndarray:
    """How many steps lie between each time and the next, at least one. Months and years have no one length."""
    steps = clock.diff().dropna()
    if _calendar(step) and (steps == step).mean() < 0.9:
        months = (clock.dt.year * 12 + clock.dt.month).diff().dropna().to_numpy(dtype=float)
        ratio = months / max(1, round(step / pd.Timedelta("30.44D")))
        ratio = np.where(steps.to_numpy() <= 1.2 * step, 1, ratio)
    else:
        ratio = (steps / step).to_numpy(dtype=float)
    return np.maximum(1, np.floor(ratio + 0.5)).astype(int)


def naive(past: pd.Series, steps: int) -> np.ndarray:
    """The last value, again and again."""
    return np.full(steps, past.iloc[-1], dtype=float)


def seasonal_naive(period: int) -> Forecast:
    """A forecast that repeats the last `period` values. Raises ValueError for a period below 1, and when the past has
    fewer values than that."""
    if period < 1:
        raise ValueError("a period has at least one step")

    def forecast(past: pd.Series, steps: int) -> np.ndarray:
        if len(past) < period:
            raise ValueError(f"a season of {period} steps cannot be repeated from {len(past)} values")
        season = past.iloc[-period:].to_numpy(dtype=float)
        return np.resize(season, steps)

    return forecast


def drift(past: pd.Series, steps: int) -> np.ndarray:
    """The straight line through the first and the last value, continued."""
    slope = (past.iloc[-1] - past.iloc[0]) / max(1, len(past) - 1)
    return np.asarray(past.iloc[-1] + slope * np.arange(1, steps + 1), dtype=float)


def backtest(series: pd.Series, forecasts: Mapping[str, Forecast], *, horizon: int, folds: int = 5) -> pd.DataFrame:
    """Errors of forecasts, each made from the past alone, at `folds` origins whose horizons do not overlap and end
    with the series. One row a forecast, the best first: `mae`, `bias` (forecast minus truth), `worst_fold` (its mae)
    and `against_naive` (mae divided by that of the last value; below 1 is better). The series is in order of time
    without missing or infinite values. Raises ValueError otherwise or when it is too short."""
    values = series.astype(float)
    if bad := int((~np.isfinite(values)).sum()):
        raise ValueError(f"{bad} values are missing or infinite; fill or cut them knowingly first")
    if isinstance(values.index, pd.DatetimeIndex) and not values.index.is_monotonic_increasing:
        raise ValueError("the series is not in order of time; series.sort_index() first")
    if horizon < 1 or folds < 1 or len(values) < horizon * folds + max(2, horizon):
        raise ValueError(f"{len(values)} values are too few for {folds} folds of {horizon} steps")
    rows = []
    for name, forecast in {"naive": naive, **forecasts}.items():
        errors = []
        for fold in range(folds, 0, -1):
            cut = len(values) - fold * horizon
            told = np.asarray(forecast(values.iloc[:cut], horizon), dtype=float)
            if told.shape != (horizon,):
                raise ValueError(f"{name} gave {told.shape} values instead of ({horizon},)")
            errors.append(told - values.iloc[cut : cut + horizon].to_numpy())
        off = np.asarray(errors)
        rows.append((name, np.abs(off).mean(), off.mean(), np.abs(off).mean(axis=1).max()))
    table = pd.DataFrame(rows, columns=["forecast", "mae", "bias", "worst_fold"])
    floor = table.loc[table["forecast"] == "naive", "mae"].iloc[0]
    table["against_naive"] = table["mae"] / floor if floor else np.nan
    return table.sort_values("mae", ignore_index=True)
