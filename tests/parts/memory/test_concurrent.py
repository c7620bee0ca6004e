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
from notes_room import until
from recall_room import index_names
from store_processes import END, OPERATIONS, SHARED, Processes, text_of

from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import NAME
from ipyagent.project import Project

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
        self.running: dict[str, int] = {}
        self.processes = Processes()
        self.dreaming: subprocess.Popen[str] | None = None
        self.store = MemoryStore(self.folder, "project")
        for name in SHARED:
            self.store.write(name, text_of(name), expected=None, by="user")

    def start(self, me: str, count: int, seed: int) -> None:
        self.running[me] = self.processes.ask("start", self.folder, self.logs, me, count, seed)

    def working(self) -> list[str]:
        there = self.processes.ask("working")
        return [me for me, process in list(self.running.items()) if process in there]

    def start_dream(self) -> subprocess.Popen[str]:
        """A real dream, with the practice model, as cron runs it."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "IPYAGENT_"))}
        environ = {**known, "PYTHONPATH": str(ROOT), "IPYAGENT_HOME": str(self.project.user)}
        order = ["dream", "--project", str(self.project.root), "--model", "practice"]
        command = [sys.executable, "-m", "ipyagent", *order]
        self.dreaming = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.project.root
        )
        return self.dreaming

    def kill_some(self, count: int, kills: int, longest: float) -> int:
        """Kill processes at random moments, each is followed by another; how many were hit at work."""
        chance, killed = random.Random(7), 0
        for number in range(kills):
            time.sleep(chance.uniform(0.02, longest))
            me = chance.choice(self.working() or ["none"])
            if me == "none":  # a quick machine was done with all of it: there is more
                self.start(f"more{number}", count, 2000 + number)
                continue
            killed += self.processes.ask("kill", self.running.pop(me))
            self.start("dream" if me == "dream" else f"again{number}", count // 2, 1000 + number)
        return killed

    def wait(self) -> None:
        """All come to their end, and none of them with an error."""
        assert {me: self.processes.ask("ended", process) for me, process in self.running.items()} == dict.fromkeys(
            self.running, 0
        )

    def stop(self) -> None:
        self.processes.close()
        if self.dreaming is not None and self.dreaming.poll() is None:
            self.dreaming.kill()
            self.dreaming.communicate()

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
        listed = {memory.name for memory in self.store.list()}
        on_disk = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.md")
                   if ".history" not in path.parts and path.name != "MEMORY.md"}  # fmt: skip
        assert Counter(index_names(self.store)) == Counter(listed)
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


def test_of_processes_at_once_of_which_some_are_killed_nothing_is_lost(crew: Crew) -> None:
    for number in range(4):
        crew.start(f"hand{number}", 40, number)
    crew.start("dream", 12, 99)
    assert crew.kill_some(50, 6, longest=0.12) >= 3
    crew.wait()
    crew.check()


def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new_state(crew: Crew, tmp_path: Path) -> None:
    every = crew.processes.ask("steps", tmp_path)
    assert every.keys() == OPERATIONS.keys()
    for operation, states in every.items():
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
    copies = crew.folder / ".history" / "dreams"
    while hands.is_alive() or crew.working():
        dream = crew.start_dream()
        if killed < kills:
            until(lambda dream=dream: dream.poll() is not None or any(each.is_dir() for each in copies.glob("*")))  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.2))
            dream.kill()
        out, problem = dream.communicate(timeout=120)
        killed += dream.returncode == -signal.SIGKILL
        if dream.returncode != -signal.SIGKILL:
            assert dream.returncode == 0, problem
            told.append(out.strip())
    dream = crew.start_dream()
    out, problem = dream.communicate(timeout=120)  # whatever was left behind is in nobody's way
    assert dream.returncode == 0, problem
    assert [path for path in copies.iterdir() if path.is_dir()] == []
    assert killed
    print(f"{len(told)} dreams came to their end, {killed} were killed:", *told, sep="\n")
    return [*told, out.strip()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_among_real_dreams_and_processes_of_which_some_are_killed_nothing_is_lost(crew: Crew) -> None:
    for number in range(6):
        crew.start(f"hand{number}", 120, number)
    shooter = Thread(target=crew.kill_some, args=(120, 25, 0.35))
    shooter.start()
    told = dream_while_they_work(crew, 25, shooter)
    shooter.join()
    crew.wait()
    crew.check()
    assert any("changed" in line for line in told), told
    dated = [name for name in SHARED if "Due on Thursday." not in (crew.folder / name).read_text(encoding="utf-8")]
    assert dated, told
