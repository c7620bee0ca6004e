"""A session in which anything may happen at any moment, against the practice server's own judge.

A script is a list of steps, each an operation's name with three numbers; what the numbers mean depends
on where the session stands, so every script is a session. Replies get the signatures that the server
would give them. `Walk` holds that every request that may go out is accepted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    BlockDropped,
    Compacted,
    DecisionUndone,
    Event,
    KernelStarted,
    LayerDecision,
    ModelChosen,
    ResultsCleared,
    ResultStored,
    Streamed,
    SystemPromptFrozen,
    SystemReminder,
    ThinkingDropped,
    ToolCalled,
    ToolReturned,
    TurnCollapsed,
    TurnEnded,
    TurnsRemoved,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import encode
from ipyagent.journal.view import ContextView
from ipyagent.practice.replies import Reply
from ipyagent.practice.server.judge import Judge
from ipyagent.practice.server.models import Refused, catalogue

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE: Block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
TOOL: Block = {"name": "get", "description": "Get it.", "input_schema": {"type": "object", "properties": {}}}
MODELS = ("practice", "claude-opus-5-5", "claude-sonnet-4-6", "claude-haiku-5-5")
STEPS = (
    *["say"] * 4, *["reply"] * 9, *["return"] * 12, "cut", "remind", "model", *["clear"] * 2, "compact", "snip",
    "collapse", *["undo"] * 2, *["store"] * 2, "unpicture", "unthink", "render", *["end"] * 2, "stream",
)  # fmt: skip


class Step(NamedTuple):
    """An operation and three numbers from 0 to 30."""

    what: str
    a: int
    b: int
    c: int


def words(text: str) -> Block:
    return {"type": "text", "text": text}


class Walk:
    """One session; `events` are what its journal would hold."""

    def __init__(self) -> None:
        self.judge = Judge(catalogue(1_000_000, 64_000, None), time.time)
        self.view = ContextView()
        self.events: list[Event] = []
        self.asked = 0
        self.closed_turn = True
        self.add(SystemPromptFrozen(system=(words("Be exact."),), tools=(TOOL,), tokens=20, tool_tokens=10))
        self.add(ModelChosen(model=MODELS[0]))

    def add(self, event: Event) -> int:
        number = len(self.events) + 1
        numbered = msgspec.structs.replace(event, id=number, parent=number - 1)
        self.events.append(numbered)
        self.view.apply(numbered)
        return number

    def run(self, steps: Iterable[Step]) -> None:
        """Take the steps; after each, the request that may go out now must be accepted."""
        for step in steps:
            getattr(self, step.what)(step.a, step.b, step.c)
            self.check()
        self.say(0, 0, 0)  # closes what is open
        self.check()

    def check(self) -> None:
        if self.view.sendable:
            self.judge.accept(self.body(), frozenset(), counting=True)

    def body(self) -> dict[str, Any]:
        system, tools, messages = self.view.wire()
        body: dict[str, Any] = {
            "model": self.view.model, "max_tokens": 8_000, "system": system, "tools": tools, "messages": messages
        }  # fmt: skip
        if "adaptive" in self.judge.cards[self.view.model].thinking:
            body["thinking"] = {"type": "adaptive"}
        return body

    # ------------------------------------------------------------------ what happens

    def say(self, a: int, b: int, c: int) -> None:
        blocks = (words(f"request {a}"), *([IMAGE] if b % 5 == 4 else []))
        self.add(UserMessage(text=f"request {a}", blocks=blocks, tokens=7))
        self.closed_turn = False

    def reply(self, a: int, b: int, c: int) -> None:
        if not self.view.sendable:
            return
        body = self.body()
        accepted = self.judge.accept(body, frozenset())
        self.judge.begin(accepted)
        content: list[Block] = []
        if a % 3 < 2:
            content.append({"type": "thinking", "thinking": f"hm {b}", "signature": ""})
        if a % 4 == 3:
            content.append({"type": "redacted_thinking", "data": f"sealed{b}"})
        if b % 3 < 2 or c % 4 == 0:
            content.append(words(f"answer {len(self.events)}"))
        for number in range(c % 4):
            content.append({"type": "tool_use", "id": "", "name": "get", "input": {"n": number}})
        if not any(block["type"] in ("text", "tool_use") for block in content):
            content.append(words("nothing"))
        calls = any(block["type"] == "tool_use" for block in content)
        stop = "tool_use" if calls else "pause_turn" if b % 11 == 10 else "end_turn"
        message, _ = self.judge.finish(accepted, Reply(tuple(content), stop))
        self.asked += 1
        count = self.view.count()
        self.add(AssistantMessage(blocks=tuple(message["content"]), stop_reason=stop, tokens=20))
        usage = Usage(input=accepted.prompt.tokens, output=20)
        self.add(UsageReported(usage=usage, predicted=count.tokens, raw=count.raw))

    def cut(self, a: int, b: int, c: int) -> None:
        """A reply that broke off: only its first blocks arrived."""
        if not self.view.sendable:
            return
        accepted = self.judge.accept(self.body(), frozenset())
        said = words(f"on its way {len(self.events)}")  # no two replies say the same
        content = ({"type": "thinking", "thinking": f"hm {b}", "signature": ""}, said)
        calls = [{"type": "tool_use", "id": "", "name": "get", "input": {}}] * (c % 3)
        message, _ = self.judge.finish(accepted, Reply((*content, *calls), "tool_use" if calls else "end_turn"))
        kept = tuple(message["content"])[: 1 + a % 4]
        self.add(AssistantMessage(blocks=kept, partial=True))

    def stream(self, a: int, b: int, c: int) -> None:
        call = self._open(a)
        if call:
            self.add(Streamed(channel="tool", text="so far", ref=call))
        else:
            self.add(Streamed(channel="text", text="half a sent"))

    def _open(self, a: int) -> str:
        waiting = list(self.view.open_calls)
        return waiting[a % len(waiting)] if waiting else ""

    def _any_call(self, a: int) -> str:
        made = [event.call for event in self.events if isinstance(event, ToolReturned)]
        return made[a % len(made)] if made else "no_such_call"

    def _range(self, a: int, b: int) -> tuple[int, int]:
        """Any range of the events, often up to the newest."""
        first = 1 + a * len(self.events) // 30
        last = len(self.events) if b > 26 else first + b * len(self.events) // 90
        return first, last

    # `return` is a word of the language
    def give(self, a: int, b: int, c: int) -> None:
        call = self._open(a)
        if not call:
            return
        self.add(ToolCalled(call=call, name="get", input={}))
        content = (words(f"row {b}\n" * (1 + c * 4)), *([IMAGE] if b % 4 == 3 else []))
        self.add(ToolReturned(call=call, name="get", blocks=content, is_error=c % 5 == 4, tokens=9))
        if b % 6 == 5:
            self.add(ResultStored(call=call, path=f"{call}.txt", chars=90, blocks=(words("preview"),), tokens=2))

    def remind(self, a: int, b: int, c: int) -> None:
        self.add(SystemReminder(text=f"note {a}"))

    def model(self, a: int, b: int, c: int) -> None:
        """A model is chosen before a request of the user."""
        if self.view.editable or a % 2:
            self.add(ModelChosen(model=MODELS[b % len(MODELS)]))
            self.say(a, 0, 0)

    def clear(self, a: int, b: int, c: int) -> None:
        calls = tuple({self._any_call(n): None for n in range(a, a + 1 + b % 5)})
        self.add(ResultsCleared(calls=calls, text="[Previous: used {tool}]", layer="clear_results"))

    def compact(self, a: int, b: int, c: int) -> None:
        first, last = self._range(a if c % 2 else 0, b)
        made = Compacted(trigger="auto", method="summary", first=first, last=last, blocks=(words(f"sum {c}"),))
        number = self.add(made)
        if b % 3 == 0 and self.view.begins_with(number):  # the files that the head is made of have changed
            system = (words(f"Be exact {a % 2}."),)
            self.add(SystemPromptFrozen(system=system, tools=(TOOL,), tokens=20, tool_tokens=10, compaction=number))

    def snip(self, a: int, b: int, c: int) -> None:
        first, last = self._range(a, b)
        self.add(TurnsRemoved(first=first, last=last, blocks=(words("[snipped]"),) if c % 2 else ()))

    def collapse(self, a: int, b: int, c: int) -> None:
        first, last = self._range(a, b % 10)
        self.add(TurnCollapsed(first=first, last=last, blocks=(words(f"[done: {c}]"),)))

    def undo(self, a: int, b: int, c: int) -> None:
        newest = self.view.undoable
        self.add(DecisionUndone(event=newest if newest is not None and c % 3 else 1 + a * len(self.events) // 30))

    def store(self, a: int, b: int, c: int) -> None:
        call = self._any_call(a)
        blocks = (words(f"preview {c}"),) if b % 2 else ()
        self.add(ResultStored(call=call, path=f"{call}.txt", chars=90, blocks=blocks, tokens=2 if blocks else 0))

    def unpicture(self, a: int, b: int, c: int) -> None:
        event = self.view.event_with_images()
        if event is not None:
            self.add(BlockDropped(event=event if c % 2 else 1 + a * len(self.events) // 30, why="refused"))

    def unthink(self, a: int, b: int, c: int) -> None:
        """The server refused a signature; the loop then takes all thinking out, between turns."""
        if self.view.editable:
            self.add(ThinkingDropped(upto=len(self.events)))

    def render(self, a: int, b: int, c: int) -> None:
        """The head changes with the next request of the user."""
        self.add(SystemPromptFrozen(system=(words(f"Be exact {a % 2}."),), tools=(TOOL,), tokens=20, tool_tokens=10))
        self.say(a, 0, 0)

    def end(self, a: int, b: int, c: int) -> None:
        self.add(TurnEnded(status="stopped"))
        self.add(KernelStarted(stamp=str(a), resumed=True))
        self.add(LayerDecision(layer="clear_results", words="kept"))


setattr(Walk, "return", Walk.give)


def bytes_of(view: ContextView) -> str:
    return json.dumps(view.wire(), ensure_ascii=False)


def replayed(events: list[Event]) -> str:
    """The request that the journal's lines give when they are read again."""
    decoder = msgspec.json.Decoder(Event)
    return bytes_of(ContextView.of(decoder.decode(encode(event)[0]) for event in events))


def told(steps: Iterable[Step], refused: Refused, walk: Walk) -> str:
    """What a failing test says: the shortest facts."""
    tail = [f"{event.id} {type(event).__name__}" for event in walk.events[-25:]]
    shape = [
        f"{at} {message['role'][0]}: " + " ".join(block["type"] for block in message["content"])
        for at, message in enumerate(walk.view.messages)
    ]
    return "\n".join([refused.message, *tail, *shape])
