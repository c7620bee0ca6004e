"""Notebook 06 runs as shipped, and what it prints is what its sub-agents really did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat as formats
import pytest
from shipped import complaints, execute, text_of

from ipyagent.journal.events import ChildEnded, ChildStarted, Event, ToolReturned
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT, read_events

nbformat: Any = formats  # its functions are untyped
NOTEBOOK = "06_subagents.ipynb"
SECONDS = 40


@dataclass(frozen=True)
class Run:
    """The executed notebook, its project, the events of its one session, how long it took."""

    notebook: Any
    project: Path
    session: Path
    events: list[Event]
    seconds: float

    def text(self, cell: str) -> str:
        """All text of a cell's outputs."""
        return text_of(self.notebook, cell)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def answer(self, cell: str, name: str) -> str:
        """What a cell says under the name of one piece."""
        found = re.search(rf"^\*\*{re.escape(name)}\*\*\n\n(.*?)(?=^\*\*|^\[practice|\Z)", self.text(cell), re.S | re.M)
        assert found is not None, (cell, name)
        return found[1]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("subagents")
    notebook, seconds = execute(NOTEBOOK, place)
    (transcript,) = (place / "project" / ".ipyagent" / "sessions").glob(f"*/{TRANSCRIPT}")
    session = transcript.parent
    events = list(read_events(session / TRANSCRIPT))
    return Run(notebook, place / "project", session, events, seconds)


def test_it_runs_in_time_without_key_or_network(run: Run) -> None:
    assert run.seconds < SECONDS
    assert complaints(run.notebook) == []


def test_each_answer_has_the_figures_of_its_own_table(run: Run) -> None:
    import pandas as pd

    for region in ("north", "south", "west"):
        table = pd.read_csv(run.project / "data" / f"{region}.csv")
        said = run.answer("several", f"data/{region}.csv")
        missing = int(table.isna().sum().sum())
        assert f"**{len(table)}** rows, **2** columns; missing values: {missing};" in said
        means = table.groupby("city")["sales"].mean()
        forked = run.answer("forks", region)
        high, low = (f"{value:.2f}".removesuffix(".00") for value in (means.max(), means.min()))
        assert f"highest for {means.idxmax()} ({high})" in forked
        assert f"lowest for {means.idxmin()} ({low})" in forked


def test_only_what_is_handed_back_is_the_users(run: Run) -> None:
    assert run.text("nothing").strip() == "tables here: []"
    assert run.text("tables").splitlines() == ["north (40, 2)", "south (80, 2)"]
    assert sorted(event.handed for event in run.of(ChildEnded) if event.handed) == [("north",), ("south",)]


def test_forks_read_what_was_sent_from_the_cache(run: Run) -> None:
    shares = re.findall(r": (\d+)% of what", run.text("cache"))
    assert len(shares) == 3
    assert min(map(int, shares)) >= 99


def test_explorers_ran_nothing(run: Run) -> None:
    explorers = [event.child for event in run.of(ChildStarted) if event.kind == "explore"]
    assert len(explorers) == 2
    for child in explorers:
        events = read_events(run.session / CHILDREN / child / TRANSCRIPT)
        assert {event.name for event in events if isinstance(event, ToolReturned)} == {"read_file"}


def test_the_list_and_the_sums_are_the_journals(run: Run) -> None:
    ended = run.of(ChildEnded)
    assert {event.status for event in ended} == {"finished"}
    calls = sum(event.requests for event in ended)
    assert run.text("cost").strip() == f"{len(ended)} sub-agents, {calls} model calls, {{'finished'}}"
    for event in ended:
        assert f"{event.child} (" in run.text("list")
    assert "checker: Checks tables for gaps and implausible values" in run.text("own")
    assert len(list((run.session / CHILDREN).glob(f"*/{TRANSCRIPT}"))) == len(ended) == 10


def test_a_map_answers_for_each_file_and_does_again_only_what_changed(run: Run) -> None:
    from palmerpenguins import load_penguins

    table = load_penguins()
    islands = sorted(table["island"].unique())
    assert run.text("map").count("finished") == len(islands) == 3
    for island, line in zip(islands, run.text("map-says").splitlines(), strict=True):
        means = table[table["island"] == island].groupby("species")["body_mass_g"].mean()
        assert line.startswith(f"islands/{island}.csv | The mean of `body_mass_g` by `species`")
        if len(means) > 1:
            highest, lowest = means.idxmax(), means.idxmin()
            assert f"highest for {highest} ({means[highest]:.4f}"[:-4] in line
            assert f"lowest for {lowest} ({means[lowest]:.4f}"[:-4] in line
    again = {f"islands/{island}.csv": int(number == 0) for number, island in enumerate(islands)}
    assert run.text("map-again").strip() == str(again)
    tasks = list((run.session.parent / "map").glob(f"*/{TRANSCRIPT}"))
    assert len(tasks) == len(islands) + 1
