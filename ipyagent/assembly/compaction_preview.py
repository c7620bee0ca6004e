"""One layer at a time: what the cheapest one would do if the window were full now, and what it comes to.

A step asks the layers in their order as the engine does, with the marks put down to where the prompt is, and
records what the first one decides that changes the prompt: an ordinary decision, frozen like any other, which
can be taken back. Looking ahead is the same question, to which no file is written, no hook called and no model
asked."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ipyagent.context.summarize import PURPOSE, shortened
from ipyagent.errors import CompactionFailed
from ipyagent.journal.blocks import CACHE_SECONDS, same_until
from ipyagent.journal.events import (
    Compacted,
    Event,
    ForkEnded,
    LayerDecision,
    LayerFailed,
    ResultsCleared,
    TurnCollapsed,
    Usage,
)
from ipyagent.journal.protocols import Forked, ForkOrder, Layer, LayerContext, Moment, Rates
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.journal.view import ContextView
from ipyagent.loop.context_engine import Engine, bound_to, known_layers
from ipyagent.loop.session import Session
from ipyagent.model.prices import LESSON_MODEL, cost_of, rates_of
from ipyagent.reports.timeline import SOURCES, Shares

# ---- A look at what a layer would decide: no file is written, no hook called and no model asked.


class _Asks(Exception):
    """The layer has come to where it asks the model."""

    def __init__(self, order: ForkOrder) -> None:
        super().__init__(order.purpose)
        self.order = order


async def look(layer: Layer, now: LayerContext) -> Sequence[Event] | ForkOrder:
    """The layer's decisions, not recorded; or what it would ask the model for, without which there are none. Raises
    what the layer raises."""

    async def ask(order: ForkOrder) -> Forked:
        raise _Asks(order)

    async def no_hook(name: str, facts: dict[str, Any]) -> list[str]:
        return []

    try:
        return await layer.consider(msgspec.structs.replace(now, dry=True, fork=ask, hook=no_hook))
    except _Asks as asked:
        return asked.order


DECISIONS = (ResultsCleared, TurnCollapsed, Compacted)
"""What changes the prompt."""
AT_THE_SERVER = "server_edits"
"""The layer whose work is done at the server, with the next request: nothing of it can be stepped."""


class LayerPreview(msgspec.Struct, frozen=True, kw_only=True):
    """A layer that would change the prompt now: `made` are its decisions, not recorded; or what it would ask the model
    for (what comes of that is not known before). `now` is what it looked at."""

    layer: Layer
    now: LayerContext
    made: Sequence[Event] | ForkOrder

    @property
    def title(self) -> str:
        """What its step is called, and whether it calls the model."""
        return _title(self.layer.name, isinstance(self.made, ForkOrder))


class LayerStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer did (`done`) or would do: tokens of the prompt by source before and after it (`after` None:
    only the model's answer would tell), in words what went and what it costs; `calls`: it asks the model."""

    layer: str
    done: bool
    before: dict[str, int]
    after: dict[str, int] | None
    price: str
    words: str = ""
    calls: bool = False


class LayerStepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one `%compact --step`: the step (None: no layer would act), and of the layers as they stand now
    what those that are passed over are called and why, and the one that would be next."""

    step: LayerStep | None
    passed: Sequence[tuple[str, str]] = ()
    following: LayerPreview | None = None


async def stepped(engine: Engine, *, dry: bool, refused: str = "") -> LayerStepResult:
    """Take the next step, or (`dry`) only look at it. `refused`: why no call may be paid for. Raises CompactionFailed
    when the layer fails or may not ask the model."""
    session = engine.session
    passed, following = await _ladder(engine)
    if following is None or dry:
        step = await _step(engine, following, dry=True) if following is not None else None
        return LayerStepResult(step=step, passed=passed, following=following)
    if isinstance(following.made, ForkOrder) and refused:
        raise CompactionFailed(refused)
    before = session.journal.last
    made = await _step(engine, following, dry=False)
    if made is None:
        said = (event for event in session.journal.read() if event.id > before)
        why = [event.why for event in said if isinstance(event, LayerFailed)]
        raise CompactionFailed(
            f"nothing was changed: {'; '.join(why) or 'the layer found nothing to do'}{paid_words(session)}; "
            "try another step"
        )
    passed, following = await _ladder(engine)
    return LayerStepResult(step=made, passed=passed, following=following)


def paid_words(session: Session) -> str:
    """What was paid although nothing came of it; "" for nothing."""
    return f"; it cost ${session.turn_cost:.4f}" if session.turn_cost else ""


async def _ladder(engine: Engine) -> tuple[list[tuple[str, str]], LayerPreview | None]:
    """The layers that can be stepped, cheapest first: those that would change nothing with the reason, and the first
    that would act. Each is asked as if the window were full now, without a trace."""
    passed: list[tuple[str, str]] = []
    for layer in known_layers():
        name = layer.name
        if name == AT_THE_SERVER or not layer.moments & {"request", "mark"}:
            continue
        moment: Moment = "mark" if "mark" in layer.moments else "request"
        now = engine.situation(moment, trigger="manual")
        placed, newest = now.view.placed(), now.view.undoable
        if not engine.session.setting(f"layer_{name}"):
            words = f"switched off (IPyAgent.layer_{name})"
        elif moment == "mark" and newest is not None and all(source == newest for _, _, source in placed):
            words = "the newest compaction is all there is"  # a summary of a summary is no step
        else:
            now = now if moment == "mark" else _as_if_full(now)
            made = await look(layer, now)
            if isinstance(made, ForkOrder) or any(isinstance(event, DECISIONS) for event in made):
                return passed, LayerPreview(layer=layer, now=now, made=made)
            words = "; ".join(event.words for event in made if isinstance(event, LayerDecision) and event.words)
            if name == "notes":
                words = "they would make it no smaller" if now.noted else "none are written yet (IPyAgent.notes_start)"
        if name not in SELDOM:
            passed.append((NAMES.get(name, name), words or WHY_NOT.get(name, "nothing to do")))
    return passed, None


def _as_if_full(now: LayerContext) -> LayerContext:
    """The same with its marks, and that of collapse, at the prompt's end, where they are not below it already."""
    state, setting = now.state, now.setting
    tokens, reached = state.tokens, 100 * state.tokens // max(1, state.effective)
    full = msgspec.structs.replace(
        state,
        warning_mark=min(state.warning_mark, tokens),
        error_mark=min(state.error_mark, tokens),
        auto_mark=min(state.auto_mark, tokens),
        above_warning=True,
        above_error=True,
        above_auto=True,
    )
    return msgspec.structs.replace(
        now,
        state=full,
        setting=lambda name: min(reached, setting(name)) if name == "collapse_percent" else setting(name),
    )


def _told(events: Sequence[Event]) -> str:
    """What goes, in words without figures: the table has them."""
    found: list[str] = []
    for event in events:
        match event:
            case ResultsCleared():
                count = len(event.calls)
                many = f"{count} old tool results are replaced by a line each"
                found.append("1 old tool result is replaced by a line" if count == 1 else many)
            case TurnCollapsed():
                found.append(f"the turn of events {event.first} to {event.last} is shortened")
            case Compacted():
                what = {"notes": "the notes", "server": "the provider's summary"}.get(event.method, "a summary")
                found.append(f"events {event.first} to {event.last} are replaced by {what}")
            case _:
                pass
    return "; ".join(found)


