"""Compactions that come out of a request or its reply: the prompt was too long, by our count or the
server's, then it is compacted and asked once more; or the model called the `compact` tool.

Where nothing can be compacted, the request that made the prompt too long leaves the view, and nothing else
does: what was decided meanwhile (a summary, turns taken out) and what came from others stays.
"""

from __future__ import annotations

import msgspec

from ipyagent.context.archive import left_ranges
from ipyagent.context.gaps import stated_gap
from ipyagent.errors import BadRequest, PromptTooLong, TooLarge
from ipyagent.journal.admission import text_block
from ipyagent.journal.events import Block, Compacted, MessageReceived, SystemReminder, TurnCollapsed, TurnsRemoved
from ipyagent.journal.protocols import ModelReply
from ipyagent.journal.tokens import estimate_text
from ipyagent.loop.ask import ask
from ipyagent.loop.layers import Engine
from ipyagent.loop.session import Session

COMPACT_TOOL = "compact"
NEAR_WINDOW = 0.8
"""A refusal without a known reason is taken for one of size from this share of the window on."""
LEFT_OUT = (
    "(A request of the user was too large and was taken out of the conversation here{more}. It was not answered; the "
    "user knows.{kept})"
)
NOT_COMPACTED = "Nothing was compacted: {tokens:,} of {window:,} tokens are in use; {why}. Go on with the request."
GO_ON = "The context window was full, so earlier parts are summarised above. Go on where you stopped."


async def ask_or_compact(session: Session, engine: Engine) -> ModelReply:
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
        return await _ask_again(session)
    except BadRequest as problem:
        # a wording that nobody knew: near the window it is tried once with less
        tokens = session.view.count().tokens
        near = tokens >= NEAR_WINDOW * session.state(tokens).window
        if not near or not session.setting("layer_reactive") or await engine.compact("reactive") is None:
            raise problem from None
        return await _ask_again(session)
    if reply.said.stop_reason == "model_context_window_exceeded" and session.setting("layer_reactive"):
        calls = any(block["type"] == "tool_use" for block in reply.said.blocks)
        if not calls and await engine.compact("reactive"):
            session.record(SystemReminder(text=GO_ON, why="window full, compacted", tokens=estimate_text(GO_ON)))
            return await _ask_again(session)
    return reply


async def _ask_again(session: Session) -> ModelReply:
    """The next reply after a compaction; what is too long all the same is set aside."""
    try:
        return await ask(session)
    except (PromptTooLong, TooLarge) as problem:
        raise _set_aside(session, problem) from None


def _set_aside(session: Session, problem: PromptTooLong | TooLarge) -> PromptTooLong | TooLarge:
    """Take the newest request, and what was done for it, out of the view and say so; the problem itself where that
    would not help."""
    view, turns, last = session.view, session.history.turns, session.journal.last
    if not turns or view.open_calls:
        return problem
    first = turns[-1].first
    stays, summary = _staying(session, first)
    before = view.count().tokens
    left = left_ranges(view, session.journal.folder, [(first, last)])
    replies = len({source for role, _, source in view.placed() if role == "assistant" and source > first})
    with_it = f", with the {replies} {'reply' if replies == 1 else 'replies'} to it" if replies else ""

    def snipped(path: str) -> TurnsRemoved:
        kept = f" It is kept word for word in {path} (grep it, read_file with offset)." if path else ""
        return TurnsRemoved(
            first=first, last=last, blocks=(*stays, text_block(LEFT_OUT.format(more=with_it, kept=kept)))
        )

    made = snipped(left.path if left is not None else "")
    after = view.tokens_after(made)
    if after is None or after >= before or session.state(after).blocked:
        return problem
    if left is not None and left.write():  # the disk failed: nothing names what is not there
        made = snipped("")
    session.record(msgspec.structs.replace(made, saved=before - after))
    state, said = session.state(before), str(problem).rpartition("): ")[0]
    why = (
        f"the window is full, {before:,} of {state.window:,} tokens with it"
        if state.blocked or not said
        else f"{said})"
    )
    return type(problem)(
        f"the request was too large and was set aside{with_it}: {why}; what was there before it still is"
        f"{', as the summary that was made of it' if summary else ''}; %compact --undo puts the request back into the "
        "conversation; ask for less at once, or choose a model with a larger window",
        kind="set_aside",
        request_id=problem.request_id,
    )


def _staying(session: Session, first: int) -> tuple[list[Block], bool]:
    """What stands in the view since event `first`, the newest request, and is no part of it: decisions about what was
    before, without the request itself where they have it word for word; messages of others; notes of ours that are
    given only once. And whether a summary is among them."""
    shown = {source for _, _, source in session.view.placed() if source > first}
    stays: list[Block] = []
    summary = False
    for event in session.journal.read() if shown else ():
        if event.id not in shown:
            continue
        match event:
            case Compacted() if event.last >= first:
                asked = range(*event.asked)
                stays += [block for at, block in enumerate(event.blocks) if at not in asked]
                summary = True
            case TurnsRemoved() | TurnCollapsed() if event.last >= first:
                stays += event.blocks
            case MessageReceived() | SystemReminder() if isinstance(event, MessageReceived) or event.upto:
                stays.append(text_block(event.text))
            case _:
                pass
    return stays, summary


async def compact_as_wished(session: Session, engine: Engine, wish: str) -> None:
    """The compaction that the model asked for; where none is made, the model is told why, with the numbers."""
    before = session.view.count().tokens
    made = await engine.compact("model", instructions=wish)
    tokens = session.view.count().tokens
    if made is None and tokens >= before:
        window = session.state(tokens).window
        said = NOT_COMPACTED.format(tokens=tokens, window=window, why=engine.why_not)
        session.record(SystemReminder(text=said, why="nothing compacted", tokens=estimate_text(said)))


def wanted_compaction(reply: ModelReply) -> str | None:
    """The wishes for the summary when the reply called the `compact` tool; None when it did not."""
    for block in reply.said.blocks:
        if block["type"] == "tool_use" and block["name"] == COMPACT_TOOL and block["id"] not in reply.invalid:
            wish = block["input"].get("instructions", "")
            return wish if isinstance(wish, str) else ""
    return None
