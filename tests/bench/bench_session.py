"""Two hundred turns of a real analysis with the practice model: refusals, cache, cost; what long use keeps in
memory."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.bench.measuring import Row

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


def rows() -> list[Row]:
    """Name, measured, target."""
    from ipyagent import Agent, IPyAgent
    from ipyagent.practice.model import answer
    from ipyagent.practice.server import PracticeServer

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
    finished, usage = ends.count("finished"), totals.usage
    return [
        *_kept_rows(),
        (f"{TURNS} turns of an analysis: finished", f"{finished}", f"{TURNS}"),
        (f"requests refused of {requests}", f"{refused}", "0"),
        ("cache-read share of all prompt tokens", f"{100 * usage.cache_read / usage.prompt:.2f} %", "at least 95 %"),
        ("window at the end", f"{tokens:,} tokens, {seconds:.0f} s in all, ${totals.cost or 0:.2f}", ""),
    ]


def _kept_rows() -> list[Row]:
    """Memory of the process over 300 turns and 200 requests without history, with a server that keeps nothing."""
    import psutil

    from ipyagent import Agent, IPyAgent
    from ipyagent.loop.session import Session
    from ipyagent.practice.replies import text, tool
    from ipyagent.practice.server import PracticeServer

    def megabytes() -> float:
        gc.collect()
        return float(psutil.Process().memory_info().rss / 1e6)

    def ask(agent: Agent, server: PracticeServer, *, fresh: bool) -> None:
        server.script(tool("python", {"code": "print('a line of output ' * 40)"}), text("Done, as you asked."))
        assert agent.run_sync("once more", fresh=fresh).status == "finished"
        server.log.clear()

    with tempfile.TemporaryDirectory() as folder, PracticeServer(window=1_000_000, keep_bodies=False) as server:
        os.environ["IPYAGENT_HOME"] = str(Path(folder) / "home")
        settings = IPyAgent(base_url=server.url, mode="auto", window=1_000_000, model="claude-sonnet-5-5")
        settings.extraction = settings.layer_notes = False
        agent = Agent(settings=settings, folder=Path(folder))
        for _ in range(20):
            ask(agent, server, fresh=False)
        turns = [megabytes()]
        for _ in range(3):
            for _ in range(100):
                ask(agent, server, fresh=False)
            turns.append(megabytes())
        fresh = [megabytes()]
        for _ in range(2):
            for _ in range(100):
                ask(agent, server, fresh=True)
            fresh.append(megabytes())
        gc.collect()
        sessions = sum(isinstance(each, Session) for each in gc.get_objects())
        agent.close()
        every = _with_everything(Path(folder), server, megabytes)
    grown = [f"{after - before:.1f}" for before, after in pairwise(turns)]
    aside = [f"{after - before:.1f}" for before, after in pairwise(fresh)]
    return [
        ("memory of turns 21-120, 121-220, 221-320", f"{', '.join(grown)} MB", "no hundred more than the first"),
        ("memory of 100 requests without history, 100 more", f"{', '.join(aside)} MB", "under 1 MB in the second"),
        ("sessions in memory after that", f"{sessions}", "1"),
        ("the same with notes, extraction, sub-agents, MCP", f"{every} MB", "no hundred more than the first"),
    ]


def _with_everything(folder: Path, server: Any, megabytes: Callable[[], float]) -> str:
    """Megabytes that turns 21-120, 121-220 and 221-320 add with every feature on; a sub-agent every tenth turn."""
    from ipyagent import Agent, IPyAgent
    from ipyagent.practice.replies import Fault, Reply, text, tool

    odd = Path(__file__).parents[1] / "parts" / "mcp" / "odd_server.py"
    entry = {"command": sys.executable, "args": ["-S", str(odd)]}
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home" / "mcp.json").write_text(json.dumps({"mcpServers": {"odd": entry}}))
    count = 0

    def answer(body: dict[str, Any]) -> Reply | Fault:
        made, last = len(body["messages"]), body["messages"][-1]["content"]
        if not body.get("tools") or made < 2 or any(block["type"] == "tool_result" for block in last):
            return text("Done, as you asked.")
        if "once more" not in str(last):  # work behind the turns
            return text("Nothing to save.")
        if count % 10 == 0:
            return tool("agent", {"task": "look", "prompt": "look around"})
        return tool("python", {"code": "print('a line of output ' * 40)"})

    server.brain = answer
    settings = IPyAgent(base_url=server.url, mode="auto", window=1_000_000, model="claude-sonnet-5-5", trust_all=True)
    agent = Agent(settings=settings, folder=folder)
    marks = []
    for count in range(321):
        if count % 100 == 20:
            marks.append(megabytes())
        assert agent.run_sync(f"once more, we always report medians ({count})").status == "finished"
        server.log.clear()
    marks.append(megabytes())
    agent.close()
    return ", ".join(f"{after - before:.1f}" for before, after in pairwise(marks[:4]))
