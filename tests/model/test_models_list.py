"""A server of other models than the provider's: which it has and how large their windows are is read from its list."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from model_room import MODEL, Talk, answers, odd_server, page, request

from ipyagent import Agent, IPyAgent
from ipyagent.extension.context_report import report, summary
from ipyagent.extension.doctor import doctor
from ipyagent.journal.events import UsageReported
from ipyagent.model.client_pool import Connections
from ipyagent.model.endpoint import Endpoint
from ipyagent.model.prices import price_of

LLAMA = {
    "id": "/models/qwen.gguf", "aliases": ["qwen"], "object": "model", "owned_by": "llamacpp",
    "meta": {"n_ctx": 16_384, "n_ctx_train": 32_768},
}  # fmt: skip
"""As llama.cpp's server lists the file that it was started with."""
VLLM = {"id": "Qwen/Qwen3-8B", "object": "model", "owned_by": "vllm", "max_model_len": 40_960}


@contextmanager
def serving(*listed: dict[str, Any], lists: bool = True) -> Iterator[str]:
    """A server that knows no model by itself, lists these (`lists` False: has no list) and answers any with "ok"."""

    with telling({"/v1/models": {"object": "list", "data": listed}} if lists else {}) as (url, _):
        yield url


def asked(url: str, what: Callable[[Any], Any]) -> Any:
    with Talk(url) as talk:
        return talk.run(what(talk.model))


def test_the_only_model_is_named_and_the_window_of_a_listed_one_is_the_servers() -> None:
    for listed, only in (((LLAMA,), LLAMA["id"]), ((VLLM,), VLLM["id"]), ((LLAMA, VLLM), ""), ((), "")):
        with serving(*listed) as url:
            assert asked(url, lambda model: model.only_model(MODEL)) == only
    with serving({**VLLM, "id": MODEL}) as url:  # one that it has stands
        assert asked(url, lambda model: model.only_model(MODEL)) == ""
        assert asked(url, lambda model: model.info(MODEL)).window == 40_960
    with serving(lists=False) as url:  # without a list a model is what is known of it
        assert asked(url, lambda model: model.only_model(MODEL)) == ""
        assert asked(url, lambda model: model.info(MODEL)).window == 1_000_000
    with serving(LLAMA, VLLM) as url, Talk(url) as talk:
        windows = [talk.info(name).window for name in (LLAMA["id"], "qwen", VLLM["id"])]
    assert windows == [16_384, 16_384, 40_960]


def test_a_server_without_a_model_chosen_is_used_with_its_own_and_costs_no_list_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    with serving(LLAMA) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        settings = IPyAgent(environ={}, trust_all=True, extraction=False, layer_notes=False, recall=False)
        agent = Agent(settings=settings, folder=tmp_path)
        assert "window and price are known then" in doctor(agent, None)[0]
        assert f"model: the only model of {url} · mode" in summary(agent)
        assert agent.run_sync("hello").text == "ok"
        assert agent.model == LLAMA["id"]
        assert f"model: {LLAMA['id']} · mode" in summary(agent)
        assert [line for line in agent.notices if "using the server's only model" in line and LLAMA["id"] in line]
        assert "of 16,384 tokens" in report(agent, [])
        assert "no price known for the model" in report(agent, [])
        told = f"{LLAMA['id']}, window 16,384 tokens (according to the Models API); no price known"
        assert told in doctor(agent, None)[0]
        assert [event.cost for event in agent.session.journal.read() if isinstance(event, UsageReported)] == [None]
        agent.close()
        later = Agent(settings=IPyAgent(environ={}, trust_all=True), folder=tmp_path)
        later.resume()
        assert later.info.window == 16_384
        assert "window: 16,384 tokens, as last known in this session" in report(later, [])
        later.settings.model = LLAMA["id"]
        assert f"{LLAMA['id']}, window 16,384 tokens (as last known in this session)" in doctor(later, None)[0]
        later.settings.model = "another"
        assert later.model == "another"
        assert later.info.window == 200_000
        later.close()


# ------------------------------------------------------------------ each product in its own way

