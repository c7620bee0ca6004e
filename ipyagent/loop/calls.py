"""The tool calls of one reply: checked, allowed, run, each with exactly one result.

Calls that only read run side by side; a call that may change something runs alone, in its place.
A call is on the disk before it runs, its result before anybody sees it.
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Coroutine, Mapping
from difflib import get_close_matches
from itertools import groupby
from typing import Any

import msgspec

from ipyagent.errors import AgentError, JournalError, SettingError, ToolFailure, UsageError
from ipyagent.journal.events import (
    Block,
    LayerFailed,
    PermissionAnswered,
    PermissionAsked,
    Streamed,
    ToolCalled,
    ToolReturned,
)
from ipyagent.journal.journal import clean, clean_json
from ipyagent.journal.protocols import REPLY, ModelReply, PermissionAnswer, Tool, ToolOutput, Workspace
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.hooks import hooks
from ipyagent.loop.keeping import hidden, kept
from ipyagent.loop.missteps import Missteps
from ipyagent.loop.permissions import Ask, Deny, digest_of
from ipyagent.loop.session import Session
from ipyagent.redaction.stream import Stream
from ipyagent.tools.answers import capped

RESULT_BLOCKS = ("text", "image", "document")
"""Kinds of blocks that a tool result may hold; anything else becomes text."""
MOST_NAMED = 60
"""Tools named to the model when it calls one that is not there."""
MOST_TEXT = 4
"""Our tools keep to `tool_output_chars` themselves; others are cut at this many times it."""


async def run_calls(session: Session, reply: ModelReply, workspace: Workspace, missteps: Missteps) -> int:
    """Run every call of the reply; returns how many there were. `missteps` counts those that fail. Cancelling stops
    what runs and starts nothing more; calls without a result are left open for the caller to close."""
    calls = [block for block in reply.said.blocks if block["type"] == "tool_use"]
    workspace.beside.clear()
    missteps.messages += 1
    REPLY.set(tuple(calls))

    def side_by_side(call: Block) -> bool:
        tool = session.tools.get(call["name"])
        return tool is not None and tool.parallel

    for together, group in groupby(calls, key=side_by_side):
        if together:
            await _together([_call(session, call, reply.invalid, workspace, missteps) for call in group])
        else:
            for call in group:
                await _call(session, call, reply.invalid, workspace, missteps)
    return len(calls)


async def _together(batch: list[Coroutine[Any, Any, None]]) -> None:
    """Wait for all; when one cannot be journalled, or the turn stops, none is left running."""
    tasks = [asyncio.ensure_future(one) for one in batch]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _call(
    session: Session, call: Block, invalid: Mapping[str, str], workspace: Workspace, missteps: Missteps
) -> None:
    """One call, from its arguments to its journalled result."""
    began = time.monotonic()
    redact = session.redact.of(f"the result of `{call['name']}`")
    live = Stream(redact)
    own = workspace.for_call(call["id"], lambda text: _stream(session, call["id"], live.feed(clean(text))))
    try:
        if call["id"] in invalid:
            raise ToolFailure(invalid[call["id"]])
        output = _sound(await _run(session, call, own), own)
    except ToolFailure as failure:
        output = _failed(str(failure) or "failed", own)
    except AgentError:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        output = _failed("The tool cancelled itself.", own)
    except BaseException as problem:  # noqa: BLE001 - a tool is foreign code: whatever it raises is its result
        output = _failed("The tool failed: " + "".join(traceback.format_exception(problem, limit=-3)), own)
    finally:
        _stream(session, call["id"], live.end())
    stored = await kept(session, call, output, own, redact)
    blocks = stored.blocks
    if note := missteps.returned(call, output.blocks, is_error=output.is_error):
        blocks = (*blocks, {"type": "text", "text": note})
    session.record(
        ToolReturned(
            call=call["id"],
            name=call["name"],
            blocks=blocks,
            is_error=output.is_error,
            seconds=round(time.monotonic() - began, 3),
            tokens=estimate_blocks(blocks),
            note=hidden(output.note),
            shown=output.shown,
            printed=stored.printed,
            left=stored.left,
        )
    )
    await asyncio.sleep(0)  # a stop that waited for this result comes before the next question, call or request


def _failed(text: str, workspace: Workspace) -> ToolOutput:
    text = capped(clean(text), workspace.limit("tool_output_chars"))
    return ToolOutput(blocks=({"type": "text", "text": text},), is_error=True)


def _sound(output: Any, workspace: Workspace) -> ToolOutput:
    """What a tool answered, fit for transcript and server. Raises ToolFailure when it is not an
    answer at all."""
    if not isinstance(output, ToolOutput):
        raise ToolFailure(f"The tool gave a {type(output).__name__} in place of a ToolOutput.")
    blocks: list[Block] = []
    for block in output.blocks:
        try:
            whole = msgspec.json.decode(msgspec.json.encode(clean_json(block)))
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise ToolFailure(f"The tool gave something that is not JSON: {problem}") from None
        if not isinstance(whole, dict) or whole.get("type") not in RESULT_BLOCKS:
            whole = {"type": "text", "text": json.dumps(whole, ensure_ascii=False)}
        if whole["type"] == "text":  # a key that the server does not know would be refused with every later request
            limit = workspace.limit("tool_output_chars")
            most = max(limit, min(MOST_TEXT * limit, workspace.limit("whole_chars")))
            whole = {"type": "text", "text": capped(str(whole.get("text", "")), most)}
        blocks.append(whole)
    return msgspec.structs.replace(output, blocks=tuple(blocks), note=clean(str(output.note)))


def _stream(session: Session, call: str, text: str) -> None:
    if not text:
        return
    try:
        session.record(Streamed(channel="tool", text=hidden(text), ref=call))
    except JournalError:
        return  # running code is not left behind for it; the call's result meets the full disk again


def _unknown(name: str, tools: list[str]) -> str:
    near = get_close_matches(name, tools, n=5, cutoff=0.7) if len(tools) > MOST_NAMED else []
    shown = [*near, *(each for each in tools if each not in near)][:MOST_NAMED]
    more = f" and {len(tools) - len(shown):,} more" if len(tools) > len(shown) else ""
    return f"There is no tool {name[:200]!r}. Known tools: {', '.join(shown)}{more}."


async def _run(session: Session, call: Block, workspace: Workspace) -> ToolOutput:
    tool = session.tools.get(call["name"])
    if tool is None:
        raise ToolFailure(_unknown(str(call["name"]), sorted(session.tools)))
    given = tool.validate(call["input"])
    if callable(called := getattr(tool, "called", None)):
        tool, given = called(given)  # called through another one: its own hooks, rules and question count
    facts = {"tool": tool.name, "input": given, "call": call["id"]}
    changed, why = await hooks.before_tool(facts)
    if why:
        raise ToolFailure(f"A hook of the user's denied this call: {why}")
    told = ""
    if changed is not None and (changed := tool.validate(changed)) != given:
        given = changed
        told = f"[A hook of the user's changed the arguments of this call: {json.dumps(given, ensure_ascii=False)}]"
    await _allow(session, call["id"], tool, given, workspace)
    await asyncio.sleep(0)  # a stop that waits for the next await comes before the call is said to run
    session.record(ToolCalled(call=call["id"], name=tool.name, input=clean_json(given)))
    await session.synced()
    session.show_phase(f"running {tool.name}")
    try:
        output = await tool.run(given, workspace)
    except ToolFailure as failure:
        if not told:
            raise
        raise ToolFailure(f"{failure}\n{told}") from failure
    if told:
        output = msgspec.structs.replace(output, blocks=(*output.blocks, {"type": "text", "text": told}))
    if not any(hooks.registered("post_tool")):
        return output  # nothing is awaited between a stopped call and its journalled result
    texts = [str(block.get("text", "")) for block in output.blocks if block.get("type") == "text"]
    facts = {**facts, "input": given, "output": "\n".join(texts), "is_error": output.is_error}
    added = await hooks.call("post_tool", facts, session.report_hook)
    notes = tuple({"type": "text", "text": str(text)} for text in added)
    return msgspec.structs.replace(output, blocks=(*output.blocks, *notes))


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
            danger=clean(decision.danger),
            said=clean(question.said),
        )
    )
    await session.synced()
    session.show_phase("waiting for your answer")
    try:
        answer: PermissionAnswer = await surface.ask(asked)
        changed = _changed(tool, given, workspace, decision.digest) if answer.answer != "deny" else None
        if answer.answer == "always" and (changed or not await _saved(session, decision.pattern)):
            answer = PermissionAnswer("once", answer.reason, answer.by)
    except asyncio.CancelledError:
        session.record(PermissionAnswered(call=call, answer="deny", by="stop"))
        raise
    session.record(PermissionAnswered(call=call, answer=answer.answer, by=answer.by, reason=clean(answer.reason)))
    if answer.answer == "deny":
        reason = f" Reason: {answer.reason.rstrip('.')}." if answer.reason else ""
        raise ToolFailure(f"The user denied this call.{reason} Do not try it again in another way; ask or go on.")
    if changed is not None:
        raise changed


def _changed(tool: Tool, given: dict[str, Any], workspace: Workspace, digest: str) -> ToolFailure | None:
    """What the model is told when the call is no longer the one that the user allowed."""
    try:
        if digest_of(tool, given, tool.question(given, workspace)) == digest:
            return None
    except ToolFailure as failure:
        return failure
    return ToolFailure("What this call would do has changed since the user allowed it, so it was not run.")


async def _saved(session: Session, pattern: str) -> bool:
    """Store the rule that "always" gave; where that fails the user is told why. Off the loop: another process may
    hold the file."""
    try:
        await asyncio.to_thread(session.permissions.remember, pattern)
    except (SettingError, UsageError) as problem:
        session.record(LayerFailed(layer="permissions", why=f"Allowed this once, not always: {problem}"))
        return False
    return True
