"""The same job over many inputs, in threads of this process."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from rooms import KEY
from vega_datasets import data as vega

from ipyagent import IPyAgent, agent_map
from ipyagent.errors import SettingError, UsageError
from ipyagent.fleet.mapping import questions
from ipyagent.journal.events import UsageReported, UserMessage
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import fault, text, tool

if TYPE_CHECKING:
    from conftest import Interrupted, Office

PRACTICE: dict[str, Any] = {"model": "practice", "mode": "auto"}
COLUMNS = ["input", "status", "text", "data", "cost", "tokens", "seconds", "session", "tries", "error"]


@pytest.fixture
def tables(project: Path) -> dict[Path, pd.DataFrame]:
    """Real tables as files: cars by origin, and the stocks of two companies."""
    cars = vega.cars()
    stocks = vega.stocks()
    found = {f"cars_{name}": part for name, part in cars.groupby("Origin")}
    found |= {f"stock_{name}": part for name, part in list(stocks.groupby("symbol"))[:2]}
    (project / "data").mkdir()
    made = {Path(f"data/{name}.csv"): part for name, part in found.items()}
    for path, part in made.items():
        part.to_csv(path, index=False)
    return made


def test_rows_are_in_order_each_of_a_session_of_its_own(tables: dict[Path, pd.DataFrame], project: Path) -> None:
    rows = agent_map(tables, prompt="Load {item} as table", data="table", **PRACTICE)
    assert [list(row) for row in rows] == [COLUMNS] * len(tables)
    frame = pd.DataFrame(rows)
    assert list(frame["input"]) == [path.as_posix() for path in tables]
    assert set(zip(frame["status"], frame["error"], strict=True)) == {("finished", "")}
    assert set(frame["tries"]) == {1}
    for (path, table), row in zip(tables.items(), rows, strict=True):
        assert f"`{path.as_posix()}`" in row["text"]
        assert f"**{len(table)}** rows" in row["text"]
        read = pd.read_csv(path)
        assert len(row["data"]) == len(read)
        assert row["data"][0].keys() == set(read.columns)
        events = list(read_events(project / row["session"] / TRANSCRIPT))
        assert [event.text for event in events if isinstance(event, UserMessage)] == [f"Load {row['input']} as table"]
        assert row["tokens"] == sum(event.usage.total for event in events if isinstance(event, UsageReported)) > 0
        assert (project / row["session"]).parent == project / ".ipyagent" / "sessions" / "map"
    assert len({row["session"] for row in rows}) == len(tables)
    assert json.loads(json.dumps(rows)) is not None


def test_a_rerun_skips_what_is_done_and_only_that(tables: dict[Path, pd.DataFrame]) -> None:
    paths = list(tables)[:3]
    first = agent_map(paths, prompt="Load {item} as table", data="table", **PRACTICE)
    extra = list(tables)[3]
    second = agent_map([*paths, extra], prompt="Load {item} as table", data="table", **PRACTICE)
    assert [row["tries"] for row in second] == [0, 0, 0, 1]
    assert [{**row, "tries": 1} for row in second[:3]] == first
    pd.read_csv(paths[0]).head(7).to_csv(paths[0], index=False)
    third = agent_map(paths, prompt="Load {item} as table", data="table", **PRACTICE)
    assert [row["tries"] for row in third] == [1, 0, 0]
    assert len(third[0]["data"]) == 7
    other = agent_map(paths[1:], prompt="Load {item} as other", **PRACTICE)
    assert [row["tries"] for row in other] == [1, 1]
    again = agent_map(paths[:1], prompt="Load {item} as table", data="table", again=True, **PRACTICE)
    assert again[0]["tries"] == 1
    assert again[0]["session"] != third[0]["session"]


def test_items_may_be_dicts_and_the_prompt_a_function(office: Office, tmp_path: Path) -> None:
    items = [{"name": "a", "limit": 3}, {"name": "b", "limit": 5}]
    into = tmp_path / "elsewhere"
    rows = agent_map(items, prompt="be plain about {name} up to {limit}: {x}", into=into, settings=office.settings)
    assert [row["input"] for row in rows] == items
    texts = [
        event.text
        for row in rows
        for event in read_events(Path(row["session"]) / TRANSCRIPT)
        if isinstance(event, UserMessage)
    ]
    assert texts == ["be plain about a up to 3: {x}", "be plain about b up to 5: {x}"]
    (odd,) = questions([{"a": "{b}", "b": "{item}"}], "{a} and {b}", tmp_path, {})
    assert odd.prompt == "{b} and {item}", "what a value says is text, too"
    assert all(Path(row["session"]).parent == into for row in rows)
    made = agent_map((1, 2), prompt=lambda number: f"be plain {number * 2}", settings=office.settings)
    assert [(row["input"], row["text"]) for row in made] == [(1, "done: plain"), (2, "done: plain")]
    twice = agent_map(["be plain", "be plain"], settings=office.settings)
    assert len({row["session"] for row in twice}) == 2


def test_a_failed_task_is_tried_again_and_reported_not_raised(office: Office) -> None:
    # a failed task is tried again and reported not raised
    office.failures = 1
    rows = agent_map(["be plain", "be busy"], settings=office.settings)
    assert [(row["status"], row["tries"]) for row in rows] == [("finished", 1), ("finished", 2)]
    office.failures = 99
    rows = agent_map(["be plain", "be busy now"], retries=2, settings=office.settings)
    assert [(row["status"], row["tries"]) for row in rows] == [("finished", 0), ("failed", 3)]
    assert rows[0]["error"] == ""
    assert rows[1]["error"]
    office.failures = 0
    assert [row["tries"] for row in agent_map(["be busy now"], settings=office.settings)] == [1]
    # a variable that is missing or not plain fails its task
    (row,) = agent_map(["be plain"], data="result", retries=0, settings=office.settings)
    assert (row["status"], row["data"]) == ("failed", None)
    assert "'result'" in row["error"]
    # no key reaches the disk
    assert not [path for path in Path().rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_what_a_failed_try_has_cost_is_in_the_row_and_in_the_limit(office: Office) -> None:
    office.server.script(tool("python", {"code": "1 + 1"}), fault(400, message="no more"))
    (row,) = agent_map(["be plain"], settings=office.settings)
    assert (row["status"], row["tries"]) == ("finished", 2)
    sessions = Path(".ipyagent/sessions/map").glob(f"*/{TRANSCRIPT}")
    paid = [e for path in sessions for e in read_events(path) if isinstance(e, UsageReported)]
    assert len(paid) == 2
    assert row["cost"] == pytest.approx(sum(event.cost or 0.0 for event in paid))
    assert row["tokens"] == sum(event.usage.total for event in paid)


def test_nothing_is_begun_beyond_the_cost_of_all(office: Office) -> None:
    prompts = [f"be plain {number}" for number in range(6)]
    (one,) = agent_map(prompts[:1], settings=office.settings)
    assert one["cost"] > 0
    rows = agent_map(prompts, again=True, at_once=1, max_cost=one["cost"] / 1_000, settings=office.settings)
    assert [row["status"] for row in rows] == ["finished"] + ["limit"] * 5
    assert "max_cost" in rows[-1]["error"]
    alike = {**office.settings, "prompt_cache": False}  # each costs the same
    (one,) = agent_map(prompts[:1], again=True, settings=alike)
    rows = agent_map(prompts, again=True, max_cost=3.5 * one["cost"], settings=alike)
    assert sorted(row["status"] for row in rows) == ["finished"] * 3 + ["limit"] * 3, "in eight threads as in one"
    assert sum(row["cost"] for row in rows) <= 3.5 * one["cost"]
    office.failures = 1
    rows = agent_map(["be busy", *prompts], again=True, max_cost=3.5 * one["cost"], settings=alike)
    assert sum(row["cost"] for row in rows) <= 3.5 * one["cost"], "a failure that cost nothing tells no price"
    later = agent_map(prompts, at_once=1, settings=office.settings)
    assert [row["tries"] for row in later] == [0, 1, 1, 1, 1, 1]


def test_code_of_several_agents_never_mixes_its_output(project: Path, office: Office) -> None:
    def brain(body: dict[str, Any]) -> Any:
        last = body["messages"][-1]["content"]
        if any(block["type"] == "tool_result" for block in last):
            return text(json.dumps(last))
        number = json.dumps(last).split("number ")[1][0]
        lines = f"for n in range(20):\n    print('own{number}', n)\n    time.sleep(0.002)"
        return tool("python", {"code": f"import time\n{lines}"})

    office.server.brain = brain
    rows = agent_map([f"number {n}" for n in range(6)], settings=office.settings)
    for number, row in enumerate(rows):
        assert [row["text"].count(f"own{n}") for n in range(6)] == [20 if n == number else 0 for n in range(6)]


def test_an_agents_own_code_may_map(office: Office, project: Path) -> None:
    from ipyagent import Agent

    code = f"import ipyagent\nrows = ipyagent.agent_map(['map 1', 'map 2'], settings={office.settings!r})"

    def brain(body: dict[str, Any]) -> Any:
        words = json.dumps(body["messages"])
        if "tool_result" in words:
            return text("ready")
        return tool("python", {"code": "print('inner')" if "map " in words else code})

    office.server.brain = brain
    agent = Agent(settings=IPyAgent(**office.settings, extraction=False), folder=project)
    try:
        assert agent.run_sync("go").text == "ready"
        rows = agent.shell.user_ns["rows"]
    finally:
        agent.close()
    assert [(row["status"], row["text"], row["tokens"] > 0) for row in rows] == [("finished", "ready", True)] * 2


def ours() -> list[str]:
    """Threads of agents that live; the server that the test talks to has its own."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("ipyagent") and not name.startswith("ipyagent-practice")]


