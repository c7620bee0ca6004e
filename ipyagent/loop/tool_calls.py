"""The tool calls of one reply: checked, allowed, run, each with exactly one result.

Calls that only read run side by side; a call that may change something runs alone, in its place. What is called
through `call_tool` counts as the tool that it calls.
A call is on the disk before it runs, its result before anybody sees it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import traceback
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import msgspec

from ipyagent import sandbox
from ipyagent.context.store_results import FullResult, StoredResult, is_large, store, store_results, text_of
from ipyagent.context.thresholds import message_chars
from ipyagent.errors import AgentError, JournalError, SettingError, ToolFailure, UsageError
from ipyagent.journal.events import (
    Block,
    LayerFailed,
    PermissionAnswered,
    PermissionAsked,
    Streamed,
    SystemReminder,
    ToolCalled,
    ToolReturned,
)
from ipyagent.journal.journal import clean, clean_json
from ipyagent.journal.protocols import (
    REPLY,
    ModelReply,
    Needed,
    ObjectRef,
    PermissionAnswer,
    Tool,
    ToolOutput,
    Workspace,
)
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.kernel.variables import preview
from ipyagent.loop.hooks import hooks
from ipyagent.loop.permissions import Allow, Ask, Deny, because, digest_of
from ipyagent.loop.redacting import without_secrets
from ipyagent.loop.session import Session
from ipyagent.model.endpoint import own_keys
from ipyagent.redaction import Redactor
from ipyagent.redaction.stream import Stream
from ipyagent.sandbox import Level
from ipyagent.tools.answers import capped, plain

# ---- What reaches the model of a result: all of it, or a preview of what is kept in a file. The file comes first,
# then the event that names it, then the result itself. When the disk fails, or the layer is off, the result is cut
# as it was before there were files.


def place_of(folder: Path, workspace: Workspace) -> str:
    """A session's folder as tools, code and shell name it: relative to the notebook's folder."""
    try:
        return Path(os.path.relpath(folder, workspace.folder)).as_posix()
    except ValueError:  # another drive
        return folder.as_posix()


def hidden(text: str) -> str:
    """The text without the model's own key, which code can print as it likes."""
    for key in own_keys():
        text = text.replace(key, "[key]")
    return text


async def kept(
    session: Session, call: Block, output: ToolOutput, workspace: Workspace, redact: Redactor
) -> StoredResult:
    """The blocks that the model gets of a call's output, and what the person gets; what is stored is journalled.

    A stop meanwhile does not lose the result: the cancellation comes at the caller's next await.
    """
    blocks = without_secrets((_reworded(block, hidden) for block in output.blocks), redact)
    if not session.setting(f"layer_{store_results.name}"):
        return StoredResult(blocks)
    own = getattr(session.tool_of(call), "store_chars", None)
    limit = int(own) if own is not None else workspace.limit("store_chars")
    live = output.live
    raw = _raw(live)
    raw = None if raw is None else redact.raw(raw)
    if not is_large(blocks, limit) and (raw is None or len(raw) <= limit):
        return StoredResult(blocks)
    if live is not None and live.alone and type(live.value) is str:  # its text, not its repr
        given = capped(plain(clean(live.value)), workspace.limit("tool_output_chars"))
        text = redact(hidden(given))
        blocks = ({"type": "text", "text": text}, *(block for block in blocks if block["type"] != "text"))
    bound = workspace.limit("tool_output_chars")
    if sum(len(block["text"]) for block in blocks if block["type"] == "text") > bound:
        text = capped(text_of(blocks), bound)
        blocks = ({"type": "text", "text": text}, *(block for block in blocks if block["type"] != "text"))
    whole = FullResult(call=str(call["id"]), blocks=blocks, raw=raw)
    most = workspace.limit("preview_chars")
    if live is not None:
        handle, look = await _held(session, whole.call, live, most, workspace)
        look = redact(hidden(clean(look)))
        whole = msgspec.structs.replace(whole, handle=handle, look=look, alone=live.alone)
    try:
        folder = session.journal.folder
        stored = store(whole, folder=folder, place=place_of(folder, workspace), limit=limit, preview=most)
    except (OSError, ValueError) as problem:
        reason = (problem.strerror if isinstance(problem, OSError) else None) or problem
        why = f"a result could not be kept in a file ({reason}): it is cut"
        session.record(LayerFailed(layer=store_results.name, why=why))
        most = message_chars(int(session.setting("tool_output_chars")), session.info.window)
        return StoredResult(tuple(_reworded(block, lambda text: capped(text, most)) for block in blocks))
    for event in stored.events:
        session.record(event)
    return stored


