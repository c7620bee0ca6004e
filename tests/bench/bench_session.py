"""Two hundred turns of a real analysis with the practice model: refusals, cache, cost."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

TURNS = 200
ASKED = (
    "Average {y} by {g}",
    "Which values are missing?",
    "Describe {y}",
    "How many {s} are there?",
    "Average {y} by {g} and sex",
    "Correlation of {y} and {x}",
    "{g} 的 {y} 平均值是多少",
    "Compare {y} of male and female",
    "run: penguins.groupby('{g}')['{y}'].describe()",
    "Plot {y} by {x}",
    "Fit a linear model of {y} on {x}",
    "List the variables",
)
NUMBERS = ("body_mass_g", "flipper_length_mm", "bill_length_mm", "bill_depth_mm")


def _request(turn: int) -> str:
    y, x = NUMBERS[turn % 4], NUMBERS[(turn // 4 + 1 + turn) % 4]
    if x == y:
        x = NUMBERS[(turn + 1) % 4]
    group, species = ("species", "island", "year")[turn % 3], ("Gentoo", "Adelie", "Chinstrap")[turn % 3]
    return ASKED[turn % len(ASKED)].format(y=y, x=x, g=group, s=species)


def rows() -> list[tuple[str, str, str]]:
    """Name, measured, target."""
    from ipyagent import Agent, IPyAgent
    from ipyagent.practice.server import PracticeServer
    from ipyagent.practice.understanding import answer

    with tempfile.TemporaryDirectory() as folder, PracticeServer(brain=answer, window=1_000_000) as server:
        os.environ["IPYAGENT_HOME"] = str(Path(folder) / "home")
        settings = IPyAgent(base_url=server.url, mode="auto", window=1_000_000, model="claude-sonnet-5-5")
        settings.extraction = False
        agent = Agent(settings=settings, folder=Path(folder))
        began = time.monotonic()
        ends = [agent.run_sync("Load the palmer penguins data set as `penguins`.").status]
        ends += [agent.run_sync(_request(turn)).status for turn in range(1, TURNS)]
        seconds = time.monotonic() - began
        assert agent.session is not None
        totals, tokens = agent.session.history.totals, agent.session.view.count().tokens
        refused, requests = len(server.refused), len(server.messages)
        agent.close()
    finished = ends.count("finished")
    return [
        (f"{TURNS} turns of an analysis: finished", f"{finished}", f"{TURNS}"),
        (f"requests refused of {requests}", f"{refused}", "0"),
        ("cache-read share of all prompt tokens", f"{100 * totals.read / totals.prompt:.2f} %", "at least 95 %"),
        ("window at the end", f"{tokens:,} tokens, {seconds:.0f} s in all, ${totals.cost or 0:.2f}", ""),
    ]


if __name__ == "__main__":
    for row in rows():
        print("  ".join(row))
