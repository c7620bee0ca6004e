"""Many processes in one memory directory: no update is lost, nothing is half, the index is the files, also when
processes are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Thread

import pytest
from store_hands import END, SHARED, text_of
from store_steps import OPERATIONS

from ipyagent.parts.memory.index import named_in
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import NAME
from ipyagent.project import Project

HANDS = Path(__file__).with_name("store_hands.py")
STEPS = Path(__file__).with_name("store_steps.py")
ROOT = Path(__file__).parents[3]


class Crew:
    """The processes and what they wrote down."""

    def __init__(self, tmp_path: Path) -> None:
        self.project = Project(tmp_path.resolve() / "project", tmp_path.resolve() / "home")
        self.project.root.mkdir()
        self.project.make()
        self.folder = self.project.folder / "memory"
        self.logs = tmp_path / "logs"
        self.logs.mkdir()
        self.running: dict[str, subprocess.Popen[str]] = {}
        self.dreaming: subprocess.Popen[str] | None = None
        self.store = MemoryStore(self.folder, "project")
        for name in SHARED:
            self.store.write(name, text_of(name), expected=None, by="user")

    def start(self, me: str, count: int, seed: int) -> None:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(HANDS), str(self.folder), str(self.logs / me), me, str(count), str(seed)]
        self.running[me] = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)

    def start_dream(self) -> None:
        """A real dream, with the practice model, as cron runs it."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "IPYAGENT_"))}
        environ = {**known, "PYTHONPATH": str(ROOT), "IPYAGENT_HOME": str(self.project.user)}
        order = ["dream", "--project", str(self.project.root), "--model", "practice"]
        command = [sys.executable, "-m", "ipyagent", *order]
        self.dreaming = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.project.root
        )

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for me, process in self.running.items():
            _, told = process.communicate(timeout=max(0.1, end - time.monotonic()))
            assert process.returncode == 0, f"{me}: {told}"

    def stop(self) -> None:
        for process in (*self.running.values(), *([self.dreaming] if self.dreaming is not None else [])):
            if process.poll() is None:
                process.kill()
            process.communicate()

    def check(self) -> None:
        """Everything that was done is there; what was begun by a killed process is there or not."""
        files: dict[str, list[str]] = {name: [] for name in SHARED}
        open_names: set[str] = set()
        lost = Counter[str]()
        for log in self.logs.iterdir():
            began: list[str] = []
            for line in log.read_text(encoding="utf-8").splitlines():
                state, *words = json.loads(line)
                if state == "began":
                    began = words
                    continue
                match words:
                    case "add", name, token:
                        files[name] = [token]
                    case "edit", name, token:
                        files[name].append(token)
                    case "rename", old, new:
                        files[new] = files.pop(old)
                    case "delete", name:
                        del files[name]
                began = []
            match began:
                case ["rename", old, new]:
                    there = [name for name in (old, new) if (self.folder / name).exists()]
                    assert len(there) == 1, began
                    files[there[0]] = files.pop(old)
                case ["add", name, _]:
                    open_names.add(name)
                case ["delete", name]:
                    open_names.add(name)
        index = Counter(name for line in self.store.index.text().splitlines() if (name := named_in(line)) is not None)
        listed = {memory.name for memory in self.store.list()}
        on_disk = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.md")
                   if ".history" not in path.parts and path.name != "MEMORY.md"}  # fmt: skip
        assert index == Counter(listed)
        assert listed == on_disk
        assert listed - open_names == set(files) - open_names
        for name in listed:
            text = (self.folder / name).read_text(encoding="utf-8")
            assert text.startswith("---\n"), name
            assert text.count(END) == 1, name
            assert text.endswith(END), name
            for token in files.get(name, []):
                lost[name] += text.count(f"- {token}\n") != 1
        assert not +lost
        assert [finding for finding in self.store.index.doctor() if finding.kind != "limit"] == []
        leftovers = [path.name for path in (self.folder / ".history" / "new").iterdir()]
        assert leftovers == []
        assert {path.name for path in self.folder.iterdir() if path.name.startswith(".")} - {NAME} == {".history"}


