"""Dreams while other processes write: no update is lost, the index is equal to the files, nothing half written."""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import signal
import time
from pathlib import Path

import pytest

from ipyagent.errors import MemoryRefused
from ipyagent.parts.memory.dream_workspace import DreamWorkspace, digests
from ipyagent.parts.memory.index import named_in
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import DreamLock

WRITERS = 4
ROUNDS = 60
SPAWN = mp.get_context("spawn")


def text_of(name: str, body: str) -> str:
    return f"---\nname: {name}\ndescription: about {name}\ntype: project\n---\n{body}\n"


def write(folder: Path, who: int) -> None:
    """Adds, edits, renames and deletes; each round says something of its own in the memory that all share."""
    store = MemoryStore(folder, "project")
    for turn in range(ROUNDS):
        store.write(f"w{who}_{turn}.md", text_of(f"w{who} in {turn}", f"Round {turn}."), expected=None, by="agent")
        store.change("shared.md", lambda now, turn=turn: f"{now}\n- said by {who} in {turn}\n", by="agent")  # type: ignore[misc]
        store.change(f"w{who}_{turn}.md", lambda now: now + "\nMore.\n", by="agent")
        if turn % 3 == 1:
            store.rename(f"w{who}_{turn}.md", f"kept{who}_{turn}.md", by="agent")
        elif turn % 3 == 2:
            store.delete(f"w{who}_{turn}.md", by="agent")


def dream(folder: Path, seconds: float) -> None:
    """Dreams one after the other: adds a line here, deletes a spare memory there."""
    store, chance, until = MemoryStore(folder, "project"), random.Random(7), time.monotonic() + seconds
    lock = DreamLock(folder, store.lock)
    while time.monotonic() < until:
        try:
            taken = lock.acquire(certain=True)
        except MemoryRefused:
            time.sleep(0.01)
            continue
        with taken:
            staging = DreamWorkspace.make(store)
            names = sorted(digests(staging.copy))
            staging.copy.change("shared.md", lambda now: now + "\n- dreamed\n", by="dream")
            for name in chance.sample(names, 3):
                if name.startswith("spare"):
                    staging.copy.delete(name, by="dream")
                elif name != "shared.md":
                    staging.copy.change(name, lambda now: now + "\nDreamed.\n", by="dream")
            staging.commit("s", staging.changes())
            taken.succeed()
            staging.drop()


def check(folder: Path, *, all_written: bool) -> None:
    store = MemoryStore(folder, "project")
    with store.lock():  # whoever was killed is finished for
        pass
    names = sorted(memory.name for memory in store.list())
    listed = [name for line in store.index.text().splitlines() if (name := named_in(line)) is not None]
    assert sorted(listed) == names
    assert store.index.doctor() == []
    shared = store.read("shared.md").text
    for who in range(WRITERS if all_written else 0):
        assert [turn for turn in range(ROUNDS) if f"- said by {who} in {turn}\n" not in shared] == []
        for turn in range(ROUNDS):
            place = {0: f"w{who}_{turn}.md", 1: f"kept{who}_{turn}.md"}.get(turn % 3)
            assert place is None or "More." in store.read(place).text
            assert not store.exists(f"w{who}_{turn}.md") or turn % 3 == 0
    for name in names:
        assert store.read(name).text.startswith("---\nname: ")
    assert os.listdir(folder / ".history" / "new") == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = MemoryStore(tmp_path / "memory", "project")
    store.write("shared.md", text_of("shared", "All speak here."), expected=None, by="user")
    for number in range(30):
        store.write(f"spare_{number}.md", text_of(f"spare {number}", f"Spare {number}."), expected=None, by="user")
    return store.folder


@pytest.mark.slow
def test_writers_lose_nothing_while_dreams_commit(folder: Path) -> None:
    writers = [SPAWN.Process(target=write, args=(folder, who)) for who in range(WRITERS)]
    dreamer = SPAWN.Process(target=dream, args=(folder, 600.0))
    for process in (dreamer, *writers):
        process.start()
    try:
        for process in writers:
            process.join(200)
            assert process.exitcode == 0
    finally:
        for process in (dreamer, *writers):
            process.kill()
            process.join(10)
    check(folder, all_written=True)


@pytest.mark.slow
def test_dreams_that_are_killed_leave_only_what_the_next_one_reclaims(folder: Path) -> None:
    chance = random.Random(11)
    for _ in range(12):
        dreamer = SPAWN.Process(target=dream, args=(folder, 60.0))
        dreamer.start()
        assert dreamer.pid is not None
        time.sleep(1.0 + chance.random())
        os.kill(dreamer.pid, signal.SIGKILL)
        dreamer.join(10)
        check(folder, all_written=False)
    store = MemoryStore(folder, "project")
    with DreamLock(folder, store.lock).acquire(certain=True):
        DreamWorkspace.make(store).drop()
    assert [path.name for path in (folder / ".history" / "dreams").iterdir() if path.is_dir()] == []