@pytest.mark.paced
def test_an_interrupt_stops_at_once_and_keeps_what_is_done(
    office: Office, project: Path, interrupted: Interrupted
) -> None:
    prompts = ["be plain", "be slow", *(f"be plain {n}" for n in range(3))]
    done = project / ".ipyagent" / "sessions" / "map" / "done"
    with interrupted(lambda: office.asked.get("slow") and list(done.glob("*.json")), real=False):
        agent_map(prompts, at_once=2, settings=office.settings)  # the work takes 20 s
    until = time.monotonic() + 3
    while ours() and time.monotonic() < until:
        time.sleep(0.02)
    assert ours() == []
    kept = len(list(done.glob("*.json")))
    assert kept >= 1
    office.server.brain = lambda body: text("now")
    rows = agent_map(prompts, settings=office.settings)
    assert [row["status"] for row in rows] == ["finished"] * 5
    assert sum(row["tries"] == 0 for row in rows) == kept


def test_what_cannot_be_is_said_before_anything_runs(project: Path) -> None:
    with pytest.raises(UsageError, match="takes a list"):
        agent_map("load a.csv")
    with pytest.raises(UsageError, match="not a prompt"):
        agent_map([Path("a.csv")])
    with pytest.raises(UsageError, match="must name one of"):
        agent_map([Path("a.csv")], prompt="Load it")
    with pytest.raises(UsageError, match="get_executor"):
        agent_map(["a"], "threads")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="did you mean mode"):
        agent_map(["a"], settings={"modle": "practice"})
    with pytest.raises(SettingError, match="'mode' trait"):
        agent_map(["a"], mode="foo")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="retries"):
        agent_map(["a"], retries=-1)
    for speechless in (threading.Lock(), object(), lambda: 1, (n for n in ())):
        with pytest.raises(UsageError, match="cannot be given to a model"):
            agent_map([{"what": speechless}], prompt="Explain {what}")
    assert list(project.iterdir()) == []
    assert agent_map([], settings=IPyAgent(model="practice")) == []


