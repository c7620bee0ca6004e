"""The models and betas the server knows, and how a request is refused.

Windows, output limits and lines as the Models API listed them in November 2026; the smallest cacheable prefix
as the prompt caching guide lists it, and that of the nearest older model of the line where it lists none. The names of
betas are those of SDK 2.14; others are refused, as the API refuses a misspelt one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

KINDS: Mapping[int, str] = {
    **dict.fromkeys((400, 405, 422), "invalid_request_error"), **dict.fromkeys((408, 504), "timeout_error"),
    401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
    409: "conflict_error", 413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
}  # fmt: skip


@dataclass(eq=False)  # not frozen: the interpreter writes `__traceback__` into exceptions
class Refused(Exception):
    """Why a request was refused; `details` goes into the error's `details` beside `error_code`."""

    message: str
    status: int = 400
    kind: str = ""
    code: str | None = None
    details: Mapping[str, Any] | None = None

    def body(self, request_id: str) -> dict[str, Any]:
        """The error body of the API."""
        error: dict[str, Any] = {"type": self.kind or KINDS.get(self.status, "api_error"), "message": self.message}
        if self.code or self.details:
            error["details"] = {**({"error_code": self.code} if self.code else {}), **(self.details or {})}
        return {"type": "error", "error": error, "request_id": request_id}


def need(fits: object, words: str, *, status: int = 400, code: str | None = None) -> None:
    """Refuse a request with these words unless it fits."""
    if not fits:
        raise Refused(words, status, code=code)


def no_more(given: Mapping[str, Any], known: Iterable[str], path: str) -> None:
    """Refuse fields that the API does not know at this place."""
    if extra := sorted(set(given).difference(known)):
        raise Refused(f"{path}.{extra[0]}: Extra inputs are not permitted")


BLOCK_BINDING: Final = "thinking-binding-controls-2026-08-01"

BETA_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "context_management": ("context-management-2025-06-27", "compact-2026-01-12"),
    "compaction": ("compact-2026-09-04",),
    "thread": ("message-threads-2026-08-12",),
    "mcp_servers": ("mcp-client-2026-09-15", "mcp-client-2025-11-20", "mcp-client-2025-04-04"),
    "fallbacks": ("server-side-fallback-2026-07-01", "server-side-fallback-2026-06-01"),
    "fallback_credit_token": ("fallback-credit-2026-07-01", "fallback-credit-2026-06-01"),
}

BETAS: Final = frozenset(
    {
        BLOCK_BINDING,
        *(beta for names in BETA_FIELDS.values() for beta in names),
        "advisor-tool-2026-03-01",
        "cache-diagnosis-2026-04-07",
        "context-1m-2025-08-07",
        "extended-cache-ttl-2025-04-11",
        "files-api-2025-04-14",
        "inline-tools-2026-09-15",
        "interleaved-thinking-2025-05-14",
        "mid-conversation-output-config-2026-07-01",
        "mid-conversation-system-clear-at-2026-08-21",
        "mid-conversation-tool-changes-2026-07-01",
        "model-context-window-exceeded-2025-08-26",
        "output-128k-2025-02-19",
        "pdfs-2024-09-25",
        "prompt-caching-2024-07-31",
        "structured-outputs-2025-11-13",
        "task-budgets-2026-03-13",
        "thinking-display-updates-2026-08-18",
        "thinking-token-count-2026-05-13",
        "token-counting-2024-11-01",
        "token-efficient-tools-2025-02-19",
    }
)


