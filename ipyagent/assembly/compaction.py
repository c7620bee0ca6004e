"""`%compact`: the user's way to make room in the context. All units are turns, counted from 1.

The work runs on the agent thread as a turn does, so Stop and an interrupt end it; what
was decided until then is whole. The answer is one or two lines with the figures before and after."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Unpack

import msgspec

from ipyagent.assembly.compaction_preview import (
    LayerStepResult,
    call_price,
    look,
    paid_words,
    step_text,
    stepped,
)
from ipyagent.assembly.requests import NullSurface, Options
from ipyagent.assembly.settings import endpoint_of, model_of
from ipyagent.context.boundary import Range, whole_turns
from ipyagent.context.removed_content import left_ranges
from ipyagent.context.summarize import PURPOSE, TOO_LITTLE
from ipyagent.context.thresholds import paid_back_words
from ipyagent.errors import AgentError, CompactionFailed, UsageError
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import (
    Compacted,
    DecisionUndone,
    Event,
    ForkEnded,
    LayerDecision,
    LayerFailed,
    TurnCollapsed,
    TurnsRemoved,
)
from ipyagent.journal.protocols import ForkOrder
from ipyagent.loop.context_engine import Asked, Engine
from ipyagent.loop.session import Session
from ipyagent.model.prices import LESSON_MODEL, cost_of, rates_of

if TYPE_CHECKING:
    from ipyagent.assembly.session_setup import SessionSetup
    from ipyagent.assembly.sessions import Sessions
    from ipyagent.journal.protocols import Tool, WindowState
    from ipyagent.kernel.dispatcher import MainThreadExecutor
    from ipyagent.model.client_pool import Connections


# ---- The line of `%compact` and what it asks for.

USAGE = "%compact [instructions] [--from N] [--up-to N] [--snip A:B] [--step] [--dry-run] [--undo]"
NAMES = ("--from", "--up-to", "--snip", "--step", "--dry-run", "--undo")
_PAIR = re.compile(r"(\d+)(?::(\d+))?")


class CompactOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a `%compact` line says. Turns are counted from 1, 0 means open; `snip` is (0, 0) for none."""

    instructions: str = ""
    start: int = 0
    upto: int = 0
    snip: tuple[int, int] = (0, 0)
    step: bool = False
    dry_run: bool = False
    undo: bool = False


def parse_compact(line: str) -> CompactOptions:
    """The line's options; every other word belongs to the wishes. Raises UsageError."""
    wishes: list[str] = []
    found: dict[str, object] = {}
    words = iter(line.split())
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            wishes.append(word)
        elif name == "--from":
            found["start"] = _number(name, value if equals else next(words, ""))
        elif name == "--up-to":
            found["upto"] = _number(name, value if equals else next(words, ""))
        elif name == "--snip":
            found["snip"] = _pair(value if equals else next(words, ""))
        elif word in ("--step", "--dry-run", "--undo"):
            found[word.removeprefix("--").replace("-", "_")] = True
        else:
            close = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
            near = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"%compact has no option {name}{near}  usage: {USAGE}")
    wanted = msgspec.convert({**found, "instructions": " ".join(wishes)}, CompactOptions)
    alone = [name for name, on in (("--undo", wanted.undo), ("--snip", wanted.snip != (0, 0)), ("--step", wanted.step))
             if on]  # fmt: skip
    if alone and (len(alone) > 1 or wishes or wanted.start or wanted.upto):
        raise UsageError(f"{alone[0]} cannot be combined with anything but --dry-run  usage: {USAGE}")
    if wanted.start and wanted.upto and wanted.start > wanted.upto:
        raise UsageError(f"--from {wanted.start} is after --up-to {wanted.upto}: give the earlier turn to --from")
    return wanted


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"{name} takes a turn's number, 1 or more, not {value!r}")
    return int(value)


def _pair(value: str) -> tuple[int, int]:
    match = _PAIR.fullmatch(value)
    if match is None or not int(match[1]) or int(match[2] or match[1]) < int(match[1]):
        raise UsageError(f"--snip takes turns as A:B, for example --snip 3:5, not {value!r}")
    return int(match[1]), int(match[2] or match[1])


STOPPED = "stopped: the conversation is unchanged"
SNIPPED = "[{words} of this conversation {were} taken out by the user{kept}]"


