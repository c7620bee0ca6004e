"""One request worked through on the agent thread: what the model gets with it, the loop, what follows
behind the turn. A request that is stopped before it started keeps its words."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from ipyagent.assembly.requests import PreparedRequest, TurnResult, blocks_of
from ipyagent.assembly.session_setup import SessionSetup
from ipyagent.context.reminders import EnvironmentSnapshot, context_block, guarded, mode_in, standing
from ipyagent.errors import UsageError
from ipyagent.escape import line
from ipyagent.journal.events import (
    Block,
    FilesRestored,
    MemorySaved,
    Mode,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserMessage,
)
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.workspace import BACKUPS, KernelWorkspace
from ipyagent.loop.context_engine import Engine
from ipyagent.loop.hooks import hooks
from ipyagent.loop.redacting import without_secrets
from ipyagent.loop.session import Session
from ipyagent.loop.turn import end_turn, run_turn
from ipyagent.loop.watching import CodeWatch
from ipyagent.model.client import AnthropicModel
from ipyagent.parts import Turn
from ipyagent.parts.files.searching import walk
from ipyagent.tools.changes import Undone, restore
from ipyagent.ui.memory_chips import saved_line

AFTER_STOP = 0.4
"""Seconds that a stopped turn waits for the user's `stop` hooks."""

NOTED = 0.1
"""Seconds that a turn's end waits for its cost to be in the file of the day, which another process may hold."""


class TurnRunner:
    """Turns of one `SessionSetup`; remembers what the model was told last. `notice` takes lines that
    the user should see before the next turn."""

    def __init__(self, setup: SessionSetup, notice: Callable[[str], None]) -> None:
        self.setup = setup
        self._notice = notice
        self._told: EnvironmentSnapshot | None = None
        self._mode: Mode | None = None
        self._telling: set[asyncio.Future[list[Any]]] = set()
        self._greeted: set[str] = set()

    def __repr__(self) -> str:
        return f"<TurnRunner at {self.setup!r}>"

    def forget(self) -> None:
        """Another session comes: it was told nothing yet."""
        self._told = self._mode = None

    async def turn(
        self, session: Session, asked: PreparedRequest, main: MainThreadExecutor, model: AnthropicModel
    ) -> TurnResult:
        """The turn itself; what it cost is added to the day's."""
        workspace, parts = self.setup.workspace(session, main), self.setup.parts
        settings, aside = self.setup.settings, asked.options.aside
        turn = Turn(
            session, workspace, main, model, text=asked.text, said=asked.said, aside=aside, taken=asked.taken
        )
        async with AsyncExitStack() as around:
            try:
                said = await self._ready(turn, asked, around)
            except asyncio.CancelledError:  # stopped before it started: the words are kept all the same
                plain = ({"type": "text", "text": asked.text},)
                session.record(_said(asked, plain))
                ended = await end_turn(session, TurnEnded(status="stopped", message="stopped"))
            else:
                before = self.setup.spending.today() if settings.max_cost_per_day else 0.0
                names = self.setup.names
                ended = await run_turn(session, said, workspace, variables=lambda: names.types, spent_before=before)
        if ended.status == "stopped" or aside:
            for part in parts:
                await part.turn_stopped(session)
        self.setup.note_spent(session.turn_at_most)
        if not aside and ended.status in ("finished", "limit"):
            for part in parts:
                part.after_turn(turn)
            session.background.ask(lambda: self._behind(session, workspace))
        session.show_phase("")
        answer = session.history.turns[-1].answer if session.history.turns else ""
        facts = {"status": ended.status, "message": ended.message, "text": answer}
        await self._tell_end(facts)
        return TurnResult(
            status=ended.status, message=ended.message, text=answer, cost=session.turn_cost, seconds=ended.seconds
        )

    async def _tell_end(self, facts: dict[str, Any]) -> None:
        """Call the user's `stop` hooks, while what the turn cost is noted. A stopped turn waits a moment only, one that
        is stopped now not at all: they go on behind it, each within its own time."""
        noted = asyncio.ensure_future(asyncio.to_thread(self.setup.spending.written, NOTED))
        calls = asyncio.ensure_future(hooks.call("stop", facts, self._notice))
        self._telling.add(calls)
        calls.add_done_callback(self._telling.discard)
        try:
            await asyncio.wait({calls, noted}, timeout=AFTER_STOP if facts["status"] == "stopped" else None)
        except asyncio.CancelledError:  # the turn has ended: how it ended stays
            if (task := asyncio.current_task()) is not None:
                task.uncancel()

    async def _behind(self, session: Session, workspace: KernelWorkspace) -> None:
        """What follows a turn in the background: notes, and what is worth remembering with them or after them; shown
        nowhere, for the next turn may be under way. Nothing past the limit of the day: nobody is there to be asked."""
        most = self.setup.settings.max_cost_per_day
        if most and self.setup.spending.today() >= most:
            return
        found = [beside for part in self.setup.parts if (beside := await part.beside(session)) is not None]
        engine = Engine(session, workspace, behind=True, beside=found[0] if found else None)
        try:
            await engine.ask_all("turn_end")
        finally:
            if engine.spent:
                self.setup.note_spent(engine.spent)
        for part in self.setup.parts:
            await part.behind(session)

    async def _ready(self, turn: Turn, asked: PreparedRequest, around: AsyncExitStack) -> UserMessage:
        """Connect the session and put together what the model gets of the request; `around` is left with the turn."""
        options, session, workspace = asked.options, turn.session, turn.workspace
        self.setup.keep_objects(session, workspace)
        await self.setup.connect(session, turn.model, asked.tools, options)
        # what a compaction took away has to be told again
        history, told = session.history, None if options.fresh or session.history.forgot else self._told
        blocks = await blocks_of(asked.mentions, workspace)
        mode, known = session.permissions.mode, self._mode
        if known is None and history.stale:
            known = mode_in(standing(session.view.messages))
        restored = {path: (workspace.root / path).exists() for path in history.restored}
        context = context_block(
            asked.seen, told, restarted=history.stale, before=history.lost, restored=restored,
            memories=history.memory_changes, replayed=history.replays(),
            mode=mode if known not in (None, mode) and not options.fresh else None, stopped=_cut_off(session),
        )  # fmt: skip
        told_by_hooks = await self._hooked(session, asked.text)
        for part in self.setup.parts:
            await around.enter_async_context(part.turn(turn))
        more = [*blocks, *([context] if context is not None else []), *told_by_hooks, *turn.blocks]
        blocks = list(without_secrets(more, session.redact))  # the user's own words go as they were typed
        blocks.append({"type": "text", "text": asked.request or asked.text})
        if not options.aside:
            self._told, self._mode = asked.seen, mode
        self.setup.names.types = dict(asked.seen.types)
        return _said(asked, blocks)

    async def _hooked(self, session: Session, text: str) -> list[Block]:
        """What the user's hooks have to say before a request."""
        answers: list[Any] = []
        if session.journal.session not in self._greeted:
            self._greeted.add(session.journal.session)
            facts = {"session": session.journal.session, "resumed": bool(session.history.turns)}
            answers += await hooks.call("session_start", facts, session.report_hook)
        answers += await hooks.call("user_prompt", {"text": text}, session.report_hook)
        return [{"type": "text", "text": f"<context>\n{guarded(str(answer))}\n</context>"} for answer in answers]


