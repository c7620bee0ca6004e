"""Clearing done by the server (`context_management`), where the Models API says that it can.

Either the server clears or we do, never both. `engine="client"`: we do. `engine="server"`: the server
does wherever it can. `engine="auto"`: the server does on models whose thinking is bound to what stands
before it, because it may edit in the middle of a turn and keeps the signatures valid, while ours
has to wait for the turn's end and takes later thinking along; elsewhere ours, which looks at the price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ipyagent.context.policy import rounded
from ipyagent.journal.events import Event, LayerDecided
from ipyagent.journal.protocols import Moment, Situation, WindowState

NAME = "server_edits"
CLEAR_RESULTS = "clear_tool_uses_20250919"
CLEAR_THINKING = "clear_thinking_20251015"


class ServerEdits:
    """The layer: says once that the server clears; the edits themselves go out with each request."""

    name = NAME
    order = 25
    moments: frozenset[Moment] = frozenset({"request"})

    async def consider(self, now: Situation) -> Sequence[Event]:
        """What the server is asked for, in words."""
        if not server_clears(now.setting, now.state, edits=now.server_edits, bound_thinking=now.bound_thinking):
            return ()
        trigger, least = marks(now.setting, now.state)
        words = f"the server clears old results at {rounded(trigger)} tokens, {rounded(least)} or more at once"
        return (LayerDecided(layer=NAME, words=words),)


def server_clears(
    setting: Callable[[str], Any], state: WindowState, *, edits: bool, bound_thinking: bool
) -> bool:
    """Whether old results are the server's business. `edits`: its Models API says that it can."""
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


def context_management(
    setting: Callable[[str], Any], state: WindowState, *, names: Iterable[str], recreatable: Iterable[str]
) -> dict[str, Any]:
    """The request's field: the last turn's thinking stays, old results of the tools in `recreatable`
    go; other tools among `names` are excluded."""
    trigger, least = marks(setting, state)
    results: dict[str, Any] = {
        "type": CLEAR_RESULTS,
        "trigger": {"type": "input_tokens", "value": trigger},
        "keep": {"type": "tool_uses", "value": setting("clear_keep")},
        "clear_at_least": {"type": "input_tokens", "value": least},
    }
    kept = sorted(set(names) - set(recreatable))
    if kept:
        results["exclude_tools"] = kept
    # the API wants the edit of thinking first
    return {"edits": [{"type": CLEAR_THINKING, "keep": {"type": "thinking_turns", "value": 1}}, results]}


server_edits = ServerEdits()
