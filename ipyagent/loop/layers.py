"""Where the layers of the context engine are asked, in order; one that fails steps aside.

All three triggers of a compaction (the mark, the user, the model) and the reactive one go through
`compact`. After `compact_failures` failures in a row the automatic one stops for the session and
says so; a second automatic one within `compact_thrash_turns` turns is refused with the reason.
"""

from __future__ import annotations

import asyncio
import pkgutil
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from ipyagent.errors import AgentError, JournalError, ModelError
from ipyagent.journal.events import Compacted, Event, LayerDecided, LayerFailed
from ipyagent.journal.protocols import Forked, ForkOrder, Layer, Moment, Situation, Workspace
from ipyagent.loop.fork import run_fork
from ipyagent.loop.hooks import hooks
from ipyagent.loop.session import Session

BREAKER = "compaction"
"""Name under which the circuit breaker journals itself."""


@cache
def known_layers() -> tuple[Layer, ...]:
    """Every layer there is, cheapest first: one named object a module of `ipyagent.context`."""
    import ipyagent.context as package

    found: list[Layer] = []
    for module in pkgutil.iter_modules(package.__path__):
        candidate = vars(import_module(f"{package.__name__}.{module.name}")).get(module.name)
        if candidate is not None and hasattr(candidate, "consider"):
            found.append(candidate)
    return tuple(sorted(found, key=lambda layer: layer.order))


class Engine:
    """The layers at work on one session. `workspace` serves forks and what is restored."""

    def __init__(self, session: Session, workspace: Workspace) -> None:
        self.session = session
        self.workspace = workspace

    async def results(self) -> None:
        """All results of a reply are in, none is sent yet."""
        await self._ask_all("results")

    async def before_request(self) -> None:
        """The cheap layers, then a compaction when the mark is reached."""
        await self._ask_all("request")
        session = self.session
        if session.state(session.view.count().tokens).above_auto:
            line = self._held_back()
            if line:
                self._say_once(line)
            else:
                await self.compact("auto")

    async def turn_end(self) -> None:
        """Background work after a turn."""
        await self._ask_all("turn_end")

    async def compact(
        self, trigger: str, *, instructions: str = "", first: int = 0, last: int = 0, gap: int = 0
    ) -> Compacted | None:
        """Bring the context under the mark; the boundary, or None when no layer could.

        The conversation stays as it was when nothing could be done.
        """
        session = self.session
        moment: Moment = "overflow" if trigger == "reactive" else "mark"
        before = session.view.count().tokens
        made: Compacted | None = None
        failed = False
        session.show_phase("compacting")
        for layer in self._enabled("mark"):
            events = await self._consider(layer, moment, trigger, instructions, first, last, gap)
            failed = failed or events is None
            recorded = [session.record(event) for event in events or ()]
            made = next((event for event in recorded if isinstance(event, Compacted)), made)
            after = session.view.count().tokens
            if made is not None and (trigger == "manual" or not session.state(after).above_auto):
                break
            if recorded and made is None and after < before and not session.state(after).above_auto:
                break
        if made is None and failed:
            count = session.history.compact_failures + 1
            stopped = count >= session.setting("compact_failures")
            why = f"compaction failed {count} times in a row; " if count > 1 else "compaction failed; "
            off = "automatic compaction is off for this session, %compact still works"
            why += off if stopped else "nothing was lost"
            session.record(LayerFailed(layer=BREAKER, why=why, stopped=stopped))
        elif made is None:
            session.record(LayerDecided(layer=BREAKER, words="there is nothing to compact"))
        return made

    # ------------------------------------------------------------------ asking

    def _held_back(self) -> str:
        """Why no automatic compaction is tried now ("" when it is)."""
        history, session = self.session.history, self.session
        if history.compact_failures >= session.setting("compact_failures"):
            return "automatic compaction is off after repeated failures; say %compact, or start afresh with %agent new"
        since = history.totals.requests - history.compacted_at
        if history.compacted_at >= 0 and since < session.setting("compact_thrash_turns"):
            state = session.state(session.view.count().tokens)
            return (
                f"the window is full again {since} requests after a compaction: {state.tokens:,} tokens, mark "
                f"{state.auto_mark:,}; see %context for what fills it, then %compact or choose a larger window"
            )
        return ""

    def _say_once(self, line: str) -> None:
        if self.session.history.decided.get(BREAKER) != line:
            self.session.record(LayerDecided(layer=BREAKER, words=line))

    async def _ask_all(self, moment: Moment) -> None:
        for layer in self._enabled(moment):
            for event in await self._consider(layer, moment, "auto") or ():
                self.session.record(event)

    def _enabled(self, moment: Moment) -> list[Layer]:
        setting = self.session.setting
        return [layer for layer in known_layers() if moment in layer.moments and setting(f"layer_{layer.name}")]

    async def _consider(
        self,
        layer: Layer,
        moment: Moment,
        trigger: str,
        instructions: str = "",
        first: int = 0,
        last: int = 0,
        gap: int = 0,
    ) -> Sequence[Event] | None:
        """The layer's decisions; None when it failed, which is journalled."""
        now = self.situation(moment, trigger, instructions, first, last, gap)
        try:
            return await layer.consider(now)
        except (JournalError, asyncio.CancelledError):
            raise
        except (ModelError, AgentError) as problem:
            self.session.record(LayerFailed(layer=layer.name, why=" ".join(str(problem).split())[:400]))
        except Exception as problem:  # noqa: BLE001 - a layer that fails steps aside, the next one catches it
            why = f"{type(problem).__name__}: {problem}"
            self.session.record(LayerFailed(layer=layer.name, why=" ".join(why.split())[:400]))
        return None

    def situation(
        self,
        moment: Moment,
        trigger: str = "auto",
        instructions: str = "",
        first: int = 0,
        last: int = 0,
        gap: int = 0,
    ) -> Situation:
        """What the layers look at now."""
        session = self.session
        return Situation(
            view=session.view,
            state=session.state(session.view.count().tokens),
            rates=session.rates(),
            moment=moment,
            folder=session.journal.folder,
            idle=max(0.0, time.time() - session.history.said_at) if session.history.said_at else 0.0,
            turns=session.history.expected_requests,
            trigger=trigger,
            instructions=instructions,
            first=first,
            last=last,
            gap=gap,
            bound_thinking=session.info.thinking,
            server_edits=session.info.edits,
            recreatable=frozenset(name for name, tool in session.tools.items() if tool.recreatable),
            turn_starts=tuple(turn.first for turn in session.history.turns),
            setting=session.setting,
            fork=self._fork,
            restore=self._restore,
            hook=self._hook,
        )

    async def _fork(self, order: ForkOrder) -> Forked:
        return await run_fork(self.session, order, self.workspace)

    async def _restore(self) -> list[tuple[str, str]]:
        return await self.session.restoring(self.workspace)

    async def _hook(self, name: str, facts: dict[str, Any]) -> list[str]:
        answers = await hooks.call(name, facts, self._report_hook)
        return [str(answer) for answer in answers]

    def _report_hook(self, why: str) -> None:
        self.session.record(LayerFailed(layer="hooks", why=why[:400]))
