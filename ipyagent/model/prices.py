"""What tokens cost, in US dollars a million tokens: the one price table.

Figures: the providers' published prices as of November 2026 (of older families their last ones); write 1.25x
(5 minutes) or 2x (one hour) and read 0.1x of the input price. What the user's `price` setting or a server tells of a
model comes before the table. A model that is in neither has no known price (None), which is shown as such.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from ipyagent.journal.events import Usage
from ipyagent.journal.protocols import Rates

CACHE_READ, CACHE_WRITE_5M, CACHE_WRITE_1H = 0.1, 1.25, 2.0


class Price(msgspec.Struct, frozen=True):
    """Dollars a million tokens; above `tier` prompt tokens the `large_*` prices hold. `read` and `write` of the cache
    where they are no fixed part of the input's; `source` is who told it ("": the table)."""

    input: float
    output: float
    tier: int = 0
    large_input: float = 0.0
    large_output: float = 0.0
    read: float | None = None
    write: float | None = None
    source: str = ""


PRICES: tuple[tuple[str, Price], ...] = (
    (r"haiku-5-5(?!\d)", Price(0.10, 0.50, 100_000, 0.50, 2.50)),
    (r"sonnet-5-5(?!\d)", Price(2.0, 10.0)),
    (r"opus-5-5(?!\d)", Price(4.0, 20.0)),
    (r"haiku-4-5", Price(1.0, 5.0)),
    (r"opus-4-[5-9](?!\d)", Price(5.0, 25.0)),
    (r"opus-4(?!-\d{1,2}(?!\d))|opus-4-[01](?!\d)|3-opus", Price(15.0, 75.0)),
    (r"sonnet-4(?!\d)|3-[57]-sonnet|3-sonnet", Price(3.0, 15.0)),
    (r"3-5-haiku", Price(0.80, 4.0)),
    (r"3-haiku", Price(0.25, 1.25)),
    (r"instant", Price(0.80, 2.40)),
    (r"2(?:-[01])?(?![\w-])|v2", Price(8.0, 24.0)),
)
"""By what a name of the Claude families says behind `claude-`."""
_CLAUDE = re.compile(r"(?:^|[/.:~])claude-(.+)")
"""A name as Anthropic writes it, or behind the prefix of a gateway or a cloud (`anthropic/`, `us.anthropic.`,
`bedrock/converse/…`); what was only made with such a model has the word elsewhere in its name."""

DEAREST = Price(
    max(max(price.input, price.large_input) for _, price in PRICES),
    max(max(price.output, price.large_output) for _, price in PRICES),
)
"""Counts against limits for a model whose price is not known: no limit may be off for want of a price."""

SEARCH = 0.01
"""Dollars a web search: $10 for 1,000, whatever the model; a page that is fetched costs its tokens alone."""

LESSON_MODEL = "claude-sonnet-5-5"
"""The practice model costs nothing; lessons say what this one would have cost."""


CHEAPEST = (("claude-", "claude-haiku-5-5"), ("practice", "practice"))
"""By how a model's name begins: the cheapest model of its family."""


def cheapest_of(model: str) -> str:
    """The cheapest model that the same server has; "" when no cheaper one is known of."""
    return next((cheap for begins, cheap in CHEAPEST if model.startswith(begins)), "")


class PriceOverrides:
    """Prices that the table does not have: of the `price` setting by a model's name, which count first, and of servers
    by the server's address and the name, for another server may sell something else by that name."""

    def __init__(self) -> None:
        self._set: dict[str, Price] = {}
        self._servers: dict[tuple[str, str], Price] = {}

    def __repr__(self) -> str:
        return f"<PriceOverrides {len(self._set)} set, {len(self._servers)} by servers>"

    def set(self, prices: dict[str, Sequence[float]]) -> None:
        """What the user says: dollars a million tokens in and out, and of the cache's reads and writes."""
        self._set = {name: _made(tuple(map(float, each)), "IPyAgent.price") for name, each in prices.items()}

    def hear(self, server: str, model: str, dollars: Sequence[float | None], source: str) -> None:
        """What the server at an address says of a model, in dollars a token: in, out, read and written. Of what makes
        no sense nothing is taken."""
        known = [each * 1e6 if each is not None else None for each in dollars]
        first, second, *cache = known
        if first is None or second is None or not all(math.isfinite(each) and each >= 0 for each in known if each):
            return
        if min(first, second) >= 0 and max(first, second) < MOST_DOLLARS:
            self._servers[server, model] = _made((first, second, *cache), source)

    def of(self, model: str, server: str) -> Price | None:
        """The price that was told of a model at a server; None for no such."""
        return self._set.get(model) or self._servers.get((server, model))


