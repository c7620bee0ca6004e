"""Extraction wired to the turns of a kernel: when it runs, what it reads, what its fork may do, how it ends with the
kernel.

It never holds a turn up, but for a compaction, whose system prompt has the index of what it saves: it begins when the
answer is there, on the agent thread, and what it asks of the model goes out beside the next turn. It waits until there
is enough to look through, and goes out with the notes when both are due. What still waits is looked at when the session
is left, before a compaction, in a pause, or when the kernel ends; after a crash by the next kernel. One a session at a
time; what is asked for meanwhile follows once.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ipyagent.assembly.settings import at_exit, small_model_of
from ipyagent.errors import AgentError, JournalError, ModelError, NoSuchPath, UnknownModel
from ipyagent.journal.blocks import CACHE_SECONDS
from ipyagent.journal.events import Block, LayerDecision, LayerFailed, MemoryExtracted
from ipyagent.journal.journal import TRANSCRIPT, in_use, read_events
from ipyagent.journal.protocols import Forked, ForkOrder, Rates, Surface
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.background import Background
from ipyagent.loop.fork import ForkReader, Wire, run_fork
from ipyagent.loop.session import Session
from ipyagent.model.prices import CACHE_READ, rates_of
from ipyagent.parts import Beside
from ipyagent.parts.memory.access import MemoryAccess
from ipyagent.parts.memory.extract import (
    MEMORY,
    MOST_FAILURES,
    PURPOSE,
    UNWATCHED,
    WATCHED,
    ExtractionProgress,
    ExtractionToolPolicy,
    ExtractionTranscript,
    directive,
    new_messages,
    transcript,
)
from ipyagent.parts.memory.retriever import client_of
from ipyagent.parts.memory.transcripts import ASIDE

if TYPE_CHECKING:
    from ipyagent.assembly.session_setup import SessionSetup
    from ipyagent.parts.memory.store import Memory

LONGEST_WAIT = 15.0
"""Seconds that a compaction waits at most for what is extracted; what comes later counts with the next one."""
SAVING = "saving memories"
"""What a cell shows meanwhile."""
LONGEST_END = 60.0
"""Seconds that a running extraction gets when the kernel ends."""
REPLY_TOKENS = 8_000
USUAL_REPLY = 300
"""Tokens of an extraction's answer, when costs are compared: between "Nothing to save." and two memories."""
WARM = 0.9
"""The part of that time in which a look in a pause is begun."""
LEFT_SESSIONS, LEFT_DAYS = 3, 30.0
"""Of how many sessions, written in so many days, a new kernel looks whether their turns were looked through."""
BOTH = (
    "Two orders follow. Carry out both in one reply, all calls side by side; with nothing to save, make the edits of "
    "the first alone. What neither allows may not be called."
)


