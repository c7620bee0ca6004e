"""The small protocols by which tools, models, layers and the loop know one another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from ipyagent.journal.events import AssistantSaid, Block, Event, PermissionAsked, Usage, UserSaid
from ipyagent.journal.view import View


class Image(msgspec.Struct, frozen=True):
    """A picture that code made. `data` is the encoded file, `media_type` e.g. "image/png"."""

    media_type: str
    data: bytes


class Live:
    """An object that code or a tool gave, on its way to those who may keep it alive. Equal only to
    itself: comparing objects would run the user's code. `alone`: the result is nothing else."""

    __slots__ = ("alone", "value")

    def __init__(self, value: Any, *, alone: bool = False) -> None:
        self.value = value
        self.alone = alone

    def __repr__(self) -> str:
        return f"<live {type(self.value).__name__}>"


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of code in the user's namespace did.

    `output` is stdout and stderr as they came, merged, capped (head and tail kept, the cut named
    in the text); `result` the text/plain of the last expression; `displays` the text/plain of
    what was displayed; `error` the trimmed traceback as plain text without ANSI; `rebound` the
    names that now point to another object, `added` the names that are new.
    """

    output: str = ""
    result: str | None = None
    displays: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    error: str | None = None
    interrupted: bool = False
    seconds: float = 0.0
    added: tuple[str, ...] = ()
    rebound: tuple[str, ...] = ()
    live: Live | None = None
    """The last expression's object."""


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answers: content blocks for the model, a short `note` for the user. `live` is the
    object that the blocks show, if there is one."""

    blocks: tuple[Block, ...]
    is_error: bool = False
    note: str = ""
    live: Live | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the user is asked before a tool runs: the exact code, command or diff in `text`,
    highlighted as `language` ("python", "bash", "diff", "text")."""

    title: str
    text: str
    language: str = "text"


class Workspace(Protocol):
    """What a tool may touch. One object a session; all calls are made on the agent thread."""

    @property
    def root(self) -> Path:
        """The project's folder, absolute and resolved."""

    @property
    def folder(self) -> Path:
        """The notebook's folder (the kernel's working directory when unknown)."""

    @property
    def allowed(self) -> tuple[Path, ...]:
        """Folders that may be read without a question (`root` is one of them)."""

    @property
    def read_stamps(self) -> dict[Path, str]:
        """SHA-256 of each file's bytes when the model last read or wrote it (resolved path)."""

    def record_change(self, path: Path, before: bytes | None, after: bytes | None) -> None:
        """Journal that `path` goes from `before` to `after` (None: does not exist), with a
        backup for undo. Called BEFORE the file is written."""

    def stream(self, text: str) -> None:
        """Show a piece of the running call's output live (journalled first)."""

    async def run_code(self, code: str) -> Execution:
        """Run code in the user's namespace on the main thread, output streamed live."""

    async def on_main(self, call: Callable[[], Any]) -> Any:
        """Run a short function on the main thread (the namespace may be read there)."""

    @property
    def namespace(self) -> dict[str, Any]:
        """The user's namespace; read it only inside `on_main`."""

    @property
    def hidden(self) -> Mapping[str, Any]:
        """Names in the namespace that are not the user's, with the values that make them so."""

    def limit(self, name: str) -> int:
        """A numeric setting by name, e.g. `limit("tool_output_chars")`."""

    def for_call(self, call: str, stream: Callable[[str], None]) -> Workspace:
        """The same workspace as one call sees it: what it streams and changes is its own."""


Permission: TypeAlias = Literal["none", "ask"]


@runtime_checkable
class Tool(Protocol):
    """A capability of the model. `parallel`: calls may run beside others of the same message.
    `recreatable`: an old result may leave the view, it can be had again."""

    name: str
    description: str
    input_schema: dict[str, Any]
    parallel: bool
    recreatable: bool

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        """The checked arguments; raises ToolFailure quoting the schema problem."""

    def permission(self, input: dict[str, Any], workspace: Workspace) -> Permission:
        """Whether this very call needs a yes in mode "ask"."""

    def writes(self, input: dict[str, Any], workspace: Workspace) -> bool:
        """Whether this very call may change anything: refused in mode "read_only"."""

    def destructive(self, input: dict[str, Any], workspace: Workspace) -> str:
        """Why this call needs a yes even in mode "auto" ("" when it does not)."""

    def pattern(self, input: dict[str, Any], workspace: Workspace) -> str:
        """The rule that covers this call and its like, e.g. "python", "shell(git status)"."""

    def question(self, input: dict[str, Any], workspace: Workspace) -> Question:
        """The exact code, command or diff that the user is asked about."""

    def run(self, input: dict[str, Any], workspace: Workspace) -> Awaitable[ToolOutput]:
        """Do it. Raises ToolFailure for an error that the model should read."""


# ------------------------------------------------------------------ models


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
    purpose: str = ""
    """What background work this is for, as in ForkOrder; "" for the conversation itself. Not sent."""


class Began(msgspec.Struct, frozen=True):
    """The server began to answer; the prompt is written to its cache from here on."""

    usage: Usage


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    text: str


class ToolDelta(msgspec.Struct, frozen=True):
    """A tool call is being written: its name and how many characters so far."""

    name: str
    chars: int


