"""What the model sees: a pure function of the journal, built one event at a time.

Whatever the events are, the messages keep the API's rules: the first is the user's, every tool_use
has exactly one tool_result in the very next user message and results come first there, no text is
empty, no id comes twice, thinking is kept unedited or dropped by a recorded decision. What was
cut off (a stop, a crash) is closed here with an error result, so a request is always valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from ipyagent.journal.blocks import (
    GOES_ON,
    THINKING,
    Position,
    answered_in,
    flatten,
    marked,
    reply_block,
    request_blocks,
    sendable,
    stopped,
    text_block,
)
from ipyagent.journal.cache_prefixes import CachePrefixes, CacheSnapshot
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    BlockDropped,
    Compacted,
    DecisionUndone,
    Event,
    MemorySurfaced,
    MessageReceived,
    ModelChosen,
    OutOfPrompt,
    PartEvent,
    ResultsCleared,
    ResultStored,
    ServerEdited,
    SkillLoaded,
    SkillsListed,
    Streamed,
    SystemPromptFrozen,
    SystemReminder,
    ThinkingDropped,
    ToolCalled,
    ToolReturned,
    TurnCollapsed,
    TurnEnded,
    TurnsRemoved,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.message_list import GO_ON, MessageList, ServerClearedState, ToolResultRef
from ipyagent.journal.open_calls import NO_OUTPUT, OpenCalls
from ipyagent.journal.tokens import (
    BlockTokenCache,
    Calibration,
    Count,
    SuffixTokens,
    TokenCounter,
    Weighed,
    blocks_read,
    estimate_block,
    estimate_blocks,
    summary_in,
    unread_by_some,
)

CUT_MARK = "[cut off here]"


class ContextView:
    """The request's head and messages after some events; `apply` adds one more event.

    `messages` are wire messages without cache marks. A message that was given out is never changed:
    what adds to it, or takes from it, puts a new one in its place.
    """

    def __init__(self) -> None:
        self.system: list[Block] = []
        self.tools: list[Block] = []
        self.model = ""
        self.left_out = ServerClearedState()
        """What the server leaves out of the prompt; it stands in `messages` all the same."""
        self.calls = OpenCalls()
        """The calls of the newest reply."""
        self._body = MessageList()
        self._entries = CachePrefixes()
        self._tally = TokenCounter()
        self._weights = BlockTokenCache()
        self._partial: list[str] = []
        """Pieces of a reply that was shown but has not come to its end."""
        self._paused = False
        """Whether the model has only paused, so that it may go on without a word of the user."""
        self._kept: dict[str, str] = {}
        """Where stored results are, by call."""
        self._asked_at: Position | None = None
        self._before: dict[int, tuple[Weighed | None, CacheSnapshot, ServerClearedState]] = {}
        """What was counted, held and left out before each decision that can be taken back, by its event."""
        self._heads: dict[int, tuple[list[Block], list[Block], int, float]] = {}
        """Heads that come back with what a compaction replaced, by its event, with their tokens and when they were
        written to the cache."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> ContextView:
        """The view after `events`."""
        view = cls()
        for event in events:
            view.apply(event)
        return view

    def __repr__(self) -> str:
        return f"<ContextView {len(self.messages)} messages, about {self.count().tokens} tokens>"

    # -------------------------------------------------------------- reading

    @property
    def calibration(self) -> Calibration:
        """How our estimates compare with what the server counted."""
        return self._tally.calibration

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Wire messages without cache marks."""
        return self._body.messages

    @property
    def results(self) -> list[ToolResultRef]:
        """The tool results in the messages, oldest first."""
        return list(self._body.spots.values())

    @property
    def editable(self) -> bool:
        """Whether a decision may change earlier messages now, see `MessageList.closed`."""
        return not self.calls and self._body.closed

    def held(self, message: int, lifetime: float) -> int:
        """How many of the messages before `message` the provider can read from its cache, where a prefix
        lives `lifetime` seconds, as of the newest reply."""
        return self._entries.held(message, self._entries.written_at - lifetime)

    def can_read(self, lifetime: float) -> bool:
        """Whether the provider can read system prompt and tools from its cache, see `held`."""
        entries = self._entries
        return entries.has_head(entries.written_at - lifetime)

    @property
    def ceiling(self) -> int:
        """The tokens above which the server was seen to cut prompts silently; 0 while it was not."""
        return self._tally.ceiling

    @property
    def measure(self) -> float:
        """What an estimated token of messages comes to in `count`."""
        return self._tally.measure

    @property
    def head_counted(self) -> int:
        """About what the server counts for system prompt and tools."""
        return self._tally.head_counted

    def scaled(self, tokens: int) -> int:
        """So many estimated tokens of messages by the measure of `count`."""
        return round(tokens * self.measure)

    def behind(self) -> SuffixTokens:
        """Estimated tokens from each message to the end, and of the thinking in them."""
        return self._weights.behind(self.messages)

    @property
    def undoable(self) -> int | None:
        """The event of the newest replacement that stands and can be taken back."""
        return self._body.standing[-1].event if self._body.standing else None

    @property
    def replacements(self) -> dict[int, tuple[int, int]]:
        """The ranges of events that were replaced, first and last, by the event that did it."""
        return {kept.event: (kept.first, kept.last) for kept in self._body.standing if kept.last}

    def begins_with(self, event: int) -> bool:
        """Whether the first message came from this event."""
        sources = self._body.sources
        return bool(sources) and sources[0][:1] == [event]

    def replaces_all_before(self, event: Compacted) -> bool:
        """Whether nothing would be left before what a compaction puts in its range's place."""
        sources = self._body.sources
        return bool(sources) and event.first <= sources[0][0] <= event.last

    @property
    def head_tokens(self) -> int:
        """Estimated tokens of system prompt and tools, uncalibrated."""
        return self._tally.head

    def tokens_after(self, event: Compacted | TurnsRemoved | TurnCollapsed) -> int | None:
        """Tokens of the next prompt if this were decided now; None when it would change nothing or may
        not be. The view stays as it is."""
        body = self._body.copy()
        if self.calls or body.replace(event.first, event.last, request_blocks(event.blocks), event.id) is None:
            return None
        return self._tally.after(self._read_of(body.messages) - self._read)

    def placed(self) -> list[tuple[str, Block, int]]:
        """Every block in order with its role and the event that it came from."""
        body = self._body
        return [(item.role, item.block, item.source) for item in flatten(body.messages, body.sources)]

    def contexts(self, start: int) -> Iterator[tuple[str, int]]:
        """The text of each `<context>` block from message `start` on, with the event that it came from."""
        body = self._body
        for at, place in body.contexts(start):
            yield body.messages[at]["content"][place]["text"], body.sources[at][place]

    @property
    def open_calls(self) -> dict[str, str]:
        """Id and tool name of the calls that have no result yet."""
        return self.calls.waiting

    @property
    def partial_text(self) -> str:
        """Text of a reply that was shown but never came to its end."""
        return "".join(self._partial)

    @property
    def sendable(self) -> bool:
        """Whether a request may go out now: the user's side has the last word, nothing is open."""
        return bool(self.messages) and not self.calls and (self._paused or self.messages[-1]["role"] == "user")

    def count(self) -> Count:
        """Tokens of the next prompt, see `Count`."""
        return self._tally.count()

    def wire(self, *, ttl: str = "5m", marks: bool = True) -> tuple[list[Block], list[Block], list[dict[str, Any]]]:
        """System, tools and messages as they go out, with at most four cache marks: end of
        tools, end of system, the end of the last prompt the server has answered, the very end."""
        if not marks:
            return list(self.system), list(self.tools), list(self.messages)
        return marked(self.system, self.tools, self.messages, anchor=self._entries.anchor, ttl=ttl)

    @property
    def has_thinking(self) -> bool:
        """Whether thinking may go out with a request, this one or one after an undo."""
        return self._body.has_thinking

    def event_with_images(self, message: int | None = None) -> int | None:
        """The newest event whose images are in the view (in message `message`, if given)."""
        return self._body.event_with_images(message)

    # -------------------------------------------------------------- building

    def apply(self, event: Event) -> None:
        """Take in the next event of the journal."""
        match event:
            case Streamed():  # most are
                if event.channel == "text":
                    self._partial.append(event.text)
                elif event.channel == "tool":
                    self.calls.show(event.ref, event.text)
            case UserMessage():
                self._body.asked = event.id
                self._add_user(event.id, event.blocks, event.tokens)
            case SystemReminder() | MemorySurfaced() | MessageReceived():
                self._add_user(event.id, [text_block(event.text)], event.tokens)
            case SkillLoaded() | SkillsListed() | PartEvent():
                if event.text:
                    self._add_user(event.id, [text_block(event.text)], event.tokens)
            case AssistantMessage():
                self._add_assistant(event)
            case ToolCalled():
                self.calls.begin(event.call)
            case ToolReturned():
                self._take_result(event)
            case UsageReported():
                self._report(event)
            case SystemPromptFrozen():
                self._render(event)
            case ModelChosen():
                if self.model and event.model != self.model:
                    self._begin_anew()
                self.model = event.model
            case ThinkingDropped():
                self._forget_thinking(event.upto)
            case BlockDropped():
                self._drop_images(event)
            case ResultStored():
                self._store_result(event)
            case ResultsCleared():
                self._clear_results(event)
            case Compacted() | TurnsRemoved() | TurnCollapsed():
                self._replace(event)
            case DecisionUndone():
                self._undo(event.event)
            case ServerEdited():
                self.left_out = self.left_out.after(event, self._body.spots.values(), self._tally.measure)
                self._tally.edited(self._read)
            case TurnEnded():
                self._body.over = True
            case _:
                if not isinstance(event, OutOfPrompt):
                    assert_never(event)

    # -------------------------------------------------------------- growing

    def _begin_anew(self) -> None:
        """Another model or head reads on: no thinking stays, and a turn that has its results is over."""
        self._body.over = not self.calls
        self._forget_thinking()
        self._entries.begin_anew()
        self._tally.begin_anew()

    def _settle(self) -> None:
        """Close what is still open before another message comes."""
        self._tally.add(self.calls.cut_off())
        self._close_results()
        if self._partial:
            text = "".join(self._partial)
            self._partial.clear()
            if text.strip():
                said = [text_block(f"{text}\n{CUT_MARK}")]
                self._body.push("assistant", said, [0])
                self._tally.add(estimate_blocks(said))

    def _stop_searches(self) -> None:
        """Searches of a pause that is not gone on with have a result that says so."""
        made = [stopped(call) for call in self._body.waiting.values()]
        if made and self.messages[-1]["role"] == "assistant":
            self._body.push("assistant", made, [0] * len(made))
            self._tally.add(estimate_blocks(made))

    def _add_user(self, event: int, given: Iterable[Block], tokens: int) -> None:
        """The user's side says something; `tokens` 0: not estimated yet."""
        blocks = request_blocks(given)
        self._settle()
        if not blocks:
            return
        if self._paused:
            self._stop_searches()
        self._tally.add(tokens or estimate_blocks(blocks), unread_by_some(blocks))
        self._paused = self._body.over = False
        self._body.push("user", blocks, [event] * len(blocks))

    def _add_assistant(self, event: AssistantMessage) -> None:
        """The model has answered."""
        self._partial.clear()
        self._settle()
        if self.messages:
            self._asked_at = (len(self.messages) - 1, len(self.messages[-1]["content"]) - 1)
        make = self.calls.make
        made = (make(each) if each.get("type") == "tool_use" else reply_block(each) for each in event.blocks)
        blocks = [block for block in made if block]
        waiting = self._body.waiting
        blocks = sendable(blocks, waiting, goes_on=not event.partial and event.stop_reason in GOES_ON)
        if any(block["type"] not in THINKING for block in blocks):  # one that broke off before their results
            blocks = [*(stopped(waiting[call]) for call in waiting.keys() - answered_in(blocks)), *blocks]
        if any(block["type"] not in THINKING for block in blocks):
            self._tally.reply(event.tokens or estimate_blocks(blocks), unread_by_some(blocks))
            self._paused = event.stop_reason == "pause_turn"
            self._body.over = False
            self._body.push("assistant", blocks, [event.id] * len(blocks))
            if summary_in(blocks) is not None:
                self._tally.edited(self._read)
        else:
            self._tally.reply(None)

    def _report(self, event: UsageReported) -> None:
        """The server has counted the prompt, which it now holds in its cache."""
        self._tally.report(event)
        if event.stopped and self.messages:
            self._asked_at = (len(self.messages) - 1, len(self.messages[-1]["content"]) - 1)
        self._entries.write(self._asked_at, event.at, pictures=self._body.has_pictures)

    def _take_result(self, event: ToolReturned) -> None:
        """A call has its result."""
        tokens = self.calls.take(event)
        if tokens is not None:
            self._tally.add(tokens, unread_by_some(event.blocks))
            if not self.calls.waiting:
                self._close_results()

    def _close_results(self) -> None:
        """All calls have a result: they become the next user message, in the order of the calls."""
        if not self.calls:
            return
        blocks, events, names = self.calls.collect()
        message, first = self._body.push("user", blocks, events)
        for place, (block, event, name) in enumerate(zip(blocks, events, names, strict=True), first):
            self._body.spots[block["tool_use_id"]] = ToolResultRef(
                call=block["tool_use_id"],
                tool=name,
                event=event,
                message=message,
                block=place,
                came=block,
                chars=sum(len(str(part.get("text", ""))) for part in block["content"]),
                is_error=bool(block.get("is_error")),
                stored=block["tool_use_id"] in self._kept,
                kept=self._kept.get(block["tool_use_id"], ""),
                weighed=estimate_block(block) if any(part["type"] != "text" for part in block["content"]) else -1,
            )
        self._paused = False
        self._tally.add(self._body.part_turn())

    # -------------------------------------------------------------- frozen decisions

    @property
    def _read(self) -> int:
        """Estimated tokens of what the server reads of the messages."""
        return self._read_of(self.messages)

    def _read_of(self, messages: list[dict[str, Any]]) -> int:
        return self._weights.read(messages) - self.left_out.of(blocks_read(messages), self._weights.of)

    def _clear_results(self, event: ResultsCleared) -> None:
        """Old results become a word each."""
        if not self.editable:
            return
        spots = self._body.spots
        mine = [spots[call] for call in event.calls if call in spots and not spots[call].cleared]
        first = min((spot.message for spot in mine), default=0)
        read = self._read
        if event.asked:
            self._body.remember(event.id)
            self._before[event.id] = self._tally.weighed_at(read), self._entries.known(), self.left_out
        change = self._body.clear_results(event.calls, event.text, event.place, event.kept, event.contexts)
        if change is None and event.asked:
            self._body.standing.pop()  # nothing was changed: there is nothing to take back
        if change is not None:
            self.left_out = self.left_out.without(event.calls)
            self._entries.change(first)
            self._go_on()
            self._tally.change(read, self._read)

    def _store_result(self, event: ResultStored) -> None:
        """A result is kept in a file; a preview takes its place, if it did not come as one."""
        kept = f"{event.path}, in python {event.handle}" if event.handle else event.path
        call = self.calls.sent_as(event.call)
        self._kept[call] = kept
        if (spot := self._body.spots.get(call)) is not None:
            self._body.set_spot(call, kept=kept, stored=spot.stored or not event.blocks)
        if not event.blocks:
            return  # it came as its preview
        blocks = request_blocks(event.blocks) or [text_block(NO_OUTPUT)]
        change = self.calls.put(event.call, blocks)
        if change is not None:
            self._tally.add(change)
            return
        read = self._read
        if self._body.store_result(event.call, blocks) is not None:
            self._go_on()
            self._tally.change(read, self._read)

    def _forget_thinking(self, upto: int | None = None) -> None:
        """Thinking of events up to `upto` (None: of all) leaves."""
        if self._body.drop_thinking(upto=upto):
            self._entries.forget()
            self._tally.weigh_anew(self._read)

    def _drop_images(self, event: BlockDropped) -> None:
        """Images of an event become words."""
        self._tally.add(self.calls.drop_pictures(event.event))
        read = self._read
        if self._body.drop_images(event.event):
            self._go_on()
            self._tally.change(read, self._read)

    def _replace(self, event: Compacted | TurnsRemoved | TurnCollapsed) -> None:
        """A range gives way to blocks. What the provider holds of the prefix before it stays held."""
        if self.calls:
            return  # a call whose result is still to come may not leave, nor its thinking
        read = self._read
        before = self._tally.weighed_at(read), self._entries.known(), self.left_out
        start = self._body.replace(event.first, event.last, request_blocks(event.blocks), event.id)
        if start is not None:
            self._before[event.id] = before
            self._entries.change(start)
            self._go_on()
            self._tally.change(read, self._read)

    def _undo(self, event: int) -> None:
        """Take the replacement of `event` back, where that is possible."""
        read = self._read
        same = None if self.calls else self._body.restore(event)
        if same is None:
            return
        weighed, known, left_out = self._before.pop(event, (None, CacheSnapshot(), self.left_out))
        self.left_out = self.left_out.and_again(left_out)
        self._entries.bring_back(known, same)
        self._go_on()
        self._tally.change(read, self._read, weighed)
        if event in self._heads:
            self.system, self.tools, tokens, written = self._heads.pop(event)
            self._tally.render(tokens)
            self._entries.change_head(written)

    def _go_on(self) -> None:
        """A pause can be gone on from as it was only; after a change the model is asked to."""
        if self._paused:
            self._paused = False
            self._stop_searches()
            self._body.push("user", [text_block(GO_ON)], [0])

    def _render(self, event: SystemPromptFrozen) -> None:
        """Another head: thinking that was bound to the old one goes, also where it has left the view and may come
        back; but one that a compaction brought comes and goes with it."""
        system = request_blocks(event.system)
        tools = [{key: tool[key] for key in tool if key != "cache_control"} for tool in event.tools]
        if (self.messages or self._body.standing) and (system, tools) != (self.system, self.tools):
            if event.compaction and event.compaction == self.undoable and self.begins_with(event.compaction):
                self._heads[event.compaction] = self.system, self.tools, self.head_tokens, self._entries.head_at
                self._entries.change_head()
            else:
                self._heads.clear()
                self._begin_anew()
        self.system, self.tools = system, tools
        self._tally.render(event.tokens)
