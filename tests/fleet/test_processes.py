"""Worker processes: everything pickles, and one that is killed takes nothing with it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipyagent import agent_map

if TYPE_CHECKING:
    from conftest import Interrupted, Office


def test_worker_processes_with_a_practice_model_each(project: Path) -> None:
    for number in range(2):
        Path(f"t{number}.csv").write_text("a,b\n" + "1,2\n" * (number + 1))
    with ProcessPoolExecutor(1) as pool:
        rows = agent_map(
            sorted(project.glob("*.csv")), pool, prompt="Load {item} as table", data="table",
            model="practice", mode="auto",
        )  # fmt: skip
    assert [(row["status"], row["error"]) for row in rows] == [("finished", "")] * 2
    assert [len(row["data"]) for row in rows] == [1, 2]


def test_a_killed_worker_fails_its_task_once_and_the_others_not_at_all(
    office: Office, capsys: pytest.CaptureFixture[str]
) -> None:
    office.deaths = 1
    prompts = ["be deadly", *(f"be plain {n}" for n in range(4))]
    with ProcessPoolExecutor(2) as pool:
        rows = agent_map(prompts, pool, settings=office.settings, progress=True)
    assert len(office.killed) == 1
    assert [(row["status"], row["error"]) for row in rows] == [("finished", "")] * 5
    assert "worker process died" in capsys.readouterr().err


def test_a_task_that_always_kills_its_worker_is_named_and_the_others_finish(office: Office) -> None:
    office.deaths = 99
    prompts = ["be plain 0", "be deadly", "be plain 1", "be plain 2"]
    with ProcessPoolExecutor(2) as pool:
        rows = agent_map(prompts, pool, settings=office.settings)
    assert [row["status"] for row in rows] == ["finished", "failed", "finished", "finished"]
    assert "worker process died" in rows[1]["error"]
    assert rows[1]["tries"] == 2


@pytest.mark.paced
def test_an_interrupt_frees_the_callers_workers_too(office: Office, interrupted: Interrupted) -> None:
    with ProcessPoolExecutor(1) as pool:
        with interrupted(lambda: office.asked.get("slow")):
            agent_map(["be slow", "be plain"], pool, settings=office.settings)  # the work takes 20 s
        assert pool.submit(int, "7").result(timeout=5) == 7
    assert office.asked == {"slow": 1}
