"""The main thread while a turn runs: it waits here, runs what the agent thread asks for, and owns SIGINT.

- User code runs on the thread of the cell, never elsewhere; everything else runs on the agent thread.
- After a stop nothing that waits is run, and nothing new is taken.
- `run` returns when the turn has closed and given its value, and not before user code has ended.
  Code that swallows interrupts is interrupted again and again (`Interrupts`); code that never comes
  back to Python keeps it waiting, and its output says that only a restart ends it."""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from types import BuiltinFunctionType
from typing import Any, Literal, TypeVar

from ipyagent.errors import AgentError
from ipyagent.journal.protocols import CellOutput, Execution
from ipyagent.kernel import execute
from ipyagent.kernel.interrupts import (
    BlockingInbox,
    CallJob,
    CodeJob,
    Interrupts,
    JobGuard,
    LoopInbox,
    QueuedJob,
    Watching,
)
from ipyagent.kernel.output import OutputLog, readable
from ipyagent.kernel.thread import AgentLoop, keep_logs_apart

# ---- In one process the code of one agent runs at a time: what it prints is taken from streams that all threads
# share. Models and tools of several agents work side by side; only their runs of code wait for one another. Code
# that asks further agents of this process to work lends them its turn meanwhile, so that they do not deadlock.

_LOOK = 0.01
"""Seconds between two looks whether it is one's turn."""
_TURN_BACK = 0.2
"""Seconds that code waits to have its turn back; whoever still has it swallows interrupts."""


class RunLock:
    """Whose turn it is, by the thread that runs the code; one thread may take it within its own turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._owner: int | None = None
        self._depth = 0

    def __repr__(self) -> str:
        return f"<RunLock {'free' if self._owner is None else f'of thread {self._owner}'}>"

    @asynccontextmanager
    async def turn(self, thread: int) -> AsyncIterator[None]:
        """The turn of the thread with this identity; waits for it and can be cancelled meanwhile."""
        while not self._take(thread):
            await asyncio.sleep(_LOOK)
        try:
            yield
        finally:
            self._give_back(thread)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Others may take the turn of this thread within, if it has it."""
        me, depth = threading.get_ident(), 0
        with self._lock:
            if self._owner == me:
                depth, self._owner, self._depth = self._depth, None, 0
        try:
            yield
        finally:
            until = time.monotonic() + _TURN_BACK
            while depth and not self._take(me, depth) and time.monotonic() < until:
                time.sleep(_LOOK)

    def _take(self, thread: int, depth: int = 1) -> bool:
        with self._lock:
            if self._pid != os.getpid():  # a fork while another thread ran code: that thread is not here
                self._pid, self._owner, self._depth = os.getpid(), None, 0
            if self._owner not in (None, thread):
                return False
            self._owner, self._depth = thread, self._depth + depth
            return True

    def _give_back(self, thread: int) -> None:
        with self._lock:
            if self._owner == thread:
                self._depth -= 1
                if self._depth <= 0:
                    self._owner, self._depth = None, 0


RUN_LOCK = RunLock()
"""The process's own."""
T = TypeVar("T")

_on_other_thread: ContextVar[bool] = ContextVar("ipyagent_on_other_thread", default=False)
"""Whether a question is of a thread that cannot read a line."""
_CLOSE = 2.0
"""Seconds a stopped turn has to close before `run` gives up."""
_CANCEL_DELAY = 0.05
"""Seconds that a cancellation may take from another thread, many switches of the interpreter's lock."""
_UNRESPONSIVE = 3.0
"""Seconds of interrupts after which code that still runs is said not to hear them: compiled code, mostly."""
_BATCH = 0.04
"""Seconds between pieces of live output."""