async def _step(engine: Engine, rung: LayerPreview, *, dry: bool) -> LayerStep | None:
    """Have the layer act, and record what it decides; or (`dry`) tell the same of what it would decide. None when it
    failed, or nothing came of it."""
    session, name = engine.session, rung.layer.name
    view, first = session.view, session.journal.last
    before, estimates = Shares().of(view), Shares().estimated(view)
    if dry and isinstance(rung.made, ForkOrder):
        ahead = call_price(session, rung.made).removeprefix(", ").removeprefix("which costs ")
        price = f"Price: {ahead or 'the call reads the conversation and writes a summary'}. "
        price += "How large the summary is, and what it saves, is known afterwards."
        return LayerStep(layer=name, done=False, before=before, after=None, price=price, calls=True)
    messages, system, behind = list(view.messages), view.system, view.behind().tokens
    idle = max(0.0, time.time() - session.history.said_at)
    held = view.held(len(messages), CACHE_SECONDS[session.setting("cache_ttl")] - idle)
    forks: list[ForkEnded] = []
    if dry:
        made = rung.made if not isinstance(rung.made, ForkOrder) else ()
        view = ContextView.of(session.journal.read())
        for number, decision in enumerate(made, first + 1):
            view.apply(msgspec.structs.replace(decision, id=number))
            for each in bound_to(engine.with_head(decision)[1], number):
                view.apply(each)
    else:
        made = [engine.record(event) for event in await engine.ask(rung.layer, rung.now) or ()]
        ended = (event for event in session.journal.read() if event.id > first and isinstance(event, ForkEnded))
        forks = [event for event in ended if event.purpose == PURPOSE]
    if not any(isinstance(event, DECISIONS) for event in made):
        return None
    # by the measure of what was before, which the server has counted as far as it could: our estimates of both, and
    # what they were off by before
    off = sum(before.values()) / (sum(estimates.values()) or 1)
    after = {
        source: before[source] if tokens == estimates[source] else round(tokens * off)
        for source, tokens in Shares().estimated(view).items()
    }
    same = same_until(messages, view.messages)
    # what the provider did not hold would have had to be written all the same
    rest = behind[max(held, same)] if held > same else view.behind().tokens[same]
    head = view.head_tokens - estimate_blocks(view.tools) if view.system != system else 0
    written = round(max(0, view.behind().tokens[same] - rest + head) * view.calibration.factor)
    rates, practice = session.rates(), session.info.model == "practice"
    if not session.setting("prompt_cache"):
        rates, written = msgspec.structs.replace(rates, read=rates.input, write=rates.input), 0
    costs = [cost_of(LESSON_MODEL, fork.usage) if practice else fork.cost for fork in forks]
    call = None if None in costs else sum(cost or 0.0 for cost in costs)
    usage, saved = sum((fork.usage for fork in forks), start=Usage()), sum(before.values()) - sum(after.values())
    price = _price(written, saved, rates, usage, call, rehearsed=practice)
    return LayerStep(
        layer=name, done=not dry, before=before, after=after, price=price, words=_told(made), calls=bool(forks)
    )


# ------------------------------------------------------------------ a call
# It is priced as the provider would bill it: what it can read from its cache, and what is written there anew because
# it was changed, came since, or was let go of.


def call_price(session: Session, order: ForkOrder) -> str:
    """What a call for a summary would cost, as the end of a sentence; "" when nothing is known or to be paid."""
    practice, usage = session.info.model == "practice", _usage(session, order)
    cost = cost_of(LESSON_MODEL if practice else session.info.model, usage, server=session.info.server)
    if not cost:
        return ""
    how = f"{usage.cache_read:,} tokens read from the cache, {usage.cache_write:,} written to it"
    how += f", {usage.input:,} beside it" if usage.input else ""
    how = how if session.setting("prompt_cache") else "the cache is off"
    each = rates_of(LESSON_MODEL if practice else session.info.model, prompt=usage.prompt, server=session.info.server)
    answer = f"and its answer, ${1_000 * each.output:.4f} for 1,000 tokens"
    if practice:
        return f", which costs nothing (on {LESSON_MODEL} it would be about ${cost:.4f}: {how}; {answer})"
    return f", about ${cost:.4f} ({how}) {answer}"


def _usage(session: Session, order: ForkOrder) -> Usage:
    """What the provider would count for the prompt of a fork, as far as we can tell; `output` is not known."""
    view, ttl = session.view, session.setting("cache_ttl")
    lifetime = CACHE_SECONDS[ttl] - max(0.0, time.time() - session.history.said_at)
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
        input=0 if written else new + said,
        cache_read=prompt - new,
        cache_write=written,
        cache_write_1h=written if ttl == "1h" else 0,
    )


def _tokens(message: dict[str, Any]) -> int:
    return estimate_blocks(message["content"])


# ------------------------------------------------------------------ in words

