"""One request worked through on the agent thread: what the model gets with it, the loop, what follows
behind the turn. A request that is stopped before it began keeps its words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from ipyagent.assembly.children_desk import SubagentManager
from ipyagent.assembly.mentions import blocks_of
from ipyagent.assembly.messages_desk import MailService
from ipyagent.assembly.requests import PreparedRequest, TurnResult
from ipyagent.assembly.workbench import SessionSetup
from ipyagent.context.pins import pinned
from ipyagent.context.reminders import EnvironmentSnapshot, context_block, guarded
from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Block, TurnEnded, UserMessage
from ipyagent.journal.journal import clean
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.hooks import hooks
from ipyagent.loop.layers import Engine
from ipyagent.loop.redacting import without_secrets
from ipyagent.loop.session import Session
from ipyagent.loop.turn import end_turn, run_turn
from ipyagent.memory.recall import ignores_memory
from ipyagent.memory.section import IGNORED
from ipyagent.model.client import AnthropicModel
from ipyagent.model.connect import Connections
from ipyagent.remembering.dreaming import DreamScheduler
from ipyagent.remembering.extracting import MemoryExtractor
from ipyagent.remembering.recalling import MemoryRetriever
from ipyagent.skills.changes import changed

AFTER_STOP = 0.4
"""Seconds that a stopped turn waits for the user's `stop` hooks."""

NOTED = 0.1
"""Seconds that a turn's end waits for its cost to be in the file of the day, which another process may hold."""


