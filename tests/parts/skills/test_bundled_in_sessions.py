"""Each bundled skill in a real session on a real table: the practice model loads it by name, does its first step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from bundled_room import SKILLS

from ipyagent import Agent, IPyAgent
from ipyagent.journal.events import Event, SkillLoaded, ToolReturned
from ipyagent.journal.journal import TRANSCRIPT, read_events

ROOT = Path(__file__).resolve().parents[3]
TABLES = ROOT.parent / "shared" / "data" / "tables"
FILES = {
    "titanic": "titanic.csv", "hotels": "hotel_data.csv", "cost": "cost_data_with_errors.csv",
    "btc": "YAHOO-BTC_USD_D.csv", "insurance": "insurance.csv", "gapminder": "gapminder_cleaned.csv",
    "mpg": "auto-mpg.csv",
}  # fmt: skip
NOTEBOOK = "01_quickstart.ipynb"
CASES = {
    "profile-a-dataset": ("Use the profile-a-dataset skill on titanic", "891 rows × 12 columns"),
    "clean-messy-tables": ("Use the clean-messy-tables skill on cost", "areas_affected none"),
    "join-and-reconcile": ("Use the join-and-reconcile skill on hotels", "left table: 1,057 rows"),
    "time-series": ("Use the time-series skill on btc", "Date: 2,176 times"),
    "plots-that-read-well": ("Use the plots-that-read-well skill on gapminder", "country: 142 values"),
    "statistical-tests": ("Use the statistical-tests skill on insurance", "charges: float64, 1337 values, 0 missing"),
    "train-and-evaluate": ("Use the train-and-evaluate skill on titanic", "891 rows"),
    "sql-in-a-notebook": ("Use the sql-in-a-notebook skill on mpg", "392"),
    "write-up-a-notebook": (f"Use the write-up-a-notebook skill on @{NOTEBOOK}", "out of order: restart the kernel"),
}


WORK = {
    "statistical-tests": "Use the statistical-tests skill for the charges of insurance",
    "train-and-evaluate": "Use the train-and-evaluate skill to predict charges of insurance",
}
"""Work that no form of the practice model is for, by a named skill."""


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    if not TABLES.is_dir():
        pytest.skip("shared/data/tables is not beside this repository")
    found = {name: pd.read_csv(TABLES / file) for name, file in FILES.items()}
    return found | {"btc": found["btc"].assign(Date=pd.to_datetime(found["btc"]["Date"]))}


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory, tables: dict[str, pd.DataFrame]) -> Iterator[Agent]:
    place = tmp_path_factory.mktemp("bundled")
    (place / "work").mkdir()
    shutil.copy(ROOT / "notebooks" / NOTEBOOK, place / "work")
    settings = IPyAgent(environ={}, model="practice", mode="auto", layer_notes=False, extraction=False)
    before = Path.cwd()
    os.chdir(place / "work")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("IPYAGENT_HOME", str(place / "home"))
            made = Agent(settings=settings, folder=place / "work")
            made.shell.user_ns |= {name: table.copy() for name, table in tables.items()}
            yield made
            made.close()
    finally:
        os.chdir(before)


def events_of(agent: Agent) -> list[Event]:
    found = sorted(agent.project.root.glob(f".ipyagent/sessions/*/{TRANSCRIPT}"))
    return [event for path in found for event in read_events(path)]


def test_each_bundled_skill_has_a_case() -> None:
    assert set(CASES) == {path.name for path in SKILLS.iterdir() if path.is_dir()}


@pytest.mark.parametrize("skill", CASES)
def test_the_agent_loads_it_and_follows_its_first_step(agent: Agent, skill: str) -> None:
    request, shown = CASES[skill]
    before = len(events_of(agent))
    result = agent.run_sync(request)
    assert result.status == "finished"
    events = events_of(agent)[before:]
    loaded = [(event.name, event.by) for event in events if isinstance(event, SkillLoaded)]
    assert loaded == [(skill, "model")]
    assert shown in result.text
    assert not any(event.is_error for event in events if isinstance(event, ToolReturned))


@pytest.mark.parametrize("skill", WORK)
def test_a_test_or_a_model_is_done_by_the_named_skill(agent: Agent, skill: str) -> None:
    result = agent.run_sync(WORK[skill])
    assert result.status == "finished"
    events = events_of(agent)
    assert [event.name for event in events if isinstance(event, SkillLoaded)] == [skill]
    assert f"By the skill `{skill}`" in result.text
    assert not any(event.is_error for event in events if isinstance(event, ToolReturned))
    assert "charges" in result.text
