"""Extraction: after a turn, in the background, what is worth keeping of the conversation becomes memories.

How far it has come is read off the journal alone, so that a resumed session goes on where it was. What
the agent saved itself is not looked through again. Background work leaves no turns, so it never sees itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Literal, Protocol

import msgspec

from ipyagent.journal.events import (
    Block,
    Event,
    ForkEnded,
    LayerFailed,
    MemoryExtracted,
    MemorySaved,
    TurnEnded,
    Usage,
)

PURPOSE = "extraction"
TAG = "extract-memories"
"""The element that holds the directive."""
MOST_FAILURES = 3
"""Extractions that fail in a row before no more are tried in the session."""
MOST_LISTED = 200
"""Memories that the directive lists, newest first."""
SAVED_ITSELF = "the agent saved memories itself"
_NAMED = re.compile(r"\{\{(\w+)\}\}")

Next = Literal["run", "skip", "wait"]


class Listed(Protocol):
    """What the directive tells of a memory."""

    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def modified(self) -> float: ...


class Progress:
    """Folds events: up to where the session was looked through, and what came since."""

    def __init__(self) -> None:
        self.upto = 0
        """The event up to which all was looked through; 0: nothing was."""
        self.failures = 0
        """Extractions that failed in a row."""
        self._ended: list[int] = []  # turns that ended since, with an answer or at a limit
        self._saved: list[int] = []  # memories that the agent itself saved since

    def __repr__(self) -> str:
        return f"<Progress up to event {self.upto}, {len(self._ended)} turns since>"

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case TurnEnded() if event.status in ("finished", "limit"):
                self._ended.append(event.id)
            case MemorySaved() if event.by == "agent":
                self._saved.append(event.id)
            case MemoryExtracted():
                self.upto, self.failures = event.upto, 0
                self._ended = [turn for turn in self._ended if turn > event.upto]  # some ended meanwhile
                self._saved = [saved for saved in self._saved if saved > event.upto]
            case LayerFailed() if event.layer == PURPOSE:
                self.failures += 1
            case _:
                pass

    def due(self, every: int, upto: int, *, owed: bool = False) -> Next:
        """What is to be done at the end of the turn that event `upto` ended: `run`; `skip`, the cursor moves
        on; or `wait` for more turns. `owed`: it was asked for while another ran, and does not wait."""
        turns = sum(turn <= upto for turn in self._ended)
        if not turns or self.failures >= MOST_FAILURES:
            return "wait"
        if any(saved <= upto for saved in self._saved):
            return "skip"
        return "run" if owed or turns >= every else "wait"


class Figures(msgspec.Struct, kw_only=True):
    """What extraction has cost and brought: model calls (`turns`), tokens, dollars (None once a price was
    not known), seconds, memories written."""

    runs: int = 0
    skipped: int = 0
    failed: int = 0
    turns: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    files: int = 0

    def add(self, event: Event) -> None:
        """Take in an event of any session."""
        match event:
            case ForkEnded() if event.purpose == PURPOSE:
                usage: Usage = event.usage
                self.runs += 1
                self.failed += event.status in ("failed", "refused", "stopped")
                self.turns += event.requests
                self.input += usage.input
                self.output += usage.output
                self.cache_read += usage.cache_read
                self.cache_write += usage.cache_write
                self.cost = None if self.cost is None or event.cost is None else self.cost + event.cost
                self.seconds += event.seconds
            case MemoryExtracted():
                self.skipped += bool(event.why)
            case MemorySaved() if event.by == PURPOSE:
                self.files += 1
            case _:
                pass


def figures(events: Iterable[Event]) -> Figures:
    """The figures of extraction in these events."""
    made = Figures()
    for event in events:
        made.add(event)
    return made


def new_messages(placed: Sequence[tuple[str, Block, int]], upto: int, most: int) -> int:
    """How many of the newest messages have something of after event `upto`; `most` at most. `placed` are
    their blocks as `View.placed` gives them."""
    found, before = 0, ""
    for role, _, source in reversed(placed):
        if source <= upto and source:  # 0: words of ours between messages
            break
        found += role != before
        before = role
        if found > most:
            return most
    return found


def directive(memories: Sequence[Listed], *, messages: int, turns: int, now: float) -> str:
    """The order that a fork gets. `memories` are what exists, newest first; `messages` how many it may draw
    on, `turns` its model calls, `now` Unix time."""
    values = {
        "messages": f"{messages} message{'s' if messages != 1 else ''}",
        "turns": str(turns),
        "today": datetime.fromtimestamp(now).strftime("%A %Y-%m-%d"),
        "memories": manifest(memories),
    }
    prompt = files("ipyagent.memory").joinpath("extract_prompt.md").read_text(encoding="utf-8")
    told = _NAMED.sub(lambda found: values.get(found[1], found[0]), prompt)
    return f"<{TAG}>\n{told.strip()}\n</{TAG}>"


def manifest(memories: Sequence[Listed]) -> str:
    """One line a memory: type, path, day, description."""
    lines = [
        f"- [{each.kind or 'no type'}] {each.path} ({datetime.fromtimestamp(each.modified):%Y-%m-%d}): "
        f"{_harmless(each.description) or '(no description)'}"
        for each in memories[:MOST_LISTED]
    ]
    if len(memories) > MOST_LISTED:
        lines.append(f"- and {len(memories) - MOST_LISTED} older ones: view the folder to see them")
    return "\n".join(lines) or "(none yet)"


def _harmless(text: str) -> str:
    """One line that cannot end the element it stands in."""
    return " ".join(text.split()).replace("</", "<\\/")[:200]


def saved_line(saved: MemorySaved) -> str:
    """What the user is told of a memory that was saved, and how to take it back."""
    name = name_of(saved.path)
    if saved.change == "renamed":
        return f"saved: {name_of(saved.old)} is now {name} (undo: %memory restore {name} {saved.revision})"
    back = f"restore {name} {saved.revision}" if saved.revision else f"forget {name}"
    word = "saved" if saved.change in ("created", "changed", "restored") else saved.change
    return f"{word}: {name} (undo: %memory {back})"


def name_of(path: str) -> str:
    """A memory's name for the user, without the folder of its scope."""
    parts = path.strip("/").split("/")
    return "/".join(parts[2:]) if parts[:1] == ["memories"] and len(parts) > 2 else path