class MemoryExtractor:
    """The extractions of one kernel; `access` gives what one may write in a session."""

    def __init__(self, setup: SessionSetup, access: Callable[[Session], MemoryAccess]) -> None:
        self._setup = setup
        self._access = access
        self._runs: dict[Path, _Run] = {}
        self._left: dict[Path, _Run] = {}  # of sessions that nobody else holds any more
        self._failures: dict[str, int] = {}  # of small models, in a row
        self._seeking = Background()
        self._sought = self._registered = False

    def __repr__(self) -> str:
        return f"<MemoryExtractor {sum(run.background.busy for run in self._runs.values())} at work>"

    # ------------------------------------------------------------------ behind a turn

    def begins(self, session: Session) -> None:
        """A turn of the main agent begins: whether its words will be looked through stands in the journal."""
        on = self._on(session)
        if session.folded(ExtractionProgress).watched != on:
            session.record(LayerDecision(layer=PURPOSE, words=WATCHED if on else UNWATCHED))

    def ended(self, session: Session, workspace: KernelWorkspace, surface: Surface | None) -> None:
        """A turn of the main agent has ended, on the agent thread; `after` follows once the notes are written."""
        if not self._enabled(session):
            return
        run = self._runs.get(session.journal.folder)
        if run is None or run.session is not session:
            run = self._runs[session.journal.folder] = _Run(session)
            if not self._registered:
                self._registered = True
                at_exit(self, partial(MemoryExtractor.close, exiting=True))
        run.owed = run.owed or run.background.busy
        run.take(EndedTurn.of(session), workspace, surface)
        session.before_compaction(partial(self._compacting, run))

    def after(self, session: Session) -> None:
        """What the end of a turn calls for, on the agent thread: an extraction, or a look at it in a pause."""
        run = self._runs.get(session.journal.folder)
        if run is None or run.session is not session or not self._enabled(session):
            return
        ended = run.ended
        run.background.ask(lambda: self._due(run, ended))
        self._watch_pause(run)
        if not self._sought:
            self._sought = True
            self._seeking.ask(lambda: self._seek(run))

    async def beside(self, session: Session) -> Beside | None:
        """What makes of an order for notes, should they be due as well, one for both, with what is to be done with how
        that ended; None when no extraction is due."""
        run = self._runs.get(session.journal.folder)
        if run is None or not self._enabled(session) or run.background.busy or not self._is_due(run, run.ended.upto):
            return None
        if session.folded(ExtractionProgress).unwatched or not run.ended.holds_all(session):
            return None
        policy = run.policy(self._setup.notice, run.ended)
        known = await asyncio.to_thread(policy.listed)

        def joined(notes: ForkOrder) -> tuple[ForkOrder, Callable[[Forked], None]]:
            ended = run.ended
            if notes.purpose != "notes" or run.background.busy or not session.folded(ExtractionProgress).pending:
                return notes, lambda forked: None
            placed = session.view.placed()
            messages = new_messages(placed, session.folded(ExtractionProgress).upto, len(placed))
            mine = self._order(session, policy, known, ended.upto, messages)
            run.shared = True

            def permit(name: str, given: dict[str, object]) -> str:
                why = notes.permit(name, given) if notes.permit is not None else "no calls"
                return why and policy.permit(name, given)

            async def answer(name: str, given: dict[str, object]) -> object:
                if notes.permit is not None and notes.answer is not None and not notes.permit(name, given):
                    return notes.answer(name, given)
                return await policy.answer(name, given)

            def done(forked: Forked) -> None:
                run.shared = False
                if forked.status in ("finished", "limit"):
                    files = tuple(dict.fromkeys(policy.saved))
                    session.record(MemoryExtracted(upto=ended.upto, files=files))

            both = msgspec.structs.replace(
                notes,
                directive=f"{BOTH}\n{notes.directive}\n{mine.directive}",
                max_turns=max(notes.max_turns, mine.max_turns),
                max_tokens=notes.max_tokens + mine.max_tokens,
                permit=permit,
                answer=answer,
                enough=lambda: policy.idle() and (notes.enough is None or notes.enough()),
                also=PURPOSE,
            )
            return both, done

        return joined

    def wait(self, session: Session, timeout: float) -> bool:
        """Wait until nothing is extracted from a session; whether it is so. Not for the agent thread."""
        until = time.monotonic() + timeout
        run = self._runs.get(session.journal.folder)
        if not session.background.wait(timeout) or not self._seeking.wait(max(0.0, until - time.monotonic())):
            return False
        return run is None or run.background.wait(max(0.0, until - time.monotonic()))

    async def now(self, session: Session, workspace: KernelWorkspace) -> tuple[str, ...]:
        """Look through what was not looked through yet, as the user asked; the names of what was saved.
        Raises AgentError."""
        if MEMORY not in session.tools:
            raise AgentError("memory is off here; %memory on turns it on")
        run = _Run(session, everything=True)
        run.take(EndedTurn.of(session), workspace, None)
        policy = run.policy(lambda line: None, run.ended)
        await self._extract(run, policy, run.ended, policy.listed())
        return tuple(policy.saved)

    # ------------------------------------------------------------------ ending

    def take_over(self, session: Session) -> bool:
        """The session is let go of: what waits is looked at now. Whether something is at work here still, which then
        closes it at its end."""
        run = self._runs.pop(session.journal.folder, None)
        if run is None:
            return False
        run.rest()
        if not run.background.busy and session.folded(ExtractionProgress).pending and self._enabled(session):
            run.ask(lambda: self._due(run, run.ended, last=True))
        if not run.background.busy:
            return False
        session.background.close()
        self._left[session.journal.folder] = run
        run.background.end_with(lambda: self._close_left(run))
        return True

    def release(self, folder: Path) -> None:
        """Somebody wants the session in this folder: what is at work there ends."""
        run = self._left.get(folder)
        if run is not None:
            run.background.close()

    def close(self, seconds: float = LONGEST_END, *, exiting: bool = False) -> None:
        """Let what runs come to its end, `seconds` at most in all, then end it. An interrupt ends the waiting.
        `exiting`: the process ends; a word in a terminal when it takes a while."""
        self._last_looks()
        until = time.monotonic() + seconds
        runs = [*self._runs.values(), *self._left.values()]
        terminal = sys.__stderr__
        late = exiting and any(not run.background.wait(0.3 / len(runs)) for run in runs)
        if late and terminal is not None and terminal.isatty():
            terminal.write("ipyagent: saving new memories (Ctrl-C to quit at once)\n")
            terminal.flush()
        try:
            for run in runs:
                run.background.finish(max(0.0, until - time.monotonic()))
        finally:
            self._seeking.close()
            for run in runs:
                run.background.close()
            self._runs.clear()

    def _last_looks(self) -> None:
        """The kernel ends: a last look at what waits, for a short time."""
        for run in self._runs.values():
            run.rest()
            session = run.session
            if run.shared:  # it is being looked at with the notes
                session.background.finish(LONGEST_END)
            if run.background.busy or run.last or not session.folded(ExtractionProgress).pending:
                continue
            if self._setup.settings.extract_end_seconds and self._enabled(session):
                run.last = True
                run.ask(partial(self._last_look, run))

    async def _last_look(self, run: _Run) -> None:
        with suppress(TimeoutError):  # the next kernel looks at it
            async with asyncio.timeout(self._setup.settings.extract_end_seconds):
                await self._due(run, run.ended, last=True, patient=False)

    def _close_left(self, run: _Run) -> None:
        self._left.pop(run.session.journal.folder, None)
        run.session.close()

    # ------------------------------------------------------------------ other occasions

    async def _compacting(self, run: _Run) -> None:
        """Messages are about to give way to a compaction: what waits is looked at, as the conversation was; the memory
        index that comes with the compaction knows what is saved until then."""
        session, until = run.session, time.monotonic() + LONGEST_WAIT
        if not session.folded(ExtractionProgress).pending or not self._enabled(session):
            return
        session.show_phase(SAVING)
        if run.shared:  # it is being looked at with the notes, which may come to nothing
            await session.background.ended(LONGEST_WAIT)
        if not run.shared and session.folded(ExtractionProgress).pending:
            run.ask(lambda: self._due(run, run.ended, last=True))
            await run.background.ended(max(0.0, until - time.monotonic()))
        session.show_phase("compacting")

    def _watch_pause(self, run: _Run) -> None:
        """Look at what waits once nothing was said for a while: while the cache holds, if it is to be read."""
        run.rest()
        minutes = self._setup.settings.extract_quiet_minutes
        if not minutes:
            return
        seconds, limits = 60.0 * minutes, run.session.limits
        if limits.prompt_cache and not self._small(run.session):
            seconds = min(seconds, WARM * CACHE_SECONDS[limits.cache_ttl])
        run.timer = run.loop.call_later(seconds, lambda: self._pause(run, run.ended))

    def _pause(self, run: _Run, ended: EndedTurn) -> None:
        if ended is run.ended and not run.session.history.unfinished and self._enabled(run.session):
            run.background.ask(lambda: self._due(run, ended, last=True))

    async def _seek(self, run: _Run) -> None:
        """Sessions of this project whose kernel ended before it had looked through their turns."""
        sessions = self._setup.project.session_folders()
        mine = {run.session.journal.folder, *self._left}
        for folder in await asyncio.to_thread(_unlooked, sessions, mine):
            try:
                session, _ = await asyncio.to_thread(Session.open, folder)
            except (JournalError, OSError):
                continue  # another kernel has it; %agent doctor tells what is broken
            now = run.session
            session.connect(
                now.model, now.info, tools=now.tools, permissions=now.permissions, limits=now.limits,
                state=lambda _, tokens: run.session.state(tokens), setting=now.setting, restoring=now.restoring,
            )  # fmt: skip
            left = self._left[folder] = _Run(session)
            memory = self._access(session)
            left.take(EndedTurn.of(session), replace(run.workspace, memory=memory, read_stamps={}), None)
            left.background.ask(partial(self._due, left, left.ended, last=True))
            left.background.end_with(partial(self._close_left, left))
            await asyncio.to_thread(left.background.wait, LONGEST_END)

    # ------------------------------------------------------------------ one extraction

    def _on(self, session: Session) -> bool:
        settings = self._setup.settings
        trusted = settings.trust_all or self._setup.project.trusted
        return bool(settings.memory and settings.extraction and MEMORY in session.tools and trusted)

    def _enabled(self, session: Session) -> bool:
        may_write = session.permissions.mode != "read_only"  # of the turn that ends; a later one has its turns too
        return self._on(session) and may_write

    def _is_due(self, run: _Run, upto: int, *, owed: bool = False) -> bool:
        settings, progress = self._setup.settings, run.session.folded(ExtractionProgress)
        words, cues = settings.extract_words, settings.extract_cues
        return progress.due(settings.extract_every, upto, owed=owed or run.owed, words=words, cues=cues)

    async def _due(self, run: _Run, ended: EndedTurn, *, last: bool = False, patient: bool = True) -> None:
        """What is due at the end of a turn; the next one may be under way. `last`: it does not wait for more."""
        session, most = run.session, self._setup.settings.max_cost_per_day
        if not self._is_due(run, ended.upto, owed=last):
            return
        spent = bool(most) and self._setup.spending.today() >= most
        if spent or (session.dear and not (last or run.owed)):  # for what may wait, background work keeps to its share
            run.owed = run.owed or last
            return
        run.owed = False
        policy = run.policy(self._setup.notice, ended)
        try:
            await self._extract(run, policy, ended, await asyncio.to_thread(policy.listed), patient=patient)
        except JournalError:
            raise
        except AgentError as problem:
            self._failed(session, str(problem))
        except Exception as problem:  # noqa: BLE001 - a bug in the background is told and ends nothing
            self._failed(session, f"{type(problem).__name__}: {problem}")

    def _failed(self, session: Session, why: str) -> None:
        """Nothing was saved of these turns yet; the next extraction has them too."""
        count = session.folded(ExtractionProgress).failures + 1
        line = f"new memories were not saved: {' '.join(why.split())[:400]}"
        if stopped := count >= MOST_FAILURES:
            line += f"; extraction is off in this session after {count} failures, %memory extract tries again"
        session.record(LayerFailed(layer=PURPOSE, why=line, stopped=stopped))

    async def _extract(
        self, run: _Run, policy: ExtractionToolPolicy, ended: EndedTurn, known: list[Memory], *, patient: bool = True
    ) -> None:
        """Look through the turns up to an end: in the view as it was then, or in transcripts. Raises AgentError."""
        session, whole = run.session, False
        small = self._small(session)
        while not whole:
            told, before = await asyncio.to_thread(self._told, run, ended.upto), len(policy.saved)
            if patient and told.text and self._reads_conversation(run, ended, told, small):
                messages = new_messages(ended.placed, session.folded(ExtractionProgress).upto, len(ended.placed))
                await self._fork(session, self._order(session, policy, known, ended.upto, messages), wire=ended.wire)
            elif told.text:  # else the user took all of it out again
                try:
                    reader = await self._reader(session, told, small, patient=patient)
                    await self._fork(session, self._order(session, policy, known, told.upto), reader=reader)
                    self._failures.pop(small, None)
                except ModelError as problem:
                    if isinstance(problem, UnknownModel) and not isinstance(problem, NoSuchPath):
                        self._setup.no_small(small)
                    self._failures[small] = self._failures.get(small, 0) + 1
                    if not small or not patient or len(policy.saved) > before:
                        raise
                    small = ""  # the main model does it
                    continue
            session.record(MemoryExtracted(upto=told.upto, files=tuple(dict.fromkeys(policy.saved))))
            whole = told.whole

    def _told(self, run: _Run, upto: int) -> ExtractionTranscript:
        settings, session = self._setup.settings, run.session
        progress = session.folded(ExtractionProgress)
        out = frozenset(turn.first for turn in session.history.turns if turn.out)
        return transcript(
            session.journal.read(),
            progress.upto,
            upto,
            out=out if run.everything else out | progress.unwatched,
            answer_chars=settings.extract_answer_chars,
            line_chars=settings.extract_line_chars,
            tokens=settings.extract_tokens,
        )

    def _order(
        self, session: Session, policy: ExtractionToolPolicy, known: list[Memory], upto: int, messages: int = 0
    ) -> ForkOrder:
        """What the fork of an extraction is told and may do; `messages` it may draw on, 0: a transcript."""
        turns = self._setup.settings.extract_turns
        saved = session.folded(ExtractionProgress).saved(upto)
        return ForkOrder(
            purpose=PURPOSE,
            directive=directive(known, messages=messages, turns=turns, now=time.time(), saved=saved),
            max_turns=turns,
            max_tokens=REPLY_TOKENS,
            permit=policy.permit,
            answer=policy.answer,
            enough=policy.enough,
        )

    async def _fork(self, session: Session, order: ForkOrder, **how: Any) -> None:
        """Raises AgentError, also for a fork that came to nothing."""
        forked = await run_fork(session, order, paid=lambda _, most: self._setup.note_spent(most), **how)
        if forked.status in ("failed", "refused"):
            raise ModelError(forked.message or forked.status, kind=forked.status)

    async def _reader(
        self, session: Session, told: ExtractionTranscript, small: str, *, patient: bool
    ) -> ForkReader:
        """The small model, or the session's own where there is none. Raises AgentError."""
        name = small or session.info.model
        return ForkReader(
            model=await client_of(name, session.model, self._setup),
            name=name,
            window=0 if small else session.info.window,  # a short text fits any
            tools=_memory_tool(session),
            text=told.text,
            patient=patient,
        )

    # ------------------------------------------------------------------ what it reads

    def _small(self, session: Session) -> str:
        """The small model that reads transcripts; "" where the session's own has to."""
        small = small_model_of(self._setup.settings)
        known = small and small != session.info.model and self._failures.get(small, 0) < MOST_FAILURES
        return small if known else ""

    def _reads_conversation(self, run: _Run, ended: EndedTurn, told: ExtractionTranscript, small: str) -> bool:
        """Whether the cached conversation is read, not the transcript: what is cheaper by the price table; by tokens
        where a price is not known."""
        settings, session = self._setup.settings, run.session
        progress = session.folded(ExtractionProgress)
        if settings.extract_from == "transcript" or not told.whole:
            return False
        off = progress.unwatched
        all_there = ended.holds_all(session, off) if run.everything else ended.holds_all(session) and not off
        if session.view.model != ended.model or not all_there:
            return False  # it is not there any more, for another model, or holds what is not to be looked at
        if session.state(session.view.count().tokens).blocked:
            return False
        if settings.extract_from == "conversation":
            return True
        if new_messages(ended.placed, progress.upto, len(ended.placed)) > settings.extract_messages:
            return False
        order = estimate_text(directive([], turns=settings.extract_turns, now=0.0))
        text = estimate_text(told.text) + order + estimate_blocks(_memory_tool(session))
        limits, prefix = session.limits, session.view.count().tokens
        idle = time.time() - session.history.said_at
        warm = limits.prompt_cache and idle < CACHE_SECONDS[limits.cache_ttl]
        mine = rates_of(session.info.model, limits.cache_ttl, prefix, session.info.server)
        theirs = rates_of(small or session.info.model, limits.cache_ttl, text, session.info.server)
        if mine == Rates() or theirs == Rates():
            return prefix * (CACHE_READ if warm else 1.0) + order < text
        again = mine.read if warm else mine.write if limits.prompt_cache else mine.input
        here = prefix * again + order * mine.write + USUAL_REPLY * mine.output
        return here < text * theirs.input + USUAL_REPLY * theirs.output


class EndedTurn(NamedTuple):
    """A session at the end of a turn: the newest event, its view on the wire, the view's blocks, the model."""

    upto: int
    wire: Wire
    placed: list[tuple[str, Block, int]]
    model: str

    @classmethod
    def of(cls, session: Session) -> EndedTurn:
        """The session as it is now. Messages that were given out do not change any more."""
        limits, view = session.limits, session.view
        wire = view.wire(ttl=limits.cache_ttl, marks=limits.prompt_cache)
        return cls(session.journal.last, wire, view.placed(), view.model)

    def holds_all(self, session: Session, more: Iterable[int] = ()) -> bool:
        """Whether all that the user said since it was last looked at, and what was said in the events `more`, stands
        in the view as it was."""
        there = {source for _, _, source in self.placed}
        return session.folded(ExtractionProgress).asked(self.upto) | set(more) <= there


class _Run:
    """The extraction of one session, and what its newest turn ended with. Made on the agent thread, or in a loop."""

    def __init__(self, session: Session, *, everything: bool = False) -> None:
        self.session = session
        self.everything = everything
        """Whether what was said while extraction was off is looked at too: the user asks for it."""
        self.background = Background()
        self.loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        self.owed = self.shared = self.last = False
        """Whether a turn ended while one ran: the next does not wait for more turns. Whether it goes out with the
        notes now. Whether the last look was begun."""
        self._thread = threading.get_ident()

    def take(self, ended: EndedTurn, workspace: KernelWorkspace, surface: Surface | None) -> None:
        self.ended, self.workspace, self._surface = ended, workspace, surface

    def policy(self, notice: Callable[[str], None], ended: EndedTurn) -> ExtractionToolPolicy:
        """What the fork of an extraction up to an end works at. Raises MemoryRefused."""
        return ExtractionToolPolicy(self.session, self.workspace, self._surface, notice, ended.upto)

    def ask(self, work: Callable[[], Awaitable[None]]) -> None:
        """Have work done in the background, from whatever thread."""
        if threading.get_ident() == self._thread:
            self.background.ask(work)
        else:
            self.background.ask_from_outside(self.loop, work)

    def rest(self) -> None:
        """No look in a pause any more."""
        timer, self.timer = self.timer, None
        if timer is not None:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(timer.cancel)


def _memory_tool(session: Session) -> list[Block]:
    tools = (tool for tool in session.view.tools if tool["name"] == MEMORY)
    return [{key: value for key, value in tool.items() if key != "cache_control"} for tool in tools]


def _unlooked(folders: Iterable[Path], mine: set[Path]) -> list[Path]:
    """The newest of these sessions that nobody works on and whose turns were not looked through. Blocks."""
    found: list[Path] = []
    others = (folder for folder in folders if folder not in mine and not folder.name.endswith(ASIDE))
    for _, folder in zip(range(LEFT_SESSIONS), others, strict=False):
        try:
            path = folder / TRANSCRIPT
            if time.time() - path.stat().st_mtime > 86_400 * LEFT_DAYS or in_use(folder):
                continue
            progress = ExtractionProgress()
            for event in read_events(path):
                progress.apply(event)
        except (JournalError, OSError):
            continue  # %agent doctor tells
        if progress.watched and progress.pending:
            found.append(folder)
    return found
