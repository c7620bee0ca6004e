"""The page on threads names every place that starts one, and nothing is left that it does not name."""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rooms import room

from ipyagent.practice.replies import Reply, text, tool
from ipyagent.practice.server import PracticeServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
THREADS = {"Thread", "Timer", "ThreadPoolExecutor", "AgentLoop", "ThreadingHTTPServer"}
BESIDE = {"to_thread", "run_in_executor"}
INTO = {"call_soon_threadsafe", "run_coroutine_threadsafe"}
PROCESSES = {"Popen", "ProcessPoolExecutor", "create_subprocess_exec", "create_subprocess_shell", "subprocess.run"}


@functools.cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Every call of a name in those files of the package in which one of these stands: the file, what is called, and
    the call itself."""
    one_of_these = re.compile(rf"(?:{'|'.join(THREADS | BESIDE | INTO | PROCESSES)})\(")
    return [
        (path.relative_to(ROOT / "ipyagent").as_posix(), dotted(node.func), node)
        for path in (ROOT / "ipyagent").rglob("*.py")
        if one_of_these.search(source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    ]


def dotted(node: ast.expr) -> str:
    """The last two names of what is called."""
    if isinstance(node, ast.Name):
        return node.id
    assert isinstance(node, ast.Attribute)
    return f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else f"….{node.attr}"


def calling(names: set[str]) -> set[str]:
    """Files of the package that call one of these."""
    return {file for file, called, _ in calls() if called in names or called.rpartition(".")[2] in names}


def named(part: str) -> set[str]:
    return set(re.findall(r"`((?:\w+/)*\w+\.py)`", part))


def test_every_place_that_starts_a_thread_or_process_or_enters_the_loop_stands_on_the_page() -> None:
    table = "\n".join(line.split("|")[2] for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line)
    beside, into, processes = (
        next(line for line in PAGE.splitlines() if line.startswith(begins))
        for begins in ("`asyncio.to_thread` is", "Other threads reach", "Processes are started")
    )
    assert named(table) == calling(THREADS)
    assert named(beside) == calling(BESIDE)
    assert named(into) == calling(INTO)
    assert named(processes) == calling(PROCESSES)


def test_every_thread_has_a_telling_name() -> None:
    for file, called, node in calls():
        if called in ("threading.Thread", "Thread"):
            name = next((ast.unparse(each.value) for each in node.keywords if each.arg == "name"), "")
            assert "ipyagent-" in name or name == "self._name", f"{file}: {name}"


LEFT = """
import gc as _gc, json as _json, os as _os, sys as _sys, threading as _threading, time as _time, psutil as _psutil
def _there():
    fds = {}
    for fd in _os.listdir('/proc/self/fd') if _os.path.isdir('/proc/self/fd') else ():
        try:
            fds[fd] = _os.readlink(f'/proc/self/fd/{fd}')
        except OSError:
            pass
    loop = _sys.modules.get('ipyagent.loop.session')
    kept = loop.Session if loop else ()
    return {'threads': sorted(each.name for each in _threading.enumerate()), 'fds': sorted(fds.values()),
            'processes': [' '.join(each.cmdline()) for each in _psutil.Process().children(recursive=True)],
            'sessions': sum(isinstance(each, kept) for each in _gc.get_objects()) if kept else 0}
def _said(value):
    print('VALUE', _json.dumps(value))
from zmq.utils.garbage import gc as _collector
_collector.start()  # pyzmq's own thread, which begins with the first large message and stays
"""
CLOSED = """
import collections as _collections, re as _re
def _kinds(there):
    return _collections.Counter(_re.sub(r'[0-9]+', '', each) for each in there['fds'])
_end, _out = _time.monotonic() + 25, get_ipython().kernel.iopub_thread
_drop = getattr(_out, '_event_pipe_gc', None)  # the pipes of threads that ended: else every ten seconds
while True:
    _gc.collect()
    if _drop:
        _out.io_loop.add_callback(_drop)
    _now = _there()
    _ours = [name for name in _now['threads'] if 'ipyagent' in name]
    _left = _ours or _now['processes'] or _now['sessions'] or (_kinds(_now) - _kinds(_before)).total() > 2
    if not _left or _time.monotonic() > _end:
        break
    _time.sleep(0.1)
_said(_now)
"""


def test_after_everything_was_used_and_closed_nothing_of_ours_is_left(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        first, made = str(body["messages"][0]), sum(message["role"] == "assistant" for message in body["messages"])
        steps = [
            tool("mcp__odd__echo", {"text": "hello"}),
            tool("shell", {"command": "echo one"}),
            tool("agent", {"task": "look", "prompt": "look around"}),
            tool("python", {"code": "x = 1"}),
        ]
        return steps[made] if "use all" in first and made < len(steps) else text("done")

    odd = str(Path(__file__).parents[1] / "parts" / "mcp" / "odd_server.py")
    with PracticeServer(answer, any_model=True) as server, room(tmp_path, server=server, IPYAGENT_MODE="auto") as place:
        place.home.mkdir(parents=True)
        entry = {"command": sys.executable, "args": ["-S", odd]}
        (place.home / "mcp.json").write_text(json.dumps({"mcpServers": {"odd": entry}}))
        place.ok(LEFT)
        before = place.ok("_before = _there(); _said(_before)").value
        place.ok("%load_ext ipyagent")
        place.ok("%%agent\nuse all", timeout=60.0)
        during = place.ok("_said(_there())").value
        assert "ipyagent-agent" in during["threads"]
        assert any("odd_server" in each for each in during["processes"]), "the MCP server ran"
        many = "rows = ipyagent.agent_map(['a', 'b', 'c'], prompt='Say {item}', progress=False)"
        place.ok(f"import ipyagent\n{many}\ndel rows", timeout=60.0)
        place.ok("%agent panel", timeout=30.0, headless=False)
        assert "ipyagent-board" in place.ok("_said(_there())").value["threads"]
        place.ok("%unload_ext ipyagent", timeout=30.0)
        after = place.ok(CLOSED, timeout=40.0).value
    rows = "\n".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| "))
    shown = re.findall(r"`(ipyagent-[^`]+)`", rows)
    named = [re.escape(name).replace("N", r"\d+").replace("…", ".*") for name in shown]
    ran = [name for name in during["threads"] if "ipyagent" in name]
    assert [name for name in ran if not any(re.fullmatch(each, name) for each in named)] == []
    assert [name for name in after["threads"] if name not in before["threads"]] == []
    assert after["processes"] == before["processes"]
    assert after["sessions"] == 0
    kinds = [re.sub(r"\d+", "", each) for each in before["fds"]]
    left = [each for each in after["fds"] if re.sub(r"\d+", "", each) not in kinds]
    assert left == [], "a file is left open"
    more = Counter(re.sub(r"\d+", "", each) for each in after["fds"]) - Counter(kinds)
    assert more.total() <= 2, more
