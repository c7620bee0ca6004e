"""Messages of a session as its events tell: which came, and which may have gone out although their call was cut off."""

from __future__ import annotations

import json
from typing import Any

from ipyagent.journal.events import Event, MessageReceived, ToolCalled, ToolReturned

SENDING = "send_message"
CUT_OFF = "cut off"


class Correspondence:
    """Folds events. A message that a killed kernel was sending keeps its id when it is sent again word for word,
    so that it arrives once."""

    def __init__(self) -> None:
        self.received: set[str] = set()
        """Ids of the messages that were taken in."""
        self._sending: dict[str, str] = {}
        self._unsure: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Correspondence {len(self.received)} received>"

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case MessageReceived():
                self.received.add(event.message)
            case ToolCalled() if event.name == SENDING:
                self._sending[event.call] = _key(event.input)
            case ToolReturned() if (key := self._sending.pop(event.call, None)) is not None:
                if event.note == CUT_OFF:
                    self._unsure.setdefault(key, event.call)
                else:
                    self._unsure.pop(key, None)
            case _:
                pass

    def call_for(self, given: dict[str, Any], call: str) -> str:
        """The call whose id a message has: one that was cut off while it sent the very same, else `call`."""
        return self._unsure.get(_key(given), call)


def _key(given: dict[str, Any]) -> str:
    """What makes two calls send the same."""
    parts = [str(given.get("to", "")).strip(), given.get("kind") or "text", given.get("message", "")]
    return json.dumps(parts, default=repr)
