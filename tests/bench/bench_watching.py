"""What watching costs code that reads: agent code, the user's own cells once agent code has run, and anybody with a
hook of Python's own that does nothing. Reads of an open file raise no event; a file that is opened each time raises
one. A hook cannot be taken out, so each turn is a fork of this process, which reads without a hook and then with it;
the median of all turns counts."""

from __future__ import annotations

import json
import operator
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias

from ipyagent.kernel import audit
from tests.bench.measuring import Row

TURNS, READS = 50, 2_000
WAYS = ("hook", "user", "agent")
Read: TypeAlias = Callable[[str], Any]


class Quiet:
    """A watch that only remembers."""

    def __init__(self) -> None:
        self.opened: set[Any] = set()
        self.behind: Any = self


def _read_text(path: str) -> str:
    return Path(path).read_text()


def _open_and_read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _parse(path: str) -> Any:
    return json.loads(Path(path).read_text())


def _read_open_file(path: str) -> bytes:
    _read_open_file.file.seek(0)  # type: ignore[attr-defined]
    return _read_open_file.file.read(64)  # type: ignore[attr-defined, no-any-return]


READERS: dict[str, Read] = {
    "reads of an open file": _read_open_file,
    "open, read, close": _open_and_read,
    "Path.read_text": _read_text,
    "json.loads(Path.read_text)": _parse,
}


def measured(reader: Read) -> dict[str, tuple[float, float]]:
    """By way the microseconds of processor time for a read without a hook, and what is added by it."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.NamedTemporaryFile() as file:
        file.write(json.dumps({"name": "heron", "counts": list(range(40))}).encode())
        file.flush()
        _read_open_file.file = file  # type: ignore[attr-defined]
        for _ in range(TURNS):
            for way, turns in found.items():
                turns.append(_forked(way, reader, file.name))
    each = {way: statistics.median(before for before, _ in turns) for way, turns in found.items()}
    return {way: (each[way], statistics.median(after - before for before, after in found[way])) for way in WAYS}


def _forked(way: str, reader: Read, path: str) -> tuple[float, float]:
    end, told = os.pipe()
    if not (child := os.fork()):
        watch: Any = Quiet()
        _reads(reader, path)
        before = _reads(reader, path)
        if way == "hook":
            sys.addaudithook(operator.is_)  # the cheapest there is
        elif way == "user":
            with audit.watching(watch):
                _reads(reader, path, 1)
        with audit.watching(watch) if way == "agent" else nullcontext():
            _reads(reader, path, READS // 10)
            os.write(told, f"{before} {_reads(reader, path)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(told)
    with open(end) as answer:
        before, after = map(float, answer.read().split())
    return before, after


def _reads(reader: Read, path: str, count: int = READS) -> float:
    """Microseconds for one."""
    began = time.process_time()
    for _ in range(count):
        reader(path)
    return (time.process_time() - began) / count * 1e6


def rows() -> Iterator[Row]:
    for name, reader in READERS.items():
        found = measured(reader)
        for way, of, target in (
            ("hook", "anybody, with any hook of Python at all", "what cannot be saved"),
            ("user", "the user's own cells", "not watched"),
            ("agent", "agent code", "2 %"),
        ):
            each, more = found[way]
            yield f"{name}, by {of}", f"{more / each:+.1%} ({more:+.2f} µs) of {each:.1f} µs", target