class Waiting(msgspec.Struct, frozen=True):
    """The request goes out again in `seconds`."""

    reason: str
    seconds: float
    attempt: int


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a stream. `said.partial` with `broken` set: the stream broke, what was complete
    is in `said`."""

    said: AssistantSaid
    usage: Usage | None
    broken: str = ""
    details: str = ""
    """What the server says of a refusal."""
    invalid: dict[str, str] = {}
    """Calls that must not run, by id: what is wrong with them (broken JSON, cut off)."""
    billed: Usage | None = None
    """All that is paid for, where it is more than `usage`: a compaction by the server within the request."""
    applied: tuple[dict[str, Any], ...] = ()
    """What the server left out of the prompt, in its words (`applied_edits`)."""
    miss: str = ""
    """Why the server could not use its cache, in its words (`cache_miss_reason`)."""


ModelEvent: TypeAlias = Began | TextDelta | ThinkingDelta | ToolDelta | Waiting | Reply


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
    source: str = ""
    """Where the window's figure comes from, for `%context`."""


class Model(Protocol):
    """Something that answers requests."""

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Events of one reply; ends with exactly one `Reply`. Raises ModelError when there is no
        reply at all. Cancelling the task closes the connection."""

    async def info(self, model: str) -> ModelInfo:
        """The model's window and abilities; never raises for a server that does not tell."""

    async def close(self) -> None:
        """Close connections."""


# ------------------------------------------------------------------ layers

Moment: TypeAlias = Literal["results", "request", "mark", "overflow", "turn_end"]
"""When a layer is asked: all results of a reply are in and not sent yet; before each request; the
auto-compact mark is reached (or somebody asked for a compaction); the server said that the prompt
is too long; a turn has ended."""


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
    answer: Callable[[str, dict[str, Any]], ToolOutput] | None = None
    """Does a permitted call in place of the tool itself; raises ToolFailure for the model to read."""
    enough: Callable[[], bool] | None = None
    """Asked after each round of calls: whether the work is done, so that no last word is paid for."""
    without_pictures: bool = False
    by_server: bool = False
    """The server writes the summary itself and gives one `compaction` block; `directive`, if any, takes the
    place of its own prompt."""
    drop_first: int = 0
    """Leave out so many of the oldest API rounds (the compaction call itself was too long)."""


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


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What a layer looks at. `view` is read-only; decisions are returned as events.

    `idle` is seconds since the model's last message; `turns` how many more requests are expected;
    `trigger` "auto", "manual", "model" or "reactive"; `instructions` the user's words for a
    compaction; `first`/`last` a range of events (0: open) it is to be limited to; `gap` the tokens
    by which the server said the prompt is too long (0: not said).
    """

    view: View
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
    server_compaction: bool = False
    """Whether the endpoint can compact by itself."""
    recreatable: frozenset[str] = frozenset()
    """Names of the tools whose results can be had again."""
    turn_starts: tuple[int, ...] = ()
    """The UserSaid event of every turn, oldest first."""
    request: UserSaid | None = None
    """The newest request of the user."""
    open_turn: bool = False
    """Whether the model is still at work on it."""
    noted: int = 0
    """The event up to which the session's notes stand; 0 when there are none."""
    tried: int = 0
    """The event of the newest update of the notes, if it came to nothing; else 0."""
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

    async def consider(self, now: Situation) -> Sequence[Event]:
        """The decisions to record now, in order; none for nothing to do."""


# ------------------------------------------------------------------ what the user sees


class WindowState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the context window stands: all figures in tokens, `percent_left` 0-100 of the way to
    the auto-compact mark. Marks are in the order warning, auto, block, effective, window."""

    tokens: int
    window: int
    effective: int
    warning_mark: int
    error_mark: int
    auto_mark: int
    block_mark: int
    percent_left: float
    above_warning: bool
    above_error: bool
    above_auto: bool
    blocked: bool


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The running turn in one glance. `phase` is a short present participle ("waiting for the
    model", "writing", "running python"); `cost` US dollars of the session so far (None: no price
    known for the model), `turn_cost` of this request."""

    phase: str
    model: str
    window: WindowState | None = None
    cost: float | None = None
    turn_cost: float | None = None
    tokens_read: int = 0
    """Prompt tokens of the session read from cache, and (next) all prompt tokens."""
    tokens_prompt: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What the user said to a permission question. `by` as in `PermissionAnswered`."""

    answer: Literal["once", "always", "deny"]
    reason: str = ""
    by: str = "user"


class Surface(Protocol):
    """Where one turn is shown: a panel, a terminal, plain text. `show`, `status` and `ask` are
    called on the agent thread and never block it; `open` and `close` on the main thread."""

    can_ask: bool
    """Whether a person can answer a question here."""

    def open(self) -> None:
        """Appear, before the turn begins."""

    def show(self, event: Event) -> None:
        """Show an event; it is on disk already."""

    def status(self, status: Status) -> None:
        """Show where the turn stands."""

    async def ask(self, asked: PermissionAsked) -> Answer:
        """Wait for the user's answer to exactly this question, however long it takes.
        Cancelled when the turn stops; an answer that comes later is void."""

    def close(self) -> None:
        """Leave what was shown as static text that needs no kernel."""
