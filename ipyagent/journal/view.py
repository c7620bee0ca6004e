"""What the model sees: a pure function of the journal, built one event at a time.

Whatever the events are, the messages keep the API's rules: the first is the user's, every tool_use
has exactly one tool_result in the very next user message and results come first there, no text is
empty, no id comes twice, thinking is kept unedited or dropped by a recorded decision. What was
cut off (a stop, a crash) is closed here with an error result, so a request is always valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from ipyagent.journal.admission import PICTURES, THINKING, reply_block, request_blocks, text_block
from ipyagent.journal.events import (
    AssistantSaid,
    Block,
    BlockDropped,
    Event,
    FileChanged,
    FilesRestored,
    KernelStarted,
    ModelChosen,
    PermissionAnswered,
    PermissionAsked,
    PromptRendered,
    Reminded,
    Retrying,
    SessionStarted,
    Streamed,
    ThinkingDropped,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UsageReported,
    UserSaid,
)
from ipyagent.journal.marks import Position, marked
from ipyagent.journal.open_calls import OpenCalls, named
from ipyagent.journal.tokens import Calibration, Count, estimate_block, estimate_blocks, learn_from, plausible

NO_REQUEST = "(the session begins here)"
CUT_MARK = "[cut off here]"


class View:
    """The request's head and messages after some events; `apply` adds one more event.

    `messages` are wire messages without cache marks. A message that was given out is never changed:
    what adds to it, or takes from it, puts a new one in its place.
    """

    def __init__(self) -> None:
        self.system: list[Block] = []
        self.tools: list[Block] = []
        self.model = ""
        self.messages: list[dict[str, Any]] = []
        self.calibration = Calibration()
        self._calls = OpenCalls()
        self._sources: list[list[int]] = []
        """The event that each block of each message came from."""
        self._thinking: list[int] = []
        """Messages that have thinking in them, in order."""
        self._images: dict[int, list[tuple[int, int, int]]] = {}
        """Places of an event's images: message, block, block within a tool result (-1: no result)."""
        self._partial: list[str] = []
        self._asked_at: Position | None = None
        self._confirmed: Position | None = None
        self._paused = False
        self._base = 0
        self._raw = 0
        self._replied = 0
        """The part of `_raw` that the next report of usage covers."""
        self._output = False
        """Whether the newest reply is in the view, so that its reported output counts."""
        self._weight = 0
        """Estimated tokens of all messages, whatever was reported."""
        self._head_tokens = 0

    @classmethod
    def of(cls, events: Iterable[Event]) -> View:
        """The view after `events`."""
        view = cls()
        for event in events:
            view.apply(event)
        return view

    def __repr__(self) -> str:
        return f"<View {len(self.messages)} messages, about {self.count().tokens} tokens>"

    # -------------------------------------------------------------- reading

    @property
    def open_calls(self) -> dict[str, str]:
        """Id and tool name of the calls that have no result yet."""
        return self._calls.waiting

    @property
    def partial_text(self) -> str:
        """Text of a reply that was shown but never came to its end."""
        return "".join(self._partial)

    def partial_output(self, call: str) -> str:
        """Output of a running call that was shown but is in no result yet."""
        return self._calls.output(call)

    def was_called(self, call: str) -> bool:
        """Whether the call had begun to run."""
        return self._calls.has_begun(call)

    def knows_call(self, call: str) -> bool:
        """Whether a call of this id is in the view already."""
        return self._calls.knows(call)

    @property
    def sendable(self) -> bool:
        """Whether a request may go out now: the user's side has the last word, nothing is open."""
        return bool(self.messages) and not self._calls and (self._paused or self.messages[-1]["role"] == "user")

    def count(self) -> Count:
        """Tokens of the next prompt, see `Count`."""
        return Count(self._base, self._raw, self.calibration.factor)

    def wire(self, *, ttl: str = "5m", marks: bool = True) -> tuple[list[Block], list[Block], list[dict[str, Any]]]:
        """System, tools and messages as they go out, with at most four cache marks: end of
        tools, end of system, the end of the last prompt the server has answered, the very end."""
        if not marks:
            return list(self.system), list(self.tools), list(self.messages)
        return marked(self.system, self.tools, self.messages, anchor=self._confirmed, ttl=ttl)

    def event_with_images(self, message: int | None = None) -> int | None:
        """The newest event whose images are in the view (in message `message`, if given)."""
        hits = [
            event
            for event, places in self._images.items()
            if message is None or any(place[0] == message for place in places)
        ]
        return max(hits, default=None)

    # -------------------------------------------------------------- building

    def apply(self, event: Event) -> None:
        """Take in the next event of the journal."""
        match event:
            case UserSaid():
                self._settle()
                self._add_user(event.id, request_blocks(event.blocks), event.tokens)
            case Reminded():
                self._settle()
                self._add_user(event.id, request_blocks([text_block(event.text)]), event.tokens)
            case Streamed():
                if event.channel == "text":
                    self._partial.append(event.text)
                elif event.channel == "tool":
                    self._calls.show(event.ref, event.text)
            case AssistantSaid():
                self._partial.clear()
                self._settle()
                self._add_assistant(event)
            case ToolCalled():
                self._calls.begin(event.call)
            case ToolReturned():
                self._take_result(event)
            case UsageReported():
                self.calibration = learn_from(
                    self.calibration, predicted=event.predicted, raw=event.raw, usage=event.usage
                )
                if event.usage.prompt > 0 and plausible(event.predicted, event.usage):
                    self._base = event.usage.total if self._output else event.usage.prompt
                    self._raw, self._replied = self._raw - self._replied, 0
                self._confirmed = self._asked_at
            case PromptRendered():
                self.system = request_blocks(event.system)
                self.tools = [{key: tool[key] for key in tool if key != "cache_control"} for tool in event.tools]
                self._raw += event.tokens - self._head_tokens
                self._head_tokens = event.tokens
            case ModelChosen():
                if self.model and event.model != self.model:
                    self._drop_thinking()
                self.model = event.model
            case ThinkingDropped():
                self._drop_thinking(upto=event.upto)
            case BlockDropped():
                self._drop_images(event.event)
            case (
                SessionStarted()
                | KernelStarted()
                | PermissionAsked()
                | PermissionAnswered()
                | FileChanged()
                | FilesRestored()
                | Retrying()
                | TurnEnded()
            ):
                pass
            case _:
                assert_never(event)

    def _settle(self) -> None:
        """Close what is still open before another message comes."""
        self._weigh(self._calls.cut_off())
        self._close_results()
        if self._partial:
            text = self.partial_text
            self._partial.clear()
            if text.strip():
                said = [text_block(f"{text}\n{CUT_MARK}")]
                self._push("assistant", said, [0])
                self._weigh(estimate_blocks(said))

    def _add_user(self, event: int, blocks: list[Block], tokens: int) -> None:
        if not blocks:
            return
        self._weigh(tokens or estimate_blocks(blocks))
        self._paused = False
        message, first = self._push("user", blocks, [event] * len(blocks))
        for index, block in enumerate(blocks, first):
            if block["type"] in PICTURES:
                self._images.setdefault(event, []).append((message, index, -1))

    def _add_assistant(self, event: AssistantSaid) -> None:
        if self.messages:
            self._asked_at = (len(self.messages) - 1, len(self.messages[-1]["content"]) - 1)
        blocks = [kept for block in event.blocks if (kept := self._admit(block))]
        self._output = any(block["type"] not in THINKING for block in blocks)
        if self._output:
            self._weigh(event.tokens or estimate_blocks(blocks))
            self._paused = event.stop_reason == "pause_turn"
            message, _ = self._push("assistant", blocks, [event.id] * len(blocks))
            if any(block["type"] in THINKING for block in blocks) and self._thinking[-1:] != [message]:
                self._thinking.append(message)
        self._replied = self._raw

    def _admit(self, block: Block) -> Block | None:
        """A reply's block as it may be sent back; None when it may not."""
        return self._calls.make(block) if block.get("type") == "tool_use" else reply_block(block)

    def _take_result(self, event: ToolReturned) -> None:
        tokens = self._calls.take(event)
        if tokens is not None:
            self._weigh(tokens)
            if not self._calls.waiting:
                self._close_results()

    def _close_results(self) -> None:
        """All calls have a result: they become the next user message, in the order of the calls."""
        if not self._calls:
            return
        blocks, events = self._calls.collect()
        message, first = self._push("user", blocks, events)
        for index, (block, event) in enumerate(zip(blocks, events, strict=True), first):
            for inner, part in enumerate(block["content"]):
                if part["type"] in PICTURES:
                    self._images.setdefault(event, []).append((message, index, inner))
        self._paused = False

    def _push(self, role: str, blocks: list[Block], events: list[int]) -> tuple[int, int]:
        """Add blocks as a message, or to the last message when it has the same role; gives the
        place of the first of them."""
        if not self.messages and role == "assistant":
            self._push("user", [text_block(NO_REQUEST)], [0])
        if self.messages and self.messages[-1]["role"] == role:
            earlier = self.messages[-1]["content"]
            self.messages[-1] = {"role": role, "content": [*earlier, *blocks]}
            self._sources[-1].extend(events)
            return len(self.messages) - 1, len(earlier)
        self.messages.append({"role": role, "content": blocks})
        self._sources.append(events)
        return len(self.messages) - 1, 0

    def _weigh(self, tokens: int) -> None:
        self._raw += tokens
        self._weight += tokens

    # -------------------------------------------------------------- frozen decisions

    def _drop_thinking(self, *, start: int = 0, upto: int | None = None) -> None:
        """Thinking of events up to `upto` (None: of all) leaves the messages from `start` on; there
        is text or a call beside it always."""
        left: list[int] = []
        gone: list[Block] = []
        for message in self._thinking:
            content, sources = self.messages[message]["content"], self._sources[message]
            stays = [
                block["type"] not in THINKING or message < start or (upto is not None and source > upto)
                for block, source in zip(content, sources, strict=True)
            ]
            kept = [block for block, stay in zip(content, stays, strict=True) if stay]
            if any(block["type"] in THINKING for block in kept):
                left.append(message)
            if len(kept) < len(content):
                gone.extend(block for block, stay in zip(content, stays, strict=True) if not stay)
                self.messages[message] = {"role": "assistant", "content": kept}
                self._sources[message] = [source for source, stay in zip(sources, stays, strict=True) if stay]
        self._thinking = left
        if gone:
            self._recount(-estimate_blocks(gone))

    def _drop_images(self, event: int) -> None:
        """Images of an event become words; thinking that was bound to them goes as well."""
        self._weigh(self._calls.drop_pictures(event))
        places = self._images.pop(event, [])
        for message, block, inner in places:
            content = list(self.messages[message]["content"])
            parts = content if inner < 0 else list(content[block]["content"])
            at = block if inner < 0 else inner
            change = -estimate_block(parts[at])
            parts[at] = named(parts[at])
            if inner >= 0:
                content[block] = {**content[block], "content": parts}
            self.messages[message] = {"role": "user", "content": content}
            self._recount(change + estimate_block(parts[at]))
        if places:
            self._drop_thinking(start=min(place[0] for place in places))

    def _recount(self, change: int) -> None:
        """What was sent has changed: the last report is not read again, everything is estimated."""
        self._weight = max(0, self._weight + change)
        self._base = 0
        self._raw = self._replied = self._head_tokens + self._weight
