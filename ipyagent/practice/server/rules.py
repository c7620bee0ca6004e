"""What the Messages API requires of a request; each breach raises `Refused` in the API's words.

Parameters first, then `messages`: adjacent messages of one role are one turn. The first turn is the user's. A turn of
role `system` follows a user turn and never stands between tool calls and their results. Every tool call is answered in
the user turn right after it, results first, once each; no result without its call; no call id twice. A `compaction`
block may begin the conversation. Of searches at the server `web` says the like; thinking is judged in `prompt`, cache
breakpoints in `cache`, images in `tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ipyagent.practice.server import web
from ipyagent.practice.server.models import (
    BETA_FIELDS,
    BETAS,
    BLOCK_BINDING,
    EFFORTS,
    FETCH,
    SEARCH,
    ModelCard,
    Refused,
    need,
    no_more,
)
from ipyagent.practice.server.prompt import check_shape, is_void

VERSIONS: Final = ("2023-06-01", "2026-10-21")


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


FIELDS: Final = _names(
    "model messages max_tokens system tools tool_choice thinking output_config stream stop_sequences metadata "
    "cache_control diagnostics container inference_geo service_tier speed user_profile_id workspace_id"
)
SAMPLING: Final = ("temperature", "top_p", "top_k")
CLIENT_TOOLS: Final[Mapping[str, str]] = {
    "memory_20250818": "memory",
    "bash_20250124": "bash",
    "text_editor_20250124": "str_replace_editor",
    "text_editor_20250429": "str_replace_based_edit_tool",
    "text_editor_20250728": "str_replace_based_edit_tool",
}
_TOOL_FIELDS: Final = _names(
    "type name description input_schema cache_control strict defer_loading eager_input_streaming input_examples "
    "allowed_callers max_characters"
)
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")


def check_headers(headers: Mapping[str, str], key: str | None) -> frozenset[str]:
    """The betas asked for; `headers` have lower-case names, `key` is the only credential taken (None: any)."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = headers.get("x-api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    need(given, "x-api-key or Authorization: Bearer header is required", status=401)
    need(key is None or given == key, "invalid x-api-key", status=401)
    version = headers.get("anthropic-version")
    need(version is not None, "anthropic-version: header is required")
    need(version in VERSIONS, f"anthropic-version: {version!r} is not a valid version")
    betas = frozenset(beta.strip() for beta in headers.get("anthropic-beta", "").split(",") if beta.strip())
    if unknown := sorted(betas - BETAS):
        raise Refused(f"Unexpected value(s) `{', '.join(unknown)}` for the `anthropic-beta` header.")
    return betas


def check_parameters(body: Mapping[str, Any], card: ModelCard, betas: frozenset[str], counting: bool) -> None:
    """Everything outside `messages`; `counting`: the request only counts tokens."""
    _check_fields(body, betas)
    if not counting:
        _check_max_tokens(body.get("max_tokens"), card)
    need(isinstance(body.get("stream", False), bool), "stream: Input should be a valid boolean")
    check_mark(body.get("cache_control"), "cache_control")
    _check_system(body.get("system"))
    names = _check_tools(body.get("tools"), card)
    _check_thinking(body, card, betas)
    _check_choice(body, card, names)
    _check_output(body.get("output_config"), card)
    stops, diagnostics = body.get("stop_sequences") or [], body.get("diagnostics")
    need(isinstance(stops, list) and all(isinstance(stop, str) and stop.strip() for stop in stops),
         "stop_sequences: each stop sequence must contain non-whitespace")  # fmt: skip
    need(diagnostics is None or (isinstance(diagnostics, dict) and set(diagnostics) == {"previous_message_id"}),
         "diagnostics: `previous_message_id` is the one field, a message id or null")  # fmt: skip


def check_mark(mark: Any, path: str) -> None:
    """One `cache_control` value; None is no mark."""
    if mark is None:
        return
    need(isinstance(mark, dict) and mark.get("type") == "ephemeral", f"{path}.type: Input should be 'ephemeral'")
    need(mark.get("ttl", "5m") in ("5m", "1h", None), f"{path}.ttl: Input should be '5m' or '1h'")
    no_more(mark, ("type", "ttl"), path)


