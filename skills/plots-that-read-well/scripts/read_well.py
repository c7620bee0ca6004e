"""Which plot fits the columns, and what in a drawn one keeps a reader from reading it.

Works on axes that exist; draws nothing and changes only what `finish` is told to.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd

MOST_COLOURS = 7
MOST_MARKS = 5_000
"""Rules of thumb: series told apart by colour, and points that do not cover each other in a plot of usual size."""


def suggest(table: pd.DataFrame, x: Any, y: Any | None = None) -> str:
    """One sentence: which plot for a column, or for two. Raises KeyError for an unknown or repeated column."""
    one = _kind(_only(table, x))
    rows = len(table)
    if not rows:
        return "nothing to draw: the table has no rows"
    if y is None:
        if one == "number":
            return "a histogram (30 bins; logarithmic axis if it spans more than three powers of ten)"
        if one == "time":
            return "counts per day, week or month as a line"
        few = _distinct(_only(table, x))
        if few > 20:
            return f"{few} values: the 15 most frequent as horizontal bars, sorted, the rest as one bar 'other'"
        return "horizontal bars of counts, sorted by length"
    other = _kind(_only(table, y))
    if {one, other} == {"time", "number"}:
        return "a line over time, gaps left open" + ("; resample first, else it is a smear" if rows > 5_000 else "")
    if one == other == "number":
        return "hexbin or a 2-d histogram, points would cover each other" if rows > MOST_MARKS else "a scatter plot"
    if {one, other} == {"number", "group"}:
        number, group = (x, y) if one == "number" else (y, x)
        drawn = _only(table, group)[_only(table, number).notna()]
        sizes = (drawn.map(repr) if drawn.dtype == object else drawn).value_counts()
        sizes = sizes[sizes > 0]  # categories that no row has draw nothing
        if len(sizes) > 20:
            return f"{len(sizes)} groups: show the 15 largest, sorted by the median of {number}"
        small = int(sizes.min()) if len(sizes) else 0
        return "every point as a strip, with the median" if small < 10 else "boxes side by side, sorted by the median"
    if "time" in (one, other):
        return "a scatter plot of the two times" if one == other else "counts per day or month as lines, one a group"
    return "a table of counts as a heat map with the numbers written in, shares per row"


def finish(axes: Any, *, title: str, x: str, y: str, source: str = "") -> Any:
    """Give axes what a reader needs: a title that says the finding, labels with units, the source below, no frame
    on top and at the right. Returns the axes."""
    axes.set_title(title, loc="left", fontsize="large", wrap=True)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for side in ("top", "right"):
        if side in axes.spines:
            axes.spines[side].set_visible(False)
    if source:
        axes.annotate(
            source, (0, 0), (0, -38), xycoords="axes fraction", textcoords="offset points", fontsize="small",
            color="0.4",
        )  # fmt: skip
    return axes


def faults(axes: Any) -> list[str]:
    """What is wrong with drawn matplotlib axes, a sentence each; none: nothing found. Raises TypeError for what are
    no axes."""
    if not hasattr(axes, "get_xlabel"):
        raise TypeError(f"faults() takes matplotlib axes, not {type(axes).__name__}; plt.gca() gives the current ones")
    found = []
    if not axes.has_data():
        return ["nothing is drawn"]
    if not (axes.get_title() or axes.get_title(loc="left") or axes.get_title(loc="right")):
        found.append("no title: say the finding in it")
    found += [f"no label on the {name} axis" for name, text in _labels(axes) if not text.strip()]
    found += _bars(axes)
    legend = axes.get_legend()
    entries = len(legend.get_texts()) if legend is not None else 0
    lines = [line for line in axes.get_lines() if len(line.get_xdata()) > 2]
    if max(entries, len(lines)) > MOST_COLOURS:
        found.append(f"{max(entries, len(lines))} series in one panel: grey all but the ones meant, or small multiples")
    if len(lines) > 1 and legend is None and not axes.texts:
        found.append("several lines and neither a legend nor labels at them")
    for marks in axes.collections:
        count = len(marks.get_offsets()) if type(marks).__name__ == "PathCollection" else 0
        if count > MOST_MARKS and (1 if marks.get_alpha() is None else marks.get_alpha()) > 0.3:
            found.append(f"{count:,} points cover each other: hexbin, or alpha below 0.3")
    return found + _overlaps(axes)


def _labels(axes: Any) -> list[tuple[str, str]]:
    named = [("x", axes.get_xlabel(), axes.xaxis), ("y", axes.get_ylabel(), axes.yaxis)]
    told = []
    for name, text, axis in named:
        words = [tick.get_text() for tick in axis.get_ticklabels()]
        if any(any(sign.isalpha() for sign in word.replace("mathdefault", "")) for word in words):
            continue  # names of groups explain themselves
        told.append((name, text))
    return told


def _bars(axes: Any) -> list[str]:
    for each in axes.containers:
        if type(each).__name__ != "BarContainer" or not each.patches:
            continue
        upright = getattr(each, "orientation", "vertical") != "horizontal"
        scale, (low, high) = (
            (axes.get_yscale(), axes.get_ylim()) if upright else (axes.get_xscale(), axes.get_xlim())
        )
        if scale != "log" and not min(low, high) <= 0 <= max(low, high):
            return [f"bars begin at {min(low, high):g}, not at zero: their lengths mislead"]
    return []


def _overlaps(axes: Any) -> list[str]:
    figure = axes.get_figure()
    figure.canvas.draw()
    found = []
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        boxes = [
            tick.get_window_extent() for tick in axis.get_ticklabels()
            if tick.get_text() and tick.get_visible() and not tick.get_rotation() % 90
        ]  # fmt: skip
        if any(one.overlaps(other) for one, other in pairwise(boxes)):
            found.append(f"labels on the {name} axis cover each other: fewer, shorter, or turn the plot on its side")
    return found


def _only(table: pd.DataFrame, name: Any) -> pd.Series:
    values = table[name]
    if isinstance(values, pd.DataFrame):
        raise KeyError(f"{name!r} names {values.shape[1]} columns; rename them first")
    return values


def _kind(values: pd.Series) -> str:
    types = pd.api.types
    if types.is_datetime64_any_dtype(values.dtype):
        return "time"
    if types.is_timedelta64_dtype(values.dtype):
        return "number"
    if types.is_numeric_dtype(values.dtype) and not types.is_bool_dtype(values.dtype):
        return "number"
    return "group"


def _distinct(values: pd.Series) -> int:
    try:
        return int(values.nunique())
    except TypeError:
        return int(values.astype(str).nunique())
