"""`glob`: files by name, sorted, in bounds."""

from __future__ import annotations

import re
import time
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Permission, PermissionQuestion, ToolOutput, Workspace
from ipyagent.tools.answers import clean, text_output
from ipyagent.tools.paths import read_permission, resolved, shown
from ipyagent.tools.schema import tool
from ipyagent.tools.searching import glob_regex, walk
from ipyagent.tools.worker import Stop, in_worker

MOST = 500
"""Paths listed."""
SECONDS = 20.0
"""Longest walk."""


def _permission(arguments: dict[str, Any], workspace: Workspace) -> Permission:
    return read_permission(arguments["path"], workspace)


def _question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    path = resolved(arguments["path"], workspace)
    return PermissionQuestion(title="List a folder outside the project?", text=f"{path}: {arguments['pattern']}")


def _pattern(arguments: dict[str, Any], workspace: Workspace) -> str:
    return f"glob({resolved(arguments['path'], workspace)})"


@tool(
    permission=_permission, parallel=True, recreatable=True, writes=False, question=_question, pattern=_pattern
)
async def glob(pattern: str, path: str = ".", *, workspace: Workspace) -> ToolOutput:
    """Find files by name. Version control, caches and environments are left out.

    Args:
        pattern: `*.py` for names in any folder, `src/**/*.{csv,tsv}` for paths below `path`.
        path: The folder to start in.
    """
    top = resolved(path, workspace)
    if not top.is_dir():
        raise ToolFailure(f"no folder {path}")
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
