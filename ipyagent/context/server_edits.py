"""Clearing done by the server (`context_management`), where the Models API says that it can.

At any moment either the server clears or we do. `engine="client"`: we do. `engine="server"`: the server
does wherever it can. `engine="auto"`: we do, looking at the price, until the server's trigger is near; from
there on the server does on models whose thinking is bound to what stands before it, because it may edit
in the middle of a turn and keeps the signatures valid, while ours has to wait for the turn's end and takes
later thinking along. The edits go out with every request all the same: below its trigger the server does
nothing, and what it left out once it leaves out again. What it left out is still in our view; it is kept in a
file all the same, which a note names that comes last, with the next turn: what stands earlier may not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ipyagent.context.archive import RESULTS, left_by_server
from ipyagent.context.policy import rounded
from ipyagent.journal.admission import THINKING
from ipyagent.journal.events import Event, LayerDecision, SystemReminder
from ipyagent.journal.protocols import LayerContext, Moment, WindowState
from ipyagent.journal.tokens import estimate_text
from ipyagent.journal.view import ContextView

NAME = "server_edits"
CLEAR_RESULTS = "clear_tool_uses_20250919"
CLEAR_THINKING = "clear_thinking_20251015"
NEAR = 0.9
"""Share of the server's trigger from which `engine="auto"` leaves old results to the server."""


class ServerEdits:
    """The layer: says once that the server clears, and where what it left out is kept; the edits themselves
    go out with each request."""

    name = NAME
    order = 25
    moments: frozenset[Moment] = frozenset({"request"})

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """What the server is asked for, in words; a note to the model when results have gone."""
        told = _kept(now) if now.server_cleared and now.view.editable else []  # words would end an open turn
        if not server_asked(now.setting, now.state, edits=now.server_edits, bound_thinking=now.bound_thinking):
            return told
        trigger, least = marks(now.setting, now.state)
        words = f"the server clears old tool results at {rounded(trigger)} tokens, {rounded(least)} or more at once"
        return [*told, LayerDecision(layer=NAME, words=words)]


def _kept(now: LayerContext) -> list[Event]:
    """The results that the server may have left out, in a file that a note at the end of the prompt names:
    the server says how many, not which, and nothing may change before them."""
    keep = now.setting("clear_keep")
    results = now.view.results
    old = results[: len(results) - keep] if keep else results
    gone = [spot for spot in old if spot.tool in now.recreatable and not spot.cleared and spot.event > now.server_kept]
    left = left_by_server(now.view, now.folder, gone)
    if left is None:
        return []
    upto = max(spot.event for spot in gone)
    if failed := left.write():
        words = f"what the server left out could not be kept in a file ({failed})"
        return [LayerDecision(layer=NAME, words=words)]
    text = f"<context>\n{RESULTS.format(path=left.path)}\n</context>"
    why = f"What the provider left out is kept in {left.path}"
    return [SystemReminder(text=text, why=why, tokens=estimate_text(text), layer=NAME, upto=upto)]


def server_clears(
    setting: Callable[[str], Any], state: WindowState, *, edits: bool, bound_thinking: bool
) -> bool:
    """Whether old results are the server's business now. `edits`: its Models API says that it can."""
    if not server_asked(setting, state, edits=edits, bound_thinking=bound_thinking):
        return False
    return setting("engine") == "server" or state.tokens >= NEAR * marks(setting, state)[0]


def server_asked(
    setting: Callable[[str], Any], state: WindowState, *, edits: bool, bound_thinking: bool
) -> bool:
    """Whether requests ask the server to clear from its trigger on."""
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
