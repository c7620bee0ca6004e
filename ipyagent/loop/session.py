"""A session at work: its journal, its view, and those who watch. Journal first, then view, then show."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeVar

import msgspec

from ipyagent.context.clear_results import CLEAR_THINKING, clearing_edits, server_asked
from ipyagent.context.server_compaction import compaction_edit
from ipyagent.errors import JournalError, ModelError
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    Event,
    LayerFailed,
    PermissionAnswered,
    PermissionAsked,
    SessionStarted,
    Streamed,
    ThinkingDropped,
    ToolReturned,
    TurnEnded,
)
from ipyagent.journal.journal import Journal, Problem, Start, clean
from ipyagent.journal.open_calls import CUT_OFF, NOT_RUN
from ipyagent.journal.protocols import (
    Model,
    ModelInfo,
    PermissionAnswer,
    Rates,
    Surface,
    Tool,
    TurnStatus,
    WindowState,
    Workspace,
)
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.journal.view import CUT_MARK, ContextView
from ipyagent.kernel.interrupts import held_sigint
from ipyagent.loop.background import Background
from ipyagent.loop.cache_monitor import CacheWatch
from ipyagent.loop.checkpoint import Checkpoint, Moved, Replayed
from ipyagent.loop.permissions import Permissions
from ipyagent.loop.redacting import entering
from ipyagent.loop.session_state import F, Folded, SessionState
from ipyagent.model.endpoint import own_keys
from ipyagent.model.prices import rates_of
from ipyagent.redaction import Redactor
from ipyagent.tools.answers import capped
from ipyagent.tools.catalogue import ToolCall

E = TypeVar("E", bound=Event)
T = TypeVar("T")

CUT_CHARS = 25_000
"""Characters that are kept of what a call had shown before it was cut off."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that one turn keeps to (settings of the same names)."""

    max_turns: int = 50
    max_tokens: int = 32_000
    effort: str = ""
    prompt_cache: bool = True
    cache_ttl: str = "5m"
    max_cost: float = 0.0
    max_cost_per_day: float = 0.0