def _cut_off(session: Session) -> bool:
    """Whether the newest turn that is not taken out was stopped where neither a reply nor a tool's result says so."""
    turns, messages = [turn for turn in session.history.turns if not turn.out], session.view.messages
    if not turns or turns[-1].status != "stopped" or not messages or messages[-1]["role"] != "user":
        return False
    return bool(messages[-1]["content"][-1]["type"] != "tool_result")


def _said(asked: PreparedRequest, blocks: Sequence[Block]) -> UserMessage:
    tokens = estimate_blocks(blocks)
    return UserMessage(text=asked.text, blocks=tuple(blocks), cell=asked.cell, tokens=tokens, own=asked.own)


NOT_COVERED = (
    "Undo does not remove files that code or commands created, nor does it cover git's own files, commands outside the "
    "sandbox or unwatched compiled code."
)
"""Said where code or commands ran."""
RUNS = ("python", "shell", "agent")
"""Tools that run code or commands, or have others run them."""
SHOWN_FILES = 20
"""Files that are named."""
LOOKED = 0.5
"""Seconds in which files that were written while code ran are looked for."""
COARSE = 0.02
"""Seconds by which the time of a file and the clock may differ."""
_REBOUND = re.compile(r"^\[rebound: (.+)\]$", re.MULTILINE)


class TurnUndone(NamedTuple):
    """`turn` counts from 1 (0: only files that an earlier undo had left, or a replayed cell of a notebook), `text` is
    its request; `restored` and `conflicts` as in `Undone`; `rebound`: variables that the turn rebound, which stay as
    they are; `removed`: those of `restored` that the turn had created; `ran`: whether it ran code or commands, whose
    files undo covers in part; `replay` as in `ToUndo`; `memories`: what it saved or deleted of them, which stays;
    `stay`: files that were written while its code ran; `unseen`: there was no time to look at all of them."""

    turn: int
    text: str
    restored: tuple[str, ...]
    conflicts: tuple[str, ...]
    rebound: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    ran: bool = False
    replay: str = ""
    memories: tuple[str, ...] = ()
    stay: tuple[str, ...] = ()
    unseen: bool = False

    def lines(self) -> list[str]:
        """What was done, for the user."""
        lines = [f"turn {self.turn}{', replayed' * bool(self.replay)} ({line(self.text, 60)}):"] if self.turn else []
        if self.replay and not self.turn:
            lines = [f"a replayed cell of {line(self.replay, 60)}:"]
        lines += [f"{'removed' if path in self.removed else 'put back'} {path}" for path in self.restored]
        lines += [f"{conflict}." for conflict in self.conflicts]
        if (self.turn or self.replay) and not (self.restored or self.conflicts):
            lines.append("nothing to restore")
        if self.rebound:
            lines.append(f"variables that it rebound stay as they are: {', '.join(self.rebound)}")
        if self.memories:
            lines.append(f"what it did to memories stays: {'; '.join(self.memories)}")
        if self.stay:
            more = f" and {len(self.stay) - SHOWN_FILES} more" if len(self.stay) > SHOWN_FILES else ""
            files = ", ".join(self.stay[:SHOWN_FILES])
            lines.append(f"written while its code or commands ran, not removed: {files}{more}")
        if self.unseen:
            lines.append("the project has too many files to check them all for what its code or commands wrote")
        return [*lines, NOT_COVERED] if self.ran else lines


