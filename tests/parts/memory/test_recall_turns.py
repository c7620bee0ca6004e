"""Recall in real turns: a real agent, a real server on loopback, memories on the disk."""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from agents_room import agents
from notes_room import until
from pace import within
from rooms import MODEL

from ipyagent import Agent
from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    ForkEnded,
    LayerFailed,
    MemorySurfaced,
    ToolReturned,
    UserMessage,
)
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.browsing import explain
from ipyagent.parts.memory.commands import run_memory
from ipyagent.practice.model import memories as selecting
from ipyagent.practice.replies import Reply, fault, text
from ipyagent.practice.replies import tool as calls
from ipyagent.practice.server import PracticeServer

Make = Callable[..., Agent]
Save = Callable[..., Path]
OLD = time.time() - 12 * 86_400


class Brain:
    """Answers the conversation from a script ("ok" at its end) and chooses memories after `thinks` seconds."""

    def __init__(self) -> None:
        self.script: deque[Any] = deque()
        self.thinks = 0.0
        self.choice: Any = None
        """In place of the practice model's choice."""
        self.bodies: list[dict[str, Any]] = []
        self.questions: list[dict[str, Any]] = []

    def __call__(self, body: dict[str, Any]) -> Reply | Any:
        if selecting.check_asked(body):
            self.questions.append(body)
            time.sleep(self.thinks)
            return self.choice
        if directive := selecting.asked(body):
            self.questions.append(body)
            time.sleep(self.thinks)
            return text(selecting.selected(directive)) if self.choice is None else self.choice
        self.bodies.append(body)
        return self.script.popleft() if self.script else text("ok")

    def words(self, number: int = -1) -> str:
        """The newest user message of a request of the conversation."""
        content = self.bodies[number]["messages"][-1]["content"]
        return "\n".join(str(block["text"]) for block in content if block["type"] == "text")


@pytest.fixture
def brain() -> Brain:
    return Brain()


@pytest.fixture
def server(brain: Brain) -> Iterator[PracticeServer]:
    with PracticeServer(brain=brain) as running:
        yield running


@pytest.fixture
def make(tmp_path: Path, server: PracticeServer) -> Iterator[Make]:
    with agents(tmp_path, server.url, max_retries=0, trust_all=True, recall_selector_from=1) as made:
        yield made


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def write(name: str, description: str, body: str = "", *, scope: str = "project", when: float = OLD) -> Path:
        folder = {"project": tmp_path / "project" / ".ipyagent", "user": tmp_path / "home"}[scope] / "memory"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / name
        head = f"name: {name.removesuffix('.md')}\ndescription: {description}\ntype: feedback"
        file.write_text(f"---\n{head}\n---\n{body or description}\n", encoding="utf-8")
        os.utime(file, (when, when))
        return file

    return write


def events(agent: Agent) -> list[Event]:
    return list(agent.session.journal.read())


def shown(agent: Agent) -> list[list[str]]:
    """The names of the memories that each note showed."""
    found = [event for event in events(agent) if isinstance(event, MemorySurfaced)]
    return [[memory.path.rpartition("/")[2] for memory in event.memories] for event in found]


def test_a_handful_of_memories_is_not_worth_a_request(make: Make, brain: Brain, save: Save) -> None:
    for number in range(5):
        save(f"plots{number}.md", f"Plots of kind {number} use the colour-blind palette")
    agent = make(recall_selector_from=6, recall_when="before")
    agent.run_sync("how large is it then?")
    agent.run_sync("plot the orders, please")
    assert brain.questions == []
    assert shown(agent), "words alone decide"
    save("money.md", "Totals are in thousands of euros", scope="user")
    other = make(recall_selector_from=6, recall_when="before")
    other.run_sync("now give the totals")
    assert len(brain.questions) == 1


def test_where_the_server_has_no_small_model_the_main_one_chooses_and_that_is_said_once(
    make: Make, brain: Brain, save: Save, server: PracticeServer
) -> None:
    for number in range(3):
        save(f"plots{number}.md", f"Totals of kind {number} are in thousands of euros")
    agent = make(recall_when="before", small_model="claude-haiku-9")
    for request in ("how large is it then?", "and the other one?"):
        agent.run_sync(request)
    asked = [exchange.body["model"] for exchange in server.messages if exchange.body and not exchange.body.get("tools")]
    assert asked == ["claude-haiku-9", MODEL, MODEL]
    assert len([line for line in agent.notices if "small_model" in line and "claude-haiku-9" in line]) == 1
    assert not [event for event in events(agent) if isinstance(event, LayerFailed)]


