"""What a server says of its models, as we know models: by the Models API, in its list of models, or in the words of
the product that it is (Ollama, llama.cpp, LM Studio, LiteLLM; vLLM, SGLang and OpenRouter say it in the list)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from ipyagent.journal.blocks import json_object
from ipyagent.journal.protocols import ModelInfo
from ipyagent.model.capabilities import COMPACT_EDIT, DEFAULT_WINDOW, LEAST_WINDOW, MODELS_API, VERSIONS, Capabilities
from ipyagent.model.prices import told_prices

if TYPE_CHECKING:
    import anthropic

CLEARING = "clear_tool_uses_20250919"
"""The edit that a server must know for us to leave old results to it."""
PATIENCE = 3.0
"""Seconds for one question to a server; requests do not wait for that long, see `AnthropicModel.info`."""
_NUM_CTX = re.compile(r"(?m)^[ \t]{0,20}num_ctx[ \t]{1,100}(\d{1,9})[ \t\r]{0,20}$")


class _Silent(Exception):
    """A question was not answered, and may be another time."""


class ModelAnswer(msgspec.Struct, frozen=True):
    """What is said of a model (None: nothing), and whether it would be said the same again."""

    told: ModelInfo | None
    final: bool = True


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

    async def ask(self, model: str) -> ModelAnswer:
        """What the server says of a model. Never raises for one that is silent."""
        import anthropic

        if not isinstance(self._client(), anthropic.AsyncAnthropic):
            return ModelAnswer(None)  # a cloud's own client: what it asks is for that cloud
        try:
            found = await self._by_page_or_list(model)
        except _Silent:
            return ModelAnswer(None, final=False)  # the request itself will say what is wrong
        if (found is not None and found.window) or self._address == "https://api.anthropic.com":
            return ModelAnswer(found)
        if (self._address, model) in self._unknown:
            return ModelAnswer(None)
        return await self._by_product(model, found)

    async def only(self, model: str) -> str:
        """The one model that the server lists, when it was asked for `model` and does not know it; else ""."""
        if (self._address, model) not in self._unknown:
            return ""
        names = [str(one["id"]) for one in await self._listed()]
        return names[0] if len(names) == 1 else ""

    def listed(self) -> list[str]:
        """The names that the server has listed, aliases too, as far as it was asked; nothing is sent."""
        rows = self._lists.get(self._address, [])
        more = (one["aliases"] for one in rows if isinstance(one.get("aliases"), list))
        return [*(str(one["id"]) for one in rows), *(str(each) for aliases in more for each in aliases)]

    async def _by_page_or_list(self, model: str) -> ModelInfo | None:
        """What the model's own page says, or the list. Raises _Silent."""
        if "models" in self._capabilities.lacking(self._address):
            return None
        page = await self._get(f"/v1/models/{quote(model, safe='')}")
        found = info_told(model, page, self._address) if _is_model(page) else None
        if found is not None and found.window:
            return found
        listed = await self._listed()
        for one in listed:
            aliases = one.get("aliases")
            if one["id"] in (model, f"{model}:latest") or (isinstance(aliases, list) and model in aliases):
                return info_told(model, one, self._address)
        if found is None and listed:
            self._unknown.add((self._address, model))
        elif found is None:
            self._capabilities.lacks(self._address, "models")
        return found

    async def _listed(self) -> list[dict[str, Any]]:
        """The list of models; nothing when there is none."""
        if self._address not in self._lists:
            try:
                found = await self._get("/v1/models")
            except _Silent:
                return []
            self._lists[self._address] = [one for one in _rows(found) if _is_model(one)]
        return self._lists[self._address]

    async def _get(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object at a path of the server, {} for none; with a `body`, what it answers to that. Raises _Silent
        when it does not answer, or with a failure that may pass."""
        import anthropic

        client = self._client().with_options(max_retries=0, timeout=PATIENCE)
        try:
            async with asyncio.timeout(PATIENCE):
                asked = client.get(path, cast_to=object) if body is None else client.post(
                    path, cast_to=object, body=body
                )  # fmt: skip
                found = await asked
        except anthropic.APIStatusError as problem:
            if problem.status_code in (401, 403, 408, 429) or problem.status_code >= 500:
                raise _Silent from None
            return {}
        except (anthropic.AnthropicError, TimeoutError, TypeError, AttributeError) as problem:
            raise _Silent from problem
        except (ValueError, RecursionError):
            return {}
        return json_object(found)

    # ------------------------------------------------------------------ products

    async def _by_product(self, model: str, found: ModelInfo | None) -> ModelAnswer:
        """What the server says in its product's own way; the first that knows the window which is served now."""
        shown, at_work, props, studio, litellm = await asyncio.gather(
            self._try("/api/show", {"model": model}), self._try("/api/ps"), self._try("/props"),
            self._try("/api/v0/models"), self._try("/model/info"),
        )  # fmt: skip
        known = found or ModelInfo(model=model, window=0, max_output=0)
        served, trained = _ollama(model, shown, at_work)
        loaded, most = _lm_studio(model, studio)
        slot = _positive(json_object(props.get("default_generation_settings")).get("n_ctx"))
        proxied = _litellm(model, litellm, self._address)
        for window, source in (
            (served, "Ollama"), (slot, "llama.cpp"), (loaded, "LM Studio"), (proxied.window, "LiteLLM"),
        ):  # fmt: skip
            if window >= LEAST_WINDOW:
                output = known.max_output or proxied.max_output
                return ModelAnswer(msgspec.structs.replace(known, window=window, max_output=output, source=source))
        # how much of what it could read the model gets is told once it is loaded
        for window, source in ((trained, "Ollama, for the model itself"), (most, "LM Studio, for the model itself")):
            if window >= LEAST_WINDOW:
                window = min(window, DEFAULT_WINDOW)
                return ModelAnswer(msgspec.structs.replace(known, window=window, source=source), final=False)
        return ModelAnswer(found)

    async def _try(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            return await self._get(path, body)
        except _Silent:
            return {}


def _is_model(told: dict[str, Any]) -> bool:
    """Whether an answer is about a model: some servers say with status 200 that they know no such path."""
    return isinstance(told.get("id"), str) and not told.get("error")


def _rows(told: dict[str, Any], name: str = "data") -> list[dict[str, Any]]:
    rows = told.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _ollama(model: str, shown: dict[str, Any], at_work: dict[str, Any]) -> tuple[int, int]:
    """The window that Ollama serves a model with, and the one that the model was made for; 0 where it does not say.
    Of a model that is not loaded only its own `num_ctx` is known; usually it gets much less than it could read."""
    names = {model, f"{model}:latest"}
    for row in _rows(at_work, "models"):
        if names & {row.get("name"), row.get("model")} and (window := _positive(row.get("context_length"))):
            return window, 0
    parameters = shown.get("parameters")
    own = _NUM_CTX.search(parameters[:100_000]) if isinstance(parameters, str) else None
    facts = json_object(shown.get("model_info")).items()
    trained = next((_positive(each) for name, each in facts if str(name).endswith(".context_length")), 0)
    return int(own.group(1)) if own else 0, trained


def _lm_studio(model: str, told: dict[str, Any]) -> tuple[int, int]:
    """The window that a model is loaded with in LM Studio, and the largest it could be."""
    for row in _rows(told):
        if row.get("id") == model:
            return _positive(row.get("loaded_context_length")), _positive(row.get("max_context_length"))
    return 0, 0


def _litellm(model: str, told: dict[str, Any], server: str) -> ModelInfo:
    """What a LiteLLM proxy knows of a model that it passes on; its price, too. A model may stand there several times,
    once for each place that serves it: the smallest counts."""
    windows, outputs = [], []
    for row in _rows(told):
        facts = json_object(row.get("model_info"))
        if row.get("model_name") != model or not facts:
            continue
        windows.append(_positive(facts.get("max_input_tokens")))
        outputs.append(_positive(facts.get("max_output_tokens")))
        names = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
                 "cache_creation_input_token_cost")  # fmt: skip
        dollars = [_dollars(facts.get(name)) for name in names]
        if any(dollars[:2]):  # nothing is what it says of a model that it does not know
            told_prices.hear(server, model, dollars, "LiteLLM")
    least = min(filter(None, windows), default=0), min(filter(None, outputs), default=0)
    return ModelInfo(model=model, window=least[0], max_output=least[1])


def info_told(model: str, told: dict[str, Any], server: str) -> ModelInfo:
    """The model's window and abilities from what the server at an address says of it, and its price is noted; what it
    does not say is 0 or off."""
    able = json_object(told.get("capabilities"))

    def can(name: str) -> bool:
        value = able.get(name)
        return bool(value.get("supported")) if isinstance(value, dict) else bool(value)

    def has(ability: str, name: str) -> bool:
        return bool(json_object(json_object(able.get(ability)).get(name)).get("supported"))

    provider = json_object(told.get("top_provider"))
    # Anthropic's name for it, vLLM's and SGLang's, llama.cpp's, OpenRouter's
    sizes = (
        told.get("max_input_tokens"), told.get("max_model_len"), json_object(told.get("meta")).get("n_ctx"),
        provider.get("context_length"), told.get("context_length"),
    )  # fmt: skip
    window = next(filter(None, map(_positive, sizes)), 0)
    output = _positive(told.get("max_tokens")) or _positive(provider.get("max_completion_tokens"))
    if pricing := json_object(told.get("pricing")):
        names = ("prompt", "completion", "input_cache_read", "input_cache_write")
        told_prices.hear(server, model, [_dollars(pricing.get(name)) for name in names], "OpenRouter")
    return ModelInfo(
        model=model,
        window=window,
        max_output=output,
        thinking=can("thinking"),
        effort=can("effort"),
        images=can("image_input") if able else True,
        edits=can("context_management") and has("context_management", CLEARING),
        compaction=has("context_management", COMPACT_EDIT),
        # the Models API tells of searching alone; what can search can fetch
        server_tools=tuple(VERSIONS) if has("server_tools", "web_search") else (),
        source=MODELS_API if able or window else "",
    )


def _positive(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _dollars(value: object) -> float | None:
    """Dollars as a number, or as a number in a string (OpenRouter)."""
    try:
        return float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