def _check_fields(body: Mapping[str, Any], betas: frozenset[str]) -> None:
    for name in SAMPLING:
        need(name not in body, f"{name}: this parameter is not supported; remove it")
    for name, needed in BETA_FIELDS.items():
        if body.get(name) is None:
            continue
        words = "Extra inputs are not permitted"
        words = f"this parameter requires anthropic-beta: {needed[0]}" if name == "compaction" else words
        need(betas.intersection(needed), f"{name}: {words}")
        if name in ("context_management", "compaction"):
            continue
        code = "thread_unsupported_request" if name == "thread" else None
        raise Refused(f"{name}: not supported yet by the practice server", code=code)
    for name in sorted(set(body) - FIELDS - set(BETA_FIELDS)):
        raise Refused(f"{name}: Extra inputs are not permitted")


def _check_max_tokens(most: Any, card: ModelCard) -> None:
    need(most is not None, "max_tokens: Field required")
    need(type(most) is int, "max_tokens: Input should be a valid integer")
    need(most >= 0, "max_tokens: Input should be greater than or equal to 0")
    told = f"{most} > {card.max_output}, which is the maximum allowed number of output tokens for {card.id}"
    need(most <= card.max_output, f"max_tokens: {told}")


def _check_system(system: Any) -> None:
    if system is None:
        return
    if isinstance(system, str):
        need(system.strip(), "system: text content blocks must contain non-whitespace text")
    need(isinstance(system, str | list), "system: Input should be a string or a list of text blocks")
    for i, block in enumerate(system if isinstance(system, list) else ()):
        path = f"system.{i}"
        text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        need(isinstance(text, str), f"{path}.type: Input should be 'text'")
        need(str(text).strip(), f"{path}: text content blocks must contain non-whitespace text")
        no_more(block, BLOCKS["text"], path)
        check_mark(block.get("cache_control"), f"{path}.cache_control")


def _check_tools(tools: Any, card: ModelCard) -> set[str]:
    if tools is None:
        return set()
    need(isinstance(tools, list), "tools: Input should be a list")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        path = f"tools.{i}"
        need(isinstance(tool, dict), f"{path}: Input should be an object")
        name, kind = tool.get("name"), tool.get("type") or "custom"
        if kind in (*SEARCH, *FETCH):
            web.options_of(tool, path, card.web)
        else:
            no_more(tool, _TOOL_FIELDS, path)
        need(isinstance(name, str) and _NAME.fullmatch(name),
             f"{path}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")  # fmt: skip
        need(name not in names, f"{path}: Tool names must be unique: {name}")
        names.add(str(name))
        if kind == "custom":
            _check_schema(tool.get("input_schema"), f"{path}.custom.input_schema")
            told = f"{path}.custom.description: Input should be a valid string"
            need(isinstance(tool.get("description", ""), str), told)
        elif kind not in (*SEARCH, *FETCH):
            need(isinstance(kind, str) and kind in CLIENT_TOOLS,
                 f"{path}.type: tool type {kind!r} is unknown or runs on Anthropic's servers only")  # fmt: skip
            need(CLIENT_TOOLS[kind] == name, f"{path}.{kind}.name: Input should be '{CLIENT_TOOLS[kind]}'")
        check_mark(tool.get("cache_control"), f"{path}.cache_control")
    return names


def _check_schema(schema: Any, path: str) -> None:
    need(isinstance(schema, dict), f"{path}: Field required")
    need(schema.get("type") == "object", f"{path}.type: Input should be 'object'")
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    need(isinstance(properties, dict), f"{path}.properties: Input should be an object")
    need(isinstance(required, list) and all(isinstance(name, str) for name in required),
         f"{path}.required: Input should be a list of strings")  # fmt: skip
    for name in ("oneOf", "allOf", "anyOf"):
        need(name not in schema, f"{path}: input_schema does not support {name} at the top level")
    for name, inner in properties.items():
        kinds = inner.get("type", []) if isinstance(inner, dict) else []
        listed = kinds if isinstance(kinds, list) else [kinds]
        need(isinstance(inner, dict | bool) and all(kind in _TYPES for kind in listed),
             f"{path}: JSON schema is invalid at properties.{name}")  # fmt: skip


