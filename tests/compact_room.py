"""A real agent whose server answers the conversation and, apart from it, calls for a summary."""

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
from ipyagent.journal.view import ContextView
from ipyagent.loop.session import Session
from ipyagent.practice.replies import Fault, Reply, text
from ipyagent.practice.server import PracticeServer

Answer = Reply | Fault | Callable[[dict[str, Any]], Reply | Fault]

DIRECTIVE = "is about to be taken out of your context"
GOOD = text("<analysis>Three boxes were weighed.</analysis>\n<summary>1. Request and intent: weigh boxes.</summary>")


def words(seed: int, tokens: int = 1_000) -> str:
    """Text of about so many tokens, the same for the same seed."""
    return " ".join(f"item {seed}-{n} weighs {n * 37 % 101} kg" for n in range(round(tokens / 9.8)))


def directive_in(body: dict[str, Any]) -> str:
    """The order to summarise; "" when the request is none."""
    content = body["messages"][-1]["content"]
    last = content[-1] if isinstance(content, list) else {"type": "text", "text": content}
    return str(last["text"]) if last["type"] == "text" and DIRECTIVE in last["text"] else ""


def plain(content: Any) -> str:
    """All text of a message's content."""
    if isinstance(content, str):
        return content
    found = []
    for block in content:
        found.append(str(block.get("text", "")))
        if block["type"] == "tool_result":
            found.append(plain(block["content"]))
    return "\n".join(found)


class CompactRoom:
    """`turn` runs a request whose replies are given; calls for a summary get `summaries`, then `summary`."""

    def __init__(self, place: Path, **server: Any) -> None:
        self.folder = place / "project"
        self.folder.mkdir(exist_ok=True)
        self.replies: list[Answer] = []
        self.summaries: list[Answer] = []
        self.summary: Answer = GOOD
        self.answer: Callable[[dict[str, Any]], Reply | Fault] | None = None
        """Answers everything, if given."""
        self.server = PracticeServer(self._answer, **server).start()
        self.agents: list[Agent] = []
        self._lock = threading.Lock()

    def _answer(self, body: dict[str, Any]) -> Reply | Fault:
        if self.answer is not None:
            return self.answer(body)
        with self._lock:
            if directive_in(body):
                answer: Answer = self.summaries.pop(0) if self.summaries else self.summary
            else:
                answer = self.replies.pop(0) if self.replies else text("ok")
        return answer(body) if callable(answer) else answer

    def agent(self, **settings: Any) -> Agent:
        given: dict[str, Any] = {
            "base_url": self.server.url,
            "model": MODEL,
            "mode": "auto",
            "max_retries": 0,
            "max_retry_wait": 0.01,
            "layer_notes": False,
            "extraction": False,
            "trust_all": True,
            "skills": False,  # those that come with ipyagent would move the figures, and so would
            "subagents": False,  # one more tool
            "messages": False,
            **settings,
        }
        self.agents.append(Agent(settings=IPyAgent(**given), folder=self.folder))
        return self.agents[-1]

    def turn(self, agent: Agent, said: str, *replies: Answer) -> TurnResult:
        self.replies = list(replies)
        return agent.run_sync(said)

    def session(self, agent: Agent) -> Session:
        assert agent.session is not None
        return agent.session

    def events(self, agent: Agent) -> list[Event]:
        return list(read_events(self.session(agent).journal.folder / TRANSCRIPT))

    def of(self, agent: Agent, kind: type[Any]) -> list[Any]:
        return [event for event in self.events(agent) if isinstance(event, kind)]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [exchange.body for exchange in self.server.messages if exchange.body is not None]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The requests for a summary."""
        return [body for body in self.bodies if directive_in(body)]

    def nothing_refused(self) -> None:
        assert [exchange.error for exchange in self.server.refused] == []

    def replays(self, agent: Agent) -> None:
        """The journal on the disk gives the bytes that the session would send."""
        assert ContextView.of(self.events(agent)).wire() == self.session(agent).view.wire()

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        self.server.stop()


@contextmanager
def compact_room(place: Path, **server: Any) -> Iterator[CompactRoom]:
    """A room in `place`; agents and server end with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("IPYAGENT_HOME", str(place / "home"))
        made = CompactRoom(place, **server)
        try:
            yield made
        finally:
            made.close()
