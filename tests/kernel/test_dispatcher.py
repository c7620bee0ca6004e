"""Stop and interrupt end a turn in every state, in real kernels; nothing comes after."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from kernels import Cell, Kernel
from pace import within

MARK = 10_000 + os.getpid()
"""Seconds to sleep for the children: nobody else's."""
LIMIT = within(1.0, 20.0)
"""Seconds, a third of what every state waits for; how soon a person feels the end is measured by the timed tests."""

STATES = {
    "waiting for the model": ("('wait', 60)", "LIVE ready"),
    "time.sleep": ("('code', 'import time; print(\"ready\"); time.sleep(60)')", "LIVE ready"),
    "busy loop": ("('code', 'print(\"ready\")\\nwhile True: pass')", "LIVE ready"),
    "await": ("('code', 'import asyncio; print(\"ready\")\\nawait asyncio.sleep(60)')", "LIVE ready"),
    "busy after await": (
        "('code', 'import asyncio\\nawait asyncio.sleep(0.01)\\nprint(\"ready\")\\nwhile True: pass')",
        "LIVE ready",
    ),
    "busy in a task": (
        "('code', 'import asyncio\\nasync def f():\\n  print(\"ready\")\\n  while True: pass\\n"
        "await asyncio.gather(f(), asyncio.sleep(60))')",
        "LIVE ready",
    ),
    "shell command": (f"('code', '!echo ready; sleep {MARK}; echo never')", "LIVE ready"),
    "subprocess": (
        f"('code', 'import subprocess; print(\"ready\"); subprocess.run(\"sleep {MARK} & sleep {MARK}\", shell=True)')",
        "LIVE ready",
    ),
    "input": ("('ask', 'allow? ')", "stdin"),
}


def _old_kernels() -> list[object]:
    folder = os.environ.get("IPYAGENT_IPYKERNEL_73", "")
    reason = "IPYAGENT_IPYKERNEL_73 names no folder with ipykernel 7.3"
    return [
        pytest.param("", id="installed"),
        pytest.param(
            folder, id="7.3", marks=[pytest.mark.slow, pytest.mark.skipif(not os.path.isdir(folder), reason=reason)]
        ),
    ]


@pytest.fixture(scope="module", params=_old_kernels())
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    kernel = Kernel(request.param)
    try:
        kernel.run("import scripted_turn as scripted; ip = get_ipython()")
        if request.param:
            assert kernel.eval("__import__('ipykernel').__version__").startswith("7.3")
        yield kernel
    finally:
        kernel.close()


def act_stop(kernel: Kernel) -> None:
    kernel.click({"kind": "stop"})


def act_interrupt(kernel: Kernel) -> None:
    kernel.interrupt()


def awaited(steps: str, options: str = "") -> str:
    return f"s = scripted.Scripted(ip, {steps}, {options}).button()\nawait s.awaited()"


def blocking(steps: str) -> str:
    return f"s = scripted.Scripted(ip, {steps}).button()\ns.blocking()"


DOORS = [pytest.param(awaited, id="awaited"), pytest.param(blocking, id="blocking", marks=pytest.mark.slow)]


def runs_sleep(process: psutil.Process) -> bool:
    try:
        return process.cmdline() == ["sleep", str(MARK)]
    except psutil.Error:  # gone, or a zombie
        return False


def no_child_is_left() -> bool:
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        if not any(runs_sleep(process) for process in psutil.process_iter()):
            return True
        time.sleep(0.02)
    return False


def is_clean(kernel: Kernel) -> bool:
    """The next cell works, SIGINT is as it was, no task is left, and an interrupt still interrupts."""
    handler = kernel.eval("__import__('signal').getsignal(2).__qualname__")
    tasks = kernel.eval("sum('MainThreadExecutor.run' in repr(t) for t in __import__('asyncio').all_tasks())")
    assert "Interrupts" not in handler
    return bool(tasks == 0)


@pytest.mark.paced
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("act", [act_stop, act_interrupt], ids=["stop", "interrupt"])
@pytest.mark.parametrize("state", STATES)
def test_every_state_ends_at_once(
    kernel: Kernel,
    state: str,
    act: Callable[[Kernel], None],
    door: Callable[[str], str],
) -> None:
    steps, ready = STATES[state]
    cell = kernel.run(door(f"{steps}, ('code', 'NEVER = 1')"), when=ready, act=act)
    assert cell.latency < LIMIT
    expect_end(cell, act)
    assert "NEVER" not in kernel.eval("list(globals())")
    assert is_clean(kernel)
    if state in ("shell command", "subprocess"):
        assert no_child_is_left()


def expect_end(cell: Cell, act: Callable[[Kernel], None]) -> None:
    assert cell.value["status"] == "stopped"
    if act is act_stop:
        assert cell.value["why"] == "button"
        assert cell.errors == []
        assert cell.reply["status"] == "ok"
    else:
        assert cell.value["why"] == "interrupt"
        assert cell.errors == ["KeyboardInterrupt"]  # so that Run All stops