def _check_thinking(body: Mapping[str, Any], card: ModelCard, betas: frozenset[str]) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    need(kind in ("adaptive", "enabled", "disabled", "between_tools"),
         "thinking.type: Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'")  # fmt: skip
    need(kind in card.thinking,
         f'thinking.type: "{kind}" is not supported for {card.id}; use one of {sorted(card.thinking)}')  # fmt: skip
    more = ["budget_tokens"] * (kind == "enabled") + ["block_binding"] * (BLOCK_BINDING in betas)
    no_more(thinking, ("type", "display", *more), f"thinking.{kind}")
    need(thinking.get("display") in (None, "summarized", "omitted"),
         "thinking.display: Input should be 'summarized' or 'omitted'")  # fmt: skip
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        need(isinstance(budget, int) and budget >= 1_024,
             "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")  # fmt: skip
        need(budget < body.get("max_tokens", budget + 1), "`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_choice(body: Mapping[str, Any], card: ModelCard, names: set[str]) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    need(kind in ("auto", "any", "tool", "none"), "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    need(names or kind == "none", "tool_choice: tool_choice may only be specified while providing tools")
    need(kind != "tool" or choice.get("name") in list(names),
         f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")  # fmt: skip
    if kind in ("any", "tool"):
        need(not card.bound, f'tool_choice: forcing tool use (type "{kind}") is not supported for {card.id}')
        need((body.get("thinking") or {}).get("type") not in ("enabled", "adaptive"),
             "Thinking may not be enabled when tool_choice forces tool use.")  # fmt: skip


def _check_output(output: Any, card: ModelCard) -> None:
    if output is None:
        return
    need(isinstance(output, dict), "output_config: Input should be an object")
    no_more(output, ("effort", "format"), "output_config")
    effort, wanted = output.get("effort"), output.get("format")
    if effort is not None:
        need(effort in EFFORTS, f"output_config.effort: Input should be one of {', '.join(EFFORTS)}")
        need(effort in card.efforts, f"output_config.effort: {effort!r} is not supported for {card.id}")
    if wanted is None:
        return
    schema = wanted.get("schema") if isinstance(wanted, dict) else None
    need(isinstance(schema, dict) and wanted.get("type") == "json_schema",
         "output_config.format: Input should be {'type': 'json_schema', 'schema': {...}}")  # fmt: skip
    _check_closed(schema, "output_config.format.schema")


def _check_closed(schema: Any, path: str) -> None:
    """Structured output takes closed objects only."""
    if not isinstance(schema, dict):
        return
    need(schema.get("type") != "object" or schema.get("additionalProperties") is False,
         f"{path}: For 'object' type, 'additionalProperties' must be explicitly set to false")  # fmt: skip
    for named in ("properties", "$defs"):
        inner = schema.get(named) or {}
        need(isinstance(inner, dict), f"{path}.{named}: Input should be an object")
        for name, part in inner.items():
            _check_closed(part, f"{path}.{named}.{name}")
    _check_closed(schema.get("items"), f"{path}.items")
    for several in ("anyOf", "allOf"):
        parts = schema.get(several) or []
        need(isinstance(parts, list), f"{path}.{several}: Input should be a list")
        for i, part in enumerate(parts):
            _check_closed(part, f"{path}.{several}.{i}")


_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_ID_WORDS: Final = "String should match pattern '^[a-zA-Z0-9_-]+$'"
_USES: Final = "`tool_use` ids were found without `tool_result` blocks immediately after"


def _fields(words: str) -> frozenset[str]:
    return _names(f"type {words}")


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
    "assistant": _names(
        "text thinking redacted_thinking tool_use compaction server_tool_use "
        "web_search_tool_result web_fetch_tool_result"
    ),
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
    need(messages is not None, "messages: Field required")
    need(isinstance(messages, list), "messages: Input should be a list")
    need(messages, "messages: at least one message is required")
    need(len(messages) <= 100_000, f"messages: at most 100000 messages are allowed, found {len(messages)}")
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
    need(card.prefill,
         f"{card.id} does not support assistant message prefill. The conversation must end with a user message.")
    content = last["content"]
    text = content if isinstance(content, str) else content[-1].get("text", "") if content else ""
    need(text == text.rstrip(), "messages: final assistant content cannot end with trailing whitespace")


def _blocks(message: Mapping[str, Any]) -> Sequence[Block]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _turns(messages: Sequence[Any], card: ModelCard) -> list[Turn]:
    turns: list[Turn] = []
    for i, message in enumerate(messages):
        path = f"messages.{i}"
        need(isinstance(message, dict), f"{path}: Input should be an object")
        no_more(message, ("role", "content"), path)
        role, content = message.get("role"), message.get("content")
        need(role in ("user", "assistant", "system"), f"{path}.role: Input should be 'user', 'assistant' or 'system'")
        need(isinstance(content, str | list), f"{path}.content: Input should be a string or a list of blocks")
        if isinstance(content, str):
            need(content.strip(), f"{path}: text content blocks must contain non-whitespace text")
        blocks: Sequence[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        need(blocks or (role == "assistant" and i == len(messages) - 1 and card.prefill),
             f"{path}: all messages must have non-empty content except for the optional final assistant message")
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
        no_more(block, BLOCKS[kind], f"{path}.{kind}")
    for fits, words in _SHAPES.get(kind, ()):
        if not fits(block):
            raise Refused(f"{path}.{kind}{words}")
    match kind:
        case "text":
            _check_text(block["text"], block, path)
            if where == "assistant":
                web.check_citations(block, path)
        case "server_tool_use" | "web_search_tool_result" | "web_fetch_tool_result":
            web.check_block(block, path)
        case "tool_result":
            _check_result(block, path)
        case "document":
            wanted = "application/pdf" if block["source"]["type"] == "base64" else "text/plain"
            source = block["source"]
            need(source.get("media_type") == wanted and isinstance(source.get("data"), str) and source["data"],
                 f"{path}.document.source: media_type should be '{wanted}' and data a non-empty string")  # fmt: skip
        case "search_result":
            for k, part in enumerate(block["content"]):
                _check_block(part, "system", f"{path}.search_result.content.{k}")
        case "compaction":
            check_shape(block, path)
    if "cache_control" in block:
        check_mark(block["cache_control"], f"{path}.{kind}.cache_control")


def _texts(*names: str) -> Callable[[Block], bool]:
    return lambda block: all(isinstance(block.get(name), str) for name in names)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _source_in(*kinds: str) -> Callable[[Block], bool]:
    return lambda block: isinstance(block.get("source"), dict) and block["source"].get("type") in kinds


_SHAPES: Final[Mapping[str, tuple[tuple[Callable[[Block], object], str], ...]]] = {
    "text": ((_texts("text"), ".text: Field required"),),
    "thinking": ((_texts("thinking", "signature"), ": `thinking` and `signature` are required"),),
    "redacted_thinking": ((_texts("data"), ".data: Field required"),),
    "image": ((lambda block: isinstance(block.get("source"), dict), ".source: Field required"),),
    "document": (
        (_source_in("base64", "text"), ".source.type: the practice server reads 'base64' and 'text' documents only"),
    ),
    "search_result": (
        (_texts("source", "title"), ": `source` and `title` are required"),
        (lambda block: isinstance(block.get("content"), list) and block["content"],
         ".content: Input should be a non-empty list of text blocks"),
    ),
    "tool_use": (
        (lambda block: _is_id(block.get("id")), f".id: {_ID_WORDS}"),
        (lambda block: isinstance(block.get("name"), str) and 1 <= len(block["name"]) <= 200,
         ".name: String should have at least 1 and at most 200 characters"),
        (lambda block: isinstance(block.get("input"), dict), ".input: Input should be a valid dictionary"),
    ),
    "tool_result": (
        (lambda block: _is_id(block.get("tool_use_id")), f".tool_use_id: {_ID_WORDS}"),
        (lambda block: isinstance(block.get("is_error", False), bool), ".is_error: Input should be a valid boolean"),
        (lambda block: isinstance(block.get("content", ""), str | list),
         ".content: Input should be a string or a list of blocks"),
    ),
}  # fmt: skip
"""What each kind of block must be, and what is said of one that is not."""


def _check_text(text: str, block: Block, path: str) -> None:
    if not text:
        mark = "cache_control cannot be set for empty text blocks" if block.get("cache_control") else ""
        raise Refused(f"{path}.text: {mark or 'text content blocks must be non-empty'}")
    if text.isspace():
        raise Refused(f"{path}.text: text content blocks must contain non-whitespace text")


def _check_result(block: Block, path: str) -> None:
    content = block.get("content", "")
    for k, part in enumerate(content if isinstance(content, list) else ()):
        _check_block(part, "tool_result", f"{path}.tool_result.content.{k}")
        need(not block.get("is_error") or part["type"] == "text",
             f'{path}.tool_result: all content must be type "text" if "is_error" is true')  # fmt: skip


def _check_roles(turns: Sequence[Turn], card: ModelCard) -> None:
    need(turns, "messages: at least one message with content is required")
    first = turns[0].blocks[0][2]["type"] if turns[0].blocks else ""
    need(turns[0].role != "assistant" or first == "compaction",  # a summary stands for the turns before it
         'messages: first message must use the "user" role')  # fmt: skip
    for previous, turn in pairwise([None, *turns]):
        if turn is not None and turn.role == "system":
            told = f"'system' messages are not supported for {card.id}; use the top-level `system` parameter"
            need(card.system_messages, f"messages.{turn.first}.role: {told}")
            need(previous is not None and previous.role == "user",
                 f"messages.{turn.first}: a 'system' message must follow a 'user' message")  # fmt: skip


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
                need(block["id"] not in seen, f"messages.{i}.content.{j}: `tool_use` ids must be unique: {block['id']}")
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
