"""Recall: how often the right memory is among those found, what finding it costs in time and memory, and
that an answer does not wait for it.

    python -m tests.bench recall
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.measuring import MODEL, Row, first_tokens, home, server

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
THINKS = 0.2
"""Seconds until the server begins an answer, less than any real one takes."""
REMEMBERED = 200
"""Memories of a session whose first tokens are measured."""
CONVERSATIONS = Path(__file__).parents[3] / "shared" / "data" / "locomo-dev.json"
"""Not part of this repository: who has it beside the checkout can measure."""
FIRST = 1_700_000_000
_THEMES = (
    "plots of the orders table use the colour-blind palette and no grid",
    "the region column holds old names before 2023, map them with regions.csv",
    "Anna wants totals in thousands of euros, rounded to one decimal",
    "the nightly export fails on Sundays since the database is read-only then",
    "penguins with missing sex are dropped before any model is fitted",
    "the quarterly report goes to the board on the second Tuesday, as PDF",
    "load parquet files with polars, pandas runs out of memory on this machine",
    "the staging dashboard is at the address in the team wiki under Metrics",
)


def rows() -> Iterator[Row]:
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

    found = conversations()
    if not found:
        yield "evidence of the questions on long conversations", "not measured: shared/data is not here", ""
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "memory"
        files = write_turns(place, found)
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
            names = {turn_name(name, turn) for turn in question["evidence"]}
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
        write_many(place, count)
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


def brain(body: dict[str, Any]) -> Any:
    """Takes its time, and chooses memories as the practice model does."""
    from ipyagent.practice.model import memories as selecting
    from ipyagent.practice.replies import text

    time.sleep(THINKS)
    choice = selecting.asked(body)
    return text(selecting.selected(choice) if choice else "Here it is.")


def first_token() -> Iterator[Row]:
    """Time from a request to the first piece of its answer, with recall and without, in turns."""
    from ipyagent import Agent, IPyAgent

    for name, options in (("ranking alone", {"recall_selector": False}), ("with a selector", {})):
        with server(brain) as url, tempfile.TemporaryDirectory() as folder, home(folder):
            agents = []
            for recall in (False, True):
                place = Path(folder) / str(recall)
                write_many(place / ".ipyagent" / "memory", REMEMBERED)
                settings = IPyAgent(
                    environ={}, base_url=url, model=MODEL, extraction=False, dreaming=False, layer_notes=False,
                    trust_all=True, recall=recall, **options,
                )  # fmt: skip
                agents.append(Agent(settings=settings, folder=place))
            off, on = first_tokens(agents, "which palette do we use for the plots of case{}?".format, 40, pause=0.1)
            for agent in agents:
                agent.close()
        change = 100 * (on - off) / off
        yield f"time to first token, 200 memories, {name}", f"{off:.1f} ms off, {on:.1f} ms on ({change:+.1f} %)", "5 %"


# ---------------------------------------------------------------------- folders of memories


def conversations() -> list[dict[str, Any]]:
    """The conversations with their questions; an empty list where the file is not there."""
    if not CONVERSATIONS.is_file():
        return []
    found: list[dict[str, Any]] = json.loads(CONVERSATIONS.read_text(encoding="utf-8"))
    return found


def turn_name(conversation: str, turn: str) -> str:
    """The file of one turn."""
    return f"{conversation}_{turn.replace(':', '_')}.md"


def write_turns(folder: Path, found: list[dict[str, Any]]) -> int:
    """One memory a turn; how many."""
    folder.mkdir(parents=True)
    count = 0
    for conversation in found:
        for turn in conversation["turns"]:
            name = turn_name(conversation["conversation"], turn["id"])
            said = json.dumps(turn["text"][:120], ensure_ascii=False)
            head = f"name: {name.removesuffix('.md')}\ndescription: {said}"
            _write(folder / name, f"---\n{head}\ntype: project\n---\n{turn['date']}\n{turn['text']}\n", count)
            count += 1
    return count


def write_many(folder: Path, count: int) -> None:
    """`count` memories of some 500 bytes each on a few themes, every one with words of its own."""
    folder.mkdir(parents=True)
    for number in range(count):
        theme = _THEMES[number % len(_THEMES)]
        own = f"case{number} table{number % 97} step{number % 31} team{number % 13}"
        text = f"{theme}. This holds for {own}.\n\n**Why:** it was found in {own}.\n**How to apply:** before {theme}.\n"
        kind = "feedback" if number % 2 else "project"
        head = f"name: Note {number} on {theme.split()[1]}\ndescription: {theme} ({own})\ntype: {kind}"
        _write(folder / f"note_{number:05d}.md", f"---\n{head}\n---\n{text}", number)


def _write(path: Path, text: str, number: int) -> None:
    path.write_text(text, encoding="utf-8")
    moment = FIRST + 60 * number
    os.utime(path, (moment, moment))


if __name__ == "__main__":
    print(*cost(int(sys.argv[1]), vectors=sys.argv[2:] == ["vectors"]))
