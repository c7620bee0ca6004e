"""What a server says of its models, as we know models: by the Models API, or in its list of models alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ipyagent.journal.protocols import ModelInfo
from ipyagent.model.capabilities import Capabilities
from ipyagent.model.compaction import COMPACT_EDIT

if TYPE_CHECKING:
    import anthropic

CLEARING = "clear_tool_uses_20250919"
"""The edit that a server must know for us to leave old results to it."""


class ModelsApi:
    """One endpoint's; asks once for each list and model. `client` gives the SDK's client of now."""

    def __init__(self, client: Callable[[], anthropic.AsyncAnthropic], capabilities: Capabilities) -> None:
        self._client = client
        self._capabilities = capabilities
        self._lists: dict[str, list[dict[str, Any]]] = {}
        self._unknown: set[tuple[str, str]] = set()
        """Addresses, and models that are not known there."""

    @property
    def _address(self) -> str:
        return str(self._client().base_url).rstrip("/")

    async def ask(self, model: str) -> tuple[ModelInfo | None, bool]:
        """What is said of the model (None: nothing), and whether it would be said the same again."""
        import anthropic

        if "models" in self._capabilities.lacking(self._address):
            return None, True
        try:
            found = await self._client().with_options(max_retries=0, timeout=5.0).models.retrieve(model)
        except anthropic.NotFoundError:
            return await self._in_list(model), True
        except (anthropic.AnthropicError, TypeError, ValueError, AttributeError):
            return None, False  # the request itself will say what is wrong
        return info_told(model, found.to_dict(warnings=False) if hasattr(found, "to_dict") else {}), True

    async def only(self, model: str) -> str:
        """The one model that the server lists, when it was asked for `model` and does not know it; else ""."""
        if (self._address, model) not in self._unknown:
            return ""
        names = [str(one["id"]) for one in await self._listed()]
        return names[0] if len(names) == 1 else ""

    async def _in_list(self, model: str) -> ModelInfo | None:
        """What the list of models says of one that has no page of its own."""
        listed = await self._listed()
        for one in listed:
            if model == one["id"] or model in (one.get("aliases") or ()):
                return info_told(model, one)
        if listed:
            self._unknown.add((self._address, model))
        else:
            self._capabilities.lacks(self._address, "models")
        return None

    async def _listed(self) -> list[dict[str, Any]]:
        """The list of models; nothing when there is none."""
        import anthropic

        if self._address not in self._lists:
            try:
                page = await self._client().with_options(max_retries=0, timeout=5.0).models.list()
                found = [one.to_dict(warnings=False) for one in page.data or ()]
            except (anthropic.AnthropicError, TypeError, ValueError, AttributeError):
                found = []
            self._lists[self._address] = [one for one in found if isinstance(one.get("id"), str)]
        return self._lists[self._address]


def info_told(model: str, told: dict[str, Any]) -> ModelInfo:
    """The model's window and abilities from what the server says of it; what it does not say is 0 or off."""
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
    meta = told.get("meta")
    own = meta.get("n_ctx") if isinstance(meta, dict) else 0
    # Anthropic's name for it, vLLM's, llama.cpp's
    sizes = (told.get("max_input_tokens"), told.get("max_model_len"), own)
    window = next(filter(None, map(_positive, sizes)), 0)
    output = _positive(told.get("max_tokens"))
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
