"""What the user takes back with a click: a recalled memory for this session, a saved one for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ipyagent.errors import JournalError
from ipyagent.journal.events import Event, MemoryDismissed, MemorySaved
from ipyagent.loop.session import Session
from ipyagent.parts.memory.access import MemoryAccess
from ipyagent.parts.memory.stores import MemoryStores

E = TypeVar("E", bound=Event)


class MemoryUndo:
    """Deeds of the user at one kernel's memories; `session` gives the session of now (None: nothing is
    journalled)."""

    def __init__(self, memories: MemoryStores, session: Callable[[], Session | None]) -> None:
        self._memories = memories
        self._session = session

    def __repr__(self) -> str:
        return f"<MemoryUndo in {self._memories!r}>"

    def dismiss(self, path: str) -> MemoryDismissed:
        """The memory does not come again in this session."""
        return self._record(MemoryDismissed(path=path))

    def undo(self, saved: MemorySaved) -> MemorySaved:
        """Take back what was saved: the version before it is there again. Raises AgentError, OSError."""
        return self.access().undo(saved).event

    def access(self) -> MemoryAccess:
        """The memories as the user may change them."""
        return MemoryAccess(self._memories, by="user", record=self._record)

    def _record(self, event: E) -> E:
        session = self._session()
        if session is None:
            return event
        try:
            return session.record(event)
        except JournalError:  # the session was left: what was done stands all the same
            return event
