"""What a server and a model can do: asked where the server tells, found out on first use where not.

Each thing that an endpoint turns out to lack is remembered for it and left out of later requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ipyagent.journal.protocols import ModelInfo, Request
from ipyagent.model.server_tools import VERSIONS, has_them, refused_in

DEFAULT_WINDOW = 200_000
DEFAULT_OUTPUT = 32_000
ONE_MILLION = 1_000_000
MODELS_API, REFUSED, COUNTED = "Models API", "the server's refusal", "what the server counts"
"""Who tells a window, and with the first what a model can do."""
GUESSED = ("", "default", "table", "environment")
"""Sources of a window that no server has to do with."""
LONG_BETA = "context-1m-2025-08-07"
"""Beta header by which older models serve a window of a million tokens."""

OPTIONAL_FIELDS = ("cache_control", "context_management", "thinking", "output_config", "diagnostics")
"""Parts of a request that a server may lack; each degrades to leaving it out."""
OF_THE_MODEL = ("thinking", "output_config", "context_management")
"""Those that one model of a server may take and another not."""

EDITS_BETA = "context-management-2025-06-27"
DIAGNOSIS_BETA = "cache-diagnosis-2026-04-07"
_ALSO_NAMED = {
    "output_config": ("effort",),
    "context_management": (EDITS_BETA, "clear_tool_uses", "clear_thinking"),
    "diagnostics": (DIAGNOSIS_BETA,),
}
"""Words by which a refusal means a field."""

WHOLE_THINKING = "whole_thinking"
"""What a model lacks that thinks only where its thinking stands beside each earlier tool call."""
WANTS_THINKING = re.compile(
    r"thinking is enabled but reasoning_content is missing|expected `thinking` or `redacted_thinking`"
    r"|(?:thinking|reasoning_content)`? in the thinking mode must be passed back"
)
"""How it is told that such thinking is missing (Kimi, DeepSeek, Claude behind a gateway that loses signatures)."""

_LACKS = re.compile(
    r"extra inputs|unknown|unrecogni[sz]ed|unexpected|unsupported|not (?:be )?(?:permitted|supported|allowed)"
)
_OUTPUT_LIMIT = re.compile(
    r"max_tokens[^0-9>]{0,80}[\d,]{1,12}\s{0,9}>\s{0,9}([\d,]{1,12})(?! -)"
    r"|supports at most ([\d,]{1,12}) (?:completion|output)|maximum tokens value that is lower than ([\d,]{1,12})"
    r"|range of max_tokens (?:is|should be) \[1, ?([\d,]{1,12})\]"
)
"""The largest reply, as Anthropic, OpenAI, Bedrock, DeepSeek and Qwen tell it."""
_WINDOW = re.compile(
    r"(?:maximum (?:context|prompt) length(?: is| of)?|context limit: [\d,]{1,12} \+ [\d,]{1,12} >"
    r"|available context size \(|context length(?: of only| is only)? ?\(?|n_ctx[:=]|model token limit:"
    r"|tokens allowed \()\s{0,4}([\d,]{3,12})"
)
_PROMPT = re.compile(
    r"\(([\d,]{1,12}) (?:in the messages|in your prompt|of text input)|request has ([\d,]{1,12}) input tokens"
    r"|context limit: ([\d,]{1,12}) \+|passed ([\d,]{1,12}) input tokens"
)
"""The window and the size of the prompt in a refusal (vLLM, OpenAI, Anthropic, OpenRouter, llama.cpp, LM Studio)."""
LEAST_WINDOW, LEAST_OUTPUT = 1_024, 256

FALLBACK: tuple[tuple[str, int, int], ...] = (
    (r"claude-(fable|mythos|opus|sonnet|haiku)-5", ONE_MILLION, 128_000),
    (r"claude-(opus|sonnet)-4", DEFAULT_WINDOW, 64_000),
    (r"claude-haiku-4", DEFAULT_WINDOW, 64_000),
)
"""Windows and largest replies when the Models API does not answer (its figures, November 2026)."""


class Capabilities:
    """What endpoints were found to lack, for the life of the process."""

    def __init__(self) -> None:
        self._lacking: dict[tuple[str, str], set[str]] = {}
        self._output: dict[tuple[str, str], int] = {}
        self._window: dict[tuple[str, str], tuple[int, str]] = {}

    def lacking(self, endpoint: str, model: str = "") -> frozenset[str]:
        """Names from OPTIONAL_FIELDS (and "models", "count_tokens") that the endpoint lacks, for
        any model or for this one."""
        found = self._lacking.get((endpoint, ""), set()) | self._lacking.get((endpoint, model), set())
        return frozenset(found)

    def lacks(self, endpoint: str, feature: str, model: str = "") -> None:
        """Remember that the endpoint lacks a feature (for one model only, when given)."""
        self._lacking.setdefault((endpoint, model), set()).add(feature)

    def largest_output(self, endpoint: str, model: str) -> int | None:
        """The largest `max_tokens` that the endpoint said it takes for the model."""
        return self._output.get((endpoint, model))

    def window(self, endpoint: str, model: str) -> tuple[int, str]:
        """The window that the endpoint named in a refusal, or was seen to cut prompts to, and which of both; 0 when
        it was neither."""
        return self._window.get((endpoint, model), (0, ""))

    def cuts(self, endpoint: str, model: str, window: int) -> None:
        """Remember that the endpoint reads no more than so many tokens of a prompt and says nothing of it."""
        if self.window(endpoint, model)[1] != REFUSED:
            self._window[endpoint, model] = window, COUNTED

    def learn(self, endpoint: str, model: str, message: str, sent: Mapping[str, Any]) -> bool:
        """Read a 400's message; whether the request is worth sending again, changed."""
        lowered = message.lower()
        if WANTS_THINKING.search(lowered) and WHOLE_THINKING not in self.lacking(endpoint, model):
            self.lacks(endpoint, WHOLE_THINKING, model)
            return True
        asked, window, prompt = int(sent.get("max_tokens", 0)), _number(_WINDOW, lowered), _number(_PROMPT, lowered)
        if window >= LEAST_WINDOW:
            self._window[endpoint, model] = window, REFUSED
        if window and prompt:  # prompt and reply together are too much
            limit = window - prompt - LEAST_OUTPUT // 4
            if LEAST_OUTPUT <= limit < asked:
                self._output[endpoint, model] = limit
                return True
            return False
        limit = _number(_OUTPUT_LIMIT, lowered)
        if 0 < limit < asked:
            self._output[endpoint, model] = limit
            return True
        if missing := refused_in(lowered, sent.get("tools") or (), self.lacking(endpoint, model)):
            self.lacks(endpoint, missing, model)
            return True
        if "signature" in lowered or ("messages." in lowered.split(":")[0] and "cache_control" not in lowered):
            return False  # about the conversation, not about the server
        if not _LACKS.search(lowered):
            return False
        for feature in OPTIONAL_FIELDS:
            named = any(word in lowered for word in (feature, *_ALSO_NAMED.get(feature, ())))
            if named and feature in sent and feature not in self.lacking(endpoint, model):
                self.lacks(endpoint, feature, model if feature in OF_THE_MODEL else "")
                return True
        return False


