"""What the chips of a turn ask for: to click a recalled memory away, to undo a saved one; each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from ipyagent.errors import AgentError
from ipyagent.journal.events import Event, LayerFailed, MemorySaved
from ipyagent.ui.door import ButtonBridge
from ipyagent.ui.items import SavedItem
from ipyagent.ui.memory_chips import Deed, deeds_of
from ipyagent.ui.transcript import fold


class UndoActions(Protocol):
    """What can be done about memories. Both journal what they did and return it; both are called on a thread
    of their own and may raise AgentError or OSError."""

    def dismiss(self, path: str) -> Event:
        """The memory does not come again in this session."""

    def undo(self, saved: MemorySaved) -> Event:
        """Take back what was saved."""


class UndoController:
    """The deeds of one turn. `events` gives what the turn consists of by now, `done` takes the event of each
    deed on the agent's loop."""

    def __init__(
        self,
        deeds: UndoActions,
        door: ButtonBridge | None,
        events: Callable[[], Iterable[Event]],
        done: Callable[[Event], None],
    ) -> None:
        self._deeds = deeds
        self._door = door
        self._events = events
        self._done = done
        self._doors: dict[Deed, str] = {}
        self._tasks: dict[Deed, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<UndoController {len(self._tasks)} done>"

    def doors(self, loop: asyncio.AbstractEventLoop | None) -> dict[Deed, str]:
        """The marks of the buttons that the turn's static form has."""
        if self._door is None or loop is None:
            return {}
        for deed in deeds_of(fold(self._events())):
            if deed not in self._doors:
                self._doors[deed] = self._door.button(lambda deed=deed: self.ask(deed, loop))  # type: ignore[misc]
        return dict(self._doors)

    def ask(self, deed: Deed, loop: asyncio.AbstractEventLoop | None) -> None:
        """A button was pressed, on any thread, perhaps twice."""
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._begin, deed)

    def _begin(self, deed: Deed) -> None:
        if deed not in self._tasks:
            self._tasks[deed] = asyncio.get_running_loop().create_task(self._work(deed))

    async def _work(self, deed: Deed) -> None:
        kind, of = deed
        items = fold(self._events())
        if deed not in deeds_of(items):
            return  # not of this turn, or done already
        saved = next((item.saved for item in items if isinstance(item, SavedItem) and item.key == of), None)
        try:
            if kind == "dismiss":
                event = await asyncio.to_thread(self._deeds.dismiss, of)
            elif saved is not None:
                event = await asyncio.to_thread(self._deeds.undo, saved)
            else:
                return
        except (AgentError, OSError) as problem:
            del self._tasks[deed]  # it may be tried again
            event = LayerFailed(layer="memory", why=f"not undone: {' '.join(str(problem).split())[:300]}")
        self._done(event)
