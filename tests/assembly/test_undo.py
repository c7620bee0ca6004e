"""`%agent undo`, several turns back one at a time, never over what somebody else wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compact_room import CompactRoom, compact_room

from ipyagent import Agent
from ipyagent.agent.turns import NOT_COVERED
from ipyagent.errors import UsageError
from ipyagent.parts.memory.commands import run_memory
from ipyagent.practice.replies import text, tool


@pytest.fixture
def room(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made


def write(room: CompactRoom, agent: Agent, said: str, **files: str) -> None:
    calls = []
    for name, content in files.items():
        path = f"{name}.txt"
        if (room.folder / path).exists():
            calls.append(tool("read_file", {"path": path}))
        calls.append(tool("write_file", {"path": path, "content": content}))
    assert room.turn(agent, said, *calls, text("done")).status == "finished"


def content(room: CompactRoom) -> dict[str, str]:
    return {path.stem: path.read_text() for path in room.folder.glob("*.txt")}


def test_turns_are_taken_back_one_at_a_time_newest_first(room: CompactRoom) -> None:
    agent = room.agent()
    write(room, agent, "one", a="1", b="1")
    room.turn(agent, "only talk", text("yes"))
    write(room, agent, "three", a="3", c="3")
    write(room, agent, "four", a="4")
    assert content(room) == {"a": "4", "b": "1", "c": "3"}
    assert agent.undo().lines() == ["turn 4 (four):", "put back a.txt"]
    assert content(room) == {"a": "3", "b": "1", "c": "3"}
    assert agent.undo().lines() == ["turn 3 (three):", "put back a.txt", "removed c.txt"]
    assert content(room) == {"a": "1", "b": "1"}
    assert agent.undo().turn == 1
    assert content(room) == {}
    with pytest.raises(UsageError, match="no file changes are left to undo in this session"):
        agent.undo()


def test_a_turn_after_an_undo_is_taken_back_before_the_older_ones(room: CompactRoom) -> None:
    agent = room.agent()
    write(room, agent, "one", a="1")
    write(room, agent, "two", a="2")
    agent.undo()
    write(room, agent, "three", a="3")
    assert [agent.undo().turn, agent.undo().turn] == [3, 1]
    assert content(room) == {}


def test_a_conflict_is_named_keeps_the_file_and_does_not_bar_the_way(room: CompactRoom) -> None:
    agent = room.agent()
    write(room, agent, "one", a="1", b="1")
    write(room, agent, "two", a="2")
    (room.folder / "a.txt").write_text("mine")
    why = "a.txt was left alone: it has changed since."
    assert agent.undo().lines() == ["turn 2 (two):", why]
    assert agent.undo().lines() == ["turn 1 (one):", "removed b.txt", why]
    assert content(room) == {"a": "mine"}
    with pytest.raises(UsageError, match=r"a\.txt was left alone"):
        agent.undo()


def test_undo_says_what_it_does_not_cover_only_where_code_ran(room: CompactRoom) -> None:
    agent = room.agent()
    write(room, agent, "one", a="1")
    room.turn(agent, "two", tool("python", {"code": "1 + 1"}),
              tool("write_file", {"path": "b.txt", "content": "2"}), text("done"))  # fmt: skip
    assert agent.undo().lines() == ["turn 2 (two):", "removed b.txt", NOT_COVERED]
    assert agent.undo().lines() == ["turn 1 (one):", "removed a.txt"]
    with pytest.raises(UsageError, match=r"are left to undo in this session\. Undo does not remove"):
        agent.undo()


def test_the_model_is_told_once_what_was_taken_back(room: CompactRoom) -> None:
    agent = room.agent()
    write(room, agent, "one", a="1")
    write(room, agent, "two", a="2", b="2")
    agent.undo()
    said = "The user has undone your changes to these files: a.txt, b.txt (no longer exists)"
    for words, times in (("what is there?", 1), ("and now?", 1)):
        room.turn(agent, words, text("let me see"))
        assert str((room.server.messages[-1].body or {})["messages"]).count(said) == times
    agent.undo()
    room.turn(agent, "go on", text("yes"))
    assert "these files: a.txt (no longer exists)" in str((room.server.messages[-1].body or {})["messages"][-1])


def test_the_model_is_told_once_what_the_user_did_to_memories(room: CompactRoom) -> None:
    agent = room.agent()
    memory = "---\nname: {0}\ndescription: Plots of {0}\ntype: project\n---\nBlue {0}.\n"
    calls = [
        tool("memory", {"command": "create", "path": f"/memories/project/{name}.md", "file_text": memory.format(name)})
        for name in ("tides", "winds")
    ]
    room.turn(agent, "save them", *calls, text("done"))
    run_memory(agent, "forget tides")
    run_memory(agent, "rename winds gales")
    said = ("The user has changed memories (the memory index may still name old paths): /memories/project/tides.md "
            "deleted, /memories/project/winds.md is now /memories/project/gales.md")  # fmt: skip
    for words in ("what is there?", "and now?"):
        room.turn(agent, words, text("let me see"))
        assert str((room.server.messages[-1].body or {})["messages"]).count(said) == 1


def test_what_was_left_is_put_back_once_the_conflict_is_gone(room: CompactRoom) -> None:
    agent = room.agent()
    write(room, agent, "one", a="1")
    write(room, agent, "two", a="2", b="2")
    (room.folder / "a.txt").write_text("mine")
    assert agent.undo().restored == ("b.txt",)
    (room.folder / "a.txt").write_text("2")  # the user took their own change back
    assert agent.undo().lines() == ["turn 1 (one):", "removed a.txt"]
    assert content(room) == {}


def test_a_file_that_was_left_and_is_changed_anew_goes_back_to_what_the_user_wrote(room: CompactRoom) -> None:
    agent = room.agent()
    write(room, agent, "one", a="1")
    (room.folder / "a.txt").write_text("mine")
    agent.undo()
    write(room, agent, "two", a="2")
    assert agent.undo().restored == ("a.txt",)
    assert content(room) == {"a": "mine"}


def test_a_resumed_session_and_a_fork_can_take_back_earlier_turns(room: CompactRoom) -> None:
    agent = room.agent()
    write(room, agent, "one", a="1")
    write(room, agent, "two", a="2")
    name = room.session(agent).journal.session
    agent.close()
    again = room.agent()
    again.resume(name)
    assert again.undo().turn == 2
    again.sessions.fork()
    assert again.undo().turn == 1
    assert content(room) == {}


def test_variables_that_the_turn_rebound_are_listed(room: CompactRoom) -> None:
    agent = room.agent()
    agent.shell.user_ns["rate"] = 1.5
    room.turn(
        agent, "fix the rate", tool("python", {"code": "rate = 2.5"}),
        tool("write_file", {"path": "rate.txt", "content": "2.5"}), text("done"),
    )  # fmt: skip
    assert agent.undo().lines()[1:-1] == ["removed rate.txt", "variables that it rebound stay as they are: rate"]
    assert agent.shell.user_ns["rate"] == 2.5
