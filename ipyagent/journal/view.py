"""What the model sees: a pure function of the journal, built one event at a time.

Whatever the events are, the messages keep the API's rules: the first is the user's, every tool_use
has exactly one tool_result in the very next user message and results come first there, no text is
empty, no id comes twice, thinking is kept unedited or dropped by a recorded decision. What was
cut off (a stop, a crash) is closed here with an error result, so a request is always valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, assert_never

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
from ipyagent.journal.tokens import Calibration, Count, estimate_blocks, learn_from, plausible

THINKING = ("thinking", "redacted_thinking")
NOT_RUN = "This call was not run: the turn was cut off first."
CUT_OFF = "This call was cut off before it returned."
NO_OUTPUT = "(no output)"
NO_REQUEST = "(the session begins here)"
CUT_MARK = "[cut off here]"

_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class View:
    """The request's head and messages after some events; `apply` adds one more event.

    `messages` are wire messages without cache marks; treat them as read-only.
    """

    def __init__(self) -> None:
        self.system: list[Block] = []
        self.tools: list[Block] = []
        self.model = ""
        self.messages: list[dict[str, Any]] = []
        self.calibration = Calibration()
        self._open: dict[str, str] = {}
        self._called: set[str] = set()
        self._results: dict[str, tuple[ToolReturned, list[Block]]] = {}
        self._seen: set[str] = set()
        self._origin: list[int] = []
        self._images: dict[int, list[tuple[int, list[Block], int]]] = {}
        self._partial: list[str] = []
        self._partial_output: dict[str, list[str]] = {}
        self._asked_at: Position | None = None
        self._confirmed: Position | None = None
        self._paused = False
        self._base = 0
        self._raw = 0
        self._head_tokens = 0
        self._recount = False

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
        return {call: name for call, name in self._open.items() if call not in self._results}

    @property
    def partial_text(self) -> str:
        """Text of a reply that was shown but never came to its end."""
        return "".join(self._partial)

    def partial_output(self, call: str) -> str:
        """Output of a running call that was shown but is in no result yet."""
        return "".join(self._partial_output.get(call, ()))

    def was_called(self, call: str) -> bool:
        """Whether the call had begun to run."""
        return call in self._called

    def knows_call(self, call: str) -> bool:
        """Whether a call of this id is in the view already."""
        return call in self._seen

    @property
    def sendable(self) -> bool:
        """Whether a request may go out now: the user's side has the last word, nothing is open."""
        return bool(self.messages) and not self._open and (self._paused or self.messages[-1]["role"] == "user")

    def count(self) -> Count:
        """Tokens of the next prompt, see `Count`."""
        if self._recount:
            self._base, self._recount = 0, False
            self._raw = self._head_tokens + sum(estimate_blocks(m["content"]) for m in self.messages)
        return Count(self._base, self._raw, self.calibration.factor)

    def wire(self, *, ttl: str = "5m", marks: bool = True) -> tuple[list[Block], list[Block], list[dict[str, Any]]]:
        """System, tools and messages as they go out, with at most four cache marks: end of
        tools, end of system, the end of the last prompt the server has answered, the very end."""
        if not marks:
            return list(self.system), list(self.tools), list(self.messages)
        return marked(self.system, self.tools, self.messages, anchor=self._confirmed, ttl=ttl)

    def event_with_images(self, message: int | None = None) -> int | None:
        """The newest event whose images are in the view (in message `message`, if given)."""
        hits = [event for event, places in self._images.items() if message is None or places[0][0] == message]
        return max(hits, default=None)

    # -------------------------------------------------------------- building

    def apply(self, event: Event) -> None:
        """Take in the next event of the journal."""
        match event:
            case UserSaid():
                self._settle()
                self._add_user(event.id, [dict(block) for block in event.blocks], event.tokens)
            case Reminded():
                self._settle()
                self._add_user(event.id, [{"type": "text", "text": event.text}], event.tokens)
            case Streamed():
                if event.channel == "text":
                    self._partial.append(event.text)
                elif event.channel == "tool":
                    self._partial_output.setdefault(event.ref, []).append(event.text)
            case AssistantSaid():
                self._partial.clear()
                self._settle()
                self._add_assistant(event)
            case ToolCalled():
                self._called.add(event.call)
            case ToolReturned():
                self._take_result(event)
            case UsageReported():
                self.calibration = learn_from(
                    self.calibration, predicted=event.predicted, raw=event.raw, usage=event.usage
                )
                if plausible(event.predicted, event.usage):
                    self._base, self._raw, self._recount = event.usage.total, 0, False
                self._confirmed = self._asked_at
            case PromptRendered():
                self.system = [dict(block) for block in event.system]
                self.tools = [dict(block) for block in event.tools]
                self._raw += event.tokens - (self._head_tokens if self._base or self._raw else 0)
                self._head_tokens = event.tokens
            case ModelChosen():
                if self.model and event.model != self.model:
                    self._drop_thinking(len(self.messages))
                self.model = event.model
            case ThinkingDropped():
                self._drop_thinking(sum(1 for origin in self._origin if origin <= event.upto))
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
        if self._partial:
            text = self.partial_text
            self._partial.clear()
            if text.strip():
                self._push("assistant", 0, [{"type": "text", "text": f"{text}\n{CUT_MARK}"}])
        for call in list(self.open_calls):
            output = self.partial_output(call)
            text = f"{CUT_OFF}\n{output}" if output.strip() else CUT_OFF if call in self._called else NOT_RUN
            self._results[call] = (ToolReturned(call=call, name="", blocks=(), is_error=True), [_text(text)])
        self._close_results()

    def _add_user(self, event: int, blocks: list[Block], tokens: int) -> None:
        kept = _without_empty(blocks)
        if not kept:
            return
        self._raw += tokens
        self._paused = False
        message = self._push("user", event, kept)
        content = self.messages[message]["content"]
        self._note_images(event, message, content, len(content) - len(kept))

    def _add_assistant(self, event: AssistantSaid) -> None:
        blocks = [kept for block in event.blocks if (kept := self._admit(block)) is not None]
        if not any(block["type"] not in THINKING for block in blocks):
            return
        if not self.messages:
            self._push("user", event.id, [_text(NO_REQUEST)])
        self._asked_at = (len(self.messages) - 1, len(self.messages[-1]["content"]) - 1)
        self._raw += event.tokens
        self._paused = event.stop_reason == "pause_turn"
        self._push("assistant", event.id, blocks)
        for block in blocks:
            if block["type"] == "tool_use":
                self._open[block["id"]] = block["name"]

    def _admit(self, block: Block) -> Block | None:
        """A reply's block as it may be sent back; None when it may not."""
        kind = block.get("type")
        if not isinstance(kind, str):
            return None
        if kind == "text":
            return dict(block) if str(block.get("text", "")).strip() else None
        if kind == "thinking":
            return dict(block) if block.get("signature") else None
        if kind == "tool_use":
            call, name = block.get("id"), block.get("name")
            if not isinstance(call, str) or not call or call in self._seen or not isinstance(name, str) or not name:
                return None
            self._seen.add(call)
            given = block.get("input")
            return {**block, "name": _BAD_NAME.sub("_", name)[:128], "input": given if isinstance(given, dict) else {}}
        return dict(block)

    def _take_result(self, event: ToolReturned) -> None:
        if event.call not in self._open or event.call in self._results:
            return  # no such call, or closed before: a late result changes nothing that was sent
        content = _without_empty([dict(block) for block in event.blocks]) or [_text(NO_OUTPUT)]
        self._results[event.call] = (event, content)
        self._raw += event.tokens
        if not self.open_calls:
            self._close_results()

    def _close_results(self) -> None:
        """All calls have a result: they become the next user message, in the order of the calls."""
        if not self._open:
            return
        blocks: list[Block] = []
        for call in self._open:
            event, content = self._results[call]
            block: Block = {"type": "tool_result", "tool_use_id": call, "content": content}
            if event.is_error:
                block["is_error"] = True
            blocks.append(block)
        message = self._push("user", max(event.id for event, _ in self._results.values()), blocks)
        for event, content in self._results.values():
            self._note_images(event.id, message, content, 0)
        for call in self._open:
            self._partial_output.pop(call, None)
            self._called.discard(call)
        self._open.clear()
        self._results.clear()
        self._paused = False

    def _push(self, role: str, event: int, blocks: list[Block]) -> int:
        """Add blocks as a message, or to the last message when it has the same role."""
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"].extend(blocks)
            self._origin[-1] = max(event, self._origin[-1])
        else:
            if role == "assistant" and not self.messages:
                self._push("user", event, [_text(NO_REQUEST)])
            self.messages.append({"role": role, "content": blocks})
            self._origin.append(event)
        return len(self.messages) - 1

    def _note_images(self, event: int, message: int, content: list[Block], start: int) -> None:
        for index in range(start, len(content)):
            if content[index]["type"] in ("image", "document"):
                self._images.setdefault(event, []).append((message, content, index))

    # -------------------------------------------------------------- frozen decisions

    def _drop_thinking(self, upto: int, start: int = 0) -> None:
        """Thinking leaves messages `start` to `upto`; there is text or a call beside it always."""
        for message in self.messages[start:upto]:
            if message["role"] == "assistant":
                kept = [block for block in message["content"] if block["type"] not in THINKING]
                if len(kept) != len(message["content"]):
                    message["content"] = kept
                    self._recount = True

    def _drop_images(self, event: int) -> None:
        """Images of an event become words; thinking that was bound to them goes as well."""
        for message, content, index in self._images.pop(event, ()):
            content[index] = _text(f"[{content[index]['type']}]")
            self._drop_thinking(len(self.messages), message)
            self._recount = True


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _without_empty(blocks: list[Block]) -> list[Block]:
    return [
        block
        for block in blocks
        if isinstance(block.get("type"), str) and (block["type"] != "text" or str(block.get("text", "")).strip())
    ]
