"""Terminal IPython: Ctrl-C ends the turn in every state and the prompt is back; `!cmd` is captured."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import ROOT
from pace import within

pexpect = pytest.importorskip("pexpect")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pexpect.spawn is POSIX")

STATES = {
    "waiting for the model": '("wait", 60)',
    "time.sleep": '("code", "import time; print(\'ready\'); time.sleep(60)")',
    "busy loop": '("code", "print(\'ready\')\\nwhile True: pass")',
    "await": '("code", "import asyncio; print(\'ready\')\\nawait asyncio.sleep(60)")',
    "shell command": '("code", "!echo ready; sleep 60")',
    "input": '("ask", "ready? ")',
}


@pytest.fixture(scope="module")
def ipython(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    home = tmp_path_factory.mktemp("ipython")
    env = {
        **os.environ,
        "IPYTHONDIR": str(home),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)]),
        "TERM": "dumb",
    }
    env.pop("PYTEST_CURRENT_TEST", None)
    arguments = ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor", "--no-confirm-exit"]
    child = pexpect.spawn(sys.executable, arguments, env=env, encoding="utf-8", timeout=60, cwd=str(home), echo=False)
    try:
        child.expect(r"In \[1\]: ")
        say(child, "import scripted_turn as scripted; ip = get_ipython()")
        yield child
    finally:
        child.close(force=True)


def say(child: object, line: str) -> str:
    child.sendline(line)  # type: ignore[attr-defined]  # pexpect has no types
    child.expect(r"In \[\d+\]: ")  # type: ignore[attr-defined]
    return str(child.before)  # type: ignore[attr-defined]


@pytest.mark.paced
@pytest.mark.parametrize("door", ["await s.awaited()", "s.blocking()"], ids=["awaited", "blocking"])
@pytest.mark.parametrize("state", STATES)
def test_ctrl_c_brings_the_prompt_back(ipython: object, state: str, door: str) -> None:
    child = ipython
    child.sendline(f"s = scripted.Scripted(ip, {STATES[state]}, (\"code\", \"NEVER = 1\")); {door}")  # type: ignore[attr-defined]
    child.expect("ready")  # type: ignore[attr-defined]
    time.sleep(0.1)
    began = time.monotonic()
    child.sendintr()  # type: ignore[attr-defined]
    child.expect(r"In \[\d+\]: ")  # type: ignore[attr-defined]
    seconds = time.monotonic() - began
    text = child.before  # type: ignore[attr-defined]
    print(f"LATENCY {door} {state}: {seconds * 1000:.0f} ms")
    assert '"status": "stopped", "why": "interrupt"' in text
    assert "KeyboardInterrupt" in text
    assert seconds < within(1, 60)
    assert "False" in say(child, "'NEVER' in globals()")
    assert "Interrupts" not in say(child, "__import__('signal').getsignal(2)")


def test_commands_results_and_answers_come_back(ipython: object) -> None:
    steps = '("code", "!echo from the shell"), ("code", "40 + 2"), ("code", "1/0")'
    text = say(ipython, f"s = scripted.Scripted(ip, {steps}); await s.awaited()")
    assert re.search(r'"output": "from the shell\\[rn]', text)
    assert '"result": "42"' in text
    assert not re.search(r"Out\[\d+\]", text)
    assert "ZeroDivisionError" in text


UNSEEN = """
import signal, threading, time
from ipyagent.kernel.dispatcher import read_line
other = threading.Thread(target=time.sleep, args=(20,), daemon=True)
other.start()
# the signal meets another thread: what the main thread waits in goes on
threading.Timer(0.5, lambda: signal.pthread_kill(other.ident, signal.SIGINT)).start()
try:
    read_line("say: ")
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("got", repr(read_line("again: ")), flush=True)
try:
    read_line("end: ")
except EOFError:
    print("at the end", flush=True)
"""


def test_an_interrupt_that_comes_before_the_wait_ends_it() -> None:
    """A line that is waited for ends also with one that no system call has seen."""
    child = pexpect.spawn(
        sys.executable, ["-c", UNSEEN], env={**os.environ, "PYTHONPATH": str(ROOT)}, encoding="utf-8", timeout=60,
        echo=False,
    )  # fmt: skip
    try:
        child.expect("say: ")
        child.expect("interrupted")
        child.expect("again: ")
        child.sendline("hello")
        child.expect("got 'hello'")
        child.expect("end: ")
        child.sendeof()
        child.expect("at the end")
    finally:
        child.close(force=True)
