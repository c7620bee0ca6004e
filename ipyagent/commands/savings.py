"""The part of `%context` that tells what the layers have saved, decided and broken: from the history alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipyagent.ui.escape import line as one_line

if TYPE_CHECKING:
    from ipyagent.loop.history import History, Savings

LAYERS = {
    "store_results": "results kept in files",
    "clear_results": "tool results cleared",
    "server_edits": "left out by the server",
    "snip": "turns removed",
    "collapse": "finished work collapsed",
}
"""What each layer's savings are called; others go by their own name."""


def saving_lines(history: History) -> list[str]:
    """What each layer has kept out of the context so far, what it said last, and how the cache did."""
    return [*_saved(history), *_decided(history), *_cache(history)]


def _saved(history: History) -> list[str]:
    if not history.savings:
        return []
    rows = [f"  {LAYERS.get(layer, layer):<24}{_amount(layer, saved)}" for layer, saved in history.savings.items()]
    return ["kept out of the context so far:", *rows]


def _amount(layer: str, saved: Savings) -> str:
    """All of it together, then of how many: the amount is no amount of each."""
    amount = f"{saved.chars:>11,} characters" if saved.chars else f"{saved.tokens:>11,} tokens"
    unit = "result" if layer in ("store_results", "clear_results") else "time"
    return f"{amount} ({saved.times:,} {unit}{'' if saved.times == 1 else 's'})"


def _decided(history: History) -> list[str]:
    if not history.decided:
        return []
    rows = [f"  {layer:<14} {one_line(words, 200)}" for layer, words in history.decided.items()]
    return ["last decisions:", *rows]


def _cache(history: History) -> list[str]:
    """Hit rates of the newest requests, and the breaks that nobody had foreseen."""
    lines = []
    rates = [f"{100 * usage.cache_read / usage.prompt:.0f}" for usage in history.recent if usage.prompt]
    if rates:
        lines.append(f"read from the cache by the last {len(rates)} requests: {' '.join(rates)} %")
    if history.breaks:
        last = history.breaks[-1]
        many = f"{len(history.breaks):,} unexpected break{'' if len(history.breaks) == 1 else 's'} of the cache"
        lines.append(f"{many}, the last: {one_line(last.cause, 160)} ({last.missed:,} tokens written again)")
    return lines
