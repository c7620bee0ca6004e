"""Sessions of Claude Code: one JSON object a line; the one file that knows this format.

Lines of type `user` and `assistant` hold `message` as the Messages API has it; an assistant message is written as one
line a block, with the same `message.id`. `isSidechain` lines belong to sub-agents; `isMeta` lines are not what the
user typed, but the model was sent them. API errors were never part of the conversation, `isCompactSummary` lines
replaced what a replay still has; `summary`, `system`, `progress`, `file-history-snapshot` and the like say nothing to
the model. Of a conversation that branched (two lines with one `parentUuid`: the user went back), the branch of the
last line is read; lines that name no parent at all are read in the file's order. A file of `isSidechain` lines alone
is a sub-agent's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ipyagent.replay.metrics import usage_of
from ipyagent.replay.recording import Collector, Recording, text_blocks

_SAID = ("user", "assistant")
_LINKS = ("uuid", "parentUuid", "logicalParentUuid")
_FLAGS = ("isCompactSummary", "isApiErrorMessage")


def is_claude_code(first: dict[str, Any]) -> bool:
    """Whether a file whose first line is `first` is one of these."""
    return bool({"sessionId", "parentUuid", "leafUuid", "messageId"} & first.keys())


def read_claude_code(lines: Iterable[tuple[int, dict[str, Any]]]) -> Recording:
    """The recording of numbered lines."""
    collected = Collector("Claude Code")
    every: list[tuple[int, dict[str, Any]]] = []
    for number, line in lines:
        if all(isinstance(line.get(name), str | None) for name in _LINKS):
            every.append((number, line))
        else:
            collected.problems.append(f"line {number}: no place in the conversation can be told")
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
    results = {line["uuid"] for line in main if parents[line["uuid"]] in way and _is_result(line)}
    return way | results


def _message_id(line: dict[str, Any]) -> str:
    message = line.get("message")
    return str(message.get("id", "")) if line.get("type") == "assistant" and isinstance(message, dict) else ""


def _is_result(line: dict[str, Any]) -> bool:
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )
