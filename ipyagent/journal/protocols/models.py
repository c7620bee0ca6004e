"""What a request is and what a model answers, event by event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeAlias

import msgspec

from ipyagent.journal.events import AssistantMessage, Block, Usage


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as it goes on the wire. `messages` are wire messages; marks are in place."""

    model: str
    system: list[Block]
    tools: list[Block]
    messages: list[dict[str, Any]]
    max_tokens: int
    effort: str = ""
    diagnose: str | None = None
    """The id of the message before ("": there is none), for servers that explain cache misses; None:
    do not ask."""
    edits: dict[str, Any] | None = None
    """What the server is to leave out of the prompt by itself (`context_management`)."""
    compaction: dict[str, Any] | None = None
    """Ask for a compaction by the server and nothing else (`compaction`); never together with `edits`."""
    schema: dict[str, Any] | None = None
    """The reply is to be JSON that fits this schema, as far as the server can see to it."""
    thinking: bool = True
    """Whether the model may think first, where it can and the settings let it."""
    purpose: str = ""
    """What background work this is for, as in ForkOrder; "" for the conversation itself. Not sent."""


class ResponseStarted(msgspec.Struct, frozen=True):
    """The server began to answer; the prompt is written to its cache from here on."""

    usage: Usage


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    text: str


class ToolDelta(msgspec.Struct, frozen=True):
    """A tool call is being written: its name and how many characters so far. `server`: the provider runs it; `begins`:
    nothing of it has come yet."""

    name: str
    chars: int
    server: bool = False
    begins: bool = False


class RetryWait(msgspec.Struct, frozen=True):
    """The request goes out again in `seconds`."""

    reason: str
    seconds: float
    attempt: int


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a stream. `said.partial` with `broken` set: the stream broke, what was complete
    is in `said`."""

    said: AssistantMessage
    usage: Usage | None
    broken: str = ""
    details: str = ""
    """What the server says of a refusal."""
    invalid: dict[str, str] = {}
    """Calls that must not run, by id: what is wrong with them (broken JSON, cut off)."""
    parts: tuple[Usage, ...] = ()
    """The parts of the bill, each priced on its own, where `usage`, the prompt as it was read at last, is not all of
    it: the server compacted within the request; or it searched, and `usage` is the prompt as it was sent."""
    applied: tuple[dict[str, Any], ...] = ()
    """What the server left out of the prompt, in its words (`applied_edits`)."""
    miss: str = ""
    """Why the server could not use its cache, in its words (`cache_miss_reason`)."""


ModelEvent: TypeAlias = ResponseStarted | TextDelta | ThinkingDelta | ToolDelta | RetryWait | ModelReply


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model: tokens of its window and of its largest reply, abilities."""

    model: str
    window: int
    max_output: int
    thinking: bool = False
    effort: bool = False
    images: bool = True
    edits: bool = False
    """Whether the server can clear parts of a prompt by itself (`context_management`)."""
    compaction: bool = False
    """Whether the server can compact by itself."""
    server_tools: tuple[str, ...] = ()
    """Tools that the server runs automatically: "web_search", "web_fetch"."""
    source: str = ""
    """Where the window's figure comes from, for `%context`."""
    server: str = ""
    """The address that was asked: what it says of a name holds there alone."""


class Model(Protocol):
    """Something that answers requests."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Events of one reply; ends with exactly one `ModelReply`. Raises ModelError when there is no
        reply at all. Cancelling the task closes the connection."""

    async def info(self, model: str) -> ModelInfo:
        """The model's window and abilities; never raises for a server that does not tell."""

    def known(self, model: str) -> ModelInfo | None:
        """The same as far as it is known by now, without a word with the server; None before `info`."""

    def cuts(self, model: str, window: int) -> None:
        """The server was seen to read no more than so many tokens of a prompt: that is its window from now on."""

    async def close(self) -> None:
        """Close connections."""
