"""A room whose server answers updates of the session's notes apart from the conversation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import agent_room
from agent_room import AgentRoom, Answer, named, order_among, until

from ipyagent import Agent
from ipyagent.context.notes_file import NOTES
from ipyagent.practice.replies import Reply, calls
from ipyagent.practice.server import Exchange

__all__ = ["LOG", "STATE", "NotesRoom", "directive_in", "notes_room", "noting", "path_in", "until", "words"]
STATE = "_What is being worked on right now, what is not finished, and the very next step._"
LOG = "_One short line for each step that was taken, oldest first._"


def words(seed: int, tokens: int = 1_000) -> str:
    return agent_room.words(seed, tokens, 7)


def path_in(body: dict[str, Any]) -> str:
    """The file that an update is about."""
    found: str = directive_in(body).split('file="', 1)[1].split('"', 1)[0]
    return found


def directive_in(body: dict[str, Any]) -> str:
    """The order of an update of the notes; "" when the request is none."""
    return order_among(body["messages"][-9:], "<update-notes")


def noting(*pairs: tuple[str, str]) -> Answer:
    """An update that puts each text under the line it is given with."""

    def answer(body: dict[str, Any]) -> Reply:
        edits = [{"path": path_in(body), "old": about, "new": f"{about}\n{said}"} for about, said in pairs]
        return calls([("edit_file", edit) for edit in edits])

    return answer


class NotesRoom(AgentRoom):
    SETTINGS: ClassVar = {
        "max_retries": 1, "notes_start": 1_500, "notes_step": 800, "extraction": False,
        "memory": False,  # a system prompt of its own size would move the thresholds
        "skills": False, "messages": False,
    }  # fmt: skip
    order = staticmethod(directive_in)
    updates, update = named("behind"), named("always")

    def settle(self, agent: Agent) -> None:
        assert self.session(agent).background.wait(60), "the background work did not end"

    def asked(self, *, updates: bool) -> list[Exchange]:  # type: ignore[override]
        return super().asked(behind=updates)

    def refused(self) -> list[str]:
        return [exchange.error for exchange in self.server.refused]

    def notes(self, agent: Agent) -> str:
        path = self.session(agent).journal.folder / NOTES
        return path.read_text("utf-8") if path.exists() else ""


@contextmanager
def notes_room(place: Path) -> Iterator[NotesRoom]:
    """In which nothing may be refused."""
    with NotesRoom.opened(place, always=noting((STATE, "All is well."))) as room:
        yield room
        room.nothing_refused()
