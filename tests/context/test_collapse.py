"""Collapse: finished turns give way to a short account in place, near the window's end, and come back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from situations import NO_DISK

from ipyagent.config import IPyAgent
from ipyagent.context.collapse import account, collapse
from ipyagent.context.thresholds import window_state
from ipyagent.journal.events import (
    AssistantMessage,
    DecisionUndone,
    Event,
    LayerDecision,
    ToolReturned,
    TurnCollapsed,
    TurnEnded,
    UserMessage,
)
from ipyagent.journal.protocols import LayerContext, Rates
from ipyagent.journal.view import ContextView


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


class Talk:
    """A session of turns, each with one large result."""

    def __init__(self, turns: int, folder: Path = NO_DISK) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.view = ContextView()
        self.starts: list[int] = []
        for number in range(turns):
            self.turn(number)
        self.starts.append(self.add(UserMessage(text="go on", blocks=(words("go on"),))))

    def add(self, event: Event) -> int:
        made = msgspec.structs.replace(event, id=len(self.events) + 1)
        self.events.append(made)
        self.view.apply(made)
        return made.id

    def turn(self, number: int) -> None:
        call = f"t{number}"
        self.starts.append(self.add(UserMessage(text="look", blocks=(words(f"look at table {number}"),))))
        use = {"type": "tool_use", "id": call, "name": "python", "input": {"code": f"show({number})"}}
        self.add(AssistantMessage(blocks=(use,), stop_reason="tool_use"))
        self.add(ToolReturned(call=call, name="python", blocks=(words("row of data\n" * 400),)))
        self.add(AssistantMessage(blocks=(words(f"table {number} has 400 rows"),), stop_reason="end_turn"))
        self.add(TurnEnded(status="finished"))

    def situation(self, window: int) -> LayerContext:
        async def nothing(*_: Any) -> Any:
            raise AssertionError("collapse needs no model call")

        state = window_state(self.view.count().tokens, window, 4_000)
        settings = IPyAgent(environ={})
        return LayerContext(
            view=self.view, state=state, rates=Rates(), moment="request", folder=self.folder,
            turn_starts=tuple(self.starts), setting=lambda name: getattr(settings, name),
            fork=nothing, restore=nothing, hook=nothing,
        )  # fmt: skip

    def collapse(self, window: int) -> list[TurnCollapsed]:
        decided = asyncio.run(collapse.consider(self.situation(window)))
        assert not decided or isinstance(decided[-1], LayerDecision)
        return [event for event in decided if isinstance(event, TurnCollapsed)]


def test_nothing_collapses_below_the_mark() -> None:
    assert Talk(6).collapse(window=200_000) == []


def test_finished_turns_collapse_in_place_and_the_newest_stays_whole() -> None:
    talk = Talk(6)
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
    assert "row of data" in str(talk.view.messages[-3:])


def test_what_collapsed_is_not_collapsed_again() -> None:
    talk = Talk(6)
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
    talk = Talk(4)
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
    said = account([*calls, words("first"), words("It is in a.py.")])["text"]
    assert "30 calls, the last 12:" in said
    assert said.count("- grep") == 12
    assert "It is in a.py." in said
    assert "first" not in said
    assert len(said) < 2_000
