"""What the Models API says of a model, as we know models."""

from __future__ import annotations

from typing import Any

from ipyagent.journal.protocols import ModelInfo
from ipyagent.model.compaction import COMPACT_EDIT

CLEARING = "clear_tool_uses_20250919"
"""The edit that a server must know for us to leave old results to it."""


def info_told(model: str, told: dict[str, Any]) -> ModelInfo:
    """The model's window and abilities from the API's answer; what it does not say is 0 or off."""
    able = told.get("capabilities")
    able = able if isinstance(able, dict) else {}

    def can(name: str) -> bool:
        value = able.get(name)
        return bool(value.get("supported")) if isinstance(value, dict) else bool(value)

    managed = able.get("context_management")
    clearing = managed.get(CLEARING) if isinstance(managed, dict) else None
    edits = can("context_management") and isinstance(clearing, dict) and bool(clearing.get("supported"))
    told_edit = managed.get(COMPACT_EDIT) if isinstance(managed, dict) else None
    compacts = bool(told_edit.get("supported")) if isinstance(told_edit, dict) else False
    window, output = _positive(told.get("max_input_tokens")), _positive(told.get("max_tokens"))
    return ModelInfo(
        model=model,
        window=window,
        max_output=output,
        thinking=can("thinking"),
        effort=can("effort"),
        images=can("image_input") if able else True,
        edits=edits,
        compaction=compacts,
        source="Models API" if able or window else "",
    )


def _positive(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
