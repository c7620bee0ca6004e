"""Surfaces for callers that show nothing themselves: scripts and services."""

from __future__ import annotations

import asyncio

from ipyagent.journal.events import Event, PermissionAsked
from ipyagent.journal.protocols import PermissionAnswer, TurnStatus


class NullSurface:
    """Shows nothing and answers nothing: what needs a yes is denied before it comes here."""

    can_ask = False

    def open(self) -> None:
        """Nothing appears."""

    def show(self, event: Event) -> None:
        """Nothing is shown."""

    def status(self, status: TurnStatus) -> None:
        """Nothing is shown."""

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        return PermissionAnswer("deny", by="headless")

    def close(self) -> None:
        """Nothing to leave."""


class Listener(NullSurface):
    """Hands every event to the loop of an `async for`; None marks the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def show(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self.queue.put_nowait, event)

    def finish(self) -> None:
        """No more events come; called on the listening loop."""
        self._loop.call_soon(self.queue.put_nowait, None)
