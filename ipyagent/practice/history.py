"""What the Messages API requires of `messages`; each breach raises `Refused`, naming the message and the ids.

Adjacent messages of one role are one turn. The first turn is the user's. A turn of role `system` follows a user turn
and never stands between tool calls and their results. Every tool call is answered in the user turn right after it,
results first, once each; no result without its call; no call id twice. A `compaction` block may begin the conversation.
Of searches at the server `web` says the like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ipyagent.practice import web
from ipyagent.practice.models import ModelCard
from ipyagent.practice.refusal import Refused
from ipyagent.practice.rules import check_mark
from ipyagent.practice.summary_block import check_shape, is_void

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_USES: Final = "`tool_use` ids were found without `tool_result` blocks immediately after"


def _fields(words: str) -> frozenset[str]:
    return frozenset(f"type {words}".split())


BLOCKS: Final[Mapping[str, frozenset[str]]] = {
    "text": _fields("text citations cache_control"),
    "image": _fields("source cache_control"),
    "document": _fields("source title context citations cache_control"),
    "search_result": _fields("source title content citations cache_control"),
    "thinking": _fields("thinking signature"),
    "redacted_thinking": _fields("data"),
    "compaction": _fields("content encrypted_content signature tool_changes cache_control"),
    "tool_use": _fields("id name input cache_control caller toolset_name"),
    "server_tool_use": _fields("id name input cache_control caller"),
    "web_search_tool_result": _fields("tool_use_id content cache_control caller"),
    "web_fetch_tool_result": _fields("tool_use_id content cache_control caller"),
    "tool_result": _fields("tool_use_id content is_error cache_control toolset_name"),
}
ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result", "compaction"}),
    "assistant": frozenset({
        "text", "thinking", "redacted_thinking", "tool_use", "compaction",
        "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
    }),
    "system": frozenset({"text"}),
    "tool_result": frozenset({"text", "image", "document", "search_result"}),
}

Block = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """Adjacent messages of one role: blocks with their message and block index; `first` is its first message."""

    role: str
    first: int
    blocks: list[tuple[int, int, Block]]


def check_conversation(messages: Any, card: ModelCard) -> None:
    """Refuse a conversation the API refuses, but for its end, see `check_end`."""
    if not isinstance(messages, list):
        raise Refused("messages: Field required" if messages is None else "messages: Input should be a list")
    if not messages:
        raise Refused("messages: at least one message is required")
    if len(messages) > 100_000:
        raise Refused(f"messages: at most 100000 messages are allowed, found {len(messages)}")
    turns = _turns(messages, card)
    _check_roles(turns, card)
    _check_calls(turns)
    web.check_pairs(turns)


def check_end(messages: Sequence[Mapping[str, Any]], card: ModelCard, was_paused: bool) -> None:
    """A final assistant message is a prefill, unless it is a reply that was paused, or ends with a summary."""
    live = [message for message in messages if not message["content"] or not all(map(is_void, _blocks(message)))]
    last = live[-1]
    if last["role"] != "assistant" or was_paused:
        return
    if last["content"] and _blocks(last)[-1]["type"] == "compaction":
        return
    if not card.prefill:
        raise Refused(
            f"{card.id} does not support assistant message prefill. The conversation must end with a user message."
        )
    content = last["content"]
    text = content if isinstance(content, str) else content[-1].get("text", "") if content else ""
    if text != text.rstrip():
        raise Refused("messages: final assistant content cannot end with trailing whitespace")


def _blocks(message: Mapping[str, Any]) -> Sequence[Block]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _turns(messages: Sequence[Any], card: ModelCard) -> list[Turn]:
    turns: list[Turn] = []
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Refused(f"messages.{i}: Input should be an object")
        if extra := sorted(set(message) - {"role", "content"}):
            raise Refused(f"messages.{i}.{extra[0]}: Extra inputs are not permitted")
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant", "system"):
            raise Refused(f"messages.{i}.role: Input should be 'user', 'assistant' or 'system'")
        if isinstance(content, str):
            if not content.strip():
                raise Refused(f"messages.{i}: text content blocks must contain non-whitespace text")
            blocks: Sequence[Any] = [{"type": "text", "text": content}]
        elif isinstance(content, list):
            blocks = content
        else:
            raise Refused(f"messages.{i}.content: Input should be a string or a list of blocks")
        if not blocks and not (role == "assistant" and i == len(messages) - 1 and card.prefill):
            raise Refused(
                f"messages.{i}: all messages must have non-empty content except for the optional final assistant "
                "message"
            )
        for j, block in enumerate(blocks):
            _check_block(block, role, f"messages.{i}.content.{j}")
        if blocks and all(map(is_void, blocks)):
            continue
        if not turns or turns[-1].role != role:
            turns.append(Turn(role, i, []))
        turns[-1].blocks.extend((i, j, block) for j, block in enumerate(blocks) if not is_void(block))
    return turns


def _check_block(block: Any, where: str, path: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or kind not in BLOCKS:
        raise Refused(f"{path}: Input tag {kind!r} found using 'type' does not match any of the expected tags")
    if kind not in ALLOWED[where]:
        raise Refused(f"{path}: `{kind}` blocks are not allowed in {where} messages")
    if not BLOCKS[kind].issuperset(block):
        extra = sorted(set(block) - BLOCKS[kind])[0]
        raise Refused(f"{path}.{kind}.{extra}: Extra inputs are not permitted")
    match kind:
        case "text":
            _check_text(block, path)
            if where == "assistant":
                web.check_citations(block, path)
        case "server_tool_use" | "web_search_tool_result" | "web_fetch_tool_result":
            web.check_block(block, path)
        case "thinking":
            if not isinstance(block.get("thinking"), str) or not isinstance(block.get("signature"), str):
                raise Refused(f"{path}.thinking: `thinking` and `signature` are required")
        case "redacted_thinking":
            if not isinstance(block.get("data"), str):
                raise Refused(f"{path}.redacted_thinking.data: Field required")
        case "tool_use":
            _check_use(block, path)
        case "tool_result":
            _check_result(block, path)
        case "document":
            _check_document(block, path)
        case "search_result":
            _check_search(block, path)
        case "compaction":
            check_shape(block, path)
        case "image":
            if not isinstance(block.get("source"), dict):
                raise Refused(f"{path}.image.source: Field required")
    if "cache_control" in block:
        check_mark(block["cache_control"], f"{path}.{kind}.cache_control")


def _check_text(block: Block, path: str) -> None:
    text = block.get("text")
    if not isinstance(text, str):
        raise Refused(f"{path}.text.text: Field required")
    if not text:
        mark = "cache_control cannot be set for empty text blocks" if block.get("cache_control") else ""
        raise Refused(f"{path}.text: {mark or 'text content blocks must be non-empty'}")
    if text.isspace():
        raise Refused(f"{path}.text: text content blocks must contain non-whitespace text")


def _check_use(block: Block, path: str) -> None:
    if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
        raise Refused(f"{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("name"), str) or not 1 <= len(block["name"]) <= 200:
        raise Refused(f"{path}.tool_use.name: String should have at least 1 and at most 200 characters")
    if not isinstance(block.get("input"), dict):
        raise Refused(f"{path}.tool_use.input: Input should be a valid dictionary")


def _check_result(block: Block, path: str) -> None:
    if not isinstance(block.get("tool_use_id"), str) or not _ID.fullmatch(block["tool_use_id"]):
        raise Refused(f"{path}.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("is_error", False), bool):
        raise Refused(f"{path}.tool_result.is_error: Input should be a valid boolean")
    content = block.get("content", "")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Refused(f"{path}.tool_result.content: Input should be a string or a list of blocks")
    for k, part in enumerate(content):
        _check_block(part, "tool_result", f"{path}.tool_result.content.{k}")
        if block.get("is_error") and part["type"] != "text":
            raise Refused(f'{path}.tool_result: all content must be type "text" if "is_error" is true')


def _check_document(block: Block, path: str) -> None:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(source, dict) or kind not in ("base64", "text"):
        raise Refused(f"{path}.document.source.type: the practice server reads 'base64' and 'text' documents only")
    wanted = "application/pdf" if kind == "base64" else "text/plain"
    if source.get("media_type") != wanted or not isinstance(source.get("data"), str) or not source["data"]:
        raise Refused(f"{path}.document.source: media_type should be '{wanted}' and data a non-empty string")


def _check_search(block: Block, path: str) -> None:
    content = block.get("content")
    if not isinstance(block.get("source"), str) or not isinstance(block.get("title"), str):
        raise Refused(f"{path}.search_result: `source` and `title` are required")
    if not isinstance(content, list) or not content:
        raise Refused(f"{path}.search_result.content: Input should be a non-empty list of text blocks")
    for k, part in enumerate(content):
        _check_block(part, "system", f"{path}.search_result.content.{k}")


def _check_roles(turns: Sequence[Turn], card: ModelCard) -> None:
    if not turns:
        raise Refused("messages: at least one message with content is required")
    first = turns[0].blocks[0][2]["type"] if turns[0].blocks else ""
    if turns[0].role == "assistant" and first != "compaction":  # a summary stands for the turns before it
        raise Refused("messages: first message must use the \"user\" role")
    previous = ""
    for turn in turns:
        if turn.role == "system":
            if not card.system_messages:
                raise Refused(
                    f"messages.{turn.first}.role: 'system' messages are not supported for {card.id}; "
                    "use the top-level `system` parameter"
                )
            if previous != "user":
                raise Refused(f"messages.{turn.first}: a 'system' message must follow a 'user' message")
        previous = turn.role


def _check_calls(turns: Sequence[Turn]) -> None:
    seen: set[str] = set()
    wanted: dict[str, None] = {}
    at = 0
    for turn in turns:
        if wanted and turn.role != "user":
            raise _unanswered(at, wanted)
        if turn.role == "user":
            _check_answers(turn, wanted, at)
            wanted = {}
        elif turn.role == "assistant":
            for i, j, block in turn.blocks:
                if block["type"] != "tool_use":
                    continue
                if block["id"] in seen:
                    raise Refused(f"messages.{i}.content.{j}: `tool_use` ids must be unique: {block['id']}")
                seen.add(block["id"])
                wanted[block["id"]] = None
                at = i
    if wanted:
        raise _unanswered(at, wanted)


def _check_answers(turn: Turn, wanted: Mapping[str, None], at: int) -> None:
    answered: set[str] = set()
    others = False
    for i, j, block in turn.blocks:
        if block["type"] != "tool_result":
            others = True
            continue
        call = block["tool_use_id"]
        if call not in wanted:
            raise Refused(
                f"messages.{i}.content.{j}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if call in answered:
            raise Refused(
                f"messages.{i}.content.{j}: each tool_use must have a single result. Found multiple `tool_result` "
                f"blocks with id: {call}"
            )
        if others:
            raise Refused(
                f"messages.{at}: {_USES}: {call}. `tool_result` blocks must come before any other content "
                f"in the next message (messages.{i}.content.{j} comes too late)."
            )
        answered.add(call)
    if missing := [call for call in wanted if call not in answered]:
        raise _unanswered(at, dict.fromkeys(missing))


def _unanswered(at: int, ids: Mapping[str, None]) -> Refused:
    return Refused(
        f"messages.{at}: {_USES}: {', '.join(ids)}. Each `tool_use` block must have a corresponding `tool_result` "
        "block in the next message."
    )
