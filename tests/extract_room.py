"""A real agent whose server answers the conversation and, apart from it, extractions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rooms import KEY, MODEL

from ipyagent import Agent, IPyAgent, TurnResult
from ipyagent.journal.events import Event
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.parts.memory import MemoryPart
from ipyagent.practice.model import answer as practice
from ipyagent.practice.replies import Fault, Reply, calls, text
from ipyagent.practice.server import Exchange, PracticeServer

Answer = Reply | Fault | Callable[[dict[str, Any]], Reply | Fault]


def directive_in(body: dict[str, Any]) -> str:
    """The order of an extraction; "" when the request is none."""
    for message in body.get("messages", [])[-12:]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "text" and block["text"].startswith(("<extract-memories>", "Two orders follow")):
                return str(block["text"][block["text"].index("<extract-memories>") :])
    return ""


def memory_file(fact: str, kind: str = "feedback", name: str = "plots") -> str:
    """The text of a memory."""
    return f"---\nname: {name}\ndescription: {fact}\ntype: {kind}\n---\n{fact}\n\n**Why:** said so.\n"


def creating(path: str, fact: str, kind: str = "feedback") -> Reply:
    """A reply of the model that saves one memory."""
    return calls([("memory", {"command": "create", "path": path, "file_text": memory_file(fact, kind)})])


class ExtractRoom:
    """`turn` runs a request whose replies are given; `settle` waits for what is extracted behind it.
    `extractions` are the replies to extractions, in order; then `extraction` answers."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "project"
        self.home = place / "home"
        self.folder.mkdir(exist_ok=True)
        self.replies: list[Answer] = []
        self.extractions: list[Answer] = []
        self.extraction: Answer = practice
        self.server = PracticeServer(self._answer).start()
        self.agents: list[Agent] = []
        self._lock = threading.Lock()

    def _answer(self, body: dict[str, Any]) -> Reply | Fault:
        with self._lock:
            if directive_in(body):
                answer = self.extractions.pop(0) if self.extractions else self.extraction
            else:
                answer = self.replies.pop(0) if self.replies else text("ok")
        return answer(body) if callable(answer) else answer

    def agent(self, **settings: Any) -> Agent:
        given = {
            "base_url": self.server.url,
            "model": MODEL,
            "mode": "auto",
            "max_retries": 1,
            "max_retry_wait": 0.01,
            "layer_notes": False,
            "recall": False,
            "dreaming": False,
            "extract_words": 0,  # after every turn
            "extract_from": "conversation",
            "background_percent": 100.0,
            **settings,
        }
        self.agents.append(Agent(settings=IPyAgent(environ={}, **given), folder=self.folder))
        return self.agents[-1]

    def turn(self, agent: Agent, said: str, *replies: Answer, settle: bool = True) -> TurnResult:
        self.replies.extend(replies)
        result = agent.run_sync(said)
        if settle:
            self.settle(agent)
        return result

    def settle(self, agent: Agent) -> None:
        assert agent.session is not None
        assert agent.part(MemoryPart).extracting.wait(agent.session, 60), "the extraction did not end"

    def events(self, agent: Agent, kind: type[Any] | None = None) -> list[Any]:
        assert agent.session is not None
        found: list[Event] = list(read_events(agent.session.journal.folder / TRANSCRIPT))
        return [event for event in found if kind is None or isinstance(event, kind)]

    def asked(self, *, extractions: bool) -> list[Exchange]:
        """Requests to the model: extractions, or the conversation."""
        return [
            one for one in self.server.messages if one.body is not None and bool(directive_in(one.body)) == extractions
        ]

    def memories(self, scope: str = "project") -> dict[str, str]:
        """The memories on the disk by name, without the index."""
        folder = self.folder / ".ipyagent" / "memory" if scope == "project" else self.home / "memory"
        found = sorted(path for path in folder.rglob("*.md") if path.name != "MEMORY.md")
        return {
            path.relative_to(folder).as_posix(): path.read_text("utf-8")
            for path in found
            if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        }

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.server.stop()


@contextmanager
def extract_room(place: Path) -> Iterator[ExtractRoom]:
    """A room in `place`, with a key and a home of its own; nothing it asked for was refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("IPYAGENT_HOME", str(place / "home"))
        room = ExtractRoom(place)
        try:
            yield room
            assert [exchange.error for exchange in room.server.refused] == []
        finally:
            room.close()
