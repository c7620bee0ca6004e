"""From a file to a recording: its first line says which agent wrote it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from ipyagent.errors import UsageError
from ipyagent.journal.blocks import text_block
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    Compacted,
    Event,
    MemorySurfaced,
    MessageReceived,
    NotesWritten,
    SystemPromptFrozen,
    SystemReminder,
    ToolReturned,
    Usage,
    UserMessage,
)
from ipyagent.journal.journal import TRANSCRIPT, Problem, clean_json, read_events
from ipyagent.replay.metrics import usage_of
from ipyagent.replay.recording import Collector, RecordedText, Recording, text_blocks

# ---- Sessions of Claude Code: one JSON object a line; the one file that knows this format. Lines of type `user`
# and `assistant` hold `message` as the Messages API has it; an assistant message is written as one line a block,
# with the same `message.id`. `isSidechain` lines belong to sub-agents; `isMeta` lines are not what the user typed,
# but the model was sent them. API errors were never part of the conversation, `isCompactSummary` lines replaced
# what a replay still has; `summary`, `system`, `progress`, `file-history-snapshot` and the like say nothing to the
# model. Of a conversation that branched (two lines with one `parentUuid`: the user went back), the branch of the
# last line is read; lines that name no parent at all are read in the file's order. A file of `isSidechain` lines
# alone is a sub-agent's own.

_SAID = ("user", "assistant")
_LINKS = ("uuid", "parentUuid", "logicalParentUuid")
_FLAGS = ("isCompactSummary", "isApiErrorMessage")


def read_claude_code(lines: Iterable[tuple[int, dict[str, Any]]]) -> Recording:
    """The recording of numbered lines."""
    collected = Collector("Claude Code")
    every: list[tuple[int, dict[str, Any]]] = []
    for number, line in lines:
        if all(isinstance(line.get(name), str | None) for name in _LINKS):
            every.append((number, line))
        else:
            collected.problems.append(f"line {number}: its place in the conversation is unknown")
    said = [line for _, line in every if line.get("type") in _SAID]
    if said and all(line.get("isSidechain") for line in said):  # a sub-agent's own file
        every = [(number, {**line, "isSidechain": False}) for number, line in every]
    linked = any(line.get(name) for line in said for name in _LINKS[1:])
    wanted = _branch([line for _, line in every]) if linked else {line.get("uuid") for line in said}  # in file order
    for number, line in every:
        message = line.get("message")
        if line.get("isCompactSummary"):
            collected.compacted()
        if line.get("type") not in _SAID or any(line.get(flag) for flag in _FLAGS):
            continue
        if line.get("isSidechain"):
            collected.left_out["lines of sub-agents"] += 1
            continue
        if line.get("uuid") and line["uuid"] not in wanted:
            collected.left_out["lines of branches that were left"] += 1
            continue
        if not isinstance(message, dict):
            collected.problems.append(f"line {number}: no message in it")
            continue
        collected.at(line.get("timestamp"))
        content = message.get("content")
        if line["type"] == "assistant":
            collected.reply((block for block in _blocks(content) if isinstance(block, dict)), _message_id(line))
            if isinstance(usage := message.get("usage"), dict):
                collected.billed(usage_of(usage))
            continue
        for block in _blocks(content):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                error = bool(block.get("is_error"))
                collected.result(str(block.get("tool_use_id", "")), text_blocks(block.get("content")), is_error=error)
        said = text_blocks(content)
        words = "\n".join(block["text"] for block in said if block["type"] == "text")
        collected.user(said, "" if line.get("isMeta") else words)
    return collected.finished()


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _branch(lines: list[dict[str, Any]]) -> set[str]:
    """The `uuid`s on the way from the last line back to the first. A parallel call's result hangs
    on the line of its own call, and all lines of one message belong together: siblings that are part
    of the same message, and results of its calls, are on the way as well."""
    main = [line for line in lines if line.get("uuid") and not line.get("isSidechain")]
    parents = {line["uuid"]: line.get("logicalParentUuid") or line.get("parentUuid") for line in main}
    message = {line["uuid"]: _message_id(line) for line in main}
    way: set[str] = set()
    at = main[-1]["uuid"] if main else None
    while at is not None and at in parents and at not in way:
        way.add(at)
        at = parents[at]
    if at is not None and at not in parents:  # the beginning is in another file: take everything before it
        first = min((place for place, line in enumerate(main) if line["uuid"] in way), default=0)
        way.update(line["uuid"] for line in main[:first])
    together = {message[one] for one in way if message[one]}
    way.update(line["uuid"] for line in main if message[line["uuid"]] in together)
    for line in [line for line in main if parents[line["uuid"]] in way]:
        told = line.get("message")
        blocks = _blocks(told.get("content")) if isinstance(told, dict) else []
        if any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks):
            way.add(line["uuid"])
    return way


def _message_id(line: dict[str, Any]) -> str:
    message = line.get("message")
    return str(message.get("id", "")) if line.get("type") == "assistant" and isinstance(message, dict) else ""


# ---- Sessions of the pi coding agent: one JSON object a line; the one file that knows this format. Lines of type
# `message` hold `message` with role user, assistant or toolResult; their blocks are `text`, `thinking`, `toolCall`
# (id, name, arguments) and `image` (data, mimeType). Other types (`session`, `model_change`,
# `thinking_level_change`, …) say nothing to the model, except `compaction` with a `summary`, after which the
# session went on from the summary: what was said before stays in a replay, whose own layers decide.

def read_pi(lines: Iterable[tuple[int, dict[str, Any]]]) -> Recording:
    """The recording of numbered lines."""
    collected = Collector("pi")
    for number, line in lines:
        message = line.get("message")
        if line.get("type") == "compaction":
            collected.compacted()
        if line.get("type") != "message" or not isinstance(message, dict):
            continue
        collected.at(line.get("timestamp"))
        blocks = [made for block in _blocks(message.get("content")) if (made := _block(block)) is not None]
        match message.get("role"):
            case "user":
                collected.user(blocks)
            case "assistant":
                collected.reply(blocks)
                if blocks:
                    collected.billed(_usage(message.get("usage")))
            case "toolResult":
                error = bool(message.get("isError"))
                collected.result(str(message.get("toolCallId", "")), blocks, is_error=error)
            case "bashExecution":  # a command that the user ran
                said = f"$ {message.get('command', '')}\n{message.get('output', '')}"
                collected.user([{"type": "text", "text": said}])
            case role:
                collected.problems.append(f"line {number}: a message of role {role!r} was left out")
    return collected.finished()


def _usage(told: Any) -> Usage:
    told = told if isinstance(told, dict) else {}
    names = {"input": "input", "cache_read": "cacheRead", "cache_write": "cacheWrite", "output": "output"}
    counts = {ours: told.get(theirs) for ours, theirs in names.items()}
    return Usage(**{name: count for name, count in counts.items() if type(count) is int and count > 0})


def _block(block: Any) -> Block | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "thinking", "thinking": str(thinking)}:
            return {"type": "thinking", "thinking": thinking}
        case {"type": "toolCall", "id": str(call), "name": str(name)}:
            return {"type": "tool_use", "id": call, "name": name, "input": block.get("arguments")}
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    return None


# ---- Our own transcripts as recordings: what was said and what came back, without any decision on it; and beside
# that the summaries and notes that the model wrote, for a replay in which it is to write them again.

def read_own(events: Iterable[Event]) -> Recording:
    """The recording of a journal's events."""
    collected = Collector("ipyagent")
    head: SystemPromptFrozen | None = None
    written: list[RecordedText] = []
    noted = 0
    for event in events:
        collected.at(event.at)
        match event:
            case UserMessage():
                collected.user(event.blocks, event.text)
            case SystemReminder() | MemorySurfaced() | MessageReceived():
                collected.beside([text_block(event.text)])
            case AssistantMessage():
                collected.reply(event.blocks)
            case ToolReturned():
                collected.result(event.call, event.blocks, is_error=event.is_error)
            case SystemPromptFrozen():
                head = head or event
            case NotesWritten():
                noted = collected.begun if event.calls else noted
            case Compacted():
                if made := _written(event, collected.begun, noted):
                    written.append(made)
            case _:
                pass  # the other events are decisions, and those a replay makes itself
    return msgspec.structs.replace(collected.finished(), head=head, written=tuple(written))