async def _held(session: Session, call: str, live: ObjectRef, most: int, workspace: Workspace) -> tuple[str, str]:
    """The object's handle and what it looks like, read on the thread that owns it."""
    hold: Callable[[str, Any], str] | None = session.hold

    def on_main() -> tuple[str, str]:
        handle = hold(call, live.value) if hold is not None else ""
        text = type(live.value) is str
        return handle, "" if text else preview(live.value, limit=most)

    try:
        found: tuple[str, str] = await workspace.on_main(on_main)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # delivered again once the result is journalled
            task.uncancel()
            task.cancel()
        return "", ""
    return found


def _raw(live: ObjectRef | None) -> bytes | None:
    """The bytes that a result is, without the model's own key."""
    if live is None or not live.alone or type(live.value) not in (bytes, bytearray):
        return None
    data = bytes(live.value)
    for key in own_keys():
        data = data.replace(key.encode(), b"[key]")
    return data


def _reworded(block: Block, change: Callable[[str], str]) -> Block:
    return {**block, "text": change(block["text"])} if block["type"] == "text" else block


# ---- What a model does wrong without noticing: the same failing call again and again, a tool call written as text,
# thinking that its server leaves in the answer. It is said, to the model and to the user; nothing is run for it.
# The written forms are those of the chat templates of open models and of calls that leaked into text elsewhere:
# Hermes, Qwen and GLM (`<tool_call>`), Llama (`<|python_tag|>`, `<function=…>`), Mistral (`[TOOL_CALLS]`),
# DeepSeek, Kimi, Granite, gpt-oss, Gemma (`tool_code`), ReAct, and our own wire's `<invoke name=…>`.

