"""A Messages API server on loopback that keeps the API's rules; not a language model.

    with PracticeServer(brain) as server:
        server.script(tool("python", {"code": "1 + 1"}), text("2"))
        client = AsyncAnthropic(base_url=server.url, api_key="practice")

Answers come from the script first, then from the brain; without either it echoes. Stops with its process: all
threads are daemons. It listens on 127.0.0.1 at a random port and opens no other connection.

"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from ipyagent.practice.replies import Fault, Reply, Scripted, text
from ipyagent.practice.server.batches import Batches
from ipyagent.practice.server.judge import ABILITIES, Judge
from ipyagent.practice.server.management import LEAST_TRIGGER, Summariser
from ipyagent.practice.server.models import PRACTICE, catalogue
from ipyagent.practice.server.wire import Exchange, Wire

Brain = Callable[[dict[str, Any]], Reply | Fault]


def extract(body: Mapping[str, Any]) -> str:
    """What was said in a conversation, a line each, behind the summaries that stand in it: the summary of a server that
    was given no summariser."""
    lines: list[str] = []
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "compaction" and block.get("content"):
                lines.append(str(block["content"]))
            elif block["type"] == "text":
                lines.append(f"- {message['role']}: {' '.join(str(block['text']).split())[:200]}")
    return "\n".join(lines) or "Nothing was said."


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    app: PracticeServer

    def __init__(self, app: PracticeServer, port: int) -> None:
        self.app = app
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Wire)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        threading.current_thread().name = "ipyagent-practice-request"
        super().process_request_thread(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke outside a request needs no words."""


