"""The consolidation lock with real processes: dead, reused, elsewhere, with the clock set back; who wins; what a
killed dream leaves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest

from ipyagent.errors import MemoryRefused
from ipyagent.locks import is_running
from ipyagent.parts.memory.dream_workspace import DreamWorkspace, digests, undo
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import ELSEWHERE, HERE, NAME, DreamLock, Holder

HOLDER = Path(__file__).with_name("dream_holder.py")
LAST = 1_790_000_000_123_456_789
"""Nanoseconds: when the memory was tidied last."""
ROOT = Path(__file__).parents[3]
PHASES = ("taken", "copied", "dreamed", "snapshot", "writing", "deleting", "committed")


def started(*how: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(HOLDER), *how], stdout=subprocess.PIPE, text=True, env=environ)


class Place:
    """A memory directory that was tidied at LAST."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore(folder, "project")
        for name in ("a.md", "b.md", "c.md", "d.md", "e.md", "f.md", "g.md"):
            self.store.write(name, f"---\nname: {name}\ntype: project\n---\nSay {name}.\n", expected=None, by="user")
        self.lock = DreamLock(folder, self.store.lock)
        self.lock.acquire().succeed()
        self.set_time(LAST)

    @property
    def path(self) -> Path:
        return self.store.folder / NAME

    def set_time(self, nanoseconds: int) -> None:
        os.utime(self.path, ns=(nanoseconds, nanoseconds))

    def holder(self) -> Holder:
        return msgspec.json.decode(self.path.read_bytes(), type=Holder)

    def held(self, by: Holder, *, seconds: float, **changed: Any) -> Place:
        """As if it had been taken so many seconds ago (below 0: the clock was set back)."""
        self.path.write_bytes(msgspec.json.encode(msgspec.structs.replace(by, **changed)))
        self.set_time(int((time.time() - seconds) * 1e9))
        return self

    @property
    def is_rolled_back(self) -> bool:
        """Whether whoever looks finds it free, as it was tidied before."""
        return self.lock.state().holder is None and self.path.stat().st_mtime_ns == LAST

    def content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.store.folder.glob("*.md")}


class Killed(NamedTuple):
    """A directory in which a dream was killed, what it had before, and who held its lock."""

    place: Place
    before: dict[str, bytes]
    holder: Holder


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "memory")


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holder]:
    """A process that took the lock of a directory that was tidied at LAST, and lives."""
    made = Place(tmp_path_factory.mktemp("living") / "memory")
    process = started("hold", str(made.store.folder))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield made.holder()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Killed]:
    """By the phase in which it was killed."""
    folder = tmp_path_factory.mktemp("killed")
    places = {where: Place(folder / where) for where in PHASES}
    before = {where: place.content() for where, place in places.items()}
    process = started("die", *(str(place.store.folder) for place in places.values()))
    process.communicate(timeout=60)
    assert process.returncode == 0
    return {where: Killed(place, before[where], place.holder()) for where, place in places.items()}


@pytest.fixture(scope="module")
def dead(killed: dict[str, Killed]) -> Holder:
    """A process that took the lock of a directory that was tidied at LAST, and was killed."""
    return killed["taken"].holder


def test_nobody_ever_tidied_is_no_time_and_makes_nothing(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "memory", "project")
    state = DreamLock(store.folder, store.lock).state()
    assert (state.last, state.holder) == (0.0, None)
    assert not store.folder.exists()


def test_the_time_of_the_file_is_the_time_of_the_last_consolidation(place: Place) -> None:
    assert place.lock.state().last == pytest.approx(LAST / 1e9)
    before = time.time()
    assert place.lock.acquire().succeed()
    assert before - 0.1 <= place.path.stat().st_mtime <= time.time() + 0.1
    assert place.lock.state().holder is None


def test_failure_puts_the_old_time_back_to_the_nanosecond(place: Place) -> None:
    with place.lock.acquire():
        assert place.path.stat().st_mtime_ns != LAST
        assert place.lock.state().last == pytest.approx(LAST / 1e9)
    assert place.path.stat().st_mtime_ns == LAST
    with pytest.raises(KeyError), place.lock.acquire():
        raise KeyError
    assert place.path.stat().st_mtime_ns == LAST


def test_failure_of_the_first_one_ever_leaves_no_file(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "memory", "project")
    lock = DreamLock(store.folder, store.lock)
    assert lock.acquire().fail()
    assert not lock.path.exists()