def test_interrupt_keeps_what_already_ran(kernel: Kernel) -> None:
    code = "('code', 'kept = 1\\nprint(\"ready\")\\nimport time; time.sleep(60)')"
    cell = kernel.run(awaited(code), when="LIVE ready", act=act_stop)
    (execution,) = cell.value["done"]
    assert execution["output"].startswith("ready")
    assert execution["interrupted"] is True
    assert "kept" in execution["added"]
    assert kernel.eval("kept") == 1


def test_a_second_interrupt_while_closing_does_no_harm(kernel: Kernel) -> None:
    def twice(kernel: Kernel) -> None:
        kernel.interrupt()
        time.sleep(0.005)
        kernel.interrupt()

    for state in ("waiting for the model", "time.sleep", "busy loop", "await"):
        steps, ready = STATES[state]
        cell = kernel.run(awaited(steps), when=ready, act=twice)
        assert cell.errors == ["KeyboardInterrupt"], state
        assert cell.value["status"] == "stopped"
        assert is_clean(kernel)


def test_an_interrupt_after_a_stop_counts_as_interrupt(kernel: Kernel) -> None:
    def both(kernel: Kernel) -> None:
        kernel.click({"kind": "stop"})
        time.sleep(0.1)  # two SIGINT at the very same moment are one
        kernel.interrupt()

    code = (
        'import time\\nprint("ready")\\nt = time.time()\\n'
        "while time.time() < t + 0.5:\\n  try:\\n    time.sleep(1)\\n"
        "  except BaseException:\\n    pass"
    )
    cell = kernel.run(awaited(f"('code', '{code}')"), when="LIVE ready", act=both)
    assert cell.errors == ["KeyboardInterrupt"]


def test_no_interrupt_of_ours_arrives_after_the_door_has_returned(kernel: Kernel) -> None:
    code = """
import asyncio, random, time
escaped = 0
try:
    for i in range(60):
        s = scripted.Scripted(ip, ('code', f'import time; time.sleep({random.random() / 200})'))
        scripted.thread.loop.call_soon_threadsafe(
            scripted.thread.loop.call_later, random.random() / 60, s.main.stop, 'button')
        if i % 2: await s.main.run(s.turn)
        else: s.main.run_blocking(s.turn)
        for _ in range(2000): pass
    await asyncio.sleep(0.5)
except BaseException as problem:
    escaped = repr(problem)
print('VALUE', __import__('json').dumps(escaped))
"""
    assert kernel.run(code).value == 0


@pytest.mark.parametrize("door", [awaited, blocking])
def test_what_fails_around_the_code_is_the_runs_failure_and_the_turn_goes_on(
    kernel: Kernel, door: Callable[[str], str]
) -> None:
    code = """
class Broken:
    def __enter__(self): raise OSError(24, 'Too many open files')
    def __exit__(self, *_): pass
async def both():
    try: await s.main.run_code('1', print, scope=Broken())
    except OSError as problem: got = problem.errno
    return [got, (await s.main.run_code('2 + 2', print)).result]
s = scripted.Scripted(ip)
""" + ("await s.main.run(both)" if door is awaited else "s.main.run_blocking(both)") + "\ns.finish()"
    assert kernel.run(code).value == [24, "4"]


def test_a_handler_that_code_installs_does_not_outlive_its_run(kernel: Kernel) -> None:
    code = "('code', 'import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)')"
    cell = kernel.run(awaited(f"{code}, ('wait', 60)"), when="LIVE ready", act=act_interrupt)
    assert cell.errors == ["KeyboardInterrupt"]
    assert is_clean(kernel)


@pytest.mark.paced
def test_a_turn_that_does_not_close_is_given_up_after_two_seconds(kernel: Kernel) -> None:
    code = """
import asyncio
async def stubborn():
    print('LIVE ready', flush=True)
    for _ in range(300):
        try: await asyncio.sleep(0.1)
        except asyncio.CancelledError: pass
s = scripted.Scripted(ip).button()
await s.main.run(stubborn)
"""
    cell = kernel.run(code, when="LIVE ready", act=act_stop)
    assert cell.errors == ["AgentError"]
    assert 1.9 < cell.latency < within(3, 20)


def test_a_job_after_the_stop_is_refused(kernel: Kernel) -> None:
    code = """
import asyncio
async def late():
    print('LIVE ready', flush=True)
    try: await asyncio.sleep(60)
    except asyncio.CancelledError:
        try: return await s.main.call(lambda: 'ran')
        except asyncio.CancelledError: return 'refused'
s = scripted.Scripted(ip).button()
await s.main.run(late)
s.finish()
"""
    assert kernel.run(code, when="LIVE ready", act=act_stop).value == "refused"


