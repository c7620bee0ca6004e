"""What the practice server's tests share: a body that keeps every rule, images of any size, and one way to ask."""

from __future__ import annotations

import base64
import struct
from typing import Any

import anthropic

from ipyagent.practice.server import PracticeServer

Body = dict[str, Any]
TOOL: Body = {"name": "get", "description": "Gets.", "input_schema": {"type": "object", "properties": {}}}


def user(*blocks: Any) -> Body:
    return {"role": "user", "content": blocks[0] if len(blocks) == 1 and isinstance(blocks[0], str) else list(blocks)}


def assistant(*blocks: Any) -> Body:
    return {**user(*blocks), "role": "assistant"}


def said(text: str, **more: Any) -> Body:
    return {"type": "text", "text": text, **more}


def use(id: str, **input: Any) -> Body:
    return {"type": "tool_use", "id": id, "name": "get", "input": input}


def result(id: str, content: Any = "ok", **more: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def request(*messages: Body, **more: Any) -> Body:
    return {"model": "practice", "max_tokens": 100, "messages": list(messages) or [user("hi")], **more}


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\0\0\0"


def image(raw: bytes, media: str = "image/png") -> Body:
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": media, "data": base64.b64encode(raw).decode()},
    }


def client(server: PracticeServer, **more: Any) -> anthropic.Anthropic:
    http = anthropic.DefaultHttpxClient(verify=False)  # plain http on loopback: no certificates to load
    options: dict[str, Any] = {"api_key": "practice", "max_retries": 0, **more}
    return anthropic.Anthropic(base_url=server.url, http_client=http, **options)


def ask(sdk: anthropic.Anthropic, body: Body, betas: str = "", path: str = "/v1/messages") -> Body:
    """The answer as JSON; raises the SDK's error for a refusal."""
    options: Any = {"headers": {"anthropic-beta": betas}} if betas else {}
    answer = sdk.post(path, body=body, cast_to=object, options=options)
    assert isinstance(answer, dict)
    return answer


def paid(answer: Body) -> tuple[int, int, int, int]:
    """Tokens: fresh, read, written for 5 minutes, written for an hour."""
    usage = answer["usage"]
    made = usage["cache_creation"]
    return (
        usage["input_tokens"],
        usage["cache_read_input_tokens"],
        made["ephemeral_5m_input_tokens"],
        made["ephemeral_1h_input_tokens"],
    )
