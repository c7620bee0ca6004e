"""The agent thread: one loop, the caller's context, a cancel that leaves time to close."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from pace import within

from ipyagent.errors import AgentError
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.interrupts import Interrupts
from ipyagent.kernel.scope import make_shell
from ipyagent.kernel.thread import AgentLoop


@pytest.fixture
def agent() -> Iterator[AgentLoop]:
    agent = AgentLoop("test-agent")
    yield agent
    agent.close()


def test_it_begins_on_first_use_and_ends_on_close(agent: AgentLoop) -> None:
    def names() -> list[str]:
        return [thread.name for thread in threading.enumerate()]

    assert "test-agent" not in names()
    loop = agent.loop
    assert agent.loop is loop
    assert "test-agent" in names()
    agent.close()
    agent.close()
    assert "test-agent" not in names()
    assert agent.loop is not loop  # a new one when it is needed again


def test_a_task_sees_the_callers_context_and_its_exception_is_the_futures(agent: AgentLoop) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("mine")

    async def turn() -> tuple[str, str]:
        before = variable.get()
        variable.set("theirs")
        return before, threading.current_thread().name

    assert agent.start(turn).result(60) == ("mine", "test-agent")
    assert variable.get() == "mine"
    async def turn() -> None:
        raise ValueError("turn")

    with pytest.raises(ValueError, match="turn"):
        agent.start(turn).result(60)


def test_a_cancelled_task_closes_in_peace_and_its_value_is_kept(agent: AgentLoop) -> None:
    begun = threading.Event()

    async def turn() -> str:
        try:
            begun.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            return "closed"
        return "slept"

    future = agent.start(turn)
    assert begun.wait(60)
    for _ in range(5):
        agent.cancel(future)
        time.sleep(0.02)
    assert future.result(60) == "closed"
    agent.cancel(future)


def test_a_task_cancelled_before_it_begins_still_tells_how_it_ended(agent: AgentLoop) -> None:
    async def turn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "told"
        return "slept"

    agent.loop.call_soon_threadsafe(time.sleep, 0.1)
    future = agent.start(turn)
    agent.cancel(future)
    assert future.result(60) == "told"


@pytest.mark.paced
def test_close_cancels_what_runs(agent: AgentLoop) -> None:
    async def turn() -> None:
        await asyncio.sleep(60)

    future = agent.start(turn)
    began = time.monotonic()
    agent.close()
    with pytest.raises(asyncio.CancelledError):
        future.result(30)
    assert time.monotonic() - began < within(2, 30)


@pytest.mark.timeout(30)
def test_sys_exit_in_a_task_ends_neither_the_loop_nor_the_caller(agent: AgentLoop) -> None:
    waiting = threading.Event()

    async def patient() -> str:
        waiting.set()
        await asyncio.sleep(0.3)
        return "went on"

    async def leaves() -> None:
        raise SystemExit(3)

    async def leaves_a_task_behind() -> str:
        task = asyncio.ensure_future(leaves())
        await asyncio.wait((task,))
        assert isinstance(task.exception(), SystemExit)
        return "saw it"

    other = agent.start(patient)
    waiting.wait(60)
    with pytest.raises(AgentError, match=r"sys\.exit"):
        agent.start(leaves).result(60)
    assert agent.start(leaves_a_task_behind).result(60) == "saw it"
    assert other.result(60) == "went on"


@pytest.mark.timeout(30)
def test_an_interrupt_while_the_loop_is_being_started_waits_for_no_lock(agent: AgentLoop) -> None:
    stopped: list[str] = []
    interrupts = Interrupts(agent, lambda: bool(stopped), lambda: (stopped.append("stopped"), interrupts.kick()))
    with interrupts.own_sigint():
        assert agent.running is not None  # before SIGINT is ours
        with agent._lock:  # the main thread was interrupted while it held it
            signal.raise_signal(signal.SIGINT)
    assert stopped == ["stopped"]


def test_after_its_end_nothing_is_started_again_by_what_comes_late(agent: AgentLoop) -> None:
    interrupts = Interrupts(agent, lambda: True, lambda: None)
    assert agent.loop.is_running()
    agent.close()
    interrupts.kick()
    agent.cancel(concurrent.futures.Future())
    assert agent.running is None
    assert "test-agent" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="POSIX signals")
def test_an_interrupt_of_ours_that_code_ignores_does_not_take_the_next_real_one(agent: AgentLoop) -> None:
    main = MainThreadExecutor(make_shell(), agent)
    code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(0.8)"

    async def turn() -> str:
        try:
            async with asyncio.timeout(0.3):
                await main.run_code(code, lambda text: None)
        except TimeoutError:
            pass
        threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)).start()
        try:
            busy = "import time\nuntil = time.monotonic() + 5\nwhile time.monotonic() < until: pass"
            await main.run_code(busy, lambda text: None)
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            return "stopped"
        return "went on"

    with pytest.raises(KeyboardInterrupt):
        main.run_blocking(turn)
    assert main.value == "stopped"
