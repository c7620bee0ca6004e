"""From a server's failure to one line for the user: what happened, what to do, whether to try again."""

from __future__ import annotations

import email.utils
import json
import os
import random
import re
import time
from collections.abc import Mapping

import msgspec

from ipyagent.errors import (
    AuthenticationFailed,
    BadRequest,
    Busy,
    ImageRefused,
    ModelError,
    NoSuchPath,
    PromptTooLong,
    QuotaSpent,
    TooLarge,
    UnknownModel,
)
from ipyagent.model.capabilities import WANTS_THINKING

SPENT = ("enforced_spend_limit_reached", "contract_spend_limit_reached", "credit_balance_too_low")
RETRIED = (408, 409, 429)
_TOO_LONG = re.compile(
    r"prompt (?:is )?too long|prompt exceeds max|exceed(?:s|ed) max context"
    r"|context[_ ]length[_ ]exceeded|contextwindowexceeded|maximum context length"
    r"|exceeds? (?:the )?(?:model's )?(?:available |maximum )?context|context size has been exceeded"
    r"|exceed context limit|context window exceeds limit|input is too long|longer than the model's context"
    r"|greater than the context length|context the overflows|input token count[^.]{0,60}exceeds the maximum"
    r"|maximum prompt length is|reduce the length of the (?:messages|input|prompt)|prompt token count of"
    r"|exceeded model token limit|range of input length|`inputs` tokens \+ `max_new_tokens` must"
    r"|too many tokens(?! per)|token limit exceeded|requested token count exceeds"
)
"""How servers say that a prompt does not fit: Anthropic, Bedrock, OpenAI, Gemini, Groq, xAI, OpenRouter, LiteLLM, Kimi,
GLM, MiniMax, Qwen, llama.cpp, LM Studio, vLLM, SGLang, TGI, Ollama's cloud, oMLX (their
sources and issues, 2025 and 2026)."""
_SPENT = re.compile(
    r"credit balance|budget has been exceeded|budget_?exceeded|over budget|insufficient[_ ](?:credits|quota|balance)"
    r"|exceeded (?:your )?current quota|requires more credits|tokens per day|usage limit|余额不足"
)
"""Money that is used up, which a status of "too many requests" says too (OpenAI, OpenRouter, LiteLLM, GLM), or a
share that only a day or a week renews (Bedrock, Ollama's cloud; DeepSeek, Kimi, GLM)."""
_NO_TOOLS = re.compile(
    r"(?:does not|doesn't) support (?:tools?|function)|tool (?:use|calling) is not support|enable-auto-tool-choice"
    r"|does not support parameters: \[[^]]{0,80}'tools?'|endpoints found that support tool|tools param requires"
    r"|failed to parse grammar"
)
"""A model that calls no tools, or a server that was started without them (Ollama, vLLM, LiteLLM, OpenRouter, Bedrock,
llama.cpp), or cannot hold the model to their schemas (LM Studio)."""
_NO_MODEL = re.compile(
    r"(?:^|[^a-z])model:? [\"'`]?[^\"'` ]{1,200}[\"'`]? (?:was |is )?(?:not found|does not exist)|not a valid model"
    r"|invalid model (?:name|id)|unknown model|no such model|model_not_found|model does not exist|model not found"
    r"|model identifier is invalid|no endpoints found for|allowed to access model|no healthy deployments for this model"
    r"|model not exist|模型不存在|not found the model"
    r"|no available channel for model|deployment for this resource does not exist|publisher model .{1,300} not found"
)
"""A model that is not there, or not for this key, with whatever status (Ollama, vLLM, OpenAI, LiteLLM, OpenRouter,
Bedrock, Vertex, Azure, One API, DeepSeek, Kimi, GLM)."""
_WANTS_BACK = re.compile(rf"{WANTS_THINKING.pattern}|missing a `?thought_signature")
"""What `Capabilities` could not answer, and Gemini's signatures of calls, which the Messages API has no place for."""
_NOT_LOADED = re.compile(r"no models? loaded|model (?:is )?not loaded|failed to load model|load a model")
"""Refusals that a new session does not cure (Ollama, vLLM, LM Studio)."""


