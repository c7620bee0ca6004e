"""Dreaming: what a turn pays for it when nothing is to be done, and what the file work of one dream takes."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ipyagent.parts.memory import MemoryPart
from tests.bench.measuring import Row

FILES = 1_000
TURNS = 500


def rows() -> list[Row]:
    from ipyagent import Agent, IPyAgent
    from ipyagent.parts.memory.dream_workspace import DreamWorkspace, undo
    from ipyagent.parts.memory.store import MemoryStore
    from ipyagent.parts.memory.transaction import DreamLock

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "project"
        folder.mkdir()
        os.environ["IPYAGENT_HOME"] = str(Path(name) / "home")
        settings = IPyAgent(environ={}, base_url="http://127.0.0.1:9", model="claude-sonnet-5-5")
        agent = Agent(settings=settings, folder=folder)
        agent.project.make()
        store = MemoryStore(agent.project.folder.resolve() / "memory", "project")
        for number in range(FILES):
            text = f"---\nname: m{number}\ndescription: fact {number}\ntype: project\n---\nFact {number}.\n"
            store.folder.mkdir(exist_ok=True)
            (store.folder / f"m{number}.md").write_text(text)
        store.index.mend(by="user")
        lock = DreamLock(store.folder, store.lock)
        lock.acquire().succeed()
        closed = [_timed(lambda: agent.part(MemoryPart).dreaming.after(None, None)) for _ in range(TURNS)]  # type: ignore[arg-type]
        agent.settings.dreaming = False
        off = [_timed(lambda: agent.part(MemoryPart).dreaming.after(None, None)) for _ in range(TURNS)]  # type: ignore[arg-type]
        made: list[DreamWorkspace] = []
        copied = _timed(lambda: made.append(DreamWorkspace.make(store)))
        staging = made[0]
        for number in range(0, 100, 2):
            staging.copy.change(f"m{number}.md", lambda now: now + "More.\n", by="dream")
            staging.copy.delete(f"m{number + 1}.md", by="dream")
        changes = staging.changes()
        committed = _timed(lambda: staging.commit("s", changes))
        undone = _timed(lambda: undo(store))
        agent.close()
    worst = sorted(closed)[int(0.99 * TURNS)]
    return [
        (
            "turn with nothing to dream: median, 99 % of 500",
            f"{1000 * statistics.median(closed):.3f} ms, {1000 * worst:.3f} ms",
            "under 1 ms",
        ),
        ("the same with dreaming off", f"{1e6 * statistics.median(off):.1f} us", ""),
        (f"copy of {FILES:,} memories; commit of 50 edits, 50 deletions", f"{copied:.2f} s; {committed:.2f} s", ""),
        ("undo of that", f"{undone:.2f} s", ""),
    ]


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
