"""The messages of a view with what is known of each block, and the few ways in which they change.

Appending is the ordinary way. Everything else is a recorded decision: thinking, pictures or results
leave, a range is replaced, a replacement is taken back. Each gives the change in estimated tokens
(None when everything must be estimated anew), so that a count never has to read it all again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

import msgspec

from ipyagent.journal.blocks import (
    PICTURES,
    REMOVED,
    THINKING,
    Rewritten,
    answered_in,
    call_ids,
    calls_of,
    flatten,
    gather,
    joined,
    replace_range,
    result_blocks,
    same_until,
    shared,
    text_block,
    without_thinking,
)
from ipyagent.journal.events import Block, ServerEdited
from ipyagent.journal.open_calls import named
from ipyagent.journal.tokens import estimate_block, estimate_blocks

# ---- Where a tool result stands in the messages, and the word that stays when it is cleared.


class ToolResultRef(msgspec.Struct, frozen=True):
    """A tool result in the messages: whose it is and where. `came` is its block as it was put there; `cleared`
    says that only a word of it is left, `stored` that it is a preview of a file, `kept` where the whole
    of it is ("" when it is in the view or gone)."""

    call: str
    tool: str
    event: int
    message: int
    block: int
    came: dict[str, Any]
    chars: int
    is_error: bool = False
    cleared: bool = False
    stored: bool = False
    kept: str = ""
    weighed: int = -1
    """`tokens` once they were asked for; a picture's are counted at once, so that it is not held for them."""

    @property
    def tokens(self) -> int:
        """The estimate of the result. Estimating is most of what resuming a session costs, and few are asked for."""
        if self.weighed < 0:
            msgspec.structs.force_setattr(self, "weighed", estimate_block(self.came))
        return self.weighed


def cleared_text(spot: ToolResultRef, text: str, place: str, kept: str) -> str:
    """What stands for a cleared result: it can still be found, in its own file or in that of all that went."""
    where = f"; kept in {kept}" if kept and not spot.kept else ""
    said = text.replace("{tool}", spot.tool).replace("{kept}", where)
    return f"{said} The whole result is kept: {place}/{spot.kept}" if spot.kept else said


NO_REQUEST = "(the session begins here)"
TURN_OVER = "(this turn ended here)"
STILL_OPEN = "(Earlier reasoning was dropped to save room. The request is still open.)"
GO_ON = "Go on."
CONTEXT = "<context>\n"
"""How a block begins that tells the model what is so around the conversation."""


class _Change(msgspec.Struct):
    """Messages that other ones took the place of, from message `at` on: `now` of them stand there since."""

    at: int
    messages: list[dict[str, Any]]
    sources: list[list[int]]
    now: int = 1


class Standing(msgspec.Struct):
    """A decision that can be taken back: what it changed, and what was changed since, of the messages that stood then.
    No more than that, so that all decisions together hold what has gone once."""

    event: int
    size: int
    """How many messages there are now for those that stood then; what came later stands behind them."""
    first: int = 0
    last: int = 0
    """The range of events that was replaced; 0 when none was."""
    changes: list[_Change] = []
    spots: dict[str, ToolResultRef] = {}
    """Results as they were then, where they have left or changed."""