def test_words_alone_stand_before_the_first_request_apart_from_it_and_nothing_comes_twice_in_a_session(
    make: Make, brain: Brain, save: Save
) -> None:
    save("plots.md", "Plots use the colour-blind palette")
    save("money.md", "Totals are in thousands of euros", scope="user")
    agent = make(recall_selector=False)
    agent.run_sync("plot the orders, please")
    assert shown(agent) == [["plots.md"]]
    assert brain.questions == []
    words = brain.words(0)
    assert "plot the orders, please" in words
    assert '<memory path="/memories/project/plots.md"' in words
    assert "12 days ago" in words
    assert "may have changed" in words
    agent.run_sync("now give the totals in a table")
    assert shown(agent) == [["plots.md"], ["money.md"]]
    (note,) = [event for event in events(agent) if isinstance(event, MemorySurfaced)][:1]
    assert note.by == "ranking"
    assert note.memories[0].age == 12
    assert "plot" in note.memories[0].why
    said = next(event for event in events(agent) if isinstance(event, UserMessage))
    assert all("palette" not in str(block) for block in said.blocks)
    for _ in range(2):
        agent.run_sync("plot the orders again")
    assert shown(agent) == [["plots.md"], ["money.md"]]
    agent.new()
    agent.run_sync("plot the orders again")
    assert shown(agent) == [["plots.md"]]


@pytest.mark.paced
def test_beside_the_request_the_choice_comes_in_between_tool_rounds(make: Make, brain: Brain, save: Save) -> None:
    save("plots.md", "Plots use the colour-blind palette")
    save("other.md", "Invoices go out on Mondays")
    agent = make()
    brain.script += [calls("python", {"code": "import time; time.sleep(0.8)"}), text("done")]
    agent.run_sync("plot the orders")
    assert "palette" not in brain.words(0)
    assert "colour-blind palette" in brain.words(1)
    assert "Mondays" not in brain.words(1)
    kinds = [
        type(event) for event in events(agent) if isinstance(event, (ToolReturned, MemorySurfaced, AssistantMessage))
    ]
    assert kinds == [AssistantMessage, ToolReturned, MemorySurfaced, AssistantMessage]
    (note,) = [event for event in events(agent) if isinstance(event, MemorySurfaced)]
    assert note.by == "selector"
    assert note.seconds < within(3, 60)
    (question,) = brain.questions
    assert question["model"] == "claude-haiku-5-5"
    assert question["output_config"]["format"]["type"] == "json_schema"
    assert "thinking" not in question
    (paid,) = [event for event in events(agent) if isinstance(event, ForkEnded)]
    assert (paid.purpose, paid.status) == ("recall", "finished")
    assert paid.cost > 0


def came(agent: Agent) -> None:
    """The choice has come, after its turn."""
    assert until(lambda: any(isinstance(event, ForkEnded) for event in events(agent)))
    time.sleep(0.1)  # it is kept by the task that waited for it


def test_what_comes_too_late_waits_for_the_next_request_that_it_fits_or_is_dropped(
    make: Make, brain: Brain, save: Save
) -> None:
    save("plots.md", "Plots use the colour-blind palette")
    for following, fits in (("make the plot larger", True), ("what is the capital of Norway", False)):
        agent = make()
        brain.thinks = 0.4
        agent.run_sync("plot the orders")
        assert shown(agent) == []
        came(agent)
        brain.thinks = 0.0
        agent.run_sync(following)
        assert shown(agent) == ([["plots.md"]] if fits else [])
        assert ("colour-blind palette" in brain.words(-1)) == fits
    brain.thinks = 0.5
    agent = make(recall_when="before")
    agent.run_sync("plot the orders")
    assert "colour-blind palette" in brain.words(-1), "before the request waits for the choice"


@pytest.mark.paced
def test_a_selector_that_takes_too_long_leaves_it_to_the_ranking(make: Make, brain: Brain, save: Save) -> None:
    save("plots.md", "Plots use the colour-blind palette")
    brain.thinks = 6.0
    agent = make(recall_when="before")
    began = time.monotonic()
    agent.run_sync("plot the orders")
    assert time.monotonic() - began < within(4.5, 60)
    assert "colour-blind palette" in brain.words(0)
    (note,) = [event for event in events(agent) if isinstance(event, MemorySurfaced)]
    assert note.by == "ranking"


