"""Collapse: finished turns give way to a short account in place, near the window's end, and come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from situations import NO_DISK, Talk, said, situation

from ipyagent.context.collapse import account, collapse
from ipyagent.journal.events import (
    DecisionUndone,
    LayerDecision,
    TurnCollapsed,
    TurnEnded,
    UserMessage,
)


class Turns(Talk):
    """A session of turns, each with one large result, and one more request."""

    def __init__(self, turns: int, folder: Path = NO_DISK) -> None:
        super().__init__()
        self.folder = folder
        for number in range(turns):
            self.user(f"look at table {number}").call(words=400, given={"code": f"show({number})"})
            self.answer(said(f"table {number} has 400 rows"))
            self.add(TurnEnded(status="finished"))
        self.user("go on")

    def collapse(self, window: int) -> list[TurnCollapsed]:
        starts = tuple(event.id for event in self.events if isinstance(event, UserMessage))
        now = situation(self.view, window=window, folder=self.folder, turn_starts=starts)
        decided = asyncio.run(collapse.consider(now))
        assert not decided or isinstance(decided[-1], LayerDecision)
        return [event for event in decided if isinstance(event, TurnCollapsed)]


def test_nothing_collapses_below_the_mark() -> None:
    assert Turns(6).collapse(window=200_000) == []


def test_finished_turns_collapse_in_place_and_the_newest_stays_whole() -> None:
    talk = Turns(6)
    before = talk.view.count().tokens
    made = talk.collapse(window=before)
    assert 2 <= len(made) <= 5
    for event in made:
        talk.add(event)
    assert talk.view.count().tokens < before - sum(event.saved for event in made) * 0.9
    shown = str(talk.view.messages)
    for number in range(6):  # every request and every answer is still there
        assert f"look at table {number}" in shown
        assert f"table {number} has 400 rows" in shown
    assert "show(0)" in shown
    assert "word word" in str(talk.view.messages[-3:])


def test_what_collapsed_is_not_collapsed_again() -> None:
    talk = Turns(6)
    window = talk.view.count().tokens
    for event in talk.collapse(window):
        talk.add(event)
    first = str(talk.view.messages)
    assert talk.collapse(window) == []
    tight = talk.collapse(talk.view.count().tokens)
    for event in tight:
        talk.add(event)
    assert all(f"table {number} has 400 rows" in str(talk.view.messages) for number in range(6)), first


def test_a_collapse_taken_back_is_expanded_again() -> None:
    talk = Turns(4)
    before = [*talk.view.messages]
    made = talk.collapse(window=talk.view.count().tokens)
    for event in made:
        talk.add(event)
    for _ in made:
        assert talk.view.undoable is not None
        talk.add(DecisionUndone(event=talk.view.undoable))
    assert talk.view.messages == before


def test_an_account_names_the_calls_and_the_last_words() -> None:
    calls = [{"type": "tool_use", "id": str(n), "name": "grep", "input": {"pattern": "x" * 200}} for n in range(30)]
    told = account([*calls, *said("first"), *said("It is in a.py.")])["text"]
    assert "30 calls, the last 12:" in told
    assert told.count("- grep") == 12
    assert "It is in a.py." in told
    assert "first" not in told
    assert len(told) < 2_000
