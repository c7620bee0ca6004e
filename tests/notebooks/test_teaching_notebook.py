"""Notebook 08 runs as shipped and what it shows to the class is what happened."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import nbformat as formats
import pytest
from kernels import ROOT
from shipped import Run, execute, of, penguins
from test_lessons import added, cache_line, dollars, tokens, turn_end, view

from ipyagent.journal.events import (
    CacheBroken,
    Compacted,
    DecisionUndone,
    ForkEnded,
    LayerFailed,
    ResultsCleared,
    ResultStored,
    TurnEnded,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.tokens import estimate_text
from ipyagent.model.prices import LESSON_MODEL, cost_of, rates_of
from ipyagent.practice.model.lessons import requests
from ipyagent.reports.timeline import Shares, timeline

nbformat: Any = formats  # its functions are untyped
NAME = "08_teaching.ipynb"
PRICE = rates_of("practice")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return execute(NAME, tmp_path_factory.mktemp("teaching"))


def source() -> Any:
    return nbformat.read(ROOT / "notebooks" / NAME, as_version=4)


def table(said: str) -> dict[str, list[str]]:
    """The rows of a step's table: source, then before, after and change."""
    found = re.findall(r"^  ([a-z][a-z ]*?)  +([\d,]+) +([\d,]+|\?)(?: +([-+][\d,]+))?\s*$", said, re.M)
    return {row[0]: list(row[1:]) for row in found}


def test_its_minutes_fill_the_lesson() -> None:
    notebook = source()
    words = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    minutes = [(int(a), int(b)) for a, b in re.findall(r"^## .*\(minutes (\d+)-(\d+)\)$", words, re.M)]
    assert minutes[0][0] == 0
    assert minutes[-1][1] == 45
    assert all(before[1] == after[0] for before, after in pairwise(minutes))
    for begins, ends in minutes:
        assert f"| {begins}-{ends} | " in words
    assert words.count("<details><summary>Answer") == words.count("</details>")
    for name in re.findall(r"`(\d\d_\w+\.ipynb)`", words):
        assert (ROOT / "notebooks" / name).exists()


def test_it_runs_without_key_or_network(run: Run) -> None:
    run.check(sessions=5)
    assert all(of(events, LayerFailed) == [] for events in run.sessions)


def test_everything_is_sent_with_the_second_request(run: Run) -> None:
    events = run.sessions[0]
    assert f"{tokens(events, turn_end(events, 2)):,} of 200,000 tokens" in run.text("second")
    usage = added(events, turn_end(events, 2))
    assert cache_line(usage) in run.text("first-context")
    assert dollars(usage) in run.text("first-context")


def test_storing_shows_tokens_and_price_before_and_after(run: Run) -> None:
    events = run.sessions[1]
    (stored,) = of(events, ResultStored)
    whole = estimate_text((run.places[1] / stored.path).read_text("utf-8"))
    less = whole - stored.tokens
    assert f"the first request is ${less * PRICE.write:.4f} cheaper" in run.text("storing-figures")
    assert f"Each request from here on is ${less * PRICE.read:.4f} cheaper" in run.text("storing-figures")
    assert stored.tokens < whole / 5
    assert f"**{(penguins()['species'] == 'Gentoo').sum()}** rows are Gentoo" in run.text("storing-question")


def test_a_new_tool_breaks_the_cache_and_the_cost_is_stated(run: Run) -> None:
    events = run.sessions[2]
    (broken,) = of(events, CacheBroken)
    said = run.text("cache-break")
    assert f"! request {len(of(events, UsageReported)) - 1}: {broken.missed:,} tokens were not read from the cache: {broken.cause}" in said
    usages = [event.usage for event in of(events, UsageReported)]
    rows = re.findall(r"^ +\d+ +([\d,]+) +([\d,]+) +([\d,]+) +([\d.]+)$", said, re.M)
    assert len(rows) == len(usages)
    for row, usage in zip(rows, usages, strict=True):
        assert [int(cell.replace(",", "")) for cell in row[:3]] == [usage.cache_read, usage.cache_write, usage.input]
        paid = usage.cache_read * PRICE.read + usage.cache_write * PRICE.write + usage.input * PRICE.input
        assert row[3] == f"{paid:.4f}"
    falls = [number for number, (one, other) in enumerate(pairwise(usages), 1) if other.cache_read < one.cache_read]
    assert len(falls) == 1


