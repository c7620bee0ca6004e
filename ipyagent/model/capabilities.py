"""What a server and a model can do: asked where the server tells, found out on first use where not.

Each thing that an endpoint turns out to lack is remembered for it and left out of later requests."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

import msgspec

from ipyagent.journal.events import Block
from ipyagent.journal.protocols import ModelInfo, Request

# ---- Web search and web fetch as a request declares them: the newest version that the server takes. They are
# declared in the newest version that the SDK knows (anthropic 2.14, `types.web_*_tool_*_param`), which goes into
# the session's head once; a server or a model that refuses it gets the one before, and at last none. Calls come
# from the model alone (`allowed_callers`): the newer versions would otherwise have it write code that searches, in
# a container at the provider, which keeps what it reads and needs a tool of its own.

VERSIONS: dict[str, tuple[str, ...]] = {
    "web_search": ("web_search_20260318", "web_search_20260209", "web_search_20250305"),
    "web_fetch": ("web_fetch_20260318", "web_fetch_20260309", "web_fetch_20260209", "web_fetch_20250910"),
}
"""Each tool's versions, newest first."""
BASIC = ("web_search_20250305", "web_fetch_20250910")
"""Versions that know of no callers but the model."""
MOST_USES = 5
"""Searches, and fetches, within one request unless the setting says otherwise."""
MOST_TOKENS = 20_000
"""Tokens of one fetched page unless the setting says otherwise."""

_REFUSES = re.compile(
    r"does not match|expected tags|not (?:be )?(?:supported|permitted|allowed|enabled|available)"
    r"|unsupported|unknown|unrecogni[sz]ed|unexpected|does(?: not|n't) support|disabled|invalid value|literal_error"
)


def declared(settings: Iterable[Mapping[str, Any]]) -> list[Block]:
    """The tools of the setting `server_tools` as a request declares them."""
    made: list[Block] = []
    for given in settings:
        name = str(given["name"])
        options = {key: value for key, value in given.items() if key != "name"}
        if "citations" in options:
            options["citations"] = {"enabled": options["citations"]}
        limits = {"max_uses": MOST_USES} | ({"max_content_tokens": MOST_TOKENS} if name == "web_fetch" else {})
        known: Block = {"type": VERSIONS[name][0], "name": name, "allowed_callers": ["direct"]}
        made.append(known | dict(sorted((limits | options).items())))
    return made


def standing(settings: Iterable[Mapping[str, Any]], info: ModelInfo, own: Container[str]) -> dict[str, str]:
    """Each tool that a provider may run, and why this model is not offered it now; "" where it is. `own`: names of
    other tools, which come first."""
    wanted = {str(given["name"]) for given in settings}
    found: dict[str, str] = {}
    for name in VERSIONS:
        if name not in wanted:
            found[name] = "off"
        elif name in own:
            found[name] = "a tool of yours has this name, so the provider's is not offered"
        else:
            found[name] = "" if name in info.server_tools else f"{info.model} is not known to have it"
    return found


def is_declared(tool: Block) -> bool:
    """Whether a tool of a request is one that the provider runs."""
    return tool.get("type") in VERSIONS.get(str(tool.get("name")), ())


def version_of(name: str, lacking: Container[str]) -> str:
    """The newest version that is not refused; "" when all are."""
    if name in lacking:
        return ""
    return next((version for version in VERSIONS[name] if version not in lacking), "")


def offered(tools: list[Block], info: ModelInfo, lacking: Container[str]) -> list[Block]:
    """A request's tools, those that the provider runs in a version that it takes."""
    made: list[Block] = []
    for tool in tools:
        if not is_declared(tool):
            made.append(tool)
        elif tool["name"] in info.server_tools and (version := version_of(tool["name"], lacking)):
            kept = {key: value for key, value in tool.items() if key != "allowed_callers" or version not in BASIC}
            made.append({**kept, "type": version})
    return made


def refused_in(message: str, tools: Iterable[Mapping[str, Any]], lacking: Container[str]) -> str:
    """The version, or the tool, that a refusal (in lower case) is about; "" when it is about none of `tools`."""
    if not _REFUSES.search(message):
        return ""
    for tool in tools:
        kind, name = str(tool.get("type") or ""), str(tool.get("name"))
        if kind not in VERSIONS.get(name, ()) or kind in lacking:
            continue
        if kind in message:
            return kind
        if re.search(rf"\b{name.replace('_', '[ _-]')}\b", message):
            return name
    return ""


DEFAULT_WINDOW = 200_000
DEFAULT_OUTPUT = 32_000
ONE_MILLION = 1_000_000
MODELS_API, REFUSED, COUNTED = "Models API", "the server's refusal", "what the server counts"
"""Who tells a window, and with the first what a model can do."""
GUESSED = ("", "default", "table", "environment", "session")
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
    searches = re.match(r"claude-\w+-(5|4-[5-8])", name)  # of a server that says nothing of its models
    return ModelInfo(
        model=name,
        window=window or DEFAULT_WINDOW,
        max_output=output or DEFAULT_OUTPUT,
        thinking=told.thinking if told is not None and known else bool(re.match(r"claude-\w+-(5|4-[678])", name)),
        effort=told.effort if told is not None and known else False,
        images=told.images if told is not None else True,
        edits=told is not None and told.edits,
        compaction=told is not None and told.compaction,
        server_tools=told.server_tools if told is not None and known else tuple(VERSIONS) if searches else (),
        source=source or "default",
    )


# ---- Compaction by the server on the wire: which betas a request needs, and its blocks for servers without it. Two
# forms: the parameter `compaction` gives one signed block, which later stands first in the messages; the edit
# `compact_20260112` puts an unsigned block at the head of a reply.

COMPACT_EDIT = "compact_20260112"
THRESHOLD_BETA = "compact-2026-01-12"
ON_DEMAND_BETA = "compact-2026-09-04"


def compaction_betas(body: dict[str, Any]) -> list[str]:
    """The betas of the compaction that a body asks for or carries."""
    more = body.get("extra_body") or {}
    edits = (more.get("context_management") or {}).get("edits", ())
    betas = [ON_DEMAND_BETA] if "compaction" in more else []
    betas += [THRESHOLD_BETA for edit in edits if edit["type"] == COMPACT_EDIT]
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "compaction":
                betas.append(ON_DEMAND_BETA if block.get("signature") else THRESHOLD_BETA)
    return list(dict.fromkeys(betas))


def summaries_as_text(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with compaction blocks as text; the same list when there is none."""
    if not any(block["type"] == "compaction" for message in messages for block in message["content"]):
        return messages
    made = [{**message, "content": [_text(block) for block in message["content"]]} for message in messages]
    return [{**message, "content": [b for b in message["content"] if b]} for message in made if any(message["content"])]


def _text(block: Block) -> Block:
    if block["type"] != "compaction":
        return block
    content = block.get("content")
    if not isinstance(content, str) or not content.strip():
        return {}
    made: Block = {"type": "text", "text": f"<summary>\n{content}\n</summary>"}
    return {**made, "cache_control": block["cache_control"]} if "cache_control" in block else made
