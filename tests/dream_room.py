"""A real agent in a project with memories, whose server answers the conversation and, apart from it, dreams."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rooms import KEY, MODEL

from ipyagent import Agent, IPyAgent
from ipyagent.journal.events import Event
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.metadata_index import RECORDED, Records
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import NAME
from ipyagent.practice.model import answer as practice
from ipyagent.practice.replies import Fault, Reply, calls, text
from ipyagent.practice.server import PracticeServer
from ipyagent.project import DREAM, Project

Answer = Reply | Fault | Callable[[dict[str, Any]], Reply | Fault]
LAST = 1_790_000_000_123_456_789
"""Nanoseconds: when the memories were tidied last."""


def order_in(body: dict[str, Any]) -> str:
    """The order of a dream; "" when the request is none."""
    first = body["messages"][0]["content"]
    found = [block["text"] for block in first if block["type"] == "text"] if isinstance(first, list) else [first]
    return next((words for words in found if words.startswith("<dream>")), "")


def memory(**given: Any) -> tuple[str, dict[str, Any]]:
    """A call of the memory tool."""
    return "memory", given


def deleting(*names: str) -> Reply:
    return calls([memory(command="delete", path=f"/memories/project/{name}") for name in names])


class DreamRoom:
    """`dreams` are the replies to dreams, in order; then `dream` answers, by default the practice model."""

    def __init__(self, place: Path) -> None:
        self.folder, self.home = place / "project", place / "home"
        self.words = "ok"
        """What the model says to the user."""
        self.folder.mkdir()
        self.project = Project(self.folder.resolve(), self.home.resolve())
        self.project.make()
        self.store = MemoryStore(self.project.folder.resolve() / "memory", "project")
        self.dreams: list[Answer] = []
        self.dream: Answer = practice
        self.server = PracticeServer(self._answer).start()
        self.agents: list[Agent] = []
        self._mutex = threading.Lock()

    def _answer(self, body: dict[str, Any]) -> Reply | Fault:
        with self._mutex:
            answer: Answer = text(self.words)
            if order_in(body):
                answer = self.dreams.pop(0) if self.dreams else self.dream
        return answer(body) if callable(answer) else answer

    def save(self, name: str, words: str, kind: str = "project", *, day: str = "2026-11-20", **more: str) -> None:
        """A memory of that day; `more` are further fields of its header."""
        head = {"name": name, "description": words.splitlines()[0][:100], "type": kind, **more}
        if more.get("source") == "said":  # as it is when the user said it here
            head[RECORDED] = Records(self.project.user).made(head, words)
        lines = [f"{key}: {value}" for key, value in head.items()]
        self.store.write(f"{name}.md", "\n".join(["---", *lines, "---", words]) + "\n", expected=None, by="user")
        when = time.mktime(time.strptime(day, "%Y-%m-%d")) + 40_000
        os.utime(self.store.folder / f"{name}.md", (when, when))

    def save_many(self, count: int = 6) -> None:
        for number in range(count):
            self.save(f"fact_{number}", f"Fact {number} is about {'abcdefghij'[number] * 9}.")

    def tidied(self) -> None:
        """The memories were tidied at LAST."""
        (self.store.folder / NAME).touch()
        os.utime(self.store.folder / NAME, ns=(LAST, LAST))

    @property
    def last(self) -> int:
        return (self.store.folder / NAME).stat().st_mtime_ns

    def agent(self, **settings: Any) -> Agent:
        """An agent for which every gate but trust is open."""
        given = {
            "base_url": self.server.url, "model": MODEL, "mode": "auto", "max_retries": 0, "layer_notes": False,
            "recall": False, "extraction": False, "dream_hours": 1.0, "dream_sessions": 1, **settings,
        }  # fmt: skip
        self.agents.append(Agent(settings=IPyAgent(environ={}, **given), folder=self.folder))
        return self.agents[-1]

    def turn(self, agent: Agent, *, settle: bool = True) -> None:
        assert agent.run_sync("hello there").status == "finished"
        if settle:
            assert agent.part(MemoryPart).dreaming.wait(60), "the dream did not end"

    def content(self) -> dict[str, str]:
        return {path.name: path.read_text("utf-8") for path in sorted(self.store.folder.glob("*.md"))}

    def events(self, kind: type[Any]) -> list[Any]:
        """Of all dreams, from the disk."""
        folders = sorted(self.project.sessions.glob(f"*{DREAM}"))
        found: list[Event] = [event for folder in folders for event in read_events(folder / TRANSCRIPT)]
        return [event for event in found if isinstance(event, kind)]

    def asked(self) -> list[dict[str, Any]]:
        """The bodies of requests that dreams made."""
        return [one.body for one in self.server.messages if one.body is not None and order_in(one.body)]

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.server.stop()


@contextmanager
def dream_room(place: Path) -> Iterator[DreamRoom]:
    """A room in `place`, with a key and a home of its own; nothing it asked for was refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("IPYAGENT_HOME", str(place / "home"))
        room = DreamRoom(place)
        try:
            yield room
            assert [exchange.error for exchange in room.server.refused] == []
        finally:
            room.close()
