"""The agent thread: one asyncio loop in one daemon thread, begun on first use, one a kernel."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class AgentThread:
    """Owns the loop on which turns, models and tools run. Its methods may be called from any thread."""

    def __init__(self, name: str = "ipyagent") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._tasks: dict[concurrent.futures.Future[Any], asyncio.Task[Any] | None] = {}
        self._cancelled: set[concurrent.futures.Future[Any]] = set()

    def __repr__(self) -> str:
        state = "running" if self._thread is not None and self._thread.is_alive() else "not running"
        return f"<AgentThread {self._name!r} {state}, {len(self._tasks)} tasks>"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop; the thread is started when there is none, or after a fork."""
        with self._lock:
            alive = self._thread is not None and self._thread.is_alive() and self._pid == os.getpid()
            if self._loop is None or not alive:
                self._loop = asyncio.new_event_loop()
                self._tasks, self._cancelled = {}, set()
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def start(self, make: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Run `make()` as a task, in a copy of the caller's context: in a kernel that is what leads
        its output to the caller's cell. The future ends with the task's value or exception; a
        cancelled task gives asyncio.CancelledError. Cancel through `cancel`, not through the future.
        """
        loop = self.loop
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()  # from here on future.cancel() does nothing
        context = contextvars.copy_context()
        self._tasks[future] = None
        loop.call_soon_threadsafe(self._begin, future, make, context)
        return future

    def cancel(self, future: concurrent.futures.Future[Any]) -> None:
        """Cancel the task behind `future`, once: further calls do nothing, so that the task can
        close in peace. Does not wait."""
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
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _begin(
        self,
        future: concurrent.futures.Future[T],
        make: Callable[[], Coroutine[Any, Any, T]],
        context: contextvars.Context,
    ) -> None:
        try:
            task = asyncio.get_running_loop().create_task(context.run(make), context=context)
        except BaseException as problem:  # noqa: BLE001 - whatever `make` raises is the future's outcome
            self._tasks.pop(future, None)
            future.set_exception(problem)
            return
        self._tasks[future] = task
        task.add_done_callback(lambda done: self._finish(future, done))
        if future in self._cancelled:
            task.cancel()

    def _finish(self, future: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
        self._tasks.pop(future, None)
        self._cancelled.discard(future)
        if task.cancelled():
            future.set_exception(asyncio.CancelledError())
            return
        problem = task.exception()
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(task.result())

    def _cancel(self, future: concurrent.futures.Future[Any]) -> None:
        if future in self._cancelled or future not in self._tasks:
            return
        self._cancelled.add(future)
        task = self._tasks[future]
        if task is not None:
            task.cancel()

    async def _wind_up(self, patience: float) -> None:
        loop = asyncio.get_running_loop()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=patience)
        loop.call_soon(loop.stop)