class TurnRunner:
    """Turns asked for at one workbench; remembers what the model was told last. `notice` takes lines that
    the user should see before the next turn."""

    def __init__(self, bench: SessionSetup, connections: Connections, notice: Callable[[str], None]) -> None:
        self.bench = bench
        self._notice = notice
        self._told: EnvironmentSnapshot | None = None
        self._telling: set[asyncio.Future[list[Any]]] = set()
        self._greeted: set[str] = set()
        self.recalling = MemoryRetriever(bench, connections, self.note_spent)
        """What is shown of the memories beside each turn."""
        bench.check = self.recalling.choosing.check
        self.extracting = MemoryExtractor(bench, connections, self.note_spent, notice)
        """What is saved of the conversation behind its turns."""
        self.dreaming = DreamScheduler(bench, self.note_spent, notice)
        """How the memories are tidied, now and then."""
        self.children: SubagentManager | None = None
        """Who works for a turn beside it."""
        self.messages: MailService | None = None
        """What other agents wrote."""

    def __repr__(self) -> str:
        return f"<TurnRunner at {self.bench!r}>"

    def forget(self) -> None:
        """Another session comes: it was told nothing yet."""
        self._told = None

    async def turn(
        self, session: Session, asked: PreparedRequest, main: MainThreadExecutor, model: AnthropicModel
    ) -> TurnResult:
        """The turn itself; what it cost is added to the day's."""
        workspace = self.bench.workspace(session, main)
        settings = self.bench.settings
        try:
            said = await self._ready(session, asked, workspace, model)
        except asyncio.CancelledError:  # stopped before it began: the words are kept all the same
            plain = ({"type": "text", "text": asked.text},)
            session.record(_said(asked, plain))
            ended = await end_turn(session, TurnEnded(status="stopped", message="stopped"))
        else:
            before = self.bench.spending.today() if settings.max_cost_per_day else 0.0
            names, children = self.bench.names, self.children
            with ExitStack() as around:
                around.enter_context(self.recalling.turn(session, asked.text, workspace, model))
                if children is not None:
                    around.enter_context(children.turn(session, main))
                if self.messages is not None:
                    around.enter_context(self.messages.turn(session))
                ended = await run_turn(session, said, workspace, variables=lambda: names.types, spent_before=before)
            if children is not None and (ended.status == "stopped" or asked.options.aside):
                await children.family(session).stopped("the turn was stopped")
        self.note_spent(session.turn_at_most)
        if not asked.options.aside and ended.status in ("finished", "limit"):
            self.extracting.ended(session, workspace, session.surface)
            session.background.ask(lambda: self._behind(session, workspace))
            self.dreaming.after(main, model, session)
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
        noted = asyncio.ensure_future(asyncio.to_thread(self.bench.spending.written, NOTED))
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
        most = self.bench.settings.max_cost_per_day
        if most and self.bench.spending.today() >= most:
            return
        engine = Engine(session, workspace, behind=True, beside=await self.extracting.beside(session))
        try:
            await engine.turn_end()
        finally:
            if engine.spent:
                self.note_spent(engine.spent)
        self.extracting.after(session)

    def note_spent(self, dollars: float) -> None:
        """Add to what was spent today."""
        self.bench.spending.add(dollars)

    async def _ready(
        self, session: Session, asked: PreparedRequest, workspace: KernelWorkspace, model: AnthropicModel
    ) -> UserMessage:
        """Connect the session and put together what the model gets of the request."""
        options = asked.options
        self.bench.keep_objects(session, workspace)
        await self.bench.connect(session, model, asked.tools, options)
        if not options.aside:
            self.extracting.begins(session)
        # what a compaction took away has to be told again
        history, told = session.history, None if options.fresh or session.history.forgot else self._told
        blocks = await blocks_of(asked.mentions, workspace)
        restored = {path: (workspace.root / path).exists() for path in history.restored}
        context = context_block(
            asked.seen, told, restarted=history.stale, before=history.variables, restored=restored,
            memories=history.memory_changes,
        )
        told_by_hooks = await self._hooked(session, asked.text)
        shown = pinned((ident, session.redact(clean(source))) for ident, source in asked.pinned)
        if (pins := session.history.pins.news(shown)) is not None:
            session.record(pins)
        skills = self._skills(session, asked)
        more = [*blocks, *([context] if context is not None else []), *told_by_hooks, *skills]
        blocks = list(without_secrets(more, session.redact))  # the user's own words go as they were typed
        if ignores_memory(asked.said):
            blocks.append({"type": "text", "text": IGNORED})
        blocks.append({"type": "text", "text": asked.request or asked.text})
        if not options.aside:
            self._told = asked.seen
        self.bench.names.types = dict(asked.seen.types)
        return _said(asked, blocks)

    def _skills(self, session: Session, asked: PreparedRequest) -> list[Block]:
        """What changed of the skills on the disk, and those that the user wants loaded, before the request; blocks
        for those that stand in the context already."""
        skills, loaded = self.bench.skills, session.history.skills
        found, again = skills.latest.skills, []
        if (news := changed(skills.latest.for_model, loaded)) is not None:
            session.record(news)
        for name in asked.skills:
            try:
                load = skills.made(found[name], "user")
            except (KeyError, ToolFailure) as problem:
                self._notice(f"the skill {name} was not loaded: {problem}; %skills lists what there is")
                continue
            if loaded.has(name, load.digest):
                self._notice(f"the skill {name} is in the context already")
                again.append(name)
            else:
                self.bench.load(session, load)
        words = "The user wants you to go by the skill {}, which is in the context already."
        told = [guarded(words.format(name)) for name in again]
        return [{"type": "text", "text": f"<context>\n{each}\n</context>"} for each in told]

    async def _hooked(self, session: Session, text: str) -> list[Block]:
        """What the user's hooks have to say before a request."""
        answers: list[Any] = []
        if session.journal.session not in self._greeted:
            self._greeted.add(session.journal.session)
            facts = {"session": session.journal.session, "resumed": bool(session.history.turns)}
            answers += await hooks.call("session_start", facts, session.report_hook)
        answers += await hooks.call("user_prompt", {"text": text}, session.report_hook)
        return [{"type": "text", "text": f"<context>\n{guarded(str(answer))}\n</context>"} for answer in answers]


def _said(asked: PreparedRequest, blocks: Sequence[Block]) -> UserMessage:
    tokens = estimate_blocks(blocks)
    return UserMessage(text=asked.text, blocks=tuple(blocks), cell=asked.cell, tokens=tokens, own=asked.own)
