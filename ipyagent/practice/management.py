"""What a request asks the server to do with its context: `context_management` and `compaction`, checked and read.

Field names, defaults and limits as in the API's public documentation; a wrong shape is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ipyagent.practice.models import ModelCard
from ipyagent.practice.refusal import Refused
from ipyagent.practice.summary_block import THRESHOLD

EDITING: Final = "context-management-2025-06-27"
LEAST_TRIGGER: Final = 50_000
LONGEST_INSTRUCTIONS: Final = 16_384
_PATH: Final = "context_management.edits"
_BETAS: Final[Mapping[str, str]] = {
    "clear_thinking_20251015": EDITING,
    "clear_tool_uses_20250919": EDITING,
    "compact_20260112": THRESHOLD,
}
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "clear_thinking_20251015": frozenset({"type", "keep"}),
    "clear_tool_uses_20250919": frozenset(
        {"type", "trigger", "keep", "clear_at_least", "exclude_tools", "clear_tool_inputs"}
    ),
    "compact_20260112": frozenset({"type", "trigger", "instructions", "pause_after_compaction"}),
}


@dataclass(frozen=True, slots=True)
class ClearThinking:
    """Thinking of the latest `keep` turns stays; None: all of it."""

    keep: int | None


@dataclass(frozen=True, slots=True)
class ClearTools:
    """Old results go once the prompt has more than `trigger` input tokens (or tool uses, when `by_uses`).

    `inputs`: whether the calls' inputs go too, of these tools (None: of none).
    """

    by_uses: bool = False
    trigger: int = 100_000
    keep: int = 3
    at_least: int = 0
    exclude: frozenset[str] = frozenset()
    all_inputs: bool = False
    inputs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Compact:
    """A summary once the prompt has `trigger` input tokens; 0: now, as the `compaction` parameter asks."""

    trigger: int
    instructions: str = ""
    pause: bool = False


@dataclass(frozen=True, slots=True)
class Management:
    """The edits a request asks for; `asked`: it has `context_management`; `summarize`: it has `compaction`."""

    asked: bool = False
    thinking: ClearThinking | None = None
    tools: ClearTools | None = None
    compact: Compact | None = None
    summarize: Compact | None = None


def management(
    body: Mapping[str, Any], card: ModelCard, betas: frozenset[str], compacts: bool = True, least: int = LEAST_TRIGGER
) -> Management:
    """What a body asks for; raises `Refused`. `compacts` False: the server passes over compaction edits, as over any
    field it does not know; `least`: smallest trigger of a compaction, in tokens."""
    asked, wanted = body.get("context_management"), body.get("compaction")
    if asked is None and wanted is None:
        return Management()
    if asked is not None and wanted is not None:
        raise Refused("compaction: cannot be combined with `context_management`")
    if wanted is not None:
        return Management(summarize=_summarize(wanted, body, card))
    if not card.manages:
        raise Refused(f"context_management: not supported for {card.id}")
    if not isinstance(asked, dict):
        raise Refused("context_management: Input should be an object")
    _no_more(asked, frozenset({"edits"}), "context_management")
    edits = asked.get("edits") or []
    if not isinstance(edits, list):
        raise Refused(f"{_PATH}: Input should be a list")
    found: dict[str, Mapping[str, Any]] = {}
    for i, edit in enumerate(edits):
        kind = edit.get("type") if isinstance(edit, dict) else None
        if not isinstance(kind, str) or kind not in _FIELDS:
            raise Refused(f"{_PATH}.{i}: Input tag {kind!r} found using 'type' does not match any of the expected tags")
        if _BETAS[kind] not in betas:
            raise Refused(f"{_PATH}.{i}: `{kind}` requires `{_BETAS[kind]}` in the `anthropic-beta` header")
        _no_more(edit, _FIELDS[kind], f"{_PATH}.{i}.{kind}")
        if kind in found:
            raise Refused(f"{_PATH}.{i}: `{kind}` is there more than once")
        if kind == "clear_thinking_20251015" and i:
            raise Refused(f"{_PATH}.{i}: the `{kind}` strategy must be the first of the edits")
        found[kind] = {name: value for name, value in edit.items() if value is not None}
    thinking, tools = found.get("clear_thinking_20251015"), found.get("clear_tool_uses_20250919")
    compact = found.get("compact_20260112")
    return Management(
        True,
        None if thinking is None else _clear_thinking(thinking, body, card),
        None if tools is None else _clear_tools(tools),
        None if compact is None or not compacts else _compact(compact, least),
    )


def _no_more(given: Mapping[str, Any], known: frozenset[str], path: str) -> None:
    if extra := sorted(set(given) - known):
        raise Refused(f"{path}.{extra[0]}: Extra inputs are not permitted")


def _amount(given: Any, kinds: tuple[str, ...], path: str, least: int = 0) -> tuple[str, int]:
    """The kind and the value of `{"type": …, "value": …}`."""
    if not isinstance(given, dict) or given.get("type") not in kinds:
        raise Refused(f"{path}.type: Input should be {' or '.join(map(repr, kinds))}")
    _no_more(given, frozenset({"type", "value"}), path)
    value = given.get("value")
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{path}.value: Input should be a valid integer")
    if value < least:
        raise Refused(f"{path}.value: Input should be greater than or equal to {least}")
    return str(given["type"]), value


def _names(given: Any, path: str) -> frozenset[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise Refused(f"{path}: Input should be a list of strings")
    return frozenset(given)


def _clear_thinking(edit: Mapping[str, Any], body: Mapping[str, Any], card: ModelCard) -> ClearThinking:
    kind = (body.get("thinking") or {}).get("type") or ("adaptive" if card.thinking == {"adaptive"} else "disabled")
    if kind == "disabled":
        raise Refused("`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive")
    keep = edit.get("keep", {"type": "thinking_turns", "value": 1} if card.line == "haiku" else "all")
    if keep == "all" or keep == {"type": "all"}:
        return ClearThinking(None)
    return ClearThinking(_amount(keep, ("thinking_turns",), f"{_PATH}.0.keep", 1)[1])


def _clear_tools(edit: Mapping[str, Any]) -> ClearTools:
    path = f"{_PATH}.clear_tool_uses_20250919"
    kind, trigger = "input_tokens", 100_000
    if "trigger" in edit:
        kind, trigger = _amount(edit["trigger"], ("input_tokens", "tool_uses"), f"{path}.trigger")
    inputs = edit.get("clear_tool_inputs", False)
    return ClearTools(
        by_uses=kind == "tool_uses",
        trigger=trigger,
        keep=_amount(edit["keep"], ("tool_uses",), f"{path}.keep")[1] if "keep" in edit else 3,
        at_least=_amount(edit["clear_at_least"], ("input_tokens",), f"{path}.clear_at_least")[1]
        if "clear_at_least" in edit
        else 0,
        exclude=_names(edit.get("exclude_tools", []), f"{path}.exclude_tools"),
        all_inputs=inputs is True,
        inputs=frozenset() if isinstance(inputs, bool) else _names(inputs, f"{path}.clear_tool_inputs"),
    )


def _compact(edit: Mapping[str, Any], least: int) -> Compact:
    path = f"{_PATH}.compact_20260112"
    trigger = 150_000
    if "trigger" in edit:
        trigger = _amount(edit["trigger"], ("input_tokens",), f"{path}.trigger", least)[1]
    pause = edit.get("pause_after_compaction", False)
    if not isinstance(pause, bool):
        raise Refused(f"{path}.pause_after_compaction: Input should be a valid boolean")
    return Compact(trigger, _instructions(edit.get("instructions"), path), pause)


def _instructions(given: Any, path: str) -> str:
    if given is not None and not isinstance(given, str):
        raise Refused(f"{path}.instructions: Input should be a valid string")
    if given and len(given) > LONGEST_INSTRUCTIONS:
        raise Refused(f"{path}.instructions: String should have at most {LONGEST_INSTRUCTIONS} characters")
    return (given or "").strip()


def _summarize(wanted: Any, body: Mapping[str, Any], card: ModelCard) -> Compact:
    if not card.compacts:
        raise Refused(f"compaction: not supported for {card.id}")
    if not isinstance(wanted, dict) or wanted.get("type") != "summarize":
        raise Refused("compaction.type: Input should be 'summarize'")
    _no_more(wanted, frozenset({"type", "instructions"}), "compaction")
    if body.get("stop_sequences"):
        raise Refused("compaction: cannot be combined with `stop_sequences`")
    if (body.get("output_config") or {}).get("format"):
        raise Refused("compaction: cannot be combined with `output_config.format`")
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise Refused("compaction: cannot be combined with a `tool_choice` that forces a tool")
    messages = body.get("messages")
    if messages == []:
        raise Refused("compaction: there is nothing to summarize", code="compaction_nothing_to_summarize")
    last = messages[-1] if isinstance(messages, list) else None
    if isinstance(last, dict) and last.get("role") == "assistant" and isinstance(last.get("content"), list):
        uses = [b.get("id") for b in last["content"] if isinstance(b, dict) and b.get("type") == "tool_use"]
        if uses:
            raise Refused(
                f"compaction: the last assistant turn is not finished: no result yet for {', '.join(map(str, uses))}",
                code="compaction_incomplete_turn",
            )
    return Compact(0, _instructions(wanted.get("instructions"), "compaction"))


def ask_of(compact: Compact) -> str:
    """The words that ask the summarising call for the summary, which it is charged for."""
    return compact.instructions or (
        "Summarize the conversation so far so that the work can go on from the summary alone: what the user wants and "
        "said, files, variables and code, errors and their fixes, results with their numbers, what is open, what "
        "comes next. Answer with the summary in <summary> tags; call no tool."
    )

