"""The consolidation lock with real processes: dead, reused, elsewhere, with the clock set back; who wins; what a
killed dream leaves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

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


class Place:
    """A memory directory that was tidied at LAST, and processes in it."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore(folder, "project")
        for name in ("a.md", "b.md", "c.md", "d.md", "e.md", "f.md", "g.md"):
            self.store.write(name, f"---\nname: {name}\ntype: project\n---\nSay {name}.\n", expected=None, by="user")
        self.lock = DreamLock(folder, self.store.lock)
        self.lock.acquire().succeed()
        self.set_time(LAST)
        self.processes: list[subprocess.Popen[str]] = []

    @property
    def path(self) -> Path:
        return self.store.folder / NAME

    def set_time(self, nanoseconds: int) -> None:
        os.utime(self.path, ns=(nanoseconds, nanoseconds))

    def age(self, seconds: float) -> None:
        """As if the lock had been taken so many seconds ago (below 0: the clock was set back)."""
        self.set_time(int((time.time() - seconds) * 1e9))

    def start(self, where: str) -> subprocess.Popen[str]:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, str(HOLDER), str(self.store.folder), where], stdout=subprocess.PIPE, text=True, env=environ
        )
        self.processes.append(process)
        return process

    def at(self, where: str) -> subprocess.Popen[str]:
        process = self.start(where)
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    def content(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.store.folder.glob("*.md")}

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "memory")
    try:
        yield made
    finally:
        made.close()


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
        holder = msgspec.json.decode(place.path.read_bytes(), type=Holder)
        assert (holder.pid, holder.host) == (os.getpid(), socket.gethostname())
        started = psutil.Process().create_time() - psutil.boot_time()
        assert abs(holder.started - started) < 2
        assert is_running(holder.pid, holder.started)


def test_a_living_holder_is_never_stale(place: Place) -> None:
    process = place.at("taken")
    for seconds in (0, 2 * HERE, 2 * ELSEWHERE, -2 * ELSEWHERE):
        place.age(seconds)
        state = place.lock.state(certain=True)
        assert state.holder is not None
        assert state.holder.pid == process.pid
        with pytest.raises(MemoryRefused, match=rf"process {process.pid} has been tidying") as refused:
            place.lock.acquire(certain=True)
        assert refused.value.reason == "busy"


def test_a_dead_pid_counts_for_an_hour_and_then_is_rolled_back_by_whoever_finds_it(place: Place) -> None:
    place.kill(place.at("taken"))
    place.age(HERE - 60)
    assert place.lock.state().holder is not None
    with pytest.raises(MemoryRefused):
        place.lock.acquire()
    place.age(HERE + 60)
    assert place.lock.state().holder is None
    assert place.path.stat().st_mtime_ns == LAST


def test_who_is_asked_by_the_user_need_not_wait_for_a_dead_one(place: Place) -> None:
    place.kill(place.at("taken"))
    with place.lock.acquire(certain=True):
        pass
    assert place.path.stat().st_mtime_ns == LAST


def test_a_zombie_is_dead(place: Place) -> None:
    process = place.at("taken")
    process.send_signal(signal.SIGKILL)  # not waited for
    until = time.time() + 10
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE and time.time() < until:
        time.sleep(0.01)
    place.age(HERE + 60)
    assert place.lock.state().holder is None


def test_a_reused_pid_is_not_the_holder(place: Place) -> None:
    place.kill(dead := place.at("taken"))
    reused = _with_pid(dead.pid)
    try:
        pid = reused.pid
        if pid != dead.pid:  # the system would not give it again: the lock names another living process's pid instead
            holder = msgspec.json.decode(place.path.read_bytes(), type=Holder)
            other = msgspec.structs.replace(holder, pid=pid, started=holder.started - 60)
            place.path.write_bytes(msgspec.json.encode(other))
        place.age(HERE + 60)
        assert psutil.pid_exists(pid)
        assert place.lock.state().holder is None
        assert place.path.stat().st_mtime_ns == LAST
    finally:
        reused.kill()
        reused.wait(10)


