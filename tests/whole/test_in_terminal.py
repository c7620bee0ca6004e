"""The whole product in terminal IPython: Ctrl-C in every state, questions answered by typing, nothing left behind."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from pace import within

from ipyagent.journal.events import TurnEnded
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import Reply, calls, text, tool
from ipyagent.practice.server import PracticeServer

pexpect = pytest.importorskip("pexpect")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pexpect.spawn is POSIX")

ROOT = Path(__file__).resolve().parents[2]
PROMPT = r"In \[\d+\]: "
HERE = "print('here we ' + 'are', flush=True)\n"


@dataclass
class Terminal:
    """An IPython in a pseudo-terminal that talks to `server`, in the folder `folder`."""

    child: Any
    server: PracticeServer
    folder: Path

    def line(self, words: str) -> str:
        """Run one line; what it printed."""
        self.child.sendline(words)
        self.child.expect(PROMPT)
        return str(self.child.before)

    def ask(self, *replies: Reply, options: str = "", request: str = "do it") -> None:
        """Begin an agent cell that the server answers with `replies`."""
        assert self.server.scripted == 0
        self.server.script(*replies)
        self.child.sendline(f"%%agent {options}".rstrip())
        self.child.expect(r"\.\.\.: ")
        for row in (request, ""):  # a simple prompt takes two empty lines for the end of a cell magic
            self.child.sendline(row)
            self.child.expect(r"\.\.\.: ")
        self.child.sendline("")

    def until(self, words: str) -> str:
        self.child.expect(words)
        return str(self.child.before)

    def finished(self) -> str:
        return self.until(PROMPT)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("terminal")
    with PracticeServer() as server:
        environment = {
            **os.environ,
            "IPYTHONDIR": str(folder / ".ipython"),
            "IPYAGENT_HOME": str(folder / ".home"),
            "IPYAGENT_MODE": "auto",
            "IPYAGENT_EXTRACTION": "false",  # a request in the background would take a scripted reply
            "IPYAGENT_MODEL": "claude-sonnet-5-5",
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "practice",
            "PYTHONPATH": str(ROOT),
            "TERM": "dumb",
            "COLUMNS": "100",
        }
        environment.pop("PYTEST_CURRENT_TEST", None)
        arguments = ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor", "--no-confirm-exit"]
        child = pexpect.spawn(
            sys.executable, arguments, env=environment, encoding="utf-8", timeout=90, cwd=str(folder), echo=False,
            dimensions=(40, 100),
        )  # fmt: skip
        try:
            child.expect(r"In \[1\]: ")
            made = Terminal(child, server, folder)
            made.line("import sys, signal; before = (sys.stdout, sys.stderr, signal.getsignal(2))")
            made.line("%load_ext ipyagent")
            yield made
        finally:
            child.close(force=True)


def coded(code: str) -> Reply:
    """A reply that runs code, and behind it a call that must never run."""
    return calls([("python", {"code": HERE + code}), ("python", {"code": "NEVER = 1; open('never', 'w').close()"})])


STATES = {
    "waiting for the model": (replace(text("too late"), first_delay=60), None),
    "streaming": (text("here we are\n\n" * 300, delay=0.02), "here we are"),
    "time.sleep": (coded("import time; time.sleep(60)"), "here we are"),
    "busy loop": (coded("while True: pass"), "here we are"),
    "await": (coded("import asyncio\nawait asyncio.sleep(60)"), "here we are"),
    "shell command": (coded("!sleep 60.125"), "here we are"),
}


@pytest.mark.parametrize("state", STATES)
def test_ctrl_c_ends_the_turn_and_the_next_one_works(terminal: Terminal, state: str) -> None:
    reply, words = STATES[state]
    asked = len(terminal.server.messages)
    terminal.ask(reply)
    if words is None:
        until = time.monotonic() + 60
        while len(terminal.server.messages) == asked and time.monotonic() < until:
            time.sleep(0.01)
    else:
        terminal.until(words)
    time.sleep(0.15)
    stopped(terminal, state)
    assert len(terminal.server.messages) == asked + 1
    in_order(terminal)


def stopped(terminal: Terminal, state: str) -> None:
    began = time.monotonic()
    terminal.child.sendintr()
    shown = terminal.finished()
    seconds = time.monotonic() - began
    print(f"LATENCY terminal {state}: {seconds * 1000:.0f} ms")
    assert seconds < within(1, 60)  # promised are 300 ms
    assert "Stopped" in shown
    assert "KeyboardInterrupt: the agent was interrupted" in shown
    assert "Traceback" not in shown
    assert not [p for p in psutil.process_iter(["cmdline"]) if "60.125" in " ".join(p.info["cmdline"] or [])]


def in_order(terminal: Terminal) -> None:
    """Streams, signal handler and history are the user's again, nothing ran late, the next turn works."""
    assert "True" in terminal.line("(sys.stdout, sys.stderr, signal.getsignal(2)) == before")
    assert "False" in terminal.line("'NEVER' in globals()")
    assert not (terminal.folder / "never").exists()
    until = time.monotonic() + 3
    while terminal.server.open_streams and time.monotonic() < until:
        time.sleep(0.01)
    assert terminal.server.open_streams == 0
    terminal.ask(text("all is well"))
    assert "all is well" in terminal.finished()
    assert terminal.server.refused == []


