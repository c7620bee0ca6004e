"""The marks of every window from 4K to 1M: the spec's numbers, and their order whatever is set."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipyagent.config import IPyAgent
from ipyagent.context.thresholds import (
    NOTES_SHARES,
    ClearCandidate,
    ClearDecision,
    check_fixed_part,
    dollars,
    near_threshold,
    notes_limit,
    rounded,
    weigh,
    window_state,
)
from ipyagent.errors import WindowTooSmall
from ipyagent.journal.protocols import Rates, WindowState

WINDOWS = [4_096, 8_192, 16_384, 32_768, 65_536, 128_000, 200_000, 262_144, 500_000, 1_000_000]


def marks(state: WindowState) -> tuple[int, ...]:
    return state.warning_mark, state.error_mark, state.auto_mark, state.block_mark, state.effective, state.window


def test_the_numbers_of_the_specification_at_200k() -> None:
    state = window_state(0, 200_000, 64_000)
    assert state.effective == 180_000
    assert state.auto_mark == 167_000
    assert state.warning_mark == state.error_mark == 147_000
    assert state.block_mark == 177_000


def test_constants_hold_above_200k_and_shares_below() -> None:
    state = window_state(0, 1_000_000, 128_000)
    assert marks(state) == (947_000, 947_000, 967_000, 977_000, 980_000, 1_000_000)
    assert marks(window_state(0, 20_000, 64_000)) == (14_700, 14_700, 16_700, 17_700, 18_000, 20_000)


def test_every_window_has_its_marks_in_order_and_room_between() -> None:
    for window in WINDOWS:
        for max_output in [0, 1_024, 64_000]:
            state = window_state(0, window, max_output)
            warning, error, auto, block, effective, whole = marks(state)
            assert 0 < warning <= error < auto < block < effective < whole == window
            assert warning > 0.6 * window


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 2_000_000), st.integers(0, 200_000), st.integers(0, 3_000_000),
    st.fixed_dictionaries({
        name: st.integers(0, 400_000)
        for name in ("reserve", "auto_buffer", "warning_buffer", "error_buffer", "block_buffer")
    }),
    st.integers(0, 100),
)
def test_no_setting_disturbs_the_order_or_the_flags(
    window: int, max_output: int, tokens: int, buffers: dict[str, int], percent: int
) -> None:
    state = window_state(tokens, window, max_output, auto_percent=percent, **buffers)
    found = marks(state)
    assert list(found) == sorted(found)
    assert found[0] >= 0
    assert 0 <= state.percent_left <= 100
    assert (state.above_warning, state.above_error, state.above_auto, state.blocked) == tuple(
        tokens >= mark for mark in found[:4]
    )


@pytest.mark.parametrize(("tokens", "flags"), [
    (146_999, (False, False, False, False)), (147_000, (True, True, False, False)),
    (166_999, (True, True, False, False)), (167_000, (True, True, True, False)),
    (176_999, (True, True, True, False)), (177_000, (True, True, True, True)),
])
def test_a_mark_is_passed_when_it_is_reached(tokens: int, flags: tuple[bool, ...]) -> None:
    state = window_state(tokens, 200_000, 64_000)
    assert (state.above_warning, state.above_error, state.above_auto, state.blocked) == flags


def test_the_percentage_lowers_the_auto_mark_and_never_raises_it() -> None:
    assert window_state(0, 200_000, 64_000, auto_percent=50).auto_mark == 100_000
    assert window_state(0, 200_000, 64_000, auto_percent=50).warning_mark == 80_000
    assert window_state(0, 200_000, 64_000, auto_percent=100).auto_mark == 167_000
    low = window_state(0, 200_000, 64_000, auto_percent=5)
    assert (low.auto_mark, low.above_warning, low.percent_left) == (10_000, False, 100.0)


def test_percent_left_counts_down_to_the_auto_mark() -> None:
    assert window_state(83_500, 200_000, 64_000).percent_left == 50.0
    assert window_state(190_000, 200_000, 64_000).percent_left == 0.0


def test_a_window_that_is_too_small_is_refused_in_numbers_that_add_up() -> None:
    state = window_state(0, 8_192, 4_096)
    check_fixed_part(state.block_mark - 1, 5_000, state)
    with pytest.raises(WindowTooSmall) as caught:
        check_fixed_part(state.block_mark, 5_000, state)
    message = str(caught.value)
    assert "\n" not in message
    assert f"system prompt {state.block_mark - 5_000:,} + tools 5,000 + reserve {8_192 - state.block_mark:,}" in message
    assert "the window of 8,192" in message
    assert "remove tools" in message


@pytest.mark.parametrize("window", [4_000, 8_000, 32_000, 64_000, 200_000, 1_000_000])
def test_notes_and_what_is_kept_behind_them_leave_half_of_the_window(window: int) -> None:
    limits = {name: notes_limit(name, getattr(IPyAgent(environ={}), name), window) for name in NOTES_SHARES}
    assert limits["notes_tokens"] + limits["keep_most_tokens"] <= window // 2
    assert 0 < limits["notes_step"] < limits["notes_start"] < window // 2
    assert limits["notes_section_tokens"] <= limits["notes_tokens"] // 4
    if window >= 200_000:
        assert limits == {name: getattr(IPyAgent(environ={}), name) for name in NOTES_SHARES}


def test_a_large_result_has_the_tokens_of_its_size_in_prose() -> None:
    for window, tokens in ((200_000, 8_620), (32_000, 4_413)):
        mark = window_state(0, window, 64_000).auto_mark
        assert near_threshold(window_state(mark - tokens, window, 64_000), 25_000)
        assert not near_threshold(window_state(mark - tokens - 1, window, 64_000), 25_000)


# ---------------------------------------------------------------------- what clearing pays


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
    assert "so it waits until that reaches the cost" in weigh([early], RATES, turns=20).words
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
    assert "would be near the auto-compact threshold without it too" in few.words
    several = weigh([ClearCandidate(8, 2, 1_200, 100)], RATES, turns=20, need=15_000, near=True)
    assert "would be near the auto-compact threshold without them too" in several.words
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
