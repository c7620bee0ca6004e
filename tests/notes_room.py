"""A real agent whose server answers the conversation and, apart from it, updates of the session's notes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rooms import KEY, MODEL

from ipyagent import Agent, IPyAgent, TurnResult
from ipyagent.context.notes_file import NOTES
from ipyagent.journal.events import Event
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import Fault, Reply, calls, text
from ipyagent.practice.server import Exchange, PracticeServer

Answer = Reply | Fault | Callable[[dict[str, Any]], Reply | Fault]

STATE = "_What is being worked on right now, what is not finished, and the very next step._"
LOG = "_One short line for each step that was taken, oldest first._"


def words(seed: int, tokens: int = 1_000) -> str:
    """Text of about so many tokens, the same for the same seed."""
    return " ".join(f"item {seed}-{n} weighs {n * 37 % 101} kg" for n in range(tokens // 7))


def path_in(body: dict[str, Any]) -> str:
    """The file that an update is about."""
    found: str = directive_in(body).split('file="', 1)[1].split('"', 1)[0]
    return found


def directive_in(body: dict[str, Any]) -> str:
    """The order of an update of the notes; "" when the request is none."""
    for message in body["messages"][-9:]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "text" and block["text"].startswith("<update-notes"):
                return str(block["text"])
    return ""


def noting(*pairs: tuple[str, str]) -> Answer:
    """An update that puts each text under the line it is given with."""

    def answer(body: dict[str, Any]) -> Reply:
        edits = [{"path": path_in(body), "old": about, "new": f"{about}\n{said}"} for about, said in pairs]
        return calls([("edit_file", edit) for edit in edits])

    return answer


class NotesRoom:
    """`turn` runs a request whose replies are given; `settle` waits for the work behind it."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "project"
        self.folder.mkdir(exist_ok=True)
        self.replies: list[Answer] = []
        self.updates: list[Answer] = []
        self.update: Answer = noting((STATE, "All is well."))
        self.server = PracticeServer(self._answer).start()
        self.agents: list[Agent] = []
        self._lock = threading.Lock()

    def _answer(self, body: dict[str, Any]) -> Reply | Fault:
        with self._lock:
            if directive_in(body):
                answer = self.updates.pop(0) if self.updates else self.update
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
            "notes_start": 1_500,
            "notes_step": 800,
            "extraction": False,
            "memory": False,  # a head of its own size would move the marks
            "skills": False,
            "messages": False,
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
        assert agent.session.background.wait(60), "the background work did not end"

    def events(self, agent: Agent, kind: type[Any] | None = None) -> list[Any]:
        assert agent.session is not None
        found: list[Event] = list(read_events(agent.session.journal.folder / TRANSCRIPT))
        return [event for event in found if kind is None or isinstance(event, kind)]

    def notes(self, agent: Agent) -> str:
        assert agent.session is not None
        path = agent.session.journal.folder / NOTES
        return path.read_text("utf-8") if path.exists() else ""

    def asked(self, *, updates: bool) -> list[Exchange]:
        """Requests to the model: updates of the notes, or the conversation."""
        return [one for one in self.server.messages if one.body is not None and bool(directive_in(one.body)) == updates]

    def refused(self) -> list[str]:
        return [exchange.error for exchange in self.server.refused]

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.server.stop()


@contextmanager
def notes_room(place: Path) -> Iterator[NotesRoom]:
    """A room in `place`, with a key and a home of its own; nothing it asked for was refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("IPYAGENT_HOME", str(place / "home"))
        room = NotesRoom(place)
        try:
            yield room
            assert room.refused() == []
        finally:
            room.close()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait for a condition; whether it came to hold."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()
