"""HTTP for the practice server: reads requests, logs them, writes JSON and event streams, breaks them when told to."""

from __future__ import annotations

import json
import selectors
import socket
import struct
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from itertools import chain, pairwise
from typing import Any, Final, Protocol, assert_never
from urllib.parse import parse_qs, urlsplit

from ipyagent.practice.replies import Break, Fault, Reply
from ipyagent.practice.server.batches import Batches
from ipyagent.practice.server.judge import Accepted, Judge
from ipyagent.practice.server.models import Refused, page
from ipyagent.practice.server.rules import check_headers

HIDDEN = ("authorization", "x-api-key", "proxy-authorization", "cookie")


@dataclass(slots=True)
class Exchange:
    """A request with its outcome; filled in while it is answered.

    `body`: the parsed JSON body (None when there was none or bodies are not kept); `length`: its bytes.
    `received` and `finished`: `time.monotonic()` of the last byte read and the last byte written; 0.0 before that.
    `cpu`: seconds of the server's own thread, without waiting. `outcome`: `open`, `complete`, `refused` (a rule),
    `fault` (told to fail), `eof`, `drop`, `reset`, `hang`, `error`, `bad_json`, `bad_sse`, `brain failed`,
    `server failed` (a bug of this server; `error` has the traceback), or `client gone`. `usage`: as sent, with the
    cache split. `read`: the messages the model was shown, when edits or a summary made them other than those
    sent. `reply`: the message sent, as long as bodies are kept. `written`: bytes of the answer's text.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    request_id: str
    body: dict[str, Any] | None = None
    length: int = 0
    received: float = 0.0
    finished: float = 0.0
    cpu: float = 0.0
    status: int = 0
    outcome: str = "open"
    error: str = ""
    message_id: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    reply: dict[str, Any] | None = None
    read: list[dict[str, Any]] | None = None
    written: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt, however they were paid; 0 when the request was refused."""
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        return sum(int(self.usage.get(name, 0)) for name in names)


Step = bytes | float | str
"""What is done with a stream: bytes of event text to send, seconds of silence, or how it ends: `complete`, or how it
broke (`eof`, `drop`, `reset`, `hang`, `error`, `bad_json`, `bad_sse`)."""


MOST_DELTAS = 50
"""About so many deltas of a long block that comes without delays: nobody sees smaller ones."""


def frame(name: str, payload: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **payload}, ensure_ascii=False)}\n\n".encode()


def frames(message: Mapping[str, Any], reply: Reply) -> list[bytes]:
    """The whole event stream of a finished message."""
    usage = dict(message["usage"])
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    if "context_management" in message:
        begun["context_management"] = None  # what was done comes at the end
    begun["usage"] = {**(reply.began or usage), "output_tokens": min(1, usage["output_tokens"])}
    sent = [frame("message_start", {"message": begun}), frame("ping", {})]
    raw_inputs = dict(reply.raw_inputs)
    for i, block in enumerate(message["content"]):
        empty, deltas = _deltas(block, reply, raw_inputs.get(i))
        sent.append(frame("content_block_start", {"index": i, "content_block": empty}))
        sent += [frame("content_block_delta", {"index": i, "delta": delta}) for delta in deltas]
        sent.append(frame("content_block_stop", {"index": i}))
    usage.pop("cache_creation", None)  # the split by life comes in message_start only
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    more = {"context_management": message["context_management"]} if "context_management" in message else {}
    sent.append(frame("message_delta", {"delta": delta, "usage": usage, **more}))
    sent.append(frame("message_stop", {}))
    return sent


