"""A session as it grew: what stood in the context after every turn, and what each decision changed.

Pure functions of the events. One walk over them keeps, at every turn's end and around every decision,
the list of messages as it was; a message that was given out is never changed, so such a checkpoint
costs pointers, not text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from ipyagent.journal.events import (
    Block,
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
    ResultsCleared,
    ResultStored,
    ServerEdited,
    Snipped,
    ThinkingDropped,
    TurnEnded,
    UsageReported,
    UserSaid,
)
from ipyagent.journal.tokens import estimate_block, estimate_blocks, estimate_text
from ipyagent.journal.view import View

SOURCES = (
    "system prompt",
    "tools",
    "user",
    "attached and context",
    "answers",
    "thinking",
    "tool calls",
    "tool results",
    "images",
)
ATTACHED = ("<context>", "<variable ", "<file ", "<cell ")


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


class Row(msgspec.Struct, frozen=True):
    """One line of a comparison: what stood there before and after; both the same when `same`."""

    before: str
    after: str
    same: bool


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


# ---------------------------------------------------------------------- shares by source


class Shares:
    """Estimated tokens by source; what is known of a message is not estimated again."""

    def __init__(self) -> None:
        self._known: list[tuple[dict[str, Any], dict[str, int]]] = []
        self._head: tuple[Any, Any, int, int] = (None, None, 0, 0)

    def of(self, view: View) -> dict[str, int]:
        """Tokens of the next prompt by where they come from; keys are SOURCES. They add up to the
        view's count but for rounding."""
        found = dict.fromkeys(SOURCES, 0)
        if self._head[0] is not view.system or self._head[1] is not view.tools:
            tools = sum(estimate_text(json.dumps(tool, ensure_ascii=False)) for tool in view.tools)
            self._head = (view.system, view.tools, estimate_blocks(view.system), tools)
        found["system prompt"], found["tools"] = self._head[2:]
        known, messages = self._known, view.messages
        del known[len(messages) :]
        for at, message in enumerate(messages):
            if at == len(known):
                known.append((message, _shares(message)))
            elif known[at][0] is not message:
                known[at] = message, _shares(message)
            for source, tokens in known[at][1].items():
                found[source] += tokens
        # the count is the server's as far as it has counted: the shares add up to it
        factor = view.count().tokens / (sum(found.values()) or 1)
        return {source: round(tokens * factor) for source, tokens in found.items()}


def _shares(message: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for block in message["content"]:
        for source, tokens in _sources_of(message["role"], block):
            found[source] = found.get(source, 0) + tokens
    return found


def _sources_of(role: str, block: Block) -> list[tuple[str, int]]:
    kind, tokens = block["type"], estimate_block(block)
    if kind in ("image", "document"):
        return [("images", tokens)]
    if kind in ("thinking", "redacted_thinking"):
        return [("thinking", tokens)]
    if kind == "tool_use":
        return [("tool calls", tokens)]
    if kind == "tool_result":
        images = sum(estimate_block(inner) for inner in block["content"] if inner["type"] == "image")
        return [("images", images), ("tool results", tokens - images)]
    if role == "assistant":
        return [("answers", tokens)]
    return [("attached and context" if str(block.get("text", "")).startswith(ATTACHED) else "user", tokens)]


# ---------------------------------------------------------------------- before and after


def compare(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]], chars: int = 4_000) -> list[Row]:
    """Two lists of messages side by side; unchanged stretches are one row that counts them."""
    start = 0
    while start < min(len(before), len(after)) and _same(before[start], after[start]):
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and _same(before[-1 - end], after[-1 - end]):
        end += 1
    left, right = before[start : len(before) - end], after[start : len(after) - end]
    rows = _unchanged(start)
    matcher = SequenceMatcher(None, [_key(item) for item in left], [_key(item) for item in right], autojunk=False)
    for what, a, b, c, d in matcher.get_opcodes():
        if what == "equal":
            rows += _unchanged(b - a)
            continue
        for at in range(max(b - a, d - c)):
            old = message_text(left[a + at], chars) if a + at < b else ""
            new = message_text(right[c + at], chars) if c + at < d else ""
            rows.append(Row(old, new, False))
    return rows + _unchanged(end)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one is other or one == other


def _key(message: dict[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False)


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
    return f"[{kind}]"


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}\n… {len(text) - chars:,} characters more"
