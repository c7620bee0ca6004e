"""One sub-agent while it lives: what it is called, what it is about, what it has cost, who wrote to it."""

from __future__ import annotations

import asyncio
import keyword
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

import msgspec

from ipyagent.assembly.requests import NullSurface
from ipyagent.errors import ModelError, NoSuchPath, ToolFailure, UnknownModel
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    Ending,
    Event,
    ForkEnded,
    PermissionAnswered,
    PermissionAsked,
    SessionStarted,
    ToolCalled,
    ToolReturned,
    Usage,
    UsageReported,
)
from ipyagent.journal.journal import CHILDREN, Journal
from ipyagent.journal.protocols import Execution, Model, PermissionAnswer, Request, TurnStatus
from ipyagent.journal.tokens import estimate_text
from ipyagent.kernel.dispatcher import MainThreadProxy
from ipyagent.kernel.interrupts import Watching
from ipyagent.kernel.scope import IsolatedNamespace
from ipyagent.kernel.variables import short_types
from ipyagent.loop.checkpoint import Replayed
from ipyagent.loop.fork import answer_to
from ipyagent.loop.mailbox import SHUT_DOWN, MailMessage, received
from ipyagent.loop.session import Session
from ipyagent.model.prices import at_most
from ipyagent.parts.subagents.types import SubagentType, words

# ---- A fork's session: a copy of its parent's up to one point, every open call closed with the same words. Forks
# of one message share the point, so that their requests are equal to the byte up to the directive; the prefix that
# the parent's own request has written to the cache is read from it.

MARK = "<fork-task>"
"""Begins a fork's directive; a conversation with such a block cannot fork."""
PLACEHOLDER = "A fork of you works on this."
REFUSED = "You are a fork, and a fork cannot start sub-agents: do the work yourself, with the other tools."


class Points:
    """Where the forks of a session's newest message branch off."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: tuple[tuple[int, int], int] = ((0, -1), 0)

    def point(self, call: str) -> int:
        """The event up to which a fork asked for by `call` knows all: the same for all calls beside it."""
        key = self._place(call)
        if self._known[0] != key:
            self._known = (key, self._session.journal.last)
        return self._known[1]

    def _place(self, call: str) -> tuple[int, int]:
        """The message with this call, and which of its groups of calls that run side by side."""
        session = self._session
        placed = [(block, event) for role, block, event in session.view.placed() if role == "assistant"]
        said = next((event for block, event in reversed(placed) if block.get("id") == call), 0)
        calls = [block for block, event in placed if event == said and block["type"] == "tool_use"]

        def side_by_side(block: Block) -> bool:
            tool = session.tool_of(block)
            return tool is not None and tool.parallel

        for number, (_, group) in enumerate(groupby(calls, key=side_by_side)):
            if any(block["id"] == call for block in group):
                return said, number
        return said, -1


def is_fork(session: Session) -> bool:
    """Whether the conversation is a fork's: the mark stands in it, or it says so of itself."""
    for message in session.view.messages:
        if message["role"] == "user" and any(
            block["type"] == "text" and str(block["text"]).startswith(MARK) for block in message["content"]
        ):
            return True
    started = session.history.started
    return started is not None and started.session == session.journal.session and bool(started.forked_at)


def forked(parent: Session, started: SessionStarted) -> Session:
    """The session of a fork, ready for its directive. Raises JournalError."""
    source = parent.journal.folder
    journal, _ = Journal.fork(source, source / CHILDREN, started, started.forked_at)
    state = Replayed()
    try:
        for event in journal.read():
            state.apply(event)
        session = Session(journal, state)
        for call, name in state.view.open_calls.items():
            said = ({"type": "text", "text": PLACEHOLDER},)
            session.record(ToolReturned(call=call, name=name, blocks=said, tokens=estimate_text(PLACEHOLDER)))
    except BaseException:
        journal.close()
        raise
    return session


def directive(name: str, prompt: str) -> Block:
    """The one block in which forks of one message differ."""
    return text_block(f"{MARK}\n{words('fork').format(name=name)}\n\nThe work:\n{prompt.strip()}\n</fork-task>")


def refuse_forks(session: Session) -> None:
    """Raises ToolFailure in a fork, before anything is sent."""
    if is_fork(session):
        raise ToolFailure(REFUSED)


