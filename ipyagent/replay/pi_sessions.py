"""Sessions of the pi coding agent: one JSON object a line; the one file that knows this format.

Lines of type `message` hold `message` with role user, assistant or toolResult; their blocks are
`text`, `thinking`, `toolCall` (id, name, arguments) and `image` (data, mimeType). Other types
(`session`, `model_change`, `thinking_level_change`, …) say nothing to the model, except
`compaction` with a `summary`, after which the session went on from the summary: what was said
before stays in a replay, whose own layers decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ipyagent.journal.events import Block, Usage
from ipyagent.replay.recording import Collector, Recording


def is_pi(first: dict[str, Any]) -> bool:
    """Whether a file whose first line is `first` is one of these."""
    return first.get("type") == "session" and "cwd" in first


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
        blocks = [made for block in _content(message) if (made := _block(block)) is not None]
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


def _content(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


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
