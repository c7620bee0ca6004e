"""A request that the server found too long: compact, then ask once more, once a turn's request."""

from __future__ import annotations

import re

from ipyagent.errors import PromptTooLong, TooLarge
from ipyagent.journal.events import Reminded
from ipyagent.journal.protocols import Reply
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.ask import ask
from ipyagent.loop.layers import Engine
from ipyagent.loop.session import Session

GO_ON = "The context window was full, so earlier parts are summarised above. Go on where you stopped."
_NUMBERS = re.compile(r"(\d[\d,]*)\D+(?:>|of|exceeds?)\D*?(\d[\d,]*)")


async def ask_or_compact(session: Session, engine: Engine) -> Reply:
    """The next reply; when the prompt was too long, or the window ran out in the reply, once more
    after a compaction. Raises ModelError as `ask` does."""
    try:
        reply = await ask(session)
    except (PromptTooLong, TooLarge) as problem:
        if not session.setting("layer_reactive") or not await engine.compact("reactive", gap=stated_gap(str(problem))):
            raise
        return await ask(session)
    if reply.said.stop_reason == "model_context_window_exceeded" and session.setting("layer_reactive"):
        calls = any(block["type"] == "tool_use" for block in reply.said.blocks)
        if not calls and await engine.compact("reactive"):
            session.record(Reminded(text=GO_ON, why="window full, compacted", tokens=estimate_text(GO_ON)))
            return await ask(session)
    return reply


def stated_gap(message: str) -> int:
    """The tokens by which a server says the prompt is too long ("N tokens > M maximum"); 0 when it
    does not say."""
    match = _NUMBERS.search(message)
    if match is None:
        return 0
    have, limit = (int(number.replace(",", "")) for number in match.groups())
    return max(0, have - limit)
