"""A link under `.ipyagent/`, wherever it stands and wherever it leads, makes nothing be written, changed or deleted
elsewhere; and what somebody else has written there is nobody's answer."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rooms import KEY, MODEL

from ipyagent import agent_map
from ipyagent.agent import Agent, Options
from ipyagent.assembly.requests import NullSurface
from ipyagent.config import IPyAgent
from ipyagent.errors import AgentError, ToolFailure
from ipyagent.fleet.batch import BatchFolder, new
from ipyagent.loop.mailbox import MailMessage, post
from ipyagent.parts.mcp.entries import put_entry
from ipyagent.parts.mcp.stdio import ServerLog
from ipyagent.parts.mcp.tool import ResultFiles
from ipyagent.parts.memory.dream_workspace import DreamWorkspace
from ipyagent.parts.memory.stores import MemoryStores
from ipyagent.parts.memory.transcripts import CACHE, search_sessions
from ipyagent.parts.skills.parse import write_skill
from ipyagent.practice.replies import Fault, Reply, fault, text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.project import Project, user_folder

MEMORY = "---\nname: Herons\ndescription: Herons nest in April\ntype: project\n---\nHerons nest in April.\n"
CALLS = {
    "print": ("python", {"code": "print('heron\\n' * 20_000)"}),
    "write": ("write_file", {"path": "a.txt", "content": "new\n"}),
    "read": ("read_file", {"path": "a.txt"}),
    "remember": ("memory", {"command": "create", "path": "/memories/project/herons.md", "file_text": MEMORY}),
    "delegate": ("agent", {"task": "be plain", "prompt": "be plain"}),
    "plan": ("plan", {"steps": [{"text": "count", "state": "done"}]}),
}


def answer(body: dict[str, Any]) -> Reply | Fault:
    """Calls the tool that the request names by its word, then says that it is done."""
    last = body["messages"][-1]["content"]
    blocks = last if isinstance(last, list) else [{"type": "text", "text": last}]
    words = " ".join(block.get("text", "") for block in blocks if block["type"] == "text")
    if "be refused" in words:
        return fault(400, message="messages.0: this cannot be")
    for word, (name, given) in CALLS.items():
        if f"please {word}" in words:
            return tool(name, given)
    return text("<summary>\nWe counted herons.\n</summary>" if "<summary>" in words else "done")


class Place:
    def __init__(self, top: Path, url: str) -> None:
        self.folder, self.outside = top / "project", top / "outside"
        self.folder.mkdir(parents=True)
        (self.outside / "folder").mkdir(parents=True)
        (self.outside / "file").write_text("theirs\n")
        (self.outside / "folder/stop-1").write_text("theirs\n")
        for path in (self.outside / "folder/stop-1", self.outside / "file"):
            os.utime(path, (1e9, 1e9))
        (self.folder / "a.txt").write_text("old\n")
        self.project = Project(self.folder, user_folder(), self.folder)
        self.settings = {
            "base_url": url, "model": MODEL, "mode": "auto", "max_retries": 0, "extraction": False, "dreaming": False,
            "notes_start": 100, "notes_calls": 0,
        }  # fmt: skip
        self.said: list[str] = []

    def outside_now(self) -> list[tuple[str, bytes, float]]:
        files = [path for path in sorted(self.outside.rglob("*")) if not path.is_dir()]
        folders = [str(path) for path in self.outside.rglob("*") if path.is_dir()]
        return [(f"{path} {folders}", path.read_bytes(), path.stat().st_mtime) for path in files]

    def attempt(self, step: Callable[[], object]) -> None:
        """A step may be refused, in words; it never ends in another way."""
        try:
            step()
        except (AgentError, ToolFailure) as problem:
            self.said.append(str(problem))

    def work(self, planted: Callable[[Path], None] = lambda session: None) -> None:
        """A session that writes about all that is ever written; `planted` is called once it has begun."""
        agent = Agent(settings=IPyAgent(**self.settings), folder=self.folder)

        def turn(said: str) -> None:
            self.attempt(lambda: agent.prepare(said, Options(), NullSurface()).run_blocking())

        try:
            turn("hello")
            session = agent.session.journal.folder if agent.session is not None else None
            if session is not None:
                planted(session)
                log, kept = ServerLog("birds"), ResultFiles(session / "tool-results", str)
                log.folder = session
                log.write(b"a line\n")
                kept.put(b"sound", "audio/wav")
                self.attempt(lambda: post(session, MailMessage(id="1", sender="bob", text="hi")))
            for said in ("print", "read", "write", "remember", "delegate", "plan"):
                turn(f"please {said}")
            self.attempt(lambda: agent.undo())
            self.attempt(lambda: agent.compact())
            turn("be refused")
            if agent.session is not None:
                self.attempt(lambda: agent.sessions.aside(with_history=True).close())
                self.attempt(agent.fork)
        finally:
            agent.close()
        project = self.project
        given = {**self.settings, "mode": "auto"}
        self.attempt(lambda: agent_map(["be plain"], settings=given, folder=self.folder, progress=False))
        self.attempt(lambda: agent_map(["be brief"], batch=True, settings=given, folder=self.folder, progress=False))
        self.attempt(lambda: BatchFolder(project.sessions / "map", project.user).put(new("s", MODEL, {"k": "x"}, 1)))
        self.attempt(lambda: write_skill(project.folder / "skills", "count-birds"))
        self.attempt(lambda: put_entry(project.folder / "mcp.json", "birds", {"command": "birds"}))
        self.attempt(project.trust)
        self.attempt(
            lambda: search_sessions(list(project.session_folders()), "heron", cache=project.folder / "cache" / CACHE)
        )

        def dream() -> None:
            store = MemoryStores(project, IPyAgent(**self.settings)).any_store("project")
            store.snapshot()
            DreamWorkspace.make(store).drop()

        self.attempt(dream)


@pytest.fixture(scope="module")
def server() -> Iterator[PracticeServer]:
    with PracticeServer(brain=answer) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    return tmp_path


def written(place: Place) -> list[str]:
    """Every path under `.ipyagent/`, the names of sessions as `*`."""
    own = place.project.folder
    found = set()
    for path in own.rglob("*"):
        parts = list(path.relative_to(own).parts)
        for at, part in enumerate(parts):
            if part[:8].isdigit() and part[8:9] == "-":
                parts[at] = "*"
        found.add("/".join(parts))
    return sorted(found)


def planted(own: Path, name: str, goal: Path) -> None:
    """A link in the place of what may stand there."""
    path = own / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(goal)


class Interrupted(Executor):
    """The person stops it when the first task is handed over."""

    def submit(self, *given: Any, **more: Any) -> Any:
        raise KeyboardInterrupt


IN_SESSION = "sessions/*/"


def test_a_link_at_any_path_that_is_written_leads_nowhere(home: Path, server: PracticeServer) -> None:
    """A first session tells what is written. In the next ones links stand there, to what is there and to what is not:
    in the place of every file at once, in a trusted project and in one that is not, and of the folders one depth after
    the other, one of the two in a trusted project."""
    first = Place(home / "first", server.url)
    first.work()
    assert first.said == []
    names = [name for name in written(first) if not name.endswith("*") and f"{IN_SESSION}lock" != name]
    assert len(names) > 40
    for part in ("tool-results/left-1.txt", "backups/", "inbox.jsonl", "map/done/", "children/", "bug-report"):
        assert any(part in name for name in names), part
    folders = [name for name in names if any(other.startswith(f"{name}/") for other in names)]
    groups = [["sessions"], [name for name in names if name not in folders]]
    groups += [[name for name in folders if name.count("/") == depth and name != "sessions"] for depth in range(4)]
    cases = [
        (group, goal, trusted)
        for number, group in enumerate(groups) for goal in ("there", "nowhere") for trusted in (True, False)
        if number == 1 or trusted == ((goal == "there") == (number % 2 == 0))
    ]  # fmt: skip
    for number, (group, goal, trusted) in enumerate(cases):
        place = Place(home / str(number), server.url)
        own = place.project.folder
        if trusted:
            place.project.make()
            assert place.project.trusted
        own.mkdir(exist_ok=True)

        def goal_of(name: str, place: Place = place, goal: str = goal) -> Path:
            known = "folder" if name in folders else "file"
            return place.outside / (known if goal == "there" else f"nowhere-{name.replace('/', '-')}")

        for name in group:
            if "*" not in name:
                planted(own, name, goal_of(name))
        inner = [name.removeprefix(IN_SESSION) for name in group if name.startswith(IN_SESSION)]

        def in_session(session: Path, inner: list[str] = inner, of: Callable[[str], Path] = goal_of) -> None:
            for name in inner:
                if "*" not in name:
                    planted(session, name, of(IN_SESSION + name))

        before = place.outside_now()
        place.work(in_session)
        assert place.outside_now() == before, (goal, trusted, group)


def test_the_folder_itself_may_be_a_link_of_the_users(home: Path, server: PracticeServer) -> None:
    """To another disk, say: all works there once the user has said that it is theirs."""
    place = Place(home, server.url)
    (home / "disk").mkdir()
    place.project.folder.symlink_to(home / "disk")
    place.attempt(lambda: agent_map(["be plain"], settings=place.settings, folder=place.folder, progress=False))
    assert "is a link that leads to" in place.said.pop()
    assert list((home / "disk").iterdir()) == []
    place.project.trust()
    place.work()
    assert place.said == []
    assert (home / "disk/memory/herons.md").exists()
    assert {"sessions", "cache", "memory", "skills", "mcp.json"} <= {path.name for path in (home / "disk").iterdir()}


def test_forged_outcomes_batches_and_signs_do_nothing(home: Path, server: PracticeServer) -> None:
    """Not in a trusted project either: what an earlier run of this user did not write is as if it were not there."""
    place = Place(home, server.url)
    own = place.project.sessions / "map"
    prompts = ["be plain", "be brief"]

    def rows(**more: Any) -> list[tuple[str, int]]:
        found = agent_map(prompts, settings=place.settings, folder=place.folder, progress=False, **more)
        return [(row["text"], row["tries"]) for row in found]

    assert rows() == [("done", 1)] * 2
    assert rows() == [("done", 0)] * 2
    forged = []
    for file in sorted((own / "done").iterdir()):
        sealed = msgspec.json.decode(file.read_bytes())
        outcome = {**sealed.get("outcome", sealed), "text": "pwned", "status": "finished"}
        forged.append((file, [outcome, {**sealed, "outcome": outcome}, {"seal": "", "outcome": outcome}]))
    for trusted in (True, False):
        place.project.trust() if trusted else place.project.distrust()
        for kind in range(3):
            for file, forms in forged:
                file.write_bytes(msgspec.json.encode(forms[kind]))
            assert rows() == [("done", 1)] * 2, (trusted, kind)
    shutil.rmtree(own / "done")
    keys = {file.stem: prompt for (file, _), prompt in zip(forged, prompts, strict=True)}
    (own / "batches").mkdir(exist_ok=True)
    batch = {"server": server.url, "model": MODEL, "prompts": keys, "tries": 1, "at": time.time(), "id": "m"}
    batch["name"] = "x"
    (own / "batches/x.json").write_bytes(msgspec.json.encode(batch))
    (own / "batches/y.json").write_bytes(msgspec.json.encode({"signature": "0" * 32, "batch": batch}))
    assert rows(batch=True) == [("done", 1)] * 2
    assert (own / "batches/x.json").exists()
    assert (own / "batches/y.json").exists()


def test_what_agent_map_takes_away_is_its_own(home: Path, server: PracticeServer) -> None:
    place = Place(home, server.url)
    own = place.project.sessions / "map"
    own.mkdir(parents=True)
    (own / "stop-mine").write_text("the user's own notes")
    (own / "stop-link").symlink_to(place.outside / "file")
    os.utime(own / "stop-mine", (1e9, 1e9))

    with pytest.raises(KeyboardInterrupt):
        agent_map(["one"], Interrupted(), settings=place.settings, folder=place.folder, progress=False)
    signs = [path for path in own.glob("stop-*") if path.name not in ("stop-mine", "stop-link")]
    assert len(signs) == 1
    os.utime(signs[0], (1e9, 1e9))
    agent_map(["two"], settings=place.settings, folder=place.folder, progress=False)
    assert sorted(path.name for path in own.glob("stop-*")) == ["stop-link", "stop-mine"]
