"""Clearing pays when what it saves exceeds what it costs, and waits until waiting has cost as much."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipyagent.context.thresholds import ClearCandidate, ClearDecision, dollars, rounded, weigh
from ipyagent.journal.protocols import Rates

RATES = Rates(input=2e-6, read=0.2e-6, write=2.5e-6, output=10e-6)
NONE = Rates()


def test_the_formula_is_the_saving_against_the_rewrite() -> None:
    verdict = weigh([ClearCandidate(0, 4, 10_000, 3_000, carried=200_000)], RATES, turns=12)
    assert verdict.saving == pytest.approx(10_000 * 0.2e-6 * 12)
    assert verdict.cost == pytest.approx(3_000 * (2.5e-6 - 0.2e-6))
    assert verdict.clear
    assert verdict.gain == pytest.approx(0.024 - 0.0069)


def test_what_does_not_pay_is_kept_with_its_arithmetic_in_words() -> None:
    verdict = weigh([ClearCandidate(0, 14, 2_000, 9_130, carried=10**9)], RATES, turns=10)
    assert not verdict.clear
    assert verdict.gain == 0.0
    assert verdict.words == "kept 14 old tool results: clearing now would cost $0.021 in cache writes to save $0.004"


def test_the_cut_that_gains_most_is_chosen() -> None:
    cuts = [
        ClearCandidate(
            0, 3, 6_000, 80_000, carried=10**9
        ),  # an old one far back: all that follows would be written anew
        ClearCandidate(1, 2, 5_500, 4_000, carried=10**9),
        ClearCandidate(2, 1, 1_000, 3_500, carried=10**9),
    ]
    verdict = weigh(cuts, RATES, turns=20)
    assert (verdict.clear, verdict.cut) == (True, cuts[1])


def test_it_waits_until_reading_the_old_results_has_cost_as_much_as_the_rewrite() -> None:
    rewrite = 5_000 * 2.3e-6
    enough = rewrite / 0.2e-6
    early, ripe = (
        ClearCandidate(0, 1, 10_000, 5_000, round(enough * 0.9)),
        ClearCandidate(0, 1, 10_000, 5_000, round(enough * 1.1)),
    )
    assert not weigh([early], RATES, turns=20).clear
    assert "so it waits" in weigh([early], RATES, turns=20).words
    assert weigh([ripe], RATES, turns=20).clear
    little = ClearCandidate(0, 1, 10_000, 3_000, round(enough * 0.1))
    assert weigh([little], RATES, turns=20).clear, "with little behind it, it would only become dearer"


def test_a_cold_cache_makes_the_rewrite_free() -> None:
    cut = ClearCandidate(0, 2, 500, 100_000)
    assert not weigh([cut], RATES, turns=3).clear
    cold = weigh([cut], RATES, turns=3, cold=True)
    assert (cold.clear, cold.cost) == (True, 0.0)
    assert cold.saving == pytest.approx(500 * (2.5e-6 + 2 * 0.2e-6))


def test_without_a_cache_every_token_costs_the_input_price() -> None:
    verdict = weigh([ClearCandidate(0, 2, 500, 100_000, carried=1)], RATES, turns=3, cached=False)
    assert (verdict.clear, verdict.cost) == (True, 0.0)
    assert verdict.saving == pytest.approx(500 * 2e-6 * 3)


def test_near_the_threshold_one_batch_frees_what_is_needed_and_pays_or_nothing_goes() -> None:
    far, near, little = (
        ClearCandidate(0, 9, 20_000, 10_000),
        ClearCandidate(3, 6, 18_000, 3_000),
        ClearCandidate(8, 1, 1_200, 100),
    )
    verdict = weigh([far, near, little], RATES, turns=20, need=15_000, near=True)
    assert (verdict.clear, verdict.cut) == (True, near), "the one that gains most of those that free enough"
    assert "the auto-compact threshold is near" in verdict.words
    few = weigh([little], RATES, turns=20, need=15_000, near=True)
    assert not few.clear, "a request or two later it would be near again"
    assert "would be near the auto-compact threshold without them too" in few.words
    small = ClearCandidate(0, 2, 600, 100, carried=10**6)
    assert weigh([small], RATES, turns=20).clear
    assert not weigh([small], RATES, turns=20, need=700).clear, "too little for a break of the cache"
    dear = weigh([ClearCandidate(0, 9, 20_000, 100_000)], RATES, turns=3, need=15_000, near=True)
    assert not dear.clear, "its own arithmetic is negative"
    assert dear.words.startswith("kept 9 old tool results: clearing now would cost $0.230 in cache writes to save")
    assert weigh([ClearCandidate(0, 9, 20_000, 100_000)], RATES, turns=3, need=15_000, near=True, asked=True).clear


def test_a_saving_is_counted_until_the_window_is_full_again() -> None:
    cut = ClearCandidate(0, 4, 10_000, 3_000, carried=10**6, requests=2)
    verdict = weigh([cut], RATES, turns=50)
    assert verdict.saving == pytest.approx(10_000 * 0.2e-6 * 2)
    assert not verdict.clear


def test_without_a_price_the_words_are_in_tokens() -> None:
    kept = weigh([ClearCandidate(0, 3, 1_000, 50_000)], NONE, turns=5)
    assert not kept.clear
    assert "$" not in kept.words
    cleared = weigh([ClearCandidate(0, 3, 50_000, 1_000, carried=10**6)], NONE, turns=5)
    assert (cleared.clear, cleared.gain) == (True, 0.0)


def test_nothing_to_clear_is_said_in_no_words() -> None:
    assert weigh([], RATES, turns=5) == ClearDecision(clear=False, cut=None)


@given(
    st.lists(st.tuples(*[st.integers(0, 10**6)] * 3), min_size=1, max_size=8),
    st.integers(1, 50),
    st.booleans(),
    st.sampled_from([RATES, NONE]),
)
def test_what_is_cleared_pays(figures: list[tuple[int, int, int]], turns: int, cold: bool, rates: Rates) -> None:
    cuts = [ClearCandidate(at, len(figures) - at, *numbers) for at, numbers in enumerate(figures)]
    verdict = weigh(cuts, rates, turns=turns, cold=cold)
    assert verdict.cut in cuts
    assert verdict.words
    assert not re.search(r"-\d", verdict.words)
    if verdict.clear:
        assert verdict.saving > verdict.cost
    elif cold:
        assert all(cut.cleared == 0 for cut in cuts)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "$0.000"), (0.0214, "$0.021"), (1.5, "$1.500"), (0.00021, "$0.0002"), (1e-6, "less than $0.0001")],
)
def test_dollars_are_short_and_never_nothing(value: float, words: str) -> None:
    assert dollars(value) == words


@pytest.mark.parametrize(
    ("tokens", "words"),
    [(0, "0"), (7, "7"), (99, "99"), (12_345, "12,000"), (140_999, "140,000")],
)
def test_tokens_have_two_digits(tokens: int, words: str) -> None:
    assert rounded(tokens) == words
