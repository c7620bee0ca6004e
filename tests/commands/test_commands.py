"""Every command, option and mention does what it says, and every mistake is one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import within
from rooms import KEY, MODEL, Room, as_json, plain, results, room

from ipyagent.extension.commands import COMMANDS
from ipyagent.extension.reference import every_command
from ipyagent.journal.events import TurnEnded, UserMessage
from ipyagent.journal.journal import read_events
from ipyagent.practice.replies import fault, refusal, text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.reports.timeline import SOURCES
from ipyagent.tools.catalogue import CALL, SEARCH, told_of


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with PracticeServer() as server, room(tmp_path_factory.mktemp("commands"), server=server) as made:
        made.ok("%load_ext ipyagent")
        yield made
        assert {exchange.error for exchange in server.refused} <= {"model: claude-nope"}


@pytest.fixture
def place(shared: Room) -> Room:
    """A kernel with a new session, in mode auto."""
    assert shared.server.scripted == 0
    shared.ok("%agent new")
    shared.ok("%agent mode auto")
    shared.ok(f"%agent model {MODEL}")
    return shared


WRONG = {
    "%agent frok": "did you mean fork?",
    "%agent stpo": "did you mean stop?",
    "%agent moed auto": "did you mean mode?",
    "%agent new please": "takes no argument",
    "%agent stop it": "takes no argument",
    "%agent export": "name a file",
    "%agent export no/such/folder/x.md": "cannot write",
    "%agent mode atuo": "did you mean auto?",
    "%agent model two words": "no spaces",
    "%agent allow shel(ls)": "nearest: shell",
    "%agent allow shell(ls": "closing parenthesis",
    "%agent resume 1999": "no other session '1999'",
    "%agent undo": "are left to undo",
    "%context --rwa": "--raw",
    "%context everything": "--raw",
    "%%agent --mode yolo\nhello": "ask, auto, read_only",
}


def test_a_mistake_is_one_line(place: Room) -> None:
    place.asks("hello")
    for line, words in WRONG.items():
        assert words in place.refuses(line), line


def test_nothing_to_work_on_is_one_line(place: Room) -> None:
    assert "no session to fork" in place.refuses("%agent fork")
    assert "no session to export" in place.refuses("%agent export x.md")
    assert "are left to undo" in place.refuses("%agent undo")
    assert "nothing yet" in place.ok("%context").streams
    assert place.ok("%agent stop").streams == "nothing is running\n"


def test_help_lists_every_command(place: Room) -> None:
    told = place.ok("%agent help").streams
    for name, command in COMMANDS.items():
        assert f"%agent {name}" in told
        assert " ".join(command.__doc__.split()) in " ".join(told.split())
    assert place.ok("%agent --help").streams == told


def test_status_and_tools_tell_where_things_stand(place: Room) -> None:
    place.asks("hello")
    place.ok("%agent new")
    told = place.ok("%agent").streams
    assert MODEL in told
    assert "mode auto" in told
    assert re.search(r"the next request begins a new session; \d+ stored sessions? in", told)
    rows = place.ok("%agent tools").streams.splitlines()
    assert len({len(re.split(" (?:side by side|alone|at provider) ", row)[0]) for row in rows}) == 1
    place.asks("hello")
    told = place.ok("%agent status").streams
    assert MODEL in told
    assert "mode auto" in told
    assert "1 turn," in told
    assert place.transcripts()[-1].parent.name in told
    tools = place.ok("%agent tools").streams.splitlines()
    at_provider = [line for line in tools if "at provider" in line]
    assert [line.split()[0] for line in at_provider] == ["web_search", "web_fetch"]
    assert all("IPyAgent.server_tools turns it on" in line for line in at_provider)
    ours = {line.split()[0] for line in tools if line not in at_provider}
    assert ours == told_of(place.sent()["tools"]) - {SEARCH, CALL}
    place.ok("%config IPyAgent.server_tools = ['web_search']")
    place.asks("once more")
    on, off = [line for line in place.ok("%agent tools").streams.splitlines() if "at provider" in line]
    assert "on, within the model's reply" in on
    assert "off" in off
    place.ok("%config IPyAgent.server_tools = []")


def test_tools_that_are_switched_off_are_not_listed(place: Room) -> None:
    place.ok("%config IPyAgent.memory = False\n%config IPyAgent.messages = False")
    place.asks("hello")
    tools = [line for line in place.ok("%agent tools").streams.splitlines() if "at provider" not in line]
    assert {line.split()[0] for line in tools} == told_of(place.sent()["tools"]) - {SEARCH, CALL}
    assert not {"memory", "send_message"} & {line.split()[0] for line in tools}
    place.ok("%config IPyAgent.memory = True\n%config IPyAgent.messages = True")


def test_context_counts_what_the_server_counts(place: Room) -> None:
    place.asks("hello")
    picture, folded = place.ok("%context").data
    assert picture["image/svg+xml"].startswith("<svg")
    told = folded["text/plain"]
    assert "system prompt" in told
    assert "warning 947,000" in told
    rows = [line.split()[-3:-1] for line in told.splitlines() if line.strip().startswith(SOURCES)]
    assert sum(float(share) for _, share in rows) == pytest.approx(100, abs=0.5)
    whole = int(told.split()[0].replace(",", ""))
    assert sum(int(tokens.replace(",", "")) for tokens, _ in rows) == pytest.approx(whole, abs=9)
    last = place.server.messages[-1]
    assert f"{last.prompt_tokens:,} prompt tokens" in told


def test_raw_context_is_the_next_request_and_has_no_key(place: Room) -> None:
    place.asks("hello {x}", text("hi"))
    told = place.ok("%context --raw").streams
    raw = json.loads(told)
    assert KEY not in told
    place.asks("and now?")
    sent = place.sent()
    assert (raw["system"], raw["tools"], raw["model"]) == (sent["system"], sent["tools"], sent["model"])
    assert _bare(sent["messages"])[:2] == _bare(raw["messages"])


def _bare(messages: list[dict[str, Any]]) -> list[Any]:
    """The messages without cache marks, which move."""
    return [
        (message["role"], [{**block, "cache_control": None} for block in message["content"]]) for message in messages
    ]


def test_model_is_shown_and_changed(place: Room) -> None:
    assert place.ok("%agent model").streams == f"using model: {MODEL}\n"
    place.ok("%agent model claude-opus-5-5")
    place.asks("hello")
    assert place.sent()["model"] == "claude-opus-5-5"
    place.asks("hello", line=f"--model {MODEL}")
    assert place.sent()["model"] == MODEL
    place.asks("hello")
    assert place.sent()["model"] == "claude-opus-5-5"


def test_an_unknown_model_is_one_line_and_the_next_request_works(place: Room) -> None:
    assert "claude-nope" in place.refuses("%%agent --model claude-nope\nhello")
    place.asks("hello again")


def test_modes_allow_and_forbid(place: Room) -> None:
    place.ok("%agent mode read_only")
    place.asks("run it", tool("python", {"code": "ran_in = 'read_only'"}), text("no"))
    assert "read_only" in results(place.sent())[-1]["text"]
    place.asks("run it", tool("python", {"code": "ran_in = 'auto'"}), text("yes"), line="--mode auto")
    assert place.kernel.eval("ran_in") == "auto"
    assert place.ok("%agent mode").streams.startswith("mode read_only")
    assert "commands change and delete files of the project" in place.ok("%agent mode auto").streams
    place.ok("%agent mode ask")
    place.asks("run it", tool("python", {"code": "ran_in = 'ask'"}), text("no"))
    refused = results(place.sent())[-1]
    assert refused["is_error"]
    assert "%agent mode auto" in refused["text"]
    assert "IPYAGENT_MODE" in refused["text"]
    assert place.kernel.eval("ran_in") == "auto"
    assert "auto" not in "".join(path.read_text() for path in place.home.rglob("*.json"))


def test_code_of_the_agent_cannot_command_it(place: Room) -> None:
    lines = ("mode auto", "allow shell", "trust", "new", "undo", "model x", "export x.md")
    place.asks("try", *(tool("python", {"code": f"%agent {line}"}) for line in lines), text("no"))
    failed = results(place.sent())
    assert len(failed) == len(lines)
    assert all(each["is_error"] and "a turn is running" in each["text"] for each in failed), failed


@pytest.mark.paced
def test_code_of_the_agent_may_stop_it_and_cannot_ask_it(place: Room) -> None:
    place.asks("try", tool("python", {"code": "%%agent\nask yourself"}), text("no"))
    assert "a turn is running" in results(place.sent())[-1]["text"]
    code = "print('before')\n%agent stop\nimport time; time.sleep(90)\nafter = 1"
    cell = place.asks("try", tool("python", {"code": code}))
    assert cell.seconds < within(5, 60)
    # the command's own word may or may not be out before the stop arrives
    assert "before\n" in plain(cell)
    assert "[Stopped]" in plain(cell)
    assert place.kernel.eval("'after' in globals()") is False
    place.asks("go on")


def test_a_rule_allows_what_it_names_and_is_kept_in_the_home_only(place: Room) -> None:
    place.ok("%agent mode ask")
    assert "no rule yet" in place.ok("%agent allow").streams
    place.ok("%agent allow python")
    place.asks("run it", tool("python", {"code": "allowed = 1"}), text("done"))
    assert place.kernel.eval("allowed") == 1
    assert "python" in place.ok("%agent allow").streams
    stored = [path for path in (*place.folder.rglob("*"), *place.home.rglob("*")) if path.name == "rules.json"]
    assert stored == [place.home / "rules.json"]
    stored[0].unlink()
    place.asks("run it", tool("python", {"code": "allowed = 2"}), text("no"))
    assert place.kernel.eval("allowed") == 1


def test_undo_puts_files_back_but_not_over_somebody_elses_change(place: Room) -> None:
    notes = place.folder / "notes.txt"
    notes.write_text("mine\n")
    place.asks(
        "write",
        tool("read_file", {"path": "notes.txt"}),
        tool("write_file", {"path": "notes.txt", "content": "theirs\n"}),
        tool("write_file", {"path": "new.txt", "content": "new\n"}),
        text("done"),
    )
    assert notes.read_text() == "theirs\n"
    (place.folder / "new.txt").write_text("mine now\n")
    told = place.ok("%agent undo").streams
    assert "put back notes.txt" in told
    assert "new.txt was left alone" in told
    assert (notes.read_text(), (place.folder / "new.txt").read_text()) == ("mine\n", "mine now\n")
    assert "are left to undo" in place.refuses("%agent undo")


def test_fix_takes_the_newest_error_as_the_request(place: Room) -> None:
    assert "nothing to fix" in place.refuses("%agent fix")
    place.run("def share(part, whole):\n    return part / whole\n\nshare(1, 0)")
    place.server.script(text("whole is 0"))
    assert "whole is 0" in plain(place.ok("%agent fix but keep the name"))
    said = place.said()[-1]
    assert said.startswith("Find out why this failed and fix it.\nbut keep the name\n\n```\nTraceback")
    assert "return part / whole" in said
    assert "ZeroDivisionError: division by zero\n```" in said
    own = [event.own for event in place.events() if isinstance(event, UserMessage)][-1]
    assert own == "but keep the name", "what the user typed is told apart from what we wrote"
    assert "share(1, 0)" in "\n".join(place.words())
    place.refuses("%agent mode yolo")  # an error of ours says itself what to do
    assert "nothing to fix" in place.refuses("%agent fix")


def test_export_writes_the_session_and_escapes_it(place: Room) -> None:
    place.asks("what is <b>2 + 2</b>?", tool("python", {"code": "2 + 2"}), text("It is **4**, <script>x</script>."))
    shows = {".md": "2 + 2", ".html": "&lt;b&gt;2 + 2", ".txt": "> what is <b>2 + 2", ".jsonl": "2 + 2"}
    for ending, shown in shows.items():
        assert "1 turn" in place.ok(f"%agent export my notes{ending}").streams
        written = (place.folder / f"my notes{ending}").read_text("utf-8")
        assert shown in written
        assert not re.search("<script>x|<b>2", written) or ending in (".txt", ".jsonl")
    assert isinstance(list(read_events(place.folder / "my notes.jsonl"))[-1], TurnEnded)
    assert "one of .md, .html, .txt, .jsonl" in place.refuses("%agent export w.docx")


def test_sessions_are_begun_listed_taken_up_and_forked(place: Room) -> None:
    place.asks("first of all")
    first = place.transcripts()[-1].parent.name
    place.ok("%agent new")
    place.asks("second thing")
    second = place.transcripts()[-1].parent.name
    assert first != second
    assert len(place.sent()["messages"]) == 1
    listed = place.ok("%agent sessions").streams.splitlines()
    assert any(line.startswith("* " + second) and "second thing" in line for line in listed)
    assert any(line.startswith("  " + first) and "first of all" in line for line in listed)
    assert first in place.ok(f"%agent resume {first}").streams
    place.asks("back again")
    assert "first of all" in as_json(place.sent())
    assert "second thing" not in as_json(place.sent())
    told = place.ok("%agent fork aside-1").streams
    place.asks("on the side")
    assert "[aside-1]" in next(line for line in place.ok("%agent sessions").streams.splitlines() if line[0] == "*")
    copy = place.transcripts()[-1].parent.name
    assert copy in told
    assert copy not in (first, second)
    assert "back again" in as_json(place.sent())
    original = read_events(place.folder / ".ipyagent/sessions" / first / "transcript.jsonl")
    assert [event.text for event in original if isinstance(event, UserMessage)] == ["first of all", "back again"]


# ---------------------------------------------------------------------- options of a cell


def test_fresh_and_fork_answer_beside_the_conversation(place: Room) -> None:
    place.asks("the word is heron")
    main = place.transcripts()[-1]
    before = main.read_bytes()
    place.asks("a fresh one", line="--fresh")
    assert "heron" not in as_json(place.sent())
    place.asks("a forked one", line="--fork")
    assert "heron" in as_json(place.sent())
    assert main.read_bytes() == before
    place.asks("go on")
    assert "heron" in as_json(place.sent())
    assert "one" not in [block["text"][-3:] for m in place.sent()["messages"] for block in m["content"]]
    assert "-aside" not in place.ok("%agent").streams


def test_quiet_shows_the_answer_only(place: Room) -> None:
    cell = place.asks("work", tool("python", {"code": "print('noise')"}), text("The **answer**."), line="--quiet")
    assert [data["text/markdown"] for data in cell.data] == ["The **answer**."]
    assert "noise" not in plain(cell)


def test_effort_and_max_turns_reach_the_request_and_the_loop(place: Room) -> None:
    place.asks("hello", line="--effort high")
    assert place.sent()["output_config"]["effort"] == "high"
    before = len(place.server.messages)
    cell = place.asks("loop", *[tool("python", {"code": "1"})] * 2, line="--max-turns 2")
    assert len(place.server.messages) == before + 2
    assert "max_turns" in plain(cell)
    place.asks("go on", text("fine"))


def test_a_failed_turn_fails_the_cell_with_one_line_and_a_tool_error_does_not(place: Room) -> None:
    cell = place.asks("try", tool("python", {"code": "1 / 0"}), text("It failed."))
    assert "ZeroDivisionError" in plain(cell)
    place.server.script(fault(401, message="invalid x-api-key"))
    assert place.refuses("%%agent\nhello").startswith("TurnFailed: ")
    place.server.script(refusal("No."))
    assert "refused" in place.refuses("%%agent\nhello")
    place.server.script(refusal("No."))
    assert place.ok("%%agent\nhello", headless=False).errors == []


HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2K\u009b31m\u202eevil"
SAID = {
    "": "list", "memory": "help", "mcp": "trust", "skills": "doctor", "subagents": "types", "export": f"{HOSTILE}.md",
    "resume": HOSTILE, "rollback": "99", "cells": HOSTILE, "allow": HOSTILE, "model": "x", "fork": HOSTILE,
}  # fmt: skip


@pytest.mark.slow
def test_no_command_lets_a_name_or_a_text_command_the_terminal(tmp_path: Path) -> None:
    skill = f"---\nname: evil\ndescription: '{HOSTILE}'\n---\n{HOSTILE}\n"
    with PracticeServer() as server, room(tmp_path / f"p{HOSTILE}", server=server) as place:
        own = place.folder / ".ipyagent"
        for name, content in {
            "mcp.json": json.dumps({"mcpServers": {HOSTILE: {"command": HOSTILE, "args": ["a\rb"], "disabled": True}}}),
            "agents/evil.md": f"---\nname: evil\ndescription: 'x{HOSTILE}'\n---\n{HOSTILE}\n",
            f"memory/{HOSTILE}.md": f"---\nname: evil\ndescription: '{HOSTILE}'\n---\n{HOSTILE}\n",
            "skills/evil/SKILL.md": skill,
            f"skills/{HOSTILE}/SKILL.md": skill,
            "AGENT.md": HOSTILE,
        }.items():
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text(content)
        place.ok("%load_ext ipyagent")
        shown = [place.run("%agent"), place.run("%agent trust"), place.run("%agent mode auto")]
        place.asks(
            f"please {HOSTILE}",
            tool("write_file", {"path": f"new{HOSTILE}.txt", "content": HOSTILE}),
            tool("python", {"code": f"class Q(Exception): pass\nraise Q({HOSTILE!r})"}),
            text(f"done {HOSTILE}"),
        )
        lines = ["%context --raw", "%context --at 1", "%context --turns", "%memory path", "%memory", "%memory list"]
        lines += ["%memory show evil", "%skills show evil", "%agent subagents list", "%agent mcp doctor", "%agent mcp"]
        known = [name for name in every_command() if name != "fix"]
        lines += [f"%agent {name} {words}" for name in known for words in {SAID.get(name, ""), ""}]
        lines += [f"%agent {HOSTILE}", f"%memory show {HOSTILE}", f"%context {HOSTILE}"]
        shown += [place.run(line) for line in lines]
        server.script(fault(400, message=f"no {HOSTILE}"))
        shown.append(place.run("%%agent --quiet\nagain"))
        for cell in shown:
            told = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(cell.reply.get("traceback") or ()))  # IPython's colours
            told += str(cell.reply.get("evalue", "")) + plain(cell)
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", told), told
        assert any("evil" in cell.streams for cell in shown)
