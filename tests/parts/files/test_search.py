from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.parts.files import search_tools as grep_module
from ipyagent.parts.files.search_tools import glob, grep
from ipyagent.parts.files.searching import glob_regex, match_in
from ipyagent.parts.files.tools import read_file
from ipyagent.tools.schema import FunctionTool


def run(made: FunctionTool, workspace: ShellWorkspace, **input: Any) -> str:
    output = asyncio.run(made.run(input, workspace))
    return "".join(block.get("text", "") for block in output.blocks)


@pytest.fixture
def files(workspace: ShellWorkspace) -> ShellWorkspace:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.txt", ".git/e.py", "node_modules/f.py", "env/g.py"):
        path = workspace.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\nimport os\nvalue = 'Ünï'\n")
    (workspace.root / "env/pyvenv.cfg").write_text("")
    (workspace.root / "bin.py").write_bytes(b"import os\x00\x01")
    return workspace


def test_globs_match_as_written() -> None:
    for pattern, yes, no in (
        ("*.py", ["a.py", "x/a.py"], ["a.pyc", "a.py/x"]),
        ("src/*.py", ["src/a.py"], ["src/x/a.py", "a.py"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py"]),
        ("**/t?.{csv,tsv}", ["t1.csv", "x/t2.tsv"], ["t1.txt", "t12.csv"]),
        ("[!a]*", ["b"], ["a"]),
        ("a+b(1).txt", ["a+b(1).txt"], ["aab1.txt"]),
    ):
        assert [name for name in (*yes, *no) if glob_regex(pattern).match(name)] == yes


def test_glob_is_sorted_leaves_environments_out_and_is_relative_to_the_notebooks_folder(files: ShellWorkspace) -> None:
    assert run(glob, files, pattern="*.py").splitlines() == ["a.py", "bin.py", "src/b.py", "src/deep/c.py"]
    assert run(glob, files, pattern="*.py", path="src").splitlines() == ["src/b.py", "src/deep/c.py"]
    assert "no file matches" in run(glob, files, pattern="*.rs")
    with pytest.raises(ToolFailure, match="`pattern` is empty"):
        run(glob, files, pattern="")
    inner = ShellWorkspace(files.root, folder=files.root / "src")
    assert run(glob, inner, pattern="a.py", path="..") == "../a.py"
    assert run(grep, inner, pattern="import", glob="b.py") == "b.py:2:import os"


def test_glob_is_bounded(workspace: ShellWorkspace) -> None:
    for n in range(600):
        (workspace.root / f"{n:03}.txt").touch()
    lines = run(glob, workspace, pattern="*").splitlines()
    assert len(lines) == 501
    assert lines[-1].startswith("[more than 500")


def test_grep_gives_path_line_and_text(files: ShellWorkspace) -> None:
    assert run(grep, files, pattern="^import").splitlines() == ["a.py:2:import os", "src/b.py:2:import os",
        "src/d.txt:2:import os", "src/deep/c.py:2:import os"]  # fmt: skip
    assert run(grep, files, pattern="ünÏ", ignore_case=True, glob="b.py") == "src/b.py:3:value = 'Ünï'"
    assert run(grep, files, pattern="import", path="a.py", context=1).splitlines() == [
        "a.py-1-# a.py", "a.py:2:import os", "a.py-3-value = 'Ünï'"]  # fmt: skip
    assert "[more than 2 matches" in run(grep, files, pattern="import", max_results=2)
    assert "no line matches in" in run(grep, files, pattern="nowhere")
    with pytest.raises(ToolFailure, match="not a regular expression"):
        run(grep, files, pattern="f(")


def test_a_match_in_a_long_line_is_shown_by_what_is_around_it(workspace: ShellWorkspace) -> None:
    line = "x" * 700_000 + " needle 12 " + "y" * 300_000
    (workspace.root / "min.js").write_text(f"first\n{line}\nlast needle 3\n")
    long, short = run(grep, workspace, pattern=r"needle \d+").splitlines()
    assert short == "min.js:3:last needle 3"
    assert long.startswith("min.js:2:…xxx")
    assert " needle 12 yyy" in long
    assert long.endswith("yyy… [first match at character 700,002 of 1,000,011]")
    assert len(long) < 420
    assert "in 1 file\n[in lines over 8,192 characters only" in run(grep, workspace, pattern="x{8}$")
    for pattern, at in (("^x", "1"), ("y$", "1,000,011"), (" needle.*", "700,001"), (r"\bneedle", "700,002")):
        assert f"[first match at character {at} of" in run(grep, workspace, pattern=pattern, max_results=1), pattern


def test_searching_long_lines_is_linear_in_them(workspace: ShellWorkspace) -> None:
    seconds = []
    for size in (30_000, 120_000):
        line = "foo " * (size // 4)
        began = time.perf_counter()
        assert match_in(re.compile("foo.*bar"), line) is None
        seconds.append(time.perf_counter() - began)
    assert seconds[1] < 8 * seconds[0]  # quadratic would be 16


def test_lines_are_counted_as_read_file_counts_them(workspace: ShellWorkspace) -> None:
    (workspace.root / "old.txt").write_bytes(b"one\rtwo\r\nthree\r")
    assert run(grep, workspace, pattern="e$|^$").splitlines() == ["old.txt:1:one", "old.txt:3:three"]
    stored = workspace.root / "tool-results" / "call.txt"
    stored.parent.mkdir()
    stored.write_text("a" * 4_500 + "\n" + "b" * 2_100 + "hit" + "\nhit\n")
    found = run(grep, workspace, pattern="hit", path="tool-results").splitlines()
    assert [line.split(":")[1] for line in found] == ["5", "6"]
    for line in found:
        page = asyncio.run(
            read_file.run({"path": str(stored), "offset": int(line.split(":")[1]), "limit": 1}, workspace)
        )
        assert "hit" in page.blocks[0]["text"]


def test_a_file_that_is_searched_in_part_is_named(workspace: ShellWorkspace) -> None:
    (workspace.root / "big.txt").write_text("line\n" * 1_000_000 + "the end\n")
    said = run(grep, workspace, pattern="the end")
    assert said == "no line matches in 1 file\n[only the first 4,194,304 bytes were searched of big.txt]"


def test_a_link_out_of_the_project_is_not_searched(workspace: ShellWorkspace, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (workspace.root / "link.txt").symlink_to(tmp_path / "secret.txt")
    assert "no line matches" in run(grep, workspace, pattern="secret")


def test_a_catastrophic_pattern_neither_hangs_nor_blocks_the_loop(workspace: ShellWorkspace) -> None:
    (workspace.root / "a.txt").write_text("a" * 60 + "!\n")

    async def both() -> float:
        worst = 0.0
        search = asyncio.ensure_future(grep.run({"pattern": "(a+)+$"}, workspace))
        began = time.monotonic()
        while time.monotonic() - began < 0.6:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            worst = max(worst, time.monotonic() - before)
        assert not search.done()
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        return worst

    assert asyncio.run(both()) < 0.5
    until = time.monotonic() + 2
    while time.monotonic() < until and _searching():
        time.sleep(0.02)
    assert not _searching()


def test_a_cancelled_walk_returns_at_once(workspace: ShellWorkspace) -> None:
    for n in range(40):
        (workspace.root / f"d{n}").mkdir()
        for m in range(100):
            (workspace.root / f"d{n}/{m}").touch()

    async def cancelled() -> float:
        walking = asyncio.ensure_future(glob.run({"pattern": "*.none"}, workspace))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        began = time.monotonic()
        walking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await walking
        return time.monotonic() - began

    assert asyncio.run(cancelled()) < 0.2


def _searching() -> bool:
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and grep_module.searching.__file__ in child.cmdline():
                return True
        except psutil.Error:
            continue
    return False
