"""What tools are and what they may touch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from ipyagent.journal.events import Block, MessageKind, Step


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


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool answers: content blocks for the model, a short `note` for the user. `live` is the
    object that the blocks show, if there is one; `shown` counts the outputs that stand in the cell itself."""

    blocks: tuple[Block, ...]
    is_error: bool = False
    note: str = ""
    live: ObjectRef | None = None
    shown: int = 0


class PermissionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What the user is asked before a tool runs: the exact code, command or diff in `text`,
    highlighted as `language` ("python", "bash", "diff", "text"). `title` is the tool's, never the
    model's: what that says of the call is `said`."""

    title: str
    text: str
    language: str = "text"
    said: str = ""


class SubagentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a sub-agent is to do: `task` in a few words, `prompt` in full; `kind` its type ("" with `resume`, the
    id of an earlier one that is to go on)."""

    task: str
    prompt: str
    kind: str = ""
    background: bool = False
    resume: str = ""


@runtime_checkable
class Children(Protocol):
    """Starts sub-agents of a session (`ipyagent.children.family`)."""

    def start(self, order: SubagentOrder, workspace: Workspace, call: str) -> Awaitable[ToolOutput]:
        """Start one, and wait for its answer unless it works in the background. Raises ToolFailure."""


class MessageOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent writes to whom; `approve` belongs to a `plan_response`."""

    to: str
    text: str
    summary: str = ""
    kind: MessageKind = "text"
    approve: Literal["", "yes", "no"] = ""


@runtime_checkable
class Messages(Protocol):
    """Delivers what an agent writes to others (`ipyagent.children.messages`)."""

    def send(self, order: MessageOrder, call: str) -> Awaitable[ToolOutput]:
        """Deliver it; what became of it, for the writer. Raises ToolFailure."""


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

    @property
    def marks(self) -> object:
        """The `CellMarks` of `ipyagent.kernel.cell_marks`: which cells the model may not see; None: there are none."""

    @property
    def memory(self) -> object:
        """The `MemoryAccess` of `ipyagent.memory.access`, for the memory tool; None: there is no memory."""

    @property
    def skills(self) -> object:
        """The `SkillAccess` of `ipyagent.parts.skills.desk`, for the tool that loads them; None: there are none."""

    @property
    def children(self) -> object:
        """A `Children`, for the tool that starts sub-agents; None: there are none."""

    @property
    def messages(self) -> object:
        """A `Messages`, for the tool that writes to other agents; None: nobody can be written to."""

    @property
    def sessions(self) -> object:
        """The `PastSessions` of `ipyagent.memory.transcripts`, for the tool that searches them; None: none are."""

    @property
    def beside(self) -> dict[Any, Any]:
        """What calls of the same message leave for one another; emptied before each message's calls."""

    @property
    def cell_ids(self) -> dict[Path, Any]:
        """Names of the cells of each notebook that was read (`kernel.notebook.KnownIds`)."""

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
