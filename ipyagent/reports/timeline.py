"""A session as it grew: what stood in the context after every turn, and what each decision changed.

Pure functions of the events. One walk over them keeps, at every turn's end and around every decision,
the list of messages as it was; a message that was given out is never changed, so such a checkpoint
costs pointers, not text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ipyagent.journal.events import (
    BlockDropped,
    CacheBroken,
    Collapsed,
    Compacted,
    DecisionUndone,
    Event,
    ForkEnded,
    LayerFailed,
    MemorySaved,
    MemorySurfaced,
    ModelChosen,
    NotesWritten,
    PlanWritten,
    ResultsCleared,
    ResultStored,
    ServerEdited,
    SkillLoaded,
    SkillsListed,
    Snipped,
    ThinkingDropped,
    TurnEnded,
    UsageReported,
    UserSaid,
)
from ipyagent.journal.view import View
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


def timeline(events: Iterable[Event]) -> Timeline:
    """The whole of a session. Linear in its length but for the shares of each turn, which cost a
    look at every message."""
    view, shares = View(), Shares()
    bars: list[Bar] = []
    marks: list[Mark] = []
    around: dict[int, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
    open_turn: tuple[int, str] | None = None
    spent, priced, requests, last = 0.0, True, 0, 0

    def close(ended: str) -> None:
        nonlocal open_turn, spent, requests, priced
        if open_turn is not None:
            cost = spent if priced else None
            first, text = open_turn
            tokens, sources = view.count().tokens, shares.of(view)
            bar = Bar(
                number=len(bars) + 1, text=text, first=first, last=last, tokens=tokens, sources=sources, cost=cost,
                requests=requests, ended=ended,
            )  # fmt: skip
            bars.append(bar)
        open_turn, spent, requests, priced = None, 0.0, 0, True

    for event in events:
        if isinstance(event, UserSaid):
            close("")
            open_turn = (event.id, event.text)
        said = None if isinstance(event, ModelChosen) and not view.model else describe(event)
        if said is None:
            view.apply(event)
        else:
            before, counted = list(view.messages), view.count().tokens
            view.apply(event)
            after = list(view.messages)
            around[event.id] = before, after
            turn = len(bars) + (open_turn is not None)
            marks.append(
                Mark(
                    event=event.id, kind=said[0], words=said[1], turn=turn, tokens_before=counted,
                    tokens_after=view.count().tokens,
                )
            )  # fmt: skip
        last = event.id
        if isinstance(event, UsageReported | ForkEnded):
            requests += 1 if isinstance(event, UsageReported) else event.requests
            priced = priced and event.cost is not None
            spent += event.cost or 0.0
        elif isinstance(event, TurnEnded):
            close(event.status)
    close("")
    return Timeline(bars=tuple(bars), marks=tuple(marks), around=around)


def view_at(events: Iterable[Event], event: int) -> View:
    """The view after the event of that number."""
    return View.of(item for item in events if item.id <= event)


def describe(event: Event) -> tuple[str, str] | None:
    """Kind and words for what happened to the context; None for what is no mark."""
    match event:
        case ResultStored():
            return "stored", f"a result of {event.chars:,} characters kept in {event.path}"
        case ResultsCleared():
            count = len(event.calls)
            return "cleared", f"{count} old result{'s' * (count != 1)} cleared, about {event.saved:,} tokens"
        case NotesWritten():
            return "notes", f"session notes written, {event.tokens:,} tokens"
        case Compacted():
            how = {"notes": "by the session's notes", "server": "by the provider"}.get(event.method, "by a summary")
            sizes = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
            return "compacted", f"events {event.first} to {event.last} replaced {how} ({event.trigger}), {sizes}"
        case Snipped():
            return "snipped", f"events {event.first} to {event.last} removed, about {event.saved:,} tokens"
        case Collapsed():
            return "collapsed", f"events {event.first} to {event.last} shown short, about {event.saved:,} tokens less"
        case DecisionUndone():
            return "taken back", f"the decision of event {event.event} taken back"
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
            return "skill", f"skill {event.name} loaded by the {event.by}, {event.tokens:,} tokens"
        case SkillsListed() if event.why:
            return "skills", event.why
        case ThinkingDropped():
            return "thinking left out", event.why or f"thinking up to event {event.upto}"
        case BlockDropped():
            return "image left out", event.why or f"images of event {event.event}"
        case LayerFailed():
            return "failed", f"{event.layer}: {event.why}"
        case ModelChosen():
            return "model", f"requests go to {event.model}"
        case _:
            return None
