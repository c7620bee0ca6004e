"""The arithmetic of clearing old results: when it pays to change a prefix that the provider has cached.

Clearing saves reading what went, with every request to come; it costs writing anew what stands
behind the cut. Both sides are dollars when the price is known, else shares of the input price. All
functions are pure; a verdict says in words what it weighed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ipyagent.journal.protocols import Rates

RELATIVE = Rates(input=1.0, read=0.1, write=1.25, output=5.0)
"""Prices relative to an input token, for models whose price is not known (the provider's usual ratios)."""
NEAR = "the auto-compact threshold is near"
ASKED = "you asked for it"
LOW_SHARE = 0.7
"""Near the auto-compact threshold a clearing must leave at most this share of it in the prompt: with less, the next
results would bring it back at once, and each time the cache is written anew. Else compaction does it."""
SURE = 1.5
"""What a saving must be at least of the cost: how many requests will come, and how large, is a guess."""
MUCH = 3.0
"""A cut that clears so many times what it rewrites does not wait: what comes meanwhile would be written again too.
With results of one size, batches that are two to three times what stands behind them cost least (a lot size as for
orders: the square root of twice the rewrite over what reading the growth costs)."""
LEAST_SHARE = 0.02
"""What any clearing must free at least, as a share of the threshold: less is not worth a break of the cache."""


class ClearCandidate(msgspec.Struct, frozen=True):
    """Clearing from one old result on, with all old ones behind it.

    `results` of them go, `cleared` tokens in all; `rewritten` tokens stay behind the cut and were in
    the cache; `carried` is tokens x requests that the same results were read in since they were old;
    `requests` fit into the window after it before the threshold is reached again (0: not known).
    """

    first: int
    results: int
    cleared: int
    rewritten: int
    carried: int = 0
    requests: int = 0


class ClearDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to clear, from which cut on, and what was weighed. `cost` and `saving` are dollars, or
    shares of input tokens when `priced` is False."""

    clear: bool
    cut: ClearCandidate | None
    cost: float = 0.0
    saving: float = 0.0
    priced: bool = True
    words: str = ""

    @property
    def gain(self) -> float:
        """Dollars that the decision is expected to be worth; 0.0 when nothing is done or no price is known."""
        return self.saving - self.cost if self.clear and self.priced else 0.0


def weigh(
    cuts: Sequence[ClearCandidate], rates: Rates, *, turns: int, cold: bool = False, cached: bool = True, need: int = 0,
    near: bool = False, asked: bool = False,
) -> ClearDecision:  # fmt: skip
    """The verdict on clearing from one of `cuts` (oldest first).

    `turns`: requests to be expected, the next one included. `cold`: the provider holds nothing any
    more, so all will be written anyway. `cached` False: no cache is used, every token costs the input
    price. `need`: tokens that must go at least, where that costs anything; `near`: because the auto-compact
    threshold is near; `asked`: the user wants it, whatever it costs.

    A cut pays when the expected saving exceeds the cost. One that rewrites much is still not taken
    before reading the old results has cost as much as the rewrite: waiting collects more of them for one
    rewrite, and never costs more than twice what was best. Near the threshold there is no more waiting: one batch
    frees what is needed and pays, or everything stays and compaction does it.
    """
    if not cuts:
        return ClearDecision(clear=False, cut=None)
    priced = bool(rates.input)
    prices = rates if priced else RELATIVE
    if not cached:
        prices = Rates(input=prices.input, read=prices.input, write=prices.input, output=prices.output)

    def sides(cut: ClearCandidate) -> tuple[float, float]:
        first_read = prices.write if cold else prices.read
        saving = cut.cleared * (first_read + prices.read * (_requests(cut, turns) - 1))
        return (0.0 if cold else cut.rewritten * (prices.write - prices.read)), saving

    weighed = [(saving - cost, cost, saving, cut) for cut in cuts for cost, saving in [sides(cut)]]
    tight, enough = near and not cold and cached, [item for item in weighed if item[3].cleared >= need or not item[1]]
    if tight and asked:
        fit = [item for item in enough if item[3] is cuts[0]]
    else:
        fit = [
            item
            for item in enough
            if item[2] > SURE * item[1]
            and (tight or item[3].cleared >= MUCH * item[3].rewritten or item[3].carried * prices.read >= item[1])
        ]
    net, cost, saving, cut = max(fit or weighed, key=lambda item: item[0])
    verdict = ClearDecision(clear=bool(fit), cut=cut, cost=cost, saving=saving, priced=priced)
    if tight and not fit and all(each.cleared < need for each in cuts):
        words = f"kept {_old(cuts[0].results)}: the prompt would be near the auto-compact threshold without them too"
    elif tight and fit and asked:
        words = f"{cleared_words(cut.results, cut.cleared)}: {ASKED}; {_costs(cost, cut, priced)}"
    else:
        words = _words(verdict, _requests(cut, turns), cold, 0.0 if tight else net, cut.carried * prices.read)
        words = words.replace(": ", f": {NEAR}; ", 1) if tight and fit else words
    return msgspec.structs.replace(verdict, words=words)


def _requests(cut: ClearCandidate, turns: int) -> int:
    """Requests that are cheaper by a cut: until the window is full again, a compaction takes the results anyway."""
    return max(1, min(turns, cut.requests) if cut.requests else turns)


def _words(verdict: ClearDecision, turns: int, cold: bool, net: float, spent: float) -> str:
    cut, priced = verdict.cut, verdict.priced
    assert cut is not None
    saves = f"save {_amount(verdict.saving, priced)}"
    if verdict.clear:
        how = "the cache is cold, nothing is lost" if cold else _costs(verdict.cost, cut, priced)
        return f"{cleared_words(cut.results, cut.cleared)}: {how}, to {saves} over the next {turns} requests"
    costs = f"clearing now would cost {_amount(verdict.cost, priced)} in cache writes"
    kept = f"kept {_old(cut.results)}: {costs} to {saves}"
    return f"{kept}; reading them has cost {_amount(spent, priced)} so far, so it waits" if net > 0 else kept


def _old(results: int) -> str:
    return f"{results:,} old tool result{'' if results == 1 else 's'}"


def cleared_words(results: int, tokens: int) -> str:
    """ "cleared 1 old result (1,200 tokens)"."""
    return f"cleared {_old(results)} ({rounded(tokens)} tokens)"


def _costs(cost: float, cut: ClearCandidate, priced: bool) -> str:
    return f"it costs {_amount(cost, priced)} in cache writes ({rounded(cut.rewritten)} tokens behind them)"


def _amount(value: float, priced: bool) -> str:
    return dollars(value) if priced else f"as much as {rounded(round(value))} input tokens"


def dollars(value: float) -> str:
    """ "$0.021"; three decimals, more only where they would show nothing."""
    if value and abs(value) < 0.0005:
        return f"${value:.4f}" if abs(value) >= 0.00005 else "less than $0.0001"
    return f"${value:.3f}"


def rounded(tokens: int) -> str:
    """ "12,000": two significant digits, so that words change only when the matter does."""
    size = max(0, len(str(abs(tokens))) - 2)
    return f"{round(tokens, -size):,}"


def paid_back_words(requests: int | None) -> str:
    """After how many requests a compaction has paid for itself, to be added to a line; "" when that is not known."""
    if requests is None:
        return ""
    after = f"pays for itself after about {requests:,} more request{'s' * (requests != 1)}"
    return f", {after}" if requests else ", nothing to pay back"
