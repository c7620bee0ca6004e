"""A session as it grew: what stood in the context after every turn, and what each decision changed.

A function of the events alone. One walk over them keeps, around every decision, the list of messages as it
was; a message that was given out is never changed, so such a checkpoint costs pointers, not text."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from ipyagent.journal.blocks import CALL, PICTURES, THINKING, in_words, is_result, same_until
from ipyagent.journal.events import (
    Block,
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
from ipyagent.journal.tokens import estimate_block, estimate_text, summary_in
from ipyagent.journal.view import ContextView

# ---- The tokens of a view by where they come from: of what the server reads of it, which is less than what stands
# there where it left out old results, or has summarised by itself.

SOURCES = (
    "system prompt",
    "instructions",
    "memory",
    "skills",
    "tools",
    "user",
    "summaries",
    "attached and context",
    "recalled memories",
    "answers",
    "thinking",
    "tool calls",
    "tool results",
    "images",
)
ATTACHED = ("<context>", "<variable ", "<file ", "<cell ", "<message ")
RECALLED = "<memories>"
SUMMARY = re.compile(r"[^\n]{0,400} place:\n<summary>\n")
"""How what stands in the place of a compacted range begins."""
SKILL = "<skill "
"""How the instructions of a loaded skill begin, in a result or before a request."""
_HEADS = (
    ("<memory-index ", "memory"), ("<instructions ", "instructions"), ("<skills>", "skills"), ("/memories/", "memory"),
)  # fmt: skip
"""What tells a block of the head that is not our own prompt; memories may stand in it without their index."""


class Shares:
    """Estimated tokens by source; what is known of a message is not estimated again."""

    def __init__(self) -> None:
        self._start = 0
        """The message that the server reads first: the newest with a summary of its own."""
        self._seen: list[dict[str, Any]] = []
        self._each: list[dict[str, int]] = []
        self._sums = dict.fromkeys(SOURCES, 0)
        self._head: tuple[Any, Any, dict[str, int]] = (None, None, {})

    def of(self, view: ContextView) -> dict[str, int]:
        """Tokens of the next prompt by where they come from; keys are SOURCES. They add up to the
        view's count but for rounding."""
        found = self.estimated(view)
        # the count is the server's as far as it has counted: the shares add up to it
        factor = view.count().tokens / (sum(found.values()) or 1)
        return {source: round(tokens * factor) for source, tokens in found.items()}

    def estimated(self, view: ContextView) -> dict[str, int]:
        """The same as our estimates, which no count of the server moves; what it says that it left out is off."""
        if self._head[0] is not view.system or self._head[1] is not view.tools:
            self._head = (view.system, view.tools, _head_shares(view))
        seen, messages = self._seen, view.messages
        kept = max(0, len(seen) - 1)  # the last one grows: results join it
        if messages[:kept] != seen[:kept]:  # compares identities first, so this costs next to nothing
            kept = next((at for at in range(min(kept, len(messages))) if messages[at] is not seen[at]), len(messages))
        if kept <= self._start:
            kept = self._start = 0
        for gone in self._each[kept:]:
            for source, tokens in gone.items():
                self._sums[source] -= tokens
        del seen[kept:], self._each[kept:]
        for message in messages[kept:]:
            at = summary_in(message["content"]) if message["role"] == "assistant" else None
            if at is not None:
                self._start, self._sums, self._each = len(seen), dict.fromkeys(SOURCES, 0), [{} for _ in seen]
            shares = _shares(message["role"], message["content"][at or 0 :])
            seen.append(message)
            self._each.append(shares)
            for source, tokens in shares.items():
                self._sums[source] += tokens
        found = dict(self._sums)
        for source, tokens in self._head[2].items():
            found[source] += tokens
        for source, tokens in _left_out(view, self._start).items():
            found[source] -= min(found[source], tokens)
        return found


def _left_out(view: ContextView, start: int) -> dict[str, int]:
    """Estimated tokens by source that the server leaves out; it reads from message `start` on."""
    out = view.left_out
    found = {"thinking": out.thinking}
    for spot in view.results if out.results else ():
        left = out.results.get(spot.call, 0)
        if not left or spot.message < start:
            continue
        parts = _sources_of("user", view.messages[spot.message]["content"][spot.block])
        whole = sum(tokens for _, tokens in parts)
        for source, tokens in parts:
            found[source] = found.get(source, 0) + round(tokens * min(1.0, left / max(1, whole)))
    return found


def measure_of(view: ContextView) -> float:
    """What an estimated token comes to in `Shares.of`."""
    estimated = sum(Shares().estimated(view).values())
    return view.count().tokens / estimated if estimated else 1.0


