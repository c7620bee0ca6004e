"""What benchmarks have in common: two trees in one run, a home of their own, a server in a process of its own, and the
time to the first token of an answer."""

from __future__ import annotations

import multiprocessing as mp
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from ipyagent import Agent, Options
from ipyagent.assembly.requests import NullSurface
from ipyagent.journal.events import Event, Streamed
from ipyagent.practice.server import PracticeServer

Row: TypeAlias = tuple[str, str, str]
"""What, measured, target."""
ROOT = Path(__file__).parents[2]
MODEL = "claude-sonnet-5-5"
WARM = 4
"""Requests that are not counted."""


def trees() -> dict[str, str]:
    """Folders by name: ours, behind the one that BEFORE names, if it does, for a comparison on a busy machine."""
    before = os.environ.get("BEFORE", "")
    return {**({"before": before} if before else {}), "now": str(ROOT)}


def compared(found: Mapping[str, Sequence[float]], digits: int = 1) -> str:
    """The medians of trees, and their ratio where there are two."""
    middle = {name: statistics.median(values) for name, values in found.items()}
    words = ", ".join(f"{name} {value:.{digits}f}" for name, value in middle.items())
    return f"{words} (x {middle['now'] / middle['before']:.2f})" if "before" in middle else words


@contextmanager
def home(folder: str | Path) -> Iterator[None]:
    """The user's own folder is in this one, and there is a key."""
    given = {"IPYAGENT_HOME": str(Path(folder) / "home"), "ANTHROPIC_API_KEY": "practice"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _serve(pipe: Any, brain: Callable[[dict[str, Any]], Any]) -> None:
    with PracticeServer(brain, window=1_000_000, keep_bodies=False) as server:
        pipe.send(server.url)
        pipe.poll(None)  # until the other end is closed


@contextmanager
def server(brain: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """The address of a server in a process of its own, which answers as `brain`, a module's function, does."""
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, brain), daemon=True)
    process.start()
    theirs.close()  # so that its end is heard of here
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join(5)
        process.terminate()


class _First(NullSurface):
    """Notes when the answer begins."""

    at = 0.0

    def show(self, event: Event) -> None:
        if isinstance(event, Streamed) and not self.at:
            self.at = time.perf_counter()


def first_tokens(
    agents: Sequence[Agent], request: Callable[[int], str], rounds: int, *, pause: float = 0.0
) -> list[float]:
    """Median milliseconds from a request, made of its number, to the first token of its answer: of each agent, in a
    session of its own. They take turns, so that all meet the same noise; `pause` in seconds is after each."""
    seconds: list[list[float]] = [[] for _ in agents]
    for number in range(-WARM, rounds):
        for at in range(len(agents))[:: -1 if number % 2 else 1]:
            surface, began = _First(), time.perf_counter()
            agents[at].prepare(request(number), Options(), surface).run_blocking()
            if number >= 0:
                seconds[at].append(surface.at - began)
            time.sleep(pause)
    return [1e3 * statistics.median(each) for each in seconds]
