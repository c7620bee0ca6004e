"""The safety net: whatever happens and is decided, in any order, the server accepts every request."""

from __future__ import annotations

import pytest
from any_order import STEPS, Step, Walk, bytes_of, replayed, told
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ipyagent.practice.refusal import Refused

_numbers = st.integers(0, 30)
_steps = st.builds(Step, st.sampled_from(STEPS), _numbers, _numbers, _numbers)
scripts = st.lists(_steps, min_size=10, max_size=70)
QUICK = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
MANY = settings(
    max_examples=10_000,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


def hold(steps: list[Step]) -> None:
    """Every request of the session is accepted, and its journal read again gives the same bytes."""
    walk = Walk()
    try:
        walk.run(steps)
    except Refused as refused:
        pytest.fail(told(steps, refused, walk))
    assert replayed(walk.events) == bytes_of(walk.view)


@QUICK
@given(scripts)
def test_no_order_of_turns_and_decisions_makes_a_request_that_is_refused(steps: list[Step]) -> None:
    hold(steps)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@MANY
@given(scripts)
def test_nor_do_ten_thousand_random_sessions(steps: list[Step]) -> None:
    hold(steps)


def test_what_comes_back_under_another_head_comes_without_its_thinking() -> None:
    """All was snipped, so that no message stood when the head was rendered anew (found by the ten thousand)."""
    says = [Step("say", 0, 0, 0)] * 6
    hold([*says, Step("reply", 0, 0, 0), Step("snip", 0, 27, 0), Step("render", 0, 0, 0), Step("undo", 0, 0, 1)])