def folder_of(parent: Session) -> Path:
    """Where the sub-agents of a session keep their transcripts."""
    return parent.journal.folder / CHILDREN


# ---- What a sub-agent hands back: values under names, put into the user's namespace once it has ended well.
# Nothing of the user's is overwritten: a name that stands for something else gets a number.

NAME = "hand_back"
_KEPT = re.compile(r"_.*|In|Out|exit|quit|get_ipython|hand_back")


class ReturnedVariables:
    """The values that one sub-agent wants to hand back. Used on the main thread."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._namespace: Callable[[], Mapping[str, Any]] = dict

    def function(self, namespace: Callable[[], Mapping[str, Any]]) -> Callable[..., None]:
        """`hand_back`, as code of the sub-agent calls it."""
        self._namespace = namespace
        values = self.values

        def hand_back(*names: object, **named: Any) -> None:
            """Give variables to the user: `hand_back("clean")` or `hand_back(clean=df)`."""
            found = dict(named)
            for name in names:
                if not isinstance(name, str):
                    how = 'hand_back("clean") or hand_back(clean=df)'
                    raise TypeError(f"hand_back takes names, not a {type(name).__name__}: write {how}")
                if name not in namespace():
                    raise NameError(f"hand_back: there is no variable {name!r}; write hand_back(name=value)")
                found[name] = namespace()[name]
            for name in found:
                if not name.isidentifier() or keyword.iskeyword(name) or _KEPT.fullmatch(name):
                    raise ValueError(f"hand_back: {name!r} cannot be a variable of the user's; choose another name")
            values.update(found)

        return hand_back

    def give(self, namespace: dict[str, Any]) -> dict[str, str]:
        """Put all into the user's namespace; the names they have there with the names they were given."""
        given: dict[str, str] = {}
        for name, value in self.values.items():
            free = name
            number = 2
            while free in namespace and namespace[free] is not value:
                free, number = f"{name}_{number}", number + 1
            namespace[free] = value
            given[free] = name
        self.values.clear()
        return given


def told(given: Mapping[str, str], namespace: Mapping[str, Any]) -> str:
    """One line: "handed back: clean (DataFrame 3 x 2), df_2 (int; `df` was the user's)"."""
    types = short_types({name: namespace[name] for name in given if name in namespace})
    parts = []
    for name, wanted in given.items():
        taken = f"; `{wanted}` was taken" if wanted != name else ""
        parts.append(f"{name} ({types.get(name, 'module')}{taken})")
    return ", ".join(parts)


DOING_CHARS = 400
STANDS = "waits for your next request: its code runs only while one runs"


