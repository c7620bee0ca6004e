"""Who may interrupt the cell's thread, and when: only while user code runs, never after.

- The interrupt is raised once a request (`_armed`); code that swallows it is interrupted again every
  200 ms until it ends. From the third one on a trace raises it on the next line too, which is the handler
  that swallowed it: one that is raised there leaves the `try`.
- Signal and state change share a lock, so no SIGINT of ours can arrive after the code has ended.
- In awaited code CancelledError is raised instead of KeyboardInterrupt: the latter would leave its
  task through the event loop and end the kernel with it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import ctypes
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Generic, TypeAlias, TypeVar

from ipyagent.journal.protocols import Execution
from ipyagent.kernel.output import OutputLog
from ipyagent.kernel.processes import ChildProcessTracker
from ipyagent.kernel.thread import AgentLoop

# ---- What the agent thread asks of the main thread, and the two ways to wait for it. A closed inbox takes nothing,
# and a job that slipped in while it closed is cancelled: no job is lost in silence.

T = TypeVar("T")

Waiting: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
"""Waits on a thread that runs code for the value of a coroutine on the agent thread; an interrupt ends it."""
Watching: TypeAlias = Callable[[Waiting], contextlib.AbstractContextManager[object]]


@dataclass(eq=False)
class QueuedJob(Generic[T]):
    """`broken`: only this job is to be interrupted. `task`: its awaited code, while that runs."""

    future: concurrent.futures.Future[T] = field(default_factory=concurrent.futures.Future, init=False)
    broken: bool = field(default=False, init=False)
    task: asyncio.Task[None] | None = field(default=None, init=False)


@dataclass(eq=False)
class CodeJob(QueuedJob[Execution]):
    """Run code; `log` takes its output, `children` knows which processes it started, `scope` is entered around the run
    on its thread, `after` called there behind a run that was not interrupted; `watch` is entered around the code, see
    `MainThreadExecutor.run_code`."""

    code: str
    log: OutputLog
    scope: contextlib.AbstractContextManager[object] | None = None
    after: Callable[[], None] | None = None
    watch: Watching | None = None
    children: ChildProcessTracker = field(default_factory=ChildProcessTracker, init=False)


@dataclass(eq=False)
class CallJob(QueuedJob[T]):
    """Call a short function."""

    function: Callable[[], T]


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
        jobs = [self._jobs.get() for _ in range(self._jobs.qsize())]
        return [job for job in jobs if job is not None]


RESEND = 0.2
"""Seconds between interrupts to code that goes on after one."""
SWALLOWED = 2
"""Interrupts that code may swallow before the next one follows it into its handlers."""
INSISTING = 0.02
"""Seconds between interrupts from then on: each ends one level of handlers at least."""

_inside: contextvars.ContextVar[object] = contextvars.ContextVar("ipyagent_inside", default=None)
"""The job whose awaited code this context belongs to: in its own task and in every task that one makes."""
_owners: list[Interrupts] = []
"""Who owns SIGINT on the process's main thread, the newest last: turns of several agents may overlap."""


@contextlib.contextmanager
def raising_sigint() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt within, as in any cell that does not await: of a cell that does, ipykernel
    would only cancel the next await. A turn that owns SIGINT already keeps it."""
    if _owners or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler) or signal.default_int_handler
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_held: list[Any] = []
"""The handler that SIGINT has when `held_sigint` is left, while it is within; one at most."""


@contextlib.contextmanager
def held_sigint() -> Iterator[None]:
    """On the main thread, what SIGINT does waits until this is left: what is done within is done whole."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before) or _held:
        yield
        return
    came: list[FrameType | None] = []
    try:
        _held.append(before)
        signal.signal(signal.SIGINT, lambda signum, frame: came.append(frame))
        yield
    finally:
        _held.clear()
        signal.signal(signal.SIGINT, before)
        if came:
            before(signal.SIGINT, came[-1])