class MainThreadExecutor:
    """The thread of one cell during one turn. Make it, and await `run`, on that thread.

    `max_chars` bounds the output kept of one run, `live_chars` what is shown live of it; `cell` takes what the
    user's namespace displays (None: only widgets and other live objects are shown).
    """

    def __init__(
        self,
        shell: Any,
        thread: AgentLoop,
        *,
        max_chars: int = 25_000,
        live_chars: int = 200_000,
        cell: CellOutput | None = None,
    ) -> None:
        self.stopped: Literal["", "button", "interrupt"] = ""
        self.value: Any = None
        """What the turn returned, also when `run` raises KeyboardInterrupt."""
        self._shell = shell
        self._thread = thread
        self._ident = threading.get_ident()
        self._max_chars = max_chars
        self._live_chars = live_chars
        self._cell = cell
        self._interrupts = Interrupts(thread, lambda: bool(self.stopped), lambda: self.stop("interrupt"))
        self._inbox: LoopInbox | BlockingInbox | None = None
        self._turn: concurrent.futures.Future[Any] | None = None
        self._close_by: float | None = None
        self._cancelled_outside = False
        self._within: BlockingInbox | None = None
        """Takes the lines that are asked for while code waits for an answer."""

    # ------------------------------------------------------------------ running a turn

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `make()` on the agent thread, serve it here, return its value.

        Raises KeyboardInterrupt after an interrupt (the turn has closed, its value is in `value`),
        asyncio.CancelledError when the awaiting task itself was cancelled, AgentError when a
        stopped turn did not close, and whatever the turn raised. After a Stop it returns normally.
        """
        inbox = LoopInbox()
        with self._begun(make, inbox) as turn:
            while (left := self._left(turn)) > 0:
                try:
                    job = await inbox.next(None if self._close_by is None else left)
                except asyncio.CancelledError:
                    self._on_cancel()
                    continue
                if job is not None and self._take(job):
                    await self._serve(job)
        return self._outcome(turn)

    def run_blocking(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """`run` for callers that cannot await: `%%time`, `%%capture`, `run_cell_magic`, scripts."""
        inbox = BlockingInbox()
        with self._begun(make, inbox) as turn:
            while (left := self._left(turn)) > 0:
                job = inbox.next(None if self._close_by is None else left)
                if job is not None and self._take(job):
                    self._serve_blocking(job)
        return self._outcome(turn)

    @property
    def ended(self) -> bool:
        """Whether no turn of it runs any more; one that did not close after a Stop still does."""
        return self._turn is None or self._turn.done()

    def stop(self, why: Literal["button", "interrupt"]) -> None:
        """End the turn: cancel it, interrupt what runs, drop what waits. From any thread, any number
        of times; an interrupt after a Stop counts as interrupt."""
        # Also called by the SIGINT handler: takes no lock.
        first = not self.stopped
        if first or why == "interrupt":
            self.stopped = why
        if not first:
            return
        if self._turn is not None:
            self._thread.cancel(self._turn)
        self._interrupts.kick()
        if self._inbox is not None:
            self._inbox.wake()

    # ------------------------------------------------------------------ for the agent thread

    async def run_code(
        self,
        code: str,
        on_output: Callable[[str], None],
        *,
        scope: AbstractContextManager[object] | None = None,
        begun: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
        watch: Watching | None = None,
    ) -> Execution:
        """Run code in the user's namespace on the main thread; `scope` is entered there around the run (a
        namespace of its own), `begun` called on this loop once it is no longer waiting for its turn, `after` on the
        main thread behind a run that was not interrupted: another call there would wait for both threads again.
        `watch` is called there with a way to wait for the agent thread from within the code, and entered around it.

        `on_output` is called on this loop with pieces of live text, about 25 times a second, also
        while the code blocks its thread. A piece that begins with "\\r" replaces the line that was
        last begun (progress bars).

        When the turn is stopped meanwhile this returns what ran until then, `interrupted` set, and
        the cancellation is delivered at the caller's next await: journal the result before that,
        and close the turn where CancelledError is caught.
        When only the call is cancelled (a timeout), the code is interrupted and the cancellation
        raised once it has ended. Raises asyncio.CancelledError at once when the turn has stopped.
        """
        job = CodeJob(code, OutputLog(self._max_chars, self._live_chars), scope, after, watch)
        async with RUN_LOCK.turn(self._ident):
            await self._post(job)
            return await self._followed(job, on_output, begun)

    async def _followed(
        self, job: CodeJob, on_output: Callable[[str], None], begun: Callable[[], None] | None
    ) -> Execution:
        waiting = asyncio.wrap_future(job.future)
        cancelled, since = False, 0.0
        while not waiting.done():
            if since and time.monotonic() > since + _UNRESPONSIVE:
                on_output(
                    "\n(interrupted but still running: it does not react to interrupts; restart the kernel to end it)\n"
                )
                since = float("inf")
            elif not since and (job.broken or self.stopped):
                since = time.monotonic()
            try:
                await asyncio.wait((waiting,), timeout=_BATCH)
            except asyncio.CancelledError:
                cancelled = True
                self._break(job)
            if begun is not None and job.future.running():
                begun()
                begun = None
            text = job.log.take(final=waiting.done())
            if text:
                on_output(text)
        if waiting.cancelled() or (cancelled and not self.stopped):
            raise asyncio.CancelledError
        execution = waiting.result()
        task = asyncio.current_task()
        if cancelled and task is not None:
            task.uncancel()
            task.cancel()
        return execution

    async def call(self, function: Callable[[], T]) -> T:
        """Call a short function on the main thread. Raises what it raises; asyncio.CancelledError
        when it was interrupted or the turn has stopped."""
        job = CallJob(function)
        await self._post(job)
        return await self._outcome_of(job)

    async def _outcome_of(self, job: CallJob[T]) -> T:
        waiting = asyncio.wrap_future(job.future)
        cancelled = False
        while not waiting.done():
            try:
                await asyncio.wait((waiting,))
            except asyncio.CancelledError:
                cancelled = True
                self._break(job)
        if cancelled:
            if not waiting.cancelled():
                waiting.exception()  # looked at: nobody else will
            raise asyncio.CancelledError
        return waiting.result()

    async def ask_line(self, prompt: str) -> str:
        """`input(prompt)` on the main thread. Raises EOFError and whatever the front-end's input
        raises when nobody can answer."""
        if _on_other_thread.get():
            raise EOFError("the question is of another thread, and the main one runs code")
        if (within := self._within) is None:
            return await self.call(lambda: read_line(prompt))
        job = CallJob(lambda: read_line(prompt))
        if not within.post(job):
            raise asyncio.CancelledError
        return await self._outcome_of(job)

    async def _post(self, job: QueuedJob[Any]) -> None:
        if self.stopped or self._inbox is None or not self._inbox.post(job):
            # the stopping thread may be between its mark and its cancellation: that one ends us, not two
            await asyncio.sleep(_CANCEL_DELAY)
            raise asyncio.CancelledError("the turn has been stopped: nothing more runs on the main thread")

    def _break(self, job: QueuedJob[Any]) -> None:
        """Interrupt this job, or see to it that it does not begin."""
        job.broken = True
        if not job.future.cancel():
            self._interrupts.kick()

    # ------------------------------------------------------------------ on the cell's thread

    def wait_within(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The value of `make()` on the agent thread, for code that runs: the thread that calls this waits, and, where
        it is the cell's, reads the lines that are asked for meanwhile. Raises what the coroutine raises, and what an
        interrupt raises in the code."""
        job, mine = self._interrupts.running, threading.get_ident() == self._ident and self._within is None

        async def asked() -> T:
            _on_other_thread.set(not mine)
            return await make()

        inbox = BlockingInbox()
        future = asyncio.run_coroutine_threadsafe(asked(), self._thread.loop)
        future.add_done_callback(lambda _: inbox.wake())
        if mine:
            self._within = inbox
        try:
            while not future.done():
                line = inbox.next(None)
                if line is not None and line.future.set_running_or_notify_cancel():
                    self._serve_call(line)
                    if job is not None:
                        self._interrupts.arm(job)
                        if self._interrupts.wanted_for(job):
                            raise KeyboardInterrupt if job.task is None else asyncio.CancelledError
        except BaseException:
            future.cancel()
            raise
        finally:
            if mine:
                self._within = None
            for line in inbox.close():
                line.future.cancel()
        return future.result()

    def _take(self, job: QueuedJob[Any]) -> bool:
        if self.stopped:
            job.future.cancel()
        return job.future.set_running_or_notify_cancel()

    async def _serve(self, job: QueuedJob[Any]) -> None:
        if isinstance(job, CodeJob):
            with self._settling(job) as (given, done), self._around(job):
                done.append(await execute.run_async(self._shell, job.code, job.log, **given))
        else:
            self._serve_call(job)

    def _serve_blocking(self, job: QueuedJob[Any]) -> None:
        if isinstance(job, CodeJob):
            with self._settling(job) as (given, done), self._around(job):
                done.append(execute.run_sync(self._shell, job.code, job.log, **given))
        else:
            self._serve_call(job)

    @contextmanager
    def _around(self, job: CodeJob) -> Iterator[None]:
        """What is entered around the code; what fails on the way in is the outcome of the job (`_settling`)."""
        with job.children, job.scope or nullcontext(), job.watch(self.wait_within) if job.watch else nullcontext():
            yield

    @contextmanager
    def _settling(self, job: CodeJob) -> Iterator[tuple[dict[str, Any], list[Execution]]]:
        """What the job is run with; what is put into the list within, or is raised there, becomes its outcome."""
        guard, done = JobGuard(self._interrupts, job, self._on_cancel), list[Execution]()
        cell = self._cell if job.scope is None else None  # the cell is the user's: what sub-agents look at stays theirs
        try:
            yield {"guard": guard, "cell": cell, "max_chars": self._max_chars}, done
            keep_logs_apart()  # the code may have turned logging on
            if cell is not None and done[0].shown:
                guard.run(cell.displayed)
            if job.after is not None and not done[0].interrupted:
                guard.run(job.after)
        except BaseException as problem:  # noqa: BLE001 - the run_code that waits gets it
            self._settle(job, None, problem)
        else:
            self._settle(job, done[0])

    def _serve_call(self, job: QueuedJob[Any]) -> None:
        assert isinstance(job, CallJob)
        guard = JobGuard(self._interrupts, job, self._on_cancel)
        try:
            value = guard.run(job.function)
        except BaseException as problem:  # noqa: BLE001 - the call that waits gets it
            self._settle(job, None, problem)
        else:
            self._settle(job, value, asyncio.CancelledError() if guard.interrupted else None)

    def _settle(self, job: QueuedJob[Any], value: Any, problem: BaseException | None = None) -> None:
        """Tell the job's outcome. SIGINT is ours again before that: what waits may go on at once, and
        an interrupt of what it does next must find our handler."""
        self._interrupts.reclaim()
        if problem is not None:
            job.future.set_exception(problem)
        else:
            job.future.set_result(value)

    def _on_cancel(self) -> None:
        """Someone cancelled the cell's task: the turn ends, and `run` hands the cancellation on."""
        self._cancelled_outside = True
        self.stop("interrupt")

    @contextmanager
    def _begun(
        self, make: Callable[[], Coroutine[Any, Any, T]], inbox: LoopInbox | BlockingInbox
    ) -> Iterator[concurrent.futures.Future[T]]:
        """The turn on the agent thread; SIGINT is ours within, and afterwards the inbox takes nothing more."""
        with self._interrupts.own_sigint():
            if self._inbox is not None:
                raise AgentError("one MainThreadExecutor serves one turn: make a new one")
            keep_logs_apart()
            self._inbox = inbox
            turn = self._turn = self._thread.start(make)
            turn.add_done_callback(lambda _: inbox.wake())
            if self.stopped:  # an interrupt came while it was being started
                self._thread.cancel(turn)
            yield turn
            for job in inbox.close():
                job.future.cancel()

    def _left(self, turn: concurrent.futures.Future[T]) -> float:
        """Seconds that the turn is still served; 0 once it is done, or did not close in time."""
        if turn.done():
            return 0.0
        if self.stopped and self._close_by is None:
            self._close_by = time.monotonic() + _CLOSE
        return float("inf") if self._close_by is None else max(0.0, self._close_by - time.monotonic())

    def _outcome(self, turn: concurrent.futures.Future[T]) -> T:
        if not turn.done():
            raise AgentError(f"the stopped turn did not close within {_CLOSE:g} s; its thread keeps running")
        problem = turn.exception()
        if problem is None:
            self.value = turn.result()
        if self._cancelled_outside:
            raise asyncio.CancelledError
        if self.stopped == "interrupt":
            cause = None if isinstance(problem, asyncio.CancelledError) else problem
            raise interruption() from cause
        if isinstance(problem, asyncio.CancelledError):
            raise AgentError("the turn was cancelled and left no result")
        if problem is not None:
            raise problem
        return turn.result()


