"""A server of other models than the provider's: which it has and how large their windows are is read from its list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from model_room import MODEL, model_at, odd_server

from ipyagent import Agent, IPyAgent
from ipyagent.commands.context import report
from ipyagent.commands.doctor import doctor
from ipyagent.journal.events import UsageReported

LLAMA = {
    "id": "/models/qwen.gguf", "aliases": ["qwen"], "object": "model", "owned_by": "llamacpp",
    "meta": {"n_ctx": 16_384, "n_ctx_train": 32_768},
}  # fmt: skip
"""As llama.cpp's server lists the file that it was started with."""
VLLM = {"id": "Qwen/Qwen3-8B", "object": "model", "owned_by": "vllm", "max_model_len": 40_960}


@contextmanager
def serving(*listed: dict[str, Any], page: bool = True) -> Iterator[str]:
    """A server that knows no model by itself, lists these (`page` False: has no list) and answers any with "ok"."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        status, kind, body = 404, "application/json", json.dumps({"error": {"message": "File Not Found", "code": 404}})
        if handler.path.partition("?")[0] == "/v1/models" and page:
            status, body = 200, json.dumps({"object": "list", "data": listed})
        elif handler.path == "/v1/messages":
            usage = {"input_tokens": 9_000, "output_tokens": 0}
            said = [
                {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
                 "model": "it", "stop_reason": None, "usage": usage}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
                {"type": "message_stop"},
            ]  # fmt: skip
            status, kind = 200, "text/event-stream"
            body = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in said)
        handler.send_response(status)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    with odd_server(answer) as url:
        yield url


def asked(url: str, what: Callable[[Any], Any]) -> Any:
    async def use() -> Any:
        model = model_at(url)
        try:
            return await what(model)
        finally:
            await model.close()

    return asyncio.run(use())


@pytest.mark.parametrize(
    ("listed", "only"), [((LLAMA,), LLAMA["id"]), ((VLLM,), VLLM["id"]), ((LLAMA, VLLM), ""), ((), "")]
)
def test_the_only_model_is_named(listed: tuple[dict[str, Any], ...], only: str) -> None:
    with serving(*listed) as url:
        assert asked(url, lambda model: model.only_model(MODEL)) == only


def test_a_model_that_the_server_has_stands() -> None:
    with serving({**VLLM, "id": MODEL}) as url:
        assert asked(url, lambda model: model.only_model(MODEL)) == ""
        assert asked(url, lambda model: model.info(MODEL)).window == 40_960


def test_without_a_list_a_model_is_what_is_known_of_it() -> None:
    with serving(page=False) as url:
        assert asked(url, lambda model: model.only_model(MODEL)) == ""
        assert asked(url, lambda model: model.info(MODEL)).window == 1_000_000


@pytest.mark.parametrize(("name", "window"), [(LLAMA["id"], 16_384), ("qwen", 16_384), (VLLM["id"], 40_960)])
def test_the_window_of_a_listed_model_is_the_servers(name: str, window: int) -> None:
    with serving(LLAMA, VLLM) as url:
        assert asked(url, lambda model: model.info(name)).window == window


def test_a_server_without_a_model_chosen_is_used_with_its_own_and_costs_no_list_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    for name in ("API_KEY", "AUTH_TOKEN", "MODEL"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    with serving(LLAMA) as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        settings = IPyAgent(environ={}, trust_all=True, extraction=False, layer_notes=False, recall=False)
        agent = Agent(settings=settings, folder=tmp_path)
        assert "window and price are known then" in doctor(agent, None)[0]
        assert agent.run_sync("hello").text == "ok"
        assert agent.model == LLAMA["id"]
        assert [line for line in agent.notices if "the server has one model" in line and LLAMA["id"] in line]
        assert "of 16,384 tokens" in report(agent, [])
        assert "no price known for the model" in report(agent, [])
        assert f"{LLAMA['id']}, window 16,384 tokens; no price known" in doctor(agent, None)[0]
        assert agent.session is not None
        assert [event.cost for event in agent.session.journal.read() if isinstance(event, UsageReported)] == [None]
        agent.close()
        later = Agent(settings=IPyAgent(environ={}, trust_all=True), folder=tmp_path)
        later.resume()
        assert later.info.window == 16_384
        later.settings.model = "another"
        assert later.model == "another"
        assert later.info.window == 200_000
        later.close()
