"""Compactions that come out of a request or its reply: the prompt was too long, by our count or the
server's, then it is compacted and asked once more; or the model called the `compact` tool.

Where nothing can be compacted, the turn that made the prompt too long leaves the view, so that the
session goes on; its text stays in the journal.
"""

from __future__ import annotations

import msgspec

from ipyagent.context.gaps import stated_gap
from ipyagent.errors import PromptTooLong, TooLarge
from ipyagent.journal.admission import text_block
from ipyagent.journal.events import Reminded, Snipped
from ipyagent.journal.protocols import Reply
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.ask import ask
from ipyagent.loop.layers import Engine
from ipyagent.loop.session import Session

COMPACT_TOOL = "compact"
LEFT_OUT = (
    "(A request of the user was too large for the context window. It is left out here, with what was done for "
    "it, and was not answered; the user knows.)"
)
GO_ON = "The context window was full, so earlier parts are summarised above. Go on where you stopped."


async def ask_or_compact(session: Session, engine: Engine) -> Reply:
    """The next reply; when the prompt was too long, or the window ran out in the reply, once more
    after a compaction. Raises ModelError as `ask` does."""
    try:
        reply = await ask(session)
    except (PromptTooLong, TooLarge) as problem:
        if not session.setting("layer_reactive"):
            raise
        gap = stated_gap(str(problem)) if isinstance(problem, PromptTooLong) else 0  # 413 counts bytes
        before = session.view.count().tokens
        made = await engine.compact("reactive", gap=gap)
        if made is None and session.view.count().tokens >= before:
            raise _set_aside(session, problem) from None
        try:
            return await ask(session)
        except (PromptTooLong, TooLarge) as again:
            raise _set_aside(session, again) from None
    if reply.said.stop_reason == "model_context_window_exceeded" and session.setting("layer_reactive"):
        calls = any(block["type"] == "tool_use" for block in reply.said.blocks)
        if not calls and await engine.compact("reactive"):
            session.record(Reminded(text=GO_ON, why="window full, compacted", tokens=estimate_text(GO_ON)))
            return await ask(session)
    return reply


def _set_aside(session: Session, problem: PromptTooLong | TooLarge) -> PromptTooLong | TooLarge:
    """Take the newest turn out of the view and say so; the problem itself where that would not help."""
    view, turns = session.view, session.history.turns
    if not turns or view.open_calls:
        return problem
    before = view.count().tokens
    made = Snipped(first=turns[-1].first, last=session.journal.last, blocks=(text_block(LEFT_OUT),))
    after = view.tokens_after(made)
    if after is None or after >= before or session.state(after).blocked:
        return problem
    session.record(msgspec.structs.replace(made, saved=before - after))
    state = session.state(before)
    why = f"{before:,} of {state.window:,} tokens with it" if state.blocked else str(problem).partition(":")[0]
    return type(problem)(
        f"the request was too large and was set aside: the window is full ({why}); its text stays in the cell and "
        "the journal; ask for less at once, or choose a model with a larger window",
        kind="set_aside",
        request_id=problem.request_id,
    )


def wanted_compaction(reply: Reply) -> str | None:
    """The wishes for the summary when the reply called the `compact` tool; None when it did not."""
    for block in reply.said.blocks:
        if block["type"] == "tool_use" and block["name"] == COMPACT_TOOL and block["id"] not in reply.invalid:
            wish = block["input"].get("instructions", "")
            return wish if isinstance(wish, str) else ""
    return None
