"""The main thread for work that outlives a turn: what asks for it while no turn runs waits for the next.

Only turns serve it; between them the thread is the user's. All of this is for the agent thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from ipyagent.journal.protocols import Execution
from ipyagent.kernel.dispatcher import MainThreadExecutor

T = TypeVar("T")


class MainThreadProxy:
    """`MainThreadExecutor.run_code` and `MainThreadExecutor.call`, whichever turn serves them."""

    def __init__(self) -> None:
        self._main: MainThreadExecutor | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return f"<MainThreadProxy {'served' if self._main is not None else f'not served, {len(self._waiting)} wait'}>"

    @property
    def served(self) -> bool:
        """Whether a turn runs that serves it."""
        return self._main is not None

    @contextmanager
    def serving(self, main: MainThreadExecutor) -> Iterator[None]:
        """A turn runs, and its main thread serves."""
        self._main = main
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        try:
            yield
        finally:
            if self._main is main:  # else a later turn serves already
                self._main = None

    async def run_code(
        self,
        code: str,
        on_output: Callable[[str], None],
        scope: AbstractContextManager[object] | None = None,
        begun: Callable[[], None] = lambda: None,
    ) -> Execution:
        """As `MainThreadExecutor.run_code`; code that a turn's end left unbegun is run in the next turn."""
        return await self._served(lambda main: main.run_code(code, on_output, scope=scope, begun=begun))

    async def call(self, function: Callable[[], T]) -> T:
        """As `MainThreadExecutor.call`."""
        return await self._served(lambda main: main.call(function))

    async def _served(self, ask: Callable[[MainThreadExecutor], Awaitable[T]]) -> T:
        while True:
            main = await self._next()
            try:
                return await ask(main)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if (task is not None and task.cancelling()) or main.stopped or self._main is main:
                    raise  # else the turn ended before its turn came

    async def _next(self) -> MainThreadExecutor:
        while self._main is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)
        return self._main
