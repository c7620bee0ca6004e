"""What a layer of the context engine looks at, what it may ask for, and forks of the view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ipyagent.journal.events import Block, Event, UserMessage
from ipyagent.journal.protocols.surfaces import WindowState
from ipyagent.journal.protocols.tools import ToolOutput
from ipyagent.journal.view import ContextView

Moment: TypeAlias = Literal["results", "request", "near", "mark", "overflow", "turn_end"]
"""When a layer is asked: all results of a reply are in and not sent yet; before each request; a turn begins
near the auto-compact threshold, which it may cross; that threshold is reached
(or somebody asked for a compaction); the server said that the prompt is too long; a turn has ended."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars a token: uncached input, cache read, cache write, output. All 0.0 when no price is known."""

    input: float = 0.0
    read: float = 0.0
    write: float = 0.0
    output: float = 0.0


class ForkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Background work on a copy of the view. `directive` is appended as the user's words; `permit`
    tells for a call of the fork why it may not run ("" when it may; None: no call may run)."""

    purpose: str
    directive: str
    max_turns: int = 1
    max_tokens: int = 8_000
    permit: Callable[[str, dict[str, Any]], str] | None = None
    answer: Callable[[str, dict[str, Any]], ToolOutput | Awaitable[ToolOutput]] | None = None
    """Does a permitted call in place of the tool itself; raises ToolFailure for the model to read."""
    enough: Callable[[], bool] | None = None
    """Asked after each round of calls: whether the work is done, so that no last word is paid for."""
    without_pictures: bool = False
    by_server: bool = False
    """The server writes the summary itself and gives one `compaction` block; `directive`, if any, takes the
    place of its own prompt."""
    shorten: dict[str, int] = {}
    """Characters to keep of tool results, by call (the compaction call itself was too long)."""
    also: str = ""
    """A second purpose that the same requests serve."""
    drop_first: int = 0
    """Leave out so many of the oldest API rounds, where that was not enough."""
    carried: tuple[Block, ...] = ()
    """What stands in the place of those rounds."""
    text_chars: int = 0
    """Characters to keep of each text, where even that was not enough; 0: all."""


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """What a fork ended with: its last text; `status` finished, limit, refused or failed."""

    status: str
    text: str = ""
    stop_reason: str = ""
    message: str = ""
    called: bool = False
    """Whether the last reply made a tool call instead of an answer."""
    block: Block | None = None
    """The `compaction` block of the server's own summary."""


class LayerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a layer looks at. `view` is read-only; decisions are returned as events.

    `idle` is seconds since the model's last message; `turns` how many more requests are expected;
    `trigger` "auto", "manual", "model" or "reactive"; `instructions` the user's words for a
    compaction; `first`/`last` a range of events (0: open) it is to be limited to; `gap` the tokens
    by which the server said the prompt is too long (0: not said).
    """

    view: ContextView
    state: WindowState
    rates: Rates
    moment: Moment
    folder: Path
    place: str = ""
    """`folder`, the session's, as tools and code name it."""
    idle: float = 0.0
    turns: int = 1
    trigger: str = "auto"
    instructions: str = ""
    first: int = 0
    last: int = 0
    gap: int = 0
    bound_thinking: bool = False
    server_edits: bool = False
    """Whether the endpoint can edit the prompt by itself (`context_management`)."""
    server_cleared: bool = False
    """Whether the server has left out results since the model was last told where such are kept."""
    server_kept: int = 0
    """The newest event whose result the model was told to be kept because the server may leave it out."""
    server_compaction: bool = False
    """Whether the endpoint can compact by itself."""
    recreatable: frozenset[str] = frozenset()
    """Names of the tools whose results can be had again."""
    turn_starts: tuple[int, ...] = ()
    """The UserMessage event of every turn, oldest first."""
    request: UserMessage | None = None
    """The newest request of the user."""
    said: Callable[[int, int], list[tuple[int, int, str]]] = lambda first, last: []
    """What the user said in a range of events: the turn's number and event and the words, oldest first, without
    turns that are taken out."""
    open_turn: bool = False
    """Whether the model is still at work on it."""
    noted: int = 0
    """The event up to which the session's notes stand; 0 when there are none."""
    tried: int = 0
    """The event of the newest update of the notes, if it came to nothing; else 0."""
    dry: bool = False
    """Whether only to say what would be decided: no file is written."""
    redact: Callable[[str], str] = str
    """Takes out what looks like a secret, for what a layer writes by itself."""
    setting: Callable[[str], Any]
    """A setting by its name."""
    fork: Callable[[ForkOrder], Awaitable[Forked]]
    """Work on a copy of the view; what it cost is journalled. Raises ModelError."""
    restore: Callable[[], Awaitable[list[tuple[str, str]]]]
    """What should stand after a summary, in order: (name for the user, text for the model)."""
    hook: Callable[[str, dict[str, Any]], Awaitable[list[str]]]
    """Run a hook by name; the texts it gave."""


class Layer(Protocol):
    """One way of keeping the context small; a module of `ipyagent.context` with one named object.

    Its kill switch is the setting `layer_<name>`. Layers are asked in `order`, cheapest first; what
    `consider` raises is journalled, and the next layer catches it.
    """

    name: str
    order: int
    moments: frozenset[Moment]

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """The decisions to record now, in order; none for nothing to do."""
