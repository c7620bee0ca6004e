"""Where a sub-agent's turn is shown: nowhere by itself. What it asks, its parent's surface asks, under its name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import msgspec

from ipyagent.errors import ModelError, NoSuchPath, UnknownModel
from ipyagent.journal.events import (
    Event,
    ForkEnded,
    PermissionAnswered,
    PermissionAsked,
    ToolCalled,
    UsageReported,
)
from ipyagent.journal.protocols import Model, PermissionAnswer, Request, TurnStatus
from ipyagent.loop.fork import answer_to
from ipyagent.loop.session import Session
from ipyagent.model.prices import at_most
from ipyagent.parts.subagents.subagent import Subagent
from ipyagent.parts.subagents.types import words

NOBODY = "the turn is over and nobody can be asked; do without it, or say so in your answer"


class SubagentSurface:
    """`asking` lets one question of all sub-agents stand at a time; `paid` is told of every cost."""

    def __init__(
        self, child: Subagent, parent: Session, asking: asyncio.Lock, paid: Callable[[float | None, float], None]
    ) -> None:
        self._child, self._parent, self._asking, self._paid = child, parent, asking, paid

    def __repr__(self) -> str:
        return f"<SubagentSurface of {self._child.name}>"

    @property
    def can_ask(self) -> bool:
        surface = self._parent.surface
        return surface is not None and surface.can_ask

    def open(self) -> None:
        """Nothing appears."""

    def close(self) -> None:
        """Nothing stays."""

    def show(self, event: Event) -> None:
        self._child.saw(event)
        if isinstance(event, UsageReported | ForkEnded):
            usage = event.usage if isinstance(event, ForkEnded) else event.paid
            self._paid(event.cost, at_most(event.cost, usage))

    def status(self, status: TurnStatus) -> None:
        self._child.phase = status.phase

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        parent, child = self._parent, self._child
        with child.waiting():
            async with self._asking:
                surface = parent.surface
                if surface is None or not surface.can_ask:
                    return PermissionAnswer("deny", NOBODY, "headless")
                mine = parent.record(
                    msgspec.structs.replace(
                        asked,
                        id=0,
                        parent=0,
                        at=0.0,
                        call=f"{child.id}:{asked.call}",
                        title=f"A sub-agent asks: {asked.title}",
                        said=f"{child.name}: {asked.said}".removesuffix(": "),  # the model gave it its name
                    )
                )
                try:
                    answer = await surface.ask(mine)
                except asyncio.CancelledError:
                    parent.record(PermissionAnswered(call=mine.call, answer="deny", by="stop"))
                    raise
                parent.record(
                    PermissionAnswered(call=mine.call, answer=answer.answer, by=answer.by, reason=answer.reason)
                )
                return answer


# ------------------------------------------------------------------ progress
# A line on what a sub-agent is about: three to five words of the cheapest model, which has no tools; what it does not
# answer in time or in form is made of the sub-agent's newest call.


PATIENCE = 10.0
MOST_TOKENS = 40
MOST_CHARS = 60
PURPOSE = "progress"
_FORM = re.compile(r"[A-Z]\w*ing(?: \S+){1,6}|\S*正在.{1,30}")
_VERBS = {
    "read_file": "Reading", "grep": "Searching", "glob": "Listing files", "variables": "Looking at variables",
    "write_file": "Writing", "edit_file": "Changing", "python": "Running code", "shell": "Running a command",
    "notebook": "Working on", "memory": "Looking into memory", "load_skill": "Loading the skill",
}  # fmt: skip
_NAMING = ("path", "name", "pattern", "file", "notebook")


async def progress_line(
    child: Subagent,
    model: Model | None,
    name: str,
    record: Callable[[ForkEnded], Any],
    missing: Callable[[str], object],
) -> str:
    """The line; `record` takes what it cost, `missing` the model's name where the server does not have it."""
    if model is None or not name:
        return plain_line(child)
    said = f"<doing>\nTask: {child.task}\nNow: {child.phase}\n{child.doing()}\n</doing>"
    request = Request(
        model=name,
        system=[{"type": "text", "text": words("progress")}],
        tools=[],
        messages=[{"role": "user", "content": [{"type": "text", "text": said}]}],
        max_tokens=MOST_TOKENS,
        thinking=False,
        purpose=PURPOSE,
    )
    answer = ""
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await answer_to(model, request, record)
    except (ModelError, TimeoutError) as problem:
        if isinstance(problem, UnknownModel) and not isinstance(problem, NoSuchPath):
            missing(name)
    line = " ".join(answer.split()).strip(" .\"'`")[:MOST_CHARS]
    return line if _FORM.fullmatch(line) else plain_line(child)


def plain_line(child: Subagent) -> str:
    """The same without a model."""
    last = child.last
    if not isinstance(last, ToolCalled):
        return child.phase[:1].upper() + child.phase[1:] if child.phase else ""
    verb = _VERBS.get(last.name, f"Using {last.name}")
    named = next((str(last.input[key]) for key in _NAMING if last.input.get(key)), "")
    return f"{verb} {PurePath(named).name}".strip()[:MOST_CHARS]
