"""What the model sees: a pure function of the journal, built one event at a time.

Whatever the events are, the messages keep the API's rules: the first is the user's, every tool_use
has exactly one tool_result in the very next user message and results come first there, no text is
empty, no id comes twice, thinking is kept unedited or dropped by a recorded decision. What was
cut off (a stop, a crash) is closed here with an error result, so a request is always valid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from ipyagent.journal.admission import THINKING, reply_block, request_blocks, text_block
from ipyagent.journal.body import GO_ON, Body, Spot
from ipyagent.journal.entries import Entries
from ipyagent.journal.events import (
    AssistantSaid,
    Block,
    BlockDropped,
    CacheBroken,
    Collapsed,
    Compacted,
    DecisionUndone,
    Event,
    FileChanged,
    FilesRestored,
    ForkEnded,
    KernelStarted,
    LayerDecided,
    LayerFailed,
    MemoryDismissed,
    MemorySaved,
    MemorySurfaced,
    ModelChosen,
    NotesWritten,
    PermissionAnswered,
    PermissionAsked,
    PromptRendered,
    Reminded,
    ResultsCleared,
    ResultStored,
    Retrying,
    ServerEdited,
    SessionStarted,
    Snipped,
    Streamed,
    ThinkingDropped,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UsageReported,
    UserSaid,
)
from ipyagent.journal.marks import Position, marked
from ipyagent.journal.open_calls import NO_OUTPUT, OpenCalls
from ipyagent.journal.rewriting import flatten
from ipyagent.journal.tokens import Calibration, Count, estimate_block, estimate_blocks, learn_from, plausible
from ipyagent.journal.weights import Behind, Weights

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
        self.calibration = Calibration()
        self._calls = OpenCalls()
        self._body = Body()
        self._weights = Weights()
        self._kept: dict[str, str] = {}
        """Where stored results are, by call."""
        self._edited = False
        """Whether the server has left out more of the prompt than before, so that the next report says
        nothing of our estimates."""
        self._partial: list[str] = []
        self._asked_at: Position | None = None
        self._entries = Entries()
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
    def messages(self) -> list[dict[str, Any]]:
        """Wire messages without cache marks."""
        return self._body.messages

    @property
    def results(self) -> list[Spot]:
        """The tool results in the messages, oldest first."""
        return list(self._body.spots.values())

    @property
    def editable(self) -> bool:
        """Whether a decision may change earlier messages now, see `Body.closed`."""
        return not self._calls and self._body.closed

    def held(self, message: int, lifetime: float) -> int:
        """How many of the messages before `message` the provider can read from its cache, where a prefix
        lives `lifetime` seconds, as of the newest reply."""
        return self._entries.held(message, self._entries.written_at - lifetime)

    def behind(self) -> Behind:
        """Estimated tokens from each message to the end, and of the thinking in them."""
        return self._weights.behind(self.messages)

    @property
    def undoable(self) -> int | None:
        """The event of the newest replacement that stands and can be taken back."""
        return self._body.standing[-1].event if self._body.standing else None

    @property
    def head_tokens(self) -> int:
        """Estimated tokens of system prompt and tools, uncalibrated."""
        return self._head_tokens

    def tokens_after(self, event: Compacted | Snipped | Collapsed) -> int | None:
        """Tokens of the next prompt if this were decided now; None when it would change nothing or may
        not be. The view stays as it is."""
        if self._calls:
            return None
        body = self._body.copy()
        if body.replace(event.first, event.last, request_blocks(event.blocks), event.id) is None:
            return None
        weight = sum(estimate_blocks(message["content"]) for message in body.messages)
        return Count(0, self._head_tokens + weight, self.calibration.factor).tokens

    def placed(self) -> list[tuple[str, Block, int]]:
        """Every block in order with its role and the event that it came from."""
        return [(item.role, item.block, item.source) for item in flatten(self._body.messages, self._body.sources)]

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
        return marked(self.system, self.tools, self.messages, anchor=self._entries.anchor, ttl=ttl)

    def event_with_images(self, message: int | None = None) -> int | None:
        """The newest event whose images are in the view (in message `message`, if given)."""
        return self._body.event_with_images(message)

    # -------------------------------------------------------------- building

    def apply(self, event: Event) -> None:
        """Take in the next event of the journal."""
        match event:
            case UserSaid():
                self._settle()
                self._add_user(event.id, request_blocks(event.blocks), event.tokens)
            case Reminded() | MemorySurfaced():
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
                if not self._edited:
                    self.calibration = learn_from(
                        self.calibration, predicted=event.predicted, raw=event.raw, usage=event.usage
                    )
                if event.usage.prompt > 0 and (self._edited or plausible(event.predicted, event.usage)):
                    self._base = event.usage.total if self._output else event.usage.prompt
                    self._raw, self._replied = self._raw - self._replied, 0
                self._entries.write(self._asked_at, event.at, pictures=self._body.has_pictures)
                self._edited = False
            case PromptRendered():
                self._render(event)
                self._raw += event.tokens - self._head_tokens
                self._head_tokens = event.tokens
            case ModelChosen():
                if self.model and event.model != self.model:
                    self._begin_anew()
                self.model = event.model
            case ThinkingDropped():
                self._forget_thinking(self._body.drop_thinking(upto=event.upto))
            case BlockDropped():
                self._weigh(self._calls.drop_pictures(event.event))
                if change := self._body.drop_images(event.event):
                    self._go_on()
                    self._recount(change)
            case ResultStored():
                self._put_result(event)
            case ResultsCleared():
                if self.editable:
                    self._clear(event)
            case Compacted() | Snipped() | Collapsed():
                self._replace(event.first, event.last, event.blocks, event.id)
            case DecisionUndone():
                self._undo(event.event)
            case ServerEdited():
                self._edited = True
            case (
                SessionStarted()
                | KernelStarted()
                | PermissionAsked()
                | PermissionAnswered()
                | FileChanged()
                | FilesRestored()
                | Retrying()
                | NotesWritten()
                | ForkEnded()
                | LayerDecided()
                | LayerFailed()
                | CacheBroken()
                | MemoryDismissed()
                | MemorySaved()
            ):
                pass
            case TurnEnded():
                self._body.over = True
            case _:
                assert_never(event)

    def _render(self, event: PromptRendered) -> None:
        """Another head: thinking that was bound to the old one goes."""
        system = request_blocks(event.system)
        tools = [{key: tool[key] for key in tool if key != "cache_control"} for tool in event.tools]
        if self.messages and (system, tools) != (self.system, self.tools):
            self._begin_anew()
        self.system, self.tools = system, tools

    def _begin_anew(self) -> None:
        """Another model or head reads on: no thinking stays, and a turn that has its results is over."""
        self._body.over = not self._calls
        self._forget_thinking(self._body.drop_thinking())

    def _settle(self) -> None:
        """Close what is still open before another message comes."""
        self._weigh(self._calls.cut_off())
        self._close_results()
        if self._partial:
            text = self.partial_text
            self._partial.clear()
            if text.strip():
                said = [text_block(f"{text}\n{CUT_MARK}")]
                self._body.push("assistant", said, [0])
                self._weigh(estimate_blocks(said))

    def _add_user(self, event: int, blocks: list[Block], tokens: int) -> None:
        if not blocks:
            return
        self._weigh(tokens or estimate_blocks(blocks))
        self._paused = self._body.over = False
        self._body.push("user", blocks, [event] * len(blocks))

    def _add_assistant(self, event: AssistantSaid) -> None:
        if self.messages:
            self._asked_at = (len(self.messages) - 1, len(self.messages[-1]["content"]) - 1)
        blocks = [kept for block in event.blocks if (kept := self._admit(block))]
        self._output = any(block["type"] not in THINKING for block in blocks)
        if self._output:
            self._weigh(event.tokens or estimate_blocks(blocks))
            self._paused = event.stop_reason == "pause_turn"
            self._body.over = False
            self._body.push("assistant", blocks, [event.id] * len(blocks))
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
        blocks, events, names = self._calls.collect()
        message, first = self._body.push("user", blocks, events)
        for place, (block, event, name) in enumerate(zip(blocks, events, names, strict=True), first):
            self._body.spots[block["tool_use_id"]] = Spot(
                call=block["tool_use_id"],
                tool=name,
                event=event,
                message=message,
                block=place,
                tokens=estimate_block(block),
                chars=sum(len(str(part.get("text", ""))) for part in block["content"]),
                is_error=bool(block.get("is_error")),
                stored=block["tool_use_id"] in self._kept,
                kept=self._kept.get(block["tool_use_id"], ""),
            )
        self._paused = False
        self._weigh(self._body.part_turn())

    def _weigh(self, tokens: int) -> None:
        self._raw += tokens
        self._weight += tokens

    # -------------------------------------------------------------- frozen decisions

    def _clear(self, event: ResultsCleared) -> None:
        spots = self._body.spots
        mine = [spots[call] for call in event.calls if call in spots and not spots[call].cleared]
        first = min((spot.message for spot in mine), default=0)
        change = self._body.clear_results(event.calls, event.text, event.place, event.kept)
        if change is not None:
            self._entries.change(first)
            self._go_on()
            self._recount(change)

    def _put_result(self, event: ResultStored) -> None:
        kept = f"{event.path}, in python {event.handle}" if event.handle else event.path
        call = self._calls.sent_as(event.call)
        self._kept[call] = kept
        if (spot := self._body.spots.get(call)) is not None:
            spot.kept, spot.stored = kept, spot.stored or not event.blocks
        if not event.blocks:
            return  # it came as its preview
        blocks = request_blocks(event.blocks) or [text_block(NO_OUTPUT)]
        change = self._calls.put(event.call, blocks)
        if change is not None:
            self._weigh(change)
        elif (change := self._body.store_result(event.call, blocks)) is not None:
            self._go_on()
            self._recount(change)

    def _forget_thinking(self, change: int) -> None:
        if change:
            self._entries.change(0)
            self._recount(change)

    def _replace(self, first: int, last: int, blocks: Iterable[Block], event: int) -> None:
        """A range gives way to blocks. What the provider holds of the prefix before it stays held."""
        if self._calls:
            return  # a call whose result is still to come may not leave, nor its thinking
        start = self._body.replace(first, last, request_blocks(blocks), event)
        if start is not None:
            self._entries.change(start)
            self._go_on()
            self._recount(None)

    def _undo(self, event: int) -> None:
        if not self._calls and self._body.restore(event):
            self._entries.change(0)
            self._go_on()
            self._recount(None)

    def _go_on(self) -> None:
        """A pause can be gone on from as it was only; after a change the model is asked to."""
        if self._paused:
            self._paused = False
            self._body.push("user", [text_block(GO_ON)], [0])

    def _recount(self, change: int | None) -> None:
        """What was sent has changed: the last report is not read again, everything is estimated;
        `change` to the estimate so far (None: count it all)."""
        if change is None:
            self._weight = sum(estimate_blocks(message["content"]) for message in self.messages)
        else:
            self._weight = max(0, self._weight + change)
        self._base = 0
        self._raw = self._replied = self._head_tokens + self._weight
