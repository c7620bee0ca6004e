"""A message between agents in a cell: one line that says who wrote to whom and what about; its words in a fold."""

from __future__ import annotations

from collections.abc import Callable

from ipyagent.escape import escape, line, plain
from ipyagent.journal.events import MessageKind, MessageReceived, MessageSent
from ipyagent.ui.items import MessageItem
from ipyagent.ui.look import Theme

_KINDS: dict[MessageKind, str] = {
    "text": "", "shutdown_request": "asks to shut down", "shutdown_response": "has shut down",
    "plan_request": "asks for approval of a plan", "plan_response": "answers a plan",
}  # fmt: skip
_SHOWN = 4_000


def message_item(event: MessageReceived | MessageSent, key: str) -> MessageItem:
    """The item of a message that came or went."""
    if isinstance(event, MessageReceived):
        return MessageItem(key, "from", event.sender, event.kind, event.summary, event.said)
    return MessageItem(key, "to", ", ".join(event.to), event.kind, event.summary, event.said)


def message_words(item: MessageItem) -> str:
    """"Message from count-rows: 344 rows", "Message to all, asks to shut down: enough"."""
    kind = f", {_KINDS[item.kind]}" if _KINDS[item.kind] else ""
    return f"Message {item.way} {line(item.who, 80)}{kind}: {line(item.summary, 160)}"


def message_line(item: MessageItem) -> str:
    """The same with its sign."""
    return f"{'←' if item.way == 'from' else '→'} {message_words(item)}"


def message_markdown(item: MessageItem, words: Callable[[str], str]) -> str:
    """The line as Markdown; `words` makes text in which nothing is Markdown."""
    return f"*{words(message_line(item))}*"


def message_html(item: MessageItem, look: Theme) -> str:
    """The line, and the whole message in a fold when it says more."""
    head, _, rest = message_words(item).partition(": ")
    sign = "←" if item.way == "from" else "→"
    shown = (
        f'<span class="ia-icon" aria-hidden="true">{sign}</span> <span><b>{escape(head)}</b> {escape(rest)}</span>'
    )
    text = plain(item.text).strip()
    if " ".join(text.split()) == item.summary.strip():
        return f"<div {look.kind('ia-note', 'ia-message', 'ia-notice')}>{shown}</div>"
    cut = text if len(text) <= _SHOWN else text[:_SHOWN] + "\n… (%agent messages shows all)"
    return (
        f'<details class="ia-fold"><summary {look.kind("ia-line")}>{shown}</summary>'
        f"<pre {look.kind('ia-thought')}>{escape(cut)}</pre></details>"
    )
