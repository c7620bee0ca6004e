"""The closed union of events: everything that ever happens in a session.

A transcript is one JSON object a line, `{"type": <the class's tag>, "id": …, "parent": …, "at": …}` plus the fields
of the class. Events are frozen; a new fact is a new event. A new class means deciding in `view.py` what the model sees
of it and in `ui/` what the user sees: both match over the union and mypy reports the missing case."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Block: TypeAlias = dict[str, Any]
"""One content block of the Messages API, kept verbatim (unknown kinds and keys included)."""

Channel: TypeAlias = Literal["text", "thinking", "tool"]
Ending: TypeAlias = Literal["finished", "stopped", "limit", "refused", "failed"]
Mode: TypeAlias = Literal["ask", "auto", "read_only"]
StepState: TypeAlias = Literal["pending", "doing", "done"]
MessageKind: TypeAlias = Literal["text", "shutdown_request", "shutdown_response", "plan_request", "plan_response"]


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """`id` counts from 1 in a journal; `parent` is the event before it (0: the first); `at` is Unix time in seconds.
    `Journal.append` sets all three."""

    id: int = 0
    parent: int = 0
    at: float = 0.0


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens as the server reported them; `prompt` = input + cache_read + cache_write."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """The part of `cache_write` that was written for one hour."""
    output: int = 0
    searches: int = 0
    fetches: int = 0
    """Web searches that the server made within the reply, priced each, and web pages, which cost their tokens alone."""

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write

    @property
    def total(self) -> int:
        return self.prompt + self.output

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class SessionStarted(_Event, frozen=True, tag=True):
    """First event of a journal. `notebook` is relative to the project ("" when unknown), `label` what the user
    calls this branch ("": nothing), `signed` what only this user's own folder can say of the session's id ("" for
    one in which no user speaks, or of an earlier version)."""

    session: str
    version: str
    notebook: str = ""
    forked_from: str = ""
    forked_at: int = 0
    label: str = ""
    signed: str = ""


class KernelStarted(_Event, frozen=True, tag=True):
    """A kernel process begins to append. `stamp` names the process, never reused."""

    stamp: str
    python: str = ""
    resumed: bool = False


class SystemPromptFrozen(_Event, frozen=True, tag="PromptRendered"):
    """The head of every request from here on, byte for byte: system blocks and tools."""

    system: tuple[Block, ...]
    tools: tuple[Block, ...]
    tokens: int = 0
    tool_tokens: int = 0
    """Estimated tokens of both, and of the tools alone."""
    why: str = ""
    """Why another head took the place of the one before ("" for the first, and for a tool of the user's)."""
    compaction: int = 0
    """The event of the compaction behind which it was rendered, 0 for any other reason: taken back, it takes this
    head with it."""
    memories: tuple[str, ...] = ()
    """Paths of the memories that stand in it in full."""


class ModelChosen(_Event, frozen=True, tag=True):
    """Requests go to this model from here on; thinking of an earlier model leaves the view."""

    model: str
    window: int = 0
    max_output: int = 0
    named: bool = False
    """The user named it for this session and what follows, not for one request."""


class UserMessage(_Event, frozen=True, tag="UserSaid"):
    """A request of the user. `text` is the cell's body as typed; `blocks` what the model gets
    (attachments and reminders included); `cell` the notebook cell's id ("" when unknown); `own` what of `text` the
    user typed where a command of ours wrote the rest (None: all of it)."""

    text: str
    blocks: tuple[Block, ...]
    cell: str = ""
    tokens: int = 0
    own: str | None = None

    @property
    def said(self) -> str:
        """The user's own words in it."""
        return self.text if self.own is None else self.own


class SystemReminder(_Event, frozen=True, tag="Reminded"):
    """A note of ours to the model, as a text block of the user side. `why` is for the user; `layer` and
    `upto`: the layer that says so, and the newest event that the note covers."""

    text: str
    why: str = ""
    tokens: int = 0
    layer: str = ""
    upto: int = 0


class Streamed(_Event, frozen=True, tag=True):
    """A piece of text on its way: on disk before it is shown, superseded by the whole that
    follows (`AssistantMessage`, `ToolReturned`). `ref` is the tool call's id for channel "tool"."""

    channel: Channel
    text: str
    ref: str = ""


STOPPED = "stopped"
"""Why a reply ends that the user stopped."""


class AssistantMessage(_Event, frozen=True, tag="AssistantSaid"):
    """A reply of the model: complete blocks only. `partial`: it was cut; `stop_reason` is then STOPPED when the
    user did that, else "" (crash, broken stream)."""

    blocks: tuple[Block, ...]
    stop_reason: str = ""
    model: str = ""
    message_id: str = ""
    partial: bool = False
    tokens: int = 0
    seconds: float = 0.0


class UsageReported(_Event, frozen=True, tag=True):
    """What the server counted for the reply just before. `cost` in US dollars (None: no price
    known); `predicted` is our count of the prompt before it was sent, `raw` the part of it that
    was an uncalibrated estimate; `billed` all that is paid for, where that is more (within the request the server
    compacted, or read the prompt again after a search); `stopped`: no whole reply came, `usage` is what the server
    counted when it began and, for `output`, our estimate of what had come; `searched`: the reply holds results of
    tools that the provider ran, counted as searches or, where they failed, not."""

    usage: Usage
    cost: float | None = None
    predicted: int = 0
    raw: int = 0
    billed: Usage | None = None
    stopped: bool = False
    searched: bool = False

    @property
    def paid(self) -> Usage:
        """The tokens that the cost is of."""
        return self.billed or self.usage


class ToolCalled(_Event, frozen=True, tag=True):
    """A tool call is about to run (permission is settled)."""

    call: str
    name: str
    input: dict[str, Any]


class ToolReturned(_Event, frozen=True, tag=True):
    """The result of a call, as the model gets it. `note` is a short line for the user
    ("3 files", "exit status 1"); `shown` the number of outputs that the call left in the cell itself. Where the
    model gets a preview of a text kept in a file, `printed` is that text for the person: all of it, or
    beginning and end (three quarters and one), between which `left` characters are left out."""

    call: str
    name: str
    blocks: tuple[Block, ...]
    is_error: bool = False
    seconds: float = 0.0
    tokens: int = 0
    note: str = ""
    shown: int = 0
    printed: str = ""
    left: int = 0


class PermissionAsked(_Event, frozen=True, tag=True):
    """A question to the user, with the exact code, command or diff. `language` is the lexer's name for `text`;
    `pattern` is the rule that "always" would store; `digest` binds the answer to exactly this question. `title` and
    `danger` (why mode auto asks, too) are our words, `said` is what the model says of its call."""

    call: str
    tool: str
    title: str
    text: str
    language: str = ""
    pattern: str = ""
    digest: str = ""
    danger: str = ""
    said: str = ""


class PermissionAnswered(_Event, frozen=True, tag=True):
    """`answer`: "once", "always" or "deny". `by`: "user", "rule", "mode", "headless", "stop"."""

    call: str
    answer: Literal["once", "always", "deny"]
    by: str
    reason: str = ""


class FileChanged(_Event, frozen=True, tag=True):
    """A tool wrote a file. `path` is relative to the project where it can be; `backup` names the
    copy of the old content beside the transcript ("" when the file is new); `digest` is the
    SHA-256 of the new content ("" when it was deleted). `mode`: its permission bits before (0: not kept). `begun`: code
    is about to change it, and what it left there a later event of the call tells."""

    call: str
    path: str
    backup: str = ""
    digest: str = ""
    mode: int = 0
    begun: bool = False


class FilesRestored(_Event, frozen=True, tag=True):
    """`%agent undo` put these files back as they were before `FileChanged` event `since`; that turn is over with, also
    for the files it had to leave alone. `upto`: turns later than that of event `upto` are not (0: all are)."""

    paths: tuple[str, ...]
    since: int
    upto: int = 0


class Retrying(_Event, frozen=True, tag=True):
    """A request failed and goes out again in `seconds`."""

    reason: str
    seconds: float
    attempt: int = 1


class ThinkingDropped(_Event, frozen=True, tag=True):
    """Thinking of every reply up to event `upto` leaves the view (`why`: model changed, …)."""

    upto: int
    why: str = ""


class BlockDropped(_Event, frozen=True, tag=True):
    """The server refused the image or document blocks of event `event` (`why`): the view names them in brackets."""

    event: int
    why: str = ""


class ResultStored(_Event, frozen=True, tag=True):
    """A result is kept whole in a file beside the transcript. `path` is relative to the session's folder; `handle`
    names the live object in the kernel ("" when there is none). `blocks`, if any, take the place of the result's
    content in the view (a preview); without them the result came as its preview already. `tokens` are those of the
    preview: 0 for a picture, which stays in the context and is kept in a file besides."""

    call: str
    path: str
    chars: int
    lines: int = 0
    handle: str = ""
    blocks: tuple[Block, ...] = ()
    tokens: int = 0


class ResultsCleared(_Event, frozen=True, tag=True):
    """Old results leave the view: each becomes `text`, with `{tool}` for the tool's name. `layer`
    says who decided, `saved` the estimated tokens that went. One that is kept in a file says so, with
    its path under `place`, the session's folder as the model's tools name it; `kept` is the file that holds
    the others, "" when none does, and stands for `{kept}`. `asked`: the user asked for it, so that it can
    be taken back; one that a layer made by itself would only be made again. `contexts`: events behind the first of
    the results whose `<context>` block becomes the text beside them, without what later blocks tell anew."""

    calls: tuple[str, ...]
    text: str
    layer: str
    saved: int = 0
    place: str = ""
    kept: str = ""
    asked: bool = False
    contexts: tuple[tuple[int, str], ...] = ()


class Compacted(_Event, frozen=True, tag=True):
    """Events `first` to `last` leave the view, `blocks` stand in their place (summary, what was
    restored). `trigger`: "auto", "manual", "model" or "reactive"; `method`: "summary", "notes" or
    "server". Tokens are those of the whole prompt before and after, estimated."""

    trigger: str
    method: str
    first: int
    last: int
    blocks: tuple[Block, ...]
    tokens_before: int = 0
    tokens_after: int = 0
    restored: tuple[str, ...] = ()
    """What was put back after the summary, for the user: "file a.csv", "variables"."""
    asked: tuple[int, int] = (0, 0)
    """Which of `blocks` are the request that was being worked on, with what is said of it: from, and up to before."""
    paid_back: int | None = None
    """After how many requests it has saved what it cost: the cache written anew, and a model call, if any; None when no
    price is known."""


class TurnsRemoved(_Event, frozen=True, tag="Snipped"):
    """Events `first` to `last` leave the view; `blocks` say so in their place."""

    first: int
    last: int
    blocks: tuple[Block, ...]
    saved: int = 0


class TurnCollapsed(_Event, frozen=True, tag="Collapsed"):
    """A finished piece of work, events `first` to `last`, is shown as its short summary `blocks`."""

    first: int
    last: int
    blocks: tuple[Block, ...]
    saved: int = 0


class DecisionUndone(_Event, frozen=True, tag=True):
    """The newest standing Compacted, TurnsRemoved, TurnCollapsed or asked-for ResultsCleared, event `event`, is taken
    back: what it removed is in the view again."""

    event: int


class NotesWritten(_Event, frozen=True, tag=True):
    """The session's notes cover everything up to event `upto`; `tokens` is their size."""

    upto: int
    tokens: int
    calls: int = 1


class ServerEdited(_Event, frozen=True, tag=True):
    """The server left out parts of the prompt by itself, as asked (`context_management`); `cleared` 0: it leaves out
    nothing any more, they have left the conversation."""

    edit: str
    cleared: int
    tokens: int


class ForkEnded(_Event, frozen=True, tag=True):
    """Background work on a copy of the view: `purpose` "compaction", "notes", …; what it cost. `also`: a second
    purpose that the same requests served; `model` who answered a text of its own in place of the session's model."""

    purpose: str
    status: str
    usage: Usage
    cost: float | None = None
    seconds: float = 0.0
    requests: int = 1
    message: str = ""
    also: str = ""
    model: str = ""


class LayerDecision(_Event, frozen=True, tag="LayerDecided"):
    """What a layer decided and its arithmetic in words, also when it decided to do nothing."""

    layer: str
    words: str
    saved: int = 0
    dollars: float = 0.0


class LayerFailed(_Event, frozen=True, tag=True):
    """A layer could not do its work and stepped aside; `stopped`: it is off for the rest of the session."""

    layer: str
    why: str
    stopped: bool = False


class CacheBroken(_Event, frozen=True, tag=True):
    """Fewer tokens were read from cache than there were, and why; a recorded decision caused `expected` breaks."""

    cause: str
    missed: int
    expected: bool = False


class Recalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One memory that was shown to the model: its `path` as the memory tool names it, the one line that
    describes it, `why` it was picked and with what `score`, `age` in days, `chars` that were shown."""

    path: str
    description: str = ""
    why: str = ""
    score: float = 0.0
    age: int = 0
    chars: int = 0


class MemorySurfaced(_Event, frozen=True, tag=True):
    """Memories are in the context from here on, as our note `text`. `by`: "selector" (a small model) or "ranking"."""

    memories: tuple[Recalled, ...]
    text: str
    by: str = "ranking"
    tokens: int = 0
    seconds: float = 0.0


class MemoryDismissed(_Event, frozen=True, tag=True):
    """The user clicked a memory away: it does not come again in this session. What was sent stays."""

    path: str


class MemorySaved(_Event, frozen=True, tag=True):
    """A memory was written. `change`: "created", "changed", "deleted", "renamed" (to `path`, from `old`) or
    "restored"; `by`: "agent", "extraction", "dream" or "user"; `revision` names the version before in the
    memory's history ("" when there was none), which undoes it. `undoes`: the event that this takes back (0: none)."""

    path: str
    change: str
    by: str
    old: str = ""
    revision: str = ""
    undoes: int = 0


class MemoryExtracted(_Event, frozen=True, tag=True):
    """All that was said up to event `upto` has been looked through for what is worth remembering; `files` were
    written then. `why` tells why nobody had to look ("the agent saved memories itself")."""

    upto: int
    files: tuple[str, ...] = ()
    why: str = ""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of a plan, in a line of text."""

    text: str
    state: StepState = "pending"


class PlanWritten(_Event, frozen=True, tag=True):
    """The model's plan from here on, written by the tool call `call`; it takes the place of the one before.
    No steps: there is no plan now."""

    steps: tuple[Step, ...]
    call: str = ""


class SkillLoaded(_Event, frozen=True, tag=True):
    """A skill's instructions stand in the context from here on. `digest` names the version of its body; `by`:
    "model" (the tool's result has them) or "user" (`text` has them); `cut`: only the beginning of the body;
    `counted`: our estimate as the session's prompt was counted then, for the user (0: as `tokens`)."""

    name: str
    folder: str
    digest: str
    by: Literal["model", "user"] = "model"
    text: str = ""
    tokens: int = 0
    cut: bool = False
    counted: int = 0


class SkillsListed(_Event, frozen=True, tag=True):
    """From here on the model knows of these skills: name and the digest of its description, and in `loaded`
    the digests of the bodies that it was told have changed. `text` tells it so ("": they stand in the head);
    `why` is for the user."""

    skills: dict[str, str]
    loaded: dict[str, str] = {}
    text: str = ""
    why: str = ""
    tokens: int = 0


class ChildStarted(_Event, frozen=True, tag=True):
    """A sub-agent begins. `child` is its id and the name of its folder under `children/`; `name` what it is
    called while it runs; `kind` its type; `task` a few words; `call` the tool call that asked for it."""

    child: str
    name: str
    kind: str
    task: str
    call: str = ""
    model: str = ""
    background: bool = False
    resumed: bool = False


class ChildProgress(_Event, frozen=True, tag=True):
    """What a running sub-agent is about, in a few words."""

    child: str
    text: str


class ChildEnded(_Event, frozen=True, tag=True):
    """A sub-agent ended. `handed` are the names that it left in the user's namespace; `text` is what the model is
    still to be told of one that ran in the background ("": its tool call told it)."""

    child: str
    status: Ending
    message: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    requests: int = 0
    seconds: float = 0.0
    handed: tuple[str, ...] = ()
    text: str = ""


class MessageReceived(_Event, frozen=True, tag=True):
    """Another agent wrote to this one: `text` is what the model reads of it, `said` the words themselves. `message`
    is its id, which is taken in once; `session` the session that the writer works in."""

    message: str
    sender: str
    text: str
    said: str = ""
    kind: MessageKind = "text"
    summary: str = ""
    session: str = ""
    tokens: int = 0


class MessageSent(_Event, frozen=True, tag=True):
    """This agent wrote to others, by the tool call `call`; `to` names them."""

    message: str
    to: tuple[str, ...]
    said: str = ""
    kind: MessageKind = "text"
    summary: str = ""
    call: str = ""


class PartEvent(_Event, frozen=True, tag=True):
    """What a part of the agent (a capability, `ipyagent.parts`) notes: `part` its name, `kind` and `data` its own.
    `text`, if any, is what the model reads of it from here on; `why` is for the user."""

    part: str
    kind: str
    data: dict[str, Any] = {}
    text: str = ""
    why: str = ""
    tokens: int = 0


class TurnEnded(_Event, frozen=True, tag=True):
    """How the turn ended. `message` is one line for the user ("" when finished); `variables`
    maps each name in the user's namespace to a short type, as it was at this moment."""

    status: Ending
    message: str = ""
    seconds: float = 0.0
    variables: dict[str, str] = {}


OutOfPrompt: TypeAlias = (
    SessionStarted | KernelStarted | PermissionAsked | PermissionAnswered | FileChanged | FilesRestored | Retrying
    | NotesWritten | ForkEnded | LayerDecision | LayerFailed | CacheBroken | MemoryDismissed | MemorySaved
    | MemoryExtracted | PlanWritten | ChildStarted | ChildProgress | ChildEnded | MessageSent
)  # fmt: skip
"""What the model sees nothing of."""
Event: TypeAlias = (
    OutOfPrompt | SystemPromptFrozen | ModelChosen | UserMessage | SystemReminder | Streamed | AssistantMessage
    | UsageReported | ToolCalled | ToolReturned | ThinkingDropped | BlockDropped | ResultStored | ResultsCleared
    | Compacted | TurnsRemoved | TurnCollapsed | DecisionUndone | ServerEdited | MemorySurfaced | SkillLoaded
    | SkillsListed | MessageReceived | PartEvent | TurnEnded
)  # fmt: skip
