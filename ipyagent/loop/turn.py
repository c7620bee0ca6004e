"""The one loop: ask the model, run its tools, until it has said its last word.

Every ending is a value. Whatever happens, no call stays open and the next request is valid.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable

import msgspec

from ipyagent.errors import AgentError, JournalError
from ipyagent.journal.events import STOPPED, Ending, SystemReminder, TurnEnded, UserMessage
from ipyagent.journal.protocols import Workspace
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.budget import Budget, dear_turn
from ipyagent.loop.context_engine import Engine, ask_or_compact, compact_as_wished, wanted_compaction
from ipyagent.loop.model_call import write_report
from ipyagent.loop.session import Session
from ipyagent.loop.tool_calls import Missteps, is_empty, run_calls
from ipyagent.model.wire import CUTTING

EMPTY_REPLY = "Your last reply was empty. Say in a sentence what the results show, or what you need."
SLOW_DISK = 0.1
"""Seconds that a stopped turn waits for the disk; what the disk says later is told as a fault in the background."""
MAX_CUT_CALLS = 3
"""Replies in a row whose last call was cut off by the output limit before the turn gives up."""


async def run_turn(
    session: Session,
    said: UserMessage,
    workspace: Workspace,
    *,
    variables: Callable[[], dict[str, str]] = dict,
    spent_before: float = 0.0,
) -> TurnEnded:
    """Journal the request, work on it, journal how it ended.

    `variables` tells the user's names and types at the end; `spent_before` the dollars of the day
    so far. Cancelling the task is the way to stop: the turn then ends as "stopped".
    """
    began = time.monotonic()
    session.begin_costs()
    surface = session.surface
    status: Ending
    try:
        session.record(said)
        engine = Engine(session, workspace)
        status, message = await _rounds(session, workspace, Budget(session, spent_before), engine)
        message = message or dear_turn(session)
    except asyncio.CancelledError:
        status, message = "stopped", "stopped"
    except AgentError as problem:
        status, message = "failed", str(problem)
    except Exception as problem:  # noqa: BLE001 - a bug of ours, or of a library: the session goes on, the user reads where
        where = write_report(session.journal.folder, session.journal.last, traceback.format_exc())
        status, message = "failed", f"internal error {type(problem).__name__}: {str(problem)[:200]}; {where}"
    ended = TurnEnded(status=status, message=" ".join(message.splitlines()), variables=variables())
    try:
        return await _close(session, ended, began)
    except JournalError as problem:  # the disk is full: the end is shown although it cannot be kept
        ended = msgspec.structs.replace(ended, status="failed", message=str(problem))
        if surface is not None and session.surface is surface:
            surface.show(ended)
        return ended
    except Exception:  # noqa: BLE001 - what shows the turn is broken: the turn ends on the disk all the same
        session.hide(surface)
        return await _close(session, ended, began)


async def _close(session: Session, ended: TurnEnded, began: float) -> TurnEnded:
    stopped = ended.status == "stopped"
    session.close_open("The user stopped the turn." if stopped else "The turn ended.", STOPPED if stopped else "")
    worked = max(0.0, time.monotonic() - began - session.history.waited)  # not while it waited for the user
    return await end_turn(session, msgspec.structs.replace(ended, seconds=round(worked, 3)))


async def end_turn(session: Session, ended: TurnEnded) -> TurnEnded:
    """Journal the end of a turn and have it on the disk itself; after a Stop, and when one comes now, a slow disk is
    waited for a moment only. Raises JournalError."""
    made = session.record(ended)
    syncing = asyncio.ensure_future(session.synced())
    try:
        await asyncio.wait({syncing}, timeout=SLOW_DISK if ended.status == "stopped" else None)
    except asyncio.CancelledError:  # the turn has ended: how it ended stays
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
    if syncing.done():
        syncing.result()
    return made


async def _rounds(session: Session, workspace: Workspace, budget: Budget, engine: Engine) -> tuple[Ending, str]:
    """Replies and tools in turn; how it ended and a line for the user ("" when finished)."""
    nudged, cut, missteps = False, 0, Missteps()
    for _ in range(session.limits.max_turns):
        if line := await budget.check():
            return "limit", line
        await session.before_request()
        await engine.before_request()
        reply = await ask_or_compact(session, engine)
        calls = await run_calls(session, reply, workspace, missteps)
        if calls:
            await engine.ask_all("results")
            if (wish := wanted_compaction(session, reply)) is not None:
                await compact_as_wished(session, engine, wish)
        cut = cut + 1 if calls and reply.said.stop_reason in CUTTING else 0
        if cut >= MAX_CUT_CALLS:
            return "limit", f"{cut} tool calls in a row were cut off by the output limit; raise IPyAgent.max_output"
        if missteps.stuck:
            return "limit", missteps.stuck
        if reply.said.stop_reason == "pause_turn" or (calls and reply.said.stop_reason != "refusal"):
            continue
        match reply.said.stop_reason:
            case "refusal":
                why = f" ({reply.details})" if reply.details else ""
                return (
                    "refused", f"the model refused{why}; rephrase the request, or choose another model "
                    "with %agent model NAME"
                )
            case "max_tokens":
                return (
                    "limit",
                    "the reply was cut off at the output limit; ask it to continue, or raise IPyAgent.max_output",
                )
            case "model_context_window_exceeded":
                return "limit", "the reply reached the end of the context window; start a new session with %agent new"
            case "" if reply.broken:
                return "failed", f"{reply.broken}, twice; what arrived is kept, ask it to continue"
            case _ if not is_empty(reply.said.blocks):
                if missteps.reminded(session, reply):
                    continue
                return "finished", ""
        if nudged:
            return "failed", "the model gave an empty answer twice; rephrase the request"
        nudged = True
        session.record(
            SystemReminder(text=EMPTY_REPLY, why="empty reply, asking again", tokens=estimate_text(EMPTY_REPLY))
        )
    limit = session.limits.max_turns
    made = f"{limit} model call{'' if limit == 1 else 's'}"
    return "limit", f"stopped after {made} (max_turns); write `continue` in a %%agent cell"