def _deltas(block: Mapping[str, Any], reply: Reply, raw: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            said = [{"type": "text_delta", "text": part} for part in _parts(block["text"], reply)]
            if "citations" not in block:
                return {"type": "text", "text": ""}, said
            cited = [{"type": "citations_delta", "citation": each} for each in block["citations"]]
            return {"type": "text", "text": "", "citations": []}, [*cited, *said]
        case "thinking":
            thought = [{"type": "thinking_delta", "thinking": part} for part in _parts(block["thinking"], reply)]
            thought.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, thought
        case "tool_use" | "server_tool_use":
            written = json.dumps(block["input"], ensure_ascii=False) if raw is None else raw
            parts = ["", *_parts(written, reply)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
        case "compaction" if "signature" not in block:
            told = {name: block[name] for name in ("content", "encrypted_content") if name in block}
            return {"type": "compaction", "content": None}, [{"type": "compaction_delta", **told}]
        case _:
            return dict(block), []  # blocks without deltas arrive whole


def _parts(text: str, reply: Reply) -> list[str]:
    chunk = reply.chunk
    if not reply.delay and reply.broken is None:
        chunk = max(chunk, len(text) // MOST_DELTAS)
    return [text[i : i + chunk] for i in range(0, len(text), chunk)]


def steps(sent: list[bytes], reply: Reply, request_id: str) -> Iterator[Step]:
    """The stream as things to do, with the reply's delays and its break."""
    if reply.first_delay:
        yield float(reply.first_delay)
    broken = reply.broken
    if broken is None:
        yield from _spaced(sent, reply.delay)
        yield "complete"
        return
    before, after = _split(sent, broken)
    yield from _spaced(before, reply.delay)
    match broken.how:
        case "eof" | "drop" | "reset":
            yield broken.how
        case "hang":
            yield float(broken.seconds)
            yield "hang"
        case "error":
            error = {"type": broken.kind, "message": broken.message}
            yield frame("error", {"error": error, "request_id": request_id})
            yield "error"
        case "stall":
            yield float(broken.seconds)
            yield from _spaced(after, reply.delay)
            yield "complete"
        case "bad_json" | "bad_sse":
            yield from _spaced([*(_mangled(raw, broken.how) for raw in after[:1]), *after[1:]], reply.delay)
            yield broken.how
        case _:
            assert_never(broken.how)


def _spaced(sent: list[bytes], delay: float) -> Iterator[Step]:
    for i, raw in enumerate(sent):
        if delay and i:
            yield float(delay)
        yield raw


def _split(sent: list[bytes], broken: Break) -> tuple[list[bytes], list[bytes]]:
    if broken.after_bytes is None:
        at = broken.after_events or 0
        return sent[:at], sent[at:]
    left = broken.after_bytes
    before: list[bytes] = []
    for i, raw in enumerate(sent):
        if len(raw) > left:
            return [*before, *([raw[:left]] if left else [])], [raw[left:], *sent[i + 1 :]]
        before.append(raw)
        left -= len(raw)
    return before, []


def _mangled(raw: bytes, how: str) -> bytes:
    if how == "bad_json":
        head = raw.rstrip(b"\n")
        return head[: -max(1, len(head) // 4)] + b"\n\n"
    return b"\x00\xff: not an event\n" + raw[: len(raw) // 2].replace(b"data:", b"dat") + b"\n\n"


MAX_BODY: Final = 32 * 1024 * 1024
_TICK: Final = 0.05


class _ClientGone(ConnectionError):
    """The client closed its end, or the server is being stopped."""


HOSTS = ("127.0.0.1", "localhost")
"""Names by which a client of this machine asks for us."""


class App(Protocol):
    """What a connection needs of the server that it belongs to."""

    api_key: str | None
    keep_bodies: bool
    judge: Judge
    batches: Batches
    stopping: threading.Event

    @property
    def url(self) -> str: ...
    def record(self, method: str, path: str, headers: Mapping[str, str], request_id: str) -> Exchange: ...
    def opened(self, exchange: Exchange) -> None: ...
    def closed(self, exchange: Exchange) -> None: ...
    def next_reply(self, body: Mapping[str, Any]) -> Reply | Fault: ...


class Wire(BaseHTTPRequestHandler):
    """One connection; a request at a time."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # small chunks would wait 40 ms each for the client's delayed ACK
    server_version = "ipyagent-practice"
    exchange: Exchange

    @property
    def app(self) -> App:
        """The server this connection belongs to."""
        app: App = self.server.app  # type: ignore[attr-defined]  # our own subclass of the server
        return app

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed; the server's `log` has it all."""

    def do_GET(self) -> None:
        """Models and batches."""
        self._answer("GET")

    def do_POST(self) -> None:
        """Messages, token counts and batches."""
        self._answer("POST")

    def _answer(self, method: str) -> None:
        request_id = "req_" + uuid.uuid4().hex[:24]
        headers = {k.lower(): "(hidden)" if k.lower() in HIDDEN else v for k, v in self.headers.items()}
        self.exchange = exchange = self.app.record(method, self.path, headers, request_id)
        before = time.thread_time()
        try:
            self._route(method)
        except Refused as refused:
            exchange.outcome, exchange.error = "refused", refused.message
            self._json(refused.status, refused.body(request_id))
        except OSError as gone:  # the client closed or reset the connection
            exchange.outcome = "client gone"
            exchange.error = f"{type(gone).__name__}: {gone}"
            self.close_connection = True
        except Exception as error:  # noqa: BLE001 - a fault of ours is a 500 that says so, not a silent hang-up
            exchange.outcome, exchange.error = "server failed", traceback.format_exc()
            self.close_connection = True
            if not exchange.status:
                self._json(500, Refused(f"the practice server failed: {error!r}", 500).body(request_id))
        finally:
            exchange.finished = time.monotonic()
            exchange.cpu = time.thread_time() - before
            self.app.closed(exchange)

    def _route(self, method: str) -> None:
        url = urlsplit(self.path)
        raw = self._read()
        host = self.headers.get("host", "").rpartition(":")[0] or self.headers.get("host", "")
        if host not in HOSTS:  # a web page whose name was made to point here (DNS rebinding)
            raise Refused(f"Host {host[:80]!r} is not this machine", 403)
        betas = check_headers({k.lower(): v for k, v in self.headers.items()}, self.app.api_key)
        without = self.app.judge.without
        match method, url.path:
            case "GET", path if path.startswith("/v1/models") and "models" not in without:
                self._models(path, parse_qs(url.query))
            case "POST", "/v1/messages":
                self.app.opened(self.exchange)
                body = self._body(raw)
                self._message(body, self.app.judge.accept(body, betas))
            case "POST", "/v1/messages/count_tokens" if "count_tokens" not in without:
                accepted = self.app.judge.accept(self._body(raw), betas, counting=True)
                self.exchange.outcome = "complete"
                self._json(200, _counted(accepted))
            case _, path if f"{path}/".startswith("/v1/messages/batches/") and "batches" not in without:
                self._batches(method, path, parse_qs(url.query), raw, betas)
            case _, "/v1/messages":
                raise Refused("Method Not Allowed", 405)
            case _:
                raise Refused("Not Found", 404)

    def _read(self) -> bytes:
        length = int(self.headers.get("content-length") or 0)
        self.exchange.length = length
        if length > MAX_BODY:
            left = length
            while left > 0 and (piece := self.rfile.read(min(left, 1 << 20))):  # or the client sees a reset, not a 413
                left -= len(piece)
            raise Refused("Request exceeds the maximum size", 413)
        raw = self.rfile.read(length)
        if len(raw) < length:
            raise ConnectionAbortedError("the client left before its request was whole")
        self.exchange.received = time.monotonic()
        return raw

    def _body(self, raw: bytes) -> dict[str, Any]:
        try:
            body = json.loads(raw)
        except ValueError as error:
            raise Refused(f"The request body is not valid JSON: {error}") from None
        if not isinstance(body, dict):
            raise Refused("The request body is not a JSON object")
        if self.app.keep_bodies:
            self.exchange.body = body
        return body

    def _models(self, path: str, query: dict[str, list[str]]) -> None:
        judge = self.app.judge
        if path == "/v1/models":
            found: dict[str, Any] = page(judge.cards.values(), query, judge.without)
        else:
            wanted = path.removeprefix("/v1/models/")
            if wanted not in judge.cards:
                raise Refused(f"model: {wanted}", 404)
            found = judge.cards[wanted].info(judge.without)
        self.exchange.outcome = "complete"
        self._json(200, found)

    def _batches(self, method: str, path: str, query: dict[str, list[str]], raw: bytes, betas: frozenset[str]) -> None:
        batches, url = self.app.batches, self.app.url
        match method, path.removeprefix("/v1/messages/batches").split("/")[1:]:
            case "POST", []:
                batch = batches.create(self._body(raw), betas)
                found = batch.info(url)
                batches.begin(batch)
            case "GET", []:
                limit = query.get("limit", ["20"])[0]
                if not limit.isdecimal() or not 1 <= int(limit) <= 1000:
                    raise Refused("limit: Input should be between 1 and 1000")
                listed = [batch.info(url) for batch in batches.page(int(limit), query.get("after_id", [""])[0])]
                ends = (listed[0]["id"], listed[-1]["id"]) if listed else (None, None)
                more = len(listed) == int(limit)
                found = {"data": listed, "has_more": more, "first_id": ends[0], "last_id": ends[1]}
            case "GET", [name]:
                found = batches.get(name).info(url)
            case "POST", [name, "cancel"]:
                found = batches.cancel(name).info(url)
            case "GET", [name, "results"]:
                lines = batches.results(name)
                self._head(200, {"content-type": "application/x-jsonl", "content-length": str(len(lines))})
                self.exchange.outcome, self.exchange.written = "complete", len(lines)
                self._write(lines)
                return
            case _:
                raise Refused("Not Found", 404)
        self.exchange.outcome = "complete"
        self._json(200, found)

    def _message(self, body: Mapping[str, Any], accepted: Accepted) -> None:
        exchange, judge = self.exchange, self.app.judge
        reply: Reply | Fault
        try:
            reply = (accepted.summary and accepted.summary.reply) or (
                Reply((), "max_tokens") if body["max_tokens"] == 0 else self.app.next_reply(accepted.heard)
            )
        except Exception as error:  # noqa: BLE001 - whatever a brain raises is this server's 500; the log has it all
            exchange.error = traceback.format_exc()
            reply = Fault(500, message=f"the brain failed: {error!r}", should_retry=False)
        if isinstance(reply, Fault):
            exchange.outcome = "brain failed" if exchange.error else "fault"
            return self._fault(reply)
        message, reply = judge.finish(accepted, reply)
        exchange.message_id, exchange.usage = message["id"], message["usage"]
        if self.app.keep_bodies:
            exchange.reply = message
            exchange.read = accepted.read.messages() if accepted.changed else None
        if body.get("stream"):
            return self._stream(message, reply, accepted)
        self._pause(reply.first_delay)
        judge.begin(accepted)
        if reply.broken is None or reply.broken.how not in ("drop", "reset", "hang", "eof"):
            exchange.outcome = "complete"
            return self._json(200, message)
        raw = json.dumps(message).encode()
        self._head(200, {"content-type": "application/json", "content-length": str(len(raw))})
        self._write(raw[: len(raw) // 2])
        if reply.broken.how == "hang":
            self._pause(reply.broken.seconds)
        return self._end(reply.broken.how if reply.broken.how in ("reset", "hang") else "drop")

    def _fault(self, fault: Fault) -> None:
        headers = dict(fault.headers)
        if fault.retry_after is not None:
            headers["retry-after"] = str(fault.retry_after)
        if fault.retry_after_ms is not None:
            headers["retry-after-ms"] = str(fault.retry_after_ms)
        if fault.should_retry is not None:
            headers["x-should-retry"] = str(fault.should_retry).lower()
        error = Refused(fault.message, fault.status, fault.kind, fault.code)
        self._json(fault.status, error.body(self.exchange.request_id), headers)

    def _stream(self, message: Mapping[str, Any], reply: Reply, accepted: Accepted) -> None:
        sent = frames(message, reply)
        head = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        self._head(200, {**head, "transfer-encoding": "chunked"})
        begun = False
        for step, following in pairwise(chain(steps(sent, reply, self.exchange.request_id), [None])):
            match step:
                case bytes():
                    if not begun:
                        self.app.judge.begin(accepted)
                        begun = True
                    if isinstance(following, str):
                        self._answered(following)
                    self._write(b"%x\r\n%s\r\n" % (len(step), step))
                    self.exchange.written += len(step)
                case float():
                    self._pause(step)
                case str():
                    self._end(step)
                case None:
                    pass  # pairwise() never begins a pair with the last one
                case _:
                    assert_never(step)

    def _answered(self, outcome: str) -> None:
        """Note the end before its last bytes are sent: who has read them finds it noted."""
        self.exchange.outcome = outcome
        self.app.closed(self.exchange)

    def _end(self, how: str) -> None:
        self._answered(how)
        match how:
            case "drop":
                self.close_connection = True
            case "reset":
                self.close_connection = True
                linger = struct.pack("ii", 1, 0)  # close with RST: unsent bytes are thrown away
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.rfile.close()
                self.connection.close()
            case _:
                self._write(b"0\r\n\r\n")

    def _pause(self, seconds: float) -> None:
        """Keep silent; ends early with `_ClientGone` when the client leaves or the server stops."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.app.stopping.is_set():
                raise _ClientGone("the server was stopped")
            with selectors.DefaultSelector() as waiting:  # select.select knows no descriptor above 1023
                waiting.register(self.connection, selectors.EVENT_READ)
                readable = waiting.select(min(left, _TICK))
            if readable:
                if not self.connection.recv(1, socket.MSG_PEEK):
                    raise _ClientGone("closed by the client")
                time.sleep(min(left, _TICK))  # the next request is already waiting; it has to

    def _json(self, status: int, payload: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        raw = json.dumps(payload, ensure_ascii=False).encode()
        self._head(status, {"content-type": "application/json", "content-length": str(len(raw)), **(headers or {})})
        self.app.closed(self.exchange)
        self._write(raw)
        self.exchange.written = len(raw)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.exchange.status = status
        self.send_response(status)
        for name, value in {**headers, "request-id": self.exchange.request_id}.items():
            self.send_header(name, value)
        self.end_headers()

    def _write(self, raw: bytes) -> None:
        self.wfile.write(raw)


def _counted(accepted: Accepted) -> dict[str, Any]:
    """The answer to a count: what the model reads, and what was sent when edits were asked for."""
    counted: dict[str, Any] = {"input_tokens": accepted.read.tokens}
    if accepted.managed:
        counted["context_management"] = {"original_input_tokens": accepted.whole}
    return counted
