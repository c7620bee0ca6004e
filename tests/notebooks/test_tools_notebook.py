"""Notebook 07 runs as shipped, and what it prints is what the tools and hooks really did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nbformat as formats
import pytest
from shipped import complaints, execute, text_of

from ipyagent.journal.events import Event, LayerFailed, ToolCalled, ToolReturned
from ipyagent.journal.journal import TRANSCRIPT, read_events

nbformat: Any = formats  # its functions are untyped
NOTEBOOK = "07_tools_and_hooks.ipynb"
SECONDS = 40


@dataclass(frozen=True)
class Run:
    """The executed notebook, the events of its one session, how long it took."""

    notebook: Any
    events: list[Event]
    seconds: float

    def text(self, cell: str) -> str:
        """All text of a cell's outputs."""
        return text_of(self.notebook, cell)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("tools")
    notebook, seconds = execute(NOTEBOOK, place)
    (transcript,) = (place / "project").rglob(TRANSCRIPT)
    return Run(notebook, list(read_events(transcript)), seconds)


def penguins() -> Any:
    from palmerpenguins import load_penguins  # type: ignore[import-untyped]

    return load_penguins()


def test_it_runs_in_time_without_key_or_network(run: Run) -> None:
    assert run.seconds < SECONDS
    assert complaints(run.notebook) == []


def test_the_tool_answers_with_its_own_figures(run: Run) -> None:
    assert run.text("direct").strip() == str(100 * 1.08)
    assert f"`to_usd` answered: **{250 * 1.08}**" in run.text("ask")
    assert f"`to_usd` answered: **{1000 * 1.12:.1f}**" in run.text("several")
    first = run.of(ToolCalled)[0]
    assert (first.name, first.input) == ("to_usd", {"amount": 250.0, "currency": "EUR"})
    assert "no rate for 'SEK'; known: EUR, GBP, CHF" in run.text("wrong")
    assert run.of(ToolReturned)[1].is_error


def test_a_table_is_previewed_with_its_true_size(run: Run) -> None:
    count = int((penguins()["island"] == "Dream").sum())
    assert run.text("same").strip() == str(count)
    (shown,) = [event for event in run.of(ToolReturned) if event.name == "sightings"]
    assert f"[{count} rows x 8 columns]" in str(shown.blocks)


def test_a_denied_call_did_not_run_and_the_changed_one_ran_changed(run: Run) -> None:
    assert "A hook of the user's denied this call: variables are not deleted in this notebook" in run.text("denied")
    assert run.text("still").strip() == str(len(penguins()))
    assert not any("del penguins" in str(event.input) for event in run.of(ToolCalled))
    changed = [event.input for event in run.of(ToolCalled) if event.input.get("amount") == 10.0]
    assert changed == [{"amount": 10.0, "currency": "GBP"}]
    assert str(10 * 1.27) in run.text("changed")
    assert 'changed the arguments of this call: {"amount": 10.0, "currency": "GBP"}' in run.text("changed")


def test_what_the_hooks_kept_is_what_happened(run: Run) -> None:
    mean = penguins()["body_mass_g"].mean()
    assert f"**{mean:.2f}**" in run.text("sum")
    kept = run.text("kept")
    assert kept.splitlines()[0] == "['finished', 'finished']"
    calls = [event.name for event in run.of(ToolCalled)]
    assert [line.split()[1] for line in kept.splitlines()[2:]] == calls[-4:-1]
    assert run.text("seen").strip() == "True"


def test_a_broken_hook_is_reported_and_the_turn_goes_on(run: Run) -> None:
    why = "hook user_prompt (broken): RuntimeError: the hook is broken"
    assert [event.why for event in run.of(LayerFailed)] == [why]
    assert why in run.text("reported")
    assert "answered: **1.08**" in run.text("reported")
    assert run.text("clear").strip() == "<Hooks {}>"