class PracticeServer:
    """The server; use it as a context manager, or `start()` and `stop()` it.

    `brain` gets the request's body and answers a reply or a fault; it runs on the connection's thread.
    `window`, `max_output`: tokens of the model `practice`; `min_cache`: its smallest cacheable prefix (512).
    `clock`: seconds, for cache lives. `without`: abilities to switch off (`caching`, `models`, `count_tokens`,
    `thinking`, `images`, `output_config`, `diagnostics`, `system_messages`, `context_management`, `compaction`,
    `batches`, `server_tools`).
    `summarise`: writes the summaries of server compactions from a body (None: what the user said); they
    take nothing from the script. `least_trigger`: tokens, the smallest trigger of `compact_20260112`.
    `refuse_unknown`: request fields answered with 400 "Extra inputs are not permitted". `any_model`: take unknown
    model ids. `api_key`: the only credential taken (None: any). `keep_bodies` False: the log keeps numbers only.

    `log` holds every request; `refused` those the rules refused.
    """

    def __init__(
        self,
        brain: Brain | None = None,
        *,
        window: int = 200_000,
        max_output: int = 64_000,
        min_cache: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        without: Iterable[str] = (),
        refuse_unknown: Iterable[str] = (),
        any_model: bool = False,
        api_key: str | None = None,
        keep_bodies: bool = True,
        summarise: Summariser | None = None,
        least_trigger: int = LEAST_TRIGGER,
    ) -> None:
        if unknown := sorted(set(without) - ABILITIES):
            raise ValueError(f"no ability {unknown[0]!r} to switch off; known: {', '.join(sorted(ABILITIES))}")
        self.brain: Brain = brain or echo
        self.api_key = api_key
        self.keep_bodies = keep_bodies
        self.log: list[Exchange] = []
        self.judge = Judge(
            catalogue(window, max_output, min_cache),
            clock,
            frozenset(without),
            frozenset(refuse_unknown),
            any_model,
            summarise or extract,
            least_trigger,
        )
        self.stopping = threading.Event()
        self.batches = Batches(self.judge, self.next_reply, self.stopping)
        self._queue: deque[Scripted] = deque()
        self._open: set[int] = set()
        self._lock = threading.Lock()
        self._http: _Http | None = None
        self._thread: threading.Thread | None = None
        self._port = 0

    def __repr__(self) -> str:
        state = f"at {self.url}" if self._http else "stopped"
        return f"<PracticeServer {state}, {len(self.log)} requests, {len(self._queue)} scripted replies left>"

    @property
    def url(self) -> str:
        """The base URL, without /v1."""
        if not self._port:
            raise RuntimeError("the practice server has not been started; call start() or use `with`")
        return f"http://127.0.0.1:{self._port}"

    @property
    def window(self) -> int:
        """Tokens of the practice model's window."""
        return self.judge.cards[PRACTICE].window

    @property
    def refused(self) -> list[Exchange]:
        """Requests the rules refused (4xx that were not scripted)."""
        return [exchange for exchange in self.log if exchange.outcome == "refused"]

    @property
    def messages(self) -> list[Exchange]:
        """Requests to /v1/messages only."""
        return [exchange for exchange in self.log if exchange.path.partition("?")[0] == "/v1/messages"]

    @property
    def open_streams(self) -> int:
        """Requests to /v1/messages that are being answered now."""
        with self._lock:
            return len(self._open)

    @property
    def scripted(self) -> int:
        """Scripted replies not used yet."""
        return len(self._queue)

    def script(self, *replies: Scripted) -> Self:
        """Queue replies; each answers one request that keeps the rules, before the brain is asked."""
        self._queue.extend(replies)
        return self

    def next_reply(self, body: Mapping[str, Any]) -> Reply | Fault:
        """The answer to a body: from the script, else from the brain."""
        with self._lock:
            scripted = self._queue.popleft() if self._queue else None
        if scripted is None:
            return self.brain(dict(body))
        return scripted if isinstance(scripted, Reply | Fault) else scripted(dict(body))

    def opened(self, exchange: Exchange) -> None:
        """Note that a message is being answered."""
        with self._lock:
            self._open.add(exchange.number)

    def closed(self, exchange: Exchange) -> None:
        """Note that it no longer is."""
        with self._lock:
            self._open.discard(exchange.number)

    def record(self, method: str, path: str, headers: Mapping[str, str], request_id: str) -> Exchange:
        """A new entry of the log."""
        with self._lock:
            exchange = Exchange(len(self.log), method, path, headers, request_id)
            self.log.append(exchange)
        return exchange

    def start(self, port: int = 0) -> Self:
        """Listen on `port` (0: any that is free); returns once connections are taken. Raises OSError."""
        if self._http is None:
            self.stopping.clear()
            self._http = _Http(self, port)
            self._port = self._http.server_port
            self._thread = threading.Thread(
                target=self._http.serve_forever, args=(0.05,), name="ipyagent-practice", daemon=True
            )
            self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port and every connection; open streams end at once."""
        http, thread = self._http, self._thread
        if http is None or thread is None:
            return
        self._http = self._thread = None
        self.stopping.set()
        with suppress(OSError):  # wakes the thread that listens, where a system allows it; else it looks by itself soon
            http.socket.shutdown(socket.SHUT_RDWR)
        http.shutdown()
        http.server_close()
        for connection in list(http.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed by its own thread meanwhile
        thread.join(5)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def echo(body: dict[str, Any]) -> Reply:
    """Answer with the last text of the last user message, or with JSON that fits `output_config.format`."""
    wanted = (body.get("output_config") or {}).get("format")
    if wanted:
        return text(json.dumps(smallest(wanted["schema"], wanted["schema"].get("$defs", {}))))
    last = next(message for message in reversed(body["messages"]) if message["role"] == "user")["content"]
    if isinstance(last, str):
        return text("echo: " + last)
    block = last[-1]
    return text(f"echo: {block.get('text') or block.get('content') or block['type']}")


def smallest(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    """The smallest value that fits a JSON schema of the subset structured output takes."""
    if "$ref" in schema:
        return smallest(defs[schema["$ref"].rsplit("/", 1)[-1]], defs)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for several in ("anyOf", "allOf"):
        if schema.get(several):
            return smallest(schema[several][0], defs)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        return {name: smallest(inner, defs) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [smallest(schema["items"], defs)] * int(schema.get("minItems", 0)) if "items" in schema else []
    plain: dict[Any, Any] = {"string": "x", "integer": 0, "number": 0, "boolean": False}
    return plain.get(kind)


def serve(port: int, brain: Brain, summarise: Summariser) -> int:
    """Serve until Ctrl-C; the exit status: 1 when the port is taken."""
    server = PracticeServer(brain, any_model=True, keep_bodies=False, summarise=summarise)
    try:
        server.start(port)
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        sys.stderr.write(f"ipyagent: cannot listen on port {port} ({why}); choose another with --port\n")
        return 1
    try:
        sys.stdout.write(
            f"The practice model ({PRACTICE}: rule-based, no language model) answers at {server.url}; Ctrl-C ends it.\n"
            f"In another shell, before you start Jupyter:  export ANTHROPIC_BASE_URL={server.url}\n"
        )
        sys.stdout.flush()
        threading.Event().wait()
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    finally:
        server.stop()
    return 0
