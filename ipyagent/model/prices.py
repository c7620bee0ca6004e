"""What tokens cost, in US dollars a million tokens: the one price table.

Figures: the providers' published prices as of November 2026; write 1.25x (5 minutes) or 2x (one
hour) and read 0.1x of the input price. A model that is not here has no known price (None), which
is shown as such.
"""

from __future__ import annotations

import re

import msgspec

from ipyagent.journal.events import Usage
from ipyagent.journal.protocols import Rates


class Price(msgspec.Struct, frozen=True):
    """Dollars a million tokens; above `tier` prompt tokens the `large_*` prices hold."""

    input: float
    output: float
    tier: int = 0
    large_input: float = 0.0
    large_output: float = 0.0


PRICES: tuple[tuple[str, Price], ...] = (
    (r"haiku-5-5", Price(0.10, 0.50, 100_000, 0.50, 2.50)),
    (r"sonnet-5-5", Price(2.0, 10.0)),
    (r"opus-5-5", Price(4.0, 20.0)),
    (r"haiku-4-5", Price(1.0, 5.0)),
    (r"sonnet-4", Price(3.0, 15.0)),
    (r"opus-4-[5-9]", Price(5.0, 25.0)),
)

DEAREST = Price(
    max(max(price.input, price.large_input) for _, price in PRICES),
    max(max(price.output, price.large_output) for _, price in PRICES),
)
"""Counts against limits for a model whose price is not known: no limit may be off for want of a price."""

CACHE_READ, CACHE_WRITE_5M, CACHE_WRITE_1H = 0.1, 1.25, 2.0

LESSON_MODEL = "claude-sonnet-5-5"
"""The practice model costs nothing; lessons say what this one would have cost."""


CHEAPEST = (("claude-", "claude-haiku-5-5"), ("practice", "practice"))
"""By how a model's name begins: the cheapest model of its family."""


def cheapest_of(model: str) -> str:
    """The cheapest model that the same server has; "" when no cheaper one is known of."""
    return next((cheap for begins, cheap in CHEAPEST if model.startswith(begins)), "")


def price_of(model: str) -> Price | None:
    """The price of a model by its id; None when it is not known."""
    for pattern, price in PRICES:
        if re.search(pattern, model):
            return price
    return None


def cost_of(model: str, *responses: Usage) -> float | None:
    """Dollars of responses; 0.0 for models that run here, None when no price is known. What a token costs may
    depend on how long the prompt of its own response was."""
    if model == "practice" or model.startswith("local:"):
        return 0.0
    price = price_of(model)
    if price is None:
        return None
    return sum(_dollars(price, usage) for usage in responses)


def at_most(cost: float | None, *responses: Usage) -> float:
    """Dollars for a limit: the cost, or where no price is known what the responses cost at the dearest of the table."""
    return cost if cost is not None else sum(_dollars(DEAREST, usage) for usage in responses)


def _dollars(price: Price, usage: Usage) -> float:
    large = bool(price.tier) and usage.prompt > price.tier
    per_input = price.large_input if large else price.input
    per_output = price.large_output if large else price.output
    written_5m = usage.cache_write - usage.cache_write_1h
    prompt = (
        usage.input
        + CACHE_READ * usage.cache_read
        + CACHE_WRITE_5M * written_5m
        + CACHE_WRITE_1H * usage.cache_write_1h
    )
    return (prompt * per_input + usage.output * per_output) / 1e6


def rates_of(model: str, ttl: str = "5m", prompt: int = 0) -> Rates:
    """Dollars a token of a prompt of so many tokens, for the economics of the cache; the practice model has the
    rates of LESSON_MODEL, other models that run here and unknown ones have none."""
    price = price_of(LESSON_MODEL if model == "practice" else model)
    if price is None:
        return Rates()
    large = bool(price.tier) and prompt > price.tier
    unit, output = (price.large_input, price.large_output) if large else (price.input, price.output)
    unit /= 1e6
    write = CACHE_WRITE_5M if ttl == "5m" else CACHE_WRITE_1H
    return Rates(input=unit, read=CACHE_READ * unit, write=write * unit, output=output / 1e6)