OLLAMA_SHOW = {"parameters": 'stop "<|im_end|>"\ntemperature 0.6', "model_info": {"qwen3.context_length": 40_960}}
PRODUCTS: dict[str, tuple[dict[str, Any], tuple[int, str, int]]] = {
    # what is told at which path; window, who told it, largest reply
    "Ollama 0.33, loaded": (
        {"/v1/models/m": {"id": "m", "object": "model", "owned_by": "library"}, "/api/show": OLLAMA_SHOW,
         "/api/ps": {"models": [{"name": "m:latest", "model": "m:latest", "context_length": 8_192}]}},
        (8_192, "Ollama", 32_000),
    ),
    "Ollama, with num_ctx": (
        {"/api/show": {**OLLAMA_SHOW, "parameters": "num_ctx    16384\ntop_k 20"}, "/api/ps": {"models": None}},
        (16_384, "Ollama", 32_000),
    ),
    "Ollama, not loaded": ({"/api/show": OLLAMA_SHOW}, (40_960, "Ollama, for the model itself", 32_000)),
    "llama.cpp": (
        {"/props": {"default_generation_settings": {"n_ctx": 12_288}, "total_slots": 4}}, (12_288, "llama.cpp", 32_000),
    ),
    "vLLM": ({"/v1/models": {"data": [{**VLLM, "id": "m"}]}}, (40_960, "Models API", 32_000)),
    "LM Studio": (
        {"/v1/models/m": {"error": "Unexpected endpoint or method. (GET /v1/models/m). Returning 200 anyway"},
         "/v1/models": {"data": [{"id": "m", "object": "model"}]},
         "/api/v0/models": {"data": [{"id": "m", "state": "loaded", "max_context_length": 131_072,
                                      "loaded_context_length": 10_000}]}},
        (10_000, "LM Studio", 32_000),
    ),
    "OpenRouter": (
        {"/v1/models": {"data": [{"id": "m", "context_length": 163_840, "pricing": {"prompt": "0.0000005",
         "completion": "0.000002"}, "top_provider": {"context_length": 65_536, "max_completion_tokens": 16_384}}]}},
        (65_536, "Models API", 16_384),
    ),
    "LiteLLM 1.110": (
        {"/v1/models/m": {"id": "m", "object": "model", "created": 1, "owned_by": "openai"},
         "/model/info": {"data": [{"model_name": "m", "model_info": {"max_input_tokens": 128_000, "max_output_tokens":
         9_000, "input_cost_per_token": 2e-6, "output_cost_per_token": 8e-6, "cache_read_input_token_cost": 5e-7}}]}},
        (128_000, "LiteLLM", 9_000),
    ),
    "all wrong": (
        {"/v1/models/m": {"id": 7}, "/v1/models": {"data": {"id": "m"}}, "/api/show": {"parameters": 7, "model_info":
         [1]}, "/api/ps": {"models": [None, {"name": "m", "context_length": "many"}]}, "/props": {
         "default_generation_settings": {"n_ctx": True}}, "/api/v0/models": {"data": "m"}, "/model/info":
         {"data": [{"model_name": "m", "model_info": {"max_input_tokens": -5, "input_cost_per_token": "free"}}]}},
        (200_000, "default", 32_000),
    ),
}  # fmt: skip


@contextmanager
def telling(told: dict[str, Any], slow: float = 0.0) -> Iterator[tuple[str, list[str]]]:
    """A server that tells this at these paths, after so many seconds, and answers messages with "ok" at once."""
    paths: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.partition("?")[0]
        paths.append(path)
        if path == "/v1/messages":
            body = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "ok"}],
                    "stop_reason": "end_turn", "usage": {"input_tokens": 9, "output_tokens": 1}}  # fmt: skip
            found: Any = body
        else:
            time.sleep(slow)
            found = told.get(path)
        data = json.dumps(found if found is not None else {"error": "not found"}).encode()
        with suppress(OSError):
            page("application/json", data, 200 if found is not None else 404)(handler)

    with odd_server(answer) as url:
        yield url, paths


def test_a_server_is_asked_for_its_window_in_its_own_way_and_once() -> None:
    for product, (told, right) in PRODUCTS.items():
        with telling(told) as (url, paths), Talk(url) as talk:
            info = talk.info("m")
            assert (info.window, info.source, info.max_output) == right, product
            if info.source != "Ollama, for the model itself":
                count = len(paths)
                assert talk.info("m") == info
                assert len(paths) == count, product


