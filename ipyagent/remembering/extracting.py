"""Extraction wired to the turns of a kernel: when it runs, what its fork may do, how it ends with the kernel.

It never holds a turn up: it begins when the answer is there, on the agent thread, and what it asks of the
model goes out beside the next turn. One a session at a time; what is asked for meanwhile follows once.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ipyagent.assembly.at_exit import at_exit
from ipyagent.errors import AgentError, JournalError
from ipyagent.journal.events import Block, LayerFailed, MemoryExtracted
from ipyagent.journal.protocols import ForkOrder, Surface
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.background import Background
from ipyagent.loop.budget import spent_today
from ipyagent.loop.fork import Wire, run_fork
from ipyagent.loop.session import Session
from ipyagent.memory.extract import MOST_FAILURES, PURPOSE, SAVED_ITSELF, directive, new_messages
from ipyagent.remembering.extraction_desk import MEMORY, Desk

if TYPE_CHECKING:
    from ipyagent.assembly.workbench import Workbench
    from ipyagent.memory.files import Memory

LONGEST_END = 60.0
"""Seconds that a running extraction gets when the kernel ends."""
REPLY_TOKENS = 8_000


class Extracting:
    """The extractions of one kernel. `spent` takes dollars, `notice` a line for the user before the next turn."""

    def __init__(self, bench: Workbench, spent: Callable[[float], None], notice: Callable[[str], None]) -> None:
        self._bench = bench
        self._spent = spent
        self._notice = notice
        self._runs: dict[Path, _Run] = {}
        self._left: dict[Path, _Run] = {}  # of sessions that nobody else holds any more
        self._registered = False

    def __repr__(self) -> str:
        return f"<Extracting {sum(run.background.busy for run in self._runs.values())} at work>"

    def after(self, session: Session, workspace: KernelWorkspace, surface: Surface | None) -> None:
        """A turn of the main agent has ended, on the agent thread."""
        if not self._enabled(session):
            return
        run = self._run_of(session)
        run.owed = run.owed or run.background.busy
        ended = Ended.of(session)
        run.background.ask(lambda: self._due(run, ended, workspace, surface))

    def wait(self, session: Session, timeout: float) -> bool:
        """Wait until nothing is extracted from a session; whether it is so. Not for the agent thread."""
        run = self._runs.get(session.journal.folder)
        return run is None or run.background.wait(timeout)

    async def now(self, session: Session, workspace: KernelWorkspace) -> tuple[str, ...]:
        """Look through what was not looked through yet, as the user asked; the names of what was saved.
        Raises AgentError."""
        if MEMORY not in session.tools:
            raise AgentError("memory is off here; %memory on turns it on")
        desk = Desk(session, workspace, None, lambda line: None)
        await self._extract(session, desk, Ended.of(session), desk.listed())
        return tuple(desk.saved)

    # ------------------------------------------------------------------ ending

    def take_over(self, session: Session) -> bool:
        """The session is let go of: whether something is at work here still, which then closes it at its end."""
        run = self._runs.pop(session.journal.folder, None)
        if run is None or not run.background.busy:
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

    def close(self, seconds: float = LONGEST_END) -> None:
        """Let what runs come to its end, `seconds` at most in all, then end it. An interrupt ends the waiting."""
        until = time.monotonic() + seconds
        runs = [*self._runs.values(), *self._left.values()]
        try:
            for run in runs:
                run.background.finish(max(0.0, until - time.monotonic()))
        finally:
            for run in runs:
                run.background.close()
            self._runs.clear()

    def close_at_exit(self) -> None:
        """`close`, with a word in a terminal when it takes a while."""
        runs = [*self._runs.values(), *self._left.values()]
        if any(not run.background.wait(0.3 / len(runs)) for run in runs):
            terminal = sys.__stderr__
            if terminal is not None and terminal.isatty():
                terminal.write("ipyagent: saving what is worth remembering (Ctrl-C to leave at once)\n")
                terminal.flush()
        self.close()

    def _close_left(self, run: _Run) -> None:
        self._left.pop(run.session.journal.folder, None)
        run.session.close()

    # ------------------------------------------------------------------ one extraction

    def _enabled(self, session: Session) -> bool:
        settings = self._bench.settings
        trusted = settings.trust_all or self._bench.project.trusted
        may_write = session.permissions.mode != "read_only"  # of the turn that ends; a later one has its turns too
        return bool(settings.memory and settings.extraction and MEMORY in session.tools and trusted and may_write)

    def _run_of(self, session: Session) -> _Run:
        folder = session.journal.folder
        run = self._runs.get(folder)
        if run is None or run.session is not session:
            run = self._runs[folder] = _Run(session)
            if not self._registered:
                self._registered = True
                at_exit(self, Extracting.close_at_exit)
        return run

    async def _due(self, run: _Run, ended: Ended, workspace: KernelWorkspace, surface: Surface | None) -> None:
        """What is due at the end of a turn; the next one may be under way."""
        session, owed = run.session, run.owed
        run.owed = False
        match session.history.extraction.due(self._bench.settings.extract_every, ended.upto, owed=owed):
            case "skip":
                session.record(MemoryExtracted(upto=ended.upto, why=SAVED_ITSELF))
            case "run" if session.view.model == ended.model and self._affordable(session):
                try:
                    desk = Desk(session, workspace, surface, self._notice)
                    await self._extract(session, desk, ended, await asyncio.to_thread(desk.listed))
                except JournalError:
                    raise
                except AgentError as problem:
                    self._failed(session, str(problem))
                except Exception as problem:  # noqa: BLE001 - a bug in the background is told and ends nothing
                    self._failed(session, f"{type(problem).__name__}: {problem}")
            case "run":
                run.owed = True
            case "wait":
                run.owed = owed

    def _affordable(self, session: Session) -> bool:
        """Whether window and purse leave room for a fork."""
        most = self._bench.settings.max_cost_per_day
        spent = bool(most) and spent_today(self._bench.project.spend) >= most
        return not spent and not session.state(session.view.count().tokens).blocked

    def _failed(self, session: Session, why: str) -> None:
        """Nothing was saved of these turns yet; the next extraction has them too."""
        count = session.history.extraction.failures + 1
        stopped = count >= MOST_FAILURES
        end = f"; it is off in this session after {count} failures, %memory extract tries again" if stopped else ""
        line = f"what is worth remembering was not saved: {' '.join(why.split())[:400]}{end}"
        session.record(LayerFailed(layer=PURPOSE, why=line, stopped=stopped))

    async def _extract(self, session: Session, desk: Desk, ended: Ended, known: list[Memory]) -> None:
        """One fork of the view as it was at the end of the turn. Raises AgentError."""
        settings = self._bench.settings
        upto = session.history.extraction.upto
        order = ForkOrder(
            purpose=PURPOSE,
            directive=directive(
                known,
                messages=new_messages(ended.placed, upto, settings.extract_messages),
                turns=settings.extract_turns,
                now=time.time(),
            ),
            max_turns=settings.extract_turns,
            max_tokens=REPLY_TOKENS,
            permit=desk.permit,
            answer=desk.answer,
            enough=desk.enough,
        )
        forked = await run_fork(session, order, paid=lambda cost: self._spent(cost or 0.0), wire=ended.wire)
        if forked.status in ("failed", "refused"):
            raise AgentError(forked.message or forked.status)
        session.record(MemoryExtracted(upto=ended.upto, files=tuple(dict.fromkeys(desk.saved))))


class Ended(NamedTuple):
    """A session at the end of a turn: the newest event, its view on the wire, the view's blocks, the model."""

    upto: int
    wire: Wire
    placed: list[tuple[str, Block, int]]
    model: str

    @classmethod
    def of(cls, session: Session) -> Ended:
        """The session as it is now. Messages that were given out do not change any more."""
        limits, view = session.limits, session.view
        wire = view.wire(ttl=limits.cache_ttl, marks=limits.prompt_cache)
        return cls(session.journal.last, wire, view.placed(), view.model)


class _Run:
    """The extraction of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.background = Background()
        self.owed = False
        """Whether a turn ended while one ran: the next does not wait for more turns."""