class MessageList:
    """`messages` are wire messages without marks; `sources` the event of each block (0: ours)."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.sources: list[list[int]] = []
        self.spots: dict[str, ToolResultRef] = {}
        """Results by the id on the wire, oldest first."""
        self.standing: list[Standing] = []
        """Decisions that can be taken back, newest last."""
        self.over = False
        """Whether the newest turn has ended, so that nothing of it is open."""
        self.asked = 0
        """The event of the newest request: replies before it belong to turns that have ended."""
        self._bare: set[str] = set()
        """Calls whose reply has lost its thinking."""
        self._blanked: set[int] = set()
        """Events whose pictures became words."""
        self._images: dict[int, list[tuple[int, int, int]]] = {}

    def copy(self) -> MessageList:
        """The same messages, on which a decision can be tried."""
        made = MessageList()
        made.__dict__.update((name, copy(value)) for name, value in self.__dict__.items())
        return made

    # -------------------------------------------------------------- reading

    @property
    def closed(self) -> bool:
        """Whether earlier messages may change without touching thinking that must stay: no turn
        is under way whose open calls came with thinking."""
        reply, after = self._thought()
        return not call_ids(reply) or any(self.over or block["type"] != "tool_result" for block in after)

    def _thought(self) -> tuple[list[Block], list[Block]]:
        """The newest reply and what stands behind it, if it came with thinking; else nothing."""
        newest = [message["content"] for message in self.messages[-2:]]
        for at in reversed(range(len(newest))):
            if any(block["type"] in THINKING for block in newest[at]):
                return newest[at], [block for message in newest[at + 1 :] for block in message]
        return [], []

    @property
    def has_thinking(self) -> bool:
        """Whether thinking is in the messages, or may come back with some."""
        gone = (message for each in self.standing for change in each.changes for message in change.messages)
        return any(block["type"] in THINKING for message in (*self.messages, *gone) for block in message["content"])

    @property
    def has_pictures(self) -> bool:
        """Whether a picture or document is in the messages."""
        return bool(self._images)

    def event_with_images(self, message: int | None) -> int | None:
        """The newest event whose images stand in message `message` (None: anywhere)."""
        hits = [
            event
            for event, places in self._images.items()
            if message is None or any(place[0] == message for place in places)
        ]
        return max(hits, default=None)

    @property
    def waiting(self) -> dict[str, Block]:
        """Calls of the newest reply that the provider runs with the next request, by id."""
        newest = (message["content"] for message in self.messages[:-3:-1] if message["role"] == "assistant")
        said: list[Block] = next(newest, [])
        done = answered_in(said)
        return {call: block for call, block in calls_of(said).items() if call not in done}

    def contexts(self, start: int) -> Iterator[tuple[int, int]]:
        """Message and place of each `<context>` block of the user's side from message `start` on."""
        for at, message in enumerate(self.messages[start:], start):
            for place, block in enumerate(message["content"] if message["role"] == "user" else ()):
                if block["type"] == "text" and block["text"].startswith(CONTEXT):
                    yield at, place

    # -------------------------------------------------------------- appending

    def push(self, role: str, blocks: list[Block], events: list[int]) -> tuple[int, int]:
        """Add blocks as a message, or to the last message when it has the same role; gives the
        place of the first of them."""
        if not self.messages and role == "assistant":
            self.push("user", [REMOVED if self.standing else text_block(NO_REQUEST)], [0])
        if self.messages and self.messages[-1]["role"] == role:
            earlier = self.messages[-1]["content"]
            self._keep(len(self.messages) - 1)
            self.messages[-1] = {"role": role, "content": [*earlier, *blocks]}
            self.sources[-1] = [*self.sources[-1], *events]  # what can be taken back holds the old ones
            place = len(self.messages) - 1, len(earlier)
        else:
            self.messages.append({"role": role, "content": blocks})
            self.sources.append(events)
            place = len(self.messages) - 1, 0
        self._note(*place, blocks, events)
        return place

    def _note(self, message: int, first: int, blocks: list[Block], events: list[int]) -> None:
        """Remember where pictures of new blocks are."""
        for index, (block, event) in enumerate(zip(blocks, events, strict=True), first):
            if block["type"] in PICTURES:
                self._images.setdefault(event, []).append((message, index, -1))
            elif block["type"] == "tool_result":
                for inner, part in enumerate(block["content"]):
                    if part["type"] in PICTURES:
                        self._images.setdefault(event, []).append((message, index, inner))

    # -------------------------------------------------------------- decisions

    def _keep(self, at: int, now: int = 1) -> None:
        """Message `at` is going to be another, or `now` of them: it is kept for taking the newest decision back."""
        newest = self.standing[-1] if self.standing else None
        if newest is not None and at < newest.size:
            newest.changes.append(_Change(at, [self.messages[at]], [self.sources[at]], now))
            newest.size += now - 1

    def set_spot(self, call: str, **changes: Any) -> None:
        """What is known of a result has changed."""
        spot = self.spots[call]
        if self.standing and spot.message < self.standing[-1].size:  # it stood then
            self.standing[-1].spots.setdefault(call, spot)
        self.spots[call] = msgspec.structs.replace(spot, **changes)

    def drop_thinking(self, *, start: int = 0, upto: int | None = None) -> int:
        """Thinking of events up to `upto` (None: of all) leaves the messages from `start` on; there
        is text or a call beside it always. The change in tokens."""
        gone: list[Block] = []
        for at, message in enumerate(self.messages[start:], start):
            kept, events = without_thinking(message, self.sources[at], upto)
            if kept is not message:
                stay = set(map(id, kept["content"]))
                gone.extend(block for block in message["content"] if id(block) not in stay)
                self._keep(at)
                self.messages[at], self.sources[at] = kept, events
                self._bare |= call_ids(kept["content"])
        # what may come back comes without it, too
        for change in (change for decision in self.standing if not start for change in decision.changes):
            for at, (message, sources) in enumerate(zip(change.messages, change.sources, strict=True)):
                kept, change.sources[at] = without_thinking(message, sources, upto)
                if kept is not message:
                    change.messages[at] = kept
                    self._bare |= call_ids(kept["content"])
        return self.part_turn() - estimate_blocks(gone)

    def part_turn(self) -> int:
        """The newest reply may not go out without its thinking as long as its calls are the open
        ones: where it had to lose it, words of ours follow its results. They say whether the turn is over. The
        change in tokens."""
        if len(self.messages) < 2 or self.messages[-1]["role"] != "user":
            return 0
        said = self.messages[-2]["content"]
        if self._bare.isdisjoint(call_ids(said)):
            return 0
        content, events = self.messages[-1]["content"], self.sources[-1]
        results = sum(block["type"] == "tool_result" for block in content)
        later, later_events = content[results:], events[results:]
        ended = self.over or max(self.sources[-2]) < self.asked
        words = text_block(TURN_OVER if ended else STILL_OPEN)
        added = [words]
        if not later and not self.over:
            later, later_events = [text_block(GO_ON)], [0]
            added += later
        messages = [*self.messages[:-1], {"role": "user", "content": content[:results]}]
        messages.append({"role": "assistant", "content": [words]})
        sources = [*self.sources[:-1], events[:results], [0]]
        if later:
            messages.append({"role": "user", "content": later})
            sources.append(later_events)
        self._keep(len(self.messages) - 1, len(messages) - len(self.messages) + 1)
        self._adopt(messages, sources)
        return estimate_blocks(added)

    def drop_images(self, event: int) -> int:
        """Images of an event become words; thinking that was bound to them goes as well."""
        places = self._images.pop(event, [])
        self._blanked.add(event)
        change = 0
        for message, block, inner in places:
            content = list(self.messages[message]["content"])
            parts = content if inner < 0 else list(content[block]["content"])
            at = block if inner < 0 else inner
            change -= estimate_block(parts[at])
            parts[at] = named(parts[at])
            change += estimate_block(parts[at])
            if inner >= 0:
                content[block] = {**content[block], "content": parts}
            self._keep(message)
            self.messages[message] = {"role": "user", "content": content}
        if places:
            change += self.drop_thinking(start=min(place[0] for place in places))
        return change

    def store_result(self, call: str, blocks: list[Block]) -> int | None:
        """A preview takes the place of a result; thinking after it goes. None when nothing changed:
        there is no such result, or it was sent and thinking that must stay came after it."""
        spot = self.spots.get(call)
        sent = spot is not None and spot.message < len(self.messages) - 1
        if spot is None or (sent and not self.closed):
            return None
        change = self.put_result(call, result_blocks(blocks, is_error=spot.is_error), stored=True) or 0
        return change + self.drop_thinking(start=spot.message)

    def put_result(self, call: str, blocks: list[Block], *, stored: bool) -> int | None:
        """Put other content in a result's place; the change in tokens, None when there is none."""
        spot = self.spots.get(call)
        if spot is None:
            return None
        content = list(self.messages[spot.message]["content"])
        content[spot.block] = {**content[spot.block], "content": blocks}
        self._keep(spot.message)
        self.messages[spot.message] = {"role": "user", "content": content}
        tokens = estimate_block(content[spot.block])
        change = tokens - spot.tokens
        self.set_spot(call, came=content[spot.block], weighed=tokens, stored=stored, cleared=not stored)
        self._images = {
            event: kept
            for event, places in self._images.items()
            if (kept := [place for place in places if place[:2] != (spot.message, spot.block)])
        }
        for inner, part in enumerate(blocks):
            if part["type"] in PICTURES:
                self._images.setdefault(spot.event, []).append((spot.message, spot.block, inner))
        return change

    def clear_results(
        self,
        calls: tuple[str, ...],
        text: str,
        place: str = "",
        kept: str = "",
        contexts: tuple[tuple[int, str], ...] = (),
    ) -> int | None:
        """Old results become a word each (`place`: where stored ones are, `kept`: the file of the others);
        thinking after the first of them goes, `<context>` blocks of the events `contexts` get other texts.
        None when nothing changed: no such results, or a turn is
        under way whose thinking must stay."""
        spots = [spot for call in calls if (spot := self.spots.get(call)) is not None and not spot.cleared]
        if not spots or not self.closed:
            return None
        change = sum(
            self.put_result(spot.call, [text_block(cleared_text(spot, text, place, kept))], stored=False) or 0
            for spot in spots
        )
        first = min(spot.message for spot in spots)
        change += self._retell(dict(contexts), first) if contexts else 0
        return change + self.drop_thinking(start=first)

    def _retell(self, texts: dict[int, str], first: int) -> int:
        """The `<context>` blocks of some events get other texts, in messages from `first` on."""
        change = 0
        for at, place in list(self.contexts(first)):
            block, event = self.messages[at]["content"][place], self.sources[at][place]
            if event in texts:
                content = list(self.messages[at]["content"])
                content[place] = {**block, "text": texts[event]}
                change += estimate_block(content[place]) - estimate_block(block)
                self._keep(at)
                self.messages[at] = {**self.messages[at], "content": content}
        return change

    def remember(self, event: int) -> None:
        """The decision of `event`, which changes messages in place, can be taken back."""
        self.standing.append(Standing(event, len(self.messages)))

    def replace(self, first: int, last: int, blocks: list[Block], event: int) -> int | None:
        """Events `first` to `last` give way to `blocks`; the message where the change begins, None
        when nothing of the range is there or thinking that must stay forbids it."""
        made = replace_range(self.messages, self.sources, first, last, blocks, event)
        if made is None or not (self.closed or self._swallowed(made.messages)):
            return None
        changes = _changes(self.messages, self.sources, made)
        self.standing.append(Standing(event, len(made.messages), first, last, changes))
        spots = self.spots
        self._adopt(made.messages, made.sources, bare=made.start)
        self.standing[-1].spots.update((call, spot) for call, spot in spots.items() if call not in self.spots)
        self.part_turn()
        return made.start

    def _swallowed(self, messages: list[dict[str, Any]]) -> bool:
        """Whether no call of the open reply is left in other messages."""
        calls = call_ids(self._thought()[0])
        return not any(block.get("id") in calls for message in messages[-2:] for block in message["content"])

    def restore(self, event: int) -> int | None:
        """Take the newest decision back, if it is the one of `event`; how many messages are what they were before it,
        None when it may not be."""
        if not self.standing or self.standing[-1].event != event or not self.closed:
            return None
        placed = flatten(self.messages, self.sources)
        later = [item for item in placed if item.source > event and item.block["type"] not in THINKING]
        decision = self.standing.pop()
        stood, origins = self.messages[: decision.size], self.sources[: decision.size]
        for change in reversed(decision.changes):
            stood[change.at : change.at + change.now] = change.messages
            origins[change.at : change.at + change.now] = change.sources
        messages, sources = gather(joined(flatten(stood, origins), later, event))
        self.messages, self.sources = stood, origins
        for at in range(shared(messages, sources, stood, origins), len(stood)):
            self._keep(at)
        self._adopt(messages, sources, {**self.spots, **decision.spots}, bare=len(stood))
        for blanked in self._blanked & self._images.keys():
            self.drop_images(blanked)
        self.part_turn()
        return same_until(stood, self.messages)

    def _adopt(
        self,
        messages: list[dict[str, Any]],
        sources: list[list[int]],
        spots: dict[str, ToolResultRef] | None = None,
        *,
        bare: int | None = None,
    ) -> None:
        """Take other messages and find out anew where everything is. Replies from message `bare` on
        have lost their thinking."""
        known = self.spots if spots is None else spots
        kept, start = self.messages, 0
        while spots is None and start < min(len(kept), len(messages)) and kept[start] is messages[start]:
            start += 1  # nothing is new of these
        self.messages, self.sources = messages, sources
        self.spots = {call: spot for call, spot in self.spots.items() if spot.message < start}
        images = ((event, [place for place in places if place[0] < start]) for event, places in self._images.items())
        self._images = {event: places for event, places in images if places}
        for index, (message, events) in enumerate(zip(messages[start:], sources[start:], strict=True), start):
            self._note(index, 0, message["content"], events)
            if bare is not None and index >= bare:
                self._bare |= call_ids(message["content"])
            for place, block in enumerate(message["content"]):
                if block["type"] == "tool_result" and (spot := known.get(block["tool_use_id"])) is not None:
                    moved = (spot.message, spot.block) != (index, place)
                    self.spots[spot.call] = (
                        msgspec.structs.replace(spot, message=index, block=place) if moved else spot
                    )


