"""What the Messages API requires of a request; each breach raises `Refused` in the API's words.

Parameters first, then `messages`: adjacent messages of one role are one turn. The first turn is the user's. A turn of
role `system` follows a user turn and never stands between tool calls and their results. Every tool call is answered in
the user turn right after it, results first, once each; no result without its call; no call id twice. A `compaction`
block may begin the conversation. Of searches at the server `web` says the like; thinking is judged in `prompt`, cache
breakpoints in `cache`, images in `tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
_TOOL_FIELDS: Final = frozenset(
    {
        "type",
        "name",
        "description",
        "input_schema",
        "cache_control",
        "strict",
        "defer_loading",
        "eager_input_streaming",
        "input_examples",
        "allowed_callers",
        "max_characters",
    }
)
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")


def check_headers(headers: Mapping[str, str], key: str | None) -> frozenset[str]:
    """The betas asked for; `headers` have lower-case names, `key` is the only credential taken (None: any)."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = headers.get("x-api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    if not given:
        raise Refused("x-api-key or Authorization: Bearer header is required", 401)
    if key is not None and given != key:
        raise Refused("invalid x-api-key", 401)
    version = headers.get("anthropic-version")
    if version not in VERSIONS:
        said = "header is required" if version is None else f"{version!r} is not a valid version"
        raise Refused(f"anthropic-version: {said}")
    betas = frozenset(beta.strip() for beta in headers.get("anthropic-beta", "").split(",") if beta.strip())
    if unknown := sorted(betas - BETAS):
        raise Refused(f"Unexpected value(s) `{', '.join(unknown)}` for the `anthropic-beta` header.")
    return betas


def check_parameters(body: Mapping[str, Any], card: ModelCard, betas: frozenset[str], counting: bool) -> None:
    """Everything outside `messages`; `counting`: the request only counts tokens."""
    _check_fields(body, betas)
    if not counting:
        _check_max_tokens(body, card)
    if not isinstance(body.get("stream", False), bool):
        raise Refused("stream: Input should be a valid boolean")
    check_mark(body.get("cache_control"), "cache_control")
    _check_system(body.get("system"))
    names = _check_tools(body.get("tools"), card)
    _check_thinking(body, card, betas)
    _check_choice(body, card, names)
    _check_output(body.get("output_config"), card)
    stops = body.get("stop_sequences") or []
    if not isinstance(stops, list) or any(not isinstance(stop, str) or not stop.strip() for stop in stops):
        raise Refused("stop_sequences: each stop sequence must contain non-whitespace")
    diagnostics = body.get("diagnostics")
    if diagnostics is not None and (not isinstance(diagnostics, dict) or set(diagnostics) != {"previous_message_id"}):
        raise Refused("diagnostics: `previous_message_id` is the one field, a message id or null")


def check_mark(mark: Any, path: str) -> None:
    """One `cache_control` value; None is no mark."""
    if mark is None:
        return
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral":
        raise Refused(f"{path}.type: Input should be 'ephemeral'")
    if mark.get("ttl", "5m") not in ("5m", "1h", None):
        raise Refused(f"{path}.ttl: Input should be '5m' or '1h'")
    if extra := sorted(set(mark) - {"type", "ttl"}):
        raise Refused(f"{path}.{extra[0]}: Extra inputs are not permitted")


def _check_fields(body: Mapping[str, Any], betas: frozenset[str]) -> None:
    for name in SAMPLING:
        if name in body:
            raise Refused(f"{name}: this parameter is not supported; remove it")
    for name, needed in BETA_FIELDS.items():
        if body.get(name) is None:
            continue
        if name == "compaction" and not betas.intersection(needed):
            raise Refused(f"compaction: this parameter requires anthropic-beta: {needed[0]}")
        if not betas.intersection(needed):
            raise Refused(f"{name}: Extra inputs are not permitted")
        if name in ("context_management", "compaction"):
            continue
        code = "thread_unsupported_request" if name == "thread" else None
        raise Refused(f"{name}: not supported yet by the practice server", code=code)
    for name in sorted(set(body) - FIELDS - set(BETA_FIELDS)):
        raise Refused(f"{name}: Extra inputs are not permitted")


def _check_max_tokens(body: Mapping[str, Any], card: ModelCard) -> None:
    most = body.get("max_tokens")
    if most is None:
        raise Refused("max_tokens: Field required")
    if isinstance(most, bool) or not isinstance(most, int):
        raise Refused("max_tokens: Input should be a valid integer")
    if most < 0:
        raise Refused("max_tokens: Input should be greater than or equal to 0")
    if most > card.max_output:
        raise Refused(
            f"max_tokens: {most} > {card.max_output}, which is the maximum allowed number of output tokens "
            f"for {card.id}"
        )


def _check_system(system: Any) -> None:
    if system is None:
        return
    if isinstance(system, str):
        if not system.strip():
            raise Refused("system: text content blocks must contain non-whitespace text")
        return
    if not isinstance(system, list):
        raise Refused("system: Input should be a string or a list of text blocks")
    for i, block in enumerate(system):
        path = f"system.{i}"
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            raise Refused(f"{path}.type: Input should be 'text'")
        if not block["text"].strip():
            raise Refused(f"{path}: text content blocks must contain non-whitespace text")
        if extra := sorted(set(block) - {"type", "text", "cache_control", "citations"}):
            raise Refused(f"{path}.{extra[0]}: Extra inputs are not permitted")
        check_mark(block.get("cache_control"), f"{path}.cache_control")


