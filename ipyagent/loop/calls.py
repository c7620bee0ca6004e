"""The tool calls of one reply: checked, allowed, run, each with exactly one result.

Calls that only read run side by side; a call that may change something runs alone, in its place.
A call is on the disk before it runs, its result before anybody sees it.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from itertools import groupby
from typing import Any

from ipyagent.errors import AgentError, ToolFailure
from ipyagent.journal.events import Block, PermissionAnswered, PermissionAsked, Streamed, ToolCalled, ToolReturned
from ipyagent.journal.journal import clean, clean_json
from ipyagent.journal.protocols import Answer, Reply, Tool, ToolOutput, Workspace
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.permissions import Ask, Deny, digest_of
from ipyagent.loop.session import Session


async def run_calls(session: Session, reply: Reply, workspace: Workspace) -> int:
    """Run every call of the reply; returns how many there were. Cancelling stops what runs and
    starts nothing more; calls without a result are left open for the caller to close."""
    calls = [block for block in reply.said.blocks if block["type"] == "tool_use"]

    def side_by_side(call: Block) -> bool:
        tool = session.tools.get(call["name"])
        return tool is not None and tool.parallel

    for together, group in groupby(calls, key=side_by_side):
        batch = [_call(session, call, reply.invalid.get(call["id"]), workspace) for call in group]
        if together:
            await asyncio.gather(*batch)
        else:
            for one in batch:
                await one
    return len(calls)


async def _call(session: Session, call: Block, invalid: str | None, workspace: Workspace) -> None:
    """One call, from its arguments to its journalled result."""
    began = time.monotonic()
    own = workspace.for_call(call["id"], lambda text: _stream(session, call["id"], text))
    try:
        if invalid is not None:
            raise ToolFailure(invalid)
        output = await _run(session, call, own)
    except ToolFailure as failure:
        output = ToolOutput(blocks=({"type": "text", "text": str(failure) or "failed"},), is_error=True)
    except (AgentError, asyncio.CancelledError):
        raise
    except BaseException as problem:  # noqa: BLE001 - a tool is foreign code: whatever it raises is its result
        frames = traceback.format_exception(problem, limit=-3)
        text = f"The tool failed: {type(problem).__name__}: {problem}\n{''.join(frames)}"
        output = ToolOutput(blocks=({"type": "text", "text": text[:4000]},), is_error=True)
    blocks = tuple(clean_json(block) for block in output.blocks)
    session.record(
        ToolReturned(
            call=call["id"],
            name=call["name"],
            blocks=blocks,
            is_error=output.is_error,
            seconds=round(time.monotonic() - began, 3),
            tokens=estimate_blocks(blocks),
            note=output.note,
        )
    )


def _stream(session: Session, call: str, text: str) -> None:
    session.record(Streamed(channel="tool", text=clean(text), ref=call))


async def _run(session: Session, call: Block, workspace: Workspace) -> ToolOutput:
    tool = session.tools.get(call["name"])
    if tool is None:
        raise ToolFailure(f"There is no tool {call['name']!r}. Known tools: {', '.join(sorted(session.tools))}.")
    given = tool.validate(call["input"])
    await _allow(session, call["id"], tool, given, workspace)
    session.record(ToolCalled(call=call["id"], name=tool.name, input=clean_json(call["input"])))
    session.journal.sync()
    session.show_phase(f"running {tool.name}")
    return await tool.run(given, workspace)


async def _allow(session: Session, call: str, tool: Tool, given: dict[str, Any], workspace: Workspace) -> None:
    """Return when the call may run; raise ToolFailure with the reason when it may not."""
    surface = session.surface
    decision = session.permissions.decide(tool, given, workspace, can_ask=surface is not None and surface.can_ask)
    if isinstance(decision, Deny):
        session.record(PermissionAnswered(call=call, answer="deny", by=decision.by, reason=decision.reason))
        raise ToolFailure(decision.reason)
    if not isinstance(decision, Ask) or surface is None:
        return
    question = decision.question
    asked = session.record(
        PermissionAsked(
            call=call,
            tool=tool.name,
            title=clean(question.title),
            text=clean(question.text),
            language=question.language,
            pattern=decision.pattern,
            digest=decision.digest,
        )
    )
    session.journal.sync()
    session.show_phase("waiting for your answer")
    answer: Answer = await surface.ask(asked)
    session.record(PermissionAnswered(call=call, answer=answer.answer, by=answer.by, reason=clean(answer.reason)))
    if answer.answer == "deny":
        reason = f" Reason: {answer.reason}" if answer.reason else ""
        raise ToolFailure(f"The user denied this call.{reason} Do not try it again in another way; ask or go on.")
    if digest_of(tool, given, tool.question(given, workspace)) != decision.digest:
        raise ToolFailure("What this call would do has changed since the user allowed it, so it was not run.")
    if answer.answer == "always":
        session.permissions.remember(decision.pattern)
