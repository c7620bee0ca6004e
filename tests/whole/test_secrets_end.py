"""From result, file, attachment and message to the model and the journal: no secret, and none is destroyed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, compact_room, plain
from notes_room import STATE, NotesRoom, directive_in, notes_room, path_in, words
from rooms import as_json, results

from ipyagent.children.letters import received
from ipyagent.children.mailbox import Letter
from ipyagent.context.notes_file import NOTES
from ipyagent.journal.events import Streamed
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import Fault, Reply, calls, text, tool
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


# ---------------------------------------------------------------------- twelve kinds on every way

TAIL = "Zq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5EaT0v"
HEX = "3f9a1c7e5b2d8064af13c95e7b20d846f1a2"
SECRETS = {
    "anthropic": "sk-ant-" + "api03-" + TAIL[::-1],
    "openai": "sk-" + "proj-" + TAIL,
    "aws": "AKIA" + "Q7XKV2M9TFLW4RB8",
    "github": "ghp_" + TAIL,
    "gitlab": "glpat-" + TAIL[:24],
    "slack": "xoxb" + "-4821-" + TAIL[:24],
    "groq": "gsk_" + TAIL,
    "xai": "xai-" + TAIL,
    "stripe": "sk_live_" + TAIL[:24],
    "digitalocean": "dop_v1_" + HEX + HEX,
    "token": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkw" + "." + TAIL,
    "password": "hunter2-Rx9Kq!",
}
"""The last one is known only by what it is called."""


MARK_OF = "[secret: Stripe key, 32 characters]"


def shown(kind: str) -> str:
    """The secret as a program would print it."""
    return f"password={SECRETS[kind]}" if kind == "password" else SECRETS[kind]


def leaks(room: CompactRoom | NotesRoom) -> list[str]:
    """Where a secret, or twelve characters of it in a row, stands."""
    places = {f"request {at}": as_json(each.body) for at, each in enumerate(room.server.messages)}
    for path in (room.folder / ".ipyagent").rglob("*"):
        if path.is_file():
            places[str(path.relative_to(room.folder))] = path.read_bytes().decode("utf-8", "replace")
    for agent in room.agents:
        said: dict[tuple[str, str], list[str]] = {}
        assert agent.session is not None
        for event in read_events(agent.session.journal.folder / TRANSCRIPT):
            if isinstance(event, Streamed):
                said.setdefault((event.channel, event.ref), []).append(event.text)
        places |= {f"pieces of {key}": "".join(parts) for key, parts in said.items()}
    assert len(places) > 3
    return [
        f"{kind}: {place}: …{words[max(0, words.find(part) - 60) : words.find(part) + 20]}"
        for kind, secret in SECRETS.items()
        for place, words in places.items()
        for part in [next((secret[at : at + 12] for at in range(8, len(secret) - 11) if secret[at : at + 12] in words)
                          if kind != "password" else iter([secret] if secret in words else []), "")]
        if part
    ]  # fmt: skip


def test_printed_whole_in_pieces_and_by_the_character(room: CompactRoom) -> None:
    agent = room.agent()
    agent.shell.user_ns["them"] = [shown(kind) for kind in SECRETS]
    (room.folder / "slow.sh").write_text(
        "".join(f"printf '%s' '{one[:9]}'; sleep 0.05; printf '%s\\n' '{one[9:]}'\n" for one in map(shown, SECRETS))
    )
    by_one = "import sys, time\nfor one in '\\n'.join([*them, '']): print(one, end='', flush=True, file=sys.{})"
    halves = "for each in them:\n    print(each[:7], end='', flush=True)\n    time.sleep(.06)\n    print(each[7:])"
    room.turn(
        agent,
        "print them",
        tool("python", {"code": "for each in them: print(each)"}),
        tool("python", {"code": by_one.format("stdout")}),
        tool("python", {"code": by_one.format("stderr")}),
        tool("python", {"code": halves}),
        tool("python", {"code": "print('x' * 40_000)\nfor each in them: print(each)"}),
        tool("shell", {"command": "sh slow.sh"}),
        text("done"),
    )
    assert leaks(room) == []


def test_the_models_own_words_and_calls(room: CompactRoom) -> None:
    agent = room.agent()
    said = "\n".join(shown(kind) for kind in SECRETS)
    room.turn(
        agent,
        "say them",
        tool("python", {"code": f"kept = '''{said}'''\nlen(kept)"}, say=f"I keep these:\n{said}"),
        text(f"They are\n{said}\nas asked."),
    )
    room.turn(agent, "and again", text("ok"))
    assert agent.shell.user_ns["kept"] == said  # what runs is what was written
    assert leaks(room) == []


def test_in_columns(room: CompactRoom) -> None:
    agent = room.agent()
    rows = [(f"user{at}", SECRETS[kind]) for at, kind in enumerate(SECRETS)]
    files = {
        "a.csv": ["name,password,city", *(f"{name},{value},Bern" for name, value in rows)],
        "b.txt": ["name     api_key", *(f"{name:8} {value}" for name, value in rows)],
        "c.md": ["| name | password |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)],
        "d.tsv": ["name\ttoken\tpassword", *(f"{name}\tno\t{value}" for name, value in rows)],
        "e.txt": [f"Set-Cookie: auth={value}; Path=/; HttpOnly" for _, value in rows if value != SECRETS["password"]],
    }
    for name, lines in files.items():
        (room.folder / name).write_text("\n".join(lines) + "\n")
    agent.shell.run_cell("import pandas as pd\ntable = pd.read_csv('a.csv')")
    looks = [("read_file", {"path": name}) for name in files]
    looks += [("shell", {"command": f"cat {name}"}) for name in files]
    room.turn(
        agent,
        "look",
        calls(looks),
        tool("grep", {"pattern": "user|name"}),
        tool("shell", {"command": "head -3 a.csv b.txt c.md"}),
        tool("python", {"code": "table"}),
        tool("python", {"code": "print(table.to_string())\nprint(table.to_csv())\nprint(table.to_dict())"}),
        text("done"),
    )
    assert leaks(room) == []
    assert "user3" in as_json(room.server.messages[-1].body)


def test_in_variables_and_restored_after_a_compaction(room: CompactRoom) -> None:
    agent = room.agent()
    for at, kind in enumerate(SECRETS):
        agent.shell.user_ns["password" if kind == "password" else f"thing{at}"] = SECRETS[kind]
    agent.shell.user_ns["them"] = {kind: shown(kind) for kind in SECRETS}
    agent.shell.user_ns["raw"] = "\n".join(shown(kind) for kind in SECRETS).encode() * 200
    said = "\n".join(shown(kind) for kind in SECRETS)
    (room.folder / "notes.txt").write_text(said)
    steps = [{"step": f"use {shown(kind)}", "state": "pending"} for kind in SECRETS]
    room.turn(
        agent,
        "look at @them and @notes.txt",
        tool("variables", {}),
        tool("variables", {"name": "them"}),
        tool("python", {"code": "them"}),
        tool("python", {"code": "raw"}),
        tool("read_file", {"path": "notes.txt"}),
        tool("plan", {"steps": steps}),
        text("done"),
    )
    room.summary = text(f"<analysis>x</analysis>\n<summary>1. The keys are\n{said}</summary>")
    agent.compact()
    room.turn(agent, "go on", text("ok"))
    assert leaks(room) == []
    assert "Your plan" in as_json(room.server.messages[-1].body)
    assert leaks(room) == []


def test_in_a_sub_agents_words(room: CompactRoom) -> None:
    agent = room.agent(children=True, messages=True)
    said = "\n".join(shown(kind) for kind in SECRETS)
    agent.shell.user_ns["them"] = said

    def answer(body: dict[str, Any]) -> Reply | Fault:
        words = as_json(body["messages"])
        made = sum(message["role"] == "assistant" for message in body["messages"])
        if "count the herons" in as_json(body["messages"][0]) and "start one" not in words:
            return tool("python", {"code": "print(them)"}) if made == 0 else text(f"They are\n{said}")
        if made == 0:
            return tool("agent", {"task": "count", "prompt": f"count the herons with {said}"})
        return text("done")

    room.answer = answer
    room.turn(agent, "start one")
    assert len(room.server.messages) == 4
    assert leaks(room) == []


def test_in_the_notes_and_on_the_way_to_them(tmp_path: Path) -> None:
    said = "\n".join(shown(kind) for kind in SECRETS)

    def notes(body: dict[str, Any]) -> Reply:
        edit = {"path": path_in(body), "old": STATE, "new": f"{STATE}\n{said}"}
        return calls([("edit_file", {**edit, "old": f"not there {said}"}), ("edit_file", edit)], say=said)

    with notes_room(tmp_path) as room:
        room.update = notes
        agent = room.agent()
        room.turn(agent, "weigh " + words(1, 2_000), tool("python", {"code": "1 + 1"}), text("weighed"))
        assert sum(bool(directive_in(one.body)) for one in room.server.messages if one.body is not None) >= 2
        assert agent.session is not None
        assert MARK_OF in (agent.session.journal.folder / NOTES).read_text()
        assert leaks(room) == []