def test_each_step_has_one_layer_act_and_tells_before_after_and_price(run: Run) -> None:
    events = run.sessions[3]
    decisions = [event for event in events if isinstance(event, ResultsCleared | Compacted)]
    assert [type(event) for event in decisions] == [ResultsCleared, Compacted, Compacted]
    assert [event.method for event in of(events, Compacted)] == ["notes", "summary"]
    assert "nothing was done" in run.text("step-look")
    titles = ("clearing old tool results (no", "the session's notes (no", "a summary by the model (one")
    looked = table(run.text("step-look"))
    for cell, decision, title in zip(("step-clear", "step-notes", "step-summary"), decisions, titles, strict=True):
        said = run.text(cell)
        assert said.startswith(f"Done: {title} model call)")
        before, after = view(events, decision.id - 1), view(events, decision.id)
        shown = table(said)
        known = [Shares().estimated(one) for one in (before, after)]
        was = Shares().of(before)
        off = sum(was.values()) / sum(known[0].values())  # by the measure of the count before it
        then = {name: was[name] if known[1][name] == known[0][name] else round(known[1][name] * off) for name in was}
        sums = [sum(was.values()), sum(then.values())]
        assert shown["in all"] == [f"{sums[0]:,}", f"{sums[1]:,}", f"{sums[1] - sums[0]:+,}"]
        rows = [row for name, row in shown.items() if name != "in all"]
        for column, total in enumerate(sums):  # the column adds up
            assert sum(int(row[column].replace(",", "")) for row in rows) == total
        assert sums[1] < sums[0]
        assert shown["tool results"][0] == f"{Shares().of(before)['tool results']:,}"
        assert f"${(sums[0] - sums[1]) * PRICE.read:.4f} when they are read from the cache" in said
    assert table(run.text("step-clear")) == looked  # what was announced is what was done


def test_the_price_of_a_step_is_what_the_next_request_writes_and_what_the_call_cost(run: Run) -> None:
    events = run.sessions[3]
    said = run.text("step-clear")
    pattern = r"The ([\d,]+) tokens .* \$([\d.]+) more .* ([\d,]+) tokens fewer, .* after ([\d,]+) more requests?"
    found = re.search(pattern, said)
    written, saved = int(found[1].replace(",", "")), int(found[3].replace(",", ""))
    assert found[2] == f"{written * (PRICE.write - PRICE.read):.4f}"
    assert int(found[4].replace(",", "")) == math.ceil(written * (PRICE.write - PRICE.read) / (saved * PRICE.read))
    assert "Nothing is written again that would not be written anyway" in run.text("step-notes")
    (fork,) = [event for event in of(events, ForkEnded) if event.purpose == "compaction"]
    cost = cost_of(LESSON_MODEL, fork.usage)
    share = 100 * fork.usage.cache_read / fork.usage.prompt
    said = run.text("step-summary")
    assert f"The call read {fork.usage.prompt:,} tokens ({share:.1f} % from the cache)" in said
    assert f"wrote {fork.usage.output:,}: nothing (on {LESSON_MODEL} it would be ${cost:.4f})" in said
    assert "no layer has anything left to do" in said


def test_the_time_machine_shows_what_was_and_undo_brings_it_back(run: Run) -> None:
    events = run.sessions[3]
    decisions = [event.id for event in events if isinstance(event, ResultsCleared | Compacted)]
    undone = of(events, DecisionUndone)
    assert [event.event for event in undone] == decisions[::-1]
    for line, event in zip([line for line in run.text("undo").splitlines() if line], undone, strict=True):
        assert line.startswith(f"undone: {tokens(events, event.id - 1):,} → {tokens(events, event.id):,} tokens (")
    sent = str(view(events, undone[-1].id).messages)
    assert all(said.text in sent for said in of(events, UserMessage))
    assert "[Previous: used" not in sent
    assert "**4679.74** g" in run.text("work-goes-on")
    end = turn_end(events, 2)
    assert run.text("at").startswith(f"after turn 2 (event {end}): about {tokens(events, end):,} tokens")
    assert len(of(events, TurnEnded)) == 10
    assert run.text("turns").count(" penguins of ") == 9
    assert "undone" in run.text("panel")


def test_a_small_window_is_gone_through_with_nobody_stepping(run: Run) -> None:
    events = run.sessions[4]
    assert [end.status for end in of(events, TurnEnded)] == ["finished"] * len(requests("small_window"))
    said = run.text("alone-figures")
    assert len([event for event in events if isinstance(event, Compacted | ResultsCleared)]) >= 2
    for mark in timeline(events).marks:
        if mark.tokens_before != mark.tokens_after:
            assert f"turn {mark.turn}: {mark.kind}, {mark.tokens_before:,} → {mark.tokens_after:,} tokens" in said
    assert max(event.usage.prompt for event in of(events, UsageReported)) < 20_000
    assert f"penguins counted: {len(penguins())}" in run.text("alone")
