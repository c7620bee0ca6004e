"""A project of its own to map in, and a server whose answers a test decides."""

from __future__ import annotations

import _thread
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pace import within
from rooms import KEY, MODEL

from ipyagent.practice.replies import Fault, Reply, fault, text, tool
from ipyagent.practice.server import PracticeServer


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a folder that nobody has used, with a home beside it and no key."""
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


Interrupted = Callable[..., AbstractContextManager[pytest.ExceptionInfo[KeyboardInterrupt]]]


@pytest.fixture
def interrupted() -> Interrupted:
    """A block that is interrupted a moment after `ready` and ends within so many seconds of it, or `busy` on a busy
    machine; `real`: by a signal, which also ends a wait within the system."""

    @contextmanager
    def made(
        ready: Callable[[], object], seconds: float = 0.3, busy: float = 10, *, real: bool = True
    ) -> Iterator[pytest.ExceptionInfo[KeyboardInterrupt]]:
        told: list[float] = []

        def interrupt() -> None:
            while not ready():
                time.sleep(0.01)
            time.sleep(0.3)
            told.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT) if real else _thread.interrupt_main()

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt) as caught:
            yield caught
        assert time.monotonic() - told[0] < within(seconds, busy)

    return made


class Office:
    """Answers by what the prompt says: `busy` fails (`failures` times), `deadly` has its worker killed (`deaths`
    times), `slow` takes a while, all else is said back. `asked` counts requests by prompt."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self.failures = self.deaths = 0
        self.killed: list[int] = []
        self.seconds = 20.0
        self.server = PracticeServer(brain=self.answer)

    @property
    def settings(self) -> dict[str, Any]:
        return {"base_url": self.server.url, "model": MODEL, "mode": "auto", "max_retries": 0, "recall": False}

    def answer(self, body: dict[str, Any]) -> Reply | Fault:
        words = json.dumps(body["messages"])
        said = next((name for name in ("busy", "deadly", "slow") if f"be {name}" in words), "plain")
        self.asked[said] = self.asked.get(said, 0) + 1
        if said == "busy" and self.failures:
            self.failures -= 1
            return fault(529)
        if said == "slow":
            naps = int(self.seconds * 20)  # between two of them Python can be interrupted in any thread
            return tool("python", {"code": f"import time\nfor _ in range({naps}):\n    time.sleep(0.05)"})
        if said == "deadly" and self.deaths:
            last = body["messages"][-1]["content"]
            results = [block for block in last if block["type"] == "tool_result"] if isinstance(last, list) else []
            if not results:
                return tool("python", {"code": "import os; print('worker', os.getpid())"})
            self.deaths -= 1
            pid = int(json.dumps(results).split("worker ")[1].split("\\")[0].split('"')[0])
            self.killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        return text(f"done: {said}")


@pytest.fixture
def office(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    made = Office()
    with made.server:
        yield made
    assert [exchange.error for exchange in made.server.refused] == []
