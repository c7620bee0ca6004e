"""What the agent thread asks of the main thread, and the two ways to wait for it.

A closed inbox takes nothing, and a job that slipped in while it closed is cancelled: no job is lost
in silence.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ipyagent.journal.protocols import Execution
from ipyagent.kernel.output import OutputLog
from ipyagent.kernel.processes import ChildProcessTracker

T = TypeVar("T")


class QueuedJob(Generic[T]):
    """`broken`: only this job is to be interrupted. `task`: its awaited code, while that runs."""

    def __init__(self) -> None:
        self.future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.broken = False
        self.task: asyncio.Task[None] | None = None


class CodeJob(QueuedJob[Execution]):
    """Run code; `log` takes its output, `brood` knows which child processes are its own, `scope` is entered
    around the run on its thread."""

    def __init__(
        self,
        code: str,
        log: OutputLog,
        brood: ChildProcessTracker,
        scope: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        super().__init__()
        self.code = code
        self.log = log
        self.brood = brood
        self.scope = scope


class CallJob(QueuedJob[T]):
    """Call a short function."""

    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__()
        self.function = function


class LoopInbox:
    """Jobs for a thread that awaits on its running loop. Made on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[QueuedJob[Any]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._open = True

    def post(self, job: QueuedJob[Any]) -> bool:
        self._jobs.append(job)
        if not self._open:  # asked after it was put in: whoever closes may not have seen it
            job.future.cancel()
        self.wake()
        return self._open

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    async def next(self, timeout: float | None) -> QueuedJob[Any] | None:
        """The next job; None after `wake` or `timeout` seconds."""
        if self._jobs:
            return self._jobs.popleft()
        self._waiter = self._loop.create_future()
        await asyncio.wait((self._waiter,), timeout=timeout)
        return self._jobs.popleft() if self._jobs else None

    def close(self) -> list[QueuedJob[Any]]:
        self._open = False
        return list(self._jobs)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class BlockingInbox:
    """Jobs for a thread that cannot await. It looks up five times a second: on Windows a waiting
    lock does not notice Ctrl-C."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[QueuedJob[Any] | None] = queue.SimpleQueue()
        self._open = True

    def post(self, job: QueuedJob[Any]) -> bool:
        self._jobs.put(job)
        if not self._open:
            job.future.cancel()
        return self._open

    def wake(self) -> None:
        self._jobs.put(None)

    def next(self, timeout: float | None) -> QueuedJob[Any] | None:
        with contextlib.suppress(queue.Empty):
            return self._jobs.get(timeout=0.2 if timeout is None else min(0.2, timeout))
        return None

    def close(self) -> list[QueuedJob[Any]]:
        self._open = False
        jobs: list[QueuedJob[Any]] = []
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                jobs.append(job)
        return jobs
