"""What the journal and the view cost: append, resume of a large session, one more event, token estimates.

    python -m tests.bench journal
    BEFORE=/path/to/another/tree python -m tests.bench journal

With `BEFORE`, processes of that tree take turns with ours in resuming. Seconds of the clock, and of the processor: on a
busy machine the clock tells more of the others.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    SessionStarted,
    Streamed,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import Journal, encode
from ipyagent.journal.tokens import estimate_text
from ipyagent.journal.view import ContextView
from tests.bench.measuring import Row, compared, trees

EVENTS = 100_000
MEGABYTES = 200
WORDS = ["the mean of", "price by region", "is higher than", "last year", "= sum(df['price'])",
         "/ len(df)", "for row in rows:"]
FOREIGN = ("größer als im Vorjahr — ", "平均价格高于去年", "naïve “quotes” → ")

RESUME = """
import gc, json, sys, time
from pathlib import Path
from ipyagent.loop.session import Session

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024

gc.collect()
before, began, worked = resident(), time.perf_counter(), time.process_time()
session, problems = Session.open(Path(sys.argv[1]))
seconds, worked = time.perf_counter() - began, time.process_time() - worked
print(json.dumps({"seconds": seconds, "worked": worked, "grown": resident() - before, "problems": len(problems),
                  "messages": len(session.view.messages)}), flush=True)
if sys.argv[2] == "close":
    session.close()  # which keeps a checkpoint
else:
    import os
    os._exit(0)
"""
ROUNDS = 7


def words(chance: random.Random, size: int) -> str:
    """About `size` characters of prose and code, one in eight with characters beyond ASCII."""
    piece = " ".join(chance.choices(WORDS, k=40)) + "\n"
    made = (piece * (size // len(piece) + 1))[:size]
    return made[: size // 2] + chance.choice(FOREIGN) + made[size // 2 :] if chance.random() < 0.125 else made


def session_events(events: int, size: int) -> list[Event]:
    """Turns of a realistic mix: much streamed text, tool results from a line to 25,000 characters."""
    chance = random.Random(7)
    made: list[Any] = [SessionStarted(session="bench", version="0")]
    scale = size / events / 330  # bytes an event of the mix below at scale 1, measured

    def text(size: float) -> tuple[dict[str, Any], ...]:
        return ({"type": "text", "text": words(chance, max(10, int(size * scale)))},)

    while len(made) < events:
        asked = text(chance.expovariate(1 / 400))
        made.append(UserMessage(text=asked[0]["text"], blocks=asked, tokens=100))
        for _ in range(chance.randint(1, 4)):
            answer = text(chance.expovariate(1 / 2_000))
            for start in range(0, len(answer[0]["text"]), 400):
                made.append(Streamed(channel="text", text=answer[0]["text"][start : start + 400]))
            call = f"toolu_{len(made)}"
            code = {"code": text(600)[0]["text"]}
            use = {"type": "tool_use", "id": call, "name": "python", "input": code}
            made.append(AssistantMessage(blocks=(*answer, use), stop_reason="tool_use", tokens=500))
            made.append(UsageReported(usage=Usage(input=100, cache_read=90_000, output=500), predicted=90_000))
            made.append(ToolCalled(call=call, name="python", input=code))
            result = text(min(25_000, chance.paretovariate(1.1) * 1_500))
            for start in range(0, min(4_000, len(result[0]["text"])), 1_000):
                made.append(Streamed(channel="tool", text=result[0]["text"][start : start + 1_000], ref=call))
            made.append(ToolReturned(call=call, name="python", blocks=result, tokens=900))
        made.append(AssistantMessage(blocks=text(800), stop_reason="end_turn", tokens=200))
        made.append(TurnEnded(status="finished", variables={"df": "DataFrame", "x": "int"}))
    return made[:events]


def write(folder: Path, events: list[Event]) -> tuple[Path, list[float]]:
    """A stored session, and the seconds of each append."""
    started = events[0]
    journal = Journal.create(folder, started)
    seconds = []
    for event in events[1:]:
        began = time.perf_counter()
        journal.append(event)
        seconds.append(time.perf_counter() - began)
    journal.sync()
    journal.close()
    return journal.path, seconds


def resume(path: Path, tree: str, *, end: str = "leave") -> dict[str, float]:
    """Open a stored session in a fresh process of a tree: seconds, bytes that it grew by, messages."""
    done = subprocess.run(
        [sys.executable, "-c", RESUME, str(path.parent), end],
        env={**os.environ, "PYTHONPATH": tree}, cwd=path.parent, capture_output=True, text=True, check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def resuming(path: Path) -> tuple[dict[str, list[dict[str, float]]], dict[str, list[dict[str, float]]]]:
    """What resuming took in each tree by turns, without a checkpoint and with the tree's own."""
    there = trees()
    places = {name: path.parent.parent / name / path.parent.name / path.name for name in there}
    for place in places.values():
        shutil.copytree(path.parent, place.parent)
    without: dict[str, list[dict[str, float]]] = {name: [] for name in there}
    kept: dict[str, list[dict[str, float]]] = {name: [] for name in there}
    for found, end in ((without, "leave"), (kept, "close")):
        if end == "close":
            for name, tree in there.items():
                resume(places[name], tree, end=end)
        for _ in range(ROUNDS):
            for name, tree in there.items():
                found[name].append(resume(places[name], tree))
    return without, kept


