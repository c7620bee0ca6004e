"""The safety net: whatever happens and is decided, in any order, the server accepts every request."""

from __future__ import annotations

import pytest
from any_order import STEPS, Step, Walk, bytes_of, replayed, told, words
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ipyagent.journal.events import (
    AssistantMessage,
    BlockDropped,
    Compacted,
    DecisionUndone,
    Event,
    ModelChosen,
    ResultsCleared,
    ResultStored,
    Streamed,
    SystemPromptFrozen,
    SystemReminder,
    ThinkingDropped,
    ToolReturned,
    TurnCollapsed,
    TurnEnded,
    TurnsRemoved,
)
from ipyagent.practice.server.models import Refused

_numbers = st.integers(0, 30)
_steps = st.builds(Step, st.sampled_from(STEPS), _numbers, _numbers, _numbers)
scripts = st.lists(_steps, min_size=10, max_size=70)
EVENTS = {
    AssistantMessage, BlockDropped, Compacted, DecisionUndone, ModelChosen, ResultsCleared, ResultStored, Streamed,
    SystemPromptFrozen, SystemReminder, ThinkingDropped, ToolReturned, TurnCollapsed, TurnEnded, TurnsRemoved,
}  # fmt: skip
"""What must have happened over the run: every sort of event and decision."""
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
MANY = settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


def hold(steps: list[Step]) -> Walk:
    """Every request of the session is accepted, and its journal read again gives the same bytes."""
    walk = Walk()
    try:
        walk.run(steps)
    except Refused as refused:
        pytest.fail(told(steps, refused, walk))
    assert replayed(walk.events) == bytes_of(walk.view)
    return walk


def test_no_order_of_turns_and_decisions_makes_a_request_that_is_refused() -> None:
    taken: set[str] = set()
    decided: set[type[Event]] = set()

    @seed(10)  # each sort seven times at least
    @QUICK
    @given(scripts)
    def every(steps: list[Step]) -> None:
        decided.update(type(event) for event in hold(steps).events)
        taken.update(step.what for step in steps)

    every()
    assert taken == set(STEPS)
    assert decided >= EVENTS


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@MANY
@given(scripts)
def test_nor_do_hundreds_of_random_sessions(steps: list[Step]) -> None:
    hold(steps)


def test_what_comes_back_under_another_head_comes_without_its_thinking() -> None:
    """All was snipped, so that no message stood when the head was rendered anew (found by random sessions)."""
    says = [Step("say", 0, 0, 0)] * 6
    hold([*says, Step("reply", 0, 0, 0), Step("snip", 0, 27, 0), Step("render", 0, 0, 0), Step("undo", 0, 0, 1)])


def test_what_leaves_with_a_range_although_it_is_outside_leaves_no_gap_either() -> None:
    """The range ends with a call, whose result is all that follows before the next reply, or begins with a result."""
    talk = [Step("say", 0, 0, 0), Step("reply", 2, 2, 1), Step("return", 0, 0, 0), Step("reply", 2, 2, 1)]
    talk += [Step("return", 0, 0, 0), Step("reply", 2, 0, 0)]
    for first in range(1, 14):
        for last in range(first, 14):
            for blocks in ((), (words("[snipped]"),)):
                walk = Walk()
                for step in talk:
                    getattr(walk, step.what)(*step[1:])
                walk.add(TurnsRemoved(first=first, last=last, blocks=blocks))
                walk.run([])
                roles = [message["role"] for message in walk.view.messages]
                assert roles == [("user", "assistant")[at % 2] for at in range(len(roles))], (first, last, blocks)
                assert replayed(walk.events) == bytes_of(walk.view)