def test_ctrl_c_at_a_question_ends_the_turn(terminal: Terminal) -> None:
    terminal.ask(tool("python", {"code": "NEVER = 2"}), options="--mode ask")
    terminal.until(r"type a reason.*: ")
    stopped(terminal, "a permission question")
    in_order(terminal)


def test_a_question_is_answered_by_typing(terminal: Terminal) -> None:
    for said, ran in (("y", True), ("n", False), ("not on a Friday", False)):
        terminal.ask(tool("python", {"code": f"ANSWERED = {said!r}"}), text("so be it"), options="--mode ask")
        question = terminal.until(r"type a reason.*: ")
        assert f"ANSWERED = {said!r}" in question
        terminal.child.sendline(said)
        shown = terminal.finished()
        assert "so be it" in shown
        assert str(ran) in terminal.line(f"globals().get('ANSWERED') == {said!r}")
    assert "not on a Friday" in str(terminal.server.messages[-1].body)
    terminal.ask(tool("shell", {"command": "touch made-1"}), text("made"), options="--mode ask")
    terminal.until(r"type a reason.*: ")
    terminal.child.sendline("a")
    terminal.finished()
    assert (terminal.folder / "made-1").exists()
    terminal.ask(tool("shell", {"command": "touch made-1"}), text("again"), options="--mode ask")
    shown = terminal.finished()
    assert "type a reason" not in shown
    assert "again" in shown


def test_a_quiet_cell_asks_too_and_waiting_for_the_user_is_no_work(terminal: Terminal) -> None:
    asked = time.monotonic()
    terminal.ask(tool("python", {"code": "QUIET = 1"}), text("**quietly**"), options="--mode ask --quiet")
    question = terminal.until(r"type a reason.*: ")
    assert "QUIET = 1" in question
    time.sleep(1.5)
    terminal.child.sendline("y")
    assert "quietly" in terminal.finished()
    whole = time.monotonic() - asked
    assert "1" in terminal.line("QUIET")
    (path,) = terminal.folder.rglob(TRANSCRIPT)
    ended = [event for event in read_events(path) if isinstance(event, TurnEnded)][-1]
    assert 0 < ended.seconds <= whole - 1.5, "of the time until the question and behind the answer"


def test_jupyter_console_shows_the_answer_and_asks_on_the_line(tmp_path: Path) -> None:
    """It shows no output that is written anew: text as it comes, as in a terminal."""
    pytest.importorskip("jupyter_console")
    with PracticeServer() as server:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
            "HOME": str(tmp_path),
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "practice",
            "PYTHONPATH": str(ROOT),
            "TERM": "dumb",
        }
        arguments = ["-m", "jupyter_console", "--simple-prompt", "--ZMQTerminalInteractiveShell.banner="]
        child = pexpect.spawn(
            sys.executable, arguments, env=environment, encoding="utf-8", timeout=60, cwd=str(tmp_path), echo=False,
            dimensions=(40, 100),
        )  # fmt: skip
        try:
            child.expect(r"In \[\d+\]: ")
            child.sendline("%load_ext ipyagent")
            child.expect("help lists the commands")
            child.expect(r"In \[\d+\]: ")
            server.script(tool("python", {"code": "print('here we ' + 'are')"}), text("It **is** done."))
            child.sendline("%agent please do it")
            child.expect("type a reason.*: ")
            child.sendline("y")
            child.expect("here we are")
            child.expect(r"done\.")
            child.expect(r"In \[\d+\]: ")
        finally:
            child.close(force=True)


TABLE = "import pandas as pd\ndf = pd.DataFrame({'city': ['Oslo', 'Rome'], 'sales': [3, 4.123456789]})\n"
SHOWN = {
    "a value": (f"{TABLE}df", ["city", "Oslo", "Rome"]),
    "a value behind printed lines": (f"{TABLE}print('first of' + ' all')\ndf", ["first of all", "city", "Oslo"]),
    "a long value": (f"{TABLE}pd.DataFrame({{'n': [n * 1000 + 7 for n in range(40)]}})", ["20007", "39007"]),
    "several": (f"{TABLE}display(df, 'two words')\n[41 + 1, 'after']", ["city", "'two words'", "[42, 'after']"]),
    "an object without a text form": (
        "from IPython.display import HTML, Markdown, display\ndisplay(Markdown('**bold ' + 'words**'))\n"
        "HTML('<p>para' + 'graph</p>')",
        ["**bold words**", "paragraph"],
    ),
    "as the user's options say": (f"{TABLE}pd.options.display.precision = 2\ndf", ["4.12\r\n"]),
    "a figure": (
        "import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\n_ = plt.plot([1, 2])",
        ["<Figure 1>: a terminal shows no pictures", "1 figure"],
    ),
    "nested bars": (
        "from tqdm import tqdm\nimport sys\nfor i in tqdm(range(2), ascii=True, desc='outer'):\n"
        "    for j in tqdm(range(3), ascii=True, desc='inner', leave=False): pass",
        ["2/2"],
    ),
}


@pytest.mark.parametrize("what", SHOWN)
def test_what_code_shows_is_shown_as_ipython_does(terminal: Terminal, what: str) -> None:
    code, parts = SHOWN[what]
    terminal.ask(tool("python", {"code": code}), text("that was it"))
    shown = terminal.finished()
    shown = shown[: shown.index("that was it")].partition("▸ python")[2]
    shown = shown.rpartition(code.splitlines()[-1])[2]  # behind the code itself
    places = [shown.find(part) for part in parts]
    assert -1 not in places, shown
    assert places == sorted(places)


def test_a_pager_never_blocks_and_a_semicolon_is_respected(terminal: Terminal) -> None:
    terminal.ask(tool("python", {"code": "len?"}), tool("python", {"code": "%pinfo abs"}), text("read both"))
    shown = terminal.finished()
    assert "Return the number of items" in shown
    assert "Return the absolute value" in shown
    terminal.ask(tool("python", {"code": "4200 + 42;"}), text("silently"))
    assert "4242" not in terminal.finished()
    terminal.line("open('other.py', 'w').write('LOADED = 1')")
    terminal.ask(tool("python", {"code": "%load other.py"}), text("loaded"))
    assert "LOADED = 1" in terminal.finished()
    assert "False" in terminal.line("'LOADED' in globals()")


def test_a_figure_of_the_users_that_was_changed_is_shown_again_and_stays_open(terminal: Terminal) -> None:
    terminal.line("import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt")
    terminal.line("plt.close('all'); mine = plt.figure(7); drawn = plt.plot([1, 2]); other = plt.figure(8)")
    terminal.ask(
        tool("python", {"code": "drawn[0].set_linewidth(9)\nplt.figure(9); _ = plt.plot([3, 4])"}),
        tool("python", {"code": "1 + 1"}),
        text("changed"),
    )
    shown = terminal.finished()
    assert "<Figure 7, changed>" in shown
    assert "<Figure 9>" in shown
    assert "<Figure 8" not in shown
    assert "[7, 8]" in terminal.line("plt.get_fignums()")
    results = [block for message in terminal.server.messages[-1].body["messages"][-4:] if message["role"] == "user"
               for block in message["content"] if block["type"] == "tool_result"]
    first, second = ([each["type"] for each in result["content"]] for result in results[-2:])
    assert (first, second) == (["text", "image", "image"], ["text"])


def test_output_comes_while_the_code_runs(terminal: Terminal) -> None:
    code = "import time\nfor step in range(3):\n    print('step', step, flush=True)\n    time.sleep(0.4)"
    terminal.ask(tool("python", {"code": code}), text("that was it"))
    terminal.until(r"│ step 0")
    began = time.monotonic()
    terminal.until(r"│ step 2")
    assert time.monotonic() - began > 0.4
    assert "that was it" in terminal.finished()


def test_code_of_the_agent_ends_no_session_and_leaves_no_trace(terminal: Terminal) -> None:
    terminal.line("'mine'")
    before = int(re.findall(r"\d+", terminal.line("len(In)"))[-1])
    code = "_ = 5\n41 + 1\nexit()"
    terminal.ask(tool("python", {"code": "41 + 1"}), tool("python", {"code": code}), text("still here"))
    assert "still here" in terminal.finished()
    assert int(re.findall(r"\d+", terminal.line("len(In)"))[-1]) == before + 2  # the cell, and this line
    terminal.line("'mine'")
    terminal.ask(tool("python", {"code": "4100 + 7"}), text("again"))
    terminal.finished()
    assert "'mine'" in terminal.line("_")
    assert "False" in terminal.line("4107 in [value for value in Out.values() if isinstance(value, int)]")
    in_order(terminal)


def test_hostile_output_reaches_no_terminal(terminal: Terminal) -> None:
    bad = "\x1b]0;owned\x07\x1b[2J\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\"
    terminal.ask(tool("python", {"code": f"print({bad!r}, 'end of it')"}, say=bad), text(bad + "done"))
    shown = terminal.finished()
    assert "end of it" in shown
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
