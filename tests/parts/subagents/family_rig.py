"""A real agent whose model answers by rules of the test: by what the newest user message says, so that
sub-agents that work at the same time need no order."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rooms import MODEL

from ipyagent.agent import Agent, Options, TurnResult
from ipyagent.assembly.requests import NullSurface
from ipyagent.config import IPyAgent
from ipyagent.journal.events import Event, PermissionAsked
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT, read_events
from ipyagent.journal.protocols import PermissionAnswer, TurnStatus
from ipyagent.kernel.scope import make_shell
from ipyagent.practice.replies import Fault, Reply, text
from ipyagent.practice.server import PracticeServer

Rule = Callable[[dict[str, Any], int], Reply | Fault]
"""Answers a body; the number counts its requests of the same conversation, from 0."""


class Brain:
    """The first rule whose word stands in the newest words of the user's side answers ("ok" when none does)."""

    def __init__(self) -> None:
        self.rules: dict[str, Rule] = {}

    def __call__(self, body: dict[str, Any]) -> Reply | Fault:
        words, calls = newest(body)
        for word, rule in self.rules.items():
            if word in words:
                return rule(body, calls)
        return text("ok")


def newest(body: Mapping[str, Any]) -> tuple[str, int]:
    """The newest words on the user's side, and how many replies came since."""
    since = 0
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            since += 1
            continue
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = [str(block["text"]) for block in blocks if block["type"] == "text"]
        texts = [one for one in texts if not re.match(r"<(context|message)\b", one)]
        if texts:
            return texts[-1], since
    return "", since


def result_texts(body: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Text and `is_error` of every tool result of a request, in order."""
    found = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_result":
                content = block["content"]
                said = content if isinstance(content, str) else "\n".join(str(one.get("text", "")) for one in content)
                found.append((said, bool(block.get("is_error"))))
    return found


class Person(NullSurface):
    """Watches; `answer` says what becomes of each question (None: nobody is there)."""

    def __init__(self, answer: Callable[[PermissionAsked], PermissionAnswer] | None = None) -> None:
        self.can_ask = answer is not None
        self.answer = answer
        self.asked: list[PermissionAsked] = []
        self.events: list[Event] = []

    def show(self, event: Event) -> None:
        self.events.append(event)

    def status(self, status: TurnStatus) -> None:
        """Not looked at."""

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        self.asked.append(asked)
        await asyncio.sleep(0.01)
        return self.answer(asked)


class FamilyRig:
    """`turn` runs a request; `rules` tells the model what to say."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.brain = Brain()
        self.rules = self.brain.rules
        self.server = PracticeServer(self.brain, any_model=True).start()
        given: dict[str, Any] = {
            "base_url": self.server.url,
            "model": MODEL,
            "mode": "auto",
            "max_retries": 0,
            "request_timeout": 20.0,
            "extraction": False,
            "dreaming": False,
            "recall": False,
            "layer_notes": False,
            "subagent_progress": 0.0,
            **settings,
        }
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.shell = make_shell()
        self.settings = IPyAgent(**given)
        self.agent = Agent(settings=self.settings, folder=folder, shell=self.shell)
        self.seen = Person()

    @property
    def names(self) -> set[str]:
        """The user's variables."""
        hidden = self.shell.user_ns_hidden
        return {name for name in self.shell.user_ns if not name.startswith("_") and name not in hidden}

    def turn(self, said: str, person: Person | None = None, **options: Any) -> TurnResult:
        self.seen = person or Person()
        return self.agent.prepare(said, Options(**options), self.seen).run_blocking()

    def events(self) -> list[Event]:
        session = self.agent.session
        return list(read_events(session.journal.folder / TRANSCRIPT))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events() if isinstance(event, kind)]

    def child_events(self, child: str) -> list[Event]:
        session = self.agent.session
        return list(read_events(session.journal.folder / CHILDREN / child / TRANSCRIPT))

    def bodies(self, word: str) -> list[dict[str, Any]]:
        """Bodies of the requests whose newest words hold `word`."""
        found = [exchange.body for exchange in self.server.messages if exchange.body is not None]
        return [body for body in found if word in newest(body)[0]]

    def close(self) -> None:
        self.agent.close()
        self.server.stop()

    def tasks(self) -> list[str]:
        """Names of the tasks on the agent thread."""

        async def look() -> list[str]:
            return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]

        return self.agent._thread.start(look).result(timeout=60)


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until it holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.01)
