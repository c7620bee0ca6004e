"""Turns with and without recall against a server in a process of its own."""

from __future__ import annotations

import multiprocessing as mp
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ipyagent.journal.events import Event, PermissionAsked, Streamed
from ipyagent.journal.protocols import PermissionAnswer, TurnStatus
from tests.bench import recall_files

THINKS = 0.2
"""Seconds until the server begins an answer."""
FILES = 200


class FirstToken:
    """A surface that notes when the answer begins."""

    can_ask = False

    def __init__(self) -> None:
        self.at = 0.0

    def open(self) -> None: ...

    def show(self, event: Event) -> None:
        if isinstance(event, Streamed) and not self.at:
            self.at = time.perf_counter()

    def status(self, status: TurnStatus) -> None: ...

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        return PermissionAnswer("deny", by="headless")

    def close(self) -> None: ...


def _serve(pipe: Any) -> None:
    from ipyagent.practice.model import memories as selecting
    from ipyagent.practice.replies import text
    from ipyagent.practice.server import PracticeServer

    def brain(body: dict[str, Any]) -> Any:
        time.sleep(THINKS)
        choice = selecting.asked(body)
        return text(selecting.selected(choice) if choice else "Here it is.")

    with PracticeServer(brain=brain, window=1_000_000, keep_bodies=False) as server:
        pipe.send(server.url)
        pipe.recv()


def measure(options: dict[str, bool], rounds: int) -> tuple[float, float]:
    """Median milliseconds to the first token without and with recall, by turns in one session each."""
    from ipyagent import Agent, IPyAgent
    from ipyagent.assembly.requests import Options

    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    url = ours.recv()
    home = os.environ.get("IPYAGENT_HOME")
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["IPYAGENT_HOME"] = str(Path(folder) / "home")
            common = {"base_url": url, "model": "claude-sonnet-5-5", "extraction": False, "dreaming": False}
            common |= {"layer_notes": False, "trust_all": True}
            agents = []
            for name, recall in (("off", False), ("on", True)):
                place = Path(folder) / name
                recall_files.write_many(place / ".ipyagent" / "memory", FILES)
                settings = IPyAgent(environ={}, recall=recall, **common, **options)
                agents.append(Agent(settings=settings, folder=place))
            seconds: tuple[list[float], list[float]] = ([], [])
            for number in range(-4, rounds):
                for which, agent in enumerate(agents):
                    surface = FirstToken()
                    began = time.perf_counter()
                    request = f"which palette do we use for the plots of case{number + 10}?"
                    agent.prepare(request, Options(), surface).run_blocking()
                    if number >= 0:  # the first warm up
                        seconds[which].append(surface.at - began)
                    time.sleep(0.1)
            for agent in agents:
                agent.close()
        ours.send("stop")
        process.join(5)
    finally:
        if process.is_alive():
            process.terminate()
        if home is None:
            os.environ.pop("IPYAGENT_HOME", None)
        else:
            os.environ["IPYAGENT_HOME"] = home
    return 1e3 * statistics.median(seconds[0]), 1e3 * statistics.median(seconds[1])
