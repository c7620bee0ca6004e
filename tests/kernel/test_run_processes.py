"""Stop ends every process that the code started, in whatever shape, and no process of anybody else's."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
from kernels import Kernel

from ipyagent.kernel.processes import ChildProcessTracker

# ruff: noqa: E501 - one shape a line
TIME = 20_000 + os.getpid()
"""Seconds to sleep: how the processes of one test run are told from others."""
THEIRS = TIME + 50_000
SLEEP = f"sleep {TIME}"
PYTHON = f"import sys, time; sys.argv[1:] == ['{TIME}']; time.sleep({TIME})"
PRINT = "print('rea' + 'dy', flush=True)"

SHELL = {
    "one": SLEEP,
    "in the background": f"{SLEEP} & wait",
    "several": f"{SLEEP} & {SLEEP} & {SLEEP}",
    "a sub-shell": f"({SLEEP})",
    "sub-shells in sub-shells": f"(({SLEEP}; {SLEEP}) & ({SLEEP} & {SLEEP}) & wait)",
    "left behind by its sub-shell": f"({SLEEP} &) ; {SLEEP}",
    "setsid": f"setsid {SLEEP}",
    "setsid in the background": f"setsid {SLEEP} & {SLEEP}",
    "setsid of a shell": f"setsid bash -c '{SLEEP} & {SLEEP}' & {SLEEP}",
    "orphan with a session of its own": f"(setsid {SLEEP} &) ; {SLEEP}",
    "orphan without an environment": f"(setsid env -i {SLEEP} &) ; {SLEEP}",
    "nohup": f"nohup {SLEEP} >/dev/null 2>&1 & {SLEEP}",
    "a pipe": f"{SLEEP} | cat | cat",
    "a pipe in the background": f"({SLEEP} | cat) & {SLEEP}",
    "deaf to SIGTERM": f"trap '' TERM INT; {SLEEP} & {SLEEP}; {SLEEP}",
    "asked to end, it starts another": f"trap 'setsid {SLEEP} & exit' TERM; {SLEEP} & wait",
    "xargs": f"echo {TIME} {TIME} | xargs -n1 -P2 sleep",
    "timeout": f"timeout 9999 {SLEEP}",
    "a here-document": f"bash <<END\n{SLEEP} &\n{SLEEP}\nEND",
    "exec": f"exec {SLEEP}",
}
WAYS = {
    "subprocess.run": "import subprocess; subprocess.run(['bash', '-c', %r])",
    "os.system": "import os; os.system(%r)",
    "a line with !": "get_ipython().system(%r)",
}
CODE = {
    "Popen and on": f"import subprocess as s, time; p = s.Popen('{SLEEP}', shell=True); time.sleep(60)",
    "Popen of a session": f"import subprocess as s, time; s.Popen('{SLEEP} & {SLEEP}', shell=True, start_new_session=True); time.sleep(60)",
    "Popen with no environment": f"import subprocess as s, time; s.Popen(['sleep', '{TIME}'], env={{}}, start_new_session=True); time.sleep(60)",
    "a thread starts it": f"import threading, subprocess as s, time; threading.Thread(target=s.run, args=(['sleep', '{TIME}'],), daemon=True).start(); time.sleep(60)",
    "a pool of threads": f"import concurrent.futures as c, subprocess as s\nwith c.ThreadPoolExecutor(3) as pool: list(pool.map(lambda n: s.run(['sleep', '{TIME}']), range(3)))",
    "fork": f"import os, time\nif os.fork() == 0:\n    os.execvp('sleep', ['sleep', '{TIME}'])\ntime.sleep(60)",
    "fork without exec": f"import os, time, sys\nif os.fork() == 0:\n    os.setsid()\n    import subprocess as s; s.run(['sleep', '{TIME}'])\n    os._exit(0)\ntime.sleep(60)",
    "double fork": f"import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.execve('/bin/sleep', ['sleep', '{TIME}'], {{}})\n    os._exit(0)\nos.wait(); time.sleep(60)",
    "multiprocessing fork": f"import multiprocessing as m, os\nm.get_context('fork').Pool(2).map(os.system, ['{SLEEP}'] * 2)",
    "multiprocessing spawn": f"import multiprocessing as m, os\nm.get_context('spawn').Pool(2).map(os.system, ['{SLEEP}'] * 2)",
    "multiprocessing forkserver": f"import multiprocessing as m, os\nm.get_context('forkserver').Pool(2).map(os.system, ['{SLEEP}'] * 2)",
    "a process pool": f"import concurrent.futures as c, os\nwith c.ProcessPoolExecutor(2) as pool: list(pool.map(os.system, ['{SLEEP}'] * 2))",
    "asyncio": f"import asyncio\np = await asyncio.create_subprocess_shell('{SLEEP} & {SLEEP}')\nawait p.wait()",
    "posix_spawn": f"import os, time; os.posix_spawnp('sleep', ['sleep', '{TIME}'], os.environ); time.sleep(60)",
    "pty": f"import pty; pty.spawn(['sleep', '{TIME}'])",
    "interrupts swallowed": f"import subprocess as s\nwhile True:\n    try: s.run(['sleep', '{TIME}'])\n    except: pass",
    "interrupts swallowed, deaf children": f"import subprocess as s\nwhile True:\n    try: s.run(['bash', '-c', \"trap '' TERM INT; sleep {TIME}\"])\n    except: pass",
}


QUICK = (
    "orphan without an environment", "deaf to SIGTERM", "asked to end, it starts another",
    "a line with !, setsid of a shell",
    "a thread starts it", "double fork", "a process pool", "asyncio", "interrupts swallowed, deaf children",
)
"""The shapes that are hardest to find or to end; the others are slow ones."""


def cases() -> list[object]:
    first, *others = WAYS.items()
    made = {shape: first[1] % line for shape, line in SHELL.items()} | CODE
    for name, way in others:
        for shape in ("sub-shells in sub-shells", "orphan with a session of its own", "setsid of a shell"):
            made[f"{name}, {shape}"] = way % SHELL[shape]
    assert set(QUICK) <= set(made)
    slow = pytest.mark.slow
    return [pytest.param(code, id=shape, marks=() if shape in QUICK else slow) for shape, code in made.items()]


@pytest.fixture(scope="module", autouse=True)
def _nothing_sleeps_on(kernel: Kernel) -> Iterator[None]:
    yield
    for process in sleeping(TIME) + sleeping(THEIRS):
        process.kill()


def sleeping(seconds: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.cmdline()[-2:] == ["sleep", str(seconds)]:
                found.append(process)
        except (psutil.Error, IndexError):
            continue
    return found


def alive_children(kernel: Kernel) -> set[int]:
    """The kernel's descendants that live, less multiprocessing's own keeper of shared memory."""
    found = psutil.Process(int(kernel.eval("__import__('os').getpid()"))).children(recursive=True)
    return {child.pid for child in found if lives(child) and "resource_tracker" not in " ".join(child.cmdline())}


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def begun(seconds: int, patience: float = 10) -> bool:
    until = time.monotonic() + patience
    while time.monotonic() < until and not sleeping(seconds):
        time.sleep(0.02)
    return bool(sleeping(seconds))


@pytest.mark.skipif(os.name != "posix", reason="shells and signals")
@pytest.mark.parametrize("code", cases())
def test_nothing_that_stopped_code_started_lives(kernel: Kernel, code: str) -> None:
    started: list[bool] = []
    children = alive_children(kernel)

    def stop(kernel: Kernel) -> None:
        started.append(begun(TIME))
        time.sleep(0.15)  # so that it has taken its shape
        kernel.click({"kind": "stop"})

    source = f"{PRINT}\n{code}"
    cell = kernel.run(
        f"s = scripted.Scripted(ip, ('code', {source!r}), ('code', 'NEVER = 1')).button()\nawait s.awaited()",
        when="LIVE ready", act=stop,
    )  # fmt: skip
    assert started == [True]
    assert cell.value["status"] == "stopped"
    assert cell.errors == []
    assert [process.cmdline() for process in sleeping(TIME)] == []
    time.sleep(0.2)  # a pool would have replaced its workers
    assert alive_children(kernel) <= children


@pytest.mark.skipif(os.name != "posix", reason="shells and signals")
def test_what_others_start_meanwhile_lives_and_so_does_what_was_there(kernel: Kernel) -> None:
    kernel.run(
        "import subprocess, threading, time\n"
        f"earlier = subprocess.Popen(['sleep', '{THEIRS}'])\n"
        "go = threading.Event()\n"
        f"def theirs():\n    go.wait(); subprocess.Popen('setsid sleep {THEIRS} & sleep {THEIRS}', shell=True)\n"
        "thread = threading.Thread(target=theirs, daemon=True); thread.start()"
    )
    source = f"{PRINT}\nimport time, subprocess\ngo.set(); time.sleep(0.2)\nsubprocess.run('setsid {SLEEP} & {SLEEP}', shell=True)"

    def stop(kernel: Kernel) -> None:
        assert begun(TIME)
        assert begun(THEIRS)
        kernel.click({"kind": "stop"})

    cell = kernel.run(
        f"s = scripted.Scripted(ip, ('code', {source!r})).button()\nawait s.awaited()", when="LIVE ready", act=stop
    )
    assert cell.value["status"] == "stopped"
    assert sleeping(TIME) == []
    assert len(sleeping(THEIRS)) == 3
    assert kernel.eval("__import__('os').environ.get('IPYAGENT_COMMAND', '')") in ("", "''")


@pytest.mark.skipif(os.name != "posix", reason="shells and signals")
def test_a_run_that_ends_by_itself_leaves_its_server_running_and_no_zombies(kernel: Kernel) -> None:
    for process in sleeping(TIME):
        process.kill()
    zombies = "[p.pid for p in __import__('psutil').Process().children() if p.status() == 'zombie']"
    before = kernel.eval(f"str({zombies})")
    source = f"import subprocess, time\nserver = subprocess.Popen(['sleep', '{TIME}'])\nsubprocess.run('(sleep 0.01 &) ; (setsid sleep 0.01 &)', shell=True); time.sleep(1)"
    cell = kernel.run(f"s = scripted.Scripted(ip, ('code', {source!r})).button()\nawait s.awaited()")
    assert cell.value["status"] == "finished"
    assert len(sleeping(TIME)) == 1
    assert kernel.eval(f"str({zombies})") == before
    kernel.run("server.kill(); server.wait()")


def test_other_threads_go_through_the_environment_while_code_starts_processes() -> None:
    over, faults = threading.Event(), list[Exception]()

    def reads() -> None:
        while not over.is_set():
            try:
                dict(os.environ)
            except Exception as problem:  # noqa: BLE001 - what it met is what the test is about
                faults.append(problem)

    def starts() -> None:
        while not over.is_set():
            subprocess.run(["true"], check=True)

    threads = [threading.Thread(target=work) for work in (reads, starts)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            with ChildProcessTracker():
                subprocess.run(["true"], check=True)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert faults == []
