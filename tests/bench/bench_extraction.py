"""Extraction and the answer: time to the first token with it and without, turn after turn.

The server runs in a process of its own and takes as long for every reply, so that each extraction goes
on beside the next turn, which is the worst case. Both agents take turns, so that both meet the same noise.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

TURNS = 40
THINKS = 0.15
"""Seconds until the server's first token."""


def _serve(pipe: Any) -> None:
    from ipyagent.practice.model import answer
    from ipyagent.practice.replies import text
    from ipyagent.practice.server import PracticeServer

    def brain(body: dict[str, Any]) -> Any:
        asked = "<extract-memories>" in str(body["messages"][-3:])
        return replace(answer(body) if asked else text("Medians it is."), first_delay=THINKS)

    with PracticeServer(brain=brain, keep_bodies=False) as server:
        pipe.send(server.url)
        pipe.recv()


def rows() -> list[tuple[str, str, str]]:
    """Name, measured, target."""
    from ipyagent import Agent, IPyAgent, Options
    from ipyagent.assembly.requests import NullSurface
    from ipyagent.journal.events import Event, ForkEnded, MemorySaved, Streamed
    from ipyagent.parts.memory import MemoryPart

    class First(NullSurface):
        """Remembers when the first token came."""

        at = 0.0

        def show(self, event: Event) -> None:
            if isinstance(event, Streamed) and not self.at:
                self.at = time.perf_counter()

    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    url = ours.recv()
    waits: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYAGENT_HOME"] = str(Path(folder) / "home")
        os.environ.setdefault("ANTHROPIC_API_KEY", "practice")
        agents = {}
        for on in (False, True):
            settings = IPyAgent(environ={}, base_url=url, model="claude-sonnet-5-5", layer_notes=False, extraction=on)
            settings.extract_words, settings.background_percent = 0, 100.0
            settings.recall = settings.dreaming = False
            (Path(folder) / str(on)).mkdir()
            agents[on] = Agent(settings=settings, folder=Path(folder) / str(on))
        for turn in range(TURNS):
            for on in (True, False) if turn % 2 else (False, True):
                surface, began = First(), time.perf_counter()
                agents[on].prepare(f"We always report medians of group {turn}.", Options(), surface).run_blocking()
                waits[on].append(surface.at - began)
        session = agents[True].session
        assert session is not None
        agents[True].part(MemoryPart).extracting.wait(session, 10)
        events = list(session.journal.read())
        forks = [event for event in events if isinstance(event, ForkEnded) and event.purpose == "extraction"]
        kept = sum(isinstance(event, MemorySaved) for event in events)
        assert forks
        assert kept
        for agent in agents.values():
            agent.close()
    ours.send("stop")
    process.join(5)
    off, on_ = (1e3 * statistics.median(waits[on][2:]) for on in (False, True))
    change = f"{off:.1f} ms without, {on_:.1f} ms with ({100 * (on_ / off - 1):+.1f} %)"
    sums = f"{len(forks)} runs, {sum(fork.requests for fork in forks)} calls, {kept} memories"
    return [
        ("time to first token, extraction beside each turn", change, "within 5 %"),
        ("extractions in that time", sums, ""),
    ]


if __name__ == "__main__":
    for row in rows():
        print("  ".join(row))