NOTICED, MOST_SAME = 3, 6
"""Times that a call fails in the same way in one turn before the model is told, and before the turn ends."""
SAME_FAILURE = (
    "[This very call has failed {count} times in this turn with the same error. Do not repeat it unchanged: change its "
    "arguments, take another way, or tell the user what stands in the way.]"
)
WRITTEN = (
    "Your last reply has a tool call written as text ({form}); nothing was run. To run it, make a real tool call. If "
    "it was meant as text, finish your answer."
)
_NEAR, _MOST_MARKS = 2_000, 50
"""Characters behind a mark in which the tool's name must stand, and marks that are looked at."""
_MARKS = re.compile(
    r"</?tool_calls?>|<tool_use>|<function_calls>|<invoke name=|<function(?:=| name=)|<call:|<minimax:tool_call>"
    r"|\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_call(?:_start|_begin|s_section_begin)?\|>|<\|START_ACTION\|>"
    r"|<[|｜]tool[_▁]calls?[_▁]begin[|｜]>|<｜DSML｜|<\|channel\|>commentary to=|```(?:tool_code|tool_call)\b"
    r"|^Action:|^\[(?=\w+\()",
    re.MULTILINE,
)
_OBJECT = re.compile(
    r'"(?:name|tool|tool_name|function|function_name|action|recipient_name)"\s*:\s*(?:\{\s*"name"\s*:\s*)?"([\w.-]{1,64})"'
)
_GIVEN = re.compile(r'"(?:arguments|parameters|input|args|tool_input|tool_args|action_input)"\s*:')
_FENCED = re.compile(r"^```(?:json[c5]?|tool\w*|xml|)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
_THINK = re.compile(
    r"^[ \t]*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)|\A(?:(?!<think>|`).)*?</think>[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
"""Some templates open it in the prompt, so that only its end is in the reply."""
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


class Missteps:
    """Those of one turn."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[str, int, int]] = {}
        """By call: the failure, how often, and in which message last."""
        self.messages = 0
        """Messages with calls so far: what fails twice in one message counts once, the model has not seen it yet."""
        self._reminded = False
        self.stuck = ""
        """Why the turn is to end ("" while it need not)."""

    def returned(self, call: Block, blocks: Iterable[Block], *, is_error: bool) -> str:
        """Take in a call's result; what is to be said to the model with it, "" for nothing."""
        key = json.dumps([call["name"], call["input"]], sort_keys=True, default=str)
        if not is_error:
            self._failed.pop(key, None)
            return ""
        failure = _VARIES.sub("#", _text(blocks))
        before, count, seen = self._failed.get(key, ("", 0, 0))
        if failure == before and seen == self.messages:
            return ""
        count = count + 1 if failure == before else 1
        self._failed[key] = (failure, count, self.messages)
        if count >= MOST_SAME:
            self.stuck = (
                f"{call['name']} failed {count} times with the same input and the same error; tell it what to do, or "
                "`continue` in a %%agent cell to let it try again"
            )
        return SAME_FAILURE.format(count=count) if count == NOTICED else ""

    def reminded(self, session: Session, reply: ModelReply) -> bool:
        """Say what is wrong with a reply without calls; whether the model is to be asked again, once a turn."""
        text = _text(reply.said.blocks)
        thought = _THINK.search(text)
        if thought is not None and thought.group().strip() and "think" not in session.told:
            session.told.add("think")
            why = "The model's thinking came as text of its answer (<think>): its server does not separate the two."
            session.record(LayerFailed(layer="reply", why=f"{why} A reasoning parser there would"))
        form = written_call(text, session.tools)
        if not form:
            return False
        if self._reminded:
            why = f"The model wrote a tool call as text again ({form}); nothing was run"
            session.record(LayerFailed(layer="reply", why=f"{why}: choose a model or server that makes tool calls"))
            return False
        self._reminded = True
        note = WRITTEN.format(form=form)
        why = f"The model wrote a tool call as text ({form}); nothing was run, asking for a real call"
        session.record(SystemReminder(text=note, why=why, tokens=estimate_text(note)))
        return True


def written_call(text: str, names: Collection[str]) -> str:
    """The form in which a text holds a call of one of these tools ("<tool_call>", "JSON"); "" when it holds none.
    What is quoted in a line, or stands in a fence of code, is no call."""
    text = _THINK.sub("", text)
    bare = _INLINE.sub("", text)
    objects = [match.group(1) for match in _FENCED.finditer(bare)]
    if bare.lstrip().startswith(("{", "[")):
        objects.append(bare)
    outside = re.sub(r"^```(?!tool_c)[^\n]*\n.*?(?:^```|\Z)", "", bare, flags=re.DOTALL | re.MULTILINE)
    for source in (outside, *(one for one in objects if one.lstrip().startswith("<"))):
        for mark in islice(_MARKS.finditer(source), _MOST_MARKS):
            near = source[mark.end() : mark.end() + _NEAR]
            form: str = mark.group()
            match form:
                case "<|python_tag|>":  # there may be bare code behind it
                    meant = True
                case "[":
                    form, meant = "a list", any(near.startswith(f"{name}(") for name in names)
                case "Action:":
                    meant = "\nAction Input:" in near and near.split("\n")[0].strip() in names
                case _:
                    meant = any(
                        name in near and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", near) for name in names
                    )
            if meant:
                return form.strip("` =").removesuffix(" name")
    for one in objects:
        found = _OBJECT.search(one)
        if found is not None and found.group(1) in names and _GIVEN.search(one):
            return "JSON"
    return ""


def is_empty(blocks: tuple[Block, ...]) -> bool:
    """Whether a reply has nothing to read: no text beside thinking, whether as blocks or as text."""
    rest = [block for block in blocks if block["type"] not in ("thinking", "redacted_thinking")]
    return all(block["type"] == "text" and not _THINK.sub("", str(block["text"])).strip() for block in rest)


def _text(blocks: Iterable[Block]) -> str:
    return "\n".join(str(block.get("text", "")) for block in blocks if block["type"] == "text")


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
        tool = session.tool_of(call)
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
            seconds=round(time.monotonic() - began - session.waited.pop(call["id"], 0.0), 3),
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


AGAIN = {"project": "and could write in the project", "open": "outside the sandbox"}


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
    level = await _allow(session, call["id"], tool, given, workspace)
    await asyncio.sleep(0)  # a stop that waits for the next await comes before the call is said to run
    session.record(ToolCalled(call=call["id"], name=tool.name, input=clean_json(given)))
    await session.synced()
    session.show_phase(f"running {tool.name}")
    try:
        output = await tool.run(given, workspace.at(level))
        while output.needs is not None:  # refused at its level: it runs again once the user allows what it needs
            needs = output.needs
            try:
                level = await _allow(session, call["id"], tool, given, workspace, needs)
            except ToolFailure as failure:
                said: Block = {"type": "text", "text": f"[{failure}]"}
                output = msgspec.structs.replace(output, blocks=(*output.blocks, said), needs=None)
                break
            workspace.stream(f"\n[allowed: it runs again because {needs.why}]\n")
            session.show_phase(f"running {tool.name}")
            output = await tool.run(given, workspace.at(level))
            if output.is_error and output.needs is None:  # else the model takes the sandbox for the cause
                said = {"type": "text", "text": f"[allowed: it ran again {AGAIN[level]}]"}
                output = msgspec.structs.replace(output, blocks=(*output.blocks, said))
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


async def _allow(
    session: Session, call: str, tool: Tool, given: dict[str, Any], workspace: Workspace, needs: Needed | None = None
) -> Level:
    """Return the sandbox level at which the call may run; raise ToolFailure with the reason when it may not. `needs`:
    what it was refused before."""
    surface = session.surface
    if getattr(tool, "sandboxed", None) is not None:
        await sandbox.ready()
    can_ask = surface is not None and surface.can_ask
    decision = session.permissions.decide(tool, given, workspace, can_ask, needs)
    asking = call if needs is None else f"{call}:{needs.level}"
    if isinstance(decision, Deny):
        session.record(PermissionAnswered(call=asking, answer="deny", by=decision.by, reason=decision.reason))
        raise ToolFailure(decision.reason)
    if not isinstance(decision, Ask) or surface is None:
        if isinstance(decision, Allow) and decision.by != "mode":
            session.consented[call] = decision.by
        return decision.level if isinstance(decision, Allow) else "open"
    question, changed = decision.question, None
    asked = PermissionAsked(
        call=asking,
        tool=tool.name,
        title=clean(question.title),
        text=clean(question.text),
        language=question.language,
        pattern=decision.pattern,
        digest=decision.digest,
        danger=clean(decision.danger),
        said=clean(question.said),
    )

    async def settled(answer: PermissionAnswer) -> PermissionAnswer:
        nonlocal changed
        changed = _changed(tool, given, workspace, decision.digest) if answer.answer != "deny" else None
        if answer.answer == "always" and (changed or not await _saved(session, decision.pattern)):
            return PermissionAnswer("once", answer.reason, answer.by)
        return answer

    answer = await session.ask(asked, call, settled)
    if answer.answer == "deny":
        raise ToolFailure(f"The user denied this call.{because(answer.reason)}")
    if changed is not None:
        raise changed
    session.consented[call] = "user"
    return decision.level


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
