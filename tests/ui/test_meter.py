from __future__ import annotations

import msgspec
import pytest

from ipyagent.ui.meter import bar, dollars, duration, meter, thousands

from .turns import WINDOW


def test_the_meter_has_every_mark_and_number() -> None:
    gauge = meter(WINDOW)
    assert gauge.fill == 0.42
    assert dict(gauge.marks) == {"warning": 0.735, "auto-compact": 0.835, "block": 0.885}
    assert gauge.label == "42% of 200k"
    for number in ("84,000 of 200,000", "50% left until auto-compact", "147,000", "167,000", "177,000"):
        assert number in gauge.tooltip


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({}, "calm"),
        ({"above_warning": True, "above_error": True}, "warning"),
        ({"above_warning": True, "above_error": True, "above_auto": True}, "error"),
        ({"above_warning": True, "above_auto": True, "blocked": True}, "blocked"),
    ],
)
def test_the_level_follows_the_highest_mark_passed(fields: dict[str, bool], level: str) -> None:
    assert meter(msgspec.structs.replace(WINDOW, **fields)).level == level


def test_a_window_over_its_size_or_of_no_size_is_still_a_bar() -> None:
    assert meter(msgspec.structs.replace(WINDOW, tokens=900_000)).fill == 1.0
    assert meter(msgspec.structs.replace(WINDOW, window=0)).fill == 1.0
    assert bar(meter(WINDOW), 20) == "████████░░░░░░░░┊░░░"


def test_figures_read_well() -> None:
    assert [thousands(n) for n in (7, 1234, 9000, 200_000, 1_000_000)] == ["7", "1.2k", "9k", "200k", "1,000k"]
    assert [dollars(n) for n in (0, 0.0042, 1.2, 1234.5)] == ["$0", "$0.0042", "$1.20", "$1,234.50"]
    assert [duration(n) for n in (0.34, 59.9, 61)] == ["0.3 s", "59.9 s", "1 min 01 s"]
