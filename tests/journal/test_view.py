"""Whatever happened, the request is valid, equals the plain reference, and what was sent stays as it was."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
from event_lists import event_lists
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_view import reference
from view_checks import THOUGHTS, breaches, flat, marks, reply, result, user

from ipyagent.journal.events import (
    AssistantMessage,
    BlockDropped,
    Event,
    ModelChosen,
    SystemPromptFrozen,
    SystemReminder,
    ThinkingDropped,
    Usage,
    UsageReported,
)
from ipyagent.journal.view import ContextView
from ipyagent.practice.server.models import catalogue
from ipyagent.practice.server.rules import check_conversation

CARD = catalogue(200_000, 64_000, None)["practice"]
DEPTH = int(os.environ.get("VIEW_EXAMPLES", "60"))
quick = settings(max_examples=DEPTH, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(event_lists(), st.randoms(use_true_random=False))
def test_after_every_event_the_view_keeps_its_rules_and_equals_the_reference(events: list[Event], random: Any) -> None:
    """Reading leaves no trace: the view built in one go, and the one that was read all the time, tell the same; and a
    request that was given out never changes."""
    view, given_out = ContextView(), []
    for count, event in enumerate(events, 1):
        view.apply(event)
        for _ in range(random.randint(0, 2)):
            random.choice([view.wire, view.count, view.event_with_images, lambda: view.open_calls, view.__repr__])()
        bare = view.wire(marks=False)
        messages = bare[2]
        assert list(breaches(messages, closed=view.sendable)) == []
        assert messages == reference(events[:count])
        if view.sendable and messages[-1]["role"] == "assistant":
            paused = [e for e in events[:count] if isinstance(e, AssistantMessage) and e.stop_reason == "pause_turn"]
            assert paused, "only a paused reply may have the last word"
        fresh, wire = ContextView.of(events[:count]), view.wire()
        assert wire == fresh.wire()
        assert view.count() == fresh.count()
        assert (view.open_calls, view.partial_text, view.sendable) == (
            fresh.open_calls, fresh.partial_text, fresh.sendable,
        )
        given_out += [(each, copy.deepcopy(each)) for each in (wire, bare)]
        found = marks(*wire)
        assert len(found) <= 4
        assert all(block.get("type") not in THOUGHTS for block in found)
        assert all(block.get("type") != "text" or block["text"].strip() for block in found)
        assert marks(*bare) == []
        if view.messages and any(b["type"] not in THOUGHTS for b in view.messages[-1]["content"]):
            assert marks(wire[2][-1]), "the end carries the rolling mark"
        assert view.count().base >= 0
        assert 0.5 <= view.count().factor <= 2.5
    assert [at for at, (each, as_it_was) in enumerate(given_out) if each != as_it_was] == []
    view.apply(user("x"))
    view.apply(reply("y"))
    view.apply(UsageReported(usage=Usage(input=900, output=100), predicted=900, raw=0))
    assert view.count().tokens == 1_000, "the count follows reports"


@quick
@given(event_lists(unknown=False))
def test_the_practice_server_takes_every_sendable_view(events: list[Event]) -> None:
    view = ContextView()
    for event in events:
        view.apply(event)
        if view.sendable:
            check_conversation(view.wire()[2], CARD)


@quick
@given(event_lists(longest=60))
def test_what_was_sent_is_changed_by_recorded_decisions_only(events: list[Event]) -> None:
    view = ContextView()
    sent: list[tuple[str, str]] = []
    for event in events:
        view.apply(event)
        if isinstance(event, ThinkingDropped | BlockDropped | ModelChosen | SystemPromptFrozen):
            sent = []
        if view.sendable:
            now = flat(view.wire(marks=False)[2])
            assert now[: len(sent)] == sent
            sent = now


@quick
@given(event_lists(decisions=False, longest=60), st.data())
def test_late_results_change_nothing_that_was_sent(events: list[Event], data: Any) -> None:
    view = ContextView.of(events)
    view.apply(SystemReminder(id=len(events) + 1, text="next"))
    before = flat(view.wire(marks=False)[2])
    calls = [call for call in "abcd" if call in view.calls.seen] or ["a"]
    view.apply(result(data.draw(st.sampled_from(calls)), "late"))
    assert flat(view.wire(marks=False)[2]) == before


@pytest.mark.slow
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(event_lists(longest=80))
def test_every_prefix_equals_the_reference_deeply(events: list[Event]) -> None:
    view = ContextView()
    for count, event in enumerate(events, 1):
        view.apply(event)
        assert view.messages == reference(events[:count])
        assert list(breaches(view.messages, closed=view.sendable)) == []