def _with_pid(wanted: int) -> subprocess.Popen[bytes]:
    """A sleeping process, of the wanted pid where the system lets us choose; begun well after the dead one."""
    time.sleep(2.2)
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(20):
        try:
            last.write_text(str(wanted - 1))
        except OSError:
            break
        process = subprocess.Popen(["sleep", "60"])
        if process.pid == wanted:
            return process
        process.kill()
        process.wait(10)
    return subprocess.Popen(["sleep", "60"])


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="no name of a machine's run")
def test_a_lock_from_before_the_machine_was_started_anew_is_stale_at_once(place: Place) -> None:
    process = place.at("taken")
    holder = msgspec.json.decode(place.path.read_bytes(), type=Holder)
    place.path.write_bytes(msgspec.json.encode(msgspec.structs.replace(holder, boot="another run of this machine")))
    place.age(1)
    assert process.poll() is None, "its number says nothing"
    assert place.lock.state().holder is None
    assert place.path.stat().st_mtime_ns == LAST


def test_elsewhere_age_alone_counts(place: Place) -> None:
    place.kill(place.at("taken"))
    holder = msgspec.json.decode(place.path.read_bytes(), type=Holder)
    place.path.write_bytes(msgspec.json.encode(msgspec.structs.replace(holder, host="another")))
    place.age(ELSEWHERE - 60)
    assert place.lock.state(certain=True).holder is not None
    place.age(ELSEWHERE + 60)
    assert place.lock.state().holder is None
    assert place.path.stat().st_mtime_ns == LAST


def test_elsewhere_a_living_pid_of_ours_says_nothing(place: Place) -> None:
    process = place.at("taken")
    holder = msgspec.json.decode(place.path.read_bytes(), type=Holder)
    place.path.write_bytes(msgspec.json.encode(msgspec.structs.replace(holder, host="another")))
    place.age(ELSEWHERE + 60)
    assert process.poll() is None
    assert place.lock.state().holder is None


def test_a_clock_set_back_blocks_nobody_for_longer_than_the_limit(place: Place) -> None:
    place.kill(place.at("taken"))
    place.age(-(HERE - 60))
    assert place.lock.state().holder is not None
    place.age(-(HERE + 60))
    assert place.lock.state().holder is None
    assert place.path.stat().st_mtime_ns == LAST


def test_what_somebody_else_wrote_into_it_is_held_by_age_and_keeps_its_time(place: Place) -> None:
    place.path.write_text("12345\n")
    place.age(60)
    with pytest.raises(MemoryRefused, match="another process"):
        place.lock.acquire(certain=True)
    place.age(ELSEWHERE + 60)
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
    begin = time.time() + 2.0
    processes = [place.start(f"race {begin}") for _ in range(8)]
    said = []
    for process in processes:
        assert process.stdout is not None
        said.append(process.stdout.readline().strip())
    assert sorted(said) == ["busy"] * 7 + ["there"]


def test_whoever_was_taken_for_dead_does_not_let_go_of_another_s_lock(place: Place) -> None:
    taken = place.lock.acquire()
    holder = msgspec.json.decode(place.path.read_bytes(), type=Holder)
    other = msgspec.structs.replace(holder, host="another")
    place.path.write_bytes(msgspec.json.encode(other))
    place.age(ELSEWHERE + 60)
    second = place.lock.acquire()
    assert not taken.succeed()
    assert place.lock.state().holder is not None
    assert second.succeed()


@pytest.mark.parametrize("where", ["taken", "copied", "dreamed", "snapshot", "writing", "deleting", "committed"])
def test_killed_at_every_phase_it_is_rolled_back_and_nothing_is_lost(place: Place, where: str) -> None:
    before = place.content()
    place.kill(place.at(where))
    after = place.content()
    for name in ("a.md", "b.md"):
        assert after[name] in (before[name], before[name] + b"\nDreamed.\n")
    if where not in ("writing", "deleting", "committed"):
        assert after == before
    for name in ("e.md", "f.md", "g.md"):
        assert after[name] == before[name]
    if set(before) - set(after):  # what goes, goes last
        assert all(b"Dreamed" in after[name] for name in ("a.md", "b.md"))
    place.age(HERE + 60)
    state = place.lock.state()
    assert (state.holder, place.path.stat().st_mtime_ns) == (None, LAST)
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