def _check_tools(tools: Any, card: ModelCard) -> set[str]:
    if tools is None:
        return set()
    if not isinstance(tools, list):
        raise Refused("tools: Input should be a list")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        path = f"tools.{i}"
        if not isinstance(tool, dict):
            raise Refused(f"{path}: Input should be an object")
        runs_here = tool.get("type") in (*SEARCH, *FETCH)
        if runs_here:
            web.options_of(tool, path, card.web)
        elif extra := sorted(set(tool) - _TOOL_FIELDS):
            raise Refused(f"{path}.{extra[0]}: Extra inputs are not permitted")
        name, kind = tool.get("name"), tool.get("type") or "custom"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Refused(f"{path}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            raise Refused(f"{path}: Tool names must be unique: {name}")
        names.add(name)
        if kind == "custom":
            _check_schema(tool.get("input_schema"), f"{path}.custom.input_schema")
            if not isinstance(tool.get("description", ""), str):
                raise Refused(f"{path}.custom.description: Input should be a valid string")
        elif runs_here:
            pass
        elif not isinstance(kind, str) or kind not in CLIENT_TOOLS:
            raise Refused(f"{path}.type: tool type {kind!r} is unknown or runs on Anthropic's servers only")
        elif CLIENT_TOOLS[kind] != name:
            raise Refused(f"{path}.{kind}.name: Input should be '{CLIENT_TOOLS[kind]}'")
        check_mark(tool.get("cache_control"), f"{path}.cache_control")
    return names


def _check_schema(schema: Any, path: str) -> None:
    if not isinstance(schema, dict):
        raise Refused(f"{path}: Field required")
    if schema.get("type") != "object":
        raise Refused(f"{path}.type: Input should be 'object'")
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if not isinstance(properties, dict):
        raise Refused(f"{path}.properties: Input should be an object")
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise Refused(f"{path}.required: Input should be a list of strings")
    if clash := [name for name in ("oneOf", "allOf", "anyOf") if name in schema]:
        raise Refused(f"{path}: input_schema does not support {clash[0]} at the top level")
    for name, inner in properties.items():
        kinds = inner.get("type", []) if isinstance(inner, dict) else []
        listed = kinds if isinstance(kinds, list) else [kinds]
        if not isinstance(inner, dict | bool) or any(kind not in _TYPES for kind in listed):
            raise Refused(f"{path}: JSON schema is invalid at properties.{name}")


def _check_thinking(body: Mapping[str, Any], card: ModelCard, betas: frozenset[str]) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind not in ("adaptive", "enabled", "disabled", "between_tools"):
        raise Refused("thinking.type: Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'")
    if kind not in card.thinking:
        raise Refused(f'thinking.type: "{kind}" is not supported for {card.id}; use one of {sorted(card.thinking)}')
    allowed = {"type", "display"} | ({"budget_tokens"} if kind == "enabled" else set())
    if BLOCK_BINDING in betas:
        allowed.add("block_binding")
    if extra := sorted(set(thinking) - allowed):
        raise Refused(f"thinking.{kind}.{extra[0]}: Extra inputs are not permitted")
    if thinking.get("display") not in (None, "summarized", "omitted"):
        raise Refused("thinking.display: Input should be 'summarized' or 'omitted'")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1_024:
            raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body.get("max_tokens", budget + 1):
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_choice(body: Mapping[str, Any], card: ModelCard, names: set[str]) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise Refused("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
    if not names and kind != "none":
        raise Refused("tool_choice: tool_choice may only be specified while providing tools")
    if kind == "tool" and choice.get("name") not in list(names):
        raise Refused(f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")
    if kind in ("any", "tool"):
        if card.bound:
            raise Refused(f'tool_choice: forcing tool use (type "{kind}") is not supported for {card.id}')
        if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
            raise Refused("Thinking may not be enabled when tool_choice forces tool use.")


def _check_output(output: Any, card: ModelCard) -> None:
    if output is None:
        return
    if not isinstance(output, dict):
        raise Refused("output_config: Input should be an object")
    if extra := sorted(set(output) - {"effort", "format"}):
        raise Refused(f"output_config.{extra[0]}: Extra inputs are not permitted")
    effort, wanted = output.get("effort"), output.get("format")
    if effort is not None and effort not in EFFORTS:
        raise Refused(f"output_config.effort: Input should be one of {', '.join(EFFORTS)}")
    if effort is not None and effort not in card.efforts:
        raise Refused(f"output_config.effort: {effort!r} is not supported for {card.id}")
    if wanted is None:
        return
    schema = wanted.get("schema") if isinstance(wanted, dict) else None
    if not isinstance(schema, dict) or wanted.get("type") != "json_schema":
        raise Refused("output_config.format: Input should be {'type': 'json_schema', 'schema': {...}}")
    _check_closed(schema, "output_config.format.schema")


def _check_closed(schema: Any, path: str) -> None:
    """Structured output takes closed objects only."""
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        raise Refused(f"{path}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    for named in ("properties", "$defs"):
        inner = schema.get(named) or {}
        if not isinstance(inner, dict):
            raise Refused(f"{path}.{named}: Input should be an object")
        for name, part in inner.items():
            _check_closed(part, f"{path}.{named}.{name}")
    _check_closed(schema.get("items"), f"{path}.items")
    for several in ("anyOf", "allOf"):
        parts = schema.get(several) or []
        if not isinstance(parts, list):
            raise Refused(f"{path}.{several}: Input should be a list")
        for i, part in enumerate(parts):
            _check_closed(part, f"{path}.{several}.{i}")


_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
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
        raise Refused('messages: first message must use the "user" role')
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
