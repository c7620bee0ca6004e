"""Old results of tools that can be used again leave the view: no model call, before each request.

By time: after a long silence the provider's cache is cold, all but the newest go. By count: all but
the newest go when that pays, near the auto-compact threshold only if that frees much of the window
(`thresholds.weigh`); or before every request (`clear_policy="every_turn"`).
What goes is kept in a file that is named in its place. Never touched: what the model has not seen yet,
results of other tools, errors among the last three results, and anything while a turn is open whose signed
thinking an edit before it would make invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from ipyagent.context.reminders import without_outdated
from ipyagent.context.removed_content import RESULTS, left_results
from ipyagent.context.thresholds import (
    LEAST_SHARE,
    LOW_SHARE,
    ClearCandidate,
    ClearDecision,
    cleared_words,
    near_threshold,
    rounded,
    weigh,
)
from ipyagent.journal.blocks import CACHE_SECONDS, THINKING
from ipyagent.journal.events import Event, LayerDecision, ResultsCleared, SystemReminder
from ipyagent.journal.journal import FOLDER
from ipyagent.journal.message_list import ToolResultRef
from ipyagent.journal.protocols import LayerContext, Moment, WindowState
from ipyagent.journal.tokens import estimate_text
from ipyagent.journal.view import ContextView

# ---- Clearing done by the server (`context_management`), where the Models API says that it can. At any moment
# either the server clears or we do. `engine="client"`: we do. `engine="server"`: the server does wherever it can.
# `engine="auto"`: we do, looking at the price, until the server's trigger is near; from there on the server does on
# models whose thinking is bound to what stands before it, because it may edit in the middle of a turn and keeps the
# signatures valid, while ours has to wait for the turn's end and takes later thinking along. The edits go out with
# every request all the same: below its trigger the server does nothing, and what it left out once it leaves out
# again. What it left out is still in our view; it is kept in a file all the same, which a note names that comes
# last, with the next turn: what stands earlier may not change.

SERVER_LAYER = "server_edits"
CLEAR_RESULTS = "clear_tool_uses_20250919"
CLEAR_THINKING = "clear_thinking_20251015"
NEAR = 0.9
"""Share of the server's trigger from which `engine="auto"` leaves old results to the server."""


class ServerEdits:
    """The layer: says once that the server clears, and where what it left out is kept; the edits themselves
    go out with each request."""

    name = SERVER_LAYER
    order = 25
    moments: frozenset[Moment] = frozenset({"request"})

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """What the server is asked for, in words; a note to the model when results have gone."""
        told = _kept(now) if now.server_cleared and now.view.editable else []  # words would end an open turn
        if not server_asked(now.setting, now.state, edits=now.server_edits, bound_thinking=now.bound_thinking):
            return told
        trigger, least = marks(now.setting, now.state)
        words = f"the server clears old tool results at {rounded(trigger)} tokens, {rounded(least)} or more at once"
        return [*told, LayerDecision(layer=SERVER_LAYER, words=words)]


def _kept(now: LayerContext) -> list[Event]:
    """The results that the server may have left out, in a file that a note at the end of the prompt names:
    the server says how many, not which, and nothing may change before them."""
    keep = now.setting("clear_keep")
    results = now.view.results
    old = results[: len(results) - keep] if keep else results
    gone = [spot for spot in old if spot.tool in now.recreatable and not spot.cleared and spot.event > now.server_kept]
    left = left_results(now.view, now.folder, gone)  # previews too: what names their files is left out
    if left is None:
        return []
    upto = max(spot.event for spot in gone)
    if failed := left.write():
        words = f"what the server left out could not be kept in a file ({failed})"
        return [LayerDecision(layer=SERVER_LAYER, words=words)]
    text = f"<context>\n{RESULTS.format(path=left.path)}\n</context>"
    why = f"What the provider left out is kept in {left.path}"
    return [SystemReminder(text=text, why=why, tokens=estimate_text(text), layer=SERVER_LAYER, upto=upto)]


def server_asked(
    setting: Callable[[str], Any], state: WindowState, *, edits: bool, bound_thinking: bool
) -> bool:
    """Whether requests ask the server to clear from its trigger on. `edits`: its Models API says that it can."""
    if not edits or not setting("layer_server_edits"):
        return False
    engine = setting("engine")
    return engine == "server" or (engine == "auto" and bound_thinking and state.warning_mark > 0)


