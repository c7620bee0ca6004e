"""Turns as event sequences, for the tests of every surface."""

from __future__ import annotations

import io

from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    PermissionAnswered,
    PermissionAsked,
    Retrying,
    Streamed,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UsageReported,
)
from ipyagent.journal.events import Usage as Tokens
from ipyagent.journal.protocols import TurnStatus, WindowState
from ipyagent.ui.terminal import TerminalSurface

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

WINDOW = WindowState(
    tokens=84_000, window=200_000, effective=180_000, warning_mark=147_000, error_mark=147_000, auto_mark=167_000,
    block_mark=177_000, percent_left=49.7, above_warning=False, above_error=False, above_auto=False, blocked=False,
)  # fmt: skip
STATUS = TurnStatus(
    phase="writing", model="some-model", window=WINDOW, cost=0.5, turn_cost=0.03, tokens_read=80, tokens_prompt=100
)


def text(words: str, **fields: object) -> AssistantMessage:
    return AssistantMessage(blocks=({"type": "text", "text": words},), **fields)  # type: ignore[arg-type]


def asked(call: str = "t1", code: str = "df.mean()", **fields: str) -> PermissionAsked:
    given = {"tool": "python", "title": "Run Python?", "language": "python", "pattern": "python", "digest": "d1"}
    return PermissionAsked(call=call, text=code, **{**given, **fields})


def returned(call: str, words: str, *, name: str = "python", picture: str = "", **fields: object) -> ToolReturned:
    blocks: tuple[dict[str, object], ...] = ({"type": "text", "text": words},)
    if picture:
        source = {"type": "base64", "media_type": "image/png", "data": picture}
        blocks = (*blocks, {"type": "image", "source": source})
    return ToolReturned(call=call, name=name, blocks=blocks, **fields)  # type: ignore[arg-type]


def streamed(words: str, channel: str = "text", ref: str = "") -> list[Event]:
    return [Streamed(channel=channel, text=char, ref=ref) for char in words]  # type: ignore[arg-type]


def printed(*events: Event) -> str:
    """What a terminal of which nobody reads the questions shows of a turn."""

    async def nobody(prompt: str) -> str:
        raise EOFError

    surface = TerminalSurface(nobody, file := io.StringIO())
    surface.open()
    for event in events:
        surface.show(event)
    surface.close()
    return file.getvalue()


def whole_turn() -> list[Event]:
    code = "df.groupby('a').mean()"
    return [
        Retrying(reason="The server is busy", seconds=8),
        *streamed("hmm", "thinking"),
        *streamed("I **look**."),
        AssistantMessage(
            blocks=(
                {"type": "thinking", "thinking": "hmm"},
                {"type": "text", "text": "I **look**."},
                {"type": "tool_use", "id": "t1", "name": "python", "input": {"code": code}},
            ),
            stop_reason="tool_use",
            model="some-model",
        ),
        UsageReported(usage=Tokens(input=10, output=5), cost=0.01),
        asked(code=code),
        PermissionAnswered(call="t1", answer="once", by="user"),
        ToolCalled(call="t1", name="python", input={"code": code}, at=100.0),
        *streamed("3.5\n", "tool", "t1"),
        returned("t1", "3.5\n", picture=PIXEL, seconds=1.5, note="1 row"),
        text("The mean is 3.5."),
        UsageReported(usage=Tokens(input=10, output=5), cost=0.02),
        TurnEnded(status="finished", seconds=3.4),
    ]
