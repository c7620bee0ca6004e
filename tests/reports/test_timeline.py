"""The timeline of a session: turns as users count them, what every decision changed, earlier moments."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipyagent import Agent, IPyAgent
from ipyagent.errors import UsageError
from ipyagent.extension.context_report import moment, read_words, report
from ipyagent.extension.work_cells import roll_back
from ipyagent.journal.events import (
    AssistantMessage,
    CacheBroken,
    Compacted,
    Event,
    NotesWritten,
    SystemPromptFrozen,
    ToolReturned,
    TurnEnded,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.reports.timeline import SOURCES, compare, describe, timeline, view_at
from ipyagent.ui.timeline import LETTERS, bar_words, panel_state, static_timeline, turn_lines

EVIL = "<img src=x onerror='alert(1)'> | `x` **b**"


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def session(turns: int, rows: int = 30) -> list[Event]:
    """A session that compacts everything so far in the middle of its turns."""
    found: list[Any] = [SystemPromptFrozen(system=(words("Be exact."),), tools=({"name": "get"},), tokens=20)]
    for number in range(1, turns + 1):
        found.append(UserMessage(text=f"request {number} {EVIL}", blocks=(words(f"request {number}"),)))
        if number == turns // 2 + 1:
            found.append(NotesWritten(upto=len(found), tokens=300))
            blocks = (words(f"summary {EVIL}"),)
            last = len(found) - 2
            found.append(Compacted(trigger="auto", method="summary", first=2, last=last, blocks=blocks))
            found.append(CacheBroken(cause="compaction", missed=700, expected=True))
        use = {"type": "tool_use", "id": f"t{number}", "name": "get", "input": {}}
        found.append(AssistantMessage(blocks=(use,), stop_reason="tool_use"))
        size = number - turns // 2 * (number > turns // 2)
        found.append(UsageReported(usage=Usage(input=100 * size, output=5), cost=0.01))
        found.append(ToolReturned(call=f"t{number}", name="get", blocks=(words("a row of data\n" * rows),)))
        found.append(AssistantMessage(blocks=(words(f"answer {number}"),), stop_reason="end_turn"))
        found.append(TurnEnded(status="finished"))
    return [msgspec.structs.replace(event, id=at) for at, event in enumerate(found, 1)]


def test_a_bar_a_turn_with_its_shares_and_what_it_cost_and_a_letter_for_every_mark() -> None:
    # a bar a turn with its shares and what it cost
    shown = timeline(session(6))
    assert [bar.number for bar in shown.bars] == [1, 2, 3, 4, 5, 6]
    assert {bar.ended for bar in shown.bars} == {"finished"}
    assert [round(bar.cost or 0, 4) for bar in shown.bars] == [0.01] * 6
    assert all(set(bar.sources) == set(SOURCES) for bar in shown.bars)
    assert all(abs(sum(bar.sources.values()) - bar.tokens) <= len(SOURCES) for bar in shown.bars)
    assert shown.bars[2].tokens > shown.bars[1].tokens > shown.bars[0].tokens
    assert shown.bars[3].tokens < shown.bars[2].tokens
    # every kind of mark has a letter
    kinds = set(re.findall(r'return "([^"]+)", ', inspect.getsource(describe)))
    assert {"stored", "compacted", "recalled", "skill"} <= kinds
    assert kinds <= set(LETTERS)


def test_a_mark_knows_its_turn_and_shows_before_and_after() -> None:
    events = session(6)
    shown = timeline(events)
    assert [(mark.kind, mark.turn) for mark in shown.marks] == [("notes", 4), ("compacted", 4), ("cache break", 4)]
    compacted = shown.marks[1]
    assert compacted.tokens_after < compacted.tokens_before
    rows = shown.compare(compacted.event)
    assert any("a row of data" in row.before for row in rows)
    assert not any("a row of data" in row.after for row in rows)
    assert any("summary" in row.after and "summary" not in row.before for row in rows)
    assert all(row.same for row in shown.compare(shown.marks[0].event))
    before, after = shown.around[compacted.event]
    assert before == view_at(events, compacted.event - 1).messages
    assert after == view_at(events, compacted.event).messages


def test_messages_that_stay_are_counted_not_repeated() -> None:
    old = [{"role": "user", "content": [words(str(n))]} for n in range(9)]
    new = [*old[:4], {"role": "user", "content": [words("other")]}, *old[5:]]
    rows = compare(old, new)
    assert [row.same for row in rows] == [True, False, True]
    assert rows[0].before == "… 4 messages as before …"
    assert (rows[1].before, rows[1].after) == ("user:\n4", "user:\nother")
    assert compare(old, old)[0].before == "… 9 messages as before …"


def test_three_hundred_turns_are_ready_within_a_second() -> None:
    events = session(300)
    began = time.thread_time()
    shown = timeline(events)
    assert len(shown.bars) == 300
    assert time.thread_time() - began < 3.0  # about 0.2 s


def test_what_is_shown_is_escaped_and_has_no_script_and_no_turns_are_no_error() -> None:
    # what is shown is escaped and has no script
    shown = timeline(session(4))
    bundle = static_timeline(shown, None)
    assert "<img" not in bundle["text/html"]
    assert "&lt;img" in bundle["text/html"]
    assert "<script" not in bundle["text/html"]
    assert "<img" not in bundle["text/markdown"].replace("\\<img", "")
    assert "request 3" in bundle["text/plain"]
    assert "<details>" in bundle["text/html"]
    state = panel_state(shown, None)
    assert len(state["bars"][1]) == 4
    assert {kind for _, kind, _ in state["marks"][1]} <= set(LETTERS) == set(state["kinds"])
    # a session without turns is no error
    shown = timeline([])
    assert turn_lines(shown.bars) == ["no turns yet"]
    assert static_timeline(shown, None)["text/plain"] == "no turns yet"


def test_a_number_is_a_turn_and_e_makes_it_an_event() -> None:
    events = session(6)
    ends = [event.id for event in events if isinstance(event, TurnEnded)]
    assert moment(events, "2") == (ends[1], "after turn 2")
    assert moment(events, "e2") == (2, "after event 2")
    assert moment(events, "e20") == (20, "after event 20")
    with pytest.raises(UsageError, match=r"no turn 20: 6 turns, \d+ events \(--at e20 is an event\)"):
        moment(events, "20")
    with pytest.raises(UsageError, match=r"no turn 9999: 6 turns, \d+ events; see"):
        moment(events, "9999")
    with pytest.raises(UsageError, match="no event e9999: 6 turns"):
        moment(events, "e9999")
    with pytest.raises(UsageError, match="no turn 0: 6 turns"):
        moment(events, "0")
    with pytest.raises(UsageError, match="--at needs"):
        read_words(["--at", "x"])
    with pytest.raises(UsageError, match="--raw"):
        read_words(["--rwa"])


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    made = Agent(settings=IPyAgent(environ={}, model="practice", mode="auto"), folder=tmp_path)
    yield made
    made.close()


def test_context_tells_what_the_model_was_sent_at_a_turn(agent: Agent) -> None:
    for said in ("first words", "second words", "third words"):
        agent.run_sync(said)
    listed = report(agent, ["--turns"]).splitlines()
    assert [row.split()[0] for row in listed] == ["turn", "1", "2", "3"]
    assert "second words" in listed[2]
    then = report(agent, ["--at", "2"])
    assert "second words" in then
    assert "third words" not in then
    raw = report(agent, ["--raw", "--at", "1"])
    assert '"first words"' in raw
    assert "second words" not in raw


def test_a_turn_that_was_taken_out_is_marked_until_it_is_back(agent: Agent) -> None:
    for said in ("first words", "second words", "third words"):
        agent.run_sync(said)
    roll_back(agent, "2")
    agent.run_sync("fourth words")
    rows = report(agent, ["--turns"]).splitlines()
    assert ["removed from the conversation" in row for row in rows] == [False, False, True, False, False]
    shown = timeline(agent.session.journal.read())
    forms = static_timeline(shown, None)
    assert {kind: text.count("removed from the conversation") for kind, text in forms.items()} == dict.fromkeys(
        ("text/html", "text/markdown", "text/plain"), 1
    )
    assert bar_words(shown.bars[1]).endswith("finished (removed from the conversation)")
    agent.compact("--undo")
    assert "removed from" not in report(agent, ["--turns"])
