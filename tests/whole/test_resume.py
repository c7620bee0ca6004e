"""After a restart the conversation is there, the variables are not, and the prompt's bytes are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rooms import Room, as_json, ask_as, plain, results, room

from ipyagent.journal.events import KernelStarted, TurnEnded
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Room]:
    with PracticeServer() as server, room(tmp_path, server=server) as made:
        made.ok("%load_ext ipyagent\n%agent mode auto")
        yield made


def resumed(place: Room, *, before: str = "") -> str:
    """Restart, then take the session up; the line that says so."""
    place.restart()
    return place.ok(f"{before}\n%load_ext ipyagent\n%agent mode auto\n%agent resume").streams


def test_after_a_restart_the_practice_model_knows_what_was_said_and_what_is_gone(tmp_path: Path) -> None:
    with room(tmp_path, IPYAGENT_MODE="auto") as place:
        (place.folder / "birds.csv").write_text("bird,count\nheron,3\negret,4\nheron,5\n")
        place.ok("%load_ext ipyagent")
        place.ok("%%agent\nLoad birds.csv as `birds`.")
        assert place.kernel.eval("birds.shape") == [3, 2]
        place.restart()
        told = place.ok("%load_ext ipyagent\n%agent resume").streams
        assert "variables of the earlier kernel are gone: birds" in told.replace("pd, ", "")
        assert "birds.csv" in plain(place.ok("%%agent\nWhat have we done so far?"))
        gone = plain(place.ok("%%agent\nDescribe birds."))
        assert "is gone" in gone
        assert "rebuild" in gone
        assert place.kernel.eval("'birds' in globals()") is False
        place.ok("%%agent\nYes, rebuild it.")
        assert place.kernel.eval("int(birds['count'].sum())") == 12
        assert "is gone" not in plain(place.ok("%%agent\nDescribe birds."))


def prefix(body: dict[str, Any]) -> tuple[str, str, list[str]]:
    """System, tools and messages as bytes would have them; cache marks move and are no content."""
    bare = re.sub(r', "cache_control": \{[^}]*\}', "", as_json(body["messages"]))
    return (
        as_json([{k: v for k, v in block.items() if k != "cache_control"} for block in body["system"]]),
        as_json([{k: v for k, v in each.items() if k != "cache_control"} for each in body["tools"]]),
        [as_json(message) for message in json.loads(bare)],
    )


LATER = """
import time as _time
_real = _time.strftime
_time.strftime = lambda form, *t: '2031-02-03' if form == '%Y-%m-%d' and not t else _real(form, *t)
import ipyagent.version
ipyagent.version.__version__ = '99.9'
"""


def test_a_restart_keeps_the_model_that_was_named_but_not_one_of_a_single_request(tmp_path: Path) -> None:
    with PracticeServer() as server, room(tmp_path, server=server, IPYAGENT_MODEL="") as made:
        made.ok("%load_ext ipyagent\n%agent model claude-opus-5-5")
        made.asks("one")
        made.asks("two", line="--model claude-haiku-5-5")
        told = resumed(made)
        assert "using model: claude-opus-5-5, as you chose there" in told
        made.asks("three")
        assert [made.sent(at)["model"] for at in (-3, -2, -1)] == [
            "claude-opus-5-5", "claude-haiku-5-5", "claude-opus-5-5"
        ]  # fmt: skip


def test_the_bytes_of_the_prompt_are_the_same_after_a_restart_on_another_day_with_another_version(place: Room) -> None:
    place.asks("make it", tool("python", {"code": "rows = [1, 2, 3]\nprint('é 😀')"}), text("Made."))
    place.asks("and now?", text("Three rows.", thinking="Let me see."))
    last = place.sent()
    assert "1 turn" not in resumed(place, before=LATER)
    place.asks("go on", text("fine"))
    now = place.sent()
    system, tools, messages = prefix(last)
    assert prefix(now)[:2] == (system, tools)
    assert prefix(now)[2][: len(messages)] == messages
    assert "variables of the earlier kernel are gone" in place.words()[0]
    assert "2031-02-03" in place.words()[0]
    assert "2031-02-03" not in as_json(now["messages"][:-1])
    stamps = [event for event in place.events() if isinstance(event, KernelStarted)]
    assert [stamp.resumed for stamp in stamps] == [False, True]
    assert stamps[0].stamp != stamps[1].stamp
    assert {event.status for event in place.events() if isinstance(event, TurnEnded)} == {"finished"}
    usage = place.server.messages[-1].usage
    assert usage["cache_read_input_tokens"] >= place.server.messages[-2].prompt_tokens - 64
    assert place.server.refused == []


RATE = """
import ipyagent

@ipyagent.tool(permission="none", writes=False)
def rate(day: int) -> int:
    "A rate."
    return 7
"""


def test_a_tool_of_the_user_that_is_gone_after_the_restart_keeps_the_bytes(place: Room) -> None:
    place.ok(RATE)
    place.asks("rate?", tool("rate", {"day": 1}), text("7"))
    last = place.sent()
    resumed(place)
    place.asks("again", tool("rate", {"day": 2}), text("It is gone."))
    system, tools, messages = prefix(last)
    assert prefix(place.sent())[:2] == (system, tools)
    assert prefix(place.sent())[2][: len(messages)] == messages
    missing = results(place.sent())[-1]
    assert missing["is_error"]
    assert "rate" in missing["text"]
    assert place.server.refused == []


def test_a_notebook_takes_its_session_up_and_shows_stored_answers_until_something_is_new(tmp_path: Path) -> None:
    notebook = tmp_path / "project" / "birds.ipynb"
    with PracticeServer() as server, room(tmp_path, server=server, JPY_SESSION_NAME=str(notebook)) as place:
        place.ok("%load_ext ipyagent")
        server.script(text("first answer"), text("second answer"))
        ask_as(place.kernel, "c1", "%%agent\nfirst")
        ask_as(place.kernel, "c2", "%%agent\nsecond")
        asked = len(server.messages)
        place.restart()
        place.ok("%load_ext ipyagent")
        shown = ask_as(place.kernel, "c1", "%%agent\nfirst")
        assert "resumed session" in shown["stream"]
        assert "first answer" in shown["text/plain"]
        assert "--rerun" in shown["text/plain"]
        assert "second answer" in ask_as(place.kernel, "c2", "%%agent\nsecond")["text/plain"]
        assert len(server.messages) == asked
        server.script(text("newer answer"), text("again first"))
        assert "newer answer" in ask_as(place.kernel, "c2", "%%agent --rerun\nsecond")["text/plain"]
        assert "again first" in ask_as(place.kernel, "c1", "%%agent\nfirst")["text/plain"]  # the history has changed
        assert len(server.messages) == asked + 2
        assert server.refused == []
