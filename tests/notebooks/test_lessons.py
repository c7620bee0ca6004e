"""The practice model's lessons, and the two notebooks made of them: what they print is what the journal says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat as formats
import pytest
from kernels import ROOT
from shipped import Run, execute, of, penguins
from test_quickstart import environ

from ipyagent import Agent, IPyAgent
from ipyagent.context.notes_file import NOTES
from ipyagent.errors import UsageError
from ipyagent.journal.events import (
    CacheBroken,
    Compacted,
    DecisionUndone,
    Event,
    ForkEnded,
    LayerDecision,
    LayerFailed,
    NotesWritten,
    ResultsCleared,
    ResultStored,
    ToolReturned,
    TurnEnded,
    TurnsRemoved,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.tokens import estimate_text
from ipyagent.journal.view import ContextView
from ipyagent.model.prices import LESSON_MODEL, cost_of, rates_of
from ipyagent.practice.model.conversation import Turn
from ipyagent.practice.model.lessons import is_lesson, known, requests
from ipyagent.practice.server import PracticeServer
from ipyagent.reports.timeline import timeline
from ipyagent.ui.charts import prompt_price

nbformat: Any = formats  # its functions are untyped
NOTEBOOKS = {"compaction": "03_compaction.ipynb", "cost": "05_cache_and_cost.ipynb"}
PRICE = rates_of("practice")


# ---------------------------------------------------------------------- the lessons


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    for name, value in environ(tmp_path).items():
        monkeypatch.setenv(name, value)
    project = tmp_path / "project"
    project.mkdir()
    settings = IPyAgent(environ={}, model="practice", mode="auto", layer_notes=False, extraction=False)
    made = Agent(settings=settings, folder=project)
    yield made
    made.close()


def served(agent: Agent) -> PracticeServer:
    server = agent.connections.server("practice")
    assert isinstance(server, PracticeServer)
    return server


@pytest.mark.parametrize("name", [lesson.name for lesson in known()])
def test_every_lesson_plays_to_its_end_and_nothing_is_refused(name: str, agent: Agent) -> None:
    answers = []
    for request in requests(name):
        turn = agent.run_sync(request, lesson=name)
        assert turn.status == "finished", turn.message
        assert "{" not in turn.text
        answers.append(turn.text)
    assert not served(agent).refused
    birds = penguins()
    if name == "storing":
        assert f"**{(birds['species'] == 'Gentoo').sum()}** rows" in answers[1]
        assert "6300.0" in answers[2]
    elif name == "clearing":
        for request, answer in zip(requests(name)[1:], answers[1:], strict=True):
            said = re.search(r"Show the (\w+) (\w+) penguins of (\w+)", request)
            same = (birds["sex"] == said[1]) & (birds["species"] == said[2]) & (birds["island"] == said[3])
            assert f"**{round(birds[same]['body_mass_g'].mean(), 2)}** g" in answer
    elif name == "notes":
        rest = birds.dropna(subset=["body_mass_g"])
        slope = rest["flipper_length_mm"].cov(rest["body_mass_g"]) / rest["flipper_length_mm"].var()
        assert f"**{len(rest)}** birds" in answers[0]
        assert f"**{slope:.2f}** g" in answers[3]
        assert f"**{slope:.2f}** g" in answers[6]
        assert f"**{(rest['body_mass_g'] > 5500).sum()}** birds" in answers[4]
        assert f"**{(rest['body_mass_g'] < 3200).sum()}** birds" in answers[5]
    else:
        assert name == "small_window"
        assert f"**{len(birds)}** penguins in all" in answers[-1]


def test_lessons_and_their_requests_are_listed(agent: Agent) -> None:
    listed = agent.run_sync("lessons").text
    assert all(f"`lesson: {lesson.name}`" in listed for lesson in known())
    assert agent.run_sync("lesson: nonsense").text.startswith("Lessons of the practice model")
    told = agent.run_sync("lesson: clearing").text
    assert all(request in told for request in requests("clearing"))
    assert not any(isinstance(event, ToolReturned) for event in agent.session.journal.read())  # type: ignore[union-attr]


def test_a_request_out_of_order_says_which_comes_first(agent: Agent) -> None:
    turn = agent.run_sync("lesson: clearing 3")
    assert turn.status == "finished"
    assert requests("clearing")[0] in turn.text
    assert "too small, or storing is off" in agent.run_sync("lesson: storing 2").text


def test_a_lessons_name_stands_beside_the_request_and_the_request_reads_as_a_persons(agent: Agent) -> None:
    assert agent.run_sync("Load the penguins", lesson="clearing").text.startswith("`penguins` has")
    told = agent.run_sync("Load the walruses.", lesson="clearing").text  # no request of this lesson: it lists them
    assert all(request in told for request in requests("clearing"))
    with pytest.raises(UsageError, match=r"no lesson 'nothing'; there are clearing"):
        agent.run_sync("Load the penguins.", lesson="nothing")
    agent.settings.model = "claude-sonnet-5-5"
    with pytest.raises(UsageError, match="--lesson is for the practice model"):
        agent.run_sync("Load the penguins.", lesson="clearing")


@pytest.mark.parametrize("words", ["Make a lesson plan", "What did the lesson say?", "lessons learned: count species"])
def test_other_requests_are_no_lessons(words: str) -> None:
    assert not is_lesson(Turn(words))


def test_an_unknown_lesson_has_no_requests() -> None:
    with pytest.raises(ValueError, match=r"no lesson 'nothing'; there are clearing, notes, "):
        requests("nothing")


# ---------------------------------------------------------------------- the notebooks


@pytest.fixture(scope="module", params=NOTEBOOKS)
def executed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return execute(NOTEBOOKS[request.param], tmp_path_factory.mktemp(request.param))


only_compaction = pytest.mark.parametrize("executed", ["compaction"], indirect=True, scope="module")
only_cost = pytest.mark.parametrize("executed", ["cost"], indirect=True, scope="module")


def view(events: Sequence[Event], upto: int) -> ContextView:
    """What the model was sent after the event of that number, from the transcript alone."""
    return ContextView.of(event for event in events if event.id <= upto)


def tokens(events: Sequence[Event], upto: int) -> int:
    return view(events, upto).count().tokens


def turn_end(events: Sequence[Event], number: int) -> int:
    """The event that ended a turn, counted from 1."""
    return int(of(events, TurnEnded)[number - 1].id)


def added(events: Sequence[Event], upto: int | None = None) -> Usage:
    """What the server counted, forks included, up to an event."""
    counted = [one for one in events if isinstance(one, UsageReported | ForkEnded) and (upto is None or one.id <= upto)]
    return Usage(
        input=sum(one.usage.input for one in counted),
        cache_read=sum(one.usage.cache_read for one in counted),
        cache_write=sum(one.usage.cache_write for one in counted),
        output=sum(one.usage.output for one in counted),
    )


def cache_line(usage: Usage) -> str:
    return f"cache: {100 * usage.cache_read / usage.prompt:.1f} % of {usage.prompt:,} prompt tokens read from it"


def dollars(usage: Usage) -> str:
    cost = cost_of(LESSON_MODEL, usage)
    return f"${cost:.4f}"


def test_they_run_without_key_or_network(executed: Run) -> None:
    executed.check(sessions=3 if executed.name == NOTEBOOKS["compaction"] else 5)


@only_compaction
def test_03_a_large_result_is_in_a_file_alive_and_a_preview(executed: Run) -> None:
    events = executed.sessions[0]
    (stored,) = of(events, ResultStored)
    kept = (executed.places[0] / stored.path).read_text("utf-8")
    assert len(kept) == stored.chars > 25_000
    assert kept.count("Gentoo") == (penguins()["species"] == "Gentoo").sum()
    whole = estimate_text(kept)
    less = whole - stored.tokens
    assert f"the first request is ${less * PRICE.write:.4f} cheaper" in executed.text("storing-compare")
    assert f"Each request from here on is ${less * PRICE.read:.4f} cheaper" in executed.text("storing-compare")
    preview = of(events, ToolReturned)[0].blocks[0]["text"]
    assert len(preview) < stored.chars / 10
    assert executed.text("storing-handle").strip() == str(penguins().shape)
    said = executed.text("storing-context")
    assert f"{tokens(events, turn_end(events, 1)):,} of 200,000 tokens" in said
    assert f"{stored.chars:,} characters" in said
    assert cache_line(added(events, turn_end(events, 1))) in said
    assert "**124** rows are Gentoo" in executed.text("storing-2")


@only_compaction
def test_03_clearing_waits_until_it_pays_and_says_so(executed: Run) -> None:
    events = executed.sessions[1]
    cleared = of(events, ResultsCleared)
    words = [event.words for event in of(events, LayerDecision)]
    decided = [event.words for event in of(events, LayerDecision) if event.id < turn_end(events, 7)]
    assert decided[-1][:60] in executed.text("clearing-kept")
    assert words[0].startswith("kept 1 old tool result: clearing now would cost $")
    assert cleared
    assert all(event.id > turn_end(events, 7) for event in cleared)
    kept, after = executed.text("clearing-kept"), executed.text("clearing-cleared")
    for said, end in ((kept, turn_end(events, 7)), (after, turn_end(events, 11))):
        assert f"{tokens(events, end):,} of 18,000 tokens" in said
        assert cache_line(added(events, end)) in said
        assert dollars(added(events, end)) in said
    assert "tool results cleared" not in kept
    count, saved = sum(len(event.calls) for event in cleared), sum(event.saved for event in cleared)
    assert re.search(rf"tool results cleared\s+{saved:,} tokens \({count} results?\)", after)
    before, now = view(events, cleared[0].id - 1), view(events, cleared[0].id)
    gone = [spot.cleared for spot in now.results]
    assert sum(gone) == len(cleared[0].calls)
    assert not gone[-1]
    assert not any(spot.cleared for spot in before.results)
    assert now.count().tokens < before.count().tokens
    assert of(events, Compacted) == []
    reported = of(events, UsageReported)
    around = [event.usage for event in reported if event.id < cleared[0].id][-1:]
    around += [event.usage for event in reported if event.id > cleared[0].id][:1]
    shown = executed.text("clearing-compare")
    wrote = f"{around[1].cache_write:,} tokens to the cache again: ${around[1].cache_write * PRICE.write:.4f}"
    assert f"The next request wrote {wrote}." in shown
    assert around[1].prompt < around[0].prompt + 1_000
    assert around[1].cache_write > 1.5 * around[0].cache_write
    bars = timeline(events).bars
    lines = executed.text("clearing-turns").splitlines()[2:]
    assert [line.split()[:2] for line in lines] == [[str(bar.number), f"{bar.tokens:,}"] for bar in bars]
    assert any(later.tokens < earlier.tokens for earlier, later in pairwise(bars))


@only_compaction
def test_03_notes_compaction_costs_no_model_call(executed: Run) -> None:
    events = executed.sessions[2]
    made = of(events, Compacted)[0]
    assert (made.method, made.trigger) == ("notes", "auto")
    undone = of(events, DecisionUndone)[0]
    assert undone.event == made.id
    spent = [fork for fork in of(events, ForkEnded) if fork.purpose == "compaction" and fork.id < undone.id]
    assert spent == []
    assert made.tokens_before == tokens(events, made.id - 1)
    assert made.tokens_after == tokens(events, made.id) < made.tokens_before
    shown = executed.text("notes-compare")
    was, now = (int(each.replace(",", "")) for each in re.findall(r"([\d,]+) → ([\d,]+) tokens", shown)[0])
    assert (was, now) == (pytest.approx(made.tokens_before, abs=9), pytest.approx(made.tokens_after, abs=9))
    assert f"Each request from here on is ${(was - now) * PRICE.read:.4f} cheaper" in shown
    assert "The call that wrote it" not in shown
    written = [event for event in of(events, NotesWritten) if event.id < made.id]
    shown = executed.text("notes-file")
    turns = sum(said.id <= written[-1].upto for said in of(events, UserMessage))
    assert f"notes: {written[-1].tokens:,} tokens, up to turn {turns}, in " in shown
    assert re.findall(r"^# (.+)$", shown, re.M) == re.findall(
        r"^# (.+)$", (executed.places[2] / NOTES).read_text("utf-8"), re.M
    )
    assert len(re.findall(r"^# ", shown, re.M)) == 10
    assert "**342** birds" in shown
    assert "**49.69** g" in executed.text("notes-compaction")


@only_compaction
def test_03_undo_brings_back_what_was_there(executed: Run) -> None:
    events = executed.sessions[2]
    for cell, undone in zip(("undo-notes", "undo-full"), of(events, DecisionUndone), strict=True):
        before, after = tokens(events, undone.id - 1), tokens(events, undone.id)
        assert executed.text(cell).strip().startswith(f"undone: {before:,} → {after:,} tokens (")
        assert after > before
        requests_sent = [event.text for event in of(events, UserMessage) if event.id < undone.id]
        sent = str(view(events, undone.id).messages)
        assert all(request in sent for request in requests_sent)


@only_compaction
def test_03_full_compaction_is_one_call_that_reads_the_conversation_from_cache(executed: Run) -> None:
    events = executed.sessions[2]
    made = of(events, Compacted)[1]
    assert (made.method, made.trigger) == ("summary", "manual")
    (fork,) = [fork for fork in of(events, ForkEnded) if fork.purpose == "compaction"]
    assert fork.requests == 1
    parent = [event.usage for event in of(events, UsageReported) if event.id < fork.id][-1]
    assert fork.usage.cache_read >= 0.99 * parent.prompt
    assert made.tokens_before == tokens(events, made.id - 1)
    assert made.tokens_after == tokens(events, made.id) < 0.75 * made.tokens_before
    sizes = f"{made.tokens_before:,} → {made.tokens_after:,} tokens"
    share = f"{100 * fork.usage.cache_read / fork.usage.prompt:.0f} % of it was read from the cache"
    assert f"The call that wrote it cost {dollars(fork.usage)}; {share}." in executed.text("full-compare")
    assert f"it cost nothing (on {LESSON_MODEL} it would be {dollars(fork.usage)})" in executed.text("full-compact")
    assert f"compacted turns 1 to 8 (summary): {sizes}" in executed.text("full-compact")
    assert f"of {made.tokens_before:,} tokens, in one model call" in executed.text("full-dry")
    assert "**49.69** g" in executed.text("full-after")
    assert of(events, TurnsRemoved) == []
    assert executed.text("step-dry").startswith("Next: the session's notes (no model call)")
    assert "nothing was done; run it with %compact --step" in executed.text("step-dry")
    assert "nothing was done" in executed.text("snip-dry")


@only_compaction
def test_03_looking_back_shows_what_was(executed: Run) -> None:
    events = executed.sessions[2]
    shown = timeline(events)
    lines = executed.text("back-turns").splitlines()[2:]
    assert [line.split()[:2] for line in lines] == [[str(bar.number), f"{bar.tokens:,}"] for bar in shown.bars]
    end = turn_end(events, 2)
    assert executed.text("back-at").startswith(f"after turn 2 (event {end}): about {tokens(events, end):,} tokens")
    panel = "".join(executed.markdown("back-panel"))
    assert all(f"| {bar.number} | {bar.tokens:,} |" in panel for bar in shown.bars)
    for made in of(events, Compacted):
        assert f"event {made.id}, compacted" in panel
        assert f"{made.tokens_before:,} → {made.tokens_after:,} tokens" in panel


# ---------------------------------------------------------------------- cache and cost


def rows(said: str) -> list[list[int]]:
    """The tokens of a chart's requests: read, written, neither."""
    found = re.findall(r"^ +\d+ +([\d,]+) +([\d,]+) +([\d,]+) +[\d.]+$", said, re.M)
    return [[int(cell.replace(",", "")) for cell in row] for row in found]


