"""A room whose server answers extractions apart from the conversation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from agent_room import AgentRoom, named, order_among

from ipyagent import Agent
from ipyagent.parts.memory import MemoryPart
from ipyagent.practice.model import answer as practice
from ipyagent.practice.replies import Reply, calls
from ipyagent.practice.server import Exchange


def directive_in(body: dict[str, Any]) -> str:
    """The order of an extraction; "" when the request is none."""
    found = order_among(body.get("messages", [])[-12:], "<extract-memories>", "Two orders follow")
    return found[found.index("<extract-memories>") :] if found else ""


def memory_file(fact: str, kind: str = "feedback", name: str = "plots") -> str:
    """The text of a memory."""
    return f"---\nname: {name}\ndescription: {fact}\ntype: {kind}\n---\n{fact}\n\n**Why:** said so.\n"


def creating(path: str, fact: str, kind: str = "feedback") -> Reply:
    """A reply of the model that saves one memory."""
    return calls([("memory", {"command": "create", "path": path, "file_text": memory_file(fact, kind)})])


class ExtractRoom(AgentRoom):
    SETTINGS: ClassVar = {
        "max_retries": 1, "layer_notes": False, "recall": False, "dreaming": False,
        "extract_words": 0,  # after every turn
        "extract_from": "conversation", "background_percent": 100.0,
    }  # fmt: skip
    order = staticmethod(directive_in)
    extractions, extraction = named("behind"), named("always")

    def settle(self, agent: Agent) -> None:
        assert agent.part(MemoryPart).extracting.wait(self.session(agent), 60), "the extraction did not end"

    def asked(self, *, extractions: bool) -> list[Exchange]:  # type: ignore[override]
        return super().asked(behind=extractions)

    def memories(self, scope: str = "project") -> dict[str, str]:
        """The memories on the disk by name, without the index."""
        folder = self.folder / ".ipyagent" / "memory" if scope == "project" else self.home / "memory"
        found = sorted(path for path in folder.rglob("*.md") if path.name != "MEMORY.md")
        return {
            path.relative_to(folder).as_posix(): path.read_text("utf-8")
            for path in found
            if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        }


@contextmanager
def extract_room(place: Path) -> Iterator[ExtractRoom]:
    """In which nothing may be refused."""
    with ExtractRoom.opened(place, always=practice) as room:
        yield room
        room.nothing_refused()