class Interrupts:
    """The interrupts of one turn, for the thread that makes it.

    `wanted` tells whether the turn is stopped; `on_sigint` is called on SIGINT from outside, in the
    handler, and is to stop the turn.
    """

    def __init__(self, thread: AgentLoop, wanted: Callable[[], bool], on_sigint: Callable[[], None]) -> None:
        self._thread = thread
        self._wanted = wanted
        self._on_outside = on_sigint
        self._ident = threading.get_ident()
        self._lock = threading.Lock()
        self.running: QueuedJob[Any] | None = None
        """The job whose code runs."""
        self._armed = False
        self._raised = 0
        self._insistence: _Insistence | None = None
        self._own_signal = False
        self._spared: QueuedJob[Any] | None = None
        self._next_kick: asyncio.TimerHandle | None = None
        self._before: Any = None

    @contextlib.contextmanager
    def own_sigint(self) -> Iterator[None]:
        """Own SIGINT within. Off the process's main thread (a subshell) Python does not let us:
        there only Stop works."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        _ = self._thread.loop  # running before SIGINT is ours: the handler starts nothing
        self._before = signal.signal(signal.SIGINT, self._on_sigint) or signal.default_int_handler
        _owners.append(self)
        try:
            yield
        finally:
            self._give_back()

    def _give_back(self) -> None:
        """Turns on one thread may end in any order: the handler from before goes to whoever came after."""
        at = _owners.index(self)
        if at + 1 < len(_owners):
            _owners[at + 1]._before = self._before
        else:
            # Python first runs our handler for a signal that is still pending, then exchanges them
            signal.signal(signal.SIGINT, self._before)
        del _owners[at]

    def reclaim(self) -> None:
        """Own SIGINT again where user code took it, within `own_sigint` only."""
        if _owners and _owners[-1] is self and signal.getsignal(signal.SIGINT) != self._on_sigint:
            self._own_signal = False  # one of ours that is not here yet went to the user's handler
            signal.signal(signal.SIGINT, self._on_sigint)

    def kick(self) -> None:
        """Interrupt what runs, if that is wanted, and again until it has ended. From any thread and
        from a signal handler: takes no lock and starts nothing."""
        loop = self._thread.running
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the turn is over
                loop.call_soon_threadsafe(self._kick)

    def wanted_for(self, job: QueuedJob[Any]) -> bool:
        return self._wanted() or job.broken

    # ------------------------------------------------------------------ the cell's thread

    def arm(self, job: QueuedJob[Any]) -> None:
        with self._lock:
            self.running = job
            self._armed = True
            self._raised = 0

    def disarm(self) -> None:
        while True:
            try:
                with self._lock:
                    self.running = None
                    self._armed = False
                    if self._ident != threading.main_thread().ident:
                        _raise_in(self._ident, None)
                return
            except (KeyboardInterrupt, asyncio.CancelledError):  # the last one, raised while the lock was taken
                continue

    def _insist(self, frames: Iterable[FrameType], kind: type[BaseException]) -> None:
        self.relent()
        self._insistence = _Insistence(frames, kind)

    def relent(self) -> None:
        """Trace no more. On the cell's thread, once the code has ended."""
        insistence, self._insistence = self._insistence, None
        if insistence is not None:
            insistence.end()

    def _on_sigint(self, signum: int, frame: FrameType | None) -> None:
        # Between two bytecodes of this thread, which may hold the lock: takes none.
        own = [owner for owner in _owners if owner._own_signal]
        told = own or _owners or [self]  # from outside: every turn of the thread
        for owner, kind, swallowed in [(owner, owner._told(), owner._raised - 1) for owner in told]:
            if kind is not None:
                if swallowed >= SWALLOWED:
                    owner._insist(_callers(frame), kind)
                raise kind

    def _told(self) -> type[BaseException] | None:
        """Take in a SIGINT; what is to be raised in the code that runs, if it is ours to interrupt."""
        job = self.running
        raising = self._armed and job is not None and (job.task is None or _inside.get() is job)
        own, self._own_signal = self._own_signal, False
        if not own:
            self._spared = job if raising else None  # the kick that comes at once need not interrupt this one again
            self._on_outside()
        if not raising or job is None:
            return None
        self._armed = False
        self._raised += 1
        return KeyboardInterrupt if job.task is None else asyncio.CancelledError

    # ------------------------------------------------------------------ the agent thread

    def _kick(self) -> None:
        if self._next_kick is not None:
            self._next_kick.cancel()
            self._next_kick = None
        job = self.running
        if job is None or not self.wanted_for(job):
            return
        family = job.children.gather() if isinstance(job, CodeJob) else []
        with self._lock:
            if self.running is not job:
                return
            if self._spared is job:
                self._spared = None
            else:
                self._armed = True
                if job.task is not None:
                    job.task.get_loop().call_soon_threadsafe(self._cancel, job)
                self._signal(job)
        if isinstance(job, CodeJob):
            job.children.end(family)
        pause = RESEND if self._raised <= SWALLOWED else INSISTING
        self._next_kick = asyncio.get_running_loop().call_later(pause, self._kick)

    def _cancel(self, job: QueuedJob[Any]) -> None:
        """Cancel awaited code, on its own loop; code that has swallowed that follows the trace too."""
        if job.task is None or job.task.done():
            return
        self._raised += 1
        tasks = _with_children(job.task)
        if self._raised > SWALLOWED:
            self._insist([frame for task in tasks for frame in _suspended(task)], asyncio.CancelledError)
            for task in tasks[1:]:
                task.cancel()
        job.task.cancel()

    def _signal(self, job: QueuedJob[Any]) -> None:
        if self._ident != threading.main_thread().ident:
            if job.task is None:  # a subshell's thread gets no signals; this reaches Python code, not time.sleep
                _raise_in(self._ident, KeyboardInterrupt)
            return
        # a signal that the code's own handler gets, or nobody, must not make the next one ours
        handler = _held[-1] if _held else signal.getsignal(signal.SIGINT)
        self._own_signal = any(handler == owner._on_sigint for owner in _owners)
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(self._ident, signal.SIGINT)
        else:  # Windows
            import _thread

            _thread.interrupt_main()


