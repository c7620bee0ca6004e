"""A real agent against the practice server: scripted replies and faults, every event seen."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ipyagent.agent import Agent, Options, TurnResult
from ipyagent.assembly.requests import NullSurface
from ipyagent.config import IPyAgent
from ipyagent.journal.events import Event, PermissionAsked, Retrying, Streamed, TurnEnded
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.protocols import PermissionAnswer, Tool, ToolOutput, TurnStatus, Workspace
from ipyagent.practice.replies import text
from ipyagent.practice.server import PracticeServer

KEY = "sk-ant-api03-Zq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5E"
MODEL = "claude-sonnet-5-5"


class Person(NullSurface):
    """Watches a turn and answers its questions in order; an answer may be a function of the question."""

    def __init__(
        self, *answers: PermissionAnswer | Callable[[PermissionAsked], PermissionAnswer | None], can_ask: bool = True
    ) -> None:
        self.can_ask = can_ask
        self.answers = list(answers)
        self.asked: list[PermissionAsked] = []
        self.events: list[Event] = []
        self.phases: list[str] = []
        self.on_phase: Callable[[str], None] = lambda phase: None

    def show(self, event: Event) -> None:
        self.events.append(event)

    def status(self, status: TurnStatus) -> None:
        self.phases.append(status.phase)
        self.on_phase(status.phase)

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        self.asked.append(asked)
        if not self.answers:
            await asyncio.Event().wait()  # nobody comes
        answer = self.answers.pop(0)
        found = answer(asked) if callable(answer) else answer
        return found if found is not None else PermissionAnswer("deny")


class Rig:
    """`turn` runs a request; `events` reads the transcript from the disk."""

    def __init__(
        self, folder: Path, server: PracticeServer, *, tools: Iterable[Tool] = (), url: str = "", **settings: Any
    ) -> None:
        given: dict[str, Any] = {
            "base_url": url or server.url,
            "model": MODEL,
            "mode": "auto",
            "max_retries": 2,
            "max_retry_wait": 0.05,
            "request_timeout": 5.0,
            "extraction": False,
            "layer_notes": False,  # a request in the background could be the newest one
            **settings,
        }
        self.server = server
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.settings = IPyAgent(**given)
        self.agent = Agent(settings=self.settings, folder=folder, tools=tools)
        self.seen = Person()

    def turn(self, said: str = "hello", person: Person | None = None, **options: Any) -> TurnResult:
        self.seen = person or Person(can_ask=False)
        return self.agent.prepare(said, Options(**options), self.seen).run_blocking()

    def fault_turn(self, said: str = "look at it", person: Person | None = None, **options: Any) -> TurnResult:
        """A turn that meets a fault: one line for the user, everything shown is on the disk first,
        and the next turn works without anything that the server refuses."""
        result = self.turn(said, person, **options)
        watched = self.seen
        one_line(result.message)
        for event in watched.events:
            if isinstance(event, Retrying):
                one_line(event.reason)
        kept = {event.id: event for event in self.events()}
        assert all(kept[event.id] == event for event in watched.events), "shown but not on the disk"
        ended = [event for event in watched.events if isinstance(event, TurnEnded)]
        assert [event.message for event in ended] == [result.message]
        self.server.script(text("and on we go"))
        following = self.turn("go on")
        assert (following.status, following.text) == ("finished", "and on we go"), following.message
        assert [exchange.error for exchange in self.server.refused] == []
        self.no_key()
        return result

    def events(self) -> list[Event]:
        session = self.agent.session
        return list(read_events(session.journal.folder / TRANSCRIPT))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events() if isinstance(event, kind)]

    def shown(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.seen.events if isinstance(event, kind)]

    def streamed(self) -> str:
        return "".join(event.text for event in self.shown(Streamed) if event.channel == "text")

    def results(self) -> list[dict[str, Any]]:
        """Tool results as the server got them with the newest request."""
        body = self.server.messages[-1].body
        content = [block for message in body["messages"] for block in message["content"]]
        return [block for block in content if block["type"] == "tool_result"]

    def no_key(self) -> None:
        """The key stands nowhere that we wrote."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                assert KEY.encode() not in path.read_bytes(), path
        session = self.agent.session
        assert KEY not in f"{self.agent!r} {session!r} {self.settings!r} {self.agent.endpoint()!r}"
        assert KEY not in repr(self.seen.events)

    def stop_when(self, condition: Callable[[], bool]) -> threading.Thread:
        """Stop the turn from another thread once the condition holds."""

        def wait() -> None:
            until = time.monotonic() + 80
            while time.monotonic() < until:
                if condition():
                    self.agent.stop()
                    return
                time.sleep(0.005)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        self.agent.close()


class Foreign:
    """Somebody else's tool object, which does as it likes."""

    description, parallel, recreatable = "Foreign.", True, True

    def __init__(self, act: Callable[[], Any], name: str = "foreign") -> None:
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {}}
        self.name = name
        self.act = act

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        return input

    def permission(self, input: Any, workspace: Workspace) -> Any:
        return "none"

    def writes(self, input: Any, workspace: Workspace) -> bool:
        return False

    def destructive(self, input: Any, workspace: Workspace) -> str:
        return ""

    def pattern(self, input: Any, workspace: Workspace) -> str:
        return self.name

    def question(self, input: Any, workspace: Workspace) -> Any:
        raise AssertionError("nobody is asked")

    async def run(self, input: Any, workspace: Workspace) -> ToolOutput:
        return self.act()


def one_line(message: str) -> None:
    assert "\n" not in message
    assert "Traceback" not in message
    assert KEY not in message
    assert len(message) < 900


def result_text(block: dict[str, Any]) -> str:
    content = block["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
