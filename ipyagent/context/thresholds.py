"""Where the window's marks are: one function gives the state that every meter and layer reads.

Each buffer is the smaller of its setting and a fixed share of the window (the setting's share of
200,000 tokens), so that every window from 4K up has its marks, in the right order."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ipyagent.errors import WindowTooSmall
from ipyagent.journal.protocols import Rates, WindowState
from ipyagent.journal.tokens import PROSE

REFERENCE_WINDOW = 200_000
"""The window that the settings' absolute numbers were chosen for."""


RESULT_SHARE = 0.4
"""Characters (of prose) of one tool result for each token of the window, at most: about a seventh of the window. What
is larger is mostly printed for the user's eyes, and is read again with every request until it is cleared."""
MESSAGE_SHARE = 1.0
"""Characters (of prose) of all results of one message for each token of the window, at most: about a third of it."""
LEAST_CHARS = 200
NOTES_SHARES = {
    "notes_start": 1 / 4,
    "notes_step": 1 / 6,
    "notes_section_tokens": 1 / 16,
    "notes_tokens": 1 / 4,
    "keep_tokens": 1 / 8,
    "keep_most_tokens": 1 / 8,
    "keep_user_tokens": 1 / 10,
}
"""What the session's notes, and the conversation kept behind them, may have of the window at most: a compaction by
notes leaves room to go on, and what it keeps is written to the cache again."""
TIGHT_WINDOW = 40_000
"""Of what a window has more than that, a quarter may be kept behind notes, so that 200,000 tokens leave the setting as
it is; below twice that, a window is soon full again, and an eighth of it is enough."""


def notes_limit(name: str, tokens: int, window: int) -> int:
    """The setting `name` of the notes, `tokens`, cut down to its share of a window of `window` tokens."""
    most = NOTES_SHARES[name] * window
    if name == "keep_most_tokens":
        most = max(most, (window - TIGHT_WINDOW) / 4)
    return min(tokens, max(1, int(most)))


def result_chars(chars: int, window: int) -> int:
    """The setting `chars` for one tool result, cut down to its share of a window of `window` tokens (0:
    not known)."""
    return _within(chars, window, RESULT_SHARE)


def near_threshold(state: WindowState, chars: int) -> bool:
    """Whether one more result, as large as the setting `chars` allows, would reach the auto-compact threshold."""
    return state.tokens + int(result_chars(chars, state.window) / PROSE) >= state.auto_mark


def message_chars(chars: int, window: int) -> int:
    """The setting `chars` for all results of one message, cut down to its share of the window."""
    return _within(chars, window, MESSAGE_SHARE)


def preview_chars(chars: int, window: int) -> int:
    """The setting `chars` for a preview: a quarter of what a whole result may have, at most."""
    return _within(chars, window, RESULT_SHARE / 4)


def _within(chars: int, window: int, share: float) -> int:
    return min(chars, max(LEAST_CHARS, int(share * window))) if window else chars


def _share(tokens: int, window: int) -> int:
    return min(tokens, tokens * window // REFERENCE_WINDOW)


def window_state(
    tokens: int,
    window: int,
    max_output: int,
    *,
    reserve: int = 20_000,
    auto_buffer: int = 13_000,
    warning_buffer: int = 20_000,
    error_buffer: int = 20_000,
    block_buffer: int = 3_000,
    auto_percent: int = 0,
) -> WindowState:
    """The state at `tokens` tokens of prompt in a window of `window` tokens.

    `max_output` is the model's largest reply; `auto_percent` (1-100) can only lower the
    auto-compact mark, for tests and lessons. Marks keep their order whatever the buffers are; warning
    and error stand at half of the auto-compact threshold at the lowest. All results in tokens.
    """
    effective = max(0, window - min(max_output or reserve, _share(reserve, window)))
    block = max(0, effective - _share(block_buffer, window))
    auto = min(block, max(0, effective - _share(auto_buffer, window)))
    if auto_percent:
        auto = min(auto, window * auto_percent // 100)
    error = auto - min(_share(error_buffer, window), auto // 2)
    warning = min(error, auto - min(_share(warning_buffer, window), auto // 2))
    return WindowState(
        tokens=tokens,
        window=window,
        effective=effective,
        warning_mark=warning,
        error_mark=error,
        auto_mark=auto,
        block_mark=block,
        percent_left=max(0.0, 100.0 * (auto - tokens) / auto) if auto > 0 else 0.0,
        above_warning=tokens >= warning,
        above_error=tokens >= error,
        above_auto=tokens >= auto,
        blocked=tokens >= block,
    )


def check_fixed_part(head: int, tools: int, state: WindowState) -> None:
    """Refuse a window that system prompt + tools + reserve do not fit.

    `head` counts system prompt and tools, `tools` the tools alone, in tokens. Raises
    WindowTooSmall with the numbers.
    """
    reserve = state.window - state.block_mark
    if head >= state.block_mark:
        raise WindowTooSmall(
            f"system prompt {head - tools:,} + tools {tools:,} + reserve {reserve:,} tokens do not fit the window of "
            f"{state.window:,}: choose a model with a larger window, configure a larger one in the server (Ollama: "
            "OLLAMA_CONTEXT_LENGTH), set IPyAgent.window, or remove tools"
        )


# ---- The arithmetic of clearing old results: when it pays to change a prefix that the provider has cached.
# Clearing saves reading what went, with every request to come; it costs writing anew what stands behind the cut.
# Both sides are dollars when the price is known, else shares of the input price. All functions are pure; a verdict
# says in words what it weighed.

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
        them = "it" if cuts[0].results == 1 else "them"
        words = f"kept {_old(cuts[0].results)}: the prompt would be near the auto-compact threshold without {them} too"
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
    waits = f"reading them has cost {_amount(spent, priced)} so far, so it waits until that reaches the cost"
    return f"{kept}; {waits}" if net > 0 else kept


def _old(results: int) -> str:
    return f"{results:,} old tool result{'' if results == 1 else 's'}"


def cleared_words(results: int, tokens: int) -> str:
    """ "cleared 1 old result (1,200 tokens)"."""
    return f"cleared {_old(results)} ({rounded(tokens)} tokens)"


def _costs(cost: float, cut: ClearCandidate, priced: bool) -> str:
    return f"it costs {_amount(cost, priced)} in cache writes ({rounded(cut.rewritten)} tokens after them)"


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