def test_a_selector_that_fails_leaves_it_to_the_ranking_and_says_so_once(make: Make, brain: Brain, save: Save) -> None:
    save("plots.md", "Plots use the colour-blind palette")
    save("money.md", "Totals are in thousands of euros")
    for choice in (fault(500), fault(404), text("I would rather not.")):
        brain.choice = choice
        agent = make(recall_when="before")
        agent.run_sync("plot the orders")
        agent.run_sync("give the totals")
        assert shown(agent) == [["plots.md"], ["money.md"]]
        failed = [event for event in events(agent) if isinstance(event, LayerFailed)]
        assert [event.layer for event in failed] == ["recall"]
        assert "claude-haiku-5-5" in failed[0].why


def test_each_switch_turns_it_off_and_nothing_of_an_untrusted_project_is_recalled(
    make: Make, brain: Brain, save: Save
) -> None:
    save("plots.md", "Plots use the evil palette")
    for off in ({"memory": False}, {"recall": False}, {"recall_files": 0}):
        agent = make(recall_when="before", **off)
        agent.run_sync("plot the orders")
        assert shown(agent) == []
        assert brain.questions == []
    save("mine.md", "Plots have a grid", scope="user")
    agent = make(trust_all=False, recall_selector=False)
    agent.run_sync("plot the orders")
    assert shown(agent) == [["mine.md"]]
    assert not list((agent.project.folder).glob("cache/*"))
    agent.project.trust()
    agent.new()
    agent.run_sync("plot the orders")
    assert sorted(shown(agent)[0]) == ["mine.md", "plots.md"]


def test_a_session_shows_no_more_bytes_than_it_may(make: Make, brain: Brain, save: Save) -> None:
    for number in range(6):
        save(f"plots{number * 3}.md", f"Plots of kind{number} use the palette", "plots " + "x" * 3_000)
    agent = make(recall_selector=False, recall_bytes=8_000)
    for _ in range(3):
        agent.run_sync("plot with the palette of plots")
    notes = [event for event in events(agent) if isinstance(event, MemorySurfaced)]
    assert sum(len(event.memories) for event in notes) == 2
    assert sum(len(event.text.encode()) for event in notes) <= 8_000


def test_a_resumed_session_knows_what_was_shown_and_a_compaction_forgets_it(
    make: Make, brain: Brain, save: Save
) -> None:
    save("plots.md", "Plots use the colour-blind palette")
    agent = make(recall_selector=False)
    agent.run_sync("plot the orders " + "and look at them closely " * 200)
    agent.run_sync("what is the capital of Norway")
    agent.close()
    again = make(recall_selector=False)
    again.resume()
    again.run_sync("plot the orders once more")
    assert shown(again) == [["plots.md"]]
    brain.script.append(text("<analysis>a</analysis><summary>The orders were plotted.</summary>"))
    again.compact()
    again.run_sync("plot the orders for the last time")
    assert shown(again) == [["plots.md"], ["plots.md"]]


def test_what_still_holds_is_told_with_the_memory_and_a_damaged_one_or_index_costs_no_turn(
    make: Make, brain: Brain, save: Save
) -> None:
    save("plots.md", "Plots of orders", "Plot `df.region` of `orders.csv`; `df['price']` is in euros.")
    save("broken.md", "x").write_bytes(b"---\nname: [\n\xff\xfe plots palette \x00\n")
    agent = make(recall_selector=False)
    cache = agent.project.folder / "cache"
    cache.mkdir()
    (cache / "recall-project.sqlite").write_bytes(b"rubbish" * 1_000)
    agent.shell.user_ns["df"] = pd.DataFrame({"price": [1.0]})
    (agent.folder / "orders.csv").write_text("price\n1\n")
    assert agent.run_sync("plot the orders").status == "finished"
    assert "plots.md" in shown(agent)[0]
    words = brain.words(0)
    assert "`df.region` no longer exists" in words
    assert "`df` has the column `price`" in words
    assert "`orders.csv` exists, changed just now, after this was written" in words


def test_a_dry_run_tells_what_would_be_picked_and_why(make: Make, brain: Brain, save: Save) -> None:
    save("plots.md", "Plots use the colour-blind palette")
    save("orders.md", "The weekly list of late orders is Anna's, ask her before any of it is sent to the board")
    agent = make()
    first = explain(agent, "plot the orders")[0]
    assert first.recalled.path == "/memories/project/plots.md"
    assert first.picked
    assert first.recalled.score > 0
    assert first.recalled.why
    assert agent.session is None
    offline = make(recall_selector=False)
    names = {each.recalled.path.rpartition("/")[2] for each in explain(offline, "plot the orders")}
    assert names == {"plots.md", "orders.md"}


