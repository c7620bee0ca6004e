"""A session as it grew: what stood in the context after every turn, and what each decision changed.

A function of the events alone. One walk over them keeps, around every decision, the list of messages as it
was; a message that was given out is never changed, so such a checkpoint costs pointers, not text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ipyagent.journal.events import (
    BlockDropped,
    CacheBroken,
    ChildEnded,
    Compacted,
    DecisionUndone,
    Event,
    ForkEnded,
    LayerFailed,
    MemorySaved,
    MemorySurfaced,
    ModelChosen,
    NotesWritten,
    PartEvent,
    PlanWritten,
    ResultsCleared,
    ResultStored,
    ServerEdited,
    SkillLoaded,
    SkillsListed,
    ThinkingDropped,
    TurnCollapsed,
    TurnEnded,
    TurnsRemoved,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.view import ContextView
from ipyagent.reports.comparing import Row, compare
from ipyagent.reports.shares import Shares


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to the context. `kind` is one word, `words` what it was; `turn` the
    number of the turn in which it happened (0: before the first); tokens are those of the next
    prompt just before and after."""

    event: int
    kind: str
    words: str
    turn: int
    tokens_before: int
    tokens_after: int


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A turn, numbered from 1 as users see it: its request, what stood in the context at its end by
    source, tokens of the next prompt, dollars (None: no price known), requests."""

    number: int
    text: str
    first: int
    last: int
    tokens: int
    sources: dict[str, int]
    cost: float | None
    requests: int
    ended: str


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the panel shows. `around` has the messages before and after each mark."""

    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    around: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]]

    def compare(self, event: int, chars: int = 4_000) -> list[Row]:
        """The view before and after a mark side by side, a row a message; unchanged ones are only
        counted. Raises KeyError for an event that is no mark."""
        return compare(*self.around[event], chars)


AROUND = 400
"""Decisions, the newest, whose messages before and after are kept; older ones are found again by `around`."""


class TimelineBuilder:
    """A session's timeline as its events come in, one after another. `timeline` may be asked for at any moment;
    a turn that runs is its last bar, with `ended` ""."""

    def __init__(self) -> None:
        self.view = ContextView()
        self._shares = Shares()
        self._bars: list[Bar] = []
        self._marks: list[Mark] = []
        self._around: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
        self._open: tuple[int, str] | None = None
        self._spent, self._priced, self._requests = 0.0, True, 0
        self.last = 0
        """The newest event's number."""

    def __repr__(self) -> str:
        return f"<TimelineBuilder {len(self._bars)} turns, event {self.last}>"

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        if isinstance(event, UserMessage):
            self._close("")
            self._open = (event.id, event.text)
        said = None if isinstance(event, ModelChosen) and not self.view.model else describe(event)
        if said is None:
            self.view.apply(event)
        else:
            self._mark(event, *said)
        self.last = event.id
        if isinstance(event, UsageReported | ForkEnded | ChildEnded):
            self._pay(event)
        elif isinstance(event, TurnEnded):
            self._close(event.status)

    @property
    def timeline(self) -> Timeline:
        """What was seen so far."""
        bars = [*self._bars, *([self._bar("")] if self._open is not None else [])]
        return Timeline(bars=tuple(bars), marks=tuple(self._marks), around=dict(self._around))

    def _pay(self, event: UsageReported | ForkEnded | ChildEnded) -> None:
        """What is paid after a turn is that turn's: work in the background, a compaction between turns."""
        requests = 1 if isinstance(event, UsageReported) else event.requests
        if self._open is None and self._bars:
            last = self._bars[-1]
            cost = None if last.cost is None or event.cost is None else last.cost + event.cost
            self._bars[-1] = msgspec.structs.replace(last, cost=cost, requests=last.requests + requests)
            return
        self._requests += requests
        self._priced = self._priced and event.cost is not None
        self._spent += event.cost or 0.0

    def _mark(self, event: Event, kind: str, words: str) -> None:
        view = self.view
        before, counted = list(view.messages), view.count().tokens
        view.apply(event)
        after = event.tokens_after if isinstance(event, Compacted) else 0  # with the system prompt that comes with it
        self._around[event.id] = before, list(view.messages)
        if len(self._around) > AROUND:
            del self._around[next(iter(self._around))]
        self._marks.append(
            Mark(
                event=event.id, kind=kind, words=words, turn=len(self._bars) + (self._open is not None),
                tokens_before=counted, tokens_after=after or view.count().tokens,
            )
        )  # fmt: skip

    def _bar(self, ended: str) -> Bar:
        assert self._open is not None
        first, text = self._open
        return Bar(
            number=len(self._bars) + 1, text=text, first=first, last=self.last, tokens=self.view.count().tokens,
            sources=self._shares.of(self.view), cost=self._spent if self._priced else None, requests=self._requests,
            ended=ended,
        )  # fmt: skip

    def _close(self, ended: str) -> None:
        if self._open is not None:
            self._bars.append(self._bar(ended))
            self._open, self._spent, self._requests, self._priced = None, 0.0, 0, True