def figures(usage: Usage) -> list[int]:
    return [usage.cache_read, usage.cache_write, usage.input]


@only_cost
def test_05_the_hit_rate_is_that_of_the_reported_usage(executed: Run) -> None:
    events = executed.sessions[0]
    end = turn_end(events, 6)
    usage = added(events, end)
    said = executed.text("rate-context")
    assert cache_line(usage) in said
    assert dollars(usage) in said
    assert usage.cache_read > 0.8 * usage.prompt
    reported = [event.usage for event in of(events, UsageReported) if event.id <= end]
    assert rows(executed.text("rate-cache")) == [figures(one) for one in reported]
    for before, now in pairwise(reported):
        assert now.cache_read == before.cache_read + before.cache_write  # all that was there was read
    paid, without = sum(prompt_price(one, PRICE) for one in reported), usage.prompt * PRICE.input
    assert f"${paid:.4f}; without a cache it would be ${without:.4f}" in executed.text("rate-cache")


@only_cost
def test_05_other_tools_break_the_cache_and_the_cause_is_named(executed: Run) -> None:
    events = executed.sessions[0]
    (broken,) = [event for event in of(events, CacheBroken) if event.id < turn_end(events, 7)]
    assert not broken.expected
    assert broken.cause.startswith("the tools changed")
    at = [event.id for event in of(events, UsageReported)]
    usages = [event.usage for event in of(events, UsageReported)]
    first = next(index for index, one in enumerate(at) if one > turn_end(events, 6))
    there = usages[first - 1].cache_read + usages[first - 1].cache_write
    assert broken.missed == there - usages[first].cache_read
    said = f"! request {first + 1}: {broken.missed:,} tokens were not read from the cache: {broken.cause}"
    assert said in executed.text("break-cache")
    shown = rows(executed.text("break-cache"))
    assert shown[first - 1 : first + 2] == [figures(one) for one in usages[first - 1 : first + 2]]
    for row in rows(executed.text("unmarked"))[len(shown) :]:  # without marks: neither read nor written
        assert row[:2] == [0, 0]
        assert row[2] > 0


