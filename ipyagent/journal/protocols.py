"""The small protocols and values by which tools, models, layers and the loop know one another: nothing here does
anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    Event,
    PermissionAsked,
    Retrying,
    Step,
    Streamed,
    Usage,
    UserMessage,
)
from ipyagent.journal.view import ContextView
from ipyagent.sandbox import Level

# ---- What a request is and what a model answers, event by event.


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


class ToolDelta(msgspec.Struct, frozen=True):
    """A tool call is being written: its name and how many characters so far. `server`: the provider runs it; `begins`:
    nothing of it has come yet."""

    name: str
    chars: int
    server: bool = False
    begins: bool = False


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


ModelEvent: TypeAlias = ResponseStarted | Streamed | ToolDelta | Retrying | ModelReply
"""Pieces of text and of thinking come as `Streamed`."""


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


# ---- What the user sees of a turn, and how the user answers.

class WindowState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the context window stands: all figures in tokens, `percent_left` 0-100 of the way to
    the auto-compact threshold. Marks are in the order warning, auto, block, effective, window."""

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


class TurnStatus(msgspec.Struct, frozen=True, kw_only=True):
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


class PermissionAnswer(msgspec.Struct, frozen=True):
    """What the user said to a permission question. `by` as in `PermissionAnswered`."""

    answer: Literal["once", "always", "deny"]
    reason: str = ""
    by: str = "user"


class Surface(Protocol):
    """Where one turn is shown: a panel, a terminal, plain text. `show`, `status` and `ask` are
    called on the agent thread and never block it; `open` and `close` on the main thread."""

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer a question here."""

    def open(self) -> None:
        """Appear, before the turn begins."""

    def show(self, event: Event) -> None:
        """Show an event; it is on disk already."""

    def status(self, status: TurnStatus) -> None:
        """Show where the turn stands."""

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        """Wait for the user's answer to exactly this question, however long it takes.
        Cancelled when the turn stops; an answer that comes later is void."""

    def close(self) -> None:
        """Leave what was shown as static text that needs no kernel."""


@runtime_checkable
class CellOutput(Protocol):
    """A surface in a cell that shows what code displays beside it; called on the thread that runs code."""

    text_alone: bool
    """Whether all of it is shown as text, in a terminal; else text stands with its call."""

    def display(self, publish: Callable[[], None]) -> None:
        """Have `publish` put what code displays into the cell, at once or in its turn later."""

    def displayed(self) -> None:
        """Code that displayed something has ended: what the turn shows next stands below it."""


# ---- What tools are and what they may touch.

class Image(msgspec.Struct, frozen=True):
    """A picture that code made. `data` is the encoded file, `media_type` e.g. "image/png"."""

    media_type: str
    data: bytes


class ObjectRef:
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
    in the text); `result` the text of the last expression; `displays` the text of
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
    live: ObjectRef | None = None
    """The last expression's object."""
    shown: int = 0
    """Outputs that stand in the cell itself."""
    told: int = 0
    """Those of which the model need not be told so: `displays` and `result` say it (charts), or they were cleared."""


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox level that a call needs ("": nothing keeps it at one here), and why the user is asked for it, in
    words that follow "because"; `danger`: what it would do at "project" that no undo brings back."""

    level: Level | Literal[""]
    why: str = ""
    danger: str = ""


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answers: content blocks for the model, a short `note` for the user. `live` is the
    object that the blocks show, if there is one; `shown` counts the outputs that stand in the cell itself; `needs` is
    what it was refused at its sandbox level: once the user allows that, the call runs again."""

    blocks: tuple[Block, ...]
    is_error: bool = False
    note: str = ""
    live: ObjectRef | None = None
    shown: int = 0
    needs: Needed | None = None


class PermissionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What the user is asked before a tool runs: the exact code, command or diff in `text`,
    highlighted as `language` ("python", "bash", "diff", "text"). `title` is the tool's, never the
    model's: what that says of the call is `said`."""

    title: str
    text: str
    language: str = "text"
    said: str = ""