class Guard:
    """Calls user code and knows whether it was `interrupted`: by Python's own rules, KeyboardInterrupt comes from
    whatever SIGINT handler there is. The value is None where it was."""

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


class JobGuard(Guard):
    """Calls one job's user code: armed while it runs, and only then.

    `on_cancel` is called when the task that awaits the job is cancelled by someone else.
    """

    def __init__(self, interrupts: Interrupts, job: QueuedJob[Any], on_cancel: Callable[[], None]) -> None:
        super().__init__()
        self._interrupts = interrupts
        self._job = job
        self._on_cancel = on_cancel

    def run(self, function: Callable[[], T]) -> T | None:
        interrupts, job = self._interrupts, self._job
        values: list[T] = []
        try:
            try:
                interrupts.arm(job)
                if interrupts.wanted_for(job):
                    raise KeyboardInterrupt
                values.append(function())
            finally:
                interrupts.disarm()
        except KeyboardInterrupt:
            interrupts.disarm()
        self._end()
        return values[0] if values else None

    async def run_async(self, make: Callable[[], Awaitable[T]]) -> T | None:
        interrupts, job = self._interrupts, self._job
        values: list[T] = []

        async def inside() -> None:
            _inside.set(job)
            try:
                try:
                    interrupts.arm(job)
                    if interrupts.wanted_for(job):
                        raise asyncio.CancelledError
                    values.append(await make())
                finally:
                    interrupts.disarm()
            except (KeyboardInterrupt, asyncio.CancelledError):
                interrupts.disarm()

        task = job.task = asyncio.ensure_future(inside())
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                self._on_cancel()
        job.task = None
        if not task.cancelled():  # cancelled: at its very end, the value is in `values`
            task.result()
        self._end()
        return values[0] if values else None

    def _end(self) -> None:
        self._interrupts.relent()
        self.interrupted = self._interrupts.wanted_for(self._job)
        if self.interrupted and isinstance(self._job, CodeJob):
            self._job.children.end_all()


class _Insistence:
    """Raises `kind` on every line that runs in `frames`, handlers included, until `end`.

    Python takes a trace function out when it raises and lets go of the frame's own: its being let go puts all in
    again, while the exception is still on its way.
    """

    def __init__(self, frames: Iterable[FrameType], kind: type[BaseException]) -> None:
        self._frames, self._kind, self._on = set(frames), kind, False
        self._before = sys.gettrace()  # a debugger's
        self._arm()

    def _arm(self) -> None:
        self._on = False  # what is replaced here must not put itself in again
        for frame in self._frames:
            frame.f_trace = _LineTrace(self)
        self._on = True
        sys.settrace(lambda frame, event, arg: None)

    def end(self) -> None:
        self._on = False
        for frame in self._frames:
            frame.f_trace = None
        self._frames.clear()
        sys.settrace(self._before)


class _LineTrace:
    __slots__ = ("_of",)

    def __init__(self, of: _Insistence) -> None:
        self._of = of

    def __call__(self, frame: FrameType, event: str, arg: Any) -> _LineTrace:
        if event == "line" and self._of._on:
            raise self._of._kind
        return self

    def __del__(self) -> None:
        if self._of._on:
            self._of._arm()


_NOT_THEIRS = ("IPython.core.interactiveshell", __name__)
"""Modules whose frames are below the user's code."""


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and those of the user's code that called it."""
    while frame is not None and frame.f_globals.get("__name__") not in _NOT_THEIRS:
        yield frame
        frame = frame.f_back


def _suspended(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """The frames of the user's coroutines that the task waits in, the outermost first."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None and frame.f_globals.get("__name__") not in _NOT_THEIRS:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _with_children(task: asyncio.Task[Any]) -> list[asyncio.Task[Any]]:
    """The task and those that it made, as far as Python tells: before 3.12 those that it waits for."""
    found = [task]
    if sys.version_info >= (3, 12):
        job = task.get_context().get(_inside)
        others = asyncio.all_tasks(task.get_loop()) if job is not None else ()
        return [*found, *(other for other in others if other is not task and other.get_context().get(_inside) is job)]
    for one in found:
        waits: Any = getattr(one, "_fut_waiter", None)
        found += [each for each in (waits, *getattr(waits, "_children", ())) if isinstance(each, asyncio.Task)]
    return found


def _raise_in(ident: int, kind: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(kind) if kind else None)