class CompactCommand:
    """`%compact` of one agent. `occupied` holds the main thread as for a turn and raises UsageError while one runs;
    `tools` are those that the model has now; `state_of` says where a session's window stands."""

    def __init__(
        self,
        setup: SessionSetup,
        sessions: Sessions,
        connections: Connections,
        occupied: Callable[[], AbstractContextManager[MainThreadExecutor]],
        tools: Callable[[], dict[str, Tool]],
        state_of: Callable[[Session], WindowState],
    ) -> None:
        self._setup, self._sessions, self._connections = setup, sessions, connections
        self._occupied, self._tools, self._state_of = occupied, tools, state_of

    def __repr__(self) -> str:
        return f"<CompactCommand at {self._setup!r}>"

    def run(self, line: str) -> str:
        """Do what the line says with the current session, on the main thread; the answer in one or two
        lines. Raises UsageError, CompactionFailed, NoCredentials, KeyboardInterrupt."""
        wanted = parse_compact(line)
        if wanted.step:
            return step_text(self.step(dry=wanted.dry_run))
        with self._occupied() as main:
            session = self._session()
            turns = len(session.history.turns)
            for name, number in (("--from", wanted.start), ("--up-to", wanted.upto), ("--snip", wanted.snip[1])):
                if number > turns:
                    plural = "" if turns == 1 else "s"
                    raise UsageError(
                        f"{name} {number}: the conversation has {turns} turn{plural}; %context --turns lists them"
                    )
            if wanted.undo:
                work = self._undo
            elif wanted.snip != (0, 0):
                work = self._snip
            elif wanted.dry_run:
                work = self._would
            else:
                work = self._compact

            async def worked() -> str:
                try:
                    return await work(session, wanted, main)
                except asyncio.CancelledError:
                    return STOPPED
                finally:
                    await session.synced()

            return main.run_blocking(worked)

    def step(self, *, dry: bool = False) -> LayerStepResult:
        """Have the next layer act on the current session, or (`dry`) only look at it. Raises as `run`."""
        with self._occupied() as main:
            session = self._session()

            async def worked() -> LayerStepResult | None:
                session.begin_costs()
                try:
                    return await stepped(await self._engine(session, main), dry=dry, refused=self._over_limit())
                except asyncio.CancelledError:
                    return None
                finally:
                    self._setup.spending.add(session.turn_at_most)
                    await session.synced()

            made = main.run_blocking(worked)
        if made is None:
            raise CompactionFailed(f"{STOPPED}{paid_words(session)}; %compact starts again")
        return made

    def _session(self) -> Session:
        session = self._sessions.take_up()
        if session is None or not session.history.turns:
            raise UsageError("there is no conversation to compact yet: start one with a %%agent cell")
        return session

    async def _compact(self, session: Session, wanted: CompactOptions, main: MainThreadExecutor) -> str:
        seen = _Watcher()
        session.begin_costs()
        try:
            with session.shown_on(seen):
                engine = await self._engine(session, main)
                first, last = _events(session, wanted.start, wanted.upto)
                if line := self._over_limit():
                    ahead = await foreseen(engine, instructions=wanted.instructions, first=first, last=last)
                    if isinstance(ahead, ForkOrder):
                        raise CompactionFailed(line)
                made = await engine.compact("manual", instructions=wanted.instructions, first=first, last=last)
        except asyncio.CancelledError:
            return STOPPED + paid_words(session)
        finally:
            self._setup.spending.add(session.turn_at_most)
        if made is None:
            words = list(dict.fromkeys(seen.words()))
            said = [word for word in words if not any(word != other and other.startswith(word) for other in words)]
            why = ("; ".join(word.removeprefix(TOO_LITTLE) for word in said) or NO_LAYER) + paid_words(session)
            raise CompactionFailed(f"nothing was compacted: {why}; %context shows what fills the window")
        return _told(session, seen, made)

    def _over_limit(self) -> str:
        """Why no call may be paid for today; "" when it may."""
        most = self._setup.settings.max_cost_per_day
        spent = self._setup.spending.today() if most else 0.0
        if not most or spent < most:
            return ""
        limits = f"today's cost is ${spent:.2f}, the limit is ${most:.2f}"
        return f"{limits}: raise IPyAgent.max_cost_per_day to continue today"

    async def _snip(self, session: Session, wanted: CompactOptions, main: MainThreadExecutor) -> str:
        start, end = wanted.snip
        if all(turn.out for turn in session.history.turns[start - 1 : end]):
            out = f"turn {start} was" if start == end else f"turns {start} to {end} were"
            raise CompactionFailed(f"{out} removed before; %context --turns lists the turns")
        first, last = _events(session, start, end)
        gone = _range(session, first, last)
        if gone.first < first:
            one = f"turn {start} is" if start == end else f"turns {start} to {end} are"
            raise CompactionFailed(
                f"{one} part of a summary with earlier turns: restore them with %compact --undo, or remove all of them "
                f"({gone.words})"
            )
        words = gone.words
        were = "was" if words.startswith("turn ") else "were"
        left = left_ranges(session.view, session.journal.folder, [(gone.first, gone.last)])
        kept = f"; kept in {left.path}" if left is not None else ""
        marker = text_block(SNIPPED.format(words=words, were=were, kept=kept))
        made = TurnsRemoved(first=gone.first, last=gone.last, blocks=(marker,))
        before = session.view.count().tokens
        after = session.view.tokens_after(made)
        if after is None:
            raise CompactionFailed(
                f"{words} cannot be removed now: the newest turn was stopped between a tool call and its answer; "
                "send the agent a message first"
            )
        if wanted.dry_run:
            return f"would take out {words}: {before:,} → about {after:,} tokens, no model call; nothing was done"
        if left is not None and left.write():  # the disk failed: nothing names what is not there
            made = msgspec.structs.replace(made, blocks=(text_block(SNIPPED.format(words=words, were=were, kept="")),))
        session.record(msgspec.structs.replace(made, saved=max(0, before - after)))
        after = session.view.count().tokens
        longer = " (the line in its place is longer than what went)" if after > before else ""
        return f"took out {words}: {before:,} → {after:,} tokens{longer}, no model call; undo with %compact --undo"

    async def _undo(self, session: Session, wanted: CompactOptions, main: MainThreadExecutor) -> str:
        event = session.view.undoable
        if event is None:
            raise UsageError("no compaction to undo; %context shows the conversation")
        if not session.view.editable:
            raise CompactionFailed(
                "cannot undo now: the last turn was stopped between a tool call and its result; "
                "send the agent a message first"
            )
        before = session.view.count().tokens
        what = _decision(session, event)
        if wanted.dry_run:
            return f"would undo {what}; nothing was changed"
        session.record(DecisionUndone(event=event))
        after = session.view.count().tokens
        more = "; the window is full, the next request compacts again" if self._state_of(session).above_auto else ""
        return f"undone: {before:,} → {after:,} tokens ({what}){more}"

    async def _would(self, session: Session, wanted: CompactOptions, main: MainThreadExecutor) -> str:
        """What a compaction would do, in words and numbers."""
        first, last = _events(session, wanted.start, wanted.upto)
        engine = await self._engine(session, main)
        made = await foreseen(engine, instructions=wanted.instructions, first=first, last=last)
        if isinstance(made, Compacted):
            kept = ["what follows the notes"] if made.method == "notes" else []
            stay = ", ".join(["system prompt, tools and your newest request", *kept, *made.restored])
            turns = _turns(session, made.first, made.last)
            return (
                f"would compact {turns} ({made.method}): {made.tokens_before:,} → about {made.tokens_after:,} tokens, "
                f"no model call\nstill there: {stay}; nothing was done"
            )
        view, gone = session.view, _range(session, first, last)
        before = view.count().tokens
        goes = min(view.scaled(gone.tokens), max(0, before - view.head_counted))  # some of it may be left out already
        who = "have the provider summarise" if made.by_server else "summarise"
        return (
            f"would {who} {_turns(session, gone.first, gone.last)}, about {goes:,} of {before:,} tokens, in one model "
            f"call{call_price(session, made)}\n{max(0, before - goes):,} tokens stay as they are, "
            "your newest request stays word for word; nothing was done"
        )

    async def _engine(self, session: Session, main: MainThreadExecutor) -> Engine:
        """The layers, the session being connected as for a turn."""
        settings = self._setup.settings
        model = self._connections.get(model_of(settings), endpoint_of(settings))
        await self._setup.connect(session, model, self._tools(), Options())
        return Engine(session, self._setup.workspace(session, main))


