"""Servers of other products that answer `/v1/messages`, each as its sources, documentation and issues say it does.

A product is what differs: the events of its stream, its wordings of an error, what it tells of its model, what it
counts. Prompts are counted by the practice server's tokenizer, and every request is held against the practice server's
rules as well (`Server.faults`): what a lenient product takes today, a strict one must take tomorrow.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ipyagent.practice.replies import Block, Reply, text
from ipyagent.practice.server import echo
from ipyagent.practice.server.models import Refused, catalogue
from ipyagent.practice.server.prompt import Reader
from ipyagent.practice.server.rules import check_conversation
from tests.model.model_room import odd_server, page

Event = tuple[str, dict[str, Any]]
"""The name of an event and its data."""
Answer = tuple[int, Any]
"""A status, and a body: JSON, text, or None for none at all."""
OF_VLLM = (
    "This model's maximum context length is {window} tokens. However, you requested {whole} tokens ({tokens} in the "
    "messages, {asked} in the completion). Please reduce the length of the messages or completion."
)
CARD = catalogue(1_000_000, 1_000_000, None)["practice"]
MAIN = "main-model"
SUMMARY = text("<analysis>Boxes were weighed.</analysis>\n<summary>1. Request and intent: weigh boxes.</summary>")


def asks_for_summary(body: Mapping[str, Any]) -> bool:
    """Whether a request is a compaction's."""
    last = body["messages"][-1]["content"][-1]
    return "is about to be taken out of your context" in str(last.get("text"))


def lacks_thinking(messages: list[dict[str, Any]]) -> bool:
    """Whether a tool call of the conversation stands there without thinking."""
    kinds = [[block["type"] for block in each["content"]] for each in messages if each["role"] == "assistant"]
    return any("tool_use" in each and "thinking" not in each for each in kinds)


class Product:
    """What a product answers; the base is the API's own way."""

    name = ""
    model = MAIN
    root = ""
    """Path before /v1."""
    thinks = True
    signature: str | None = None
    """Of thinking; None: no such event."""
    refuses = True
    """Whether it refuses a prompt that does not fit; else it cuts it."""
    checks_output = False
    """Whether it refuses a `max_tokens` that is too large."""
    tells_window = True
    """Whether it says how large its window is, anywhere."""
    tells_price = False
    auth: ClassVar[Answer] = (401, {"error": "Unauthorized"})
    spent: ClassVar[Answer | None] = None
    no_model: ClassVar[Answer] = (404, {})
    other_model: ClassVar[Answer | None] = None
    """To a model that is not there while another is; None: as `no_model`."""
    any_name = False
    """Whether its only model answers to any name."""
    wants_thinking = ""
    """How it refuses a tool call that comes back without thinking, while the model thinks."""
    always_thinks = False
    """Whether it thinks although `thinking` is disabled, too."""
    no_tools: ClassVar[Answer | None] = None
    long_words = much_words = ""
    """How it refuses a prompt that does not fit (`tokens`, with the reply asked for `whole`, of `window`), and a
    `max_tokens` that is too large (`asked`, of `most`)."""
    error_kind = "invalid_request_error"
    cache_counts: ClassVar[dict[str, Any]] = {}
    """What its usage says of a cache that it does not have."""

    def error(self, status: int, message: str, kind: str = "") -> Answer:
        return status, {"type": "error", "error": {"type": kind or self.error_kind, "message": message}}

    def too_long(self, tokens: int, asked: int, window: int) -> Answer:
        sizes = {"tokens": tokens, "asked": asked, "window": window, "over": tokens - window, "whole": tokens + asked}
        return self.error(400, self.long_words.format(**sizes))

    def too_much(self, tokens: int, asked: int, window: int, most: int) -> Answer:
        return self.error(400, self.much_words.format(tokens=tokens, asked=asked, window=window, most=most))

    def most(self, server: Server, tokens: int) -> int:
        """The largest `max_tokens` that it takes with a prompt of so many tokens."""
        return server.most

    def lost(self, path: str) -> Answer:
        """The answer at a path that it does not have."""
        return 404, {"detail": "Not Found"}

    def tell(self, path: str, server: Server, body: dict[str, Any]) -> Answer | None:
        """What it says of its models; None: it has no such path."""
        return None

    def usage(self, tokens: int, output: int) -> dict[str, Any]:
        return {"input_tokens": tokens, "output_tokens": output, **self.cache_counts}

    def half(self, server: Server) -> list[Event]:
        """A reply that has only begun."""
        return [*self.begin(server, 100), start(0, {"type": "text", "text": ""}), delta(0, "text", "Half of")]

    def thought(self, block: Block) -> Block:
        return {"type": "thinking", "thinking": ""}

    def call(self, block: Block) -> Block:
        return {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}

    def begin(self, server: Server, tokens: int) -> list[Event]:
        message = {
            "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": server.model,
            "stop_reason": None, "stop_sequence": None, "usage": self.usage(tokens, 0),
        }  # fmt: skip
        return [("message_start", {"type": "message_start", "message": message})]

    def block(self, index: int, block: Block) -> list[Event]:
        """A block's own events, without its end."""
        match block["type"]:
            case "thinking":
                made = [start(index, self.thought(block)), delta(index, "thinking", block["thinking"])]
                if self.signature is not None:
                    made.append(delta(index, "signature", self.signature))
                return made
            case "tool_use":
                raw = json.dumps(block["input"])
                pieces = [raw[at : at + 16] for at in range(0, len(raw), 16)]
                return [start(index, self.call(block)), *(delta(index, "json", piece) for piece in pieces)]
            case _:
                said = [delta(index, "text", word + " ") for word in block["text"].split(" ")]
                return [start(index, {"type": "text", "text": ""}), *said]

    def blocks(self, content: list[Block]) -> list[Event]:
        return [e for i, block in enumerate(content) for e in [*self.block(i, block), stop(i)]]

    def end(self, reason: str, usage: dict[str, Any]) -> list[Event]:
        changed = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
        return [("message_delta", changed), ("message_stop", {"type": "message_stop"})]

    def frame(self, name: str, data: dict[str, Any]) -> bytes:
        return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()

    def stream(self, server: Server, reply: Reply, tokens: int) -> bytes:
        """The whole stream of a reply."""
        content = [dict(block, id=block.get("id") or f"call_{server.number()}") for block in reply.content]
        output = sum(len(json.dumps(block)) for block in content) // 4 + 1
        events = [*self.begin(server, tokens), *self.blocks(content)]
        events += self.end(reply.stop_reason, self.usage(tokens, output))
        return b"".join(self.frame(*event) for event in events)

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        """Streams that the product has sent: what is odd in each, its bytes, the words of its error ("" for none)."""
        return []

    def joined(self, *events: Event) -> bytes:
        return b"".join(self.frame(*event) for event in events)


