"""Where the layers of the context engine are asked, in order; one that fails steps aside.

All three triggers of a compaction (the mark, the user, the model) and the reactive one go through
`compact`. After `compact_failures` failures in a row the automatic one stops for the session and
says so; a second automatic one within `compact_thrash_turns` turns is refused with the reason."""

from __future__ import annotations

import asyncio
import math
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from ipyagent.context.removed_content import left_ranges
from ipyagent.context.summarize import stated_gap
from ipyagent.context.thresholds import near_threshold
from ipyagent.errors import AgentError, BadRequest, JournalError, PromptTooLong, TooLarge
from ipyagent.journal.blocks import CACHE_SECONDS, text_block
from ipyagent.journal.events import (
    Block,
    Compacted,
    Event,
    LayerDecision,
    LayerFailed,
    MessageReceived,
    SystemPromptFrozen,
    SystemReminder,
    TurnCollapsed,
    TurnsRemoved,
)
from ipyagent.journal.protocols import Forked, ForkOrder, Layer, LayerContext, ModelReply, Moment, Workspace
from ipyagent.journal.tokens import estimate_blocks, estimate_text
from ipyagent.loop.fork import run_fork
from ipyagent.loop.hooks import hooks
from ipyagent.loop.model_call import ask
from ipyagent.loop.session import Session
from ipyagent.loop.tool_calls import place_of
from ipyagent.model.prices import LESSON_MODEL, cost_of

E = TypeVar("E", bound=Event)

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
COLLAPSING = "finished turns are collapsed instead of compacted; %compact still works (IPyAgent.layer_collapse)"
"""While collapse is on, automatic compaction stands back; the reactive one stays."""

BREAKER = "compaction"
"""Name under which the circuit breaker journals itself."""
OFF = (
    "automatic compaction is off after repeated failures; %compact still works, or start a new session "
    "with %agent new"
)


class Asked(TypedDict, total=False):
    """What a compaction was asked to be, see `LayerContext`."""

    instructions: str
    first: int
    last: int
    gap: int


@cache
def known_layers() -> tuple[Layer, ...]:
    """Every layer there is, cheapest first: the named objects of the modules of `ipyagent.context`."""
    import ipyagent.context as package

    found: list[Layer] = []
    for module in pkgutil.iter_modules(package.__path__):
        for name, value in vars(import_module(f"{package.__name__}.{module.name}")).items():
            if hasattr(value, "consider") and getattr(value, "name", None) == name and value not in found:
                found.append(value)
    return tuple(sorted(found, key=lambda layer: layer.order))


def _differs(before: str, words: str) -> bool:
    """Whether words say something else: other words, or a number that has doubled or halved."""
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", words):
        return True
    pairs = zip(_NUMBER.findall(before), _NUMBER.findall(words), strict=True)
    values = [(float(old.replace(",", "")), float(new.replace(",", ""))) for old, new in pairs]
    return any(max(pair) > 2 * min(pair) for pair in values)


def bound_to(head: Sequence[Event], compaction: int) -> Iterator[Event]:
    """The head that comes, and goes, with the compaction of an event."""
    for event in head:
        whole = isinstance(event, SystemPromptFrozen)
        yield msgspec.structs.replace(event, compaction=compaction) if whole else event


