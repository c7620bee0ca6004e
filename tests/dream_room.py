"""A room with memories, whose server answers dreams apart from the conversation."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from agent_room import AgentRoom, named, order_among

from ipyagent import Agent
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.metadata_index import sealed
from ipyagent.parts.memory.store import MemoryStore
from ipyagent.parts.memory.transaction import NAME
from ipyagent.practice.model import answer as practice
from ipyagent.practice.replies import Reply, calls, text
from ipyagent.project import DREAM, Project

LAST = 1_790_000_000_123_456_789
"""Nanoseconds: when the memories were tidied last."""


def order_in(body: dict[str, Any]) -> str:
    """The order of a dream; "" when the request is none."""
    return order_among(body["messages"][:1], "<dream>")


def memory(**given: Any) -> tuple[str, dict[str, Any]]:
    """A call of the memory tool."""
    return "memory", given


def deleting(*names: str) -> Reply:
    return calls([memory(command="delete", path=f"/memories/project/{name}") for name in names])


class DreamRoom(AgentRoom):
    SETTINGS: ClassVar = {
        "max_retries": 0, "layer_notes": False, "recall": False, "extraction": False,
        "dream_hours": 1.0, "dream_sessions": 1,  # every gate but trust is open
    }  # fmt: skip
    order = staticmethod(order_in)
    dreams, dream = named("behind"), named("always")

    def __init__(self, place: Path, **given: Any) -> None:
        super().__init__(place, **given)
        self.project = Project(self.folder.resolve(), self.home.resolve())
        self.project.make()
        self.store = MemoryStore(self.project.folder.resolve() / "memory", "project")

    def save(self, name: str, words: str, kind: str = "project", *, day: str = "2026-11-20", **more: str) -> None:
        """A memory of that day; `more` are further fields of its header."""
        head = {"name": name, "description": words.splitlines()[0][:100], "type": kind, **more}
        text = sealed(self.project.user, head, f"{words}\n")  # with the record of what the user said here
        self.store.write(f"{name}.md", text, expected=None, by="user")
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

    def settle(self, agent: Agent) -> None:
        assert agent.part(MemoryPart).dreaming.wait(60), "the dream did not end"

    def content(self) -> dict[str, str]:
        return {path.name: path.read_text("utf-8") for path in sorted(self.store.folder.glob("*.md"))}

    def turn(self, agent: Agent, *, settle: bool = True) -> None:  # type: ignore[override]
        assert super().turn(agent, "hello there", text("ok"), settle=settle).status == "finished"

    def asked(self) -> list[Any]:  # type: ignore[override]
        """The bodies of requests that dreams made."""
        return [one.body for one in super().asked(behind=True)]

    def events(self, kind: type[Any]) -> list[Any]:
        """Events of all dreams, from the disk."""
        folders = sorted(self.project.sessions.glob(f"*{DREAM}"))
        return [event for each in folders for event in read_events(each / TRANSCRIPT) if isinstance(event, kind)]


@contextmanager
def dream_room(place: Path) -> Iterator[DreamRoom]:
    """In which nothing may be refused."""
    with DreamRoom.opened(place, always=practice) as room:
        yield room
        room.nothing_refused()
