"""A line that is waited for in a terminal ends with an interrupt, also with one that no system call has seen."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pexpect = pytest.importorskip("pexpect")
ROOT = Path(__file__).parents[2]
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


@pytest.mark.skipif(os.name == "nt", reason="a terminal of another kind")
def test_an_interrupt_that_comes_before_the_wait_ends_it() -> None:
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
