"""Clusters for real: Dask and ipyparallel with three local worker processes each, and 300 files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from rooms import KEY
from vega_datasets import data as vega

from ipyagent import agent_map

if TYPE_CHECKING:
    from conftest import Interrupted, Office

pytestmark = pytest.mark.slow
WORKERS = 3
PAGES = 300
LOAD: dict[str, Any] = {"prompt": "Load {item} as table", "data": "table", "model": "practice", "mode": "auto"}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the clusters of all tests start, with the key that their workers have."""
    made = tmp_path_factory.mktemp("clusters")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYAGENT_HOME", str(made / "home"))
        patch.setenv("IPYTHONDIR", str(made / "ipython"))
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        yield made


@pytest.fixture(scope="module")
def dask(place: Path) -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed")
    import dask as settings

    with (
        settings.config.set({
            # before Python 3.12 its profiler can leave a worker deadlocked (python/cpython#106883)
            "distributed.worker.profile.enabled": sys.version_info >= (3, 12),
            "distributed.scheduler.allowed-failures": 1,  # workers that a task may take with it
        }),
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=True, dashboard_address=None,
            local_directory=str(place / "dask"),
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        yield client.get_executor()


@pytest.fixture(scope="module")
def engines(place: Path) -> Iterator[Executor]:
    ipyparallel = pytest.importorskip("ipyparallel")
    with ipyparallel.Cluster(n=WORKERS, profile_dir=str(place / "profile")) as client:
        client.wait_for_engines(WORKERS, timeout=60)
        yield client.executor()


@pytest.fixture
def pages(project: Path) -> dict[Path, int]:
    """Real rows of a real table, cut into 300 files of different length."""
    table = vega.seattle_weather()
    (project / "data").mkdir()
    made: dict[Path, int] = {}
    for number in range(PAGES):
        part = table.iloc[number * 4 : number * 4 + 1 + number % 5]
        path = project / "data" / f"page{number:03}.csv"
        part.to_csv(path, index=False)
        made[path] = len(part)
    return made


def _check(rows: list[dict[str, object]], pages: dict[Path, int]) -> None:
    frame = pd.DataFrame(rows)
    assert list(zip(frame["status"], frame["error"], strict=True)) == [("finished", "")] * len(pages)
    assert list(frame["input"]) == [path.as_posix() for path in pages]
    assert [len(found) for found in frame["data"]] == list(pages.values())
    assert frame["session"].nunique() == len(pages)


def test_a_dask_cluster_of_three_processes(dask: Executor, pages: dict[Path, int]) -> None:
    some = dict(list(pages.items())[:12])
    rows = agent_map(some, dask, **LOAD)
    _check(rows, some)
    more = dict(list(pages.items())[:15])
    again = agent_map(more, dask, **LOAD)
    assert [row["tries"] for row in again] == [0] * 12 + [1] * 3
    redone = agent_map(list(some)[:3], dask, **LOAD, again=True)
    assert not {row["session"] for row in redone} & {row["session"] for row in rows}


def test_three_engines_of_ipyparallel(engines: Executor, pages: dict[Path, int]) -> None:
    some = dict(list(pages.items())[:12])
    _check(agent_map(some, engines, **LOAD), some)


def test_a_killed_dask_worker_fails_nothing_and_one_that_always_dies_its_own_task_only(
    office: Office, dask: Executor
) -> None:
    prompts = ["be deadly", *(f"be plain {n}" for n in range(5))]
    office.deaths = 1
    rows = agent_map(prompts, dask, settings=office.settings)
    assert [(row["status"], row["error"]) for row in rows] == [("finished", "")] * 6
    assert len(office.killed) == 1
    office.deaths = 99
    rows = agent_map(prompts, dask, settings=office.settings, again=True, retries=0)
    assert [row["status"] for row in rows] == ["failed", *["finished"] * 5]
    assert "worker" in rows[0]["error"]


@pytest.mark.paced
@pytest.mark.parametrize("kind", ["dask", "engines"])
def test_an_interrupt_frees_a_clusters_workers(
    office: Office, kind: str, request: pytest.FixtureRequest, interrupted: Interrupted
) -> None:
    cluster: Executor = request.getfixturevalue(kind)
    with interrupted(lambda: office.asked.get("slow", 0) >= WORKERS, 0.5):
        agent_map([f"be slow {n}" for n in range(9)], cluster, settings=office.settings)  # the work takes 20 s
    assert [cluster.submit(int, str(n)).result(timeout=10) for n in range(WORKERS)] == [0, 1, 2]
    assert office.asked == {"slow": WORKERS}, "nothing else was begun"


def test_three_hundred_files_in_threads(pages: dict[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    rows = agent_map(pages, **LOAD)
    _check(rows, pages)
    again = agent_map(pages, **LOAD)
    assert {row["tries"] for row in again} == {0}