def start(index: int, block: Block) -> Event:
    return "content_block_start", {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, piece: str) -> Event:
    name, key = {
        "text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking"),
        "signature": ("signature_delta", "signature"), "json": ("input_json_delta", "partial_json"),
    }[kind]  # fmt: skip
    return "content_block_delta", {"type": "content_block_delta", "index": index, "delta": {"type": name, key: piece}}


def stop(index: int) -> Event:
    return "content_block_stop", {"type": "content_block_stop", "index": index}


class Ollama(Product):
    """Ollama 0.33 (anthropic/anthropic.go, middleware/anthropic.go, docs: no caching, no counting, no tool_choice).

    A prompt longer than `num_ctx` is cut without a word, and what is left is counted; its cloud refuses instead
    (issues of May 2026). An error after the first byte ends the stream, which then says nothing.
    """

    name = "Ollama 0.33"
    refuses = False
    auth = (401, {"type": "error", "error": {"type": "authentication_error", "message": "unauthorized"}})
    spent = (429, {"type": "error", "error": {"type": "rate_limit_error", "message":
             "you (me) have reached your weekly usage limit, upgrade for higher limits: https://ollama.com/upgrade"
             }})  # fmt: skip
    no_model = (404, {"type": "error", "error": {"type": "not_found_error", "message": "model 'main-model' not found"}})
    no_tools = (400, {"type": "error", "error": {"type": "invalid_request_error", "message":
                "registry.ollama.ai/library/main-model:latest does not support tools"}})  # fmt: skip
    long_words = "prompt too long; exceeded max context length by {over} tokens (ref: 00ad71bb)"

    def lost(self, path: str) -> Answer:
        return 404, "404 page not found"

    def tell(self, path: str, server: Server, body: dict[str, Any]) -> Answer | None:
        one = {"id": server.model, "object": "model", "created": 1, "owned_by": "library"}
        if path == "/v1/models":
            return 200, {"object": "list", "data": [one]}
        if path == f"/v1/models/{server.model}":
            return 200, one
        if path == "/api/show" and server.tells:
            known = {"general.architecture": "qwen3", "qwen3.context_length": 262_144}
            set_to = f'num_ctx                        {server.window}\nstop                           "<|im_end|>"'
            return 200, {"parameters": set_to, "model_info": known, "capabilities": ["completion", "tools", "thinking"]}
        if path == "/api/ps" and server.tells:
            return 200, {"models": [{"name": server.model, "model": server.model, "context_length": server.window}]}
        return None

    def begin(self, server: Server, tokens: int) -> list[Event]:
        # Go leaves out what is empty; the first count is an estimate, four characters a token
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": server.model, "content": []}
        whole = len(json.dumps(server.bodies[-1])) // 4
        return [("message_start", {"type": "message_start", "message": {**message, "usage": self.usage(whole, 0)}})]

    def block(self, index: int, block: Block) -> list[Event]:
        if block["type"] == "tool_use":  # its arguments come in one piece
            return [start(index, self.call(block)), delta(index, "json", json.dumps(block["input"]))]
        return super().block(index, block)

    def end(self, reason: str, usage: dict[str, Any]) -> list[Event]:
        changed = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
        return [("message_delta", changed), ("message_stop", {"type": "message_stop"})]

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        call = start(1, {"type": "tool_use", "name": "python", "input": {}})
        return [
            ("a call without an id, straight after thinking", self.joined(
                *self.begin(server, 100), *self.block(0, {"type": "thinking", "thinking": "Hm."}), stop(0),
                call, delta(1, "json", '{"code": "odd = 1"}'), stop(1), *self.end("tool_use", self.usage(100, 9))), ""),
            ("the stream ends after its first event (the runner failed)",
                self.joined(*self.begin(server, 100)), "ended"),
            ("stop_reason stop_sequence and nothing said (the model was unloaded)", self.joined(
                *self.begin(server, 0), *self.end("stop_sequence", self.usage(0, 0))), "empty"),
        ]  # fmt: skip


