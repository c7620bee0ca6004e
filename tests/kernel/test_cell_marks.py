"""`agent-hide` holds everywhere, `agent-pin` stands in the context and costs the prefix nothing; a cell that is asked
again offers to take its old turn back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, compact_room
from rooms import Room, as_json, plain, results, room

from ipyagent.errors import UsageError
from ipyagent.extension.work_cells import roll_back
from ipyagent.journal.events import Compacted, SystemReminder, TurnsRemoved
from ipyagent.kernel.cell_marks import HIDDEN, HIDE, PIN, CellMarks, mark_of
from ipyagent.kernel.scope import make_shell
from ipyagent.parts.pins import PinnedCells
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer


def cell(ident: str, source: str, *tags: str, outputs: Any = ()) -> dict[str, Any]:
    code = {"cell_type": "code", "id": ident, "execution_count": None, "outputs": list(outputs)}
    return {**code, "metadata": {"tags": list(tags)}, "source": source.splitlines(True)}


def save(path: Path, *cells: dict[str, Any]) -> None:
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1))


# ---------------------------------------------------------------------- what is marked


def test_a_mark_is_a_tag_or_the_comment_of_the_first_line() -> None:
    assert mark_of("# agent-hide\nx = 1") == HIDE
    assert mark_of("\n  #agent-pin: units\nx = 1") == PIN
    assert mark_of("x = 1", ["a", PIN]) == PIN
    assert mark_of("# agent-pin\nx", [HIDE]) == HIDE  # hiding wins
    assert mark_of("x = 1\n# agent-hide") == mark_of("# agent-hidden") == mark_of("", {"tags": 3}) == ""


def test_a_file_that_is_broken_or_gone_marks_nothing(tmp_path: Path) -> None:
    marks = CellMarks(make_shell())
    for name, data in {"a": "{", "b": "[]", "c": '{"cells": [1, {"metadata": 2, "source": 3}]}', "d": ""}.items():
        marks.notebook = tmp_path / name
        marks.notebook.write_text(data)
        assert marks.saved().cells == ()
    marks.notebook = tmp_path / "gone"
    assert marks.saved().cells == ()
    marks.notebook = tmp_path
    assert marks.marked(HIDE) == []


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "large.ipynb"
    save(path, *(cell(f"c{n}", f"x = {n}\n" * 50, *([HIDE] if n % 50 == 0 else [])) for n in range(2_000)))
    marks = CellMarks(make_shell())
    marks.notebook = path
    first = marks.saved()
    assert len(first.cells) == 40
    began = time.process_time()
    for _ in range(100):
        assert marks.saved() is first
    assert time.process_time() - began < 0.1
    save(path, cell("c0", "x = 0", PIN))
    assert [each.mark for each in marks.saved().cells] == [PIN]


# ---------------------------------------------------------------------- a kernel with a notebook


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("marks")
    notebook = folder / "project" / "work.ipynb"
    with PracticeServer() as server, room(folder, server=server, JPY_SESSION_NAME=str(notebook)) as made:
        save(
            notebook,
            cell("open", "bird = 'heron'"),
            cell("private", "'salary'", HIDE, outputs=[{"output_type": "stream", "name": "stdout", "text": "4711"}]),
            cell("by-text", "'bo' + 'nus815'", HIDE),
        )
        made.ok("%load_ext ipyagent\n%agent mode auto")
        yield made


def test_a_hidden_cell_is_hidden_everywhere(place: Room) -> None:
    place.asks("hello")
    place.ok("bird = 'heron'", cell_id="open")
    first = place.ok("'worth ' * 2  # changed and not saved", cell_id="private").reply["execution_count"]
    second = place.ok("'bo' + 'nus815'").reply["execution_count"]  # a front-end that tells no ids
    third = place.ok("# agent-hide\n'ra' + 'ven'").reply["execution_count"]
    calls = [tool("variables", {"name": f"In[{number}]"}) for number in (first, second, third)]
    calls += [tool("variables", {"name": f"_i{first}"}), tool("variables", {"name": f"_{second}"})]
    calls += [tool("variables", {"name": "In"}), tool("read_file", {"path": "work.ipynb"})]
    calls += [tool("grep", {"pattern": "sal|nus|wor.h|bird", "path": "."}), tool("notebook", {"path": "work.ipynb"})]
    place.server.script(*calls, text("done"))
    shown = place.ok(f"%%agent\nsee @cell:{first} @out:{first} @cell:{second} @In @work.ipynb", headless=False)
    sent = as_json(place.sent())
    assert "bird = 'heron'" in sent
    for secret in ("salary", "4711", "worth", "nus815", "raven", "'ven'"):
        assert secret not in sent, sent[sent.find(secret) - 300 : sent.find(secret) + 80]
    assert sent.count(HIDDEN) >= 6
    assert f"@cell:{first}, @out:{first}, @cell:{second} are hidden from the agent" in plain(shown)
    found = [answer["text"] for answer in results(place.sent()) if "work.ipynb:" in answer["text"]]
    assert any("bird = 'heron'" in answer for answer in found)
    listed = results(place.sent())[-3]["text"]
    assert "'heron'" in listed


def test_the_error_of_a_hidden_cell_is_not_told(place: Room) -> None:
    place.run("# agent-hide\nwages = 5\n1/0")
    assert "hidden from the agent" in place.refuses("%agent fix")
    place.run("wages / 0")
    place.server.script(text("ok"))  # type: ignore[union-attr]
    place.ok("%agent fix")
    assert "ZeroDivisionError" in as_json(place.sent())


def test_what_is_marked_is_listed_with_how_it_is_done(place: Room) -> None:
    told = place.ok("%agent hide").streams
    assert "private" in told
    assert "by-text" in told
    assert "the tag agent-hide" in told
    assert "the comment # agent-hide" in told
    assert "No pinned cells." in place.ok("%agent pin").streams


def test_a_cell_that_is_asked_again_offers_to_take_its_turn_back_and_does_nothing_itself(place: Room) -> None:
    place.asks("write", tool("write_file", {"path": "made.txt", "content": "one"}), text("done"), cell_id="asks")
    number = len(place.said())
    again = place.asks("write it better", cell_id="asks", headless=False)
    offer = f"you ran this cell before (turn {number}); undo that turn with %agent rollback {number}"
    assert offer in plain(again)
    assert (place.folder / "made.txt").exists()
    assert '"write"' in as_json(place.sent())
    told = place.ok(f"%agent rollback {number}").streams
    assert "removed made.txt" in told
    assert f"took out turn {number}" in told
    assert not (place.folder / "made.txt").exists()
    place.asks("and now?", cell_id="other", headless=False)
    assert '"write"' not in as_json(place.sent())
    assert "write it better" in as_json(place.sent())
    assert "rollback" not in place.asks("headless", cell_id="asks").streams


def test_a_cell_that_asks_several_times_at_once_took_nothing_back_of_its_own(place: Room) -> None:
    place.server.script(*(text(f"answer {number}") for number in range(6)))  # type: ignore[union-attr]
    loop = "for number in range(3):\n    get_ipython().run_cell_magic('agent', '', f'part {number}')"
    assert "ran this cell before" not in plain(place.ok(loop, cell_id="loops", headless=False))
    number = len(place.said())
    again = plain(place.ok(loop, cell_id="loops", headless=False))
    assert again.count("ran this cell before") == 1
    assert f"(turn {number})" in again


# ---------------------------------------------------------------------- pinned cells


@pytest.fixture
def made(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made


def pins(made: CompactRoom, agent: Any) -> list[SystemReminder]:
    return [event for event in made.of(agent, SystemReminder) if event.layer == "pins"]


def test_a_pinned_cell_is_told_once_and_again_when_it_changes(made: CompactRoom) -> None:
    agent = made.agent()
    notebook = agent.sessions.notebook = made.folder / "work.ipynb"
    save(notebook, cell("units", "# kg, not lb\nunit = 'kg'", PIN), cell("other", "x = 1"))
    for said in ("one", "two", "three"):
        made.turn(agent, said)
    assert len(pins(made, agent)) == 1
    assert '<pinned-cell id="units">\n# kg, not lb\nunit = \'kg\'\n</pinned-cell>' in pins(made, agent)[0].text
    first = made.bodies[-1]["messages"][:2]
    save(notebook, cell("units", "unit = 'g'", PIN), cell("other", "x = 1", PIN), cell("x", "key = 1", PIN, HIDE))
    made.turn(agent, "four")
    assert len(pins(made, agent)) == 2
    assert "unit = 'g'" in pins(made, agent)[1].text
    assert "x = 1" in pins(made, agent)[1].text
    assert "key = 1" not in as_json(made.bodies[-1])
    save(notebook, cell("units", "unit = 'g'", PIN), cell("other", "x = 1"))
    made.turn(agent, "five")
    assert pins(made, agent)[2].text == "<context>\nNo longer pinned: other\n</context>"
    made.turn(agent, "six")
    assert len(pins(made, agent)) == 3
    assert as_json(made.bodies[-1]["messages"][0])[:-40] in as_json(first)  # nothing earlier was touched
    made.replays(agent)
    made.nothing_refused()


def test_a_pinned_cell_stands_again_after_a_compaction_and_in_a_resumed_session(made: CompactRoom) -> None:
    agent = made.agent()
    agent.sessions.notebook = made.folder / "work.ipynb"
    save(agent.sessions.notebook, cell("units", "unit = 'kg'", PIN))
    for number in range(3):
        made.turn(agent, f"{number} " + "word " * 800)
    agent.compact("")
    assert "pinned cells" in made.of(agent, Compacted)[0].restored
    made.turn(agent, "after")
    assert as_json(made.bodies[-1]).count("unit = 'kg'") == 1
    assert len(pins(made, agent)) == 1
    name = made.session(agent).journal.session
    agent.close()
    later = made.agent()
    later.sessions.notebook = agent.sessions.notebook
    later.resume(name)
    made.turn(later, "later")
    assert as_json(made.bodies[-1]).count("unit = 'kg'") == 1
    made.replays(later)


def test_pinned_cells_are_bounded_and_hold_no_secret(made: CompactRoom) -> None:
    agent = made.agent()
    agent.sessions.notebook = made.folder / "work.ipynb"
    key = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9"
    many = [cell(f"long{n}", "word " * 3_000 + "</pinned-cell>", PIN) for n in range(20)]
    save(agent.sessions.notebook, cell("key", f"key = '{key}' # </pinned-cell></context>", PIN), *many)
    made.turn(agent, "one")
    made.turn(agent, "two")
    told = pins(made, agent)
    assert len(told) == 1
    assert len(told[0].text) < 15_000
    assert told[0].text.count("</pinned-cell>") == 21
    assert told[0].text.count("</context>") == 1
    assert key not in told[0].text


@pytest.mark.parametrize("unpinned", [False, True])
def test_a_pinned_cell_of_a_terminal_is_the_one_that_ran(made: CompactRoom, unpinned: bool) -> None:
    agent = made.agent()
    agent.shell.run_cell("# agent-pin\nunit = 'kg'", store_history=True)
    made.turn(agent, "one")
    made.turn(agent, "two")
    assert [event.why for event in pins(made, agent)] == ["pinned: In[1]"]
    agent.close()
    later = made.agent()
    later.resume()
    for said in ("three " + "word " * 2_000, "four " + "word " * 2_000):  # nobody has unpinned it
        made.turn(later, said)
    assert len(pins(made, later)) == 1
    later.compact("")
    made.turn(later, "five")
    assert as_json(made.bodies[-1]).count("unit = 'kg'") == 1
    assert "pinned in an earlier kernel, until you pin a cell in this one" in later.part(PinnedCells)._told("")
    assert "In[1]" in later.part(PinnedCells)._told("")
    later.shell.run_cell("unit = 'kg'" if unpinned else "# agent-pin\nunit = 'g'", store_history=True)
    made.turn(later, "six")
    last = "no longer pinned: In[1]" if unpinned else "pinned: In[1]"
    assert [event.why for event in pins(made, later)[1:]] == [last]
    assert "earlier kernel" not in later.part(PinnedCells)._told("")


def test_a_pinned_cell_that_is_deleted_is_pinned_no_longer_in_the_next_kernel_either(made: CompactRoom) -> None:
    agent = made.agent()
    notebook = agent.sessions.notebook = made.folder / "work.ipynb"
    save(notebook, cell("units", "# agent-pin\nunit = 'kg'"), cell("other", "x = 1"))
    made.turn(agent, "one")
    agent.close()
    save(notebook, cell("other", "x = 1"))
    later = made.agent()
    later.sessions.notebook = notebook
    later.resume()
    made.turn(later, "two")
    assert [event.why for event in pins(made, later)] == ["pinned: units", "no longer pinned: units"]


# ---------------------------------------------------------------------- a turn taken back


def test_a_middle_turn_is_rolled_back_alone_and_never_over_a_later_change(made: CompactRoom) -> None:
    agent = made.agent()
    for name, content in (("a", "1"), ("b", "2"), ("a", "3")):
        path = f"{name}.txt"
        reads = [tool("read_file", {"path": path})] if (made.folder / path).exists() else []
        writes = tool("write_file", {"path": path, "content": content})
        made.turn(agent, f"{path} {content}", *reads, writes, text("ok"))
    assert "removed b.txt" in roll_back(agent, "2")
    assert "a.txt was left alone: it has changed since." in roll_back(agent, "1")
    assert (made.folder / "a.txt").read_text() == "3"
    assert not (made.folder / "b.txt").exists()
    assert len(made.of(agent, TurnsRemoved)) == 2
    assert "it was removed from the conversation before" in roll_back(agent, "2")
    agent.compact("--undo")
    assert agent.undo().turn == 3
    for wrong in ("", "0", "4", "x"):
        with pytest.raises(UsageError, match="N is a turn from 1 to 3"):
            roll_back(agent, wrong)
    made.replays(agent)
