"""`%compact --step`: one layer at a time, looked at without a trace, recorded like any decision, taken back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from compact_room import CompactRoom, words

from ipyagent import Agent
from ipyagent.assembly.compaction import CompactOptions, parse_compact
from ipyagent.errors import CompactionFailed, UsageError
from ipyagent.journal.events import Compacted, DecisionUndone, ResultsCleared, TurnCollapsed, TurnsRemoved
from ipyagent.journal.tokens import estimate_text
from ipyagent.journal.view import ContextView
from ipyagent.practice.replies import text, tool


def printed(place: CompactRoom, turns: int = 7, **settings: Any) -> Agent:
    """Each turn prints a table of about 600 tokens, with a thought before the call."""
    agent = place.agent(**settings)
    for number in range(turns):
        code = f"print({words(number, 600)!r})"
        place.turn(agent, f"weigh box {number}", tool("python", {"code": code}, thinking="7?"), text(f"done {number}"))
    return agent


def wire(place: CompactRoom, agent: Agent) -> Any:
    return place.session(agent).view.wire(marks=False)


def folder_files(place: CompactRoom, agent: Agent) -> set[str]:
    return {path.name for path in place.session(agent).journal.folder.rglob("*") if path.is_file()}


def test_the_line_takes_a_step_alone_or_looked_at_first() -> None:
    assert parse_compact("--step") == CompactOptions(step=True)
    assert parse_compact("--dry-run --step") == CompactOptions(step=True, dry_run=True)
    for line in ("--step --undo", "--step --snip 1:2", "--step keep the weights", "--step --from 2"):
        with pytest.raises(UsageError, match="combined with"):
            parse_compact(line)


def test_without_a_conversation_there_is_nothing_to_step(place: CompactRoom) -> None:
    with pytest.raises(UsageError, match="no conversation"):
        place.agent().compact("--step")


def test_steps_go_from_the_cheapest_layer_to_the_dearest_and_back_to_the_bytes_before(place: CompactRoom) -> None:
    agent = printed(place)
    events, files, requests = len(place.events(agent)), folder_files(place, agent), len(place.bodies)
    said = agent.compact("--step --dry-run")
    assert said.startswith(
        "Next: clearing old tool results (no model call): 4 old tool results are replaced by a line each"
    )
    assert "nothing was done" in said
    assert (len(place.events(agent)), len(place.bodies)) == (events, requests), "a look leaves no trace"
    assert folder_files(place, agent) == files
    stood = [wire(place, agent)]
    said = agent.compact("--step")
    stood.append(wire(place, agent))
    (cleared,) = place.of(agent, ResultsCleared)
    assert len(cleared.calls) == 4
    assert cleared.asked
    assert place.of(agent, Compacted) == []
    assert place.calls == []
    assert "next: a summary by the model (one model call)" in said
    assert "the session's notes (switched off (IPyAgent.layer_notes))" in said
    said = agent.compact("--step")
    stood.append(wire(place, agent))
    assert said.startswith("Done: a summary by the model (one model call)")
    assert len(place.calls) == 1
    assert len(place.of(agent, ResultsCleared)) == len(place.of(agent, Compacted)) == 1
    said = agent.compact("--step")
    assert "no layer has anything left to do" in said
    assert len(place.calls) == 1
    assert stood[0] != stood[1] != stood[2] == wire(place, agent)
    place.replays(agent)
    for before in (stood[1], stood[0]):
        assert "undone" in agent.compact("--undo")
        assert wire(place, agent) == before
        place.replays(agent)
    assert len(place.of(agent, DecisionUndone)) == 2
    with pytest.raises(UsageError, match="no compaction to undo"):
        agent.compact("--undo")
    agent.compact("--snip 2:2")  # before a step, it comes back after it
    snipped = wire(place, agent)
    agent.compact("--step")
    agent.compact("--undo")
    assert wire(place, agent) == snipped
    agent.compact("--undo")
    assert wire(place, agent) == stood[0]
    assert len(place.of(agent, TurnsRemoved)) == 1
    place.turn(agent, "go on", text("ok"))
    place.nothing_refused()


def test_what_a_layer_clears_by_itself_is_not_taken_back_by_undo(place: CompactRoom) -> None:
    agent = printed(place, clear_policy="every_turn")
    assert place.of(agent, ResultsCleared)
    assert not any(event.asked for event in place.of(agent, ResultsCleared))
    with pytest.raises(UsageError, match="no compaction to undo"):
        agent.compact("--undo")


def test_the_price_is_the_rewrite_once_and_a_step_comes_back_under_what_was_said_since(place: CompactRoom) -> None:
    agent = printed(place)
    before, stood = place.session(agent).view.count().tokens, wire(place, agent)[2]
    said = agent.compact("--step")
    found = re.search(
        r"The ([\d,]+) tokens after .* \$([\d.]+) more .* ([\d,]+) tokens fewer, \$([\d.]+) .* after ([\d,]+)", said
    )
    written, saved = int(found[1].replace(",", "")), int(found[3].replace(",", ""))
    rates = place.session(agent).rates()
    once, each = written * (rates.write - rates.read), saved * rates.read
    assert (found[2], found[4]) == (f"{once:.4f}", f"{each:.4f}")
    assert abs(int(found[5]) - once / each) <= 1
    place.turn(agent, "go on", text("ok"))
    usage = place.session(agent).history.recent[-1]
    assert abs(usage.cache_write - written) < 0.2 * usage.cache_write  # the server wrote about what was announced
    now = usage.prompt - estimate_text("go on")
    assert abs(saved - (before - now)) < 0.1 * saved  # and read about as much less
    place.turn(agent, "weigh another", tool("python", {"code": "print(1)"}, thinking="8?"), text("done"))
    agent.compact("--undo")
    after = wire(place, agent)[2]
    assert after[: len(stood)] == stood
    assert "weigh another" in str(after[len(stood) :])
    place.replays(agent)
    place.turn(agent, "go on", text("ok"))
    place.nothing_refused()


def test_without_a_cache_nothing_is_written_anew(place: CompactRoom) -> None:
    said = printed(place, prompt_cache=False).compact("--step")
    assert "Nothing is written again that would not be written anyway." in said
    assert "there is nothing to pay back" in said


def test_a_layer_that_fails_leaves_everything_as_it_was(place: CompactRoom) -> None:
    agent = printed(place, 3)
    before = wire(place, agent)
    place.summaries = [text("<analysis>only thoughts</analysis>")]
    with pytest.raises(CompactionFailed, match="nothing was changed: no summary in the reply"):
        agent.compact("--step")
    assert wire(place, agent) == before
    assert agent.compact("--step").startswith("Done: a summary by the model")


def test_a_finished_turn_collapses_where_that_is_on(place: CompactRoom) -> None:
    agent = printed(place, 3, layer_collapse=True, layer_clear_results=False)
    said = agent.compact("--step")
    assert said.startswith("Done: collapsing a finished turn (no model call): the turn of events")
    assert len(place.of(agent, TurnCollapsed)) >= 1
    agent.compact("--undo")
    assert ContextView.of(place.events(agent)).wire() == place.session(agent).view.wire()


def test_what_the_provider_clears_by_itself_is_passed_over_with_that_reason(place: CompactRoom) -> None:
    agent = printed(place, 3)
    for agent.settings.engine in ("server", "auto"):
        said = agent.compact("--step --dry-run")
        assert "clearing old tool results (the provider does it automatically, see IPyAgent.engine)" in said