class LMStudio(Product):
    """LM Studio 0.4 (its issue tracker, 2025 and 2026): an error is a string, often within a stream, and any path that
    it does not have answers 200 with an error."""

    name = "LM Studio 0.4"
    signature = ""
    auth = (401, {"error": {"message": "An LM Studio API token is required to make requests to this server, but none "
            "was provided.", "type": "invalid_request_error", "code": "invalid_api_key"}})  # fmt: skip
    no_model = (400, {"error": "No models loaded. Please load a model in the developer page or use the 'lms load' "
                "command."})  # fmt: skip
    no_tools = (500, {"type": "error", "error": {"type": "api_error", "message": "Engine protocol predict request "
                "returned 400: Failed to initialize samplers: failed to parse grammar"}})  # fmt: skip
    other_model = (404, {"error": {"message": 'Invalid model identifier "main-model". Please specify a valid '
                   "downloaded model.", "type": "invalid_request_error", "param": "model",
                   "code": "model_not_found"}})  # fmt: skip

    def error(self, status: int, message: str, kind: str = "") -> Answer:
        return status, {"error": message}

    def too_long(self, tokens: int, asked: int, window: int) -> Answer:
        told = (
            "The number of tokens to keep from the initial prompt is greater than the context length "
            f"(n_keep: {tokens}>= n_ctx: {window}). Try to load the model with a larger context length, or provide a "
            "shorter input."
        )
        return 200, self.frame("error", {"type": "error", "error": {"type": "server_error", "message": told}})

    def lost(self, path: str) -> Answer:
        return 200, {"error": f"Unexpected endpoint or method. (GET {path})"}

    def tell(self, path: str, server: Server, body: dict[str, Any]) -> Answer | None:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": server.model, "object": "model", "owned_by": "me"}]}
        if path == "/api/v0/models" and server.tells:
            known = {"id": server.model, "object": "model", "type": "llm", "state": "loaded"}
            sizes = {"max_context_length": 262_144, "loaded_context_length": server.window}
            return 200, {"object": "list", "data": [{**known, **sizes}]}
        return None

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        said = self.half(server)
        return [
            ("an error that is a string, in mid-stream", self.joined(
                *said, ("error", {"error": "The model has crashed without additional information."})), "has crashed"),
            ("an error that is a string and nothing else", self.joined(
                ("error", {"error": 'Error rendering prompt with jinja template: "Unknown test: x".'})), "jinja"),
        ]  # fmt: skip


