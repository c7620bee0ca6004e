"""A Jupyter kernel for each task: an executor for `agent_map` whose tasks share neither namespace nor process.

A kernel leaves nothing in the user's own folders (its history and connection file are in a temporary one), ends with
its task, and ends within a second when this process is killed.
"""

from __future__ import annotations

import ast
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import AgentError
from ipyagent.fleet.task import MapTask, Outcome, run_task, too_late

LOOK = 0.2
"""Seconds between two looks whether a kernel still lives."""
GRACE = 15.0
"""Seconds that a task has to end after its time is up; then its kernel is killed. Imports come before its time."""
CLOSING = 3.0
"""Seconds that tasks in hand have to end after `shutdown`."""
DIED = "the kernel died (killed, or out of memory)"
MISSING = "this needs Jupyter kernels: pip install 'ipyagent[demo]'"


class KernelExecutor(Executor):
    """`at_once` kernels at most. `fit` makes a task ready just before it begins (its folder, its settings), `ended` is
    told of each outcome that a kernel gave. `seconds`: after which a task is stopped and ends as `limit` (0: never).
    Raises AgentError without ipykernel."""

    def __init__(
        self,
        at_once: int,
        *,
        seconds: float = 0.0,
        fit: Callable[[MapTask], MapTask] = lambda task: task,
        ended: Callable[[MapTask, Outcome], None] = lambda task, outcome: None,
    ) -> None:
        if find_spec("ipykernel") is None or find_spec("jupyter_client") is None:
            raise AgentError(MISSING)
        self._max_workers = at_once
        self._seconds, self._fit, self._ended = seconds, fit, ended
        self._threads = ThreadPoolExecutor(at_once, "ipyagent-kernels")
        self._closing = threading.Event()

    def __repr__(self) -> str:
        return f"<KernelExecutor of {self._max_workers} kernels at once>"

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The outcome of `run_task` in a kernel, to come; other functions are not for kernels."""
        assert function is run_task
        assert not kwargs
        return self._threads.submit(self._work, *args)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all kernels; tasks in hand have a moment to come to an end."""
        self._closing.set()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    def _work(self, task: MapTask) -> Outcome:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="ipyagent-kernel-", ignore_cleanup_errors=True) as folder:
            task = msgspec.structs.replace(self._fit(task), seconds=self._seconds)
            kernel = _Kernel(Path(folder))
            try:
                kernel.ask(task)
                outcome = self._wait(kernel, task)
            finally:
                kernel.close()
        if not outcome.seconds:
            outcome = msgspec.structs.replace(outcome, seconds=round(time.monotonic() - began, 3))
        self._ended(task, outcome)
        return outcome

    def _wait(self, kernel: _Kernel, task: MapTask) -> Outcome:
        until = time.monotonic() + self._seconds + GRACE if self._seconds else float("inf")
        while (outcome := kernel.outcome(LOOK)) is None:
            stopped = self._closing.is_set()
            if stopped:
                until = min(until, time.monotonic() + CLOSING)
            if not kernel.lives:
                return Outcome(task.key, "failed", tries=task.tries, cost=None, error=DIED)
            if time.monotonic() > until:  # what it has spent is not known
                status, error = ("stopped", "stopped") if stopped else ("limit", too_late(self._seconds))
                return Outcome(task.key, status, tries=task.tries, cost=None, error=error)  # type: ignore[arg-type]
        return outcome


class _Kernel:
    """One kernel, of this very Python."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import KernelManager

        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=ERROR"]
        made: Any = KernelManager(connection_file=str(folder / "kernel.json"))
        made._kernel_spec = KernelSpec(argv=argv, display_name="ipyagent", language="python")
        self._manager = made
        # what it writes for itself stays in the folder; its working directory is nobody's, or a table that is named
        # like a module would be imported
        made.start_kernel(cwd=str(folder), env={**os.environ, "IPYTHONDIR": str(folder / "ipython")})
        self._client: Any = made.client()
        self._client.start_channels(iopub=False, stdin=False, hb=False, control=False)
        self._asked = ""

    def __repr__(self) -> str:
        return f"<_Kernel {'lives' if self.lives else 'ended'}>"

    @property
    def lives(self) -> bool:
        return bool(self._manager.is_alive())

    def ask(self, task: MapTask) -> None:
        """Begin the task. No name of ours comes into the kernel's namespace."""
        given = msgspec.json.encode(task).decode()
        told = f"__import__({__name__!r}, fromlist=['_']).in_kernel({given!r})"
        self._asked = self._client.execute(
            "", store_history=False, allow_stdin=False, user_expressions={"outcome": told}
        )

    def outcome(self, seconds: float) -> Outcome | None:
        """What became of it; None while it is not over. Raises AgentError for an answer that is none."""
        try:
            reply = self._client.get_shell_msg(timeout=seconds)
        except queue.Empty:
            return None
        if reply["parent_header"].get("msg_id") != self._asked:
            return None
        told = reply["content"].get("user_expressions", {}).get("outcome", {})
        if told.get("status") != "ok":
            raise AgentError(f"the kernel could not run the task, try again: {told.get('ename')}: {told.get('evalue')}")
        return msgspec.json.decode(ast.literal_eval(told["data"]["text/plain"]), type=Outcome)

    def close(self) -> None:
        """End it, whatever it does."""
        self._client.stop_channels()
        with suppress(OSError, RuntimeError):
            self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()


def in_kernel(given: str) -> str:
    """The outcome of a task, done with this kernel's own shell; both as JSON."""
    from IPython.core.getipython import get_ipython

    task = msgspec.json.decode(given, type=MapTask)
    return msgspec.json.encode(run_task(task, get_ipython())).decode()