@pytest.mark.paced
def test_a_timeout_around_a_run_ends_the_code_and_not_the_turn(kernel: Kernel) -> None:
    code = """
import asyncio, time
async def timed():
    got = []
    try:
        async with asyncio.timeout(0.3): await s.main.run_code('import time; time.sleep(60)', print)
    except TimeoutError: got.append('timeout')
    got.append((await s.main.run_code('2 + 2', print)).result)
    return got
s = scripted.Scripted(ip)
await s.main.run(timed)
s.finish()
"""
    cell = kernel.run(code)
    assert cell.value == ["timeout", "4"]
    assert cell.seconds < within(2, 20)


def test_the_turn_goes_on_while_code_blocks_the_main_thread(kernel: Kernel) -> None:
    code = """
import asyncio, time
async def both():
    ticks = 0
    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02); ticks += 1
    t = asyncio.create_task(tick())
    pieces = []
    await s.main.run_code("import time\\nfor i in range(5):\\n  print(i); time.sleep(0.1)", pieces.append)
    t.cancel()
    return [ticks > 5, len(pieces) >= 4, ''.join(pieces)]
s = scripted.Scripted(ip)
await s.main.run(both)
s.finish()
"""
    assert kernel.run(code).value == [True, True, "0\n1\n2\n3\n4\n"]


def test_answers_and_short_calls_come_from_the_main_thread(kernel: Kernel) -> None:
    steps = "('ask', 'name? '), ('call', '__import__(\"threading\").current_thread().name')"
    cell = kernel.run(awaited(steps), answer="Ada")
    assert cell.value["done"] == [["answer", "Ada"], ["call", "MainThread"]]


def test_a_question_that_nobody_can_answer_raises_in_the_turn(kernel: Kernel) -> None:
    cell = kernel.run(awaited("('ask', 'name? ')"), allow_stdin=False)
    assert cell.value["status"] == "failed"
    assert "StdinNotImplementedError" in cell.value["why"]


def test_the_blocking_door_serves_cell_magics(kernel: Kernel) -> None:
    kernel.run(
        "from IPython.core.magic import register_cell_magic\n@register_cell_magic\ndef scripted_cell(line, cell):\n"
        "    s = scripted.Scripted(ip, ('code', cell)); s.blocking()"
    )
    cell = kernel.run("%%time\n%%scripted_cell\nimport asyncio\nawait asyncio.sleep(0.01)\n6 * 7")
    assert cell.value["done"][0]["result"] == "42"
    assert kernel.run("import asyncio; await asyncio.sleep(0.01); print('VALUE 1')").value == 1


def test_an_exception_of_the_turn_comes_out_of_the_door(kernel: Kernel) -> None:
    code = "async def bad(): raise ValueError('turn')\ns = scripted.Scripted(ip)\nawait s.main.run(bad)"
    assert kernel.run(code).errors == ["ValueError"]


SWALLOWING = {
    "except": "while True:\n  try: time.sleep(.1)\n  except: pass",
    "busy": "while True:\n  try:\n    while True: x = 1\n  except: pass",
    "suppress": "import contextlib\nwhile True:\n  with contextlib.suppress(BaseException): time.sleep(.1)",
    "finally": "while True:\n  try: time.sleep(.1)\n  finally: continue",
    "nested": """
def f():
  while True:
    try: time.sleep(.05)
    except: pass
while True:
  try:
    while True:
      try: f()
      except: time.sleep(.05)
  except: pass""",
    "recursive": "def f():\n  try: time.sleep(5)\n  except: f()\nf()",
    "generator": "def g():\n  while True:\n    try: yield time.sleep(.1)\n    except: yield 0\nfor _ in g(): pass",
    "library": """
import concurrent.futures as c
while True:
  try:
    with c.ThreadPoolExecutor(1) as pool: pool.submit(time.sleep, .2).result()
  except: pass""",
    "await": "import asyncio\nwhile True:\n  try: await asyncio.sleep(.1)\n  except BaseException: pass",
    "nested await": """
import asyncio
async def f():
  while True:
    try: await asyncio.sleep(1)
    except BaseException: pass
while True:
  try: await f()
  except BaseException: pass""",
    "gather": """
import asyncio
async def f():
  while True:
    try: await asyncio.sleep(1)
    except BaseException: pass
await asyncio.gather(f(), f())""",
    "busy after await": """
import asyncio
await asyncio.sleep(.01)
while True:
  try: time.sleep(.1)
  except BaseException: pass""",
}


@pytest.mark.paced
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("shape", SWALLOWING)
def test_code_that_swallows_interrupts_is_stopped_all_the_same(
    kernel: Kernel, shape: str, door: Callable[[str], str]
) -> None:
    code = f"import time\nprint('ready')\n{SWALLOWING[shape]}"
    cell = kernel.run(door(f"('code', {code!r}), ('code', 'NEVER = 1')"), when="LIVE ready", act=act_stop)
    assert cell.latency < LIMIT
    assert cell.value["status"] == "stopped"
    assert kernel.eval("__import__('sys').gettrace()") in (None, "None")
    assert is_clean(kernel)