class ReadStamp(msgspec.Struct, frozen=True):
    """What the model last read or wrote of a file: the SHA-256 of its bytes, and from which line (or row) on, 1 is the
    first, at most how many (None: to the end)."""

    digest: str
    offset: int = 1
    limit: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all of it was asked for."""
        return self.offset == 1 and self.limit is None


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
    def read_stamps(self) -> dict[Path, ReadStamp]:
        """What the model last read or wrote of each file (resolved path)."""

    @property
    def marks(self) -> object:
        """The `CellMarks` of `ipyagent.kernel.cell_marks`: which cells the model may not see; None: there are none."""

    @property
    def memory(self) -> object:
        """The `MemoryAccess` of `ipyagent.parts.memory.access`, for the memory tool; None: there is no memory."""

    @property
    def skills(self) -> object:
        """The `SkillAccess` of `ipyagent.parts.skills`, for the tool that loads them; None: there are none."""

    @property
    def children(self) -> object:
        """A `Children` (`ipyagent.parts.subagents.pool`), for the tool that starts sub-agents; None: there are none."""

    @property
    def messages(self) -> object:
        """A `Messages` (`ipyagent.loop.mailbox`), for the tool that writes to others; None: nobody can be told."""

    @property
    def sessions(self) -> object:
        """The `PastSessions` (`ipyagent.parts.memory.transcripts`) for the tool that searches them; None: none are."""

    @property
    def beside(self) -> dict[Any, Any]:
        """What calls of the same message leave for one another; emptied before each message's calls."""

    @property
    def cell_ids(self) -> dict[Path, Any]:
        """Names of the cells of each notebook that was read (`kernel.notebook.KnownIds`)."""

    @property
    def page(self) -> object:
        """The `OpenNotebook` of `ipyagent.kernel.page`: the user's notebook in its page; None: no page can be asked."""

    @property
    def call(self) -> str:
        """The id of the call that this is the workspace of, see `for_call`."""

    @property
    def notebook(self) -> Path | None:
        """The notebook that the user's kernel serves; None when it is not known."""

    def opened(self, path: Path) -> Literal["", "own", "page"]:
        """Whether a notebook stands in a page of the user's, see `kernel.frontend.opened`."""

    def record_change(self, path: Path, before: bytes | None, after: bytes | None) -> None:
        """Journal that `path` goes from `before` to `after` (None: does not exist), with a
        backup for undo. Called BEFORE the file is written."""

    def record_plan(self, steps: tuple[Step, ...]) -> None:
        """Journal the plan of the running call."""

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

    @property
    def level(self) -> Level:
        """The sandbox level at which a command of this call runs, see `at`."""

    def at(self, level: Level) -> Workspace:
        """The same workspace with another level."""

    def watch_command(self) -> object:
        """What sees to copies of files that a command changes (`ipyagent.loop.watching`); None: nobody does."""

    def for_call(self, call: str, stream: Callable[[str], None]) -> Workspace:
        """The same workspace as one call sees it: what it streams and changes is its own."""


REPLY: ContextVar[tuple[Block, ...]] = ContextVar("ipyagent_reply", default=())
"""The tool calls of the reply of which one runs, for a tool that does several of them together."""

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

    def question(self, input: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
        """The exact code, command or diff that the user is asked about."""

    def run(self, input: dict[str, Any], workspace: Workspace) -> Awaitable[ToolOutput]:
        """Do it. Raises ToolFailure for an error that the model should read."""


# ---- What a layer of the context engine looks at, what it may ask for, and forks of the view.

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
    said: Callable[[int, int], list[tuple[int, int, str, str]]] = lambda first, last: []
    """What the user said in a range of events: the turn's number, the event, what is to be known of it ("": nothing)
    and the words, oldest first, without turns that are taken out."""
    no_summary: str = ""
    """Why the last compaction had no summary; "" when it had one."""
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
