"""An MCP server over stdio that does what its tools are called, with nothing but the standard library.

`odd_server.py [MODE]`: "dead" exits at once, "mute" never answers, "garbled" answers the handshake with broken JSON,
"noisy" writes to its error output without end, "many" has 40 tools, "odd" has tools with odd names and every kind of
schema, "answers" tools with odd answers, "told FILE" describes a tool in the words of FILE, "marked FILE" appends its
process id to FILE, "stubborn" ignores that it should end.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS: dict[str, dict[str, Any]] = {
    "echo": {"description": "Say a text again.", "inputSchema": TEXT, "annotations": {"readOnlyHint": True}},
    "erase": {"description": "Erase it all.", "inputSchema": NONE, "annotations": {"destructiveHint": True}},
    **{
        name: {"description": f"Server that will {name}.", "inputSchema": NONE}
        for name in ("die", "hang", "babble", "big", "huge", "garble", "surrogates", "kinds", "fail", "refuse",
                     "progress", "structured", "spawn", "environment", "deaf", "grow", "tap")
    },
}  # fmt: skip
ODD: dict[str, dict[str, Any]] = {
    "mit Leerzeichen/und.Punkt": {"inputSchema": TEXT},
    "计算": {"inputSchema": NONE},
    "x" * 100: {"inputSchema": NONE},
    "a.b": {"inputSchema": NONE},
    "a_b": {"inputSchema": NONE},
    "bad key": {"inputSchema": {"type": "object", "properties": {"a key!": {"type": "string"}}}},
    "combined": {"inputSchema": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}},
    "invalid": {"inputSchema": {"type": "object", "properties": {"a": {"type": "strin"}}}},
    "remote": {"inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}}},
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "sound": {"inputSchema": TEXT},
    "absent": {},
    "null": {"inputSchema": None},
    "empty": {"inputSchema": {}},
    "no_type": {"inputSchema": {"properties": {"text": {"type": "string"}}}},
    "null_type": {"inputSchema": {"type": None, "properties": None}},
    "types": {"inputSchema": {"type": ["object", "null"], "properties": {"text": {"type": "string"}}}},
    "reference": {"inputSchema": {"$ref": "#/$defs/it", "$defs": {"it": TEXT}}},
    "one_of": {"inputSchema": {"oneOf": [TEXT, NONE]}},
    "huge_schema": {"inputSchema": {"type": "object", "properties": {f"p{n}": TEXT for n in range(2_000)}}},
    "array": {"inputSchema": {"type": "array", "items": {}}},
    "word": {"inputSchema": "object"},
    "list": {"inputSchema": [TEXT]},
    "true": {"inputSchema": True},
    "number": {"inputSchema": 3},
    "odd_words": {"inputSchema": TEXT, "title": 5, "description": ["a", None], "annotations": "none"},
    "odd_hints": {"inputSchema": TEXT, "annotations": {"readOnlyHint": "no", "destructiveHint": None}, "_meta": 3,
                  "outputSchema": "none", "icons": {}, "execution": 1, "x": {"y": None}},
}  # fmt: skip
NAMELESS: tuple[Any, ...] = ({"inputSchema": TEXT}, {"name": None}, {"name": 7}, {"name": ""}, None, "tool", [])
"""Rows of a list of tools that name no tool."""
ANSWERS: dict[str, Any] = {
    "null_content": {"content": None},
    "no_content": {},
    "null_result": None,
    "text_content": {"content": "plain words"},
    "object_content": {"content": {"type": "text", "text": "one block"}},
    "extra": {"content": [{"type": "text", "text": "said", "x": [1], "annotations": 3}], "x": {}, "_meta": 5},
    "unknown": {"content": [{"type": "hologram", "data": "?"}, {"type": "text", "text": "and words"}]},
    "broken_blocks": {"content": [None, 3, {}, {"type": None}, {"type": "text"}, {"type": "text", "text": None},
        {"type": "image", "data": None}, {"type": "audio"}, {"type": "resource", "resource": None},
        {"type": "resource", "resource": {"uri": None}}, {"type": "resource_link"}, {"type": "text", "text": "left"}]},
    "null_error": {"content": [{"type": "text", "text": "fine"}], "isError": None},
    "word_error": {"content": [{"type": "text", "text": "wrong"}], "isError": "true"},
    "odd_structure": {"content": [], "structuredContent": [1, 2]},
}  # fmt: skip
"""What tools of the mode "answers" answer."""
LOCK = threading.Lock()
CALLED: list[str] = []


def send(message: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", **message})
    with LOCK:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def text(number: Any, said: str, **more: Any) -> None:
    send({"id": number, "result": {"content": [{"type": "text", "text": said}], **more}})


def raw(line: bytes) -> None:
    with LOCK:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def call(number: Any, name: str, given: dict[str, Any], token: Any) -> None:
    CALLED.append(name)
    match name:
        case "echo":
            text(number, given["text"])
        case "die":
            print("about to die", file=sys.stderr, flush=True)
            os._exit(3)
        case "hang":
            time.sleep(3600)
        case "babble":
            for _ in range(3_000):
                raw(b"this is no JSON at all\n")
            text(number, "done babbling")
        case "tap":  # output without an end
            while True:
                raw(b"x" * 65_536)
        case "big":
            text(number, "0123456789" * 500_000 + "END")
        case "huge":
            for _ in range(400):
                raw(b"y" * 100_000)
            raw(b"\n")
        case "garble":
            raw(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "te\n' % number)
        case "surrogates":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\\ud800b"}]}}\n' % number)
        case "kinds":
            blob = base64.b64encode(b"\x00\x01" * 500).decode()
            picture = base64.b64encode(PNG).decode()
            send({"id": number, "result": {"content": [
                {"type": "text", "text": "five kinds"},
                {"type": "image", "data": picture, "mimeType": "image/png"},
                {"type": "audio", "data": blob, "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "x://t", "mimeType": "text/plain", "text": "inner text"}},
                {"type": "resource", "resource": {"uri": "x://b", "mimeType": "application/zip", "blob": blob}},
                {"type": "resource_link", "uri": "x://l", "name": "a link"},
            ]}})  # fmt: skip
        case "fail":
            text(number, "it went wrong", isError=True)
        case "refuse":
            send({"id": number, "error": {"code": -32000, "message": "not today"}})
        case "progress":
            for step in range(8):
                said = {"progressToken": token, "progress": step, "total": 8, "message": f"step {step}"}
                send({"method": "notifications/progress", "params": said})
                time.sleep(0.15)
            text(number, "all steps done")
        case "structured":
            value = {"rows": [1, 2, 3], "name": "t"}
            text(number, json.dumps(value), structuredContent=value)
        case "spawn":
            child = subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, stdout=2
            )
            text(number, str(child.pid))
        case "environment":
            text(number, json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid()}))
        case "twice":
            text(number, "first")
            text(number, "second")
            text(None, "nobody's")
            text(10**9, "of no call")
        case "early":  # what is told of the call when it is over, and of calls that never were
            for said in (
                {"method": "notifications/progress", "params": {"progressToken": "of none", "progress": 1}},
                {"method": "notifications/progress", "params": None}, {"method": "notifications/progress"},
                {"method": "notifications/of_2029", "params": {"x": 1}}, {"method": 5}, {},
                {"method": "notifications/message", "params": {"level": "none"}},
                {"method": "notifications/cancelled", "params": {"requestId": number}},
                {"id": "s1", "method": "sampling/createMessage", "params": {}}, {"id": "s2", "method": "of/2029"},
            ):
                send(said)
            text(number, "late")
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": "x"}})
            send({"method": "notifications/tools/list_changed", "params": []})
        case _ if name in ANSWERS:
            send({"id": number, "result": ANSWERS[name]})
        case "deaf":  # reads nothing more
            text(number, "deaf from now on")
            time.sleep(3600)
        case "grow":
            TOOLS["grown"] = {"description": "New.", "inputSchema": NONE}
            send({"method": "notifications/tools/list_changed"})
            text(number, "grown")
        case _:
            text(number, f"{name} {json.dumps(given, sort_keys=True)}")


def handle(message: dict[str, Any], tools: dict[str, dict[str, Any]], mode: str) -> None:
    number, method, given = message.get("id"), message.get("method"), message.get("params", {})
    if mode == "garbled" and number is not None:
        raw(b'{"jsonrpc": "2.0", "id": ')
        raw(b"nonsense\n")
    elif method == "initialize":
        send({"id": number, "result": {
            "protocolVersion": given["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "odd", "version": "1"},
        }})  # fmt: skip
    elif method == "tools/list":
        rows: list[Any] = [{"name": name, **tool} for name, tool in tools.items()]
        send({"id": number, "result": {"tools": [*rows, *(NAMELESS if mode == "odd" else ())]}})
    elif method == "tools/call":
        token = given.get("_meta", {}).get("progressToken")
        work = (number, given["name"], given.get("arguments", {}), token)
        if given["name"] == "deaf":
            call(*work)
        threading.Thread(target=call, args=work, daemon=True).start()
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no such method"}})


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    tools = TOOLS
    if mode == "dead":
        print("no good reason", file=sys.stderr)
        sys.exit(7)
    if mode == "mute":
        time.sleep(3600)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "noisy":
        noise = b"noise on the error output\n" * 1_000
        threading.Thread(target=lambda: [sys.stderr.buffer.write(noise) for _ in range(10**9)], daemon=True).start()
    if mode == "many":
        words = ("weather", "calendar", "invoice", "ticket", "customer")
        tools = {
            f"{verb}_{word}": {"description": f"{verb.title()} one {word} of the company.", "inputSchema": TEXT}
            for word in words
            for verb in ("get", "list", "create", "update", "delete", "archive", "share", "count")
        }
    if mode == "told":  # the words of a file
        with open(sys.argv[2]) as file:
            words = file.read()
        said = {"type": "string", "description": words}
        tools["echo"] = {"description": words, "inputSchema": {**TEXT, "properties": {"text": said}}}
    if mode == "odd":
        tools = {**ODD, **SCHEMAS}
    if mode == "answers":
        tools = {name: {"inputSchema": NONE} for name in ("echo", "twice", "early", *ANSWERS)}
        tools["echo"] = TOOLS["echo"]
    if mode == "marked":
        with open(sys.argv[2], "a") as file:
            file.write(f"{os.getpid()}\n")
    for line in sys.stdin:
        handle(json.loads(line), tools, mode)
    if mode == "stubborn":
        time.sleep(3600)


if __name__ == "__main__":
    main()