def _head_shares(view: ContextView) -> dict[str, int]:
    found = {"tools": sum(estimate_text(json.dumps(tool, ensure_ascii=False)) for tool in view.tools)}
    for at, block in enumerate(view.system):
        text = str(block.get("text", ""))
        names = (name for sign, name in _HEADS if at and sign in text)
        source = next(names, "system prompt")
        found[source] = found.get(source, 0) + estimate_block(block)
    return found


def _shares(role: str, blocks: list[Block]) -> dict[str, int]:
    found: dict[str, int] = {}
    for block in blocks:
        for source, tokens in _sources_of(role, block):
            found[source] = found.get(source, 0) + tokens
    return found


def _sources_of(role: str, block: Block) -> list[tuple[str, int]]:
    kind, tokens = block["type"], estimate_block(block)
    if kind in PICTURES:
        return [("images", tokens)]
    if kind in THINKING:
        return [("thinking", tokens)]
    if kind in ("tool_use", CALL):
        return [("tool calls", tokens)]
    if is_result(block):
        return [("tool results", tokens)]
    if kind == "tool_result":
        images = sum(estimate_block(inner) for inner in block["content"] if inner["type"] == "image")
        first = next((str(inner.get("text", "")) for inner in block["content"] if inner["type"] == "text"), "")
        source = "skills" if first.startswith(SKILL) else "tool results"
        return [("images", images), (source, tokens - images)]
    if kind == "compaction":
        return [("summaries", tokens)]
    if role == "assistant":
        return [("answers", tokens)]
    text = str(block.get("text", ""))
    if text.startswith(RECALLED):
        return [("recalled memories", tokens)]
    if text.startswith(SKILL):
        return [("skills", tokens)]
    if SUMMARY.match(text):
        return [("summaries", tokens)]
    return [("attached and context" if text.startswith(ATTACHED) else "user", tokens)]


# ---- Two lists of messages side by side, and a message as text for reading.

class Row(msgspec.Struct, frozen=True):
    """One line of a comparison: what stood there before and after; both the same when `same`."""

    before: str
    after: str
    same: bool


def compare(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], chars: int = 4_000) -> list[Row]:
    """Two lists of messages side by side; unchanged stretches are one row that counts them."""
    start, end = same_until(before, after), 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    left, right = before[start : len(before) - end], after[start : len(after) - end]
    rows = _unchanged(start)
    old, new = ([json.dumps(message, ensure_ascii=False) for message in side] for side in (left, right))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        if what == "equal":
            rows += _unchanged(b - a)
            continue
        for at in range(max(b - a, d - c)):
            was = message_text(left[a + at], chars) if a + at < b else ""
            now = message_text(right[c + at], chars) if c + at < d else ""
            rows.append(Row(was, now, False))
    return rows + _unchanged(end)


def _unchanged(count: int) -> list[Row]:
    words = f"… {count:,} message{'s' * (count != 1)} as before …"
    return [Row(words, words, True)] if count else []


def message_text(message: dict[str, Any], chars: int = 4_000) -> str:
    """A message as text for reading, at most about `chars` characters a block."""
    return "\n".join([f"{message['role']}:", *(_block_text(block, chars) for block in message["content"])])


def _block_text(block: Block, chars: int) -> str:
    kind = block["type"]
    if kind == "text":
        return _cut(str(block["text"]), chars)
    if kind == "thinking":
        return f"[thinking] {_cut(str(block['thinking']), chars)}"
    if kind == "tool_use":
        return f"[call {block['name']}] {_cut(json.dumps(block['input'], ensure_ascii=False), chars)}"
    if kind == "tool_result":
        inner = "\n".join(_block_text(part, chars) for part in block["content"])
        return f"[{'error' if block.get('is_error') else 'result'}] {inner}"
    if kind == CALL or is_result(block):
        return _cut(in_words(block), chars)
    return f"[{kind}]"


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}\n… {len(text) - chars:,} characters more"


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
    source, tokens of the next prompt, dollars (None: no price known), requests. `out`: the user took it out of the
    conversation."""

    number: int
    text: str
    first: int
    last: int
    tokens: int
    sources: dict[str, int]
    cost: float | None
    requests: int
    ended: str
    out: bool = False


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
        self._removed: dict[int, TurnsRemoved] = {}
        """What took turns out of the conversation and was not taken back, by its event."""
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
        elif isinstance(event, TurnsRemoved):
            self._removed[event.id] = event
        elif isinstance(event, DecisionUndone):
            self._removed.pop(event.event, None)
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
        for gone in self._removed.values():
            for at in range(bisect_left(bars, gone.first, key=_first), bisect_right(bars, gone.last, key=_first)):
                bars[at] = msgspec.structs.replace(bars[at], out=True)
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


def _first(bar: Bar) -> int:
    return bar.first


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
