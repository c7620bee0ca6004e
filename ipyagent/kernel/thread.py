"""The agent thread: one asyncio loop in one daemon thread, begun on first use, one a kernel."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ipyagent.errors import AgentError

# ---- Log lines: what libraries write about work of ours stays out of the user's own log.

LIBRARIES = frozenset((
    "anthropic", "httpx", "httpx2", "httpcore", "httpcore2", "h11", "h2", "hpack", "mcp", "asyncio", "ipyagent",
    "huggingface_hub", "urllib3", "filelock", "fsspec", "concurrent", "markdown_it", "pygments", "PIL", "psutil",
))  # fmt: skip
"""What writes log lines about work of ours."""
_BETWEEN = LIBRARIES | {"logging", "contextlib"}
"""Whose frames stand between a log line and the code that called for it."""


class _Others(logging.Filter):
    """Lets no log line of a library through that works for us, on a thread of ours or called by our code: a user who
    turned logging on asked for their own."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in LIBRARIES:
            return True
        return not ((record.threadName or "").startswith("ipyagent") or _called_by_us())


def _called_by_us() -> bool:
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == "ipyagent" or package not in _BETWEEN:
            return package == "ipyagent"
        frame = frame.f_back
    return False


_OTHERS = _Others()


def keep_logs_apart(cell: object = None) -> None:
    """See to it that the user's handlers, of the root logger and of those of the libraries, show no log lines of
    ours. Called as `pre_run_cell`, too: a cell may have turned logging on."""
    named = list(logging.root.manager.loggerDict.items())
    libraries = [logger for name, logger in named if name.partition(".")[0] in LIBRARIES]
    for logger in (logging.root, *libraries):
        for handler in getattr(logger, "handlers", ()):  # a placeholder has none
            handler.addFilter(_OTHERS)  # once, however often


T = TypeVar("T")

BESIDE = min(32, (os.cpu_count() or 1) + 4)
"""Threads for what would block the loop, as many as the standard library's own pool has."""


class AgentLoop:
    """Owns the loop on which turns, models and tools run. Its methods may be called from any thread."""

    def __init__(self, name: str = "ipyagent-agent", report: Callable[[Exception], None] | None = None) -> None:
        """`report` is told of what is raised in work that nobody waits for, on whatever thread notices it."""
        self._name = name
        self._report = report
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._jobs: dict[concurrent.futures.Future[Any], _Started] = {}

    def __repr__(self) -> str:
        state = "running" if self._thread is not None and self._thread.is_alive() else "not running"
        return f"<AgentLoop {self._name!r} {state}, {len(self._jobs)} tasks>"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop; the thread is started when there is none, or after a fork. Takes a lock: not for
        signal handlers, which use `running`."""
        with self._lock:
            alive = self._thread is not None and self._thread.is_alive() and self._pid == os.getpid()
            if self._loop is None or not alive:
                keep_logs_apart()
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(ThreadPoolExecutor(BESIDE, f"{self._name}-beside"))
                self._loop.set_exception_handler(self._unwaited)
                self._jobs = {}
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    @property
    def running(self) -> asyncio.AbstractEventLoop | None:
        """The loop if there is one already; takes no lock, so that a signal handler may ask."""
        return self._loop

    def start(self, make: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Run `make()` as a task, in a copy of the caller's context: in a kernel that is what leads
        its output to the caller's cell. The future ends with the task's value or exception; a
        cancelled task gives asyncio.CancelledError. Cancel through `cancel`, not through the future.
        """
        loop = self.loop
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()  # from here on future.cancel() does nothing
        started = self._jobs[future] = _Started()
        context, values = contextvars.copy_context(), list[T]()

        async def run() -> None:
            started.begun = True
            if started.cancelled and started.task is not None:
                started.task.cancel()
            values.append(await make())

        def finish(done: asyncio.Task[None]) -> None:
            self._jobs.pop(future, None)
            if values:  # also when a cancellation was still on its way: the task has said how it ended
                future.set_result(values[0])
            elif done.cancelled():
                future.set_exception(asyncio.CancelledError())
            else:
                future.set_exception(_told(done.exception()))

        def begin() -> None:
            started.task = loop.create_task(run(), context=context)
            started.task.add_done_callback(finish)

        loop.call_soon_threadsafe(begin)
        return future

    def cancel(self, future: concurrent.futures.Future[Any]) -> None:
        """Cancel the task behind `future`, once: further calls do nothing, so that the task can
        close in peace. A task that has not begun still begins and is cancelled at its first await,
        so that it can tell how it ended. Does not wait."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to cancel
                loop.call_soon_threadsafe(self._cancel, future)

    def close(self, timeout: float = 2.0) -> None:
        """Cancel all tasks, end the loop and the thread; waits `timeout` seconds at most."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or not thread.is_alive() or self._pid != os.getpid():
            return
        with contextlib.suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(self._wind_up(timeout / 2), loop)
        if thread is not threading.current_thread():
            thread.join(timeout)

    # ------------------------------------------------------------------ on the loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while True:
                # a task that raises SystemExit or KeyboardInterrupt has it as its outcome; asyncio also raises it
                # here, and the loop would end with every other task still waiting
                with contextlib.suppress(BaseException):
                    loop.run_forever()
                if self._loop is not loop:  # `close` took it away
                    break
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()  # ends the threads beside it, each when its call has returned

    def _unwaited(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if self._report is not None and isinstance(problem, Exception) and ("task" in context or "future" in context):
            self._report(problem)
        else:
            loop.default_exception_handler(context)

    def _cancel(self, future: concurrent.futures.Future[Any]) -> None:
        started = self._jobs.get(future)
        if started is None or started.cancelled:
            return
        started.cancelled = True
        if started.begun and started.task is not None:
            started.task.cancel()

    async def _wind_up(self, patience: float) -> None:
        loop = asyncio.get_running_loop()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=patience)
        loop.call_soon(loop.stop)


def _told(problem: BaseException | None) -> BaseException | None:
    """What the waiting cell is told: a `sys.exit()` in a task of ours must not end the caller's program."""
    if isinstance(problem, SystemExit):
        made = AgentError(f"a hook or tool called sys.exit({problem.code!r}): change it to return or raise an error")
        made.__cause__ = problem
        return made
    return problem


@dataclass
class _Started:
    """A task on its way from `start` to its end."""

    task: asyncio.Task[None] | None = None
    begun: bool = False
    cancelled: bool = False