def test_it_holds_pid_host_and_process_start(place: Place) -> None:
    with place.lock.acquire():
        holder = place.holder()
        assert (holder.pid, holder.host) == (os.getpid(), socket.gethostname())
        started = psutil.Process().create_time() - psutil.boot_time()
        assert abs(holder.started - started) < 2
        assert is_running(holder.pid, holder.started)


def test_a_living_holder_is_never_stale(place: Place, living: Holder) -> None:
    for seconds in (0, 2 * HERE, 2 * ELSEWHERE, -2 * ELSEWHERE):
        place.held(living, seconds=seconds)
        assert place.lock.state(certain=True).holder == living
        with pytest.raises(MemoryRefused, match=rf"process {living.pid} has been tidying") as refused:
            place.lock.acquire(certain=True)
        assert refused.value.reason == "busy"


def test_a_dead_pid_counts_for_an_hour_also_of_a_clock_set_back_and_whoever_finds_it_then_rolls_it_back(
    place: Place, dead: Holder
) -> None:
    for seconds in (HERE, -HERE):
        assert place.held(dead, seconds=seconds * (1 - 60 / HERE)).lock.state().holder == dead
        with pytest.raises(MemoryRefused):
            place.lock.acquire()
        assert place.held(dead, seconds=seconds * (1 + 60 / HERE)).is_rolled_back
    with place.held(dead, seconds=0).lock.acquire(certain=True):  # who is asked by the user need not wait
        pass
    assert place.path.stat().st_mtime_ns == LAST


def test_a_zombie_and_a_process_that_has_its_pid_now_are_not_the_holder(place: Place, living: Holder) -> None:
    zombie = subprocess.Popen(["true"])  # not waited for
    process = psutil.Process(zombie.pid)
    while process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    started = process.create_time() - psutil.boot_time()
    assert place.held(living, seconds=HERE + 60, pid=zombie.pid, started=started).is_rolled_back
    zombie.wait(10)
    assert place.held(living, seconds=HERE + 60, started=living.started - 60).is_rolled_back


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="no name of a machine's run")
def test_a_lock_from_before_the_machine_was_started_anew_is_stale_at_once(place: Place, living: Holder) -> None:
    assert place.held(living, seconds=1, boot="another run of this machine").is_rolled_back, "its number says nothing"


def test_elsewhere_age_alone_counts_and_a_living_pid_of_ours_says_nothing(
    place: Place, dead: Holder, living: Holder
) -> None:
    for process in (dead, living):
        there = place.held(process, seconds=ELSEWHERE - 60, host="another").lock.state(certain=True)
        assert there.holder is not None
        assert place.held(process, seconds=ELSEWHERE + 60, host="another").is_rolled_back


def test_what_somebody_else_wrote_into_it_is_held_by_age_and_keeps_its_time(place: Place) -> None:
    place.path.write_text("12345\n")
    place.set_time(time.time_ns() - int(60e9))
    with pytest.raises(MemoryRefused, match="another process"):
        place.lock.acquire(certain=True)
    place.set_time(time.time_ns() - int((ELSEWHERE + 60) * 1e9))
    assert place.lock.acquire().fail()


def test_a_link_in_its_place_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("mine")
    place.path.unlink()
    place.path.symlink_to(tmp_path / "other")
    with pytest.raises(MemoryRefused) as refused:
        place.lock.acquire()
    assert refused.value.reason == "link"
    assert (tmp_path / "other").read_text() == "mine"


def test_of_eight_processes_that_want_it_at_once_one_has_it(place: Place) -> None:
    said, _ = started("race", "8", str(place.store.folder)).communicate(timeout=60)
    assert sorted(said.split()) == ["busy"] * 7 + ["there"]


def test_whoever_was_taken_for_dead_does_not_let_go_of_another_s_lock(place: Place) -> None:
    taken = place.lock.acquire()
    place.held(place.holder(), seconds=ELSEWHERE + 60, host="another")
    second = place.lock.acquire()
    assert not taken.succeed()
    assert place.lock.state().holder is not None
    assert second.succeed()


@pytest.mark.parametrize("where", PHASES)
def test_killed_at_every_phase_it_is_rolled_back_and_nothing_is_lost(killed: dict[str, Killed], where: str) -> None:
    place, before, _ = killed[where]
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
    place.set_time(time.time_ns() - int((HERE + 60) * 1e9))
    assert place.is_rolled_back
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
