"""The page on threads names every place that starts one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
THREADS = {"Thread", "Timer", "ThreadPoolExecutor", "AgentThread", "ThreadingHTTPServer"}
BESIDE = {"to_thread", "run_in_executor"}
INTO = {"call_soon_threadsafe", "run_coroutine_threadsafe"}
PROCESSES = {"Popen", "ProcessPoolExecutor", "create_subprocess_exec", "create_subprocess_shell", "subprocess.run"}


def calling(names: set[str]) -> set[str]:
    """Files of the package that call one of these."""
    found = set()
    for path in (ROOT / "ipyagent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else ""
                if called in names or called.rpartition(".")[2] in names:
                    found.add(path.relative_to(ROOT / "ipyagent").as_posix())
    return found


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
    for path in (ROOT / "ipyagent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("threading.Thread", "Thread"):
                name = next((ast.unparse(each.value) for each in node.keywords if each.arg == "name"), "")
                assert "ipyagent-" in name or name == "self._name", f"{path}: {name}"
