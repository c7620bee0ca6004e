"""A project of its own with real agents in it, whose server answers the conversation and, apart from it, the requests
of one kind of work behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from rooms import KEY, MODEL

from ipyagent import Agent, IPyAgent, TurnResult
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.loop.session import Session
from ipyagent.practice.replies import Fault, Reply, text
from ipyagent.practice.server import Exchange, PracticeServer

Answer = Reply | Fault | Callable[[dict[str, Any]], Reply | Fault]


class AgentRoom:
    """`turn` runs a request whose replies are given, and waits for the work behind it (`settle`). Requests with an
    `order` are answered from `behind`, one after another, and then by `always`."""

    SETTINGS: ClassVar[dict[str, Any]]

    def __init__(self, place: Path, *, always: Answer, **server: Any) -> None:
        self.folder, self.home = place / "project", place / "home"
        self.folder.mkdir(exist_ok=True)
        self.replies: list[Answer] = []
        self.behind: list[Answer] = []
        self.always = always
        self.answer: Callable[[dict[str, Any]], Reply | Fault] | None = None
        """Answers everything, if given."""
        self.server = PracticeServer(self._answer, **server).start()
        self.agents: list[Agent] = []
        self._lock = threading.Lock()

    @classmethod
    @contextmanager
    def opened(cls, place: Path, **server: Any) -> Iterator[Self]:
        """A room in `place`, with a key and a home of its own; agents and server end with it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ANTHROPIC_API_KEY", KEY)
            patch.setenv("IPYAGENT_HOME", str(place / "home"))
            made = cls(place, **server)
            try:
                yield made
            finally:
                for agent in made.agents:
                    agent.close()
                made.server.stop()

    @staticmethod
    def order(body: dict[str, Any]) -> str:
        """What a request behind the conversation is told to do; "" when it belongs to the conversation."""
        raise NotImplementedError

    def _answer(self, body: dict[str, Any]) -> Reply | Fault:
        if self.answer is not None:
            return self.answer(body)
        with self._lock:
            if self.order(body):
                answer = self.behind.pop(0) if self.behind else self.always
            else:
                answer = self.replies.pop(0) if self.replies else text("ok")
        return answer(body) if callable(answer) else answer

    def agent(self, **settings: Any) -> Agent:
        given = {"base_url": self.server.url, "model": MODEL, "mode": "auto", "max_retry_wait": 0.01}
        settings = {**given, **self.SETTINGS, **settings}
        self.agents.append(Agent(settings=IPyAgent(environ={}, **settings), folder=self.folder))
        return self.agents[-1]

    def resumed(self, agent: Agent) -> Agent:
        """The session of an agent in the next one, as after a restart of the kernel."""
        session = agent.session.journal.session
        agent.close()
        later = self.agent()
        later.resume(session)
        return later

    def turn(self, agent: Agent, said: str, *replies: Answer, settle: bool = True) -> TurnResult:
        if replies:
            self.replies = list(replies)
        result = agent.run_sync(said)
        if settle:
            self.settle(agent)
        return result

    def settle(self, agent: Agent) -> None:
        """Wait for the work behind the conversation."""

    def session(self, agent: Agent) -> Session:
        return agent.session

    def events(self, agent: Agent, kind: type[Any] | None = None) -> list[Any]:
        """Of its session, from the disk."""
        found = read_events(self.session(agent).journal.folder / TRANSCRIPT)
        return [event for event in found if kind is None or isinstance(event, kind)]

    def asked(self, *, behind: bool) -> list[Exchange]:
        """Requests to the model: of the work behind the conversation, or of that itself."""
        return [one for one in self.server.messages if one.body is not None and bool(self.order(one.body)) == behind]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [exchange.body for exchange in self.server.messages if exchange.body is not None]

    def nothing_refused(self) -> None:
        assert [exchange.error for exchange in self.server.refused] == []


def named(name: str) -> Any:
    """The attribute of this name by another one."""
    return property(lambda room: getattr(room, name), lambda room, value: setattr(room, name, value))


def order_among(messages: list[dict[str, Any]], *begins: str) -> str:
    """The text block of these messages that begins so; "" when there is none."""
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "text" and block["text"].startswith(begins):
                return str(block["text"])
    return ""


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait for a condition; whether it came to hold."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return condition()


def words(seed: int, tokens: int = 1_000, each: float = 9.8) -> str:
    """Text of about so many tokens, the same for the same seed."""
    return " ".join(f"item {seed}-{n} weighs {n * 37 % 101} kg" for n in range(round(tokens / each)))
