"""Notebook 07 runs as shipped, and what it prints is what the tools and hooks really did."""

from __future__ import annotations

import pytest
from shipped import Run, execute, of, penguins

from ipyagent.journal.events import LayerFailed, ToolCalled, ToolReturned

NOTEBOOK = "07_tools_and_hooks.ipynb"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return execute(NOTEBOOK, tmp_path_factory.mktemp("tools"))


def test_it_runs_without_key_or_network(run: Run) -> None:
    run.check(sessions=1)


def test_the_tool_answers_with_its_own_figures(run: Run) -> None:
    assert run.text("direct").strip() == str(100 * 1.08)
    assert f"`to_usd` answered: **{250 * 1.08}**" in run.text("ask")
    assert f"`to_usd` answered: **{1000 * 1.12:.1f}**" in run.text("several")
    first = of(run.sessions[0], ToolCalled)[0]
    assert (first.name, first.input) == ("to_usd", {"amount": 250.0, "currency": "EUR"})
    assert "no rate for 'SEK'; known: EUR, GBP, CHF" in run.text("wrong")
    assert of(run.sessions[0], ToolReturned)[1].is_error


def test_a_table_is_previewed_with_its_true_size(run: Run) -> None:
    count = int((penguins()["island"] == "Dream").sum())
    assert run.text("same").strip() == str(count)
    (shown,) = [event for event in of(run.sessions[0], ToolReturned) if event.name == "sightings"]
    assert f"[{count} rows x 8 columns]" in str(shown.blocks)


def test_a_denied_call_did_not_run_and_the_changed_one_ran_changed(run: Run) -> None:
    assert "A hook of the user's denied this call: variables are not deleted in this notebook" in run.text("denied")
    assert run.text("still").strip() == str(len(penguins()))
    assert not any("del penguins" in str(event.input) for event in of(run.sessions[0], ToolCalled))
    changed = [event.input for event in of(run.sessions[0], ToolCalled) if event.input.get("amount") == 10.0]
    assert changed == [{"amount": 10.0, "currency": "GBP"}]
    assert str(10 * 1.27) in run.text("changed")
    assert 'changed the arguments of this call: {"amount": 10.0, "currency": "GBP"}' in run.text("changed")


def test_what_the_hooks_kept_is_what_happened(run: Run) -> None:
    mean = penguins()["body_mass_g"].mean()
    assert f"**{mean:.2f}**" in run.text("sum")
    kept = run.text("kept")
    assert kept.splitlines()[0] == "['finished', 'finished']"
    calls = [event.name for event in of(run.sessions[0], ToolCalled)]
    assert [line.split()[1] for line in kept.splitlines()[2:]] == calls[-4:-1]
    assert run.text("seen").strip() == "True"


def test_a_broken_hook_is_reported_and_the_turn_goes_on(run: Run) -> None:
    why = "hook user_prompt (broken): RuntimeError: the hook is broken"
    assert [event.why for event in of(run.sessions[0], LayerFailed)] == [why]
    assert why in run.text("reported")
    assert "answered: **1.08**" in run.text("reported")
    assert run.text("clear").strip() == "<Hooks {}>"
