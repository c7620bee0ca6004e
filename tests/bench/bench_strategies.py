"""Five ways to live with a bounded window, on the same 300-turn analysis, in one run.

Facts are planted in what the user says, in answers and in results (100 in all) and looked for at
the end. Dollars are those of one known model; every request goes to the practice server over HTTP.
"""

from __future__ import annotations

import os

from ipyagent.replay.metrics import Metrics, plant
from ipyagent.replay.replaying import replay, settings_for
from tests.bench.analysis_session import TABLES, recording

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


def measure(window: int) -> dict[str, Metrics]:
    """Every strategy on one window."""
    made, facts = plant(recording())
    return {
        name: replay(made, settings_for(window=window, **arguments), facts)  # type: ignore[arg-type]
        for name, arguments in strategies(window).items()
    }


def rows() -> list[tuple[str, str, str]]:
    """Name, measured, target."""
    if not TABLES.is_dir():
        return [("300-turn analysis, five strategies", f"not measured: no tables in {TABLES}", "")]
    made: list[tuple[str, str, str]] = []
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


if __name__ == "__main__":
    for row in rows():
        print("  ".join(row))
