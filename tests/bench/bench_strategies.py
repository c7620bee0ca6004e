"""Five ways to live with a bounded window, on the same 300-turn analysis, in one run.

Facts are planted in what the user says, in answers and in results (100 in all) and looked for at
the end. Dollars are those of one known model; every request goes to the practice server over HTTP.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from msgspec.structs import replace

from ipyagent.journal.events import Block
from ipyagent.replay.metrics import PLACES, Metrics, Place, TrackedFact
from ipyagent.replay.recording import RecordedTurn, Recording
from ipyagent.replay.replaying import replay, settings_for
from tests.bench.analysis_session import TABLES, recording
from tests.bench.measuring import Row

WINDOWS = (200_000, 32_000)
TEXTBOOK_MARK = 50_000
BARE, TEXTBOOK = "no management", "textbook"


def strategies(window: int) -> dict[str, dict[str, object]]:
    """Arguments of `settings_for` by the name of the strategy."""
    share = min(100, 100 * TEXTBOOK_MARK // window)
    return {
        BARE: {"layers": []},
        TEXTBOOK: {"layers": ["clear_results", "summarize"], "clear_policy": "every_turn",
                   "auto_compact_percent": share},
        "server editing": {"layers": ["server_edits"], "engine": "server",
                           "server_clear_trigger": min(180_000, window * 9 // 10 * 8 // 10),
                           "server_clear_at_least": min(140_000, window // 2)},
        "ours, client": {"layers": None, "engine": "client"},
        "ours, auto": {"layers": None, "engine": "auto"},
    }  # fmt: skip


def plant(recording: Recording, count: int = 100) -> tuple[Recording, tuple[TrackedFact, ...]]:
    """The recording with `count` facts in it, evenly over its turns, in turn in what the user says, in an answer and in
    a tool result (in the middle of its text)."""
    turns = list(recording.turns)
    facts: list[TrackedFact] = []
    for number in range(count):
        token = "ref-" + hashlib.sha256(f"fact {number}".encode()).hexdigest()[:10]
        at = number * len(turns) // count
        for place in (PLACES[number % 3], *PLACES):
            changed = _planted(turns[at], token, place, number)
            if changed is not None:
                turns[at] = changed
                facts.append(TrackedFact(token, place))
                break
    return replace(recording, turns=tuple(turns)), tuple(facts)


def _planted(turn: RecordedTurn, token: str, place: Place, number: int) -> RecordedTurn | None:
    """The turn with the fact in it; None when it has no such place."""
    if place == "user":
        return replace(turn, asked=_told(turn.asked, f" Our name for this step is {token}.", lambda lines: len(lines)))
    for made in reversed(turn.rounds):
        if place == "answer" and any(block["type"] == "text" for block in made.blocks):
            changed = replace(made, blocks=_told(made.blocks, f" Checked against {token}.", lambda lines: 1))
        elif found := [(call, result) for call, result in made.results.items() if place == "result" and any(
            block["type"] == "text" for block in result.blocks
        )]:  # fmt: skip
            (call, result), line = found[0], f"\nrun {number:03} {token}"
            blocks = _told(result.blocks, line, lambda lines: max(1, len(lines) // 2))
            changed = replace(made, results={**made.results, call: replace(result, blocks=blocks)})
        else:
            continue
        return replace(turn, rounds=tuple(changed if each is made else each for each in turn.rounds))
    return None


def _told(blocks: tuple[Block, ...], words: str, where: Callable[[list[str]], int]) -> tuple[Block, ...]:
    """The blocks with words behind so many lines of their last text."""
    at = max(place for place, block in enumerate(blocks) if block["type"] == "text")
    lines = str(blocks[at]["text"]).split("\n")
    lines[where(lines) - 1] += words
    return (*blocks[:at], {**blocks[at], "text": "\n".join(lines)}, *blocks[at + 1 :])


def measure(window: int) -> dict[str, Metrics]:
    """Every strategy on one window."""
    made, facts = plant(recording())
    return {
        name: replay(made, settings_for(window=window, **arguments), facts)  # type: ignore[arg-type]
        for name, arguments in strategies(window).items()
    }


def rows() -> list[Row]:
    if not TABLES.is_dir():
        return [("300-turn analysis, five strategies", f"not measured: no tables in {TABLES}", "")]
    made: list[Row] = []
    for window in map(int, os.environ.get("BENCH_WINDOWS", ",".join(map(str, WINDOWS))).split(",")):
        found = measure(window)
        for name, one in found.items():
            told = (
                f"{one.finished} turns, {one.refused} refused, read {100 * one.read_share:.1f} %, "
                f"{one.usage.prompt / 1e6:.2f} M tokens, ${one.dollars:.2f}, {one.compaction_calls} compactions, "
                f"{one.fate}"
            )
            made.append((f"{window // 1000}K: {name}", told, _target(name, one, found)))
    return made


def _target(name: str, one: Metrics, found: dict[str, Metrics]) -> str:
    if not name.startswith("ours"):
        return ""
    bare, textbook = found[BARE], found[TEXTBOOK]
    share = [
        f"{100 * one.dollars / other.dollars:.0f} % of {what} (at most {most} %)"
        for what, other, most in ((BARE, bare, 60), (TEXTBOOK, textbook, 80))
        if other.finished == len(other.turns)
    ]
    kept = 100 * len(one.fate.kept) / max(1, one.fate.count)
    near = 100 * (one.fate.count - len(one.fate.lost)) / max(1, one.fate.count)
    return "; ".join([*share, f"kept {kept:.0f} % (70), kept or reachable {near:.0f} % (97), 0 refused"])