class _Watcher(NullSurface):
    """Keeps what happened for the answer."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def show(self, event: Event) -> None:
        self.events.append(event)

    def words(self) -> Iterator[str]:
        """What layers said and why they failed, the breaker's last."""
        for event in self.events:
            if isinstance(event, LayerFailed):
                yield event.why
            elif isinstance(event, LayerDecision):
                yield event.words


def _told(session: Session, seen: _Watcher, made: Compacted) -> str:
    """What went, what stayed, figures before and after."""
    turns = _turns(session, made.first, made.last)
    # what else ended meanwhile, the notes say, is not what this cost
    spent = [event for event in seen.events if isinstance(event, ForkEnded) and event.purpose == PURPOSE]
    costs = [event.cost for event in spent]
    price = "it cost no model call" if not spent else "what it cost is not known"
    if spent and None not in costs:
        price = f"it cost ${sum(cost or 0.0 for cost in costs):.4f}"
    if spent and session.info.model == "practice":
        would = sum(cost_of(LESSON_MODEL, event.usage) or 0.0 for event in spent)
        price = f"it cost nothing (on {LESSON_MODEL} it would be ${would:.4f})"
    info, sizes = session.info, (made.tokens_before, made.tokens_after)
    read, less = (size * rates_of(info.model, prompt=size, server=info.server).read for size in sizes)
    reads = f" (${read:.4f} → ${less:.4f} a request from cache)" if read else ""
    lines = [
        f"compacted {turns} ({made.method}): {made.tokens_before:,} → {made.tokens_after:,} tokens"
        f"{reads}; {price}{paid_back_words(made.paid_back)}"
    ]
    request = " and your newest request" if session.history.request is not None else ""
    stayed = [f"system prompt, tools{request}", *made.restored]
    lines.append(f"still there: {', '.join(stayed)}; undo with %compact --undo")
    notes = [event.words for event in seen.events if isinstance(event, LayerDecision) and "whole turns" in event.words]
    return "\n".join([lines[0] + "".join(f"; {note}" for note in notes), lines[1]])


