"""One request through the real SDK to a server on loopback, and what came of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from ipyagent.journal.events import Retrying, Streamed
from ipyagent.journal.protocols import ModelEvent, ModelInfo, ModelReply, Request
from ipyagent.model.capabilities import Capabilities
from ipyagent.model.client import AnthropicModel
from ipyagent.model.endpoint import Endpoint

T = TypeVar("T")
KEY = "plain-looking-key-4f9a1c77"
MODEL = "claude-sonnet-5-5"


def request(**given: Any) -> Request:
    said = [{"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]}]
    return Request(**{"model": MODEL, "system": [], "tools": [], "messages": said, "max_tokens": 100, **given})


def model_at(url: str, capabilities: Capabilities | None = None, **given: Any) -> AnthropicModel:
    settings: dict[str, Any] = {"api_key": KEY, "retries": 2, "longest_wait": 0.05, "timeout": 5.0, **given}
    return AnthropicModel(Endpoint(base_url=url, **settings), capabilities)


class Talk:
    """A client at a server, for a test that waits for nothing itself."""

    def __init__(self, url: str, capabilities: Capabilities | None = None, **given: Any) -> None:
        self.model = model_at(url, capabilities, **given)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.model.close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def ask(self, asked: Request | None = None, **given: Any) -> list[ModelEvent]:
        """The events of a reply to `asked`, or to a request that differs by what is `given`."""
        return self.run(answers(self.model, asked or request(**given)))

    def info(self, model: str) -> ModelInfo:
        return self.run(self.model.info(model))


def ask(url: str, **given: Any) -> list[Any]:
    """A single request to a server by a client with these settings."""
    with Talk(url, **given) as talk:
        return talk.ask()


async def answers(model: AnthropicModel, asked: Request | None = None) -> list[ModelEvent]:
    return [event async for event in model.stream(asked or request())]


def said(events: list[ModelEvent]) -> str:
    reply = events[-1]
    assert isinstance(reply, ModelReply)
    return "".join(block.get("text", "") for block in reply.said.blocks)


def waits(events: list[ModelEvent]) -> list[Retrying]:
    return [event for event in events if isinstance(event, Retrying)]


def texts(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Streamed) and event.channel == "text")


@contextmanager
def odd_server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A server that is no Messages API: `answer` writes whatever it likes to what its handler has as `body`."""

    class Odd(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
            answer(self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def page(kind: str, body: bytes, status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    """The same page for every request; `kind`: its content type, "" for none."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if kind:
            handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer
