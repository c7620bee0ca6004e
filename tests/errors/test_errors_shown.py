"""The errors a user meets most, made to happen: each is one clear line that says what to do.

Met elsewhere, and not again here: unknown commands, options, modes, endings, rules and sessions of `%agent` and
`%context` (commands/test_commands.py), wrong values of the environment and of configuration files (test_loading.py,
assembly/test_settings.py), a folder that is not trusted or cannot be written (whole/test_trust.py), a full disk,
a cut stream, a key with a line break (loop/test_turn_faults.py), a session that is damaged or not a transcript
(journal/test_damaged_journal.py), a window that is too small (loop/test_small_windows.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kernels import ROOT
from rooms import MODEL, Room, plain, room

from ipyagent.journal.journal import Journal
from ipyagent.practice.replies import Scripted, fault, refusal, stall, text, tool
from ipyagent.practice.server import PracticeServer

AT_ONCE = False
"""x-should-retry of a failure that stays."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """One kernel for all, its project trusted, with a bad skill, a bad mcp.json and a bad notebook in it."""
    with (
        PracticeServer() as server,
        room(tmp_path_factory.mktemp("errors"), server=server, IPYAGENT_MAX_RETRIES="1") as made,
    ):
        (made.folder / ".ipyagent").mkdir()
        (made.folder / ".ipyagent" / "mcp.json").write_text('{"mcpServers": }')
        (made.folder / "skills" / "bad").mkdir(parents=True)
        (made.folder / "skills" / "bad" / "SKILL.md").write_text("---\nname: bad\n---\nno description\n")
        (made.folder / "bad.ipynb").write_text('{"cells": 1}')
        (made.folder / "broken.gguf").write_text("no model")
        made.ok("%load_ext ipyagent")
        made.ok("%agent trust")
        yield made


def only(place: Room, code: str, replies: Sequence[Scripted] = ()) -> str:
    """The one line of a cell that fails; nothing of the script is left over."""
    place.server.script(*replies)
    line = place.refuses(code)
    assert place.server.scripted == 0
    assert len(line) < 420
    assert "Traceback" not in line
    return line


FAULTS: dict[str, tuple[list[Scripted], str, str]] = {
    "a wrong key": ([fault(401, message="invalid x-api-key")], "refused the key", "set ANTHROPIC_API_KEY"),
    "a right that is missing": ([fault(403, message="no")], "is not allowed to do this", "choose another model"),
    "an unknown model": ([fault(404, message="model: claude-nope")], "does not know", "%agent model NAME"),
    "another server": ([fault(404, message="page not found")], "no Messages API", "check ANTHROPIC_BASE_URL"),
    "an unpaid bill": ([fault(402, message="credit balance is too low")], "limit is reached", "raise it"),
    "quota spent": (
        [fault(429, code="enforced_spend_limit_reached", message="spend limit")], "limit is reached", "raise it",
    ),
    "too many requests": ([fault(429)] * 2, "the rate limit is reached", "run the cell again later"),
    "overloaded": ([fault(529, message="Overloaded")] * 2, "overloaded", "run the cell again later"),
    "a server that fails": ([fault(500)] * 2, "the server fails (500)", "run the cell again later"),
    "too large": ([fault(413, message="too big")], "too large for the server", "%agent new"),
    "a prompt too long": (
        [fault(400, message="prompt is too long: 250000 tokens > 200000 maximum")], "window is full", "%agent new",
    ),
    "a request refused": ([fault(400, message="odd")], "refused the request", "start a new session with %agent new"),
    "a refusal": ([refusal("No.")], "the model refused (", "%agent model"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_server_refuses_is_one_line_with_what_to_do(place: Room, name: str) -> None:
    place.ok("%agent new\n%config IPyAgent.layer_reactive = False")  # else one that is too large is set aside
    replies, happened, do = FAULTS[name]
    line = only(place, "%%agent\nhello", replies)
    assert line.startswith("TurnFailed: ")
    assert happened in line
    assert do in line


@pytest.mark.parametrize("name", ["too large", "a prompt too long"])
def test_a_request_that_is_set_aside_is_one_line_with_what_to_do(place: Room, name: str) -> None:
    place.ok("%agent new\n%config IPyAgent.layer_reactive = True")
    line = only(place, "%%agent\n" + "hello " * 400, FAULTS[name][0])  # larger than the line in its place
    assert line.startswith("TurnFailed: ")
    assert "was set aside: " in line
    assert "%compact --undo" in line
    assert "choose a model with a larger window" in line


LINES = {
    "%memory lsit": ("no command 'lsit'", "did you mean list?"),
    "%memory show zebra": ("no memory 'zebra'", "%memory lists them"),
    "%memory show --alll": ("no option --alll", "options: none"),
    "%%memory add": ("%memory add", "write what to remember"),
    "%%memory\nbees": ("%%memory takes add or edit", "%memory COMMAND"),
    "%skills shwo": ("no command 'shwo'", "did you mean show?"),
    "%skills load zebra": ("no skill 'zebra'", "known: "),
    "%agent mcp tols": ("no 'tols'", "nearest: tools"),
    "%agent mcp add one": ("a server needs a name and a command", "%agent mcp add ["),
    "%agent mcp restart bd": ("no MCP server 'bd'", "known: "),
    "%agent rollback 99": ("there is only turn 1", "not '99'"),
    "%agent subagents stop bee": ("no sub-agent 'bee'", "running: none"),
    "%agent messages 99": ("no message '99'", "%agent messages lists them"),
    "%agent panel contxt": ("there is no tab 'contxt'", "]; did you mean context?"),
    "%agent panel nothing": ("there is no tab 'nothing'", "%agent panel [context|"),
    "%agent cells out.ipynb": ("has not run any code", "ask it"),
    "%compact": ("nothing was compacted", "%context"),
    "%compact --form 2": ("no option --form", "did you mean --from?"),
    "%%agent --modle x\nhello": ("no option --modle", "did you mean --mode"),
    "%%agent --max-turns none\nhello": ("not 'none'", "a number from 1 up"),
    "%%agent --model local:broken.gguf\nhello": ("is not a GGUF file", "choose a .gguf file"),
    "%%agent --model local:none.gguf\nhello": ("no model file", "give the path"),
}


@pytest.mark.parametrize("code", LINES)
def test_a_mistake_is_one_line_with_what_to_do(place: Room, code: str) -> None:
    place.ok("%agent new")
    place.asks("hello")
    line = only(place, code)
    assert all(words in line for words in LINES[code]), line


def test_no_key_is_the_hint_with_three_ways_and_a_silent_server_one_line(place: Room) -> None:
    place.ok("import os; was = {n: os.environ.pop(n) for n in ('ANTHROPIC_API_KEY', 'ANTHROPIC_BASE_URL')}")
    try:
        hint = "\n".join(place.run("%%agent\nhello").reply["traceback"])
        assert all(way in hint for way in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "%agent model practice"))
        assert hint.count("\n") == 2
        place.ok("os.environ.update(was, ANTHROPIC_BASE_URL='http://127.0.0.1:9')")
        line = only(place, "%%agent\nhello")
        assert "cannot reach http://127.0.0.1:9" in line
        assert "check the network and ANTHROPIC_BASE_URL" in line
    finally:
        place.ok("os.environ.update(was)")


def test_a_time_out_is_one_line(place: Room) -> None:
    place.ok("%config IPyAgent.request_timeout = 0.2")
    try:
        line = only(place, "%%agent\nhello", [stall(text("late"), 1.0, after_events=1)] * 2)
        assert line.endswith("run the cell again")
    finally:
        place.ok("%config IPyAgent.request_timeout = 600.0")


SHOWN: dict[str, tuple[str, list[Scripted], tuple[str, str]]] = {
    "nobody to ask": (
        "%%agent\nhello", [tool("python", {"code": "1"}), text("ok")], ("needs a permission", "%agent mode auto"),
    ),
    "turns used up": (
        "%%agent --max-turns 1\nhello", [tool("variables", {})], ("stopped after 1 model call", "write `continue`"),
    ),
    "a bad notebook": (
        "%%agent\nhello", [tool("notebook", {"action": "read", "path": "bad.ipynb"}), text("ok")],
        ("it is not a notebook of format 4", "repair it with python"),
    ),
    "a name that is nothing": ("%%agent\nlook at @nothing.csv", [text("ok")], ("@nothing.csv", "sent as plain text")),
    "a bad skill": ("%skills doctor", [], ("bad/SKILL.md: line 1: no description", "add one")),
    "a bad mcp.json": ("%agent mcp doctor", [], (".ipyagent/mcp.json", "line 1")),
    "a value that cannot be": ("%config IPyAgent.max_turns = 0", [], ("'max_turns'", "less than 1")),
    "a setting that is not": ("%config IPyAgent.max_trns = 3", [], ("max_trns", "max_turns")),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_stops_no_cell_is_shown_once_with_what_to_do(place: Room, name: str) -> None:
    place.ok("%agent new")
    code, replies, words = SHOWN[name]
    place.server.script(*replies)
    shown = plain(place.ok(code))
    assert place.server.scripted == 0
    found = [line for line in shown.splitlines() if all(word in line for word in words)]
    assert len(found) == 1, shown


def test_a_budget_that_is_reached_is_one_line(place: Room) -> None:
    place.ok("%agent new")
    place.ok("%config IPyAgent.max_cost = 0.00001")
    try:
        place.server.script(tool("variables", {}))
        shown = plain(place.ok("%%agent\nhello"))
    finally:
        place.ok("%config IPyAgent.max_cost = 0")
    [line] = [line for line in shown.splitlines() if "max_cost" in line]
    assert "has cost $" in line
    assert "raise IPyAgent.max_cost" in line


def test_a_session_that_another_kernel_has_is_gone_on_with_in_a_copy(place: Room) -> None:
    place.ok("%agent new")
    place.asks("hello")
    folder = place.transcripts()[-1].parent
    place.ok("%agent new")
    place.asks("hello again")
    journal, _ = Journal.open(folder, lambda _: None)
    try:
        shown = place.ok(f"%agent resume {folder.name}").streams
    finally:
        journal.close()
    assert f"session {folder.name} is open in another kernel: continuing in a copy of it" in shown


def there(folder: Path) -> dict[str, Any]:
    """Where a command runs."""
    return {"cwd": folder, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}


def test_a_missing_extra_names_the_command_that_installs_it(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['nbclient'] = None\n"
        "from ipyagent.__main__ import main\nsys.exit(main(['demo', '--folder', 'made']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, **there(tmp_path))
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []
    assert done.stderr == "ipyagent: the demo needs an extra: pip install 'ipyagent[demo]'\n"


def test_the_command_line_says_what_it_cannot_read(tmp_path: Path) -> None:
    code = "import sys\nfrom ipyagent.__main__ import main\nsys.exit(main(['replay', 'none.jsonl']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, **there(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("ipyagent: cannot read none.jsonl")


def test_the_model_stays_as_it_was(place: Room) -> None:
    assert MODEL in place.ok("%agent model").streams