def _changes(messages: list[dict[str, Any]], sources: list[list[int]], made: Rewritten) -> list[_Change]:
    """What a replacement changes: a range, and the messages behind it that lose their thinking."""
    start, behind = made.start, 0
    while behind < min(len(messages), len(made.messages)) - start:
        old, new = messages[-1 - behind], made.messages[-1 - behind]
        if new is not old and new["content"] != [block for block in old["content"] if block["type"] not in THINKING]:
            break
        behind += 1
    end, now = len(messages) - behind, len(made.messages) - behind
    found = [_Change(start, messages[start:end], sources[start:end], now - start)]
    for at in range(behind):
        if made.messages[now + at] is not messages[end + at] or made.sources[now + at] != sources[end + at]:
            found.append(_Change(now + at, [messages[end + at]], [sources[end + at]]))
    return found


# ---- What the server leaves out of a prompt by itself, as it was asked (`context_management`). It stands in the
# messages all the same. The server says how many tokens went, not which: results go oldest first.

_THINKING_EDIT = "clear_thinking"
"""How the kind of edit begins that clears thinking; the others clear results."""


class ServerClearedState(msgspec.Struct, frozen=True):
    """Estimated tokens that are in no prompt any more: of results by their call, and of thinking."""

    results: dict[str, int] = {}
    thinking: int = 0
    upto: int = 0
    """The event of the newest batch of results that went; 0 when all are there."""

    def after(self, event: ServerEdited, spots: Iterable[ToolResultRef], measure: float) -> ServerClearedState:
        """The same after the server's word; `measure` is what an estimated token comes to at the server."""
        rest = round(event.tokens / max(0.1, measure))
        if event.edit.startswith(_THINKING_EDIT):
            return msgspec.structs.replace(self, thinking=rest)
        results: dict[str, int] = {}
        for spot in spots:
            if rest <= 0:
                break
            if not spot.cleared:
                results[spot.call] = min(rest, spot.tokens)
                rest -= results[spot.call]
        return msgspec.structs.replace(self, results=results, upto=event.id if event.cleared else 0)

    def without(self, calls: Iterable[str]) -> ServerClearedState:
        """The same when these results have left the messages, too."""
        gone = set(calls)
        results = {call: tokens for call, tokens in self.results.items() if call not in gone}
        return msgspec.structs.replace(self, results=results)

    def and_again(self, earlier: ServerClearedState) -> ServerClearedState:
        """The same when what stood at an earlier time stands again: the server leaves out of it what it left out."""
        return ServerClearedState(
            results={**earlier.results, **self.results},
            thinking=max(earlier.thinking, self.thinking),
            upto=max(earlier.upto, self.upto),
        )

    def of(self, blocks: Iterable[Block], weigh: Callable[[Block], int] = estimate_block) -> int:
        """Estimated tokens of `blocks` that are left out."""
        if not self.results and not self.thinking:
            return 0
        gone = thinking = 0
        for block in blocks:
            if block["type"] == "tool_result":
                gone += self.results.get(block["tool_use_id"], 0)
            elif self.thinking and block["type"] in THINKING:
                thinking += weigh(block)
        return gone + min(thinking, self.thinking)
