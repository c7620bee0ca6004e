"""The consolidation lock with real processes: who wins, and what a killed dream leaves."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from store_processes import Processes

from ipyagent.errors import MemoryRefused
from ipyagent.parts.memory.dream_workspace import DreamWorkspace, digests, undo
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import DreamLock

LAST = 1_790_000_000_123_456_789
"""Nanoseconds: when the memory was tidied last."""
PHASES = ("taken", "copied", "dreamed", "snapshot", "writing", "deleting", "committed")


class Place:
    """A memory directory that was tidied at LAST."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore(folder, "project")
        for name in ("a.md", "b.md", "c.md", "d.md", "e.md", "f.md", "g.md"):
            self.store.write(name, f"---\nname: {name}\ntype: project\n---\nSay {name}.\n", expected=None, by="user")
        self.lock, self.other = (DreamLock(folder, self.store.lock) for _ in range(2))
        self.lock.acquire().succeed()
        os.utime(self.lock.path, ns=(LAST, LAST))

    @property
    def is_free(self) -> bool:
        """Whether whoever looks finds it free, as it was tidied before."""
        return self.lock.holder() is None and self.lock.path.stat().st_mtime_ns == LAST

    def content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.store.folder.glob("*.md")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "memory")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()


def test_nobody_ever_tidied_is_no_time_and_makes_nothing(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "memory", "project")
    lock = DreamLock(store.folder, store.lock)
    assert (lock.last(), lock.holder()) == (0.0, None)
    assert not store.folder.exists()
    with lock.acquire():
        assert lock.path.exists() is False
    assert not lock.path.exists(), "failure of the first one ever leaves no time"


def test_the_time_of_the_file_is_that_of_the_last_consolidation_which_a_failure_leaves(place: Place) -> None:
    with place.lock.acquire():
        assert place.other.last() == pytest.approx(LAST / 1e9)
    with pytest.raises(KeyError), place.lock.acquire():
        raise KeyError
    assert place.is_free
    before = time.time()
    place.lock.acquire().succeed()
    assert before - 0.1 <= place.lock.path.stat().st_mtime <= time.time() + 0.1
    assert place.lock.holder() is None


def test_of_eight_processes_that_want_it_at_once_one_has_it_and_is_named_and_it_is_free_once_that_is_gone(
    place: Place, processes: Processes
) -> None:
    outcomes = processes.ask("race", place.store.folder, 8)
    assert outcomes.count("busy") == 7
    (pid,) = (int(each) for each in outcomes if each != "busy")
    holder = place.lock.holder()
    assert (holder.pid, holder.host) == (pid, socket.gethostname())
    with pytest.raises(MemoryRefused, match=rf"process {pid} has been tidying") as refused:
        place.lock.acquire()
    assert refused.value.reason == "busy"
    assert processes.ask("kill", pid)
    assert place.is_free


def test_a_link_in_its_place_is_refused_and_what_an_older_version_left_there_is_only_a_time(
    place: Place, tmp_path: Path
) -> None:
    place.lock.path.write_text('{"pid":1,"host":"x","boot":"","started":1.0,"token":"t"}')
    os.utime(place.lock.path, ns=(LAST, LAST))
    assert place.is_free
    place.lock.acquire().succeed()
    assert place.lock.path.read_bytes() == b""
    (tmp_path / "other").write_text("mine")
    for path in (place.lock.path, place.store.folder / ".history" / "dreaming"):
        path.unlink()
        path.symlink_to(tmp_path / "other")
        with pytest.raises(MemoryRefused) as refused:
            place.lock.acquire()
        assert refused.value.reason == "link"
        path.unlink()
    assert (tmp_path / "other").read_text() == "mine"


@pytest.mark.parametrize("where", PHASES)
def test_killed_at_every_phase_it_is_rolled_back_and_nothing_is_lost(
    where: str, tmp_path: Path, processes: Processes
) -> None:
    place = Place(tmp_path / where)
    before = place.content()
    assert processes.ask("dream_and_die", place.store.folder) == -signal.SIGKILL
    after = place.content()
    for name in ("a.md", "b.md"):
        assert after[name] in (before[name], before[name] + b"\nDreamed.\n")
    if where not in ("writing", "deleting", "committed"):
        assert after == before
    else:
        assert after != before
    for name in ("e.md", "f.md", "g.md"):
        assert after[name] == before[name]
    if set(before) - set(after):  # what goes, goes last
        assert all(b"Dreamed" in after[name] for name in ("a.md", "b.md"))
    assert place.is_free
    assert [finding.text for finding in place.store.index.doctor()] == []
    with place.lock.acquire() as taken:  # the next one finds the way free, and no copy of the dead one
        staging = DreamWorkspace.make(place.store)
        folders = [path for path in (place.store.folder / ".history" / "dreams").iterdir() if path.is_dir()]
        assert [path.name for path in folders] == [staging.name]
        staging.drop()
        taken.succeed()
    if where in ("writing", "deleting", "committed"):
        undo(place.store)
        assert place.content() == before
    assert set(digests(place.store)) >= {"e.md", "f.md", "g.md"}


def test_a_look_makes_no_file_and_follows_no_link(tmp_path: Path) -> None:
    (folder := tmp_path / "memory").mkdir()
    lock = DreamLock(folder, nullcontext)
    assert lock.holder() is None
    assert list(folder.iterdir()) == []
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (folder / ".history").symlink_to(elsewhere)
    with suppress(MemoryRefused):
        assert lock.holder() is None
    assert list(elsewhere.iterdir()) == []
    (folder / ".consolidate-lock").write_text('{"pid": 1}')  # of an earlier version, killed
    assert lock.last() == 0.0