def undo_turn(session: Session | None, root: Path) -> TurnUndone:
    """Take the newest turn's file changes back. Raises UsageError when there is nothing to restore."""
    if session is not None:
        session.kept(CodeWatch, lambda: CodeWatch(session)).settle()
    due = session.history.files.next if session is not None else None
    if session is None or due is None:
        more = f". {NOT_COVERED}" if session is not None and ran_in(session, 0, 0) else ""
        raise UsageError(f"no file changes are left to undo in this session{more}")
    undone = restore(due.changes, root, session.journal.folder / BACKUPS)
    if not (due.turn or due.replay) and not undone.restored:
        left = "; " + "; ".join(undone.conflicts) if undone.conflicts else ""
        raise UsageError(f"no file changes of the other turns are left to undo{left}")
    session.record(FilesRestored(paths=undone.restored, since=due.changes[0].id))
    if not due.turn:
        return TurnUndone(0, "", *undone, ran=bool(due.replay), replay=due.replay)
    return undone_turn(session, root, due.turn, undone, due.replay)


def undone_turn(session: Session, root: Path, number: int, undone: Undone, replay: str = "") -> TurnUndone:
    """What came of taking back the files of turn `number`, from 1, or of its `replay`."""
    turn = session.history.turns[number - 1]
    removed = tuple(path for path in undone.restored if not (root / path).exists())
    return TurnUndone(number, turn.text, *undone, rebound_in(session, turn.first, turn.last), removed,
                      ran_in(session, turn.first, turn.last), replay,
                      memories_of(session, turn.first, turn.last),
                      *_left(session, root, turn.first, turn.last, undone))  # fmt: skip


def _left(session: Session, root: Path, first: int, last: int, undone: Undone) -> tuple[tuple[str, ...], bool]:
    """Files under `root` that were last written while code or commands of the events from `first` to `last` ran, and
    that the undo has not dealt with, and whether time ran out. Notebooks are left out: their page saves them at any
    time."""
    begun: dict[str, float] = {}
    spans: list[tuple[float, float]] = []
    for event in session.journal.read():
        if isinstance(event, ToolCalled) and event.name in RUNS and first <= event.id <= (last or event.id):
            begun[event.call] = event.at
        elif isinstance(event, ToolReturned) and event.call in begun:
            spans.append((begun.pop(event.call) - COARSE, event.at + COARSE))
    if not spans:
        return (), False
    found, until = [], time.monotonic() + LOOKED
    told = {*undone.restored, *(conflict.partition(" was left alone: ")[0] for conflict in undone.conflicts)}
    for path in walk(str(root), until):
        if time.monotonic() >= until:
            break
        try:
            written = os.lstat(root / path).st_mtime
        except OSError:
            continue  # gone meanwhile
        new = path not in told and not path.endswith(".ipynb")
        if new and any(start <= written <= end for start, end in spans):
            found.append(path)
    return tuple(found), time.monotonic() >= until


def ran_in(session: Session, first: int, last: int) -> bool:
    """Whether code or commands ran in the events from `first` to `last` (0: the newest)."""
    events = session.journal.read()
    return any(isinstance(event, ToolCalled) and event.name in RUNS and first <= event.id <= (last or event.id)
               for event in events)  # fmt: skip


def memories_of(session: Session, first: int, last: int) -> tuple[str, ...]:
    """What was done to memories in the events from `first` to `last` and is not undone, each with its undo."""
    every = [event for event in session.journal.read() if isinstance(event, MemorySaved)]
    undone = {event.undoes for event in every}
    stays = (event for event in every if first <= event.id <= (last or event.id) and event.id not in undone)
    return tuple(saved_line(event) for event in stays if not event.undoes)


def rebound_in(session: Session, first: int, last: int) -> tuple[str, ...]:
    """Names that code of the events from `first` to `last` rebound, as its results say."""
    names: dict[str, None] = {}
    for event in session.journal.read():
        if isinstance(event, ToolReturned) and event.name == "python" and first <= event.id <= (last or event.id):
            for block in event.blocks:
                for found in _REBOUND.findall(str(block.get("text", ""))):
                    names.update(dict.fromkeys(found.split(", ")))
    return tuple(names)