MOST_DOLLARS = 100_000.0
"""A million tokens for more than that is a server's mistake."""
told_prices = PriceOverrides()
"""One a process: what a model costs at a server does not depend on who asks it."""


def _made(given: Sequence[float | None], source: str) -> Price:
    """Where a cache's price is not told, a read costs as much as any input, a write as much as the API's."""
    first, second = given[0] or 0.0, given[1] or 0.0
    read = given[2] if len(given) > 2 and given[2] is not None else first
    write = given[3] if len(given) > 3 and given[3] is not None else CACHE_WRITE_5M * first
    return Price(first, second, read=read, write=write, source=source)


def price_of(model: str, server: str = "") -> Price | None:
    """The price of a model by its id, at the server of an address (`ModelInfo.server`); None when it is not known."""
    if (price := told_prices.of(model, server)) is not None:
        return price
    name = _CLAUDE.search(model.lower().replace("_", "-"))
    if name is None:
        return None
    version = name.group(1).replace(".", "-")
    return next((price for pattern, price in PRICES if re.match(rf"(?:{pattern})", version)), None)


def cost_of(model: str, *responses: Usage, server: str = "") -> float | None:
    """Dollars of responses of a model at a server; 0.0 for models that run here, None when no price is known. What a
    token costs may depend on how long the prompt of its own response was."""
    if model == "practice" or model.startswith("local:"):
        return 0.0
    price = price_of(model, server)
    if price is None:
        return None
    return sum(_dollars(price, usage) for usage in responses)


def at_most(cost: float | None, *responses: Usage) -> float:
    """Dollars for a limit: the cost, or where no price is known what the responses cost at the dearest of the table."""
    return cost if cost is not None else sum(_dollars(DEAREST, usage) for usage in responses)


def _dollars(price: Price, usage: Usage) -> float:
    unit, output, read, write, write_1h = _prices(price, usage.prompt)
    cached = read * usage.cache_read + write * (usage.cache_write - usage.cache_write_1h)
    cached += write_1h * usage.cache_write_1h
    return (usage.input * unit + cached + usage.output * output) / 1e6 + SEARCH * usage.searches


def _prices(price: Price, prompt: int) -> tuple[float, float, float, float, float]:
    """Dollars a million tokens in and out with a prompt of so many, read from the cache, and written to it for five
    minutes and for an hour."""
    large = bool(price.tier) and prompt > price.tier
    unit, output = (price.large_input, price.large_output) if large else (price.input, price.output)
    read = CACHE_READ * unit if price.read is None else price.read
    write, write_1h = CACHE_WRITE_5M * unit, CACHE_WRITE_1H * unit
    if price.write is not None:
        write, write_1h = price.write, price.write * CACHE_WRITE_1H / CACHE_WRITE_5M
    return unit, output, read, write, write_1h


def rates_of(model: str, ttl: str = "5m", prompt: int = 0, server: str = "") -> Rates:
    """Dollars a token of a prompt of so many tokens, for the economics of the cache; the practice model has the
    rates of LESSON_MODEL, other models that run here and unknown ones have none."""
    price = price_of(LESSON_MODEL if model == "practice" else model, server)
    if price is None:
        return Rates()
    unit, output, read, *writes = _prices(price, prompt)
    return Rates(input=unit / 1e6, read=read / 1e6, write=writes[ttl != "5m"] / 1e6, output=output / 1e6)
