"""Memory folders for the benchmarks of recall: real conversations, one file a turn, and many made ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

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