def told(found: dict[str, list[dict[str, float]]], what: str) -> str:
    """The medians of the trees, and their ratio where there are two."""
    return compared({name: [each[what] for each in values] for name, values in found.items()}, 2)


def apply_cost(events: list[Event]) -> tuple[float, float]:
    """Mean seconds of one more event (with a count now and then), early in a session and at its end."""
    view = ContextView()
    seconds = []
    for number, event in enumerate(events):
        began = time.perf_counter()
        view.apply(event)
        if number % 10 == 0:
            view.count()
        seconds.append(time.perf_counter() - began)
    tenth = len(seconds) // 10
    return statistics.fmean(seconds[:tenth]), statistics.fmean(seconds[-tenth:])


def estimate_speed() -> float:
    """Megabytes of ASCII a second of processor time, the best of three."""
    text = words(random.Random(1), 4_000_000).encode("ascii", "ignore").decode()
    seconds = []
    for _ in range(3):
        began = time.process_time()
        estimate_text(text)
        seconds.append(time.process_time() - began)
    return len(text) / min(seconds) / 1e6


def rows() -> list[Row]:
    events = session_events(EVENTS, MEGABYTES * 10**6)
    with tempfile.TemporaryDirectory() as folder:
        path, seconds = write(Path(folder), events)
        size = path.stat().st_size
        without, kept = resuming(path)
    for each in (*without.values(), *kept.values()):
        for one in each:
            one["share"] = one["grown"] / size
    early, late = apply_cost(events)
    largest = max(events, key=lambda event: len(encode(event)[0]))
    shape = f"{len(events):,} events, {size / 1e6:,.0f} MB, largest {len(encode(largest)[0]):,} bytes"
    return [
        ("append, median, not synced", f"{statistics.median(seconds) * 1e3:.3f} ms", "0.2 ms"),
        ("append, 99th percentile", f"{statistics.quantiles(seconds, n=100)[98] * 1e3:.3f} ms", ""),
        (f"resume, s: {shape}", told(without, "seconds"), "4 s"),
        ("the same, s of the processor", told(without, "worked"), ""),
        ("memory after resume / size of the journal", told(without, "share"), "2.5"),
        ("resume with a checkpoint, s", told(kept, "seconds"), "0.5 s"),
        ("the same, s of the processor", told(kept, "worked"), ""),
        ("memory after that / size of the journal", told(kept, "share"), "2.5"),
        ("one more event, first tenth of the session", f"{early * 1e6:.1f} µs", ""),
        ("one more event, last tenth", f"{late * 1e6:.1f} µs", "as at first"),
        ("token estimate of ASCII", f"{estimate_speed():.1f} MB/s", "10 MB/s"),
    ]
