"""Extraction and the answer: time to the first token with it and without, turn after turn.

The server takes as long for every reply, so that each extraction goes on beside the next turn, which is the worst case.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.measuring import MODEL, Row, first_tokens, home, server

TURNS = 40
THINKS = 0.15
"""Seconds until the server's first token."""


def brain(body: dict[str, Any]) -> Any:
    """Says that it understood, and extracts as the practice model does."""
    from ipyagent.practice.model import answer
    from ipyagent.practice.replies import text

    asked = "<extract-memories>" in str(body["messages"][-3:])
    return replace(answer(body) if asked else text("Medians it is."), first_delay=THINKS)


def rows() -> list[Row]:
    from ipyagent import Agent, IPyAgent
    from ipyagent.journal.events import ForkEnded, MemorySaved
    from ipyagent.parts.memory import MemoryPart

    with server(brain) as url, tempfile.TemporaryDirectory() as folder, home(folder):
        agents = []
        for on in (False, True):
            (Path(folder) / str(on)).mkdir()
            settings = IPyAgent(
                environ={}, base_url=url, model=MODEL, layer_notes=False, recall=False, dreaming=False, extraction=on,
                extract_words=0, background_percent=100.0,
            )  # fmt: skip
            agents.append(Agent(settings=settings, folder=Path(folder) / str(on)))
        without, beside = first_tokens(agents, lambda turn: f"We always report medians of group {turn}.", TURNS)
        agents[1].part(MemoryPart).extracting.wait(agents[1].session, 10)
        events = list(agents[1].session.journal.read())
        forks = [event for event in events if isinstance(event, ForkEnded) and event.purpose == "extraction"]
        kept = sum(isinstance(event, MemorySaved) for event in events)
        assert forks
        assert kept
        for agent in agents:
            agent.close()
    change = f"{without:.1f} ms without, {beside:.1f} ms with ({100 * (beside / without - 1):+.1f} %)"
    sums = f"{len(forks)} runs, {sum(fork.requests for fork in forks)} calls, {kept} memories"
    return [
        ("time to first token, extraction beside each turn", change, "within 5 %"),
        ("extractions in that time", sums, ""),
    ]
