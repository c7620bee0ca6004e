"""One request and what became of it, as the server's log keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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


def shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with lower-case names; values of credentials are hidden."""
    return {k.lower(): "(hidden)" if k.lower() in HIDDEN else v for k, v in headers.items()}