def test_what_keeps_a_task_from_its_end_is_said_in_its_row(project: Path) -> None:
    # an executor that is closed fails the rows and not the call
    with ThreadPoolExecutor(1) as pool:
        pass
    (row,) = agent_map(["hello"], pool, **PRACTICE)
    assert row["status"] == "failed"
    assert "call again with another" in row["error"]
    # without a key each row says what to set
    (row,) = agent_map(["hello"], model="claude-sonnet-5-5", retries=0)
    assert row["status"] == "failed"
    assert "ANTHROPIC_API_KEY" in row["error"]


class Slow(Future[Any]):
    """Its scheduler is asked for each that is to be cancelled, as Dask's is."""

    def cancel(self) -> bool:
        time.sleep(0.01)
        return super().cancel()


class Scheduler(Executor):
    """Takes everything and does nothing."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Slow()


@pytest.mark.paced
def test_an_interrupt_is_one_line_and_waits_for_no_scheduler(project: Path, interrupted: Interrupted) -> None:
    begun = time.monotonic()
    with interrupted(lambda: time.monotonic() > begun + 0.7, 1.0, 60) as caught:
        # it takes three seconds to cancel them all
        agent_map([f"prompt {n}" for n in range(300)], Scheduler(), model="practice", progress=False)
    (line,) = caught.value._render_traceback_()  # type: ignore[attr-defined] # IPython's
    assert "the same call continues from there" in line