def test_prices_are_learned_from_the_same_answers() -> None:
    right = ("OpenRouter", "routed", (0.5, 2.0, 0.5)), ("LiteLLM 1.110", "lit", (2.0, 8.0, 0.5))
    for product, name, dollars in right:
        told = json.loads(json.dumps(PRODUCTS[product][0]).replace('"m"', f'"{name}"').replace("/m\"", f"/{name}\""))
        with telling(told) as (url, _):
            info = asked(url, lambda model, name=name: model.info(name))
        assert price_of(name) is None  # at any other server
        price = price_of(name, info.server)
        assert (price.input, price.output, price.read) == pytest.approx(dollars)
        assert price.source == product.split()[0]


def test_a_model_that_was_not_loaded_has_the_window_that_it_is_loaded_with() -> None:
    told: dict[str, Any] = {"/api/show": OLLAMA_SHOW}
    with telling(told) as (url, paths):

        async def use(model: Any) -> list[int]:
            windows = [(await model.info("m")).window]
            told["/api/ps"] = {"models": [{"name": "m", "context_length": 4_096}]}
            await answers(model, request(model="m"))
            for _ in range(100):
                await asyncio.sleep(0.02)
                if model.known("m").source == "Ollama":
                    break
            return [*windows, model.known("m").window, paths.count("/api/ps")]

        assert asked(url, use) == [40_960, 4_096, 2]


def test_a_window_that_turns_out_too_small_is_one_line_and_a_new_session_fits_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    told: dict[str, Any] = {"/api/show": OLLAMA_SHOW}
    with telling(told) as (url, _):
        given = {"trust_all": True, "extraction": False, "layer_notes": False, "recall": False}
        agent = Agent(settings=IPyAgent(environ={}, base_url=url, model="m", **given), folder=tmp_path)
        assert agent.run_sync("hello").status == "finished"
        assert "window: 40,960 tokens, according to Ollama, for the model itself" in report(agent, [])
        told["/api/ps"] = {"models": [{"name": "m", "context_length": 4_096}]}
        turns = (agent.run_sync("it is loaded now") for _ in range(10))  # a busy machine tells it a turn later
        made = next(turn for turn in turns if turn.status == "failed")
        for word in ("do not fit the window of 4,096", "OLLAMA_CONTEXT_LENGTH", "IPyAgent.window", "%agent new"):
            assert word in made.message
        agent.new()
        assert agent.run_sync("hello again").status == "finished"
        assert "window: 4,096 tokens, according to Ollama" in report(agent, [])
        agent.close()


def test_a_server_that_takes_its_time_to_tell_holds_up_no_request_and_no_stop() -> None:
    with telling(PRODUCTS["llama.cpp"][0], slow=1.2) as (url, _):

        async def use(model: Any) -> tuple[float, int, int]:
            began = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await model.info("m")
            stopped = time.monotonic() - began
            assumed = (await model.info("m")).window
            for _ in range(200):
                await asyncio.sleep(0.05)
                if model.known("m").source == "llama.cpp":
                    break
            return stopped, assumed, model.known("m").window

        stopped, assumed, window = asked(url, use)
    assert stopped < 0.6
    assert (assumed, window) == (200_000, 12_288)


def test_a_name_that_the_server_has_not_listed_is_told() -> None:
    listed = {"data": [{"id": name} for name in ("qwen3:8b", "qwen3:32b", "llama3.1:8b")]}

    async def looked(url: str) -> list[list[str]]:
        connections, endpoint = Connections(), Endpoint(base_url=url, api_key="k")
        before = connections.unlisted("qwen3:9b", endpoint)
        await connections.get("qwen3:8b", endpoint).info("qwen3:8b")
        found = [connections.unlisted(name, endpoint) for name in ("qwen3:8b", "qwen3:9b", "practice")]
        await connections.close()
        return [before, *found]

    with telling({"/v1/models": listed}) as (url, _):
        assert asyncio.run(looked(url)) == [[], [], ["qwen3:8b", "qwen3:32b", "llama3.1:8b"], []]
