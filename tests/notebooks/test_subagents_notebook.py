"""Notebook 06 runs as shipped, and what it prints is what its sub-agents really did."""

from __future__ import annotations

import re

import pytest
from shipped import Run, execute, of

from ipyagent.journal.events import ChildEnded, ChildStarted, ToolReturned
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT, read_events

NOTEBOOK = "06_subagents.ipynb"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return execute(NOTEBOOK, tmp_path_factory.mktemp("subagents"))


def answer(run: Run, cell: str, name: str) -> str:
    """What a cell says under the name of one piece."""
    found = re.search(rf"^\*\*{re.escape(name)}\*\*\n\n(.*?)(?=^\*\*|^\[practice|\Z)", run.text(cell), re.S | re.M)
    assert found is not None, (cell, name)
    return found[1]


def test_it_runs_without_key_or_network(run: Run) -> None:
    run.check(sessions=1)


def test_each_answer_has_the_figures_of_its_own_table(run: Run) -> None:
    import pandas as pd

    for region in ("north", "south", "west"):
        table = pd.read_csv(run.folder / "data" / f"{region}.csv")
        said = answer(run, "several", f"data/{region}.csv")
        missing = int(table.isna().sum().sum())
        assert f"**{len(table)}** rows, **2** columns; missing values: {missing};" in said
        means = table.groupby("city")["sales"].mean()
        forked = answer(run, "forks", region)
        high, low = (f"{value:.2f}".removesuffix(".00") for value in (means.max(), means.min()))
        assert f"highest for {means.idxmax()} ({high})" in forked
        assert f"lowest for {means.idxmin()} ({low})" in forked


def test_only_what_is_handed_back_is_the_users(run: Run) -> None:
    assert run.text("nothing").strip() == "tables here: []"
    assert run.text("tables").splitlines() == ["north (40, 2)", "south (80, 2)"]
    assert sorted(event.handed for event in of(run.sessions[0], ChildEnded) if event.handed) == [("north",), ("south",)]


def test_forks_read_what_was_sent_from_the_cache(run: Run) -> None:
    shares = re.findall(r": (\d+)% of what", run.text("cache"))
    assert len(shares) == 3
    assert min(map(int, shares)) >= 99


def test_explorers_ran_nothing(run: Run) -> None:
    explorers = [event.child for event in of(run.sessions[0], ChildStarted) if event.kind == "explore"]
    assert len(explorers) == 2
    for child in explorers:
        events = read_events(run.places[0] / CHILDREN / child / TRANSCRIPT)
        assert {event.name for event in events if isinstance(event, ToolReturned)} == {"read_file"}


def test_the_list_and_the_sums_are_the_journals(run: Run) -> None:
    ended = of(run.sessions[0], ChildEnded)
    assert {event.status for event in ended} == {"finished"}
    calls = sum(event.requests for event in ended)
    assert run.text("cost").strip() == f"{len(ended)} sub-agents, {calls} model calls, {{'finished'}}"
    for event in ended:
        assert f"{event.child} (" in run.text("list")
    assert "checker: Checks tables for gaps and implausible values" in run.text("own")
    assert len(list((run.places[0] / CHILDREN).glob(f"*/{TRANSCRIPT}"))) == len(ended) == 10


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
    tasks = list((run.places[0].parent / "map").glob(f"*/{TRANSCRIPT}"))
    assert len(tasks) == len(islands) + 1
