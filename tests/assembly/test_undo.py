"""`%agent undo`, several turns back one at a time, never over what somebody else wrote."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from compact_room import CompactRoom

from ipyagent import Agent
from ipyagent.agent.turns import NOT_COVERED, undone_turn
from ipyagent.errors import UsageError
from ipyagent.extension.work_cells import roll_back
from ipyagent.parts.files.searching import walk
from ipyagent.parts.memory.commands import run_memory
from ipyagent.practice.replies import text, tool
from ipyagent.tools.changes import Undone


def write(place: CompactRoom, agent: Agent, said: str, **files: str) -> None:
    calls = []
    for name, content in files.items():
        path = f"{name}.txt"
        if (place.folder / path).exists():
            calls.append(tool("read_file", {"path": path}))
        calls.append(tool("write_file", {"path": path, "content": content}))
    assert place.turn(agent, said, *calls, text("done")).status == "finished"


def content(place: CompactRoom) -> dict[str, str]:
    return {path.stem: path.read_text() for path in place.folder.glob("*.txt")}


def test_turns_are_taken_back_one_at_a_time_newest_first(place: CompactRoom) -> None:
    agent = place.agent()
    write(place, agent, "one", a="1", b="1")
    place.turn(agent, "only talk", text("yes"))
    write(place, agent, "three", a="3", c="3")
    write(place, agent, "four", a="4")
    assert content(place) == {"a": "4", "b": "1", "c": "3"}
    assert agent.undo().lines() == ["turn 4 (four):", "put back a.txt"]
    assert content(place) == {"a": "3", "b": "1", "c": "3"}
    assert agent.undo().lines() == ["turn 3 (three):", "put back a.txt", "removed c.txt"]
    assert content(place) == {"a": "1", "b": "1"}
    assert agent.undo().turn == 1
    assert content(place) == {}
    with pytest.raises(UsageError, match="no file changes are left to undo in this session"):
        agent.undo()


def test_a_turn_after_an_undo_is_taken_back_before_the_older_ones(place: CompactRoom) -> None:
    agent = place.agent()
    write(place, agent, "one", a="1")
    write(place, agent, "two", a="2")
    agent.undo()
    write(place, agent, "three", a="3")
    assert [agent.undo().turn, agent.undo().turn] == [3, 1]
    assert content(place) == {}


def test_a_conflict_is_named_keeps_the_file_and_does_not_bar_the_way(place: CompactRoom) -> None:
    agent = place.agent()
    write(place, agent, "one", a="1", b="1")
    write(place, agent, "two", a="2")
    (place.folder / "a.txt").write_text("mine")
    why = "a.txt was left alone: it has changed since."
    assert agent.undo().lines() == ["turn 2 (two):", why]
    assert agent.undo().lines() == ["turn 1 (one):", "removed b.txt", why]
    assert content(place) == {"a": "mine"}
    with pytest.raises(UsageError, match=r"a\.txt was left alone"):
        agent.undo()


def test_undo_says_what_it_does_not_cover_only_where_code_ran(
    place: CompactRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = place.agent()
    write(place, agent, "one", a="1")
    code = f"print('9', file=open({str(place.folder / 'made.csv')!r}, 'w'))"
    place.turn(agent, "two", tool("python", {"code": code}),
              tool("write_file", {"path": "b.txt", "content": "2"}), text("done"))  # fmt: skip
    monkeypatch.setattr("ipyagent.agent.turns.LOOKED", 30.0)
    left = "written while its code or commands ran, not removed: made.csv"
    assert agent.undo().lines() == ["turn 2 (two):", "removed b.txt", left, NOT_COVERED]
    session, other = agent.session, Undone((), ("remade.csv was left alone: it has changed since",))
    told = undone_turn(session, place.folder, 2, other)
    assert (told.stay, told.unseen) == (("made.csv",), False)
    monkeypatch.setattr("ipyagent.agent.turns.LOOKED", 0.0)
    told = undone_turn(session, place.folder, 2, other)
    assert (told.stay, told.unseen) == ((), True)
    assert told.lines()[-2].startswith("the project has too many files to check them all")
    assert list(walk(str(place.folder), time.monotonic())) == []
    assert agent.undo().lines() == ["turn 1 (one):", "removed a.txt"]
    with pytest.raises(UsageError, match=r"are left to undo in this session\. Undo does not remove"):
        agent.undo()

    def interrupt(frame: Any, event: str, found: Any) -> None:
        if frame.f_code is undone_turn.__code__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            roll_back(agent, "2")
    finally:
        sys.setprofile(None)
    assert session.history.turns[1].out, "an interrupt while files are looked at leaves no half of it"


def test_the_model_is_told_once_what_was_taken_back(place: CompactRoom) -> None:
    agent = place.agent()
    write(place, agent, "one", a="1")
    write(place, agent, "two", a="2", b="2")
    agent.undo()
    said = "The user has undone your changes to these files: a.txt, b.txt (no longer exists)"
    for words, times in (("what is there?", 1), ("and now?", 1)):
        place.turn(agent, words, text("let me see"))
        assert str(place.server.messages[-1].body["messages"]).count(said) == times
    agent.undo()
    place.turn(agent, "go on", text("yes"))
    assert "these files: a.txt (no longer exists)" in str(place.server.messages[-1].body["messages"][-1])


def test_the_model_is_told_once_what_the_user_did_to_memories(place: CompactRoom) -> None:
    agent = place.agent()
    memory = "---\nname: {0}\ndescription: Plots of {0}\ntype: project\n---\nBlue {0}.\n"
    calls = [
        tool("memory", {"command": "create", "path": f"/memories/project/{name}.md", "file_text": memory.format(name)})
        for name in ("tides", "winds")
    ]
    place.turn(agent, "save them", *calls, text("done"))
    run_memory(agent, "forget tides")
    run_memory(agent, "rename winds gales")
    said = ("The user has changed memories (the memory index may still name old paths): /memories/project/tides.md "
            "deleted, /memories/project/winds.md is now /memories/project/gales.md")  # fmt: skip
    for words in ("what is there?", "and now?"):
        place.turn(agent, words, text("let me see"))
        assert str(place.server.messages[-1].body["messages"]).count(said) == 1


def test_what_was_left_is_put_back_once_the_conflict_is_gone(place: CompactRoom) -> None:
    agent = place.agent()
    write(place, agent, "one", a="1")
    write(place, agent, "two", a="2", b="2")
    (place.folder / "a.txt").write_text("mine")
    assert agent.undo().restored == ("b.txt",)
    (place.folder / "a.txt").write_text("2")  # the user took their own change back
    assert agent.undo().lines() == ["turn 1 (one):", "removed a.txt"]
    assert content(place) == {}


def test_a_file_that_was_left_and_is_changed_anew_goes_back_to_what_the_user_wrote(place: CompactRoom) -> None:
    agent = place.agent()
    write(place, agent, "one", a="1")
    (place.folder / "a.txt").write_text("mine")
    agent.undo()
    write(place, agent, "two", a="2")
    assert agent.undo().restored == ("a.txt",)
    assert content(place) == {"a": "mine"}


def test_a_resumed_session_and_a_fork_can_take_back_earlier_turns(place: CompactRoom) -> None:
    agent = place.agent()
    write(place, agent, "one", a="1")
    write(place, agent, "two", a="2")
    again = place.resumed(agent)
    assert again.undo().turn == 2
    again.sessions.fork()
    assert again.undo().turn == 1
    assert content(place) == {}


def test_variables_that_the_turn_rebound_are_listed(place: CompactRoom) -> None:
    agent = place.agent()
    agent.shell.user_ns["rate"] = 1.5
    place.turn(
        agent, "fix the rate", tool("python", {"code": "rate = 2.5"}),
        tool("write_file", {"path": "rate.txt", "content": "2.5"}), text("done"),
    )  # fmt: skip
    assert agent.undo().lines()[1:-1] == ["removed rate.txt", "variables that it rebound stay as they are: rate"]
    assert agent.shell.user_ns["rate"] == 2.5