class Subagent:
    """`id` is its folder's name, `name` what people and agents call it while it runs."""

    def __init__(self, id: str, name: str, kind: SubagentType, task: str, *, background: bool) -> None:
        self.id, self.name, self.kind, self.task, self.background = id, name, kind, task, background
        self.session: Session | None = None
        self.work: asyncio.Task[None] | None = None
        self.scope: IsolatedNamespace | None = None
        self.hands = ReturnedVariables()
        self.inbox: list[MailMessage] = []
        self.closing = False
        """Whether it was told to end its work with the request that is under way."""
        self.parting = False
        """Whether it has said so itself that it ends."""
        self.plan: asyncio.Future[tuple[bool, str]] | None = None
        """The answer to the plan that it has sent, with the reason, while it waits for it."""
        self.asks = asyncio.Event()
        self.status: Ending | None = None
        self.message = ""
        self.answer = ""
        self.handed: tuple[str, ...] = ()
        self.handed_words = ""
        self.usage, self.requests = Usage(), 0
        self.cost: float | None = 0.0
        self.phase = "waiting for its turn"
        self.stands: Callable[[], bool] = lambda: False
        """Whether it waits for the main thread while no turn serves that."""
        self.last: Event | None = None
        self.why = ""
        """Why it was stopped, in words for its parent."""
        self.began = self.touched = time.monotonic()
        self._pauses = 0

    def __repr__(self) -> str:
        return f"<Subagent {self.name} ({self.kind.name}) {self.status or self.phase}>"

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.status is None

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return round(time.monotonic() - self.began, 3)

    @property
    def now(self) -> str:
        """What it is at, in a few words."""
        return STANDS if self.stands() else self.phase

    def stop(self, why: str) -> None:
        """End it; its calls are closed. `why` is for its parent. On the agent thread."""
        if self.running and not self.why:
            self.why = why
            if self.work is not None:
                self.work.cancel()

    def tell(self, letter: MailMessage) -> bool:
        """Have a letter delivered before its next request; whether it still runs."""
        if self.running:
            self.inbox.append(letter)
        return self.running

    async def deliver(self) -> None:
        """What came in is journalled now: its next request has it. One that was told to end and did not is stopped."""
        if self.closing:
            self.stop(SHUT_DOWN)
            await asyncio.sleep(0)
        while self.inbox and self.session is not None:
            letter = self.inbox.pop(0)
            self.closing = self.closing or letter.kind == "shutdown_request"
            self.session.record(received(letter, self.session.redact))

    async def ended_or_asks(self) -> None:
        """Wait until it has ended, or waits for its parent to answer a plan."""
        assert self.work is not None
        asks = asyncio.ensure_future(self.asks.wait())
        try:
            await asyncio.wait((self.work, asks), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asks.cancel()

    # ------------------------------------------------------------------ what it does

    def saw(self, event: Event) -> None:
        """Take in an event of its own."""
        self.touched = time.monotonic()
        match event:
            case UsageReported() | ForkEnded():
                self.requests += event.requests if isinstance(event, ForkEnded) else 1
                self.usage += event.usage if isinstance(event, ForkEnded) else event.paid
                self.cost = None if self.cost is None or event.cost is None else self.cost + event.cost
            case ToolCalled() | AssistantMessage():
                self.last = event
            case _:
                pass

    def doing(self) -> str:
        """Its newest call or words, cut to a few hundred characters."""
        match self.last:
            case ToolCalled():
                given = ", ".join(f"{key}={str(value)[:DOING_CHARS]}" for key, value in self.last.input.items())
                return f"{self.last.name}({given})"[:DOING_CHARS]
            case AssistantMessage():
                texts = [str(block.get("text", "")) for block in self.last.blocks if block.get("type") == "text"]
                calls = [str(block.get("name")) for block in self.last.blocks if block.get("type") == "tool_use"]
                return " ".join([*texts, *calls])[-DOING_CHARS:]
            case _:
                return ""

    # ------------------------------------------------------------------ silence

    @property
    def silent(self) -> float:
        """Seconds since its last sign of work; time in which it had to wait for others does not count."""
        return 0.0 if self._pauses else time.monotonic() - self.touched

    @contextmanager
    def waiting(self, then: Callable[[], None] = lambda: None) -> Iterator[Callable[[], None]]:
        """It has to wait for others, until this is left or what it gives is called; `then` is called once then."""
        self._pauses += 1
        over = False

        def go_on() -> None:
            nonlocal over
            if not over:
                over = True
                self._pauses -= 1
                self.touched = time.monotonic()
                then()

        try:
            yield go_on
        finally:
            go_on()


class SubagentMainThread(MainThreadProxy):
    """The main thread as a sub-agent uses it: while others hold it, that is no silence of its own."""

    def __init__(self, mains: MainThreadProxy, child: Subagent) -> None:
        self._mains, self._child = mains, child
        self._wanted = 0
        child.stands = lambda: self._wanted > 0 and not mains.served

    def __repr__(self) -> str:
        return f"<SubagentMainThread of {self._child.name}>"

    async def run_code(
        self,
        code: str,
        on_output: Callable[[str], None],
        scope: Any = None,
        begun: Callable[[], None] = lambda: None,
        after: Callable[[], None] | None = None,
        watch: Watching | None = None,
    ) -> Execution:
        with self._wanting() as go_on:
            return await self._mains.run_code(code, on_output, scope=scope, begun=go_on, after=after, watch=watch)

    async def call(self, function: Callable[[], Any]) -> Any:
        with self._wanting():
            return await self._mains.call(function)

    def _wanting(self) -> AbstractContextManager[Callable[[], None]]:
        """It wants the main thread, until this is left or what it gives is called."""
        self._wanted += 1
        return self._child.waiting(self._has)

    def _has(self) -> None:
        self._wanted -= 1


NOBODY = "the turn is over and nobody can be asked; do without it, or say so in your answer"


class SubagentSurface(NullSurface):
    """`asking` lets one question of all sub-agents stand at a time; `paid` is told of every cost."""

    def __init__(
        self, child: Subagent, parent: Session, asking: asyncio.Lock, paid: Callable[[float | None, float], None]
    ) -> None:
        self._child, self._parent, self._asking, self._paid = child, parent, asking, paid

    def __repr__(self) -> str:
        return f"<SubagentSurface of {self._child.name}>"

    @property
    def can_ask(self) -> bool:  # type: ignore[override] # of the parent's, as it is now
        surface = self._parent.surface
        return surface is not None and surface.can_ask

    def show(self, event: Event) -> None:
        self._child.saw(event)
        if isinstance(event, UsageReported | ForkEnded):
            usage = event.usage if isinstance(event, ForkEnded) else event.paid
            self._paid(event.cost, at_most(event.cost, usage))

    def status(self, status: TurnStatus) -> None:
        self._child.phase = status.phase

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        parent, child = self._parent, self._child
        with child.waiting():
            async with self._asking:
                surface = parent.surface
                if surface is None or not surface.can_ask:
                    return PermissionAnswer("deny", NOBODY, "headless")
                mine = parent.record(
                    msgspec.structs.replace(
                        asked,
                        id=0,
                        parent=0,
                        at=0.0,
                        call=f"{child.id}:{asked.call}",
                        title=f"A sub-agent asks: {asked.title}",
                        said=f"{child.name}: {asked.said}".removesuffix(": "),  # the model gave it its name
                    )
                )
                try:
                    answer = await surface.ask(mine)
                except asyncio.CancelledError:
                    parent.record(PermissionAnswered(call=mine.call, answer="deny", by="stop"))
                    raise
                parent.record(
                    PermissionAnswered(call=mine.call, answer=answer.answer, by=answer.by, reason=answer.reason)
                )
                return answer


# ------------------------------------------------------------------ progress
# A line on what a sub-agent is about: three to five words of the cheapest model, which has no tools; what it does not
# answer in time or in form is made of the sub-agent's newest call.


PATIENCE = 10.0
MOST_TOKENS = 40
MOST_CHARS = 60
PURPOSE = "progress"
_FORM = re.compile(r"[A-Z]\w*ing(?: \S+){1,6}|\S*正在.{1,30}")
_VERBS = {
    "read_file": "Reading", "grep": "Searching", "glob": "Listing files", "variables": "Looking at variables",
    "write_file": "Writing", "edit_file": "Changing", "python": "Running code", "shell": "Running a command",
    "notebook": "Working on", "memory": "Looking into memory", "load_skill": "Loading the skill",
}  # fmt: skip
_NAMING = ("path", "name", "pattern", "file", "notebook")


async def progress_line(
    child: Subagent,
    model: Model | None,
    name: str,
    record: Callable[[ForkEnded], Any],
    missing: Callable[[str], object],
) -> str:
    """The line; `record` takes what it cost, `missing` the model's name where the server does not have it."""
    if model is None or not name:
        return plain_line(child)
    said = f"<doing>\nTask: {child.task}\nNow: {child.phase}\n{child.doing()}\n</doing>"
    request = Request(
        model=name,
        system=[{"type": "text", "text": words("progress")}],
        tools=[],
        messages=[{"role": "user", "content": [{"type": "text", "text": said}]}],
        max_tokens=MOST_TOKENS,
        thinking=False,
        purpose=PURPOSE,
    )
    answer = ""
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await answer_to(model, request, record)
    except (ModelError, TimeoutError) as problem:
        if isinstance(problem, UnknownModel) and not isinstance(problem, NoSuchPath):
            missing(name)
    line = " ".join(answer.split()).strip(" .\"'`")[:MOST_CHARS]
    return line if _FORM.fullmatch(line) else plain_line(child)


def plain_line(child: Subagent) -> str:
    """The same without a model."""
    last = child.last
    if not isinstance(last, ToolCalled):
        return child.phase[:1].upper() + child.phase[1:] if child.phase else ""
    verb = _VERBS.get(last.name, f"Using {last.name}")
    named = next((str(last.input[key]) for key in _NAMING if last.input.get(key)), "")
    return f"{verb} {PurePath(named).name}".strip()[:MOST_CHARS]
