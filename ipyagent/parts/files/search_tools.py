"""`glob` and `grep`: files by name, lines by regular expression, sorted and in bounds; lines are matched in a process
that is killed when it takes too long."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.escape import counted
from ipyagent.journal.protocols import ToolOutput, Workspace
from ipyagent.parts.files import searching
from ipyagent.parts.files.documents import Stop, in_worker
from ipyagent.parts.files.searching import glob_regex, walk
from ipyagent.tools.answers import capped, clean, text_output
from ipyagent.tools.notebook_view import hidden_lines
from ipyagent.tools.paths import reading, resolved, shown
from ipyagent.tools.schema import tool

# ---- `glob`: files by name, sorted, in bounds.

MOST = 500
"""Paths listed."""
SECONDS = 20.0
"""Longest walk."""


@tool(**reading("glob", "List a folder outside the project?"))
async def glob(pattern: str, path: str = ".", *, workspace: Workspace) -> ToolOutput:
    """Find files by name. Version control, caches and environments are left out.

    Args:
        pattern: `*.py` for names in any folder, `src/**/*.{csv,tsv}` for paths below `path`.
        path: The folder to start in.
    """
    top = resolved(path, workspace)
    if not top.is_dir():
        raise ToolFailure(f"no folder {path}")
    if not pattern.strip():
        raise ToolFailure("`pattern` is empty")
    try:
        regex = glob_regex(pattern)
    except re.error as problem:
        raise ToolFailure(f"{pattern!r} is not a glob: {problem}") from None

    def work(stop: Stop) -> tuple[list[str], str]:
        found: list[str] = []
        end = time.monotonic() + SECONDS
        for name in walk(str(top)):
            stop.check()
            if time.monotonic() > end:
                return found, f"[stopped after {SECONDS:.0f} s: start in a smaller folder]"
            if regex.match(name):
                if len(found) == MOST:
                    return found, f"[more than {MOST} files: narrow the pattern]"
                found.append(shown(top / name, workspace))
        return found, ""

    found, remark = await in_worker(work)
    if not found and not remark:
        return text_output(f"no file matches {pattern} in {shown(top, workspace)}", note="0 files")
    count = "1 file" if len(found) == 1 else f"{len(found)} files"
    return text_output(clean("\n".join([*found, remark]).rstrip("\n")), note=count)


# ---- `grep`: lines by regular expression, matched in a process that is killed when it takes too long.

@tool(**reading("grep", "Search outside the project?"))
async def grep(
    pattern: str,
    path: str = ".",
    glob: str = "",
    ignore_case: bool = False,
    context: int = 0,
    max_results: int = 200,
    *,
    workspace: Workspace,
) -> ToolOutput:
    """Search files for lines that match a regular expression (Python's syntax). Returns `path:line:text`; binary files,
    version control, caches and environments are left out.

    Args:
        path: A folder or a file.
        context: Lines before and after, at most 20.
        max_results: Up to 2,000.
    """
    top = resolved(path, workspace)
    if not top.exists():
        raise ToolFailure(f"no file or folder {path}")
    try:
        re.compile(pattern)
        searching.glob_regex(glob)
    except (re.error, RecursionError, OverflowError) as problem:
        raise ToolFailure(f"not a regular expression: {problem}; write \\( \\[ \\. for the characters") from None
    asked = {
        "top": str(top),
        "pattern": pattern,
        "glob": glob,
        "ignore_case": ignore_case,
        "context": max(0, min(context, 20)),
        "max_results": max(1, min(max_results, 2_000)),
        "inside": [str(folder) for folder in (workspace.root, workspace.folder, *workspace.allowed, top)],
    }
    text, finished, failure = await _search(json.dumps(asked).encode())
    if failure:
        raise ToolFailure(f"the search failed: {failure}")
    lines: list[str] = []
    matches = 0
    last: tuple[str, int] | None = None
    files: set[str] = set()
    summary: dict[str, Any] = {}
    hidden: dict[str, Container[int]] = {}
    for row in text.splitlines():
        entry = json.loads(row)
        if isinstance(entry, dict):
            summary = entry
            continue
        name, number, line, matched = entry
        if (name or top.name).endswith(".ipynb"):
            file = top / name if name else top
            if name not in hidden:
                hidden[name] = await asyncio.to_thread(hidden_lines, file)
            if number in hidden[name]:
                continue  # without a word: the number of matches would tell what is there
        if context and last is not None and last != (name, number - 1):
            lines.append("--")
        last = (name, number)
        matches += matched
        files.add(name)
        where = shown(top / name if name else top, workspace)
        lines.append(f"{where}:{number}:{line}" if matched else f"{where}-{number}-{line}")
    if summary.get("more"):
        lines.append(f"[more than {asked['max_results']} matches: narrow the pattern]")
    if not finished:
        lines.append(f"[stopped after {SECONDS:.0f} s: not everything was searched; a simpler pattern or folder helps]")
    if not matches:
        searched = counted(summary.get("files", 0), "file")
        lines.insert(0, f"no line matches in {searched}" if finished else "no match so far")
    if cut := summary.get("cut"):
        names = ", ".join(shown(top / name if name else top, workspace) for name in cut[:5]) + ", …" * (len(cut) > 5)
        lines.append(f"[only the first {searching.LARGEST:,} bytes were searched of {names}]")
    if not matches and summary.get("long"):
        most = f"{searching.STEP:,} characters"
        lines.append(f"[in lines over {searching.WINDOW:,} characters only matches of up to {most} are found]")
    output = capped("\n".join(lines), workspace.limit("tool_output_chars"))
    return text_output(output, note=f"{counted(matches, 'match', 'matches')} in {counted(len(files), 'file')}")


async def _search(request: bytes) -> tuple[str, bool, str]:
    """What the search process wrote (complete lines), whether it finished, and its error."""
    if not sys.executable:
        raise ToolFailure("this Python does not know its own program, so grep cannot run; use python with re")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", str(Path(searching.__file__))),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    output = bytearray()

    async def collect(stdout: asyncio.StreamReader) -> None:
        while piece := await stdout.read(65_536):
            output.extend(piece)

    try:
        process.stdin.write(request)
        process.stdin.close()
        finished = True
        try:
            async with asyncio.timeout(SECONDS):
                await collect(process.stdout)
                await process.wait()
        except TimeoutError:
            finished = False
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    problem = ""
    if finished and process.returncode:
        problem = (await process.stderr.read()).decode(errors="replace").strip().rpartition("\n")[2]
    complete = bytes(output[: output.rfind(b"\n") + 1])
    return complete.decode(), finished, problem