def interruption(words: str = "the agent was interrupted") -> KeyboardInterrupt:
    """KeyboardInterrupt as IPython shows it in one line: where our own frames stood helps nobody."""
    interruption = KeyboardInterrupt(words)
    interruption._render_traceback_ = lambda: [f"KeyboardInterrupt: {words}"]  # type: ignore[attr-defined] # IPython's
    return interruption


# ------------------------------------------------------------------ asking
# One line from the person, on the main thread, that an interrupt ends whenever it comes.


TICK = 0.05
"""Seconds that one wait for the terminal takes at most."""


def read_line(prompt: str) -> str:
    """What was typed, as `input(prompt)` gives it. Raises EOFError and whatever the front-end's input raises.

    Python's own `input` waits within one system call: a Ctrl-C that arrives just before it is only seen after the
    next line. Here Python runs in between, and with it the handler of the signal.
    """
    if os.name == "nt" or not isinstance(builtins.input, BuiltinFunctionType) or not _is_terminal():
        return str(builtins.input(prompt))
    sys.stdout.write(prompt)
    sys.stdout.flush()
    while not readable(sys.stdin, TICK):
        pass
    line = sys.stdin.readline()  # of a terminal one line at a time: nothing of the next is taken
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _is_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stdin.fileno() >= 0
    except (AttributeError, OSError, ValueError):  # replaced or closed
        return False


# ---- The main thread for work that outlives a turn: what asks for it while no turn runs waits for the next. Only
# turns serve it; between them the thread is the user's. All of this is for the agent thread.

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
        after: Callable[[], None] | None = None,
        watch: Watching | None = None,
    ) -> Execution:
        """As `MainThreadExecutor.run_code`; code that a turn's end left unbegun is run in the next turn."""
        return await self._served(
            lambda main: main.run_code(code, on_output, scope=scope, begun=begun, after=after, watch=watch)
        )

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
