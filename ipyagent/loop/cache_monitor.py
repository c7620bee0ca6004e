"""Compares what the server read from its cache with what was there to read, and names the cause of a break.

What was there: everything that the request before had read or written. Breaks that a recorded decision
brings about (a compaction, a clearing, another model) are known beforehand from the events and
counted as expected; any other is unexpected, and its cause is looked for in the two requests, in the
clock, and in what the server says of it (`diagnostics`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ipyagent.journal.blocks import CACHE_SECONDS
from ipyagent.journal.events import (
    Block,
    BlockDropped,
    CacheBroken,
    Compacted,
    DecisionUndone,
    Event,
    ForkEnded,
    ModelChosen,
    ResultsCleared,
    ServerEdited,
    SystemPromptFrozen,
    ThinkingDropped,
    TurnCollapsed,
    TurnsRemoved,
    Usage,
    UsageReported,
)
from ipyagent.journal.protocols import Request
from ipyagent.journal.view import ContextView

SLACK = 1_024
"""Tokens that may be missed without a word: the smallest prefix that most models cache."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request as far as the cache depends on it, and when it went out (Unix time)."""

    model: str
    system: Sequence[Block]
    tools: Sequence[Block]
    messages: Sequence[dict[str, Any]]
    effort: str
    ttl: str
    images: bool
    at: float


BREAKS: dict[type[Event], Callable[[Any], str]] = {
    SystemPromptFrozen: lambda event: f"the system prompt was rendered again ({event.why})",
    Compacted: lambda event: f"compaction ({event.trigger})",
    TurnsRemoved: lambda event: "turns were removed",
    TurnCollapsed: lambda event: "a finished piece of work was collapsed",
    DecisionUndone: lambda event: "a compaction was undone",
    ResultsCleared: lambda event: f"{_results(len(event.calls))} cleared ({event.layer})",
    ServerEdited: lambda event: f"the server left out {event.tokens:,} tokens" if event.cleared
                                else "the server no longer leaves anything out",
    ThinkingDropped: lambda event: "thinking left the context",
    BlockDropped: lambda event: "pictures left the context",
}  # fmt: skip
"""What a recorded decision does to the cache."""


def _results(count: int) -> str:
    return "1 old tool result was" if count == 1 else f"{count:,} old tool results were"


class CacheWatch:
    """Folds events; is told of each request (`sent`) and of the reply's usage (`answered`)."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.expected = 0
        """Tokens that the next request should read from the cache."""
        self._known: list[str] = []
        self._model = ""
        self._used_at = 0.0
        self._pending: Sent | None = None
        self._last: Sent | None = None

    def __repr__(self) -> str:
        return f"<CacheWatch {self.expected:,} tokens expected, {len(self._known)} known breaks>"

    def apply(self, event: Event) -> None:
        """Take in the next event: known breaks, and what the cache holds."""
        match event:
            case UsageReported():
                if self._pending is None:  # an event of the past, taken up again
                    self._used_at = event.at
                    self._known.clear()  # what broke before it was told with that request
                    self.expected = event.usage.cache_read + event.usage.cache_write
            case ForkEnded():
                if event.usage.prompt and not event.model:  # a text of its own does not touch the prefix
                    self._used_at = event.at
            case ModelChosen():
                if self._model and event.model != self._model:
                    self._known.append("the model changed")
                self._model = event.model
            case SystemPromptFrozen(why=""):
                pass  # the first one
            case _:
                if (words := BREAKS.get(type(event))) is not None:  # the others only append
                    self._known.append(words(event))

    def sent(self, request: Request, view: ContextView, ttl: str) -> None:
        """A request of the conversation goes out now."""
        self._pending = Sent(
            model=request.model,
            system=tuple(view.system),
            tools=tuple(view.tools),
            messages=tuple(view.messages),
            effort=request.effort,
            ttl=ttl,
            images=view.event_with_images() is not None,
            at=self.clock(),
        )

    def answered(self, usage: Usage, miss: str = "", *, compacted: bool = False) -> CacheBroken | None:
        """The break that the reply's usage shows, if any. `miss` is the server's word for it; `compacted`: the
        server compacted within the request, as it was asked to."""
        if compacted:
            self._known.append("the server compacted the conversation")
        now, before, missed = self._pending, self._last, self.expected - usage.cache_read
        found: CacheBroken | None = None
        if now is not None and missed > SLACK:
            if self._known:
                found = CacheBroken(cause="; ".join(self._known), missed=missed, expected=True)
            else:
                cause, expected = self._cause(before, now, miss)
                found = CacheBroken(cause=cause, missed=missed, expected=expected)
        self._known.clear()
        self.expected = usage.cache_read + usage.cache_write
        if now is not None:
            self._last, self._pending, self._used_at = now, None, self.clock()
        return found

    def _cause(self, before: Sent | None, now: Sent, miss: str) -> tuple[str, bool]:
        """Why nobody foresaw it, and whether it is the way of the provider all the same."""
        says = f" (the server says {miss.replace('_', ' ')})" if miss else ""
        if before is not None:
            for what in ("model", "tools", "system"):
                if getattr(before, what) != getattr(now, what):
                    return f"the {'system prompt' if what == 'system' else what} changed{says}", False
            changed = first_change(before.messages, now.messages)
            if changed is not None:
                return f"message {changed + 1} changed{says}", False
            if now.images and not before.images:
                return "the first picture: the provider starts the messages over", True
            if before.effort != now.effort:
                return f"the effort changed{says}", False
        idle, kept = now.at - self._used_at, CACHE_SECONDS[now.ttl]
        if self._used_at and idle >= kept:
            return f"idle for {idle / 60:.0f} minutes, longer than the {kept / 60:.0f} that the cache lives", False
        return f"nothing changed here: the server lost it{says}", False


def first_change(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> int | None:
    """The index of the first message of `before` that `now` does not begin with; a message may have
    grown at its end. None when all are there."""
    for index, old in enumerate(before):
        if index >= len(now):
            return index
        new = now[index]
        if new is old:
            continue
        size = len(old["content"])
        if new["role"] != old["role"] or new["content"][:size] != old["content"]:
            return index
        if len(new["content"]) > size and index < len(before) - 1:
            return index
    return None
