"""What watching costs code that reads: small reads by agent code, by the user's own cells once agent code has run, and
with a hook of Python's own that does nothing. A hook cannot be taken out, so each turn is a fork of this process, which
reads without a hook and then with it; the median of all turns counts."""

from __future__ import annotations

import operator
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from ipyagent.kernel import audit

TURNS, READS = 50, 2_000
WAYS = ("hook", "user", "agent")


class Quiet:
    """A watch that only remembers."""

    def __init__(self) -> None:
        self.opened: set[Any] = set()
        self.behind: Any = self


def measured() -> dict[str, tuple[float, float]]:
    """By way the microseconds of processor time for a read without a hook, and what is added by it."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x" * 200)
        file.flush()
        for _ in range(TURNS):
            for way, turns in found.items():
                turns.append(_forked(way, file.name))
    each = {way: statistics.median(before for before, _ in turns) for way, turns in found.items()}
    return {way: (each[way], statistics.median(after - before for before, after in found[way])) for way in WAYS}


def _forked(way: str, path: str) -> tuple[float, float]:
    end, told = os.pipe()
    if not (child := os.fork()):
        watch: Any = Quiet()
        _reads(path)
        before = _reads(path)
        if way == "hook":
            sys.addaudithook(operator.is_)  # the cheapest there is
        elif way == "user":
            with audit.watching(watch):
                _reads(path, 1)
        with audit.watching(watch) if way == "agent" else nullcontext():
            _reads(path, READS // 10)
            os.write(told, f"{before} {_reads(path)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(told)
    with open(end) as answer:
        before, after = map(float, answer.read().split())
    return before, after


def _reads(path: str, count: int = READS) -> float:
    """Microseconds for one."""
    began = time.process_time()
    for _ in range(count):
        with open(path) as each:
            each.read()
    return (time.process_time() - began) / count * 1e6


def rows() -> Iterator[tuple[str, str, str]]:
    """Rows of the table."""
    found = measured()
    for way, of, target in (
        ("hook", "anybody, with any hook of Python at all", "what cannot be saved"),
        ("user", "the user's own cells", "not watched"),
        ("agent", "agent code", "2 %"),
    ):
        each, more = found[way]
        yield f"small reads by {of}", f"{more / each:+.1%} ({more:+.2f} µs) of {each:.1f} µs", target
