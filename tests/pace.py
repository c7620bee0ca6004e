"""Latencies are held to their limits in the run that has the machine to itself (`-m "timed or paced"`); beside other
tests the same assertions only tell an answer from a hang."""

from __future__ import annotations

alone = False
"""Whether this run has the machine to itself; set by `conftest.pytest_configure` before a test module is imported."""


def within(limit: float, crowded: float) -> float:
    """Seconds: `limit` alone, `crowded` beside other tests."""
    return limit if alone else crowded