NAMES = {
    "clear_results": "clearing old tool results",
    "collapse": "collapsing a finished turn",
    "notes": "the session's notes",
    "server_compaction": "the provider's summary",
    "summarize": "a summary by the model",
}
"""What a step of each layer is called; others go by their own name."""
WHY_NOT = {
    "clear_results": "no old tool result is left that is worth clearing",
    "collapse": "no finished turn is worth it",
    "summarize": "there is nothing to summarise",
}
SELDOM = ("collapse", "server_compaction")
"""Layers that are off unless the user wants them: not spoken of when they do nothing."""
NOTHING = "no layer has anything left to do"


def step_text(stepped: LayerStepResult) -> str:
    """All of it as plain text."""
    step, following = stepped.step, stepped.following
    parts: list[str] = []
    if step is not None:
        parts.append(headline(step))
        table = [f"  {'':<20}{'before':>10}{'after':>10}{'change':>10}"]
        table += [f"  {name:<20}{old:>10}{new:>10}{change:>10}" for name, old, new, change in rows(step)]
        parts += ["\n".join(table), step.price]
    over = [f"{name} ({why})" for name, why in stepped.passed]
    lines = [f"passed over: {'; '.join(over)}"] if over else []
    if step is not None and not step.done:
        lines.append("nothing was done; run it with %compact --step")
    elif following is None:
        lines.append(f"next: {NOTHING}")
    else:
        lines.append(f"next: {following.title}; run it with %compact --step, preview it with --step --dry-run")
    if step is not None and step.done:
        lines.append("undo this step with %compact --undo")
    return "\n\n".join([*parts, "\n".join(lines)])


def _title(layer: str, calls: bool) -> str:
    return f"{NAMES.get(layer, layer)} ({'one' if calls else 'no'} model call)"


def headline(step: LayerStep) -> str:
    """Which layer, whether it called the model, and its own words."""
    said = f": {step.words}" if step.words else ""
    return f"{'Done' if step.done else 'Next'}: {_title(step.layer, step.calls)}{said}"


def rows(step: LayerStep) -> list[tuple[str, str, str, str]]:
    """Source, tokens before, tokens after ("?" when only the model's answer tells), change; the sum last."""
    then = step.after
    found = [name for name in SOURCES if step.before.get(name) or (then or {}).get(name)]
    sums = [(name, step.before.get(name, 0), (then or {}).get(name, 0)) for name in found]
    sums.append(("in all", sum(step.before.values()), sum((then or {}).values())))
    return [
        (name, f"{old:,}", "?" if then is None else f"{new:,}", f"{new - old:+,}" if then and new != old else "")
        for name, old, new in sums
    ]


def _price(written: int, saved: int, rates: Rates, usage: Usage, call: float | None, *, rehearsed: bool) -> str:
    """What a decision costs once and saves with every later request, as a sentence or two. `written` tokens were in the
    provider's cache, or would be with the next request, and are written anew; `saved` tokens are read no more. `rates`
    are all 0.0 when no price is known; `usage` are the tokens of a model call that was made for it, `call` the dollars
    (None: not known). `rehearsed`: on the practice model, which costs nothing; the dollars are LESSON_MODEL's."""
    known, said = bool(rates.input), ["Price:"]
    dearer, saving = written * (rates.write - rates.read), saved * rates.read
    if usage.prompt:
        share = 100 * usage.cache_read / usage.prompt
        paid = "a price that is not known" if call is None else f"${call:.4f}"
        if rehearsed:
            paid = f"nothing (on {LESSON_MODEL} it would be {paid})"
        read = f"{usage.prompt:,} tokens ({share:.1f} % from the cache) and wrote {usage.output:,}"
        said.append(f"The call read {read}: {paid}.")
    if written:
        more = f", ${dearer:.4f} more than reading them" if known else ""
        said.append(f"The {written:,} tokens after the change are written to the cache again{more}.")
    else:
        said.append("Nothing is written again that would not be written anyway.")
    fewer = f"Every later request has {saved:,} tokens fewer"
    if saved <= 0:
        said.append("It saves nothing.")
    elif not known or call is None:
        said.append(f"{fewer}.")
    else:
        after = math.ceil((dearer + call) / saving) if saving else 0
        pays = f"it pays for itself after {after:,} more request{'s' * (after != 1)}"
        paid = pays if after else "there is nothing to pay back"
        said.append(f"{fewer}, ${saving:.4f} when they are read from the cache: {paid}.")
    return " ".join(said)