def marks(setting: Callable[[str], Any], state: WindowState) -> tuple[int, int]:
    """Tokens at which the server clears and what it clears at least; below the settings where the
    window is so small that compaction would come first."""
    wanted, least = setting("server_clear_trigger"), setting("server_clear_at_least")
    trigger = min(wanted, state.warning_mark)
    return trigger, min(least, least * trigger // wanted if wanted else least)


def clearing_edits(
    setting: Callable[[str], Any],
    view: ContextView,
    state: WindowState,
    *,
    recreatable: Iterable[str],
    dropped: int = 0,
) -> list[dict[str, Any]]:
    """The edits of a request: old results of the tools in `recreatable` go at the trigger, all but the last
    turn's thinking with them; other tools are excluded.

    Thinking is not cleared in between, that would break the cache with every turn: the oldest
    `dropped` turns, which the server has left out already, stay out, and no more.
    """
    trigger, least = marks(setting, state)
    results: dict[str, Any] = {
        "type": CLEAR_RESULTS,
        "trigger": {"type": "input_tokens", "value": trigger},
        "keep": {"type": "tool_uses", "value": setting("clear_keep")},
        "clear_at_least": {"type": "input_tokens", "value": least},
    }
    named = {str(tool["name"]) for tool in view.tools} | {spot.tool for spot in view.results}
    kept = sorted(named - set(recreatable))
    if kept:
        results["exclude_tools"] = kept
    turns: Any = "all"
    if state.tokens >= trigger:
        turns = {"type": "thinking_turns", "value": 1}
    elif dropped:
        turns = {"type": "thinking_turns", "value": max(1, thinking_turns(view.messages) - dropped)}
    # the API wants the edit of thinking first
    return [{"type": CLEAR_THINKING, "keep": turns}, results]


def thinking_turns(messages: list[dict[str, Any]]) -> int:
    """Turns in which the model has thought; results do not end a turn, words of the user do."""
    turns, thought = 0, False
    for message in messages:
        kinds = {block["type"] for block in message["content"]}
        if message["role"] == "user":
            thought = thought and kinds == {"tool_result"}
        elif not thought and kinds & set(THINKING):
            turns, thought = turns + 1, True
    return turns


server_edits = ServerEdits()


LAYER = "clear_results"
BY_COUNT = "[Previous: used {tool}{kept}]"
BY_TIME = "[Old tool result content cleared{kept}]"
BY_THE_SERVER = "the provider does it automatically, see IPyAgent.engine"
LEFT = 34
"""Estimated tokens of a cleared result."""
WORTH = 3 * LEFT
"""A result up to this is not worth clearing where it must pay: the word in its place is a third of it, and using
the tool once more would cost a request."""
RECENT_ERRORS = 3
"""An error among so many newest results is what the model is working on."""
RECENT_FETCHES = 12
"""Among so many newest results, what the running turn has read back from a file stays: the model needs it."""
KEPT_IN = (f"{FOLDER}/", "_agent[")
"""How a call names what is kept: by its file, or by its handle in python."""
MOST_CUTS = 40
"""Possible cuts that are weighed; of more results only every nth, which is near enough: 2.5 % of the results apart."""


class ClearResults:
    """The layer; keeps nothing between requests."""

    name = LAYER
    order = 20
    moments: frozenset[Moment] = frozenset({"request"})

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """One batch of results to clear with the reason, the reason alone, or nothing."""
        if server_asked(now.setting, now.state, edits=now.server_edits, bound_thinking=now.bound_thinking) and (
            now.setting("engine") == "server" or now.state.tokens >= NEAR * marks(now.setting, now.state)[0]
        ):  # old results are the server's business now
            return (LayerDecision(layer=LAYER, words=BY_THE_SERVER),) if now.trigger == "manual" else ()
        if not now.view.editable:
            return ()
        results = now.view.results
        idle = now.setting("clear_idle_minutes")
        if now.idle > 0 and now.idle >= 60 * idle:
            old = candidates(now, results, keep=max(1, now.setting("clear_idle_keep")))
            if old:
                saved = _saved(now, results, old)
                what = cleared_words(len(old), saved)
                words = f"{what}: silent for {idle:g} minutes"
                return _decision(now, [results[at] for at in old], BY_TIME, saved, f"{words} or more")
        keep = now.setting("clear_keep")
        old = candidates(now, results, keep=keep)
        if not old:
            return ()
        if now.setting("clear_policy") == "every_turn":
            saved = _saved(now, results, old)
            words = "clears old tool results before every request"
            return _decision(now, [results[at] for at in old], BY_COUNT, saved, words)
        pictured = now.view.event_with_images()  # without any picture, the provider's cache of messages begins anew
        old = [at for at in old if results[at].tokens > WORTH and results[at].event != pictured]
        if not old:
            return ()
        verdict = judge(now, results, old, keep)
        if not verdict.clear or verdict.cut is None:
            return (LayerDecision(layer=LAYER, words=verdict.words),)
        gone = [results[at] for at in old[verdict.cut.first :]]
        return _decision(now, gone, BY_COUNT, verdict.cut.cleared, verdict.words, verdict.gain)


def candidates(now: LayerContext, results: list[ToolResultRef], *, keep: int) -> list[int]:
    """Places in `results` of what may be cleared, oldest first."""
    chars, allowed = now.setting("clear_chars"), now.recreatable
    # older than the newest batch that the server cleared: most of it is in no prompt any more, and clearing the rest
    # would change what the server clears
    asked = server_asked(now.setting, now.state, edits=now.server_edits, bound_thinking=now.bound_thinking)
    upto = now.view.left_out.upto if asked else 0
    last = len(results) - keep
    unseen = len(now.view.messages) - 1 if now.view.messages[-1:] and now.view.messages[-1]["role"] == "user" else -1
    first_recent = len(results) - RECENT_ERRORS
    began = now.turn_starts[-1] if now.turn_starts else 0
    return [
        at
        for at, spot in enumerate(results[: max(0, last)])
        if not spot.cleared
        and spot.event > upto
        and spot.chars > chars
        and spot.tool in allowed
        and spot.message != unseen
        and not (spot.is_error and at >= first_recent)
        and spot.tokens > LEFT  # counted when it is asked for: last
        and not (spot.event > began and at >= len(results) - RECENT_FETCHES and _fetched(now, spot))
    ]


def _fetched(now: LayerContext, spot: ToolResultRef) -> bool:
    """Whether the call read a result back that is kept in a file or as a live object."""
    said = now.view.messages[spot.message - 1]["content"] if spot.message else ()
    call = next((block for block in said if block["type"] == "tool_use" and block["id"] == spot.call), None)
    return call is not None and any(word in str(call["input"]) for word in KEPT_IN)


def judge(now: LayerContext, results: list[ToolResultRef], old: list[int], keep: int) -> ClearDecision:
    """The economics of clearing the candidates `old`, for the places to begin at."""
    view = now.view
    behind, measure = view.behind(), view.measure
    size = len(view.messages)
    lifetime = CACHE_SECONDS[now.setting("cache_ttl")]
    sent = view.held(size, lifetime)
    savings = [results[at].tokens - LEFT for at in old]
    # a result is old since the `keep` that are newer had come: requests since then have read it in vain
    stands = [spot.message for spot in results]
    stands += stands[-1:] * keep  # fewer than `keep` are newer: the newest counts
    carried = [gain * ((size - stands[at + keep]) // 2) for at, gain in zip(old, savings, strict=True)]
    from_here = list(accumulate(reversed(savings)))[::-1]
    carried_from_here = list(accumulate(reversed(carried)))[::-1]
    tokens, threshold = now.state.tokens, now.state.auto_mark
    growth = max(1.0, behind.tokens[min(1, size)] * measure / max(1, size // 2))  # a request brings two messages
    cuts = []
    for first in range(0, len(old), 1 + len(old) // MOST_CUTS):
        spot = results[old[first]]
        thinking = behind.thinking[spot.message]
        # read up to the newest entry before the cut, written anew from there
        start = view.held(spot.message, lifetime - now.idle)
        cached = behind.tokens[start] - behind.tokens[max(sent, start)]
        cleared = round((from_here[first] + thinking) * measure)
        cuts.append(
            ClearCandidate(
                first=first,
                results=len(old) - first,
                cleared=cleared,
                rewritten=round(max(0, cached - from_here[first] - thinking) * measure),
                carried=round(carried_from_here[first] * measure),
                requests=max(1, int((threshold - tokens + cleared) / growth)),
            )
        )
    asked = now.trigger == "manual"
    near = now.state.above_warning or near_threshold(now.state, now.setting("store_chars"))
    least = int(LEAST_SHARE * threshold)
    return weigh(
        cuts,
        now.rates,
        turns=now.turns,
        cold=now.idle >= lifetime,
        cached=now.setting("prompt_cache"),
        need=max(least, tokens - int(LOW_SHARE * threshold)) if near and not asked else least,
        near=near,
        asked=asked,
    )


def _saved(now: LayerContext, results: list[ToolResultRef], old: list[int]) -> int:
    """Tokens that leave the prompt with the results at the places `old`, on the scale of the view's own count."""
    first = results[old[0]].message
    return now.view.scaled(sum(results[at].tokens - LEFT for at in old) + now.view.behind().thinking[first])


def _decision(
    now: LayerContext, gone: list[ToolResultRef], text: str, saved: int, words: str, gain: float = 0.0
) -> Sequence[Event]:
    calls = tuple(spot.call for spot in gone)
    left, kept = left_results(now.view, now.folder, (spot for spot in gone if not spot.kept)), ""
    if left is not None:
        failed = "" if now.dry else left.write()
        kept = "" if failed else left.path
        words += f"; they could not be kept in a file ({failed})" if failed else ""
    contexts, less = _outdated(now.view, gone[0])
    saved += now.view.scaled(less)
    return (
        ResultsCleared(
            calls=calls, text=text, layer=LAYER, saved=saved, place=now.place, kept=kept,
            asked=now.trigger == "manual", contexts=contexts,
        ),
        LayerDecision(layer=LAYER, words=words, saved=saved, dollars=round(gain, 6)),
    )


def _outdated(view: ContextView, first: ToolResultRef) -> tuple[tuple[tuple[int, str], ...], int]:
    """What becomes of `<context>` blocks behind the result `first`, where the prompt is written again in any case:
    without the variables that later blocks tell again. And the estimated tokens that this wins."""
    found: dict[int, list[str]] = {}
    for text, event in view.contexts(first.message):
        found.setdefault(event, []).append(text)
    single = [(event, texts[0]) for event, texts in found.items() if len(texts) == 1]
    made = without_outdated(single)
    old = dict(single)
    return tuple(made), sum(estimate_text(old[event]) - estimate_text(text) for event, text in made)


clear_results = ClearResults()