EFFORTS = ("low", "medium", "high", "xhigh", "max")
PRACTICE = "practice"
SEARCH: Final = ("web_search_20250305", "web_search_20260209", "web_search_20260318")
FETCH: Final = ("web_fetch_20250910", "web_fetch_20260209", "web_fetch_20260309", "web_fetch_20260318")
BASIC: Final = (SEARCH[0], FETCH[0])


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a model can do; token limits are in tokens of `ipyagent.practice.server.tokens`.

    `bound`: its thinking blocks are bound to what was before them, and tools cannot be forced. `prefill`: a final
    assistant message is accepted. `thinking`: accepted values of `thinking.type`. `system_messages`: the
    conversation may hold messages of role `system`. `manages`: edits and summarises prompts on the server. `web`: the
    versions of web search and web fetch that it takes.
    """

    id: str
    line: str | None
    window: int
    max_output: int
    min_cache: int
    bound: bool
    thinking: frozenset[str]
    efforts: tuple[str, ...] = EFFORTS
    prefill: bool = False
    system_messages: bool = True
    lifecycle: str = "active"
    retires_at: str | None = None
    manages: bool = False
    web: tuple[str, ...] = (*SEARCH, *FETCH)

    @property
    def max_images(self) -> int:
        """Most images in one request."""
        return 100 if self.window <= 200_000 else 600

    def info(self, without: frozenset[str]) -> dict[str, Any]:
        """The model as the Models API answers it; `without` are abilities of this server that are switched off."""
        thinks = "thinking" not in without
        edits = self.manages and "context_management" not in without
        compacts = self.manages and "compaction" not in without
        web = bool(self.web) and "server_tools" not in without

        def can(yes: bool) -> dict[str, bool]:
            return {"supported": yes}

        types = ("adaptive", "between_tools", "disabled", "enabled")
        return {
            "type": "model",
            "id": self.id,
            "display_name": self.id.replace("-", " ").title(),
            "created_at": "2026-01-01T00:00:00Z",
            "deprecated_at": None if self.lifecycle == "active" else "2026-05-01T00:00:00Z",
            "retires_at": self.retires_at,
            "lifecycle": self.lifecycle,
            "line": self.line,
            "max_input_tokens": self.window,
            "max_tokens": self.max_output,
            "capabilities": {
                "batch": can(False),
                "citations": can(False),
                "code_execution": can(False),
                "image_input": can("images" not in without),
                "pdf_input": can(True),
                "structured_outputs": can("output_config" not in without),
                "server_tools": {"supported": web, "code_execution": can(False), "web_search": can(web)},
                "context_management": {
                    "supported": edits,
                    "clear_tool_uses_20250919": can(edits),
                    "clear_thinking_20251015": can(edits and thinks),
                    "compact_20260112": can(edits and compacts),
                },
                "compaction": {"supported": compacts, "summarize": can(compacts)},
                "effort": {
                    "supported": "output_config" not in without,
                    **{level: can("output_config" not in without and level in self.efforts) for level in EFFORTS},
                },
                "thinking": {
                    "supported": thinks,
                    "types": {kind: can(kind in self.thinking if thinks else kind == "disabled") for kind in types},
                },
            },
        }


_ALWAYS = frozenset({"adaptive"})
_FREE = frozenset({"adaptive", "disabled", "between_tools"})
_OLD = frozenset({"adaptive", "enabled", "disabled"})
_OLDER = frozenset({"enabled", "disabled"})
_LEVELS_4 = ("low", "medium", "high", "max")
_M, _OUT = 1_000_000, 128_000

KNOWN: tuple[ModelCard, ...] = (
    ModelCard("claude-fable-5-2", "fable", _M, _OUT, 512, True, _ALWAYS),
    ModelCard("claude-fable-5-1", "fable", _M, _OUT, 512, True, _ALWAYS),
    ModelCard("claude-mythos-5-2", "mythos", _M, _OUT, 512, True, _ALWAYS),
    ModelCard("claude-opus-5-5", "opus", _M, _OUT, 512, True, _ALWAYS, manages=True),
    ModelCard("claude-sonnet-5-5", "sonnet", _M, _OUT, 1_024, True, _FREE, manages=True),
    ModelCard("claude-haiku-5-5", "haiku", _M, _OUT, 1_024, True, _FREE, manages=True),
    ModelCard("claude-fable-5", "fable", _M, _OUT, 512, False, _ALWAYS),
    ModelCard("claude-opus-5", "opus", _M, _OUT, 512, False, _ALWAYS),
    ModelCard("claude-sonnet-5", "sonnet", _M, _OUT, 1_024, False, _FREE, system_messages=False),
    ModelCard("claude-opus-4-8", "opus", _M, _OUT, 1_024, False, _OLD),
    ModelCard("claude-opus-4-7", "opus", _M, _OUT, 2_048, False, _OLD, system_messages=False),
    ModelCard("claude-opus-4-6", "opus", 200_000, _OUT, 4_096, False, _OLD, _LEVELS_4, system_messages=False),
    ModelCard("claude-sonnet-4-6", "sonnet", 200_000, 64_000, 1_024, False, _OLD, _LEVELS_4, system_messages=False),
    ModelCard("claude-haiku-4-5", "haiku", 200_000, 64_000, 4_096, False, _OLDER, (), True, False, web=BASIC),
    ModelCard("claude-sonnet-4-5", "sonnet", 200_000, 64_000, 1_024, False, _OLDER, (), True, False, "deprecated",
              "2026-11-30T00:00:00Z", web=BASIC),
    ModelCard("claude-3-7-sonnet-20250219", "sonnet", 200_000, 64_000, 1_024, False, _OLDER, (), True, False, "retired",
              "2026-02-19T00:00:00Z", web=()),
)  # fmt: skip


def catalogue(window: int, max_output: int, min_cache: int | None) -> dict[str, ModelCard]:
    """Every model by id, the practice model first with the limits given; `min_cache` None: 512."""
    least = 512 if min_cache is None else min_cache
    practice = ModelCard(PRACTICE, None, window, max_output, least, True, _FREE, manages=True)
    return {card.id: card for card in (practice, *KNOWN)}


def page(cards: Iterable[ModelCard], query: dict[str, list[str]], without: frozenset[str]) -> dict[str, Any]:
    """One page of the model list; `limit`, `after_id`, `before_id` and `lifecycle` as in the Models API."""
    wanted = set(query.get("lifecycle") or query.get("lifecycle[]") or ["active", "deprecated"])
    listed = [card for card in cards if card.lifecycle in wanted]
    ids = [card.id for card in listed]
    if (after := query.get("after_id", [""])[0]) in ids:
        listed = listed[ids.index(after) + 1 :]
    elif (before := query.get("before_id", [""])[0]) in ids:
        listed = listed[: ids.index(before)]
    limit = int(query.get("limit", ["20"])[0])
    shown = [card.info(without) for card in listed[:limit]]
    return {
        "data": shown,
        "has_more": len(listed) > limit,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
    }