@pytest.fixture
def crew(tmp_path: Path) -> Crew:  # type: ignore[misc]
    made = Crew(tmp_path)
    yield made
    made.stop()


def work_together(crew: Crew, hands: int, count: int, seconds: float) -> None:
    for number in range(hands):
        crew.start(f"hand{number}", count, number)
    crew.start("dream", count // 4, 99)
    crew.wait(seconds)
    crew.check()


def work_under_fire(crew: Crew, hands: int, count: int, kills: int) -> None:
    for number in range(hands):
        crew.start(f"hand{number}", count, number)
    crew.start("dream", count // 4, 99)
    assert kill_some(crew, count, kills) >= kills // 2
    crew.wait(240)
    crew.check()


def kill_some(crew: Crew, count: int, kills: int) -> int:
    """Kill processes at random moments, each is followed by another; how many were hit at work."""
    chance, killed = random.Random(7), 0
    for number in range(kills):
        time.sleep(chance.uniform(0.05, 0.35))
        me = chance.choice([name for name, process in crew.running.items() if process.poll() is None] or ["none"])
        if me == "none":  # a quick machine was done with all of it: there is more
            crew.start(f"more{number}", count, 2000 + number)
            continue
        process = crew.running.pop(me)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        crew.start("dream" if me == "dream" else f"again{number}", count // 2, 1000 + number)
    return killed


def test_processes_at_once_lose_nothing(crew: Crew) -> None:
    work_together(crew, hands=4, count=30, seconds=60)


def test_killed_processes_lose_nothing(crew: Crew) -> None:
    work_under_fire(crew, hands=3, count=50, kills=6)


def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    command = [sys.executable, str(STEPS), str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    every = [json.loads(line) for line in done.stdout.splitlines()]
    for operation in OPERATIONS:
        states = [state for state in every if state["operation"] == operation]
        assert len(states) > 8, operation
        before, after = states[0], states[-1]
        assert before["files"] != after["files"]
        for state in states:
            assert sorted(state["index"]) == sorted(state["files"]), operation
            assert state["left"] == [], operation
            if operation == "put back":  # file by file
                for name, text in state["files"].items():
                    assert text in (before["files"].get(name), after["files"].get(name)), name
            else:
                assert state["files"] in (before["files"], after["files"]), operation


def dream_while_they_work(crew: Crew, kills: int, hands: Thread) -> list[str]:
    """Real dreams one after the other until all hands are done; some are killed. What each said at its end."""
    chance, told, killed = random.Random(5), list[str](), 0
    while hands.is_alive() or any(process.poll() is None for process in list(crew.running.values())):
        crew.start_dream()
        assert crew.dreaming is not None
        try:
            out, problem = crew.dreaming.communicate(timeout=chance.uniform(0.8, 5.0) if killed < kills else 120)
            assert crew.dreaming.returncode == 0, problem
            told.append(out.strip())
        except subprocess.TimeoutExpired:
            crew.dreaming.kill()
            crew.dreaming.communicate()
            killed += 1
    crew.start_dream()
    out, problem = crew.dreaming.communicate(timeout=120)  # whatever was left behind is in nobody's way
    assert crew.dreaming.returncode == 0, problem
    assert [path for path in (crew.folder / ".history" / "dreams").iterdir() if path.is_dir()] == []
    assert killed
    print(f"{len(told)} dreams came to their end, {killed} were killed:", *told, sep="\n")
    return [*told, out.strip()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_real_dreams_and_six_processes_with_120_operations_each_of_which_some_are_killed(crew: Crew) -> None:
    for number in range(6):
        crew.start(f"hand{number}", 120, number)
    shooter = Thread(target=kill_some, args=(crew, 120, 25))
    shooter.start()
    told = dream_while_they_work(crew, 25, shooter)
    shooter.join()
    crew.wait(60)
    crew.check()
    assert any("changed" in line for line in told), told
    dated = [name for name in SHARED if "Due on Thursday." not in (crew.folder / name).read_text(encoding="utf-8")]
    assert dated, told
