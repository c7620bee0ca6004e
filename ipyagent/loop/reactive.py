"""Compactions that come out of a request or its reply: the server found the prompt too long, then it
is compacted and asked once more; or the model called the `compact` tool."""

from __future__ import annotations

from ipyagent.context.gaps import stated_gap
from ipyagent.errors import PromptTooLong, TooLarge
from ipyagent.journal.events import Reminded
from ipyagent.journal.protocols import Reply
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.ask import ask
from ipyagent.loop.layers import Engine
from ipyagent.loop.session import Session

COMPACT_TOOL = "compact"
GO_ON = "The context window was full, so earlier parts are summarised above. Go on where you stopped."


async def ask_or_compact(session: Session, engine: Engine) -> Reply:
    """The next reply; when the prompt was too long, or the window ran out in the reply, once more
    after a compaction. Raises ModelError as `ask` does."""
    try:
        reply = await ask(session)
    except (PromptTooLong, TooLarge) as problem:
        gap = stated_gap(str(problem)) if isinstance(problem, PromptTooLong) else 0  # 413 counts bytes
        if not session.setting("layer_reactive") or not await engine.compact("reactive", gap=gap):
            raise
        return await ask(session)
    if reply.said.stop_reason == "model_context_window_exceeded" and session.setting("layer_reactive"):
        calls = any(block["type"] == "tool_use" for block in reply.said.blocks)
        if not calls and await engine.compact("reactive"):
            session.record(Reminded(text=GO_ON, why="window full, compacted", tokens=estimate_text(GO_ON)))
            return await ask(session)
    return reply


def wanted_compaction(reply: Reply) -> str | None:
    """The wishes for the summary when the reply called the `compact` tool; None when it did not."""
    for block in reply.said.blocks:
        if block["type"] == "tool_use" and block["name"] == COMPACT_TOOL and block["id"] not in reply.invalid:
            wish = block["input"].get("instructions", "")
            return wish if isinstance(wish, str) else ""
    return None