@only_cost
def test_05_clearing_before_every_request_sends_less_and_costs_more(executed: Run) -> None:
    economic, every_turn = executed.sessions[1:3]
    assert all("clearing now would cost $" in event.words for event in of(economic, LayerDecision))
    assert of(economic, ResultsCleared) == []
    assert of(every_turn, ResultsCleared) != []
    for cell, events in (("clear-economic", economic), ("clear-every-turn", every_turn)):
        reported = [event.usage for event in of(events, UsageReported)]
        assert rows(executed.text(cell)) == [figures(one) for one in reported]
        assert f"${sum(prompt_price(one, PRICE) for one in reported):.4f}; without" in executed.text(cell)
    textbook, ours = added(every_turn), added(economic)
    assert textbook.prompt < ours.prompt
    assert (cost_of(LESSON_MODEL, textbook) or 0) > 1.2 * (cost_of(LESSON_MODEL, ours) or 0)


@only_cost
def test_05_a_small_window_ends_without_layers_and_goes_through_with_them(executed: Run) -> None:
    without, having = executed.sessions[3:5]
    ends = of(without, TurnEnded)
    assert ends[-1].status == "failed"
    assert f"the session ends here: {ends[-1].message}" in executed.text("small-without")
    assert len(ends) < len(requests("small_window"))
    ends = of(having, TurnEnded)
    assert [end.status for end in ends] == ["finished"] * len(requests("small_window"))
    assert f"**{len(penguins())}** penguins in all" in executed.text("small-with")
    said, usage = executed.text("small-context"), added(having)
    assert f"{tokens(having, ends[-1].id):,} of 16,000 tokens" in said
    assert cache_line(usage) in said
    assert dollars(usage) in said
    text = executed.text("small-window")
    assert [event for event in having if isinstance(event, Compacted | ResultsCleared)]
    shown = timeline(having)
    for mark in shown.marks:
        if mark.tokens_before != mark.tokens_after:
            assert f"turn {mark.turn}: {mark.kind}, {mark.tokens_before:,} → {mark.tokens_after:,} tokens" in text
    reported = [one.usage for one in of(having, UsageReported)]
    assert rows(executed.text("small-cache")) == [figures(one) for one in reported]
    prompts = [one.usage.prompt for one in having if isinstance(one, UsageReported | ForkEnded)]
    assert max(prompts) < 16_000
    assert of(having, LayerFailed) == []
    lines = text.splitlines()[1 : 1 + len(shown.bars)]
    assert [line.split()[:2] for line in lines] == [[str(bar.number), f"{bar.tokens:,}"] for bar in shown.bars]
