"""What the Messages API requires of a request's parameters; each breach raises `Refused` in the API's words.

The conversation itself is judged in `history`, thinking in `thinking`, cache marks in `cache`, images in `images`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ipyagent.practice import betas as known
from ipyagent.practice import web
from ipyagent.practice.models import EFFORTS, ModelCard
from ipyagent.practice.refusal import Refused

VERSIONS: Final = ("2023-06-01", "2026-10-21")
FIELDS: Final = frozenset(
    {
        "model", "messages", "max_tokens", "system", "tools", "tool_choice", "thinking", "output_config",
        "stream", "stop_sequences", "metadata", "cache_control", "diagnostics", "container", "inference_geo",
        "service_tier", "speed", "user_profile_id", "workspace_id",
    }
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
        "type", "name", "description", "input_schema", "cache_control", "strict", "defer_loading",
        "eager_input_streaming", "input_examples", "allowed_callers", "max_characters",
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
    if unknown := sorted(betas - known.KNOWN):
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
    for name, needed in known.FIELDS.items():
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
    for name in sorted(set(body) - FIELDS - set(known.FIELDS)):
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
        runs_here = tool.get("type") in (*web.SEARCH, *web.FETCH)
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
    if known.BLOCK_BINDING in betas:
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
