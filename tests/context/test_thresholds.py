"""The marks of every window from 4K to 1M: the spec's numbers, and their order whatever is set."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipyagent.config import IPyAgent
from ipyagent.context.thresholds import NOTES_SHARES, check_fixed_part, notes_limit, result_tokens, window_state
from ipyagent.errors import WindowTooSmall
from ipyagent.journal.protocols import WindowState

WINDOWS = [4_096, 8_192, 16_384, 32_768, 65_536, 128_000, 200_000, 262_144, 500_000, 1_000_000]


def marks(state: WindowState) -> tuple[int, ...]:
    return state.warning_mark, state.error_mark, state.auto_mark, state.block_mark, state.effective, state.window


def test_the_numbers_of_the_specification_at_200k() -> None:
    state = window_state(0, 200_000, 64_000)
    assert state.effective == 180_000
    assert state.auto_mark == 167_000
    assert state.warning_mark == state.error_mark == 147_000
    assert state.block_mark == 177_000


def test_constants_hold_above_200k() -> None:
    state = window_state(0, 1_000_000, 128_000)
    assert marks(state) == (947_000, 947_000, 967_000, 977_000, 980_000, 1_000_000)


def test_shares_hold_below_200k() -> None:
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
    assert result_tokens(25_000, 200_000) == 8_620
    assert result_tokens(25_000, 32_000) == 4_413
