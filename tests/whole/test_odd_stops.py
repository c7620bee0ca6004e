"""Stops and interrupts at the worst moment: at a turn's very end, twice, in a mixture, while a session is read."""

from __future__ import annotations

import os
import queue
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from random import Random

import pytest
from kernels import Kernel
from pace import within
from rooms import KEY, MODEL

from ipyagent.agent import Agent
from ipyagent.config import IPyAgent
from ipyagent.journal.events import ToolCalled, ToolReturned, TurnEnded, UserMessage
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

STOPS = """
import os, signal, threading
def _in_a_while(*stops):
    def act():
        for stop in stops:
            agent = get_ipython()._ipyagent_extension.agent_now
            agent.stop() if stop == "stop" else os.kill(os.getpid(), signal.SIGINT)
    threading.Timer(0.4, act).start()
"""


@contextmanager
def kernel_on(server: PracticeServer, folder: Path) -> Iterator[Kernel]:
    """A kernel with the extension loaded whose requests go to `server`."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": KEY,
            "IPYAGENT_MODEL": MODEL,
            "IPYAGENT_MODE": "auto",
            "IPYAGENT_EXTRACTION": "false",
            "IPYAGENT_HOME": str(folder / ".home"),
            "IPYTHONDIR": str(folder / ".ipython"),
        }.items():
            patch.setenv(name, value)
        kernel = Kernel(cwd=folder)
    try:
        kernel.run("%load_ext ipyagent")
        kernel.run(STOPS)
        yield kernel
    finally:
        kernel.close()


def emptied(server: PracticeServer) -> None:
    while server.scripted:
        server.next_reply({})


def whole(folder: Path) -> int:
    """Check that every request of the session's transcript ended once and every call has one result;
    how many requests there were."""
    (transcript,) = folder.glob(f".ipyagent/sessions/*/{TRANSCRIPT}")
    events = list(read_events(transcript))
    said = sum(isinstance(event, UserMessage) for event in events)
    assert sum(isinstance(event, TurnEnded) for event in events) == said
    called = [event.call for event in events if isinstance(event, ToolCalled)]
    returned = [event.call for event in events if isinstance(event, ToolReturned)]
    assert len(set(returned)) == len(returned)
    assert set(called) <= set(returned)
    return said


def test_an_interrupt_at_the_very_end_of_a_turn_damages_nothing(tmp_path: Path) -> None:
    with PracticeServer() as server, kernel_on(server, tmp_path) as kernel:
        server.script(tool("python", {"code": "n = 1"}), text("once"))
        took = kernel.run("%%agent\nonce").seconds
        server.script(tool("python", {"code": "n = 1"}), text("once"))
        took = min(took, kernel.run("%%agent\nonce").seconds)
        ended = {"whole": 0, "interrupted": 0, "reply lost": 0}
        for step in range(24):
            emptied(server)
            server.script(tool("python", {"code": f"n = {step}"}), text(f"answer {step}"))
            wait = took * (0.4 + 0.55 * step / 24)
            try:
                cell = kernel.run(
                    f"print('begun', flush=True)\nget_ipython().run_cell_magic('agent', '', 'round {step}')"
                    if step % 2
                    else f"%%agent\nround {step}",
                    when="" if step % 2 == 0 else "begun",
                    act=lambda kernel, wait=wait: (time.sleep(wait), kernel.interrupt()),
                    reply=4.0,
                )
            except queue.Empty:
                # the cell ended, and the interrupt met ipykernel between its end and its reply; a plain
                # `await asyncio.sleep(0.05)` cell loses 4 of 60 replies in the same way
                ended["reply lost"] += 1
            else:
                ended["interrupted" if cell.errors else "whole"] += 1
                # between our handler and the cell's end ipykernel's own one cancels the awaiting cell
                assert set(cell.errors) <= {"KeyboardInterrupt", "CancelledError"}
            try:
                kernel.run("pass")  # an interrupt that came after the cell ends nothing here
            except ValueError as broken:
                # the reply was being sent, part by part: what ZeroMQ had of it became the beginning of this one
                if "Invalid Signature" not in str(broken):
                    raise
                ended["reply lost"] += 1
                kernel.run("pass")
        emptied(server)
        server.script(text("all is well"))
        assert kernel.run("%%agent\nand now?").errors == []
        assert server.refused == []
        assert kernel.eval("get_ipython()._ipyagent_extension.agent_now._running is None")
        assert "Interrupts" not in kernel.eval("repr(__import__('signal').getsignal(2))")
        assert ended["interrupted"], ended
        assert ended["reply lost"] <= 6, ended
    assert whole(tmp_path) >= 3


@pytest.mark.paced
def test_stops_in_a_row_end_one_turn(tmp_path: Path) -> None:
    codes = ("import time; time.sleep(30)", "while True: pass", "import asyncio; await asyncio.sleep(30)")
    with PracticeServer() as server, kernel_on(server, tmp_path) as kernel:
        for stops, code in product(product(("stop", "interrupt"), repeat=2), codes):
            server.script(tool("python", {"code": f"_in_a_while(*{stops!r})\n{code}"}))
            cell = kernel.run("%%agent\ngo")
            if "interrupt" not in stops:
                assert cell.errors == []
            elif "stop" in stops:  # two signals in one instant may arrive as one: the turn ends either way
                assert cell.errors in ([], ["KeyboardInterrupt"])
            else:
                assert cell.errors == ["KeyboardInterrupt"]
            assert cell.seconds < within(5, 20)  # the code takes 30, or for ever; how fast it is idle is compared below
            server.script(text("all is well"))
            assert kernel.run("%%agent\nand now?").errors == []
        assert server.refused == []
        assert server.open_streams == 0
    assert whole(tmp_path) == 24


def test_an_interrupted_resume_of_a_large_session_can_be_said_again(tmp_path: Path) -> None:
    with PracticeServer() as server:
        settings = IPyAgent({}, base_url=server.url, mode="auto", model=MODEL, extraction=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("IPYAGENT_HOME", str(tmp_path / ".home"))
            patch.setenv("ANTHROPIC_API_KEY", KEY)
            agent = Agent(settings=settings, folder=tmp_path)
            for number in range(40):
                code = f"for line in range(500): print('row', line, {number})"
                server.script(tool("python", {"code": code}), text(f"number {number}: " + "word " * 2_000))
                assert agent.run_sync(f"question {number}").status == "finished"
            agent.close()
        (transcript,) = tmp_path.glob(f".ipyagent/sessions/*/{TRANSCRIPT}")
        before = transcript.read_bytes()
        assert len(before) > 1_000_000
        with kernel_on(server, tmp_path) as kernel:
            took = kernel.run("%agent resume").seconds
        before = transcript.read_bytes()
        with kernel_on(server, tmp_path) as kernel:
            stopped = 0
            for part in (0.5, 0.0, 0.2, 0.35):
                cell = kernel.run(
                    "print('begun', flush=True)\n%agent resume",
                    when="begun",
                    act=lambda kernel, part=part: (time.sleep(took * part), kernel.interrupt()),
                )
                if not cell.errors:
                    break  # it was faster
                assert cell.errors == ["KeyboardInterrupt"]
                stopped += 1
            assert stopped
            assert transcript.read_bytes().startswith(before)
            cell = kernel.run("%agent resume")
            shown = cell.streams + " ".join(str(each.get("text/plain")) for each in cell.data)
            assert "40 turns" in shown or "already in session" in shown
            server.script(text("all is well"))
            cell = kernel.run("%%agent\nand now?")
            assert cell.errors == [], cell.reply
            assert "question 0" in str(server.messages[-1].body)
            assert server.refused == []
    assert whole(tmp_path) == 41
    assert os.path.getsize(transcript) > len(before)


@pytest.mark.parametrize("wait", [0.1, 0.6])
def test_an_interrupt_of_the_very_first_cell_is_one_line(tmp_path: Path, wait: float) -> None:
    """While the imports are waited for, and while the session is being opened."""
    with PracticeServer() as server, kernel_on(server, tmp_path) as kernel:
        server.script(text("word " * 300, delay=0.05), text("all is well"))
        code = "print('begun', flush=True)\nawait get_ipython()._ipyagent_extension.agent_async('', 'say')"
        cell = kernel.run(code, when="begun", act=lambda kernel: (time.sleep(wait), kernel.interrupt()), timeout=30)
        assert cell.errors == ["KeyboardInterrupt"]
        emptied(server)
        server.script(text("all is well"))
        assert kernel.run("%%agent\nand now?").errors == []
        assert server.refused == []


SIGNALS = int(os.environ.get("IPYAGENT_SIGNALS", "150"))
"""The whole measurement is 2,000."""
IDLE = 1.0
"""Seconds to idle, beyond what an interrupt of a plain cell takes on the same machine."""
NOT_OURS = {"KeyboardInterrupt", "CancelledError"}
"""Between our handler and the cell's end ipykernel's own one cancels the awaiting cell."""


def test_an_interrupt_at_any_instruction_of_a_turns_start_never_hangs_the_kernel(tmp_path: Path) -> None:
    random, waits, ends = Random(16), [], Counter[str]()
    with PracticeServer() as server, kernel_on(server, tmp_path) as kernel:
        pid = kernel.eval("__import__('os').getpid()")
        plain = []
        for _ in range(10):
            cell = kernel.run(
                "import time; time.sleep(9)", act=lambda _: (time.sleep(0.2), os.kill(pid, signal.SIGINT)), timeout=60.0
            )
            plain.append(cell.latency - 0.2)
        took = min(kernel.run(f"%%agent\nhello {number}").seconds for number in range(4))
        for number in range(SIGNALS):
            moment = random.uniform(0.0, took * (0.5 if number % 4 else 1.2))  # three of four in the first half
            sent: list[float] = []

            def act(kernel: Kernel, moment: float = moment, sent: list[float] = sent) -> None:
                time.sleep(moment)
                sent.append(time.monotonic())
                os.kill(pid, signal.SIGINT)

            if number % 3:
                code = f"%%agent\nhello {number}"
            else:  # the blocking door
                code = f"get_ipython().run_cell_magic('agent', '', 'hello {number}')"
            try:
                cell = kernel.run(code, act=act, reply=4.0)
            except queue.Empty:  # ipykernel's, see above; the cell is idle
                ends["reply lost"] += 1
                continue
            waits.append(cell.latency - moment)
            assert set(cell.errors) <= NOT_OURS, cell.errors
            ends["interrupted" if cell.errors else "whole"] += 1
            # colouring frames of ours takes IPython seconds; one may be hit on its way out
            ends["shown with our frames"] += any("ipyagent/" in line for line in cell.reply.get("traceback", ()))
        try:
            kernel.run("pass")
        except ValueError as broken:
            if "Invalid Signature" not in str(broken):
                raise
        server.script(text("all is well"))
        assert kernel.run("%%agent\nand now?").errors == []
        assert kernel.eval("get_ipython()._ipyagent_extension.agent_now.busy") is False
    print(f"{SIGNALS} signals: {dict(ends)}, idle after {statistics.median(waits):.3f} s, at most {max(waits):.3f} s")
    print(f"a plain cell: at most {max(plain):.3f} s")
    assert ends["interrupted"] > SIGNALS / 4
    assert ends["reply lost"] < SIGNALS / 20
    assert ends["shown with our frames"] <= SIGNALS / 100
    assert max(waits) < IDLE + max(plain)
