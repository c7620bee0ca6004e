"""What `%compact` would do now: its layers are asked in the same order, with the same range and wishes.

A call for a summary is priced as the provider would bill it: what it can read from its cache, and what is written
there anew because it was changed, came since, or was let go of.
"""

from __future__ import annotations

import time
from typing import Any

from ipyagent.assembly.looking import look
from ipyagent.context.clear_results import TTL
from ipyagent.context.gaps import shortened
from ipyagent.context.ranges import whole_turns
from ipyagent.context.summarize import TOO_LITTLE
from ipyagent.errors import AgentError, CompactionFailed
from ipyagent.journal.events import Compacted, LayerDecided, Usage
from ipyagent.journal.protocols import ForkOrder
from ipyagent.journal.rewriting import same_until
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.loop.layers import Engine
from ipyagent.loop.session import Session
from ipyagent.model.prices import LESSON_MODEL, cost_of

NO_LAYER = "no layer is on (the settings IPyAgent.layer_…)"


async def foreseen(
    engine: Engine, *, instructions: str = "", first: int = 0, last: int = 0
) -> ForkOrder | Compacted:
    """What a compaction of events `first` to `last` (0: open) would ask the model for; its boundary where that needs
    no call. Raises CompactionFailed when none would come about."""
    now = engine.situation("mark", "manual", instructions, first, last)
    why: list[str] = []
    for layer in engine.enabled("mark"):
        try:
            found = await look(layer, now)
        except AgentError as problem:  # the next layer would be asked
            why.append(" ".join(str(problem).split()))
            continue
        if isinstance(found, ForkOrder):
            return found
        if made := next((event for event in found if isinstance(event, Compacted)), None):
            return made
        why += [event.words for event in found if isinstance(event, LayerDecided)]
    said = "; ".join(dict.fromkeys(each.removeprefix(TOO_LITTLE) for each in why)) or NO_LAYER
    raise CompactionFailed(f"nothing would be compacted: {said}; %context shows what fills the window")


async def forecast(engine: Engine, words: str, *, instructions: str = "", first: int = 0, last: int = 0) -> str:
    """The same in two lines; the user calls the range `words`."""
    made = await foreseen(engine, instructions=instructions, first=first, last=last)
    if isinstance(made, ForkOrder):
        return _called(engine.session, made, words, first, last)
    kept = ["what follows the notes"] if made.method == "notes" else []
    stay = ", ".join(["system prompt, tools and your newest request", *kept, *made.restored])
    return (
        f"would compact {words} ({made.method}): {made.tokens_before:,} → about {made.tokens_after:,} tokens, "
        f"no model call\nstill there: {stay}; nothing was done"
    )


def _called(session: Session, order: ForkOrder, words: str, first: int, last: int) -> str:
    """The model, or the provider by itself, would be asked for a summary."""
    view = session.view
    gone = whole_turns(view, [turn.first for turn in session.history.turns], first, last)
    before = view.count().tokens
    goes = min(view.scaled(gone.tokens), max(0, before - view.head_counted))  # some of it may be left out already
    who = "have the provider summarise" if order.by_server else "summarise"
    usage = usage_of(session, order)
    return (
        f"would {who} {words}, about {goes:,} of {before:,} tokens, in one model call{_price(session, usage)}\n"
        f"{max(0, before - goes):,} tokens stay as they are, your newest request stays word for word; nothing was done"
    )


def _price(session: Session, usage: Usage) -> str:
    practice = session.info.model == "practice"
    cost = cost_of(LESSON_MODEL if practice else session.info.model, usage, server=session.info.server)
    if not cost:
        return ""
    how = f"{usage.cache_read:,} tokens read from the cache, {usage.cache_write:,} written to it"
    how += f", {usage.input:,} beside it" if usage.input else ""
    how = how if session.setting("prompt_cache") else "the cache is off"
    if practice:
        return f", which costs nothing (on {LESSON_MODEL} it would be about ${cost:.4f}: {how}; and its answer)"
    return f", about ${cost:.4f} ({how}) and its answer"


def usage_of(session: Session, order: ForkOrder) -> Usage:
    """What the provider would count for the prompt of a fork, as far as we can tell; `output` is not known."""
    view, ttl = session.view, session.setting("cache_ttl")
    lifetime = TTL[ttl] - max(0.0, time.time() - session.history.said_at)
    whole = view.messages
    messages = shortened(whole, order)
    held = view.held(len(whole), lifetime)
    if messages is not whole:
        held = min(held, same_until(messages, whole))
    left_out = sum(map(_tokens, whole)) - sum(map(_tokens, messages))
    prompt = view.count().tokens - view.scaled(left_out)
    rest = view.scaled(sum(map(_tokens, messages[held:])))
    if order.by_server and any(edit.cleared for edit in session.history.server_edits.values()):
        # the provider summarises all that it had left out, too: that is in no prompt that it has cached
        rest = round(view.calibration.factor * sum(map(_tokens, messages)))
        prompt = round(view.calibration.factor * view.head_tokens) + rest
    rest = rest if view.can_read(lifetime) else prompt
    said = estimate_text(order.directive)
    if not session.setting("prompt_cache"):
        return Usage(input=prompt + said)
    new, once = min(rest, prompt), order.permit is None or order.enough is not None
    written = new + said if order.by_server or not once else 0  # one request marks nothing for others to read
    return Usage(
        input=0 if written else new + said, cache_read=prompt - new, cache_write=written,
        cache_write_1h=written if ttl == "1h" else 0,
    )


def _tokens(message: dict[str, Any]) -> int:
    return estimate_blocks(message["content"])