def _written(event: Compacted, turn: int, noted: int) -> RecordedText | None:
    """What the model wrote that a compaction put in the conversation's place."""
    for block in event.blocks:
        text = str(block.get("text", ""))
        kinds: list[Literal["summary", "notes"]] = ["summary", "notes"]
        for kind in sorted(kinds, key=lambda kind: text.find(f"<{kind}>")):
            _, opened, rest = text.partition(f"<{kind}>")
            words, closed, _ = rest.partition(f"</{kind}>")
            if opened and closed:
                words = words.removeprefix("\n").removesuffix("\n")
                return RecordedText(kind, turn if kind == "summary" else noted or turn, words)
    return None


def read_recording(path: Path) -> Recording:
    """The session in `path`: our transcript (or its folder), a pi session, a Claude Code session.

    Lines that cannot be read are skipped and reported in `problems`. Raises UsageError when the file
    is none of these or holds no conversation.
    """
    path = path / TRANSCRIPT if path.is_dir() else path
    try:
        problems: list[str] = []
        first = next((line for _, line in _lines(path, problems)), None)
        problems.clear()
        if first is None:
            raise UsageError(f"{path} is not a session, none of its lines is a JSON object: name a transcript.jsonl")
        if first.get("type") == "SessionStarted":
            damaged: list[Problem] = []
            made = read_own(read_events(path, damaged))
            problems = [str(problem) for problem in damaged]
        elif first.get("type") == "session" and "cwd" in first:
            made = read_pi(_lines(path, problems))
        elif {"sessionId", "parentUuid", "leafUuid", "messageId"} & first.keys():
            made = read_claude_code(_lines(path, problems))
        else:
            known = "an ipyagent transcript, a pi session or a Claude Code session"
            raise UsageError(f"{path} is not {known}: its first line is of type {first.get('type')!r}; name another")
    except OSError as problem:
        raise UsageError(f"cannot read {path} ({problem.strerror or problem}): name a transcript.jsonl") from None
    if not made.turns:
        raise UsageError(f"{path} contains no answered turn")
    return msgspec.structs.replace(made, problems=(*problems, *made.problems))


def _lines(path: Path, problems: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered JSON objects of a file; what is none is reported."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if not raw.strip():
                continue
            try:
                line = clean_json(json.loads(raw))
            except (ValueError, RecursionError) as problem:
                what = "nested too deeply" if isinstance(problem, RecursionError) else "not JSON"
                problems.append(f"line {number}: {what}")
                continue
            if isinstance(line, dict):
                yield number, line
            else:
                problems.append(f"line {number}: not an object")
