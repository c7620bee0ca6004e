"""Agent code runs through IPython itself, in the user's namespace, and leaves no trace but its own effects.

`Out`, `_`, `In` and the execution count stay as they are; errors come back as text; `exit()` and
`sys.exit()` end the run, not the session. `os._exit` cannot be survived inside a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol, TypeVar

from ipyagent.journal.protocols import CellOutput, Execution
from ipyagent.kernel.capture import Capture
from ipyagent.kernel.failures import render_failure
from ipyagent.kernel.output import OutputLog

T = TypeVar("T")

INTERRUPTED = 200_000
"""Characters kept of the output of a run that was interrupted, mostly of an endless loop: each is read several times
before the turn has ended."""
_LAST = ("_", "__", "___")
"""The user's last results."""


class ExecutionLock(Protocol):
    """Calls user code so that it can be interrupted, and knows whether it was."""

    interrupted: bool

    def run(self, function: Callable[[], T]) -> T | None:
        """The function's value; None when it was interrupted."""

    async def run_async(self, make: Callable[[], Awaitable[T]]) -> T | None:
        """The coroutine's value; None when it was interrupted."""


class PlainGuard:
    """Python's own rules: KeyboardInterrupt comes from whatever SIGINT handler there is."""

    def __init__(self) -> None:
        self.interrupted = False

    def run(self, function: Callable[[], T]) -> T | None:
        try:
            return function()
        except KeyboardInterrupt:
            self.interrupted = True
            return None

    async def run_async(self, make: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await make()
        except KeyboardInterrupt:
            self.interrupted = True
            return None


def run_sync(
    shell: Any,
    code: str,
    log: OutputLog,
    *,
    guard: ExecutionLock | None = None,
    cell: CellOutput | None = None,
    max_chars: int = 25_000,
) -> Execution:
    """Run `code` on this thread and wait. Top-level `await` runs on IPython's own loop, also where
    this thread's loop is running and blocked by the caller (`%%time`, `run_cell_magic`)."""
    guard = guard or PlainGuard()
    if not needs_loop(shell, code):
        run = _Run(shell, code, log, guard, cell, max_chars)
        with run:
            run.outcome = guard.run(lambda: shell.run_cell(code, store_history=False))
        return run.execution()
    with _no_running_loop():
        from IPython.core.async_helpers import get_asyncio_loop

        loop: asyncio.AbstractEventLoop = get_asyncio_loop()  # type: ignore[no-untyped-call]
        return loop.run_until_complete(
            run_async(shell, code, log, guard=guard, cell=cell, max_chars=max_chars)
        )


async def run_async(
    shell: Any,
    code: str,
    log: OutputLog,
    *,
    guard: ExecutionLock | None = None,
    cell: CellOutput | None = None,
    max_chars: int = 25_000,
) -> Execution:
    """Run `code` on this thread; top-level `await` runs on the running loop."""
    guard = guard or PlainGuard()
    if not needs_loop(shell, code):
        return run_sync(shell, code, log, guard=guard, cell=cell, max_chars=max_chars)
    run = _Run(shell, code, log, guard, cell, max_chars)
    with run:
        transformed = shell.transform_cell(code)
        run.outcome = await guard.run_async(
            lambda: shell.run_cell_async(code, store_history=False, transformed_cell=transformed)
        )
        guard.run(lambda: shell.events.trigger("post_execute"))
        guard.run(lambda: shell.events.trigger("post_run_cell", run.outcome) if run.outcome is not None else None)
    return run.execution()


def needs_loop(shell: Any, code: str) -> bool:
    """Whether `code` has a top-level await."""
    try:
        transformed = shell.transform_cell(code)
    except Exception:  # noqa: BLE001 - transformers are the user's; run_cell meets the same error and shows it
        return False
    return bool(shell.should_run_async(code, transformed_cell=transformed))


class _Run:
    """One run: the namespace before and after, the time, the capture."""

    def __init__(
        self, shell: Any, code: str, log: OutputLog, guard: ExecutionLock, cell: CellOutput | None, max_chars: int
    ) -> None:
        self._shell = shell
        self._log = log
        self._guard = guard
        self._capture = Capture(shell, code, log, cell=cell, max_chars=max_chars)
        self.outcome: Any = None

    def __enter__(self) -> None:
        self._names = _fingerprint(self._shell)
        self._last = {name: self._shell.user_ns[name] for name in _LAST if name in self._shell.user_ns}
        self._capture.__enter__()
        self._began = time.monotonic()

    def __exit__(self, *error: Any) -> None:
        self._seconds = time.monotonic() - self._began
        try:
            self._capture.__exit__(*error)
        finally:
            for name in _LAST:  # `for _ in …` binds it, and IPython would never set it again
                self._shell.user_ns.pop(name, None)
            self._shell.user_ns.update(self._last)

    def execution(self) -> Execution:
        outcome = self.outcome
        error: BaseException | None = None
        if outcome is not None:
            error = outcome.error_before_exec or outcome.error_in_exec
        self._capture.report(error)
        added, rebound = _changes(self._names, self._shell)
        interrupted = self._guard.interrupted or isinstance(error, KeyboardInterrupt)
        return Execution(
            output=self._log.text(INTERRUPTED if interrupted else None),
            result=self._capture.displays.result,
            displays=self._capture.displays.texts,
            images=self._capture.displays.images,
            error=None if error is None else render_failure(error),
            interrupted=interrupted,
            seconds=self._seconds,
            added=added,
            rebound=rebound,
            live=self._capture.live,
            shown=self._capture.displays.shown,
            told=self._capture.displays.told,
        )


def _fingerprint(shell: Any) -> dict[str, tuple[int, Any]]:
    """Of each name the identity of its object, with a weak reference where the type allows one:
    an identity alone is reused once the object is gone, and a strong one would keep memory."""
    prints: dict[str, tuple[int, Any]] = {}
    for name, value in list(shell.user_ns.items()):
        try:
            reference: Any = weakref.ref(value)
        except TypeError:
            reference = None
        prints[name] = (id(value), reference)
    return prints


def _changes(before: dict[str, tuple[int, Any]], shell: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    added: list[str] = []
    rebound: list[str] = []
    hidden = shell.user_ns_hidden
    for name, value in list(shell.user_ns.items()):
        if not isinstance(name, str) or name.startswith("_") or (name in hidden and hidden[name] is value):
            continue
        known = before.get(name)
        if known is None:
            added.append(name)
        elif known[0] != id(value) or (known[1] is not None and known[1]() is not value):
            rebound.append(name)
    return tuple(sorted(added)), tuple(sorted(rebound))


@contextlib.contextmanager
def _no_running_loop() -> Iterator[None]:
    """Let another loop run on this thread although one is running and blocked below us."""
    running = asyncio._get_running_loop()
    task = asyncio.current_task(running) if running is not None and sys.version_info >= (3, 14) else None
    # since 3.14 the current task belongs to the thread, before that to the loop
    if running is not None and task is not None:
        asyncio.tasks._leave_task(running, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)
        if running is not None and task is not None:
            asyncio.tasks._enter_task(running, task)