def _decision(session: Session, event: int) -> str:
    """In words, what the decision of an event did to which turns."""
    made = next((each for each in session.journal.read() if each.id == event), None)
    match made:
        case Compacted():
            named = {"notes": "the compaction by notes", "server": "the summary by the server"}
            what = named.get(made.method, "the summary")
        case TurnsRemoved():
            what = "the removal"
        case TurnCollapsed():
            what = "the collapse"
        case _:
            return "the clearing of tool results"
    turns = _turns(session, made.first, made.last)
    return f"{what} of {turns}" if turns else what


def _turns(session: Session, first: int, last: int) -> str:
    """Which turns begin in a range of events; "" for none."""
    inside = [number for number, turn in enumerate(session.history.turns, 1) if first <= turn.first <= last]
    if not inside:
        return ""
    return f"turn {inside[0]}" if len(inside) == 1 else f"turns {inside[0]} to {inside[-1]}"


def _events(session: Session, start: int, upto: int) -> tuple[int, int]:
    """Events of turns `start` to `upto` (0: open) as a range of events (0: open)."""
    turns = session.history.turns
    first = turns[start - 1].first if start > 1 else 0
    last = turns[upto].first - 1 if 0 < upto < len(turns) else 0
    return first, last


def _range(session: Session, first: int, last: int) -> Range:
    return whole_turns(session.view, [turn.first for turn in session.history.turns], first, last)


NO_LAYER = "no layer is on (the settings IPyAgent.layer_…)"


async def foreseen(engine: Engine, **asked: Unpack[Asked]) -> ForkOrder | Compacted:
    """What a compaction would ask the model for, its layers being asked in the same order; its boundary where that
    needs no call. Raises CompactionFailed when none would come about."""
    now = engine.situation("mark", "manual", **asked)
    why: list[str] = []
    for layer in engine.enabled("mark"):
        try:
            found = await look(layer, now)
        except AgentError as problem:  # the next layer would be asked
            why.append(" ".join(str(problem).split()))
            continue
        if isinstance(found, ForkOrder):
            return found
        if made := next((event for event in found if isinstance(event, Compacted)), None):
            return engine.with_head(made)[0]
        why += [event.words for event in found if isinstance(event, LayerDecision)]
    said = "; ".join(dict.fromkeys(each.removeprefix(TOO_LITTLE) for each in why)) or NO_LAYER
    raise CompactionFailed(f"nothing would be compacted: {said}; %context shows what fills the window")
