"""Recall: how often the right memory is among those found, what finding it costs in time and memory, and
that an answer does not wait for it.

    python -m tests.bench recall
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench import recall_files

ROUNDS = 25
INFERENCE = 3
"""The category of questions whose answers have to be inferred."""
QUERIES = (
    "which palette do we use for the plots of orders?",
    "how do I load the parquet files on this machine",
    "why did the export fail on Sunday",
    "what does Anna want in the totals of table17",
    "when is the quarterly report due",
)
Row = tuple[str, str, str]


def rows() -> Iterator[Row]:
    """Name, measured, target."""
    from ipyagent.parts.memory import fulltext

    yield from quality()
    for count, warm, cold in ((200, 15.0, None), (10_000, 40.0, 1.5)):
        yield from _measured(count, warm, cold)
    if fulltext.available():
        yield from _measured(10_000, 60.0, None, "vectors")
    yield from first_token()


# ---------------------------------------------------------------------- what is found


def quality() -> Iterator[Row]:
    """How often the evidence of a question is among the first 200 and the first 5."""
    from ipyagent.parts.memory import fulltext

    found = recall_files.conversations()
    if not found:
        yield "evidence of the questions on long conversations", "not measured: shared/data is not here", ""
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "memory"
        files = recall_files.write_turns(place, found)
        questions = sum(len(conversation["questions"]) for conversation in found)
        head = f"{files:,} memories, {questions} questions"
        yield f"{head}: the 200 newest", _shares(evidence(place, found, newest=True)), "(starting point)"
        every = evidence(place, found)
        yield f"{head}: words", _shares(every), "97 % / 72 %"
        for conversation in found:
            name = str(conversation["conversation"])
            yield f"… of these conversation {name}", _shares(every, conversation=name), ""
        yield "… of these inference", _shares(every, category=INFERENCE), "85 % / 45 %"
        if fulltext.load() is None:
            yield f"{head}: words and vectors", "not measured: pip install 'ipyagent[embeddings]'", "97 % / 72 %"
        else:
            yield f"{head}: words and vectors", _shares(evidence(place, found, vectors=True)), "97 % / 72 %"


class Asked(NamedTuple):
    """A question, and whether a memory with its answer was among the first 200 and the first 5."""

    conversation: str
    category: int
    among: bool
    first: bool


def evidence(
    place: Path, found: list[dict[str, object]], *, vectors: bool = False, newest: bool = False
) -> list[Asked]:
    """Each question with what was found for it."""
    from ipyagent.parts.memory import fulltext
    from ipyagent.parts.memory.fulltext import FullText
    from ipyagent.parts.memory.metadata_index import Scan
    from ipyagent.parts.memory.ranking import CANDIDATES, RankedFolder, rank

    memories = Scan(place, "project").memories()
    index = FullText(place, None)
    index.refresh(memories)
    shelf, embedder = RankedFolder(index), fulltext.load() if vectors else None
    asked: list[Asked] = []
    for conversation in found:
        name = str(conversation["conversation"])
        for question in conversation["questions"]:  # type: ignore[attr-defined] # JSON
            names = {recall_files.turn_name(name, turn) for turn in question["evidence"]}
            if newest:
                listed = [memory.name for memory in memories[:CANDIDATES]]
            else:
                listed = [item.memory.name for item in rank([shelf], question["question"], embedder=embedder)]
            asked.append(Asked(name, question["category"], bool(names & set(listed)), bool(names & set(listed[:5]))))
    return asked


def _shares(asked: list[Asked], *, conversation: str = "", category: int = 0) -> str:
    own = [each for each in asked if conversation in ("", each.conversation) and category in (0, each.category)]
    among, first = (sum(getattr(each, name) for each in own) / len(own) for name in ("among", "first"))
    return f"{among:.1%} of 200, {first:.1%} of 5"


# ---------------------------------------------------------------------- what it costs


def _measured(count: int, warm: float, cold: float | None, *more: str) -> Iterator[Row]:
    """In a process of its own on one core: memory is that of the whole process against one that did nothing."""
    made = subprocess.run(
        [sys.executable, "-m", "tests.bench.bench_recall", str(count), *more],
        capture_output=True, text=True, check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    first, again, reopened, megabytes = map(float, made.stdout.split())
    name = ", ".join(("scan and rank", f"{count:,} files", *more))
    yield f"{name}, warm", f"{again:.1f} ms", f"{warm:g} ms"
    if cold is not None:
        yield f"{name}, no index yet", f"{first:.2f} s", f"{cold:g} s"
        yield f"{name}, index on the disk", f"{reopened:.2f} s", f"{cold:g} s"
        yield f"{name}, memory", f"{megabytes:.0f} MB", "100 MB"


def cost(count: int, *, vectors: bool) -> tuple[float, float, float, float]:
    """Seconds from nothing, milliseconds warm (median), seconds with the index on the disk, megabytes."""
    import psutil

    from ipyagent.parts.memory import fulltext
    from ipyagent.parts.memory.fulltext import FullText
    from ipyagent.parts.memory.metadata_index import Scan
    from ipyagent.parts.memory.ranking import RankedFolder, rank

    embedder = fulltext.load() if vectors else None
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        place, cache = Path(folder) / "memory", Path(folder) / "cache" / "recall.sqlite"
        recall_files.write_many(place, count)
        before = psutil.Process().memory_info().rss

        def opened() -> Callable[[str], object]:
            scan, shelf = Scan(place, "project"), RankedFolder(FullText(place, cache))

            def look(query: str) -> object:
                shelf.index.refresh(scan.glance())
                ranked = rank([shelf], query, embedder=embedder)
                assert not scan.changed(item.memory.name for item in ranked)
                return ranked

            return look

        began = time.perf_counter()
        look = opened()
        look(QUERIES[0])
        first = time.perf_counter() - began
        seconds = []
        for number in range(ROUNDS):
            began = time.perf_counter()
            look(QUERIES[number % len(QUERIES)])
            seconds.append(time.perf_counter() - began)
        grown = psutil.Process().memory_info().rss - before
        began = time.perf_counter()
        opened()(QUERIES[0])
        return first, 1e3 * statistics.median(seconds), time.perf_counter() - began, grown / 1e6


# ---------------------------------------------------------------------- what nobody waits for


def first_token() -> Iterator[Row]:
    """Time from a request to the first piece of its answer, with recall and without, in turns."""
    for name, options in (("ranking alone", {"recall_selector": False}), ("with a selector", {})):
        off, on = first_tokens(options)
        change = 100 * (on - off) / off
        yield f"time to first token, 200 memories, {name}", f"{off:.1f} ms off, {on:.1f} ms on ({change:+.1f} %)", "5 %"


def first_tokens(options: dict[str, bool], rounds: int = 40) -> tuple[float, float]:
    """Median milliseconds without and with recall. The server is a process of its own that takes 200 ms to
    begin an answer, less than any real one."""
    from tests.bench.recall_turns import measure

    return measure(options, rounds)


if __name__ == "__main__":
    print(*cost(int(sys.argv[1]), vectors=sys.argv[2:] == ["vectors"]))
