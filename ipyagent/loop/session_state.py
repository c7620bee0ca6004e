"""What a session's events add up to for the user: its turns, its money, its variables."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from ipyagent.context.clear_results import CLEAR_RESULTS
from ipyagent.context.clear_results import SERVER_LAYER as EDITS
from ipyagent.context.notes import TOOK_PLACE, WHY
from ipyagent.journal.events import (
    AssistantMessage,
    CacheBroken,
    ChildEnded,
    ChildStarted,
    Compacted,
    DecisionUndone,
    Ending,
    Event,
    FileChanged,
    FilesRestored,
    ForkEnded,
    KernelStarted,
    LayerDecision,
    LayerFailed,
    MemorySaved,
    MessageReceived,
    ModelChosen,
    NotesWritten,
    PartEvent,
    PermissionAnswered,
    PermissionAsked,
    ResultsCleared,
    ResultStored,
    ServerEdited,
    SessionStarted,
    SystemReminder,
    ToolCalled,
    ToolReturned,
    TurnCollapsed,
    TurnEnded,
    TurnsRemoved,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import CHILDREN
from ipyagent.model.prices import LESSON_MODEL, at_most, cost_of, rates_of

CONVERSATION, SUB_AGENTS = "conversation", "sub-agents"
IN_FRONT = frozenset((CONVERSATION, SUB_AGENTS, "compaction", "server compaction", "collapse"))
"""What the user waits for; all else is work in the background."""


MOST_REPLAYS = 40
"""Replayed cells that the model is told of."""
REPLAY = "replay"
"""What a journal calls the events of a cell that was replayed (`PartEvent.part`): they cost the context nothing."""

MOST_TAKEN = 1_000
"""Decisions that can be taken back with all that hangs on them: nobody takes back a thousand, one by one."""


class TurnRecord(msgspec.Struct, kw_only=True):
    """One request of the user and how it ended (None: not yet). `first` and `last` are event ids."""

    text: str
    cell: str
    first: int
    last: int = 0
    status: Ending | None = None
    answer: str = ""
    out: bool = False
    """Whether the user took it out of the conversation."""
    own: str | None = None
    """What of `text` the user typed; None: all."""
    reasons: list[tuple[int, str, str]] = []
    """What the user typed when refusing: the event, what was refused (a tool's name), the words."""

    @property
    def said(self) -> str:
        """The user's own words."""
        return self.text if self.own is None else self.own


class Totals(msgspec.Struct):
    """Sums over a session: tokens as of one response, requests, dollars (None once a price was not known)."""

    usage: Usage = Usage()
    requests: int = 0
    cost: float | None = 0.0

    @property
    def weight(self) -> float:
        """All tokens in tokens of uncached input, by LESSON_MODEL's prices."""
        price = rates_of(LESSON_MODEL)
        return (cost_of(LESSON_MODEL, self.usage) or 0.0) / price.input

    def add(self, usage: Usage, cost: float | None, requests: int) -> None:
        """Add what so many requests took."""
        self.requests += requests
        self.usage += usage
        self.cost = None if cost is None or self.cost is None else self.cost + cost


class Savings(msgspec.Struct):
    """What a layer kept out of the context: estimated tokens, how often (results for clearing), and
    characters that are in files instead."""

    tokens: int = 0
    times: int = 0
    chars: int = 0


class _Taken(msgspec.Struct, kw_only=True):
    """What one decision took away, should it be taken back."""

    layer: str
    saved: Savings
    by: str
    """The layer that decided."""
    before: LayerDecision | None
    """What that had said last before."""
    told: LayerDecision | None = None
    """What it said of this decision."""
    turns: list[TurnRecord] = []
    request: UserMessage | None = None
    compacted_at: int | None = None
    server_edits: dict[str, ServerEdited]
    """What the server left out then."""
    notes: NotesWritten | None = None
    """The notes that there were then."""


_BY = {"summary": "summarize", "server": "server_compaction"}
"""Which layer makes a compaction, by its method; the others are called like it."""


def _took_place(event: Compacted) -> str:
    """What a compaction did, in the words of the notes layer, which alone knows whether the threshold was reached."""
    automatic = "the threshold was near" if event.method == "notes" else "it reached the threshold"
    why = WHY.get(event.trigger, automatic)
    return TOOK_PLACE.format(gone=event.tokens_before - event.tokens_after, before=event.tokens_before, why=why)


class Folded(Protocol):
    """What the events of a session add up to for one capability: made without arguments, then given each event."""

    def apply(self, event: Event) -> None:
        """Take in the next event."""


F = TypeVar("F", bound=Folded)


class SessionState:
    """Folds events, one at a time; knows nothing that is not in them. `folded` are the states of parts, see
    `Session.folded`."""

    def __init__(self, folded: Iterable[type[Folded]] = ()) -> None:
        self.folded: dict[type[Folded], Folded] = {kind: kind() for kind in folded}
        self.started: SessionStarted | None = None
        self.turns: list[TurnRecord] = []
        self.totals = Totals()
        self.at_most = 0.0
        """Dollars of all so far for limits: what has no known price counts at the dearest known one."""
        self.spent: dict[str, Totals] = {}
        """The same by what it was for: CONVERSATION, SUB_AGENTS, or the purpose of background work."""
        self.turn_costs: list[float] = []
        self.variables: dict[str, str] = {}
        self.stamp = ""
        self.stale = False
        """Whether the newest kernel has resumed this session and the model was not told yet, or what it was told is
        taken out."""
        self.lost: dict[str, str] = {}
        """The variables that there were when the newest kernel resumed this session."""
        self._told_stale = 0
        """The event with which the model was told."""
        self.files = FileChanges()
        """Files that turns changed and nothing has put back."""
        self.said_at = 0.0
        """When the model last said something, Unix time; 0.0 when it never did."""
        self.compact_failures = 0
        """Compactions that failed in a row."""
        self.no_summary = ""
        """Why the last of them had no summary."""
        self.replies = 0
        """Replies of the model in the conversation; those of forks do not count."""
        self.compacted_at = -1
        """Replies that there had been at the last automatic compaction; -1 when there was none."""
        self.request: UserMessage | None = None
        """The newest request of the user."""
        self.forgot = False
        """Whether something was compacted since the newest request: what it was told stands no more."""
        self.message_id = ""
        """The server's id of the model's newest message."""
        self.recent: deque[Usage] = deque(maxlen=10)
        """What the server counted for the newest requests of the conversation, newest last."""
        self.savings: dict[str, Savings] = {}
        """What each layer has kept out of the context so far."""
        self.server_edits: dict[str, ServerEdited] = {}
        """What the server left out last, by the kind of edit."""
        self.server_cleared = False
        """Whether the server has left out results since the model was last told where they are kept."""
        self.server_kept = 0
        """The newest event whose result the model was so told of."""
        self.breaks: list[CacheBroken] = []
        """Unexpected breaks of the cache."""
        self.children: dict[str, ChildStarted] = {}
        """The session's sub-agents, running or not, by id."""
        self.at_work: dict[str, ChildStarted] = {}
        """Those of which no end is known, by id."""
        self.restored: tuple[str, ...] = ()
        """Files that the user has had put back since the last request."""
        self.memory_changes: tuple[MemorySaved, ...] = ()
        """What the user did to memories since the last request."""
        self.replayed: tuple[PartEvent, ...] = ()
        """Cells whose recorded code ran again since the last request."""
        self.untold: list[ChildEnded] = []
        """Sub-agents that ended in the background, of which the model was not told yet."""
        self.notes: NotesWritten | None = None
        """The newest notes of the session."""
        self.notes_failed = 0
        """The event of the newest update of the notes, if it came to nothing; else 0."""
        self.handles: dict[str, ResultStored] = {}
        """Stored results that are objects, by handle."""
        self.decided: dict[str, LayerDecision] = {}
        """What each layer last said of its decisions that were not taken back."""
        self._acted: _Taken | None = None
        """The newest decision, until the model or the user has spoken: what its layer says then is said of it."""
        self._cost = 0.0
        self.named = ""
        """The model that the user named for this session last."""
        self.waited = 0.0
        """Seconds that the newest turn waited for an answer of the user."""
        self._asked: dict[str, str] = {}
        """The open questions of the newest turn: the tool's name by their call."""
        self._asked_at = 0.0
        """When the first of them was put."""
        self._taken: dict[int, _Taken] = {}
        """What each decision took away, by its event."""

    def __getstate__(self) -> dict[str, Any]:
        ours = {kind: each for kind, each in self.folded.items() if kind.__module__.startswith("ipyagent.")}
        return {**self.__dict__, "folded": ours}  # a checkpoint knows no classes of others: theirs are read again

    @property
    def unfinished(self) -> bool:
        """Whether the newest turn has no end yet."""
        return bool(self.turns) and self.turns[-1].status is None

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        for folded in self.folded.values():
            folded.apply(event)
        self.files.apply(event)
        match event:
            case SessionStarted():
                self.started = event
            case KernelStarted():
                self.stamp, self.stale, self.replayed = event.stamp, event.resumed, ()
                self.lost, self._told_stale = dict(self.variables) if event.resumed else {}, 0
            case ModelChosen():
                self.named = event.model if event.named else self.named
                self.no_summary = ""  # that was another model
            case UserMessage():
                self.turns.append(TurnRecord(text=event.text, own=event.own, cell=event.cell, first=event.id))
                self._acted = None
                self.request, self.forgot, self.restored, self.memory_changes = event, False, (), ()
                self.replayed = ()
                self._told_stale = event.id if self.stale else self._told_stale
                self.stale = False
                self.waited, self._asked = 0.0, {}
            case PermissionAsked():
                self._asked_at = self._asked_at if self._asked else event.at
                limit = event.tool == "budget" and "budget-" in event.call  # which is no tool
                self._asked[event.call] = "to go on" if limit else event.tool
            case PermissionAnswered():
                asked = self._asked.pop(event.call, "")
                if event.by == "user" and event.reason.strip() and self.turns:
                    self.turns[-1].reasons.append((event.id, asked or "a call", event.reason))
                if asked and not self._asked:
                    self.waited += max(0.0, event.at - self._asked_at)
            case AssistantMessage():
                texts = [str(block.get("text", "")) for block in event.blocks if block.get("type") == "text"]
                if self.turns and texts:
                    self.turns[-1].answer = "\n".join(texts)
                self._acted = None
                self.said_at = event.at
                self.replies += 1
                self.message_id = event.message_id or self.message_id
            case UsageReported():
                self._add(event.paid, event.cost, 1, CONVERSATION)
                self.recent.append(event.usage)
            case ForkEnded():
                kind = f"{event.purpose} and {event.also}" if event.also else event.purpose
                self._add(event.usage, event.cost, event.requests, kind)
                if event.purpose == "notes":  # until NotesWritten says otherwise
                    self.notes_failed = event.id
            case Compacted():
                self.compact_failures, self.no_summary = 0, ""
                self.forgot = True
                self._save(event, f"compaction ({event.method})", event.tokens_before - event.tokens_after)
                taken = self._taken[event.id]
                taken.compacted_at = self.compacted_at
                if event.tokens_before:
                    self._tell(LayerDecision(layer=taken.by, words=_took_place(event)))
                if event.trigger == "auto":
                    self.compacted_at = self.replies
            case FilesRestored():
                self.restored = tuple(dict.fromkeys((*self.restored, *event.paths)))
            case MemorySaved() if event.by == "user" and event.change != "unchanged":
                self.memory_changes = (*self.memory_changes, event)
            case PartEvent(kind="cell") if event.part == REPLAY:
                self.replayed = (*self.replayed, event)
            case LayerFailed():
                self.compact_failures += event.layer == "compaction"
                self.no_summary = event.why if event.layer == "summarize" else self.no_summary
            case LayerDecision():
                self._tell(event)
            case ResultsCleared():
                self._save(event, event.layer, event.saved, len(event.calls))
            case TurnsRemoved():
                self._save(event, "snip", event.saved)
                taken = self._taken[event.id]
                taken.turns = [t for t in self.turns if not t.out and event.first <= t.first <= event.last]
                for turn in taken.turns:
                    turn.out = True
                self.compact_failures = 0  # what could not be compacted may be what has gone
                self.stale = self.stale or event.first <= self._told_stale <= event.last
                if self.request is not None and event.first <= self.request.id <= event.last:
                    taken.request, self.request = self.request, None  # a later compaction does not put it back
            case TurnCollapsed():
                self._save(event, "collapse", event.saved)
            case DecisionUndone() if event.event in self._taken:
                self._give_back(self._taken.pop(event.event), event.event)
            case ResultStored():
                if event.tokens:
                    self._save(event, "store_results", 0, chars=event.chars)
                if event.handle:
                    self.handles[event.handle] = event
            case ServerEdited():
                before = self.server_edits.get(event.edit)
                if before is None or event.tokens > before.tokens:
                    self._save(event, "server_edits", event.tokens - (before.tokens if before is not None else 0))
                self.server_edits[event.edit] = event
                if event.edit == CLEAR_RESULTS and (before is None or event.cleared > before.cleared):
                    self.server_cleared = True
            case SystemReminder() if event.layer == EDITS:
                self.server_cleared, self.server_kept = False, event.upto
            case CacheBroken():
                if not event.expected:
                    self.breaks.append(event)
            case NotesWritten():
                self.notes, self.notes_failed = event, 0
            case ChildStarted():
                self.children[event.child] = self.at_work[event.child] = event
            case ChildEnded():
                self.at_work.pop(event.child, None)
                self._add(event.usage, event.cost, event.requests, SUB_AGENTS)
                if event.text:
                    self.untold.append(event)
            case SystemReminder() if event.layer == CHILDREN:
                self.untold = [ended for ended in self.untold if ended.id > event.upto]
            case TurnEnded():
                self.variables = event.variables
                self.turn_costs.append(self._cost)
                self._cost = 0.0
                if self.turns:
                    self.turns[-1].status, self.turns[-1].last = event.status, event.id
            case _:
                pass  # the other events are the view's or the panel's business

    def said(self, first: int, last: int) -> list[tuple[int, int, str, str]]:
        """What the user said in a range of events: the turn's number, the event, what is to be known of it ("":
        nothing) and the words, oldest first, without turns that are taken out."""
        said = []
        for number, turn in enumerate(self.turns, 1):
            if turn.out:
                continue
            if turn.said.strip():
                said.append((number, turn.first, "stopped by the user" * (turn.status == "stopped"), turn.said))
            said += [(number, event, f"refusing {tool}", words) for event, tool, words in turn.reasons]
        return [each for each in said if first <= each[1] <= last]

    def replays(self) -> list[str]:
        """What is to be told of the cells that were replayed since the last request: which turns, what differs."""
        numbers = {turn.first: number for number, turn in enumerate(self.turns, 1)}
        told = []
        for event in self.replayed[-MOST_REPLAYS:]:
            facts, known = event.data, numbers.get(event.data.get("turn", 0))
            words = f"turn {known}" if known else f"a cell of {facts.get('notebook', 'the notebook')}"
            if facts.get("status") != "finished":
                words += f", which {facts.get('status')} ({facts.get('message', '')})"
            if differs := facts.get("differs"):
                words += f", with other results than above ({'; '.join(map(str, differs))})"
            told.append(words)
        return told

    @property
    def expected_requests(self) -> int:
        """How many more requests are to be expected: as many as there were, within 3 to 50."""
        return min(50, max(3, self.totals.requests))

    def _save(self, event: Event, layer: str, tokens: int, times: int = 1, chars: int = 0) -> None:
        savings = self.savings.setdefault(layer, Savings())
        savings.tokens += max(0, tokens)
        savings.times += times
        savings.chars += chars
        if isinstance(event, ResultStored | ServerEdited):
            return  # never taken back
        saved = Savings(max(0, tokens), times, chars)
        by = _BY.get(event.method, event.method) if isinstance(event, Compacted) else layer
        self._acted = self._taken[event.id] = _Taken(
            layer=layer, saved=saved, by=by, before=self.decided.get(by), server_edits=dict(self.server_edits),
            notes=self.notes,
        )  # fmt: skip
        if len(self._taken) > MOST_TAKEN:
            del self._taken[next(iter(self._taken))]

    def _tell(self, told: LayerDecision) -> None:
        """A layer says what it decided, or that it did nothing."""
        self.decided[told.layer] = told
        if self._acted is not None and self._acted.by == told.layer:
            self._acted.told = told

    def _give_back(self, taken: _Taken, decided: int) -> None:
        """The decision of event `decided` was taken back: what it took away is there again, and what it saved is not
        saved. Notes that were written without it do not cover it."""
        if self.notes is not None and self.notes.upto >= decided:
            self.notes = taken.notes
        for turn in taken.turns:
            turn.out = False
        if taken.request is not None and self.turns and self.turns[-1].first == taken.request.id:
            self.request = taken.request
        if taken.compacted_at is not None:
            self.compacted_at = taken.compacted_at
        for kind, edit in taken.server_edits.items():  # it leaves that out again
            if edit.cleared > self.server_edits[kind].cleared:
                self.server_edits[kind] = edit
        if taken.told is not None and self.decided.get(taken.by) == taken.told:
            del self.decided[taken.by]
            self.decided |= {taken.by: taken.before} if taken.before is not None else {}
        kept = self.savings[taken.layer]
        kept.tokens -= taken.saved.tokens
        kept.times -= taken.saved.times
        kept.chars -= taken.saved.chars
        if kept == Savings():
            del self.savings[taken.layer]

    @property
    def background_share(self) -> float | None:
        """The share of all money that background work took, 0-1: of the dollars, or of the tokens, each by what it
        usually costs beside the others, where no price is known or nothing costs anything; None before a request."""
        if self.totals.cost:
            behind = sum(spent.cost or 0.0 for kind, spent in self.spent.items() if kind not in IN_FRONT)
            return behind / self.totals.cost
        weight = self.totals.weight
        behind = sum(spent.weight for kind, spent in self.spent.items() if kind not in IN_FRONT)
        return behind / weight if weight else None

    def _add(self, usage: Usage, cost: float | None, requests: int, kind: str) -> None:
        before = self.totals.cost
        self.totals.add(usage, cost, requests)
        self.at_most += at_most(cost, usage)
        self.spent.setdefault(kind, Totals()).add(usage, cost, requests)
        if before is not None and cost is not None:
            self._cost += cost


# ------------------------------------------------------------------ messages
# Messages of a session as its events tell: which came, and which may have gone out although their call was cut off.


SENDING = "send_message"
CUT_OFF = "cut off"


class MailState:
    """Folds events. A message that a killed kernel was sending keeps its id when it is sent again word for word,
    so that it arrives once."""

    def __init__(self) -> None:
        self.received: set[str] = set()
        """Ids of the messages that were taken in."""
        self._sending: dict[str, str] = {}
        self._unsure: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<MailState {len(self.received)} received>"

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


# ------------------------------------------------------------------ file changes
# Which files each turn changed and what of it can still be put back, turn by turn, newest first. A change that could
# not be put back stays on the list of what was left: it is tried again with the turns before it, whose undo would
# otherwise pass over it, until the agent changes that file anew.


class ToUndo(NamedTuple):
    """The turn (from 1; 0: none of this session) and the changes to take back, oldest first. `replay`: they were made
    when its recorded code ran again ("replayed"), or that of a notebook's cell (the notebook's name)."""

    turn: int
    changes: tuple[FileChanged, ...]
    replay: str = ""


class FileChanges:
    """Folds events, one at a time."""

    def __init__(self) -> None:
        self._requests: list[int] = []
        self._open: ToUndo | None = ToUndo(0, ())
        """The turn, or the replay of one, that has changed no file yet; None when it has, and is the newest of
        `_made`."""
        self._made: list[ToUndo] = []
        self._left: list[FileChanged] = []
        self.undone: set[int] = set()
        """Ids of the changes that the user has taken back."""

    def __repr__(self) -> str:
        return f"<FileChanges of {len(self._made)} turns>"

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case UserMessage():
                self._requests.append(event.id)
                self._open = ToUndo(len(self._requests), ())
            case PartEvent(part=part, kind="changes", data=facts) if part == REPLAY:
                first = facts.get("turn")
                turn = self._requests.index(first) + 1 if first in self._requests else 0
                self._open = ToUndo(turn, (), str(facts.get("notebook", "replayed")))
            case FileChanged():
                newest = self._open or self._made.pop()
                self._made.append(newest._replace(changes=(*newest.changes, event)))
                self._open = None
                self._left = [change for change in self._left if change.path != event.path]
            case FilesRestored():
                upto = event.upto or event.id
                made, self._made = self._made, []
                for each in made:
                    if event.since <= each.changes[0].id <= upto:
                        self._left += each.changes
                    else:
                        self._made.append(each)
                if self._open is None and self._made[-1:] != made[-1:]:  # it may change more
                    self._open = made[-1]._replace(changes=())
                self.undone |= {change.id for change in self._left if change.path in event.paths}
                self._left = sorted(
                    (change for change in self._left if change.path not in event.paths), key=lambda each: each.id
                )
            case _:
                pass

    @property
    def next(self) -> ToUndo | None:
        """What `%agent undo` takes back now; None when there is nothing."""
        if not self._made:
            return ToUndo(0, tuple(self._left)) if self._left else None
        newest = self._made[-1]
        return newest._replace(changes=tuple(sorted((*newest.changes, *self._left), key=lambda each: each.id)))

    def removed(self, path: str) -> bool:
        """Whether the newest change of a file, not taken back, is that it was removed."""
        ended = [each for made in self._made for each in made.changes if each.path == path and not each.begun]
        return bool(ended) and not max(ended, key=lambda each: each.id).digest

    def of(self, turn: int) -> list[ToUndo]:
        """The changes of one turn and of its replays that were not taken back, newest first."""
        return [each for each in reversed(self._made) if each.turn == turn]
