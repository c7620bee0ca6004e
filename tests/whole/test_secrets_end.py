"""From result, file, attachment and message to the model and the journal: no secret, and none is destroyed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compact_room import CompactRoom, compact_room, plain
from rooms import as_json, results

from ipyagent.children.letters import received
from ipyagent.children.mailbox import Letter
from ipyagent.journal.journal import TRANSCRIPT
from ipyagent.practice.replies import text, tool
from ipyagent.redaction import redacted

GITHUB = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9"
MARK = "[secret: GitHub token, 40 characters]"


@pytest.fixture
def room(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made


def test_no_secret_of_results_and_attachments_reaches_model_or_journal(room: CompactRoom) -> None:
    agent = room.agent()
    (room.folder / "settings.env").write_text(f"NAME=heron\nGH={GITHUB}\nLAST=1\n")
    agent.shell.user_ns["gh"] = GITHUB
    room.turn(
        agent,
        "see @gh and @settings.env",
        tool("python", {"code": "print(gh)\nprint('x' * 30_000, gh)\ngh"}),
        tool("shell", {"command": "cat settings.env"}),
        tool("read_file", {"path": "settings.env"}),
        tool("grep", {"pattern": "GH="}),
        tool("variables", {"name": "gh"}),
        text("done"),
    )
    body = room.server.messages[-1].body
    assert body is not None
    assert as_json(body).count(MARK) >= 4
    for exchange in room.server.messages:
        assert GITHUB not in as_json(exchange.body)
    assert agent.session is not None
    for path in agent.session.journal.folder.rglob("*"):
        assert path.is_dir() or GITHUB.encode() not in path.read_bytes(), path
    assert agent.session.journal.folder.joinpath(TRANSCRIPT).read_text("utf-8").count(MARK) >= 4
    assert sum("looks like a secret" in line for line in agent.notices) == 1
    assert agent.shell.user_ns["gh"] == GITHUB


def test_the_setting_sends_results_as_they_are(room: CompactRoom) -> None:
    agent = room.agent(redact_secrets=False)
    (room.folder / "settings.env").write_text(f"GH={GITHUB}\n")
    room.turn(agent, "look", tool("read_file", {"path": "settings.env"}), text("done"))
    assert GITHUB in as_json(room.server.messages[-1].body)


def test_a_secret_is_never_overwritten_by_what_stands_for_it(room: CompactRoom) -> None:
    agent = room.agent()
    file = room.folder / "settings.env"
    file.write_text(f"NAME=heron\nGH={GITHUB}\nLAST=1\n")
    room.turn(
        agent,
        "change it",
        tool("read_file", {"path": "settings.env"}),
        tool("edit_file", {"path": "settings.env", "old": f"GH={MARK}\nLAST=1", "new": "LAST=2"}),
        tool("edit_file", {"path": "settings.env", "old": "NAME=heron", "new": f"NAME=heron\nOLD={MARK}"}),
        tool("write_file", {"path": "settings.env", "content": f"NAME=egret\nGH={MARK}\n"}),
        tool("edit_file", {"path": "settings.env", "old": "LAST=1", "new": "LAST=2"}),
        text("done"),
    )
    body = room.server.messages[-1].body
    assert body is not None
    answers = results(body)[1:]
    assert [bool(answer.get("is_error")) for answer in answers] == [True, True, True, False]
    for answer in answers[:3]:
        assert f"{MARK} only stands for a secret that you were not shown" in answer["text"]
    assert file.read_text() == f"NAME=heron\nGH={GITHUB}\nLAST=2\n"


def test_a_file_that_itself_holds_such_words_can_be_written(room: CompactRoom) -> None:
    agent = room.agent()
    file = room.folder / "test.py"
    file.write_text(f'SHOWN = "{MARK}"\n')
    room.turn(
        agent,
        "change it",
        tool("read_file", {"path": "test.py"}),
        tool("edit_file", {"path": "test.py", "old": "SHOWN", "new": f"# {MARK}\nOTHER"}),
        text("done"),
    )
    assert file.read_text() == f'# {MARK}\nOTHER = "{MARK}"\n'


def test_what_a_cut_off_call_had_shown_holds_no_secret(room: CompactRoom) -> None:
    agent = room.agent()
    agent.shell.user_ns["stop"], agent.shell.user_ns["gh"] = agent.stop, GITHUB
    room.turn(agent, "run", tool("python", {"code": "print('gh is', gh)\nstop()\nimport time\ntime.sleep(20)"}))
    room.turn(agent, "again", text("ok"))
    told = plain([block for message in room.server.messages[-1].body["messages"] for block in message["content"]])  # type: ignore[index]
    assert f"gh is {MARK}" in told


def test_another_agents_message_is_redacted_when_it_is_taken_in() -> None:
    letter = Letter(id="m1", sender="scout", session="s", text=f"use {GITHUB}", summary=f"key {GITHUB}")
    event = received(letter, lambda words: redacted(words)[0])
    assert GITHUB not in as_json([event.text, event.said, event.summary])
    assert f"use {MARK}" in event.text