class Engine:
    """The layers at work on one session. `workspace` serves forks and what is restored; what they
    cost is the turn's, or, after the turn (`behind`), counted in `spent`. `beside` may add other work to the order
    of a fork, and is told how the fork ended."""

    def __init__(
        self,
        session: Session,
        workspace: Workspace,
        *,
        behind: bool = False,
        beside: Callable[[ForkOrder], tuple[ForkOrder, Callable[[Forked], None]]] | None = None,
    ) -> None:
        self.session = session
        self._beside = beside or (lambda order: (order, lambda forked: None))
        self.workspace = workspace
        self.spent = 0.0
        """US dollars of work behind the turn, as far as prices are known."""
        self._behind = behind
        self._begun = False
        """Whether a request of this turn has gone out."""
        self._wished = False
        """Whether the model has asked for a compaction in this turn, and there was something to compact."""
        self.why_not = ""
        """Why the last compaction was not made."""

    async def before_request(self) -> None:
        """The cheap layers, then a compaction when the threshold is reached; a free one already when a turn begins
        near it: within the turn, notes may lack too much of it, and thinking may forbid everything but a summary."""
        await self.ask_all("request")
        session, begins, self._begun = self.session, not self._begun, True
        state = session.state(session.view.count().tokens)
        near = near_threshold(state, session.setting("store_chars"))
        if begins and near and not state.above_auto and not self._held_back():
            await self.ask_all("near")
        if session.state(session.view.count().tokens).above_auto:
            line = self._held_back()
            if line:
                self._say_once(line)
            else:
                await self.compact("auto")

    async def compact(self, trigger: str, **asked: Unpack[Asked]) -> Compacted | None:
        """Bring the context under the mark; the boundary, or None when no layer could.

        The conversation stays as it was when nothing could be done, and after a stop, which is no failure.
        """
        if trigger == "reactive" and self._is_off:
            self._say_once(OFF)
            return None
        if trigger == "model" and self._wished:
            self.why_not = "a second compaction within one turn is not made"
            self._say_once("the model asked for a second compaction within one turn, which was refused")
            return None
        self.why_not = "there is nothing to compact"
        try:
            made, failed = await self._compact(trigger, asked)
        except asyncio.CancelledError:
            words = "the compaction was stopped; the conversation is unchanged"
            self.session.record(LayerDecision(layer=BREAKER, words=words))
            raise
        self._wished = self._wished or (trigger == "model" and (failed or made is not None))
        if made is None and failed:
            self.why_not = "it failed, the conversation is unchanged"
            self._count_failure("compaction failed")
        elif made is None:
            self._say_once("there is nothing to compact")
        return made

    async def _compact(self, trigger: str, asked: Asked) -> tuple[Compacted | None, bool]:
        """The boundary, and whether a layer failed."""
        session = self.session
        moment: Moment = "overflow" if trigger == "reactive" else "mark"
        before = session.view.count().tokens
        made: Compacted | None = None
        failed = False
        session.show_phase("compacting")
        for layer in self.enabled("mark"):
            paid = self._so_far
            events = await self.ask(layer, self.situation(moment, trigger, **asked))
            failed = failed or events is None
            if words := [event.words for event in events or () if isinstance(event, LayerDecision)]:
                self.why_not = words[-1]
            news = (events or ()) if trigger == "manual" else self._news(events or ())
            recorded = [self.record(event, paid) for event in news]
            made = next((event for event in recorded if isinstance(event, Compacted)), made)
            after = session.view.count().tokens
            if made is not None and (trigger == "manual" or not session.state(after).above_auto):
                break
            if recorded and made is None and after < before and not session.state(after).above_auto:
                break
        return made, failed

    def _count_failure(self, what: str) -> None:
        session = self.session
        count = session.history.compact_failures + 1
        stopped = count >= session.setting("compact_failures")
        why = f"{what}, {count} failures in a row; " if count > 1 else f"{what}; "
        why += OFF if stopped else "the conversation is unchanged"
        session.record(LayerFailed(layer=BREAKER, why=why, stopped=stopped))

    # ------------------------------------------------------------------ asking

    def _held_back(self) -> str:
        """Why no automatic compaction is tried now ("" when it is)."""
        if self.session.setting("layer_collapse"):
            return COLLAPSING
        history, session = self.session.history, self.session
        if self._is_off:
            return OFF
        since = history.replies - history.compacted_at
        if history.compacted_at >= 0 and since < session.setting("compact_thrash_turns"):
            view = session.view
            state = session.state(view.count().tokens)
            head = round(view.head_tokens * view.calibration.factor)
            return (
                f"the window is full again {since} replies after a compaction: {state.tokens:,} tokens, threshold "
                f"{state.auto_mark:,}; system prompt and tools take {head:,}, the conversation since "
                f"{max(0, state.tokens - head):,}; see %context, then ask for less at once or choose a larger window"
            )
        return ""

    @property
    def _is_off(self) -> bool:
        return bool(self.session.history.compact_failures >= self.session.setting("compact_failures"))

    def _say_once(self, line: str) -> None:
        event = LayerDecision(layer=BREAKER, words=line)
        if self._is_news(event):
            self.session.record(event)

    async def ask_all(self, moment: Moment) -> None:
        """Have the layers of a moment decide: "results" are in and none is sent yet, a turn has ended ("turn_end")."""
        for layer in self.enabled(moment):
            paid = self._so_far
            for event in self._news(await self.ask(layer, self.situation(moment)) or ()):
                self.record(event, paid)

    def with_head(self, event: E) -> tuple[E, Sequence[Event]]:
        """A compaction told with the tokens of the head that comes with it, and that head; any other decision, and one
        that leaves the head as it is, as it was given."""
        session, view = self.session, self.session.view
        if not isinstance(event, Compacted) or not view.replaces_all_before(event):
            return event, ()
        head = session.renewed()
        more = sum(each.tokens - view.head_tokens for each in head if isinstance(each, SystemPromptFrozen))
        after = event.tokens_after + round(more * view.calibration.factor)
        return msgspec.structs.replace(event, tokens_after=after), head

    def record(self, event: Event, paid: float | None = None) -> Event:
        """Record a layer's decision, a compaction with its head; `paid`: dollars before the layer was asked."""
        session = self.session
        event, head = self.with_head(event)
        made = session.record(self._with_price(event, paid, anew=bool(head)))
        if session.view.begins_with(made.id):
            for each in bound_to(head, made.id):
                session.record(each)
        return made

    @property
    def _so_far(self) -> float | None:
        """What was paid until now in dollars, on the practice model by the lessons' prices; None when a price was not
        known."""
        if self.session.info.model == "practice":
            paid = self.session.history.spent.get("compaction")
            return cost_of(LESSON_MODEL, paid.usage) if paid is not None else 0.0
        return self.spent if self._behind else self.session.turn_cost

    def _with_price(self, event: Event, paid: float | None, *, anew: bool) -> Event:
        """A compaction with the number of requests that pay it back; `paid`: dollars before the layer was asked,
        `anew`: the system prompt is another one from here on, and only the tools are still held."""
        session, view, now = self.session, self.session.view, self._so_far
        rates = session.rates()
        if not isinstance(event, Compacted) or not rates.read or paid is None or now is None:
            return event
        saved, written = event.tokens_before - event.tokens_after, 0
        if session.setting("prompt_cache"):
            idle = max(0.0, session.watch.clock() - session.history.said_at)
            held = view.held(len(view.messages), CACHE_SECONDS[session.limits.cache_ttl] - idle)
            anyway = view.behind().tokens[held]  # the provider holds nothing of that
            stays = estimate_blocks(block for _, block, source in view.placed() if source < event.first)
            held_head = view.scaled(estimate_blocks(view.tools)) if anew else view.head_counted
            written = max(0, event.tokens_after - held_head - view.scaled(anyway + stays))
        once = written * (rates.write - rates.read) + now - paid
        each = saved * (rates.read if session.setting("prompt_cache") else rates.input)
        return msgspec.structs.replace(event, paid_back=math.ceil(once / each)) if saved > 0 else event

    def _news(self, events: Sequence[Event]) -> Iterator[Event]:
        """What of a layer's answer is worth a line of the journal: all of it where the layer did something."""
        acted = any(not isinstance(event, LayerDecision | SystemReminder) for event in events)
        return (event for event in events if acted or not isinstance(event, LayerDecision) or self._is_news(event))

    def _is_news(self, event: LayerDecision) -> bool:
        """Whether that nothing was done is worth a line of the journal: a layer says so once a turn at most, and none
        says the same twice in a row."""
        history = self.session.history
        before = history.decided.get(event.layer, LayerDecision(layer=event.layer, words=""))
        began = history.turns[-1].first if history.turns else 0
        return _differs(before.words, event.words) and before.id < began

    def enabled(self, moment: Moment) -> list[Layer]:
        """The layers that are asked at a moment and not switched off."""
        setting = self.session.setting
        return [layer for layer in known_layers() if moment in layer.moments and setting(f"layer_{layer.name}")]

    async def ask(self, layer: Layer, now: LayerContext) -> Sequence[Event] | None:
        """The layer's decisions in a situation, not recorded yet; None when it failed, which is journalled."""
        try:
            made = await layer.consider(now)
            if any(isinstance(event, Compacted) for event in made):
                await self.session.compacting()
            return made
        except (JournalError, asyncio.CancelledError):
            raise
        except Exception as problem:  # noqa: BLE001 - a layer that fails steps aside, the next one catches it
            why = str(problem) if isinstance(problem, AgentError) else f"{type(problem).__name__}: {problem}"
            self.session.record(LayerFailed(layer=layer.name, why=" ".join(why.split())[:400]))
        return None

    def situation(self, moment: Moment, trigger: str = "auto", **asked: Unpack[Asked]) -> LayerContext:
        """What the layers look at now."""
        session = self.session
        return LayerContext(
            view=session.view,
            state=session.state(session.view.count().tokens),
            rates=session.rates(),
            moment=moment,
            folder=session.journal.folder,
            place=place_of(session.journal.folder, self.workspace),
            idle=max(0.0, session.watch.clock() - session.history.said_at) if session.history.said_at else 0.0,
            turns=session.history.expected_requests,
            trigger=trigger,
            **asked,
            bound_thinking=session.info.thinking,
            server_edits=session.info.edits,
            server_cleared=session.history.server_cleared,
            server_kept=session.history.server_kept,
            server_compaction=session.info.compaction,
            recreatable=frozenset(name for name, tool in session.tools.items() if tool.recreatable),
            turn_starts=tuple(turn.first for turn in session.history.turns),
            request=session.history.request,
            said=session.history.said,
            no_summary=session.history.no_summary,
            open_turn=session.history.unfinished,
            noted=session.history.notes.upto if session.history.notes is not None else 0,
            tried=session.history.notes_failed,
            redact=session.redact,
            setting=session.setting,
            fork=self._fork,
            restore=lambda: session.restoring(self.workspace),
            hook=self._hook,
        )

    async def _fork(self, order: ForkOrder) -> Forked:
        order, done = self._beside(order)
        forked = Forked(status="failed")  # unless it ends otherwise: who shares the order hears of every end
        try:
            forked = await run_fork(self.session, order, self.workspace, paid=self._paid)
        finally:
            done(forked)
        return forked

    def _paid(self, cost: float | None, most: float) -> None:
        session = self.session
        if self._behind:
            self.spent += most
        elif session.turn_cost is not None:
            session.turn_cost = None if cost is None else session.turn_cost + cost

    async def _hook(self, name: str, facts: dict[str, Any]) -> list[str]:
        answers = await hooks.call(name, facts, self.session.report_hook)
        return [str(answer) for answer in answers]


# ---- Compactions that come out of a request or its reply: the prompt was too long, by our count or the server's,
# then it is compacted and asked once more; or the model called the `compact` tool. Where nothing can be compacted,
# the request that made the prompt too long leaves the view, and nothing else does: what was decided meanwhile (a
# summary, turns taken out) and what came from others stays.

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


def wanted_compaction(session: Session, reply: ModelReply) -> str | None:
    """The wishes for the summary when the reply called the `compact` tool and it was not refused; None otherwise."""
    results = session.view.messages[-1]["content"]
    ran = {block["tool_use_id"] for block in results if block["type"] == "tool_result" and not block.get("is_error")}
    for block in reply.said.blocks:
        if block["type"] == "tool_use" and block["name"] == COMPACT_TOOL and block["id"] in ran:
            wish = block["input"].get("instructions", "")
            return wish if isinstance(wish, str) else ""
    return None
