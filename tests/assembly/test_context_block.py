"""`<context>` tells what is so once, then what has changed, and again whatever has left the conversation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, compact_room, words

from ipyagent.context.reminders import mode_in, standing, told_in
from ipyagent.practice.replies import text, tool


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made
        made.nothing_refused()


def contexts(body: dict[str, Any]) -> list[str]:
    """The `<context>` blocks of a request, oldest first."""
    return [
        block["text"]
        for message in body["messages"]
        if message["role"] == "user" and not isinstance(message["content"], str)
        for block in message["content"]
        if block["type"] == "text" and block["text"].startswith("<context>")
    ]


def run(agent: Any, code: str) -> None:
    agent.shell.run_cell(code, store_history=True)


def test_variables_are_told_once_and_then_what_is_new_changed_or_gone(place: CompactRoom) -> None:
    agent = place.agent()
    run(agent, "import json\nRATE = 1.19\nitems = [1, 2]\nword = 'w'\ndef clean(x): ...")
    place.turn(agent, "one")
    assert "Variables now:\nRATE  1.19\nword  'w'\nitems  list 2 of int: [1, 2]\nfunctions: clean(x)" in contexts(
        place.bodies[-1]
    )[0]
    place.turn(agent, "two")
    assert len(contexts(place.bodies[-1])) == 1
    run(agent, "items.append(3)\nRATE = 1.07\ndel word\nnew = None")
    place.turn(agent, "three")
    told = contexts(place.bodies[-1])[-1].split("Run by the user")[0]
    assert told == (
        "<context>\nchanged: RATE  1.07\nnew: new  None\nchanged: items  list 3 of int: [1, 2, 3]\ngone: word\n"
    )
    assert told_in(standing(place.session(agent).view.messages)) == {"RATE", "items", "word", "new"}


def test_a_mentioned_variable_is_shown_once_and_a_long_cell_is_cut_at_a_line_with_where_the_rest_is(
    place: CompactRoom,
) -> None:
    agent = place.agent()
    lines = [f"number_{n} = {n}  # a line of the user's" for n in range(40)]
    run(agent, "\n".join([*lines, "table = dict(a=list(range(99)))"]))
    number = len(agent.shell.user_ns["In"]) - 1
    place.turn(agent, "sum up @table please")
    [told] = contexts(place.bodies[-1])
    assert "\ntable  dict 1 (shown below)\n" in told
    kept, _, rest = told.partition("Run by the user since the last request:\n```\n")[2].partition("\n```\n")
    assert kept.split("\n") == lines[: kept.count("\n") + 1]
    source = agent.shell.user_ns["In"][number]
    left = len(source) - len(kept)
    assert rest.startswith(f"(… {left:,} more characters: In[{number}] in python has all of it)")


def test_what_the_model_itself_made_is_told_by_its_lines_too(place: CompactRoom) -> None:
    agent = place.agent()
    run(agent, "x = 1")
    place.turn(agent, "one", tool("python", {"code": "made = x + 1"}), text("done"))
    place.turn(agent, "two")
    assert contexts(place.bodies[-1])[-1] == "<context>\nnew: made  2\n</context>"


def test_another_permission_mode_is_told_once_with_the_next_request(place: CompactRoom) -> None:
    agent = place.agent()
    place.turn(agent, "one")
    agent.settings.mode = "read_only"
    said = "<context>\nThe permission mode is now read_only: no Python, no writes, only commands"
    for _ in range(2):
        place.turn(agent, "go on")
        assert [said in block for block in contexts(place.bodies[-1])] == [False, True]
    agent.close()
    agent = place.agent()  # of a new kernel, in which the mode is the setting's again
    agent.resume()
    for _ in range(2):
        place.turn(agent, "where were we?")
        told = contexts(place.bodies[-1])
        assert mode_in(told) == "auto"
        assert "and so do file changes and commands in the project that undo can take back" in "".join(told)
        assert str(place.bodies[-1]["messages"]).count("The permission mode is now") == 2
    agent.new()
    place.turn(agent, "another session")
    assert "permission mode" not in str(place.bodies[-1]["messages"])


def test_that_a_kernel_is_new_is_told_again_where_it_was_taken_out_or_compacted(place: CompactRoom) -> None:
    agent = place.agent()
    run(agent, "RATE = 1.19\nkept = 2")
    place.turn(agent, "one")
    agent.close()
    agent = place.agent()
    agent.resume()
    run(agent, "kept = 2")
    told = "This conversation is resumed in a new kernel."
    for words_ in ("two " + words(1, 2_000), "three"):
        place.turn(agent, words_)
        assert str(place.bodies[-1]["messages"]).count(told) == 1
        assert "\ngone: RATE (float)\n" in "".join(contexts(place.bodies[-1]))
    agent.compact("--snip 2")
    place.turn(agent, "four " + words(2, 2_000), text(words(3, 2_000)))
    assert str(place.bodies[-1]["messages"]).count(told) == 1
    place.turn(agent, "five")
    agent.compact()
    place.turn(agent, "six")
    assert told not in str(place.bodies[-1]["messages"])
    again = (
        "The kernel has been restarted since. Whatever is said above about these variables, they are gone: RATE (float)"
    )
    assert f"<context>\n{again}\n</context>" in contexts(place.bodies[-1])


@pytest.mark.parametrize("way", ["summary", "snip", "undo"])
def test_after_what_was_told_has_left_all_stands_again_once(place: CompactRoom, way: str) -> None:
    agent = place.agent()
    run(agent, "RATE = 1.19\nitems = [1, 2]")
    place.turn(agent, "one", text(words(1)))
    run(agent, "extra = 5")
    place.turn(agent, "two", text(words(2)))
    place.turn(agent, "three", text(words(3)))
    agent.compact("--snip 1" if way == "snip" else "")
    if way == "undo":
        agent.compact("--undo")
    place.turn(agent, "four")
    blocks = contexts(place.bodies[-1])
    again = blocks[-1:] if way == "snip" else blocks  # a snip leaves the later, smaller block where it is
    for name in ("RATE  1.19", "items  list", "extra  5"):
        assert sum(name in block for block in again) == 1, (way, blocks)
    place.turn(agent, "five")
    assert contexts(place.bodies[-1]) == blocks


def test_another_session_in_the_same_kernel_is_told_everything(place: CompactRoom) -> None:
    agent = place.agent()
    run(agent, "RATE = 1.19")
    place.turn(agent, "one")
    first = agent.session.journal.session
    agent.new()
    place.turn(agent, "two")
    assert "Variables now:\nRATE  1.19" in contexts(place.bodies[-1])[0]
    run(agent, "RATE = 2")
    agent.resume(first)
    place.turn(agent, "three")
    assert "Variables now:\nRATE  2" in contexts(place.bodies[-1])[-1]
