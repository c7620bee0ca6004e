"""A step of a compaction in words and figures: what the layer said, the prompt by source before and after, what
it costs once and saves with each request, and which layer would be next."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ipyagent.assembly.stepping import Price, Rung, Step, Stepped
from ipyagent.model.prices import LESSON_MODEL
from ipyagent.reports.shares import SOURCES

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


def step_text(stepped: Stepped) -> str:
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


def headline(step: Step) -> str:
    """Which layer, whether it called the model, and its own words."""
    call = "one model call" if step.calls else "no model call"
    said = f": {step.words}" if step.words else ""
    return f"{'Done' if step.done else 'Next'}: {name_of(step.layer)} ({call}){said}"


def rows(step: Step) -> list[tuple[str, str, str, str]]:
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


def price_words(step: Step) -> str:
    """The arithmetic of the step as a sentence or two."""
    price = step.price
    if price is None:
        return (
            "Price: the call reads the conversation, mostly from the cache, and writes a summary. How large that is, "
            "and what it saves, is known afterwards."
        )
    known = bool(price.rates.input)
    return " ".join(["Price:", *_call(price), _written(price, known), _saved(price, known)])


def _call(price: Price) -> list[str]:
    if not price.usage.prompt:
        return []
    share = 100 * price.usage.cache_read / price.usage.prompt
    paid = "a price that is not known" if price.call is None else f"${price.call:.4f}"
    if price.rehearsed:
        paid = f"nothing (on {LESSON_MODEL} it would be {paid})"
    said = f"{price.usage.prompt:,} tokens ({share:.1f} % from the cache) and wrote {price.usage.output:,}"
    return [f"The call read {said}: {paid}."]


def _written(price: Price, known: bool) -> str:
    if not price.written:
        return "Nothing is written again that would not be written anyway."
    more = f", ${price.written * (price.rates.write - price.rates.read):.4f} more than reading them" if known else ""
    return f"The {price.written:,} tokens behind the change are written to the cache again{more}."


def _saved(price: Price, known: bool) -> str:
    if price.saved <= 0:
        return "It saves nothing."
    fewer = f"Every later request has {price.saved:,} tokens fewer"
    if not known or price.call is None:
        return f"{fewer}."
    after = math.ceil(price.once / price.saving) if price.saving else 0
    paid = f"paid back after {after:,} request{'s' * (after != 1)}" if after else "there is nothing to pay back"
    return f"{fewer}, ${price.saving:.4f} when they are read from the cache: {paid}."


def next_lines(stepped: Stepped) -> list[str]:
    """The layers that are passed over with the reason, and which one would be next."""
    over = [f"{name} ({why})" for name, why in passed(stepped.rungs)]
    lines = [f"passed over: {'; '.join(over)}"] if over else []
    following = stepped.following
    if stepped.step is not None and not stepped.step.done:
        lines.append("nothing was done; %compact --step does it")
    elif following is None:
        lines.append(f"next: {NOTHING}")
    else:
        call = "one model call" if following.calls else "no model call"
        lines.append(f"next: {name_of(following.layer)} ({call}); %compact --step does it, --step --dry-run shows it")
    if stepped.step is not None and stepped.step.done:
        lines.append("%compact --undo takes this step back")
    return lines


def passed(rungs: Sequence[Rung]) -> list[tuple[str, str]]:
    """Layers that are passed over, with the reason."""
    idle = [rung for rung in rungs if not rung.acts and rung.layer not in SELDOM]
    return [(name_of(rung.layer), rung.words or WHY_NOT.get(rung.layer, "nothing to do")) for rung in idle]
