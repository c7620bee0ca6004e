"""Tasks through an executor: a bounded number at once, failed ones again, none lost.

An executor that breaks because a worker process died is replaced by one like it. Which of the tasks in hand
killed the worker nobody can say, so each is then tried alone, and only one that dies alone has failed a try.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec

from ipyagent.fleet.task import MapTask, Outcome, run_task

LOOK = 0.1
"""Seconds that one wait for a task takes at most: Ctrl-C is seen in between on every system."""
SETTLE = 5.0
"""Seconds for the futures of a broken executor to say so."""
MANY = 1_000
"""At once in an executor that does not tell how many workers it has: it has a queue of its own."""
DIED = "the worker process died (killed, or out of memory)"
AGAIN = frozenset(("failed", "stopped"))
"""Endings that another try may mend."""


class TaskScheduler:
    """`at_once` tasks in hand at most (0: as many as there are workers); a task that failed is begun `retries`
    times more. `done` is called with each outcome, `tried` with each that another try follows, and `say` with what
    a person should read; `barred` tells why nothing more may begin ("" for nothing), `ready` makes a task ready to
    go (None: not before one of those in hand has ended)."""

    def __init__(
        self,
        executor: Executor,
        *,
        at_once: int,
        retries: int,
        done: Callable[[Outcome], None],
        tried: Callable[[Outcome], None],
        say: Callable[[str], None],
        barred: Callable[[], str],
        ready: Callable[[MapTask], MapTask | None],
    ) -> None:
        self._executor = self._given = executor
        self._width = at_once or width_of(executor)
        self._retries = retries
        self._done, self._tried, self._say, self._barred, self._ready = done, tried, say, barred, ready
        self._waiting: deque[MapTask] = deque()
        self._suspects: deque[MapTask] = deque()
        self._alone: Future[Outcome] | None = None
        self._hand: dict[Future[Outcome], MapTask] = {}
        self._ended: queue.SimpleQueue[Future[Outcome]] = queue.SimpleQueue()

    def __repr__(self) -> str:
        return f"<TaskScheduler {len(self._hand)} in hand, {len(self._waiting) + len(self._suspects)} wait>"

    def work(self, tasks: Iterable[MapTask], stop: Callable[[], object]) -> None:
        """Until each has an outcome. An interrupt goes through once `stop` has told the tasks in hand to stop; they
        are not waited for."""
        self._waiting.extend(tasks)
        try:
            while self._waiting or self._suspects or self._hand:
                self._fill()
                self._take_one()
        except BaseException:
            stop()
            # some executors ask their scheduler about each and wait for it: nobody waits for that
            threading.Thread(target=_cancel, args=(list(self._hand),), name="ipyagent-cancel", daemon=True).start()
            raise
        finally:
            if self._executor is not self._given:
                self._executor.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ begin

    def _fill(self) -> None:
        if reason := self._barred():
            self._end_waiting("limit", reason)
        if self._alone in self._hand:
            return
        self._alone = None
        if self._suspects:
            if not self._hand:
                self._alone = self._begin(self._suspects.popleft())
            return
        while self._waiting and len(self._hand) < self._width:
            if self._begin(self._waiting.popleft()) is None:
                return

    def _begin(self, task: MapTask) -> Future[Outcome] | None:
        """Hand it over; None when it has to wait, or the executor turned out to be broken or closed."""
        ready = self._ready(task)
        if ready is None:
            self._waiting.appendleft(task)
            return None
        task = ready
        try:
            future = self._executor.submit(run_task, task)
        except RuntimeError as problem:  # BrokenExecutor is one
            self._tried(lost(task, words(problem)))
            self._waiting.appendleft(task)
            if not self._hand:
                self._replace(problem)
            return None
        self._hand[future] = task
        future.add_done_callback(self._ended.put)
        return future

    # ------------------------------------------------------------------ end

    def _take_one(self) -> None:
        if not self._hand:
            return
        try:
            future = self._ended.get(timeout=LOOK)
        except queue.Empty:
            return
        if future not in self._hand:
            return  # of an executor that broke, and seen to
        if isinstance(_problem(future), BrokenExecutor):
            self._mend(_problem(future))
        else:
            self._settle(self._hand.pop(future), future)

    def _settle(self, task: MapTask, future: Future[Outcome]) -> None:
        problem = _problem(future)
        if problem is None:
            self._judge(task, future.result())
        else:
            self._judge(task, lost(task, words(problem)))

    def _judge(self, task: MapTask, outcome: Outcome) -> None:
        if outcome.status in AGAIN and task.tries <= self._retries:
            self._tried(outcome)
            before = {"cost": outcome.cost, "tokens": outcome.tokens}
            self._waiting.append(msgspec.structs.replace(task, tries=task.tries + 1, **before))
        else:
            self._done(outcome)

    def _mend(self, problem: BaseException | None) -> None:
        """The executor broke: take what it still finished, and go on with another."""
        hand, self._hand = self._hand, {}
        concurrent.futures.wait(hand, timeout=SETTLE)
        gone = []
        for future, task in hand.items():
            if future.done() and not isinstance(_problem(future), BrokenExecutor):
                self._settle(task, future)
            else:
                gone.append(task)
        if len(gone) == 1:
            self._judge(gone[0], lost(gone[0], DIED))
        else:
            for task in gone:
                self._tried(lost(task, DIED))
            self._suspects.extend(gone)
        self._replace(problem)

    def _replace(self, problem: BaseException | None) -> None:
        old = self._executor
        if not isinstance(old, ProcessPoolExecutor) or not isinstance(problem, BrokenExecutor):
            self._end_waiting("failed", f"the executor takes nothing more ({words(problem)}); call again with another")
            return
        like: Any = old  # what it was made with has no public names
        self._executor = ProcessPoolExecutor(
            like._max_workers, mp_context=like._mp_context, initializer=like._initializer, initargs=like._initargs
        )
        if old is not self._given:
            old.shutdown(wait=False)
        self._say("a worker process died (killed, or out of memory): its tasks are tried again in new workers")

    def _end_waiting(self, status: Any, reason: str) -> None:
        for task in (*self._suspects, *self._waiting):
            self._done(
                Outcome(task.key, status, tries=task.tries - 1, cost=task.cost, tokens=task.tokens, error=reason)
            )
        self._suspects.clear()
        self._waiting.clear()


def width_of(executor: Executor) -> int:
    """How many tasks to have in hand at once."""
    told = getattr(executor, "_max_workers", None)  # threads, processes, ipyparallel
    return told if isinstance(told, int) and told > 0 else MANY


def _cancel(futures: list[Future[Outcome]]) -> None:
    with suppress(Exception):  # the executor was closed meanwhile, in whatever way it has of saying so
        for future in futures:
            future.cancel()


def lost(task: MapTask, why: str) -> Outcome:
    """A try of which nothing came back; what it had spent is not known."""
    return Outcome(task.key, "failed", tries=task.tries, cost=task.cost, tokens=task.tokens, error=why)


def words(problem: BaseException | None) -> str:
    """A failure of a worker in one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:500]


def _problem(future: Future[Outcome]) -> BaseException | None:
    try:
        return future.exception()
    except concurrent.futures.CancelledError as cancelled:
        return cancelled
