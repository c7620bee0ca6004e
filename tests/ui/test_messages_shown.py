"""Messages between agents in a cell: who wrote to whom and what about, the words in a fold, nothing of them alive."""

from __future__ import annotations

import io
import re

from ipyagent.journal.events import Event, MessageReceived, MessageSent, ToolCalled, ToolReturned
from ipyagent.ui.items import MessageItem
from ipyagent.ui.segments import item_html
from ipyagent.ui.static import plain_text, static_bundle
from ipyagent.ui.terminal import TerminalSurface
from ipyagent.ui.theme import PANEL, STATIC
from ipyagent.ui.transcript import fold

BAD = "<script>alert(1)</script>\x1b[31m *x* \u202e"
EVENTS: list[Event] = [
    MessageReceived(message="1", sender="count-rows", text="<message>", said="344 rows", summary="344 rows"),
    MessageReceived(
        message="2", sender=BAD, text="", said=f"{BAD}\nand more", summary=BAD, kind="plan_request"
    ),
    ToolCalled(call="c1", name="send_message", input={"to": "*", "message": "enough"}),
    MessageSent(message="3", to=("a", "b"), said="enough", summary="enough", kind="shutdown_request", call="c1"),
    ToolReturned(call="c1", name="send_message", blocks=({"type": "text", "text": "Delivered"},)),
]


def test_what_came_and_went_is_one_line_each() -> None:
    items = fold(EVENTS)
    assert all(isinstance(item, MessageItem) for item in items)
    said = plain_text(items, "")
    assert "[← Message from count-rows: 344 rows]" in said
    assert "[→ Message to a, b, asks to shut down: enough]" in said
    assert "asks for approval of a plan" in said


def test_a_terminal_prints_each_once() -> None:
    file = io.StringIO()

    async def nobody(prompt: str) -> str:
        raise EOFError

    surface = TerminalSurface(nobody, file)
    surface.open()
    for event in EVENTS:
        surface.show(event)
    surface.close()
    printed = file.getvalue()
    assert printed.count("← Message from count-rows: 344 rows") == 1
    assert printed.count("→ Message to a, b, asks to shut down: enough") == 1
    assert "\x1b[31m" not in printed


def test_nothing_of_it_is_alive() -> None:
    items = fold(EVENTS)
    for look in (PANEL, STATIC):
        shown = "".join(item_html(item, look) for item in items)
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "and more" in shown, "the whole stands in a fold"
        assert shown.count("<details") == 1
    for text in (plain_text(items, ""), static_bundle(EVENTS, None)["text/markdown"]):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert re.search(r"(?<!\\)<", static_bundle(EVENTS, None)["text/markdown"]) is None
