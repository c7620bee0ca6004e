"""What the model sees: a pure function of the journal, built one event at a time.

Whatever the events are, the messages keep the API's rules: the first is the user's, every tool_use
has exactly one tool_result in the very next user message and results come first there, no text is
empty, no id comes twice, thinking is kept unedited or dropped by a recorded decision. What was
cut off (a stop, a crash) is closed here with an error result, so a request is always valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, assert_never

from ipyagent.journal.blocks import flatten, marked, request_blocks, text_block
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    BlockDropped,
    CacheBroken,
    ChildEnded,
    ChildProgress,
    ChildStarted,
    Compacted,
    DecisionUndone,
    Event,
    FileChanged,
    FilesRestored,
    ForkEnded,
    KernelStarted,
    LayerDecision,
    LayerFailed,
    MemoryDismissed,
    MemoryExtracted,
    MemorySaved,
    MemorySurfaced,
    MessageReceived,
    MessageSent,
    ModelChosen,
    NotesWritten,
    PartEvent,
    PermissionAnswered,
    PermissionAsked,
    PlanWritten,
    ResultsCleared,
    ResultStored,
    Retrying,
    ServerEdited,
    SessionStarted,
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
from ipyagent.journal.message_list import ServerClearedState, ToolResultRef
from ipyagent.journal.message_log import MessageLog
from ipyagent.journal.tokens import Calibration, Count, SuffixTokens


class ContextView:
    """The request's head and messages after some events; `apply` adds one more event.

    `messages` are wire messages without cache marks. A message that was given out is never changed:
    what adds to it, or takes from it, puts a new one in its place.
    """

    def __init__(self) -> None:
        self.system: list[Block] = []
        self.tools: list[Block] = []
        self.model = ""
        self._talk = MessageLog()
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
        return self._talk.tally.calibration

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Wire messages without cache marks."""
        return self._talk.messages

    @property
    def results(self) -> list[ToolResultRef]:
        """The tool results in the messages, oldest first."""
        return list(self._talk.body.spots.values())

    @property
    def editable(self) -> bool:
        """Whether a decision may change earlier messages now, see `Body.closed`."""
        return self._talk.editable

    def held(self, message: int, lifetime: float) -> int:
        """How many of the messages before `message` the provider can read from its cache, where a prefix
        lives `lifetime` seconds, as of the newest reply."""
        return self._talk.entries.held(message, self._talk.entries.written_at - lifetime)

    def can_read(self, lifetime: float) -> bool:
        """Whether the provider can read system prompt and tools from its cache, see `held`."""
        entries = self._talk.entries
        return entries.has_head(entries.written_at - lifetime)

    @property
    def left_out(self) -> ServerClearedState:
        """What the server leaves out of the prompt; it stands in `messages` all the same."""
        return self._talk.left_out

    @property
    def ceiling(self) -> int:
        """The tokens above which the server was seen to cut prompts silently; 0 while it was not."""
        return self._talk.tally.ceiling

    @property
    def measure(self) -> float:
        """What an estimated token of messages comes to in `count`."""
        return self._talk.tally.measure

    @property
    def head_counted(self) -> int:
        """About what the server counts for system prompt and tools."""
        return self._talk.tally.head_counted

    def scaled(self, tokens: int) -> int:
        """So many estimated tokens of messages by the measure of `count`."""
        return round(tokens * self.measure)

    def behind(self) -> SuffixTokens:
        """Estimated tokens from each message to the end, and of the thinking in them."""
        return self._talk.weights.behind(self.messages)

    @property
    def undoable(self) -> int | None:
        """The event of the newest replacement that stands and can be taken back."""
        return self._talk.body.standing[-1].event if self._talk.body.standing else None

    @property
    def replacements(self) -> dict[int, tuple[int, int]]:
        """The ranges of events that were replaced, first and last, by the event that did it."""
        return {kept.event: (kept.first, kept.last) for kept in self._talk.body.standing if kept.last}

    def begins_with(self, event: int) -> bool:
        """Whether the first message came from this event."""
        sources = self._talk.body.sources
        return bool(sources) and sources[0][:1] == [event]

    def replaces_all_before(self, event: Compacted) -> bool:
        """Whether nothing would be left before what a compaction puts in its range's place."""
        sources = self._talk.body.sources
        return bool(sources) and event.first <= sources[0][0] <= event.last

    @property
    def head_tokens(self) -> int:
        """Estimated tokens of system prompt and tools, uncalibrated."""
        return self._talk.tally.head

    def tokens_after(self, event: Compacted | TurnsRemoved | TurnCollapsed) -> int | None:
        """Tokens of the next prompt if this were decided now; None when it would change nothing or may
        not be. The view stays as it is."""
        if self._talk.calls:
            return None
        body = self._talk.body.copy()
        if body.replace(event.first, event.last, request_blocks(event.blocks), event.id) is None:
            return None
        return self._talk.tokens_after(body.messages)

    def placed(self) -> list[tuple[str, Block, int]]:
        """Every block in order with its role and the event that it came from."""
        body = self._talk.body
        return [(item.role, item.block, item.source) for item in flatten(body.messages, body.sources)]

    def contexts(self, start: int) -> Iterator[tuple[str, int]]:
        """The text of each `<context>` block from message `start` on, with the event that it came from."""
        body = self._talk.body
        for at, place in body.contexts(start):
            yield body.messages[at]["content"][place]["text"], body.sources[at][place]

    @property
    def open_calls(self) -> dict[str, str]:
        """Id and tool name of the calls that have no result yet."""
        return self._talk.calls.waiting

    @property
    def partial_text(self) -> str:
        """Text of a reply that was shown but never came to its end."""
        return "".join(self._talk.partial)

    def partial_output(self, call: str) -> str:
        """Output of a running call that was shown but is in no result yet."""
        return self._talk.calls.output(call)

    def was_called(self, call: str) -> bool:
        """Whether the call had begun to run."""
        return self._talk.calls.has_begun(call)

    def knows_call(self, call: str) -> bool:
        """Whether a call of this id is in the view already."""
        return self._talk.calls.knows(call)

    @property
    def sendable(self) -> bool:
        """Whether a request may go out now: the user's side has the last word, nothing is open."""
        talk = self._talk
        return bool(talk.messages) and not talk.calls and (talk.paused or talk.messages[-1]["role"] == "user")

    def count(self) -> Count:
        """Tokens of the next prompt, see `Count`."""
        return self._talk.tally.count()

    def wire(self, *, ttl: str = "5m", marks: bool = True) -> tuple[list[Block], list[Block], list[dict[str, Any]]]:
        """System, tools and messages as they go out, with at most four cache marks: end of
        tools, end of system, the end of the last prompt the server has answered, the very end."""
        if not marks:
            return list(self.system), list(self.tools), list(self.messages)
        return marked(self.system, self.tools, self.messages, anchor=self._talk.entries.anchor, ttl=ttl)

    @property
    def has_thinking(self) -> bool:
        """Whether thinking may go out with a request, this one or one after an undo."""
        return self._talk.body.has_thinking

    def event_with_images(self, message: int | None = None) -> int | None:
        """The newest event whose images are in the view (in message `message`, if given)."""
        return self._talk.body.event_with_images(message)

    # -------------------------------------------------------------- building

    def apply(self, event: Event) -> None:
        """Take in the next event of the journal."""
        talk = self._talk
        match event:
            case Streamed():  # most are
                if event.channel == "text":
                    talk.partial.append(event.text)
                elif event.channel == "tool":
                    talk.calls.show(event.ref, event.text)
            case UserMessage():
                talk.body.asked = event.id
                talk.add_user(event.id, request_blocks(event.blocks), event.tokens)
            case SystemReminder() | MemorySurfaced() | MessageReceived():
                talk.add_user(event.id, request_blocks([text_block(event.text)]), event.tokens)
            case SkillLoaded() | SkillsListed() | PartEvent():
                if event.text:
                    talk.add_user(event.id, request_blocks([text_block(event.text)]), event.tokens)
            case AssistantMessage():
                talk.add_assistant(event)
            case ToolCalled():
                talk.calls.begin(event.call)
            case ToolReturned():
                talk.take_result(event)
            case UsageReported():
                talk.report(event)
            case SystemPromptFrozen():
                self._render(event)
            case ModelChosen():
                if self.model and event.model != self.model:
                    talk.begin_anew()
                self.model = event.model
            case ThinkingDropped():
                talk.forget_thinking(event.upto)
            case BlockDropped():
                talk.drop_images(event)
            case ResultStored():
                talk.store_result(event)
            case ResultsCleared():
                talk.clear_results(event)
            case Compacted() | TurnsRemoved() | TurnCollapsed():
                talk.replace(event.first, event.last, event.blocks, event.id)
            case DecisionUndone():
                if talk.undo(event.event) and event.event in self._heads:
                    self.system, self.tools, tokens, written = self._heads.pop(event.event)
                    talk.tally.render(tokens)
                    talk.entries.change_head(written)
            case ServerEdited():
                talk.leave_out(event)
            case TurnEnded():
                talk.body.over = True
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
                | LayerDecision()
                | LayerFailed()
                | CacheBroken()
                | MemoryDismissed()
                | MemorySaved()
                | MemoryExtracted()
                | PlanWritten()
                | ChildStarted()
                | ChildProgress()
                | ChildEnded()
                | MessageSent()
            ):
                pass
            case _:
                assert_never(event)

    def _render(self, event: SystemPromptFrozen) -> None:
        """Another head: thinking that was bound to the old one goes, also where it has left the view and may come
        back; but one that a compaction brought comes and goes with it."""
        system = request_blocks(event.system)
        tools = [{key: tool[key] for key in tool if key != "cache_control"} for tool in event.tools]
        if (self.messages or self._talk.body.standing) and (system, tools) != (self.system, self.tools):
            entries = self._talk.entries
            if event.compaction and event.compaction == self.undoable and self.begins_with(event.compaction):
                self._heads[event.compaction] = self.system, self.tools, self.head_tokens, entries.head_at
                entries.change_head()
            else:
                self._heads.clear()
                self._talk.begin_anew()
        self.system, self.tools = system, tools
        self._talk.tally.render(event.tokens)