class LlamaCpp(Product):
    """llama.cpp's server, 2026 (tools/server: server-task.cpp, server-context.cpp, server-common.cpp): every block ends
    after the last one, a call begins without input, an error in a stream has no "error" of its own, and a window that
    is full in a reply is `max_tokens`."""

    name = "llama.cpp 2026"
    any_name = True
    signature = ""
    auth = (401, {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}})
    no_model = (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
    no_tools = (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}})

    def error(self, status: int, message: str, kind: str = "invalid_request_error") -> Answer:
        return status, {"error": {"code": status, "message": message, "type": kind}}

    def too_long(self, tokens: int, asked: int, window: int) -> Answer:
        told = f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
        size = {"n_prompt_tokens": tokens, "n_ctx": window}
        return 400, {"error": {"code": 400, "message": told, "type": "exceed_context_size_error", **size}}

    def lost(self, path: str) -> Answer:
        return self.error(404, "File Not Found", "not_found_error")

    def tell(self, path: str, server: Server, body: dict[str, Any]) -> Answer | None:
        if path == "/v1/models":
            sizes = {"n_ctx": server.window, "n_ctx_train": 262_144} if server.tells else {}
            one = {"id": server.model, "aliases": [], "object": "model", "owned_by": "llamacpp", "meta": sizes or None}
            return 200, {"models": [], "object": "list", "data": [one]}
        if path == "/props" and server.tells:
            return 200, {"default_generation_settings": {"params": {}, "n_ctx": server.window}, "total_slots": 1}
        if path == "/v1/messages/count_tokens":
            return 200, {"input_tokens": server.count(body)}
        return None

    def usage(self, tokens: int, output: int) -> dict[str, Any]:
        cached = tokens // 2
        return {"cache_read_input_tokens": cached, "input_tokens": tokens - cached, "output_tokens": output}

    def call(self, block: Block) -> Block:
        return {"type": "tool_use", "id": block["id"], "name": block["name"]}

    def blocks(self, content: list[Block]) -> list[Event]:
        begun = [event for i, block in enumerate(content) for event in self.block(i, block)]
        return [*begun, *(stop(i) for i in range(len(content)))]

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        said = self.half(server)
        failed = ("error", {"code": 500, "message": "context shift is disabled", "type": "server_error"})
        return [
            ("an error event without an error, in mid-stream", self.joined(*said, failed), "context shift is disabled"),
            ("the same before anything was said", self.joined(failed), "context shift is disabled"),
            ("comments between events", b":\n\n" + self.joined(*said[:2]) + b":\n\n" + self.joined(
                *said[2:], stop(0), *self.end("end_turn", self.usage(100, 4))), ""),
            ("the window is full in mid-reply", self.joined(
                *said, stop(0), *self.end("max_tokens", self.usage(server.window - 4, 3))), ""),
        ]  # fmt: skip


