"""Sub-agents in a real kernel: interrupted while their code runs, and what is left of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from family_rig import Brain, newest, result_texts
from rooms import room

from ipyagent.journal.events import ChildEnded, TurnEnded
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT, read_events
from ipyagent.practice.replies import Reply, calls, text, tool
from ipyagent.practice.server import PracticeServer

LEFT = """
import psutil, threading
print("LEFT", [(p.name(), p.status()) for p in psutil.Process().children()
    if p.status() != "zombie"], sorted(
    thread.name for thread in threading.enumerate() if "practice" in thread.name or "agent" in thread.name))
"""


def orders(body: dict[str, Any], made: int) -> Reply:
    jobs = [{"task": f"job {n}", "prompt": f"work {n}"} for n in range(3)]
    return calls([("agent", job) for job in jobs]) if made == 0 else text("all done")


def test_an_interrupt_ends_a_turn_with_all_its_children(tmp_path: Path) -> None:
    brain = Brain()
    brain.rules["start"] = orders
    code = {
        0: "import subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\ntime.sleep(600)",
        1: "while True: pass",
        2: "import asyncio\nawait asyncio.sleep(600)",
    }
    for n, each in code.items():
        brain.rules[f"work {n}"] = lambda body, made, each=each: tool("python", {"code": each})
    with PracticeServer(brain) as server, room(tmp_path, server=server, IPYAGENT_MODE="auto") as place:
        place.ok("%load_ext ipyagent\nmine = 1")
        begun = time.monotonic()

        def interrupt(kernel: Any) -> None:
            end = time.monotonic() + 10
            while len([e for e in server.messages if e.body and "work" in newest(e.body)[0]]) < 3:
                assert time.monotonic() < end
                time.sleep(0.02)
            time.sleep(0.5)
            kernel.interrupt()

        cell = place.kernel.run("%%agent\nstart", when="", act=interrupt, timeout=30)
        assert cell.errors == ["KeyboardInterrupt"]
        assert time.monotonic() - begun < 15
        (folder,) = (place.folder / ".ipyagent" / "sessions").glob("*/")
        events = list(read_events(folder / TRANSCRIPT))
        assert [e.status for e in events if isinstance(e, ChildEnded)] == ["stopped"] * 3
        for child in (folder / CHILDREN).iterdir():
            assert isinstance(list(read_events(child / TRANSCRIPT))[-1], TurnEnded)
        left = place.ok(LEFT).streams
        assert "LEFT []" in left, left
        assert place.ok("print([n for n in ('child', 'mine') if n in globals()])").streams.strip() == "['mine']"
        brain.rules["and then"] = lambda body, made: text("here")
        assert place.ok("%%agent\nand then").errors == []
        nested = "get_ipython().run_cell_magic('agent', '', 'start more of you')"
        brain.rules["be sly"] = lambda body, made: tool("python", {"code": nested}) if made == 0 else text("no")
        brain.rules["sly one"] = lambda body, made: (
            calls([("agent", {"task": "s", "prompt": "be sly"})]) if made == 0 else text("so be it")
        )
        assert place.ok("%%agent\nsly one").errors == []
        bodies = [e.body for e in server.messages if e.body is not None]
        assert not [body for body in bodies if "start more" in newest(body)[0]], "code of a sub-agent asks no agent"
        ((said, failed),) = result_texts(next(body for body in bodies if newest(body) == ("be sly", 1)))
        assert failed
        assert "a turn is running" in said
        assert server.refused == []
