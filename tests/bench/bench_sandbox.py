"""What a level costs a command: the time from its start to its end beside plain `bash -c`, in turns."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

from ipyagent import sandbox
from tests.bench.measuring import Row

TURNS = 60
COMMANDS = {
    "cat a file": "cat a.txt",
    "six programs": "cat a.txt | sort | uniq -c | head -2; ls | wc -l; : > /dev/null",
}


def measured() -> dict[str, dict[str, float]]:
    """Median milliseconds by command and way."""
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / "a.txt").write_text("b\na\n")
        ways: dict[str, Callable[[list[str]], float]] = {"bash": partial(_timed, None, "read", root, False)}
        for backend, level, watched in product(sandbox.find().working, ("read", "project"), (False, True)):
            name = f"{backend.name}, {level}{', watched' if watched else ''}"
            ways[name] = partial(_timed, backend, level, root, watched)
        for _ in range(TURNS):
            for what, command in COMMANDS.items():
                for name, way in ways.items():
                    found.setdefault(what, {}).setdefault(name, []).append(way(["bash", "-c", command]))
    return {what: {name: statistics.median(some) * 1e3 for name, some in by.items()} for what, by in found.items()}


def _timed(
    backend: sandbox.Backend | None, level: sandbox.Level, root: Path, watched: bool, words: list[str]
) -> float:
    began = time.perf_counter()
    if backend is None:
        subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE).communicate()
    else:
        with sandbox.temporary(sandbox.policy(level, root), dict(os.environ)) as (policy, environment):
            watch = (lambda attempt: True) if watched else None
            backend.spawn(words, policy, watch, cwd=root, env=environment, stdout=subprocess.PIPE).communicate()
    return time.perf_counter() - began


def rows() -> Iterator[Row]:
    for what, by in measured().items():
        plain = by.pop("bash")
        for name, median in by.items():
            yield f"{what} ({name})", f"{median - plain:+.1f} ms to {plain:.1f} ms of bash -c", "25 ms"