TYPES = {
    "invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403,
    "not_found_error": 404, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504,
    "overloaded_error": 529,
}  # fmt: skip
"""The API's own names of errors, with the status that each has."""
LASTING = (_TOO_LONG, _SPENT, _NO_MODEL, _NO_TOOLS, _WANTS_BACK)
"""What the same request will meet again, although some servers say it with a status of passing trouble."""


RAISE = "raise it, or wait until it resets"


class ApiErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error response, read: `type` and `code` are the stable names of the API."""

    status: int
    type: str = ""
    code: str = ""
    message: str = ""
    request_id: str = ""
    headers: Mapping[str, str] = {}


def failure(refusal: ApiErrorInfo, *, model: str, base_url: str) -> ModelError:
    """The error to raise for a refused request: one line, what happened and what to do."""
    status, text = refusal.status, _said(refusal)
    lowered, kind = text.lower(), refusal.code or refusal.type or str(status)
    at = f" (request {refusal.request_id})" if refusal.request_id else ""
    token = not os.environ.get("ANTHROPIC_API_KEY") and bool(os.environ.get("ANTHROPIC_AUTH_TOKEN"))
    name = "ANTHROPIC_AUTH_TOKEN" if token else "ANTHROPIC_API_KEY"
    spent = f"the account's limit is reached ({text}): {RAISE}, then run the cell again{at}"
    unknown = f"{base_url} does not know {model!r} ({text}): choose one with %agent model NAME{at}"
    path = "check ANTHROPIC_BASE_URL, it is the server's address without /v1"
    if "/v1" not in base_url:
        path = "check ANTHROPIC_BASE_URL; a server that has only OpenAI's API needs a LiteLLM proxy in front of it"
    rules: tuple[tuple[object, type[ModelError], str], ...] = (  # the first that holds
        (status < 500 and _SPENT.search(lowered), QuotaSpent, spent),  # a gateway may say so with any status
        (_NO_TOOLS.search(lowered), ModelError,
         f"the agent needs a model that can call tools, and the server says: {text}; choose a model that can call them "
         f"with %agent model NAME{at}"),
        (_NO_MODEL.search(lowered), UnknownModel, unknown),
        (status == 401, AuthenticationFailed,
         f"{base_url} refused the key{f' ({text})' if refusal.message else ''}: set {name} to a valid one{at}"),
        (status == 403, AuthenticationFailed,
         f"the key is not allowed to do this ({text}): check the permissions of {name} or choose another model{at}"),
        (status == 402 or refusal.code in SPENT, QuotaSpent, spent),
        (status == 413, TooLarge,
         f"the request is too large for the server ({text}): start a new session with %agent new{at}"),
        (status == 404 and ("model" in lowered or model.lower() in lowered), UnknownModel, unknown),
        (status in (404, 405), NoSuchPath,
         f"there is no Messages API at {base_url} (status {status}: {text}): {path}{at}"),
        (refusal.type == "exceed_context_size_error" or _TOO_LONG.search(lowered), PromptTooLong,
         f"the model's window is full ({text}): start a new session with %agent new, or choose a model with a larger "
         f"window{at}"),
        (_WANTS_BACK.search(lowered), BadRequest,
         f"the model requires its earlier thinking, which was lost on the way ({text}): choose another model with "
         f"%agent model NAME{at}"),
        (status in (400, 422) and re.search(r"image|document|pdf", lowered) and "tool_use" not in lowered, ImageRefused,
         f"the server refused an image or document: {text}{at}; attach a smaller one"),
        (status < 500 and _NOT_LOADED.search(lowered), ModelError,
         f"{text}; load a model in the server, then run the cell again{at}"),
        (status in RETRIED or status >= 500, Busy, f"{_busy(status)} ({text}): run the cell again later{at}"),
        (not refusal.message, BadRequest,
         f"the server refused the request and gave no reason (status {status}): if the conversation is long, make room "
         f"with %compact; otherwise see the server's log{at}"),
        (True, BadRequest,
         f"the server refused the request: {text}{at}; if it happens again, start a new session with %agent new"),
    )  # fmt: skip
    error, told = next((error, told) for holds, error, told in rules if holds)
    return error(told, kind=kind, request_id=refusal.request_id)


def reason_of(refusal: ApiErrorInfo) -> str:
    """Why a request has to wait, in a few words."""
    return f"{_busy(refusal.status)} ({_said(refusal)})"


def _said(refusal: ApiErrorInfo) -> str:
    return " ".join(refusal.message.split())[:600].rstrip(".") or f"status {refusal.status}"


def _busy(status: int) -> str:
    known = {429: "the rate limit is reached", 529: "the server is overloaded"}
    return known.get(status, f"the server fails ({status})")


def words_of(body: object) -> str:
    """The words of an error in whatever shape a server puts them; "" where there are none."""
    match body:
        case str():
            return body
        case {"error": str() | dict() as inner}:
            return words_of(inner)
        case {"metadata": {"raw": str() as raw}} if raw.strip():  # OpenRouter: a provider's own words
            return words_of(_parsed(raw))
        case {"message": str() as words}:
            return words
        case {"detail": inner}:  # FastAPI
            return words_of(inner) or json.dumps(inner, ensure_ascii=False)
        case _:
            return ""


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def told_within(told: object) -> ApiErrorInfo:
    """The refusal in an error that came where a reply should have: with status 200, or in mid-stream (`status` 0 where
    nothing tells whether it will pass)."""
    error, words = told if isinstance(told, dict) else {}, words_of(told) or json.dumps(told, ensure_ascii=False)
    kind, code = error.get("type"), error.get("code")
    kind = kind if isinstance(kind, str) else ""
    status = int(code) if isinstance(code, int | str) and re.fullmatch(r"[45]\d\d", str(code)) else TYPES.get(kind, 0)
    if "unexpected endpoint" in words.lower():  # LM Studio knows no such path, and answers 200
        status = 404
    return ApiErrorInfo(status=status, type=kind, message=words)


def is_lasting(refusal: ApiErrorInfo) -> bool:
    """Whether a refusal says, whatever its status, what the same request would meet again."""
    return any(each.search(_said(refusal).lower()) for each in (*LASTING, _NOT_LOADED))


def is_transient(refusal: ApiErrorInfo) -> bool:
    """Whether the same request may succeed later."""
    told = refusal.headers.get("x-should-retry", "")
    if refusal.code in SPENT:
        return False
    if told in ("true", "false"):
        return told == "true"
    if refusal.status != 529 and any(each.search(_said(refusal).lower()) for each in LASTING):
        return False
    return refusal.status in RETRIED or refusal.status >= 500


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks us to wait; None when it does not say."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if not value:
            continue
        try:
            return max(0.0, float(value) * unit)
        except ValueError:
            date = email.utils.parsedate_tz(value)
            if date is not None:
                return max(0.0, email.utils.mktime_tz(date) - time.time())
    return None


def back_off(attempt: int, asked: float | None, cap: float) -> tuple[float, str]:
    """Seconds to wait before try `attempt` + 1 (attempt counts from 1), and a remark when the
    server's wish was cut. Without a wish: 0.5 s doubling to 8 s, less up to a quarter of jitter."""
    if asked is not None:
        if asked > cap:
            return cap, f"the server asks for {asked:,.0f} s, trying after {cap:g} s"
        return asked, ""
    delay = min(8.0, 0.5 * 2.0 ** (attempt - 1), cap)
    return delay * (1 - 0.25 * random.random()), ""