def timeline(events: Iterable[Event]) -> Timeline:
    """The whole of a session, in time linear in its length."""
    walk = TimelineBuilder()
    for event in events:
        walk.apply(event)
    return walk.timeline


def around(events: Iterable[Event], event: int, chars: int = 4_000) -> list[Row]:
    """`Timeline.compare` for any decision, also one whose messages are not kept any more."""
    view = ContextView()
    for each in events:
        if each.id == event:
            before = list(view.messages)
            view.apply(each)
            return compare(before, list(view.messages), chars)
        view.apply(each)
    return []


def view_at(events: Iterable[Event], event: int) -> ContextView:
    """The view after the event of that number."""
    return ContextView.of(item for item in events if item.id <= event)


def describe(event: Event) -> tuple[str, str] | None:
    """Kind and words for what happened to the context; None for what is no mark."""
    match event:
        case ResultStored() if event.tokens:
            return "stored", f"a result of {event.chars:,} characters kept in {event.path}"
        case ResultsCleared():
            count = len(event.calls)
            return "cleared", f"{count} old tool result{'s' * (count != 1)} cleared, about {event.saved:,} tokens"
        case NotesWritten():
            return "notes", f"session notes written, {event.tokens:,} tokens"
        case Compacted():
            how = {"notes": "by the session's notes", "server": "by the provider"}.get(event.method, "by a summary")
            sizes = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
            return "compacted", f"events {event.first} to {event.last} replaced {how} ({event.trigger}), {sizes}"
        case TurnsRemoved():
            return "snipped", f"events {event.first} to {event.last} removed, about {event.saved:,} tokens"
        case TurnCollapsed():
            return "collapsed", f"events {event.first} to {event.last} shown short, about {event.saved:,} tokens less"
        case DecisionUndone():
            return "undone", f"the decision of event {event.event} was undone"
        case ServerEdited() if not event.cleared:
            return "server edit", f"the provider no longer leaves out anything by {event.edit}"
        case ServerEdited():
            return "server edit", f"the provider left out {event.cleared} by {event.edit}, {event.tokens:,} tokens"
        case CacheBroken():
            foreseen = "as decided" if event.expected else "unexpected"
            return "cache break", f"{event.missed:,} tokens were not read from cache ({foreseen}): {event.cause}"
        case MemorySurfaced():
            names = ", ".join(memory.path for memory in event.memories)
            return "recalled", f"memories shown to the model: {names}"
        case MemorySaved():
            return "saved", f"memory {event.change} by the {event.by}: {event.path}"
        case PlanWritten():
            done = sum(step.state == "done" for step in event.steps)
            return "plan", f"{done} of {len(event.steps)} steps done" if event.steps else "dropped"
        case SkillLoaded():
            return "skill", f"skill {event.name} loaded by the {event.by}, {event.counted or event.tokens:,} tokens"
        case SkillsListed() if event.why:
            return "skills", event.why
        case PartEvent() if event.why:
            return event.part, event.why
        case ThinkingDropped():
            return "thinking left out", event.why or f"thinking up to event {event.upto}"
        case BlockDropped():
            return "image left out", event.why or f"images of event {event.event}"
        case LayerFailed():
            return "failed", f"{event.layer}: {event.why}"
        case ModelChosen():
            return "model", f"using model: {event.model}"
        case _:
            return None