def _number(pattern: re.Pattern[str], text: str) -> int:
    """The number that a pattern finds; 0 for none."""
    match = pattern.search(text)
    found = next((group for group in match.groups() if group), "") if match else ""
    return int(found.replace(",", "") or 0)


def without_marks(request: Request) -> Request:
    """The request without any `cache_control`, for servers that refuse it."""

    def bare(block: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in block.items() if key != "cache_control"}

    return msgspec.structs.replace(
        request,
        system=[bare(block) for block in request.system],
        tools=[bare(block) for block in request.tools],
        messages=[
            {**message, "content": [bare(block) for block in message["content"]]} for message in request.messages
        ],
    )


def split_suffix(model: str) -> tuple[str, bool]:
    """The id as the server knows it, and whether the user asked for the long window (`[1m]`)."""
    return (model[:-4], True) if model.lower().endswith("[1m]") else (model, False)


def resolve(
    model: str,
    told: ModelInfo | None,
    *,
    setting: int = 0,
    refused: tuple[int, str] = (0, ""),
    betas: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
) -> ModelInfo:
    """Window and abilities of a model, first that answers: setting, the server's own refusal or counts (`refused`, see
    `Capabilities.window`), `[1m]` suffix, the server's word of it (`told`), the 1M beta header,
    IPYAGENT_DEFAULT_WINDOW, our table of figures, 200,000."""
    name, long = split_suffix(model)
    window, output, source = 0, 0, ""
    if setting:
        window, source = setting, "setting"
    elif refused[0]:
        window, source = refused
    elif long:
        window, source = ONE_MILLION, "[1m] suffix"
    elif told is not None and told.window:
        window, source = told.window, told.source
    elif LONG_BETA in betas:
        window, source = ONE_MILLION, "beta header"
    elif (given := (environ or {}).get("IPYAGENT_DEFAULT_WINDOW", "")).isdecimal() and int(given):
        window, source = int(given), "environment"
    output = told.max_output if told is not None else 0
    for pattern, table_window, table_output in FALLBACK:
        if re.match(pattern, name):
            window, source = (window, source) if window else (table_window, "table")
            output = output or table_output
    if refused[0] and not setting:
        output = min(output or DEFAULT_OUTPUT, max(LEAST_OUTPUT, window // 4))
    known = told is not None and told.source == MODELS_API
    return ModelInfo(
        model=name,
        window=window or DEFAULT_WINDOW,
        max_output=output or DEFAULT_OUTPUT,
        thinking=told.thinking if told is not None and known else bool(re.match(r"claude-\w+-(5|4-[678])", name)),
        effort=told.effort if told is not None and known else False,
        images=told.images if told is not None else True,
        edits=told is not None and told.edits,
        compaction=told is not None and told.compaction,
        server_tools=told.server_tools if told is not None and known else tuple(VERSIONS) if has_them(name) else (),
        source=source or "default",
    )
