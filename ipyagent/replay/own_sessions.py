"""Our own transcripts as recordings: what was said and what came back, without any decision on it."""

from __future__ import annotations

from collections.abc import Iterable

from ipyagent.journal.events import AssistantSaid, Event, ToolReturned, UserSaid
from ipyagent.replay.recording import Collector, Recording


def read_own(events: Iterable[Event]) -> Recording:
    """The recording of a journal's events."""
    collected = Collector("ipyagent")
    for event in events:
        match event:
            case UserSaid():
                collected.user(event.blocks)
            case AssistantSaid():
                collected.reply(event.blocks)
            case ToolReturned():
                collected.result(event.call, event.blocks, is_error=event.is_error)
            case _:
                pass  # the other events are decisions, and those a replay makes itself
    return collected.finished()
