"""Where a sub-agent's turn is shown: nowhere by itself. What it asks, its parent's surface asks, under its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from ipyagent.children.child import Child
from ipyagent.journal.events import Event, ForkEnded, PermissionAnswered, PermissionAsked, UsageReported
from ipyagent.journal.protocols import Answer, Status
from ipyagent.loop.session import Session
from ipyagent.model.prices import at_most

NOBODY = "the turn is over and nobody can be asked; do without it, or say so in your answer"


class ChildSurface:
    """`asking` lets one question of all sub-agents stand at a time; `paid` is told of every cost."""

    def __init__(
        self, child: Child, parent: Session, asking: asyncio.Lock, paid: Callable[[float | None, float], None]
    ) -> None:
        self._child, self._parent, self._asking, self._paid = child, parent, asking, paid

    def __repr__(self) -> str:
        return f"<ChildSurface of {self._child.name}>"

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

    def status(self, status: Status) -> None:
        self._child.phase = status.phase

    async def ask(self, asked: PermissionAsked) -> Answer:
        parent, child = self._parent, self._child
        with child.waiting():
            async with self._asking:
                surface = parent.surface
                if surface is None or not surface.can_ask:
                    return Answer("deny", NOBODY, "headless")
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