class VLLM(Product):
    """vLLM 2026 (vllm/entrypoints/anthropic): thinking signed with random digits, cache counts null, `[DONE]` at the
    end, kinds of blocks that it does not know are a 422 of FastAPI."""

    name = "vLLM 2026"
    signature = "9f8a7b6c5d4e3f2a"
    checks_output = True
    auth = (401, {"error": "Unauthorized"})
    no_model = (404, {"type": "error", "error": {"type": "NotFoundError", "message":
                "The model `main-model` does not exist."}})  # fmt: skip
    no_tools = (400, {"type": "error", "error": {"type": "BadRequestError", "message":
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'}})  # fmt: skip
    long_words = OF_VLLM
    much_words = (
        "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
        "{window} tokens and your request has {tokens} input tokens ({asked} > {window} - {tokens})."
    )
    error_kind = "BadRequestError"
    cache_counts: ClassVar[dict[str, Any]] = {"cache_creation_input_tokens": None, "cache_read_input_tokens": None}

    def most(self, server: Server, tokens: int) -> int:
        return server.window - tokens

    def tell(self, path: str, server: Server, body: dict[str, Any]) -> Answer | None:
        if path == "/v1/models":
            size = {"max_model_len": server.window} if server.tells else {}
            one = {"id": server.model, "object": "model", "owned_by": "vllm", **size}
            return 200, {"object": "list", "data": [one]}
        if path == "/v1/messages/count_tokens":
            tokens = server.count(body)
            return 200, {"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}}
        return None

    def stream(self, server: Server, reply: Reply, tokens: int) -> bytes:
        return super().stream(server, reply, tokens) + b"data: [DONE]\n\n"

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        begun, said = self.begin(server, 100), self.half(server)
        failed = {"type": "error", "error": {"type": "internal_error", "message": "EngineCore encountered an issue."}}
        lost = [start(0, {"type": "tool_use", "id": "call_odd", "name": "python", "input": {}}), stop(0)]
        return [
            ("an error event in mid-stream", self.joined(*said, ("error", failed)), "EngineCore"),
            ("stop_reason null", self.joined(*said, stop(0), *self.end("", self.usage(100, 4)))
                .replace(b'"stop_reason": ""', b'"stop_reason": null'), ""),
            ("a call whose arguments were lost",
                self.joined(*begun, *lost, *self.end("tool_use", self.usage(100, 4))), ""),
        ]  # fmt: skip


class LiteLLM(Product):
    """LiteLLM 1.110 (llms/anthropic/messages/adapters, exception_mapping_utils.py): an empty text before anything else,
    keys of its own in blocks, counts of zero until the end, the provider's error behind words of its own."""

    name = "LiteLLM 1.110"
    signature = ""
    tells_price = True
    checks_output = True
    auth = (401, {"error": {"message": "Authentication Error, Invalid proxy server token passed. Received API Key = "
            "sk-...abcd, Unable to find token in cache or `LiteLLM_VerificationTokenTable`",
            "type": "token_not_found_in_db", "param": "key", "code": "401"}})  # fmt: skip
    spent = (400, {"error": {"message": "Budget has been exceeded! Current cost: 1.2, Max budget: 1.0",
             "type": "budget_exceeded", "param": None, "code": "400"}})  # fmt: skip
    no_model = (400, {"error": {"message": "/v1/messages: Invalid model name passed in model=main-model. Call "
                "`/v1/models` to view available models for your key.", "type": "invalid_request_error",
                "param": "model", "code": "400"}})  # fmt: skip
    no_tools = (400, {"type": "error", "error": {"type": "invalid_request_error", "message":
                "litellm.UnsupportedParamsError: ollama does not support parameters: ['tools'], for model=main-model. "
                "To drop these, set `litellm.drop_params=True`"}})  # fmt: skip
    long_words = (
        "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - "
        "This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. "
        "Please reduce the length of the messages."
    )
    much_words = (
        "litellm.BadRequestError: OpenAIException - max_tokens is too large: {asked}. This model supports at most "
        "{most} completion tokens, whereas you provided {asked}."
    )

    def tell(self, path: str, server: Server, body: dict[str, Any]) -> Answer | None:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": server.model, "object": "model", "owned_by": "openai"}]}
        if path in ("/model/info", "/v1/model/info") and server.tells:
            sizes = {"max_input_tokens": server.window, "max_output_tokens": server.most, "max_tokens": server.most}
            price = {"input_cost_per_token": 3e-6, "output_cost_per_token": 1.5e-5} if server.priced else {}
            one = {"model_name": server.model, "model_info": {**sizes, **price}}
            return 200, {"data": [{**one, "litellm_params": {"model": "openai/x"}}]}
        if path == "/v1/messages/count_tokens":
            return 200, {"input_tokens": server.count(body)}
        return None

    def begin(self, server: Server, tokens: int) -> list[Event]:
        none = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        [(name, data)] = super().begin(server, 0)
        data["message"]["usage"] = {"input_tokens": 0, "output_tokens": 0, **none}
        return [(name, data)]

    def blocks(self, content: list[Block]) -> list[Event]:
        made = [start(0, {"type": "text", "text": ""}), stop(0)] if content and content[0]["type"] != "text" else []
        more = len(made) // 2
        return made + [e for i, block in enumerate(content, more) for e in [*self.block(i, block), stop(i)]]

    def thought(self, block: Block) -> Block:
        return {"type": "thinking", "thinking": "", "signature": ""}

    def call(self, block: Block) -> Block:
        return {**super().call(block), "provider_specific_fields": {"signature": "c2ln"}}

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        begun, end = self.begin(server, 100), self.end("end_turn", self.usage(100, 4))
        told = {"type": "error", "error": {"type": "api_error", "message": "litellm.MidStreamFallbackError: upstream"}}
        long = "It begins here and is told twice. "
        return [
            ("a text that stands in its start and again in its deltas", self.joined(
                *begun, start(0, {"type": "text", "text": long}), delta(0, "text", long), stop(0), *end), ""),
            ("thinking in a text block", self.joined(
                *begun, start(0, {"type": "text", "text": ""}), delta(0, "thinking", "Hm."), delta(0, "text", "So."),
                stop(0), *end), ""),
            ("null text, null usage, null content_block keys", self.joined(
                *begun, start(0, {"type": "text", "text": None, "citations": None}), delta(0, "text", "So."), stop(0),
                *self.end("end_turn", {"input_tokens": None, "output_tokens": None})), ""),
            ("an error without an event line, in mid-stream", self.joined(
                *self.half(server)) + f"data: {json.dumps(told)}\n\n".encode(), "MidStreamFallbackError"),
        ]  # fmt: skip


class OpenRouter(Product):
    """OpenRouter, November 2026 (its documentation and issues): comments while a provider works, an error of a provider
    within a stream, the provider's own words only in `metadata.raw`."""

    name = "OpenRouter"
    root = "/api"
    signature = "c2lnbmVk"
    tells_price = True
    checks_output = True
    auth = (401, {"error": {"message": "User not found.", "code": 401}})
    spent = (402, {"error": {"code": 402, "message": "This request requires more credits, or fewer max_tokens. You "
             "requested up to 32000 tokens, but can only afford 5333. To increase, visit "
             "https://openrouter.ai/settings/credits and add more credits"}})  # fmt: skip
    no_model = (400, {"error": {"message": "main-model is not a valid model ID", "code": 400}})
    no_tools = (404, {"error": {"message": "No endpoints found that support tool use. To learn more about provider "
                "routing, visit: https://openrouter.ai/docs/provider-routing", "code": 404}})  # fmt: skip
    much_words = "max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens"
    cache_counts: ClassVar[dict[str, Any]] = {
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "cost": 0.001, "is_byok": False
    }  # fmt: skip

    def error(self, status: int, message: str, kind: str = "") -> Answer:
        raw = json.dumps({"error": {"code": str(status), "message": message, "type": "invalid_request_error"}})
        more = {"raw": raw, "provider_name": "DeepInfra"}
        return status, {"error": {"message": "Provider returned error", "code": status, "metadata": more}}

    def too_long(self, tokens: int, asked: int, window: int) -> Answer:
        told = (
            f"This endpoint's maximum context length is {window} tokens. However, you requested about {tokens + asked} "
            f"tokens ({tokens} of text input, {asked} in the output). Please reduce the length of either one, or use "
            'the "middle-out" transform to compress your prompt automatically.'
        )
        return 400, {"error": {"message": told, "code": 400}}

    def lost(self, path: str) -> Answer:
        return 404, "<!DOCTYPE html><html><title>Not Found</title></html>"

    def tell(self, path: str, server: Server, body: dict[str, Any]) -> Answer | None:
        if path == "/v1/models":
            size = {"context_length": server.window, "top_provider": {"context_length": server.window,
                    "max_completion_tokens": server.most}} if server.tells else {}  # fmt: skip
            price = {"prompt": "0.000003", "completion": "0.000015"} if server.priced else {}
            return 200, {"data": [{"id": server.model, "name": "Main", "pricing": price, **size}]}
        return None

    def stream(self, server: Server, reply: Reply, tokens: int) -> bytes:
        made = super().stream(server, reply, tokens)
        return b": OPENROUTER PROCESSING\n\n" * 3 + made + b"event: data\ndata: [DONE]\n\n"

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        said = self.half(server)
        failed = b'data: {"error": {"code": 502, "message": "Network connection lost."}}\n\n'
        return [
            ("a provider's error without an event line, in mid-stream",
                self.joined(*said) + failed, "Network connection lost"),
            ("the same before anything was said", b": OPENROUTER PROCESSING\n\n" + failed, "Network connection lost"),
            ("no event lines at all", b"".join(
                f"data: {json.dumps(data)}\n\n".encode() for _, data in
                [*said, stop(0), *self.end("end_turn", self.usage(100, 4))]), ""),
        ]  # fmt: skip


class Bedrock(Product):
    """Amazon Bedrock's words behind a gateway that passes them on (its API reference and issues, 2026): an error is a
    `message` alone; models without caching refuse its marks."""

    name = "Bedrock's words"
    signature = "c2lnbmVk"
    checks_output = True
    tells_window = False
    auth = (403, {"message": "The security token included in the request is invalid."})
    spent = (429, {"message": "Too many tokens per day, please wait before trying again."})
    no_model = (400, {"message": "The provided model identifier is invalid."})
    no_tools = (400, {"message": "This model doesn't support tool use."})
    long_words = "Input is too long for requested model."
    much_words = (
        "The maximum tokens you requested exceeds the model limit of {most}. Try again with a maximum tokens value "
        "that is lower than {most}."
    )
    cache_counts: ClassVar[dict[str, Any]] = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}

    def error(self, status: int, message: str, kind: str = "") -> Answer:
        return status, {"message": message}

    def lost(self, path: str) -> Answer:
        return 404, {"message": "Not Found"}

    def end(self, reason: str, usage: dict[str, Any]) -> list[Event]:
        changed, (name, stopped) = super().end(reason, usage)
        metrics = {"inputTokenCount": usage["input_tokens"], "invocationLatency": 900}
        return [changed, (name, {**stopped, "amazon-bedrock-invocationMetrics": metrics})]

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        said = self.half(server)
        failed = {"message": "The system encountered an unexpected error during processing. Try your request again."}
        return [
            ("an exception in mid-stream", self.joined(*said, ("error", failed)), "unexpected error"),
            ("the stream ends in mid-text", self.joined(*said), "ended"),
        ]


PRODUCTS: tuple[Product, ...] = (Ollama(), LMStudio(), LlamaCpp(), VLLM(), LiteLLM(), OpenRouter(), Bedrock())


class DeepSeek(Product):
    """DeepSeek V4's `/anthropic`, 2026 (its guide to the API, issues of clients): it thinks without being asked to, its
    signature is the message's id, and tool calls must come back with what was thought before them."""

    name = "DeepSeek V4"
    root = "/anthropic"
    signature = "91cfbb94-554b-4136-8e21-fa02280d56ed"
    wants_thinking = "The `content[].thinking` in the thinking mode must be passed back to the API."
    tells_window = False
    checks_output = True
    auth = (401, {"error": {"message": "Authentication Fails, Your api key: ****abcd is invalid", "type":
            "authentication_error", "param": None, "code": "invalid_request_error"}})  # fmt: skip
    spent = (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error", "param": None, "code":
             "invalid_request_error"}})  # fmt: skip
    no_model = (400, {"error": {"message": "Model Not Exist", "type": "invalid_request_error", "param": None, "code":
                "invalid_request_error"}})  # fmt: skip
    long_words = OF_VLLM
    much_words = "Invalid max_tokens value, the valid range of max_tokens is [1, {most}]"

    def error(self, status: int, message: str, kind: str = "invalid_request_error") -> Answer:
        return status, {"error": {"message": message, "type": kind, "param": None, "code": kind}}

    def usage(self, tokens: int, output: int) -> dict[str, Any]:
        cached = tokens // 2
        return {"input_tokens": tokens - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0,
                "output_tokens": output, "service_tier": "standard"}  # fmt: skip

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        call = {"type": "tool_use", "id": "call_00_x", "name": "python", "input": {"code": "odd = 1"}}
        sealed = [start(0, {"type": "thinking", "thinking": ""}), delta(0, "signature", "91cf"), stop(0)]
        return [
            ("thinking that is a signature and nothing else", self.joined(
                *self.begin(server, 100), *sealed, *self.block(1, call), stop(1),
                *self.end("tool_use", self.usage(100, 9))), ""),
            ("comments while it is busy", b": keep-alive\n\n" * 3 + self.joined(
                *self.begin(server, 100), *self.block(0, {"type": "text", "text": "ok"}), stop(0),
                *self.end("end_turn", self.usage(100, 4))), ""),
        ]  # fmt: skip


class Kimi(Product):
    """Moonshot's `/anthropic` and Kimi for Coding, 2026 (issues of clients): thinking without a signature, which must
    come back all the same; one model of it thinks always."""

    name = "Kimi K2"
    root = "/anthropic"
    wants_thinking = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"
    tells_window = False
    auth = (401, {"error": {"type": "authentication_error", "message": "The API Key appears to be invalid or may have "
            "expired. Please verify your credentials and try again."}, "type": "error"})  # fmt: skip
    spent = (403, {"error": {"message": "Your account org-1<ak-1> is not active, organization <org-1> exceeded current "
             "quota, please check your plan and billing details", "type": "exceeded_current_quota_error"}})  # fmt: skip
    no_model = (404, {"error": {"message": "Not found the model main-model or Permission denied", "type":
                "resource_not_found_error"}})  # fmt: skip
    long_words = "Invalid request: Your request exceeded model token limit: {window} (requested: {tokens})"


class GLM(Product):
    """Zhipu's `/api/anthropic`, 2026 (issues of clients): its own numbers stand for the kind of an error, and a call's
    arguments may be an array."""

    name = "GLM 5"
    root = "/api/anthropic"
    signature = ""
    tells_window = False
    auth = (401, {"type": "error", "error": {"type": "1000", "message": "Authentication Failed"}, "request_id": "2"})
    spent = (429, {"type": "error", "error": {"type": "1113", "message": "Insufficient balance or no resource package. "
             "Please recharge."}, "request_id": "202510091744"})  # fmt: skip
    no_model = (400, {"type": "error", "error": {"type": "1211", "message": "Unknown Model, please check the model "
                "code."}, "request_id": "202510091744"})  # fmt: skip

    def error(self, status: int, message: str, kind: str = "1210") -> Answer:
        return status, {"type": "error", "error": {"type": kind, "message": message}, "request_id": "202510091744"}

    def too_long(self, tokens: int, asked: int, window: int) -> Answer:
        return self.error(400, "Prompt exceeds max length", "1261")

    def odd(self, server: Server) -> list[tuple[str, bytes, str]]:
        given = [{"command": "odd = 1"}, ["data"]]
        call = start(0, {"type": "tool_use", "id": "call_a", "name": "python", "input": given})
        again = start(0, {"type": "tool_use", "id": "call_b", "name": "python", "input": {}})
        end = self.end("tool_use", self.usage(100, 9))
        return [
            ("a call's arguments as an array in its start", self.joined(
                *self.begin(server, 100), call, stop(0), *end), ""),
            ("the same in its pieces", self.joined(
                *self.begin(server, 100), again, delta(0, "json", json.dumps(given)), stop(0), *end), ""),
        ]  # fmt: skip


PRODUCTS += DeepSeek(), Kimi(), GLM()


class Server:
    """A product that runs. `window` and `most` tokens of prompt and of a reply; `tells` them where the product does,
    `priced` too; `cuts` a prompt that does not fit (None: as the product does); `lacks`: fields of a request that it
    refuses; `served` the model's name; `counts` tokens where the product does. `script` queues replies, `say` answers
    whatever they are."""

    def __init__(
        self,
        product: Product,
        *,
        window: int = 200_000,
        most: int = 64_000,
        tells: bool = True,
        priced: bool = True,
        cuts: bool | None = None,
        lacks: str = "",
        served: str = MAIN,
        counts: bool = True,
    ) -> None:
        self.product, self.window, self.most, self.tells, self.priced = product, window, most, tells, priced
        self.cuts = not product.refuses if cuts is None else cuts
        self.lacks = lacks
        self.model, self.counts = served, counts
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.faults: list[str] = []
        self.refusals: list[str] = []
        self._replies: list[Reply] = []
        self._raw: list[Answer] = []
        self._reader = Reader()
        self._numbers = 0
        self._lock = threading.Lock()
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self.product.root}"

    def script(self, *replies: Reply) -> None:
        self._replies += replies

    def drain(self) -> None:
        """Forget what is still to be answered."""
        self._replies.clear()
        self._raw.clear()

    def say(self, *answers: Answer) -> None:
        self._raw += answers

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def count(self, body: Mapping[str, Any]) -> int:
        return self._reader.read(dict(body)).tokens

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        with self._lock:
            self.paths.append(f"{method} {path}")
            inner = path.removeprefix(self.product.root)
            if (method, inner) != ("POST", "/v1/messages") or not path.startswith(self.product.root):
                counting = inner == "/v1/messages/count_tokens" and not self.counts
                return (None if counting else self.product.tell(inner, self, body)) or self.product.lost(path)
            status, made = self._message(body)
            if status != 200:
                self.refusals.append(str(made))
            return status, made

    def _message(self, body: dict[str, Any]) -> Answer:
        try:
            check_conversation(body["messages"], CARD)
        except Refused as refused:
            self.faults.append(refused.message)
        self.bodies.append(body)
        if self._raw and not asks_for_summary(body):
            return self._raw.pop(0)
        if body["model"] != self.model and not self.product.any_name:
            status, told = self.product.other_model or self.product.no_model
            return status, json.loads(json.dumps(told).replace(MAIN, body["model"]))
        if self.product.wants_thinking and self._thinks(body) and lacks_thinking(body["messages"]):
            return self.product.error(400, self.product.wants_thinking)
        if self.lacks and self.lacks in json.dumps(body):
            return self.product.error(400, f"{self.lacks}: Extra inputs are not permitted")
        tokens, asked = self.count(body), body["max_tokens"]
        if tokens > self.window:
            if not self.cuts:
                return self.product.too_long(tokens, asked, self.window)
            tokens = self.window - 1
        if self.product.checks_output and asked > self.product.most(self, tokens):
            return self.product.too_much(tokens, asked, self.window, self.most)
        return 200, self.product.stream(self, self._next(body), tokens)

    def _thinks(self, body: dict[str, Any]) -> bool:
        return self.product.always_thinks or (body.get("thinking") or {}).get("type") != "disabled"

    def _next(self, body: dict[str, Any]) -> Reply:
        if asks_for_summary(body):
            return SUMMARY
        if self._replies:
            reply = self._replies.pop(0)
            if self.product.wants_thinking:
                said = [block for block in reply.content if block["type"] != "thinking"]
                calls = any(block["type"] == "tool_use" for block in said) and self._thinks(body)
                thought = [block for block in reply.content if block["type"] == "thinking"]
                thought = thought or [{"type": "thinking", "thinking": "Hm."}]
                reply = replace(reply, content=(*(thought if calls else ()), *said))
            return reply
        return echo(body) if (body.get("output_config") or {}).get("format") else text("ok")


@contextmanager
def serving(product: Product, **situation: Any) -> Iterator[Server]:
    """The product at a port of this machine."""
    server = Server(product, **situation)

    def answer(handler: Any) -> None:
        try:
            body = json.loads(handler.body or b"{}")
        except ValueError:
            body = {}
        status, made = server.answer(handler.command, urlsplit(handler.path).path, body)
        match made:
            case bytes():
                page("text/event-stream", made, status)(handler)
            case str():
                page("text/plain; charset=utf-8", made.encode(), status)(handler)
            case None:
                page("", b"", status)(handler)
            case _:
                page("application/json", json.dumps(made).encode(), status)(handler)

    with odd_server(answer) as url:
        server._port = int(url.rpartition(":")[2])
        yield server
