"""The agent's work as notebook cells: in order, without what failed, and it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from rooms import Room, plain, room

from ipyagent.extension.work_cells import MARK, as_script, work_cells
from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    SessionStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserMessage,
)
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer
from tests.kernel.forked import executor


def turn(request: str, *steps: tuple[str, bool], answer: str = "done") -> list[Event]:
    events: list[Event] = [UserMessage(text=request, blocks=())]
    for number, (code, failed) in enumerate(steps):
        call = f"{request}-{number}"
        events.append(AssistantMessage(blocks=({"type": "text", "text": f"let me see {number}"},)))
        events.append(ToolCalled(call=call, name="python", input={"code": code}))
        events.append(ToolReturned(call=call, name="python", blocks=(), is_error=failed))
    events.append(AssistantMessage(blocks=({"type": "text", "text": answer},)))
    events.append(TurnEnded(status="finished"))
    return events


def sources(cells: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]


def test_cells_are_the_requests_the_code_that_ran_and_the_answers_in_order() -> None:
    events = [
        SessionStarted(session="s1", version="1"),
        *turn("load it", ("x = 1\n", False), ("y = x +", True), ("y = x + 1", False), answer="**y** is 2"),
        *turn("only talk"),
        *turn("only fail", ("1/0", True)),
        *turn("again", ("y = x + 1", False), ("y = x + 1", False), answer=""),
    ]
    cells = work_cells(events)
    assert sources(cells) == [
        ("markdown", "> load it"),
        ("code", "x = 1"),
        ("code", "y = x + 1"),
        ("markdown", "**y** is 2"),
        ("markdown", "> again"),
        ("code", "y = x + 1"),
    ]
    assert cells[1]["metadata"] == {MARK: {"session": "s1", "turn": 1, "call": "load it-0"}}
    assert cells[5]["metadata"][MARK]["turn"] == 4
    assert as_script(cells).startswith("# > load it\n\nx = 1\n\ny = x + 1\n\n# **y** is 2")


def test_imports_of_code_that_failed_stand_where_they_are_needed() -> None:
    first = "import json\nimport math as m\nfrom pathlib import Path\nopen('nowhere')"
    cells = work_cells(turn("go", (first, True), ("a = m.pi", False), ("b = Path('.'), m.e", False)))
    assert [source for kind, source in sources(cells) if kind == "code"] == [
        "import math as m\na = m.pi",
        "from pathlib import Path\nb = Path('.'), m.e",
    ]


def test_what_was_said_cannot_act_in_the_notebook() -> None:
    cells = work_cells(turn("<script>x</script>", ("1", False), answer="<img src=http://evil/x onerror=y>"))
    assert all("<script" not in source and "<img" not in source for _kind, source in sources(cells))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with PracticeServer() as server, room(tmp_path_factory.mktemp("cells"), server=server) as made:
        made.ok("%load_ext ipyagent")
        made.ok("%agent mode auto")
        yield made


def test_the_session_becomes_a_notebook_that_runs(place: Room) -> None:
    assert "has not run any code" in place.refuses("%agent cells out.ipynb")
    place.asks("load", tool("python", {"code": "n = 20"}), tool("python", {"code": "1/0"}), text("n is loaded"))
    place.asks("more", tool("python", {"code": "n += 1\nprint('n is', n)"}), text("21"))
    assert "6 cells (2 with code) written to" in plain(place.ok("%agent cells out.ipynb"))
    made = place.folder / "out.ipynb"
    found = nbformat.read(made, 4)
    nbformat.validate(found)
    assert [cell.source for cell in found.cells] == [
        "> load", "n = 20", "n is loaded", "> more", "n += 1\nprint('n is', n)", "21",
    ]  # fmt: skip
    executor(found, place.folder).execute()
    assert found.cells[4].outputs[0].text == "n is 21\n"
    before = made.read_bytes()
    assert "already exists" in place.refuses("%agent cells out.ipynb")
    assert made.read_bytes() == before
    assert "ends in .ipynb" in place.refuses("%agent cells out.py")


def test_without_a_person_and_without_a_notebook_there_are_other_ways(place: Room) -> None:
    place.asks("work", tool("python", {"code": "z = 1"}), text("ok"))
    assert "%agent cells FILE.ipynb" in place.refuses("%agent cells")  # as nbclient runs it
    console = place.run("%agent cells", headless=False)  # a console of a kernel: no cells, but a next input
    payload = console.reply["payload"]
    assert payload[0]["source"] == "set_next_input"
    assert "z = 1" in payload[0]["text"]
