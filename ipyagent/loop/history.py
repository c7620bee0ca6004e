"""What a session's events add up to for the user: its turns, its money, its variables."""

from __future__ import annotations

import msgspec

from ipyagent.journal.events import (
    AssistantSaid,
    Compacted,
    Ending,
    Event,
    FileChanged,
    FilesRestored,
    ForkEnded,
    KernelStarted,
    LayerDecided,
    LayerFailed,
    NotesWritten,
    SessionStarted,
    TurnEnded,
    Usage,
    UsageReported,
    UserSaid,
)


class Turn(msgspec.Struct, kw_only=True):
    """One request of the user and how it ended (None: not yet). `first` and `last` are event ids."""

    text: str
    cell: str
    first: int
    last: int = 0
    status: Ending | None = None
    answer: str = ""


class Totals(msgspec.Struct):
    """Sums over a session: tokens, requests, dollars (None once a price was not known)."""

    read: int = 0
    written: int = 0
    uncached: int = 0
    output: int = 0
    requests: int = 0
    cost: float | None = 0.0

    @property
    def prompt(self) -> int:
        """All prompt tokens, cached or not."""
        return self.read + self.written + self.uncached


class History:
    """Folds events, one at a time; knows nothing that is not in them."""

    def __init__(self) -> None:
        self.started: SessionStarted | None = None
        self.turns: list[Turn] = []
        self.totals = Totals()
        self.turn_costs: list[float] = []
        self.variables: dict[str, str] = {}
        self.stamp = ""
        self.stale = False
        """Whether the newest kernel has resumed this session and the model was not told yet."""
        self.changes: list[FileChanged] = []
        """Files that the newest turn changed and nothing has put back."""
        self.said_at = 0.0
        """When the model last said something, Unix time; 0.0 when it never did."""
        self.compact_failures = 0
        """Compactions that failed in a row."""
        self.compacted_at = -1
        """Requests that had been made at the last automatic compaction; -1 when there was none."""
        self.notes: NotesWritten | None = None
        """The newest notes of the session."""
        self.decided: dict[str, str] = {}
        """What each layer last said of its decisions."""
        self._cost = 0.0

    @property
    def unfinished(self) -> bool:
        """Whether the newest turn has no end yet."""
        return bool(self.turns) and self.turns[-1].status is None

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case SessionStarted():
                self.started = event
            case KernelStarted():
                self.stamp, self.stale = event.stamp, event.resumed
            case UserSaid():
                self.turns.append(Turn(text=event.text, cell=event.cell, first=event.id))
                self.stale = False
                self.changes = []
            case AssistantSaid():
                texts = [str(block.get("text", "")) for block in event.blocks if block.get("type") == "text"]
                if self.turns and texts:
                    self.turns[-1].answer = "\n".join(texts)
                self.said_at = event.at
            case UsageReported():
                self._add(event.usage, event.cost, 1)
            case ForkEnded():
                self._add(event.usage, event.cost, event.requests)
            case Compacted():
                self.compact_failures = 0
                if event.trigger == "auto":
                    self.compacted_at = self.totals.requests
            case LayerFailed():
                self.compact_failures += event.layer == "compaction"
            case LayerDecided():
                self.decided[event.layer] = event.words
            case NotesWritten():
                self.notes = event
            case FileChanged():
                self.changes.append(event)
            case FilesRestored():
                self.changes = []
            case TurnEnded():
                self.variables = event.variables
                self.turn_costs.append(self._cost)
                self._cost = 0.0
                if self.turns:
                    self.turns[-1].status, self.turns[-1].last = event.status, event.id
            case _:
                pass  # the other events are the view's or the panel's business

    @property
    def expected_requests(self) -> int:
        """How many more requests are to be expected: as many as there were, within 3 to 50."""
        return min(50, max(3, self.totals.requests))

    def _add(self, usage: Usage, cost: float | None, requests: int) -> None:
        totals = self.totals
        totals.requests += requests
        totals.read += usage.cache_read
        totals.written += usage.cache_write
        totals.uncached += usage.input
        totals.output += usage.output
        if cost is None or totals.cost is None:
            totals.cost = None
        else:
            totals.cost += cost
            self._cost += cost
