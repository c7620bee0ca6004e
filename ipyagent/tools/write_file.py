"""`write_file`: a whole file at once; over an existing file only when it was read and is unchanged."""

from __future__ import annotations

import glob as globs
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import PermissionQuestion, ToolOutput, Workspace
from ipyagent.kernel.notebook import Notebook
from ipyagent.tools.answers import text_output
from ipyagent.tools.changes import PendingChange, current, known, left_out, refuse_stand_in
from ipyagent.tools.encodings import Decoded, decode
from ipyagent.tools.paths import shown, writable
from ipyagent.tools.schema import tool
from ipyagent.tools.standing_files import in_force


def planned(path: str, content: str, workspace: Workspace) -> PendingChange:
    """The change this call makes now. Raises ToolFailure."""
    target = writable(path, workspace)
    if target.suffix.lower() == ".ipynb" and current(target) is None:
        raise ToolFailure(f"{path}: a notebook is made by cells: notebook(action='insert') creates it")
    before = known(target, workspace)
    refuse_notebook(target, before)
    old = Decoded("") if before is None else decode(before)
    if old is None:
        raise ToolFailure(f"{path} is a binary file; write it with python")
    refuse_stand_in(content, old.text)
    if old.newline not in content:
        content = content.replace("\n", old.newline)
    return PendingChange(target, before, old.encode(content))


def refuse_notebook(path: Path, data: bytes | None) -> None:
    """Raise ToolFailure for a notebook that can be read: it is changed by cells. A broken one is text."""
    if path.suffix.lower() != ".ipynb" or data is None:
        return
    try:
        Notebook.read(data)
    except ToolFailure:
        return
    raise ToolFailure(f"{path.name} is a notebook; change its cells by id with the notebook tool (action='read' first)")


def _question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    change = planned(arguments["path"], arguments["content"], workspace)
    return change.question("Create" if change.before is None else "Overwrite", workspace)


def _pattern(arguments: dict[str, Any], workspace: Workspace) -> str:
    cut = " cut short" if _left_out(arguments, workspace) else ""  # a yes to others is none to such a call
    return f"write_file({globs.escape(subject(arguments['path'], workspace))}{cut})"


def _destructive(arguments: dict[str, Any], workspace: Workspace) -> str:
    return _left_out(arguments, workspace) or in_force(subject(arguments["path"], workspace), workspace.root)


def _left_out(arguments: dict[str, Any], workspace: Workspace) -> str:
    change = planned(arguments["path"], arguments["content"], workspace)
    old = decode(change.before) if change.before is not None else None
    return left_out(arguments["content"], old.text) if old is not None else ""


def subject(path: str, workspace: Workspace) -> str:
    """What a permission rule is compared with: the path relative to the project."""
    return writable(path, workspace).relative_to(workspace.root).as_posix()


@tool(permission="ask", writes=True, question=_question, pattern=_pattern, destructive=_destructive)
async def write_file(path: str, content: str, *, workspace: Workspace) -> ToolOutput:
    """Write a text file inside the project, with the folders it needs. A file that exists must have been read with
    `read_file` in this session and be unchanged since; its encoding and line ends are kept. To change a part use
    `edit_file`.
    """
    change = planned(path, content, workspace)
    name = shown(change.path, workspace)
    if change.before == change.after:
        return text_output(f"{name} has this content already", note="no change")
    await change.write(workspace)
    verb = "created" if change.before is None else "written"
    return text_output(f"{verb} {name} ({len(change.after):,} bytes)", note=change.counts())
