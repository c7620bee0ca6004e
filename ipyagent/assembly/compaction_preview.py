"""One layer at a time: what the cheapest one would do if the window were full now, and what it comes to.

A step asks the layers in their order as the engine does, with the marks put down to where the prompt is, and
records what the first one decides that changes the prompt: an ordinary decision, frozen like any other, which
can be taken back. Looking ahead is the same question, to which no file is written, no hook called and no model
asked."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

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
from ipyagent.journal.protocols import Forked, ForkOrder, Layer, LayerContext, Moment, Rates, WindowState
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


class LayerPrice(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision costs once and saves with every later request. `written` tokens were in the provider's
    cache, or would be with the next request, and are written anew; `saved` tokens are read no more. `rates` are
    all 0.0 when no price is known; `usage` are the tokens of a model call that was made for it, `call` the
    dollars (None: not known). `rehearsed`: on the practice model, which costs nothing; the dollars are those of
    LESSON_MODEL."""

    written: int
    saved: int
    rates: Rates
    usage: Usage = Usage()
    call: float | None = 0.0
    rehearsed: bool = False

    @property
    def once(self) -> float:
        """Dollars for writing anew what would have been read, and for the call."""
        return self.written * (self.rates.write - self.rates.read) + (self.call or 0.0)

    @property
    def saving(self) -> float:
        """Dollars that each later request is cheaper."""
        return self.saved * self.rates.read


class LayerPreview(msgspec.Struct, frozen=True, kw_only=True):
    """A layer as it stands now: `acts` when it would change the prompt, `calls` when it would ask the model for
    that (what comes of it is not known before); `words` are its own. `made` are its decisions, not recorded."""

    layer: str
    acts: bool = False
    calls: bool = False
    words: str = ""
    made: tuple[Event, ...] = ()
    order: ForkOrder | None = None
    """What it would ask the model for."""


class LayerStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer did (`done`) or would do: tokens of the prompt by source before and after it (`after` None:
    only the model's answer would tell), its price, and in words what went. `event` is
    its decision (0: not made)."""

    layer: str
    done: bool
    before: dict[str, int]
    after: dict[str, int] | None
    price: LayerPrice | None
    words: str = ""
    calls: bool = False
    event: int = 0
    ahead: str = ""
    """What a call that was not made would cost, as the end of a sentence."""


class LayerStepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one `%compact --step`: the step (None: no layer would act), and the layers as they stand now,
    up to the first that would act."""

    step: LayerStep | None
    rungs: tuple[LayerPreview, ...]

    @property
    def following(self) -> LayerPreview | None:
        """The layer that would be next."""
        return self.rungs[-1] if self.rungs and self.rungs[-1].acts else None


class _Look(NamedTuple):
    layer: Layer
    now: LayerContext


async def stepped(engine: Engine, *, dry: bool, refused: str = "") -> LayerStepResult:
    """Take the next step, or (`dry`) only look at it. `refused`: why no call may be paid for. Raises CompactionFailed
    when the layer fails or may not ask the model."""
    session = engine.session
    rungs = await ladder(engine)
    following = rungs[-1] if rungs and rungs[-1].acts else None
    if following is None or dry:
        ahead = look_ahead(engine, following) if following is not None else None
        return LayerStepResult(step=ahead, rungs=tuple(rungs))
    if following.calls and refused:
        raise CompactionFailed(refused)
    before = session.journal.last
    made = await take_step(engine, following)
    if made is None:
        said = (event for event in session.journal.read() if event.id > before)
        why = [event.why for event in said if isinstance(event, LayerFailed)]
        raise CompactionFailed(
            f"nothing was changed: {'; '.join(why) or 'the layer found nothing to do'}{paid_words(session)}; "
            "try another step"
        )
    return LayerStepResult(step=made, rungs=tuple(await ladder(engine)))


def paid_words(session: Session) -> str:
    """What was paid although nothing came of it; "" for nothing."""
    return f"; it cost ${session.turn_cost:.4f}" if session.turn_cost else ""


async def ladder(engine: Engine) -> list[LayerPreview]:
    """The layers that can be stepped, cheapest first, up to the first that would act."""
    rungs: list[LayerPreview] = []
    for asked in _looks(engine):
        name = asked.layer.name
        if not engine.session.setting(f"layer_{name}"):
            rungs.append(LayerPreview(layer=name, words=f"switched off (IPyAgent.layer_{name})"))
        elif asked.now.moment == "mark" and _is_all_replaced(asked.now.view):
            rungs.append(LayerPreview(layer=name, words="the newest compaction is all there is"))
        else:
            rungs.append(await _rung(asked))
        if rungs[-1].acts:
            break
    return rungs


def _is_all_replaced(view: ContextView) -> bool:
    """Whether every message came from the newest decision: a summary of a summary is no step."""
    return view.undoable is not None and all(source == view.undoable for _, _, source in view.placed())


def _looks(engine: Engine) -> list[_Look]:
    found: list[_Look] = []
    for layer in known_layers():
        if layer.name == AT_THE_SERVER or not layer.moments & {"request", "mark"}:
            continue
        moment: Moment = "mark" if "mark" in layer.moments else "request"
        now = engine.situation(moment, "manual")
        if moment == "request":
            now = msgspec.structs.replace(now, state=_as_if_full(now.state), setting=_percent(now))
        found.append(_Look(layer, now))
    return found


def _as_if_full(state: WindowState) -> WindowState:
    """The state with its marks at the prompt's end, where they are not below it already."""
    tokens = state.tokens
    return msgspec.structs.replace(
        state,
        warning_mark=min(state.warning_mark, tokens),
        error_mark=min(state.error_mark, tokens),
        auto_mark=min(state.auto_mark, tokens),
        above_warning=True,
        above_error=True,
        above_auto=True,
    )


def _percent(now: LayerContext) -> Any:
    """The settings, with the mark of collapse where the prompt is."""
    reached, setting = 100 * now.state.tokens // max(1, now.state.effective), now.setting
    return lambda name: min(reached, setting(name)) if name == "collapse_percent" else setting(name)


async def _rung(asked: _Look) -> LayerPreview:
    """What the layer would do, without a trace."""
    name = asked.layer.name
    made = await look(asked.layer, asked.now)
    if isinstance(made, ForkOrder):
        return LayerPreview(layer=name, acts=True, calls=True, order=made)
    acts = any(isinstance(event, DECISIONS) for event in made)
    words = _words(made)
    if name == "notes" and not acts:
        words = "they would make it no smaller" if asked.now.noted else "none are written yet (IPyAgent.notes_start)"
    return LayerPreview(layer=name, acts=acts, words=words, made=tuple(made))


def _words(events: Sequence[Event]) -> str:
    return "; ".join(event.words for event in events if isinstance(event, LayerDecision) and event.words)


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


def look_ahead(engine: Engine, rung: LayerPreview) -> LayerStep:
    """What the rung's layer would do, as a step that is not done."""
    session, view = engine.session, engine.session.view
    if rung.calls:
        ahead = call_price(session, usage_of(session, rung.order)) if rung.order is not None else ""
        return LayerStep(
            layer=rung.layer, done=False, before=Shares().of(view), after=None, price=None, calls=True, ahead=ahead
        )
    after = ContextView.of(session.journal.read())
    for number, decision in enumerate(rung.made, session.journal.last + 1):
        after.apply(msgspec.structs.replace(decision, id=number))
        for each in bound_to(engine.with_head(decision)[1], number):
            after.apply(each)
    before = Shares().of(view)
    then = _then(before, Shares().estimated(view), after)
    return LayerStep(
        layer=rung.layer, done=False, before=before, after=then, price=_Before(session, before).price(after, then),
        words=_told(rung.made),
    )  # fmt: skip


async def take_step(engine: Engine, rung: LayerPreview) -> LayerStep | None:
    """Have the rung's layer act, and record what it decides; None when it failed, or nothing came of it."""
    session = engine.session
    sources, estimates, first = Shares().of(session.view), Shares().estimated(session.view), session.journal.last
    before = _Before(session, sources)
    asked = next(each for each in _looks(engine) if each.layer.name == rung.layer)
    recorded = [engine.record(event) for event in await engine.ask(asked.layer, asked.now) or ()]
    made = next((event for event in recorded if isinstance(event, DECISIONS)), None)
    if made is None:
        return None
    after = _then(sources, estimates, session.view)
    ended = (event for event in session.journal.read() if event.id > first and isinstance(event, ForkEnded))
    forks = [event for event in ended if event.purpose == PURPOSE]
    price = before.price(session.view, after, forks)
    return LayerStep(
        layer=rung.layer, done=True, before=sources, after=after, price=price, words=_told(recorded),
        calls=bool(forks), event=made.id,
    )  # fmt: skip


def _then(before: dict[str, int], estimates: dict[str, int], after: ContextView) -> dict[str, int]:
    """Tokens by source after a change, by the measure of those before it, which the server has counted as far as it
    could: our estimates of both, and what they were off by before."""
    off = sum(before.values()) / (sum(estimates.values()) or 1)
    return {
        source: before[source] if tokens == estimates[source] else round(tokens * off)
        for source, tokens in Shares().estimated(after).items()
    }


class _Before:
    """The prompt before a decision: its messages, its tokens by source, and how far the provider has it in its
    cache."""

    def __init__(self, session: Session, sources: dict[str, int]) -> None:
        view = session.view
        self._session = session
        self._messages, self._system = list(view.messages), view.system
        self._sources = sources
        idle = max(0.0, time.time() - session.history.said_at)
        held = view.held(len(self._messages), CACHE_SECONDS[session.setting("cache_ttl")] - idle)
        self._held = held
        self._behind = view.behind().tokens

    def price(self, after: ContextView, sources: dict[str, int], forks: Sequence[ForkEnded] = ()) -> LayerPrice:
        """What it costs that this became `after`, with tokens by source as in `sources`."""
        session = self._session
        start, messages = 0, after.messages
        while start < min(len(messages), len(self._messages)) and messages[start] == self._messages[start]:
            start += 1
        # what the provider did not hold would have had to be written all the same
        rest = self._behind[max(self._held, start)] if self._held > start else after.behind().tokens[start]
        system = after.head_tokens - estimate_blocks(after.tools) if after.system != self._system else 0
        written = round(max(0, after.behind().tokens[start] - rest + system) * after.calibration.factor)
        rates = session.rates()
        if not session.setting("prompt_cache"):
            rates, written = msgspec.structs.replace(rates, read=rates.input, write=rates.input), 0
        usage = sum((fork.usage for fork in forks), start=Usage())
        practice = session.info.model == "practice"
        costs = [cost_of(LESSON_MODEL, fork.usage) if practice else fork.cost for fork in forks]
        call = None if None in costs else sum(cost or 0.0 for cost in costs)
        saved = sum(self._sources.values()) - sum(sources.values())
        return LayerPrice(written=written, saved=saved, rates=rates, usage=usage, call=call, rehearsed=practice)


# ------------------------------------------------------------------ a call
# It is priced as the provider would bill it: what it can read from its cache, and what is written there anew because
# it was changed, came since, or was let go of.


def call_price(session: Session, usage: Usage) -> str:
    """What a call for a summary would cost, as the end of a sentence; "" when nothing is known or to be paid."""
    practice = session.info.model == "practice"
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


def usage_of(session: Session, order: ForkOrder) -> Usage:
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
    parts: list[str] = []
    if (step := stepped.step) is not None:
        parts.append(headline(step))
        table = [f"  {'':<20}{'before':>10}{'after':>10}{'change':>10}"]
        table += [f"  {name:<20}{old:>10}{new:>10}{change:>10}" for name, old, new, change in rows(step)]
        parts += ["\n".join(table), price_words(step)]
    parts.append("\n".join(next_lines(stepped)))
    return "\n\n".join(part for part in parts if part)


def name_of(layer: str) -> str:
    """What a step of a layer is called."""
    return NAMES.get(layer, layer)


def headline(step: LayerStep) -> str:
    """Which layer, whether it called the model, and its own words."""
    call = "one model call" if step.calls else "no model call"
    said = f": {step.words}" if step.words else ""
    return f"{'Done' if step.done else 'Next'}: {name_of(step.layer)} ({call}){said}"


def rows(step: LayerStep) -> list[tuple[str, str, str, str]]:
    """Source, tokens before, tokens after ("?" when only the model's answer tells), change; the sum last."""
    found = [name for name in SOURCES if step.before.get(name) or (step.after or {}).get(name)]
    if step.after is None:
        return [(name, f"{step.before[name]:,}", "?", "") for name in found] + [("in all", _sum(step.before), "?", "")]
    made = []
    for name in found:
        old, new = step.before.get(name, 0), step.after.get(name, 0)
        made.append((name, f"{old:,}", f"{new:,}", f"{new - old:+,}" if new != old else ""))
    total = sum(step.after.values()) - sum(step.before.values())
    return [*made, ("in all", _sum(step.before), _sum(step.after), f"{total:+,}" if total else "")]


def _sum(sources: dict[str, int]) -> str:
    return f"{sum(sources.values()):,}"


def price_words(step: LayerStep) -> str:
    """The arithmetic of the step as a sentence or two."""
    price = step.price
    if price is None:
        ahead = step.ahead.removeprefix(", ") or "the call reads the conversation and writes a summary"
        ahead = ahead.removeprefix("which costs ")
        return f"Price: {ahead}. How large the summary is, and what it saves, is known afterwards."
    known = bool(price.rates.input)
    return " ".join(["Price:", *_call(price), _written(price, known), _saved(price, known)])


def _call(price: LayerPrice) -> list[str]:
    if not price.usage.prompt:
        return []
    share = 100 * price.usage.cache_read / price.usage.prompt
    paid = "a price that is not known" if price.call is None else f"${price.call:.4f}"
    if price.rehearsed:
        paid = f"nothing (on {LESSON_MODEL} it would be {paid})"
    said = f"{price.usage.prompt:,} tokens ({share:.1f} % from the cache) and wrote {price.usage.output:,}"
    return [f"The call read {said}: {paid}."]


def _written(price: LayerPrice, known: bool) -> str:
    if not price.written:
        return "Nothing is written again that would not be written anyway."
    more = f", ${price.written * (price.rates.write - price.rates.read):.4f} more than reading them" if known else ""
    return f"The {price.written:,} tokens after the change are written to the cache again{more}."


def _saved(price: LayerPrice, known: bool) -> str:
    if price.saved <= 0:
        return "It saves nothing."
    fewer = f"Every later request has {price.saved:,} tokens fewer"
    if not known or price.call is None:
        return f"{fewer}."
    after = math.ceil(price.once / price.saving) if price.saving else 0
    pays = f"it pays for itself after {after:,} more request{'s' * (after != 1)}"
    paid = pays if after else "there is nothing to pay back"
    return f"{fewer}, ${price.saving:.4f} when they are read from the cache: {paid}."


def next_lines(stepped: LayerStepResult) -> list[str]:
    """The layers that are passed over with the reason, and which one would be next."""
    over = [f"{name} ({why})" for name, why in passed(stepped.rungs)]
    lines = [f"passed over: {'; '.join(over)}"] if over else []
    following = stepped.following
    if stepped.step is not None and not stepped.step.done:
        lines.append("nothing was done; run it with %compact --step")
    elif following is None:
        lines.append(f"next: {NOTHING}")
    else:
        call = "one model call" if following.calls else "no model call"
        lines.append(
            f"next: {name_of(following.layer)} ({call}); run it with %compact --step, preview it with --step --dry-run"
        )
    if stepped.step is not None and stepped.step.done:
        lines.append("undo this step with %compact --undo")
    return lines


def passed(rungs: Sequence[LayerPreview]) -> list[tuple[str, str]]:
    """Layers that are passed over, with the reason."""
    idle = [rung for rung in rungs if not rung.acts and rung.layer not in SELDOM]
    return [(name_of(rung.layer), rung.words or WHY_NOT.get(rung.layer, "nothing to do")) for rung in idle]