class Session:
    """What the loop works on. Everything that happens goes through `record`.

    Made by `create`, `open` or `fork`; `connect` gives it a model before the first turn.
    """

    def __init__(self, journal: Journal, state: Replayed, checkpoint: Checkpoint | None = None) -> None:
        self.journal = journal
        self.view: ContextView = state.view
        self.history: SessionState = state.history
        self.tools: dict[str, Tool] = {}
        self.limits = Limits()
        self.surface: Surface | None = None
        self.heard: list[Callable[[Event], None]] = []
        """Told of each event once it is journalled, on whatever thread recorded it."""
        self.told: set[str] = set()
        """What is said to the user once only."""
        self.consented: dict[str, Literal["user", "rule", "recorded"]] = {}
        """Calls that the user allowed: by an answer, by a rule, or when they were recorded."""
        self.turn_cost: float | None = 0.0
        """Dollars since `begin_costs`; None once a price was not known."""
        self._paid_before = 0.0
        self.waited: dict[str, float] = {}
        """By a running call, the seconds that its questions stood."""
        self.info = ModelInfo(model="", window=0, max_output=0)
        """The model that is connected; before that what the journal tells of its newest one."""
        self.setting: Callable[[str], Any] = _no_setting
        self.restoring: Callable[[Workspace], Awaitable[list[tuple[str, str]]]] = _nothing
        self.redact = Redactor(known=own_keys)
        """Takes what looks like a secret out of what enters the session."""
        self.hold: Callable[[str, Any], str] | None = None
        """Keep a call's object alive; its handle."""
        self.renewed: Callable[[], Sequence[Event]] = tuple
        """The head that comes with a compaction of all messages, see
        `SystemPromptBuilder.after_compaction`."""
        self._compacting: Callable[[], Awaitable[None]] | None = None
        self._kept: dict[type[Any], Any] = {}
        self.background = Background()
        """Work that goes on after the turn, on the agent thread."""
        self.watch: CacheWatch = state.watch
        self._replayed = state
        self._checkpoint = checkpoint or Checkpoint(journal.folder)
        self._saving = Lock()
        """Held while a checkpoint is written."""
        self._save_task: asyncio.Task[None] | None = None
        self._closing = False
        self._lock = Lock()
        self._syncing: asyncio.Task[None] | None = None
        """A pass to the disk that has not begun: whatever is journalled by now will be in it."""
        self._firsts: list[Callable[[], Awaitable[None]]] = []
        self._model: Model | None = None
        self._permissions: Permissions | None = None
        self._instead: Callable[[], Awaitable[bool]] | None = None
        self._state: Callable[[ModelInfo, int], WindowState] | None = None

    @classmethod
    def create(
        cls,
        sessions: Path,
        started: SessionStarted,
        *,
        clock: Callable[[], float] = time.time,
        folded: Iterable[type[Folded]] = (),
    ) -> Session:
        """A new, empty session; `clock` gives what time it is in it, `folded` are the states that are kept of it."""
        journal, state = Journal.create(sessions, started, clock=clock), Replayed(clock=clock, folded=folded)
        for event in journal.read():
            state.apply(event)
        return cls(journal, state)

    @classmethod
    def open(
        cls, folder: Path, *, damaged: bool = False, folded: Iterable[type[Folded]] = ()
    ) -> tuple[Session, list[Problem]]:
        """A stored session; its cut-off turn is closed, and where events are missing (`damaged`: it is known) no
        thinking goes out again, for its signature is that of what stood before it. Raises JournalError when it is
        in use."""
        checkpoint, problems = Checkpoint(folder), list[Problem]()
        state, seen = Replayed(damaged=damaged, folded=folded), 0

        def begin() -> Start | None:
            nonlocal state, seen
            if (kept := checkpoint.load()) is None:
                return None
            state, start = kept
            state.damaged |= damaged
            problems.extend(state.problems)
            seen = len(problems)
            return start

        def replay(event: Event) -> None:
            nonlocal seen
            new = problems[seen:] if len(problems) > seen else ()
            state.apply(event, altered=any(problem.altered for problem in new))
            seen += len(new)

        journal, problems = Journal.open(folder, replay, problems, begin)
        state.problems = list(problems)
        state.whole = not any(problem.torn for problem in problems)  # what follows will make it another problem
        session = cls(journal, state, checkpoint)
        chosen, history = state.chosen, state.history
        told = "session" if chosen.window else ""
        session.info = ModelInfo(
            model=chosen.model, window=chosen.window, max_output=chosen.max_output, source=told
        )
        ended = TurnEnded(status="stopped", message="cut off: the kernel stopped", variables=history.variables)
        try:
            if state.damaged and state.view.has_thinking:
                last = state.last.id if state.last is not None else 0
                session.record(ThinkingDropped(upto=last, why="the transcript is damaged"))
            if history.unfinished:
                session.close_open("The kernel stopped.")
                session.end(ended)
                what = "the last turn was cut off by a crash; it is closed"
                problems.append(Problem(journal.path, journal.last, what))
        except JournalError:
            journal.close()
            raise
        return session, problems

    @classmethod
    def fork(
        cls,
        source: Path,
        sessions: Path,
        started: SessionStarted,
        upto: int = 0,
        *,
        folded: Iterable[type[Folded]] = (),
    ) -> tuple[Session, list[Problem]]:
        """A new session that begins as a copy of another, up to event `upto` (0: all)."""
        journal, problems = Journal.fork(source, sessions, started, upto)
        journal.close()
        session, later = cls.open(
            journal.folder, damaged=any(not problem.torn for problem in problems), folded=folded
        )
        return session, [*problems, *later]

    def __repr__(self) -> str:
        return f"<Session {self.journal.session} on {self.info.model or 'no model'}>"

    def connect(
        self,
        model: Model | None,
        info: ModelInfo,
        *,
        tools: dict[str, Tool],
        permissions: Permissions,
        limits: Limits,
        state: Callable[[ModelInfo, int], WindowState] | None,
        setting: Callable[[str], Any],
        restoring: Callable[[Workspace], Awaitable[list[tuple[str, str]]]] | None = None,
        renewed: Callable[[], Sequence[Event]] | None = None,
        hold: Callable[[str, Any], str] | None = None,
        instead: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Give the session what its next turn works with (without a model: what calls alone work with). `state` tells
        where a model's window stands at a number of tokens, `setting` a setting by its name, `restoring` what should
        stand after a summary, `renewed` gives the head that comes with one of all messages, `hold` keeps the object of
        a call alive and gives its handle (None: these as before); `instead` connects it to another model where the
        server does not have this one, and says whether there is one."""
        self._instead = instead
        self._model, self.info, self.tools = model, info, tools
        self.setting, self.restoring = setting, restoring or self.restoring
        self.renewed, self.hold = renewed or self.renewed, hold or self.hold
        self._permissions, self.limits, self._state = permissions, limits, state

    @property
    def connected(self) -> bool:
        """Whether the session has a model to work with."""
        return self._model is not None

    @property
    def model(self) -> Model:
        if self._model is None:
            raise ModelError("no model is connected to this session: run a %%agent cell")
        return self._model

    @property
    def permissions(self) -> Permissions:
        if self._permissions is None:
            raise ModelError("no model is connected to this session: run a %%agent cell")
        return self._permissions

    def tool_of(self, call: Block) -> Tool | None:
        """The tool that a call is for, also when it is called through another one; None when there is no such tool."""
        tool = self.tools.get(str(call["name"]))
        return tool.meant(call["input"]) if isinstance(tool, ToolCall) else tool

    def state(self, tokens: int) -> WindowState:
        """Where the window stands at `tokens` tokens of prompt."""
        if self._state is None:
            raise ModelError("no model is connected to this session: run a %%agent cell")
        return self._state(self.info, tokens)

    async def take_another(self) -> bool:
        """Go on with another model, for the server does not have this one; whether there is one."""
        return self._instead is not None and await self._instead()

    def heed(self) -> None:
        """Take in what has come to be known of the model's window and largest reply since the session was connected:
        from a refusal, from an answer that took its time, from what the server counts."""
        known, mine = self.model.known(self.info.model), self.info
        if known is not None and (known.window, known.max_output) != (mine.window, mine.max_output):
            self.info = msgspec.structs.replace(
                mine, window=known.window, max_output=known.max_output, source=known.source
            )

    def holds(self, window: int) -> bool:
        """Whether system prompt and tools would leave a quarter of a window of so many tokens to the conversation."""
        if self._state is None:
            return False
        state = self._state(msgspec.structs.replace(self.info, window=window), 0)
        return 4 * self.view.head_tokens < 3 * state.block_mark

    def rates(self) -> Rates:
        """Dollars a token of the session's model; zeros when no price is known."""
        return rates_of(self.info.model, self.limits.cache_ttl, self.view.count().tokens, self.info.server)

    @property
    def dear(self) -> bool:
        """Whether work in the background has taken more than its share of the money (`background_percent`)."""
        history = self.history
        share = history.background_share if history.totals.cost else None
        return share is not None and share > self.setting("background_percent") / 100

    def server_edits(self) -> dict[str, Any] | None:
        """What the server is asked to leave out of the next prompt by itself; None when we do it."""
        state = self.state(self.view.count().tokens)
        edits: list[dict[str, Any]] = []
        if server_asked(self.setting, state, edits=self.info.edits, bound_thinking=self.info.thinking):
            recreatable = [name for name, tool in self.tools.items() if tool.recreatable]
            before = self.history.server_edits.get(CLEAR_THINKING)
            dropped = before.cleared if before is not None else 0
            edits += clearing_edits(self.setting, self.view, state, recreatable=recreatable, dropped=dropped)
        if self.info.compaction and (edit := compaction_edit(self.setting, state, self.view)) is not None:
            edits.append(edit)
        return {"edits": edits} if edits else None

    @contextmanager
    def shown_on(self, surface: Surface) -> Iterator[None]:
        """Events go to `surface` within, unless another one has taken its place."""
        self.surface = surface
        try:
            yield
        finally:
            self.hide(surface)

    def hide(self, surface: Surface | None) -> None:
        """Show nothing on `surface` any more; another one that events go to stays."""
        if self.surface is surface:
            self.surface = None

    def before_compaction(self, look: Callable[[], Awaitable[None]]) -> None:
        """Have `look` awaited before messages give way to a compaction: the last moment to look at them, and what it
        records stands before the head that comes with it."""
        self._compacting = look

    async def compacting(self) -> None:
        """Messages are about to give way to a compaction, see `before_compaction`."""
        if self._compacting is not None:
            await self._compacting()

    def kept(self, kind: type[T], make: Callable[[], T]) -> T:
        """What a part keeps with the session, made once, and let go of with it."""
        if kind not in self._kept:
            self._kept[kind] = make()
        found: T = self._kept[kind]
        return found

    @contextmanager
    def first(self, function: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Within, `function` is awaited before each request of a turn, the newest first: what came in beside the
        turn may be journalled then."""
        self._firsts.insert(0, function)
        try:
            yield
        finally:
            self._firsts.remove(function)

    async def before_request(self) -> None:
        """What comes before a request, see `first`."""
        for function in tuple(self._firsts):
            await function()

    def record(self, event: E) -> E:
        """Journal an event without its secrets, let the view take it in, then show it; returns it with its id. A
        question to the user is shown and returned as it was put: it says exactly what would run."""
        with held_sigint():  # between turns the main thread records too: journalled, applied and shown, or not at all
            with self._lock:  # and it does while background work goes on
                made = self.journal.append(entering(event, self.redact))
                state = self._replayed
                whole, state.whole = state.whole and state.last is not None and made.parent == state.last.id, False
                state.apply(made)
                state.whole = whole
            if isinstance(event, PermissionAsked) and isinstance(made, PermissionAsked):
                made = msgspec.structs.replace(made, title=event.title, text=event.text, pattern=event.pattern)
            if self.surface is not None:
                self.surface.show(made)
            for tell in tuple(self.heard):
                tell(made)
        if isinstance(event, TurnEnded):
            self._save_soon()
        return made

    async def ask(
        self,
        question: PermissionAsked,
        call: str = "",
        settled: Callable[[PermissionAnswer], Awaitable[PermissionAnswer]] | None = None,
    ) -> PermissionAnswer:
        """Put a question to the user and journal both; for whoever knows that somebody can be asked. The call is not
        charged for the user's time (`waited`); `settled` makes of the answer the one that holds."""
        asked = self.record(question)
        await self.synced()
        self.show_phase("waiting for your answer")
        began = time.monotonic()
        try:
            try:
                assert self.surface is not None
                answer = await self.surface.ask(asked)
            finally:
                self.waited[call] = self.waited.get(call, 0.0) + time.monotonic() - began
            answer = answer if settled is None else await settled(answer)
        except asyncio.CancelledError:
            self.record(PermissionAnswered(call=asked.call, answer="deny", by="stop"))
            raise
        reason = clean(answer.reason)
        self.record(PermissionAnswered(call=asked.call, answer=answer.answer, by=answer.by, reason=reason))
        return answer

    def show_phase(self, phase: str) -> None:
        """Tell the surface what is going on now and where window and cost stand."""
        if self.surface is not None:
            self.surface.status(self.status(phase))

    def status(self, phase: str = "") -> TurnStatus:
        """The session in one glance."""
        totals = self.history.totals
        return TurnStatus(
            phase=phase,
            model=self.info.model,
            window=self.state(self.view.count().tokens) if self._state is not None else None,
            cost=totals.cost,
            turn_cost=self.turn_cost,
            tokens_read=totals.usage.cache_read,
            tokens_prompt=totals.usage.prompt,
        )

    def begin_costs(self) -> None:
        """Count what is paid from here on as one request's."""
        self.turn_cost, self._paid_before = 0.0, self.history.at_most

    @property
    def turn_at_most(self) -> float:
        """Dollars since `begin_costs` for a limit; where no price is known, at the dearest of the price table."""
        return self.turn_cost if self.turn_cost is not None else self.history.at_most - self._paid_before

    def report_hook(self, why: str) -> None:
        """A hook of the user's raised: say so, and go on."""
        self.record(LayerFailed(layer="hooks", why=" ".join(why.split())[:400]))

    def folded(self, kind: type[F]) -> F:
        """What the events of the session add up to for a part, a state of its own class `kind`. One that nobody has
        asked for yet is read from the journal, and kept from then on."""
        found = self.history.folded.get(kind)
        if found is None:
            with self._lock:
                found = self.history.folded.get(kind)
                if found is None:
                    found = kind()
                    for event in self.journal.read():
                        if not isinstance(event, Streamed):
                            found.apply(event)
                    self.history.folded[kind] = found
        assert isinstance(found, kind)
        return found

    def close_open(self, why: str, stop_reason: str = "") -> None:
        """Close every open call with an error result that says `why`, then a half-said reply."""
        for call, name in self.view.open_calls.items():
            running = call in self.view.calls.begun
            output = capped(self.view.calls.output(call).strip(), CUT_CHARS)
            body = f"{CUT_OFF if running else f'{NOT_RUN}.'} {why}"
            body += f"\nOutput until then:\n{output}" if output else ""
            self.record(
                ToolReturned(
                    call=call,
                    name=name,
                    blocks=({"type": "text", "text": body},),
                    is_error=True,
                    tokens=estimate_text(body),
                    note="cut off" if running else "not run",
                )
            )
        text = self.view.partial_text
        if text.strip():
            blocks = ({"type": "text", "text": f"{clean(text)}\n{CUT_MARK}"},)
            cut = AssistantMessage(blocks=blocks, stop_reason=stop_reason, partial=True, tokens=estimate_blocks(blocks))
            self.record(cut)

    async def synced(self) -> None:
        """Have the journal on the disk itself, while the agent thread goes on: nobody knows how long a disk takes.
        Those that ask at once share one pass and go on in the order in which they asked. Raises JournalError."""
        if self._syncing is None or self._syncing.get_loop() is not asyncio.get_running_loop():
            self._syncing = asyncio.ensure_future(self._sync())
        await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        self._syncing = None
        await asyncio.to_thread(self.journal.sync)

    def end(self, ended: TurnEnded) -> TurnEnded:
        """Journal the end of a turn and have it on the disk."""
        made = self.record(ended)
        self.journal.sync()
        return made

    def close(self) -> None:
        """End background work and let go of the journal."""
        self._closing = True
        self.background.close()
        with self._saving, self._lock:  # nobody is in the middle of an event
            closed = self.journal.closed
            try:
                if not closed and self._checkpoint.due(self.journal.size, closing=True):
                    self._checkpoint.save(self._replayed, self.journal.size, lambda: None)
            finally:
                self.journal.close()

    def _save_soon(self) -> None:
        """Write a checkpoint beside the next events, if the session has grown enough since the last one."""
        if self._checkpoint.due(self.journal.size) and (self._save_task is None or self._save_task.done()):
            with suppress(RuntimeError):  # no loop runs here: closing writes it
                self._save_task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._save))

    def _save(self) -> None:
        """Keep the state as it is now, or, when it changes meanwhile, leave it to the next turn's end. No lock that
        an event waits for is held."""
        state = self._replayed
        with self._lock:
            last, size, folded = state.last, self.journal.size, tuple(self.history.folded.values())
            versions = [getattr(each, "version", None) for each in folded]

        def check() -> None:
            if self._closing or not state.whole or state.last is not last:
                raise Moved
            now = [getattr(each, "version", None) for each in folded]
            if now != versions or any(version and version[0] for version in versions):
                raise Moved

        with self._saving:
            self._checkpoint.save(state, size, check)


def _no_setting(name: str) -> Any:
    raise ModelError("no model is connected to this session: run a %%agent cell")


async def _nothing(workspace: Workspace) -> list[tuple[str, str]]:
    return []