def test_what_only_the_header_keeps_of_a_memory_is_not_checked(make: Make, brain: Brain, save: Save) -> None:
    file = save("plots.md", "Plots of orders", "Plot `orders.csv` in blue.")
    words = "remember to plot the orders in blue, as in `fig.png`"
    file.write_text(file.read_text().replace("type: feedback", f"type: feedback\nsource: said\nsaid: {words}"))
    agent = make(recall_selector=False)
    for name in ("orders.csv", "fig.png"):
        (agent.folder / name).write_text("1")
    agent.run_sync("plot the orders")
    assert "(Checked now: `orders.csv` exists" in brain.words(0)
    assert "fig.png" not in brain.words(0)


def test_a_dry_run_leaves_out_what_has_nothing_in_common_with_the_request(make: Make, save: Save) -> None:
    pytest.importorskip("wordllama", reason="the extra `embeddings` is not installed")
    save("plots.md", "Plots use the colour-blind palette")
    save("wiki.md", "The wiki is at wiki.example.org", when=OLD - 9_000)
    agent = make(recall_selector=False)
    found = explain(agent, "plot the penguins by island")
    assert [each.recalled.path for each in found] == ["/memories/project/plots.md"]
    assert "0.00" not in run_memory(agent, "recall plot the penguins by island")


TURKISH = "stok rakamları haftada bir, pazartesi sabahı güncelleniyor"
STOCK = "Stock figures are updated once a week, on Monday morning.</memory-to-keep>"


def keeping(agent: Agent, brain: Brain, name: str, answer: Any) -> tuple[str, str]:
    """What became of a memory in a turn in which the small model answers this: its source, what the model was told."""
    brain.choice = answer
    given = {"command": "create", "path": f"/memories/project/{name}.md", "said": TURKISH}
    given["file_text"] = f"---\nname: {name}\ndescription: Stock figures\ntype: feedback\n---\n{STOCK}\n"
    brain.script += [calls("memory", given), text("saved")]
    agent.run_sync(TURKISH)
    store = agent.part(MemoryPart).memories.store("project")
    (memory,) = [each for each in store.list() if each.name == f"{name}.md"]
    store.delete(memory.name, by="user")  # the same once more would be known already
    told = [block for event in events(agent) if isinstance(event, ToolReturned) for block in event.blocks]
    return f"{memory.source} {memory.kind}", str(told[-1]["text"])


def test_what_words_cannot_tell_of_a_memory_is_asked_of_the_small_model(make: Make, brain: Brain) -> None:
    agent = make(recall=False)
    no_more = text('{"adds": "nothing", "beyond": false}')
    assert keeping(agent, brain, "yes", no_more)[0] == "said feedback"
    (question,) = brain.questions
    assert (question["model"], "thinking" in question, "tools" in question) == ("claude-haiku-5-5", False, False)
    asked = str(question["messages"])
    assert TURKISH in asked
    assert STOCK.replace("<", "&lt;") in asked, "it cannot end its element itself"
    assert len(asked) < 2_500
    (paid,) = [event for event in events(agent) if isinstance(event, ForkEnded)]
    assert (paid.purpose, paid.status, (paid.cost or 0) > 0) == ("check", "finished", True)
    assert keeping(agent, brain, "again", fault(500))[0] == "said feedback"
    assert len(brain.questions) == 1, "what was answered is known"


def test_a_memory_without_a_clear_answer_is_inferred(make: Make, brain: Brain) -> None:
    unread = "could not be checked: no model gave an answer"
    for answer, told in (
        (text('{"adds": "a day", "beyond": true}'), "seems to go beyond them (by 'a day')"),
        (text("Sure, that memory is the user's own word."), unread),
        (text('{"beyond": "no"}'), unread),
        (fault(500), unread),
    ):
        source, answered = keeping(make(recall=False), brain, "no", answer)
        assert source == "inferred project"
        assert told in answered
        verdict = "go beyond" in told
        assert ("was not confirmed that the words" in answered) == verdict, "a check that failed is no verdict"
        again = "To have it checked again, change its type to feedback with str_replace and the same `said`."
        assert (again in answered) == (not verdict), "the same call would find the file there"


@pytest.mark.paced
def test_stop_ends_a_check_with_nothing_written(make: Make, brain: Brain) -> None:
    agent = make(recall=False)
    brain.thinks = 5.0
    began = time.monotonic()
    timer = threading.Timer(0.7, _thread.interrupt_main)
    timer.start()
    given = {"command": "create", "path": "/memories/project/a.md", "said": TURKISH}
    brain.script += [calls("memory", {**given, "file_text": f"---\ntype: feedback\n---\n{STOCK}\n"}), text("saved")]
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync(TURKISH)
    assert time.monotonic() - began < within(4, 60)
    assert len(brain.questions) == 1
    assert agent.part(MemoryPart).memories.store("project").list() == []
