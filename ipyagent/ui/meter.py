"""The context window as a bar: how full it is and where the marks stand, in plain figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ipyagent.journal.protocols import WindowState

_SAID = {"block": "hard limit"}
"""What is not called by its name and "threshold"."""
Level: TypeAlias = Literal["calm", "warning", "error", "blocked"]


@dataclass(frozen=True, slots=True)
class WindowMeter:
    """`fill` and the positions in `marks` (name → position) are fractions 0-1 of the window;
    `label` is short, `tooltip` has every number, one a line. `level`: above the warning threshold, above the
    error mark (where it stands above the other) or the auto-compact threshold, above the hard limit."""

    fill: float
    marks: tuple[tuple[str, float], ...]
    level: Level
    label: str
    tooltip: str


def meter(window: WindowState) -> WindowMeter:
    whole = max(window.window, 1)

    def part(tokens: int) -> float:
        return round(min(max(tokens / whole, 0.0), 1.0), 4)

    level: Level = "calm"
    if window.above_warning:
        level = "warning"
    if window.above_auto or (window.above_error and window.error_mark > window.warning_mark):
        level = "error"
    if window.blocked:
        level = "blocked"
    marks = [("warning", window.warning_mark), ("auto-compact", window.auto_mark), ("block", window.block_mark)]
    if window.error_mark > window.warning_mark:  # by default both stand at one place
        marks.insert(1, ("error", window.error_mark))
    lines = [
        f"Context window: {window.tokens:,} of {window.window:,} tokens ({percent(window.tokens, whole)})",
        f"{window.percent_left:.0f}% left until auto-compact",
        *(f"{_SAID.get(name, name + ' threshold')}: {tokens:,} ({percent(tokens, whole)})" for name, tokens in marks),
    ]
    return WindowMeter(
        fill=part(window.tokens),
        marks=tuple((name, part(tokens)) for name, tokens in marks),
        level=level,
        label=f"{percent(window.tokens, whole)} of {thousands(window.window)}",
        tooltip="\n".join(lines),
    )


def bar(meter: WindowMeter, width: int = 20) -> str:
    """The meter as `width` characters: `█` filled, `░` free, `┊` the auto-compact threshold."""
    full = round(meter.fill * width)
    cells = ["█" if i < full else "░" for i in range(width)]
    auto = dict(meter.marks)["auto-compact"]
    at = min(int(auto * width), width - 1)
    if at >= full:
        cells[at] = "┊"
    return "".join(cells)


def percent(part: float, whole: float) -> str:
    value = 100 * part / whole
    return "<1%" if 0 < value < 1 else f"{value:.0f}%"


def thousands(count: int) -> str:
    """1234 → "1.2k", 200000 → "200k"."""
    if count < 1000:
        return str(count)
    if count < 10_000:
        return f"{count / 1000:.1f}k".replace(".0k", "k")
    return f"{count / 1000:,.0f}k"


def dollars(cost: float) -> str:
    """Cents and below stay readable: "$0.0042", "$1.20"."""
    if cost == 0:
        return "$0"
    return f"${cost:.4f}" if cost < 0.1 else f"${cost:,.2f}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
