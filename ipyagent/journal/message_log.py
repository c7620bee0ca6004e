"""The messages of a session as they grow and as recorded decisions change them, with the calls that are
open, what the provider holds of them and the tokens they take. `View` says which event does what."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, NamedTuple

from ipyagent.journal.blocks import (
    GOES_ON,
    THINKING,
    Position,
    answered_in,
    reply_block,
    request_blocks,
    sendable,
    stopped,
    text_block,
)
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    BlockDropped,
    ResultsCleared,
    ResultStored,
    ServerEdited,
    ToolReturned,
    UsageReported,
)
from ipyagent.journal.message_list import GO_ON, MessageList, ServerClearedState, ToolResultRef
from ipyagent.journal.open_calls import NO_OUTPUT, OpenCalls
from ipyagent.journal.tokens import (
    BlockTokenCache,
    TokenCounter,
    Weighed,
    blocks_read,
    estimate_block,
    estimate_blocks,
    summary_in,
    unread_by_some,
)

CUT_MARK = "[cut off here]"


class MessageLog:
    """A message that was given out is never changed: what adds to it, or takes from it, puts a new one
    in its place."""

    def __init__(self) -> None:
        self.calls = OpenCalls()
        self.body = MessageList()
        self.entries = CachePrefixes()
        self.tally = TokenCounter()
        self.weights = BlockTokenCache()
        self.left_out = ServerClearedState()
        """What the server leaves out of the messages that stand here."""
        self.partial: list[str] = []
        """Pieces of a reply that was shown but has not come to its end."""
        self.paused = False
        """Whether the model has only paused, so that it may go on without a word of the user."""
        self._kept: dict[str, str] = {}
        """Where stored results are, by call."""
        self._asked_at: Position | None = None
        self._before: dict[int, tuple[Weighed | None, CacheSnapshot, ServerClearedState]] = {}
        """What was counted, held and left out before each decision that can be taken back, by its event."""

    def __repr__(self) -> str:
        return f"<MessageLog of {len(self.body.messages)} messages>"

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Wire messages without cache marks."""
        return self.body.messages

    @property
    def editable(self) -> bool:
        """Whether a decision may change earlier messages now, see `MessageList.closed`."""
        return not self.calls and self.body.closed

    # -------------------------------------------------------------- growing

    def begin_anew(self) -> None:
        """Another model or head reads on: no thinking stays, and a turn that has its results is over."""
        self.body.over = not self.calls
        self.forget_thinking()
        self.entries.begin_anew()
        self.tally.begin_anew()

    def settle(self) -> None:
        """Close what is still open before another message comes."""
        self.tally.add(self.calls.cut_off())
        self._close_results()
        if self.partial:
            text = "".join(self.partial)
            self.partial.clear()
            if text.strip():
                said = [text_block(f"{text}\n{CUT_MARK}")]
                self.body.push("assistant", said, [0])
                self.tally.add(estimate_blocks(said))

    def _stop_searches(self) -> None:
        """Searches of a pause that is not gone on with have a result that says so."""
        made = [stopped(call) for call in self.body.waiting.values()]
        if made and self.messages[-1]["role"] == "assistant":
            self.body.push("assistant", made, [0] * len(made))
            self.tally.add(estimate_blocks(made))

    def add_user(self, event: int, blocks: list[Block], tokens: int) -> None:
        """The user's side says something; `tokens` 0: not estimated yet."""
        self.settle()
        if blocks and self.paused:
            self._stop_searches()
        if not blocks:
            return
        self.tally.add(tokens or estimate_blocks(blocks), unread_by_some(blocks))
        self.paused = self.body.over = False
        self.body.push("user", blocks, [event] * len(blocks))

    def add_assistant(self, event: AssistantMessage) -> None:
        """The model has answered."""
        self.partial.clear()
        self.settle()
        if self.messages:
            self._asked_at = (len(self.messages) - 1, len(self.messages[-1]["content"]) - 1)
        blocks = [kept for block in event.blocks if (kept := self._admit(block))]
        waiting = self.body.waiting
        blocks = sendable(blocks, waiting, goes_on=not event.partial and event.stop_reason in GOES_ON)
        if any(block["type"] not in THINKING for block in blocks):  # one that broke off before their results
            blocks = [*(stopped(waiting[call]) for call in waiting.keys() - answered_in(blocks)), *blocks]
        if any(block["type"] not in THINKING for block in blocks):
            self.tally.reply(event.tokens or estimate_blocks(blocks), unread_by_some(blocks))
            self.paused = event.stop_reason == "pause_turn"
            self.body.over = False
            self.body.push("assistant", blocks, [event.id] * len(blocks))
            if summary_in(blocks) is not None:
                self.tally.edited(self._read)
        else:
            self.tally.reply(None)

    def _admit(self, block: Block) -> Block | None:
        """A reply's block as it may be sent back; None when it may not."""
        return self.calls.make(block) if block.get("type") == "tool_use" else reply_block(block)

    def report(self, event: UsageReported) -> None:
        """The server has counted the prompt, which it now holds in its cache."""
        self.tally.report(event)
        if event.stopped and self.messages:
            self._asked_at = (len(self.messages) - 1, len(self.messages[-1]["content"]) - 1)
        self.entries.write(self._asked_at, event.at, pictures=self.body.has_pictures)

    def take_result(self, event: ToolReturned) -> None:
        """A call has its result."""
        tokens = self.calls.take(event)
        if tokens is not None:
            self.tally.add(tokens, unread_by_some(event.blocks))
            if not self.calls.waiting:
                self._close_results()

    def _close_results(self) -> None:
        """All calls have a result: they become the next user message, in the order of the calls."""
        if not self.calls:
            return
        blocks, events, names = self.calls.collect()
        message, first = self.body.push("user", blocks, events)
        for place, (block, event, name) in enumerate(zip(blocks, events, names, strict=True), first):
            self.body.spots[block["tool_use_id"]] = ToolResultRef(
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
        self.paused = False
        self.tally.add(self.body.part_turn())

    # -------------------------------------------------------------- frozen decisions

    @property
    def _read(self) -> int:
        """Estimated tokens of what the server reads of the messages."""
        return self._read_of(self.messages)

    def _read_of(self, messages: list[dict[str, Any]]) -> int:
        return self.weights.read(messages) - self.left_out.of(blocks_read(messages), self.weights.of)

    def tokens_after(self, messages: list[dict[str, Any]]) -> int:
        """Tokens of the next prompt with these messages."""
        return self.tally.after(self._read_of(messages) - self._read)

    def leave_out(self, event: ServerEdited) -> None:
        """The server leaves out more, or less, than before."""
        self.left_out = self.left_out.after(event, self.body.spots.values(), self.tally.measure)
        self.tally.edited(self._read)

    def clear_results(self, event: ResultsCleared) -> None:
        """Old results become a word each."""
        if not self.editable:
            return
        spots = self.body.spots
        mine = [spots[call] for call in event.calls if call in spots and not spots[call].cleared]
        first = min((spot.message for spot in mine), default=0)
        read = self._read
        if event.asked:
            self.body.remember(event.id)
            self._before[event.id] = self.tally.weighed_at(read), self.entries.known(), self.left_out
        change = self.body.clear_results(event.calls, event.text, event.place, event.kept, event.contexts)
        if change is None and event.asked:
            self.body.standing.pop()  # nothing was changed: there is nothing to take back
        if change is not None:
            self.left_out = self.left_out.without(event.calls)
            self.entries.change(first)
            self._go_on()
            self.tally.change(read, self._read)

    def store_result(self, event: ResultStored) -> None:
        """A result is kept in a file; a preview takes its place, if it did not come as one."""
        kept = f"{event.path}, in python {event.handle}" if event.handle else event.path
        call = self.calls.sent_as(event.call)
        self._kept[call] = kept
        if (spot := self.body.spots.get(call)) is not None:
            self.body.set_spot(call, kept=kept, stored=spot.stored or not event.blocks)
        if not event.blocks:
            return  # it came as its preview
        blocks = request_blocks(event.blocks) or [text_block(NO_OUTPUT)]
        change = self.calls.put(event.call, blocks)
        if change is not None:
            self.tally.add(change)
            return
        read = self._read
        if self.body.store_result(event.call, blocks) is not None:
            self._go_on()
            self.tally.change(read, self._read)

    def forget_thinking(self, upto: int | None = None) -> None:
        """Thinking of events up to `upto` (None: of all) leaves."""
        if self.body.drop_thinking(upto=upto):
            self.entries.forget()
            self.tally.weigh_anew(self._read)

    def drop_images(self, event: BlockDropped) -> None:
        """Images of an event become words."""
        self.tally.add(self.calls.drop_pictures(event.event))
        read = self._read
        if self.body.drop_images(event.event):
            self._go_on()
            self.tally.change(read, self._read)

    def replace(self, first: int, last: int, blocks: Iterable[Block], event: int) -> None:
        """A range gives way to blocks. What the provider holds of the prefix before it stays held."""
        if self.calls:
            return  # a call whose result is still to come may not leave, nor its thinking
        read = self._read
        before = self.tally.weighed_at(read), self.entries.known(), self.left_out
        start = self.body.replace(first, last, request_blocks(blocks), event)
        if start is not None:
            self._before[event] = before
            self.entries.change(start)
            self._go_on()
            self.tally.change(read, self._read)

    def undo(self, event: int) -> bool:
        """Take the replacement of `event` back; whether that was possible."""
        read = self._read
        same = None if self.calls else self.body.restore(event)
        if same is None:
            return False
        weighed, known, left_out = self._before.pop(event, (None, CacheSnapshot(), self.left_out))
        self.left_out = self.left_out.and_again(left_out)
        self.entries.bring_back(known, same)
        self._go_on()
        self.tally.change(read, self._read, weighed)
        return True

    def _go_on(self) -> None:
        """A pause can be gone on from as it was only; after a change the model is asked to."""
        if self.paused:
            self.paused = False
            self._stop_searches()
            self.body.push("user", [text_block(GO_ON)], [0])


# ------------------------------------------------------------------ entries
# Where the provider's cache can be read: the ends of the prompts that the server has answered. An end counts only as
# long as everything before it is as it was sent. After a change in the middle the newest end before it is the anchor;
# what was written since the last change has ends of its own, what was rewritten in one go has only one.


class CachePrefix(NamedTuple):
    """The place of the last block, and when it was written (Unix time)."""

    end: Position
    at: float


class CacheSnapshot(NamedTuple):
    """Ends as they were at some time; `age`: how often everything had been forgotten until then."""

    ends: tuple[CachePrefix, ...] = ()
    age: int = -1


class CachePrefixes:
    """The ends, in the order of the messages."""

    def __init__(self) -> None:
        self._known: list[CachePrefix] = []
        self._pictures = False
        self.written_at = 0.0
        """When the newest was written; 0.0 when there is none."""
        self.head_at = 0.0
        """When system prompt and tools were written; 0.0 when they cannot be read."""
        self._age = 0

    @property
    def anchor(self) -> Position | None:
        """The newest end."""
        return self._known[-1].end if self._known else None

    def write(self, end: Position | None, at: float, *, pictures: bool) -> None:
        """A prompt that ended there was answered. With its first picture the provider begins the
        messages anew."""
        if pictures != self._pictures:
            self.forget()
            self._pictures = pictures
        self.written_at = self.head_at = at
        if end is None:
            return
        while self._known and self._known[-1].end >= end:
            self._known.pop()
        self._known.append(CachePrefix(end, at))

    def change(self, message: int) -> None:
        """From this message on everything is another."""
        del self._known[bisect_left(self._known, message, key=lambda entry: entry.end[0]) :]

    def forget(self) -> None:
        """No message can be read any more, nor one that comes back."""
        self._known.clear()
        self._age += 1

    def begin_anew(self) -> None:
        """Another model or head: nothing can be read."""
        self.forget()
        self.head_at = 0.0

    def change_head(self, written: float = 0.0) -> None:
        """All messages have left, and another head comes, or with them the one that was `written` then (Unix time):
        ends that were known before may come back."""
        if not written:
            self._known.clear()
        self.head_at = written

    def known(self) -> CacheSnapshot:
        """The ends as they are, for taking a decision back."""
        return CacheSnapshot(tuple(self._known), self._age)

    def bring_back(self, known: CacheSnapshot, message: int) -> None:
        """What was known before a decision that is taken back holds again, but for message `message` and later."""
        self._known[:] = known.ends if known.age == self._age else ()
        self.change(message)

    def has_head(self, since: float) -> bool:
        """Whether system prompt and tools can be read, as of an entry written after `since`."""
        return bool(self.head_at) and self.head_at >= since

    def held(self, message: int, since: float) -> int:
        """How many of the messages before `message` can be read from an entry written after `since`."""
        for at in range(bisect_left(self._known, message, key=lambda entry: entry.end[0]) - 1, -1, -1):
            entry = self._known[at]
            if entry.at >= since:
                return entry.end[0] + 1
        return 0
