"""`notebook`: cells of an .ipynb file by their ids, read, changed and run. What a page of the user's has not
saved is never overwritten without a word: such an edit is asked for in every mode."""

from __future__ import annotations

import glob as globs
from pathlib import Path
from typing import Any, Literal

import msgspec

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Permission, PermissionQuestion, ToolOutput, Workspace
from ipyagent.kernel.notebook import Cell, Notebook
from ipyagent.kernel.notebook_run import run_cells
from ipyagent.tools.answers import text_block, text_output
from ipyagent.tools.changes import current
from ipyagent.tools.danger import code_danger
from ipyagent.tools.notebook_edit import (
    RELOAD,
    UNSAVED,
    Action,
    Edit,
    EditArguments,
    cut_short,
    known,
    planned,
    remember_place,
    target_of,
)
from ipyagent.tools.notebook_view import cell_text, head_of, hidden, pictures_of, whole_text
from ipyagent.tools.paths import digest, read_permission, shown, writable
from ipyagent.tools.python import output_of
from ipyagent.tools.schema import tool


def _permission(arguments: dict[str, Any], workspace: Workspace) -> Permission:
    asked = EditArguments.of(arguments)
    if asked.action != "read":
        return "ask"
    path = target_of(asked, workspace)
    return "none" if path == workspace.notebook else read_permission(str(path), workspace)


def _pattern(arguments: dict[str, Any], workspace: Workspace) -> str:
    asked = EditArguments.of(arguments)
    path = target_of(asked, workspace)
    subject = path.relative_to(workspace.root).as_posix() if path.is_relative_to(workspace.root) else str(path)
    what = {"read": "read ", "run": "run "}.get(asked.action, "")
    # a yes to edits of a file is none to edits of a page that is open on it
    beside = " while open in a page" if asked.action not in ("read", "run") and workspace.opened(path) else ""
    return f"notebook({what}{globs.escape(subject)}{beside})"


def _destructive(arguments: dict[str, Any], workspace: Workspace) -> str:
    asked = EditArguments.of(arguments)
    path = target_of(asked, workspace)
    if asked.action == "read":
        return ""
    where = workspace.opened(path)
    if asked.action == "run":
        cells = _to_run(asked, path, workspace)
        found = next((why for cell in cells if (why := code_danger(cell.source, path.parent))), "")
        return found or ("" if where == "own" or not where else UNSAVED[where])
    return cut_short(asked, workspace) or (UNSAVED[where] if where else "")


def _question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    asked = EditArguments.of(arguments)
    path = target_of(asked, workspace)
    name = shown(path, workspace)
    if asked.action == "read":
        return PermissionQuestion(title="Read a notebook outside the project?", text=str(path))
    if asked.action != "run":
        return planned(asked, workspace).question()
    cells = _to_run(asked, path, workspace)
    text = "\n\n".join(f"# cell {cell.ident}\n{cell.source}" for cell in cells)
    own = path == workspace.notebook
    title = f"Run cell {cells[-1].ident} of {name}?" if own else f"Run {len(cells)} cells of {name} in a new kernel?"
    return PermissionQuestion(title=title, text=text, language="python")


@tool(
    permission=_permission,
    writes=lambda arguments, workspace: arguments["action"] != "read",
    question=_question,
    pattern=_pattern,
    destructive=_destructive,
    deferred="read, edit and run cells of an .ipynb file",
)
async def notebook(
    action: Action,
    path: str = "",
    cell: str = "",
    source: str = "",
    old: str = "",
    after: str = "",
    before: str = "",
    cell_type: Literal["code", "markdown", "raw"] | None = None,
    cells: list[dict[str, str]] | None = None,
    *,
    workspace: Workspace,
) -> ToolOutput:
    """Read and change a Jupyter notebook by cell: read (all cells with their ids, or one in full
    with `cell`), insert, replace, move, delete, run. Cells are named by id, never by number; read
    the notebook before the first edit. A new or moved cell goes right after `after` or right before
    `before`, without either at the end. Replace keeps the cell's type, metadata, attachments and
    outputs. Run: a cell of the user's own notebook runs in the user's namespace; of another
    notebook everything down to that cell (all without `cell`) runs in a new kernel and the outputs
    are saved in it.

    Args:
        action: What to do.
        path: The .ipynb file; the user's own notebook when left out. Insert creates a missing one.
        cell: The id of the cell to read, replace, move, delete or run.
        source: The source of a new cell, or what takes the place of the old source.
        old: For replace: the exact piece of the source that `source` takes the place of.
        after: The id of the cell that the new or moved one follows.
        before: The id of the cell that the new or moved one precedes.
        cell_type: Of a new cell; code when left out.
        cells: For insert: several new cells in their order, each with `source` and, unless it is code, `cell_type`.
    """
    asked = EditArguments.of(
        {
            "action": action, "path": path, "cell": cell, "source": source, "old": old, "after": after,
            "before": before, "cell_type": cell_type, "cells": cells,
        }
    )  # fmt: skip
    target = target_of(asked, workspace)
    match action:
        case "read":
            return _read(asked, target, workspace)
        case "run":
            return await _run(asked, target, workspace)
        case _:
            edit = planned(asked, workspace)
            where = workspace.opened(target)
            await edit.write(workspace)
            remember_place(asked, edit, workspace)
            return _told(edit, where, len(asked.new) if action == "insert" else 1)


def _read(asked: EditArguments, path: Path, workspace: Workspace) -> ToolOutput:
    name = shown(path, workspace)
    data = current(path)
    if data is None:
        raise ToolFailure(f"no notebook {name}; insert a cell to create it")
    found = Notebook.read(data, workspace.cell_ids.get(path))
    most = workspace.limit("tool_output_chars")
    if asked.cell:
        one = found.find(asked.cell)
        blocks = (text_block(cell_text(one, most)), *pictures_of(one))
        output = ToolOutput(blocks=blocks, note=f"cell {one.ident}")
    else:
        text = whole_text(found, name, most)
        if workspace.opened(path):
            text += "\n[it is open in a page of the user's: what is not saved there is not seen here]"
        output = text_output(text, note=f"{len(found.cells)} cells")
    workspace.read_stamps[path] = digest(data)
    workspace.cell_ids[path] = found.known
    return output


def _told(edit: Edit, where: str, count: int) -> ToolOutput:
    """What was done, where the cells (`count`) stand now, and what the user must do to see it."""
    cells = edit.after.cells
    now = next((cell for cell in cells if cell.ident == edit.ident), None)
    lines = [f"done: {edit.title[0].lower()}{edit.title[1:]}; {len(cells)} cells now"]
    if now is not None:
        for cell in cells[now.number + 1 - count : now.number + 1]:
            above = f"after {cells[cell.number - 1].ident}" if cell.number else "at the top"
            lines.append(f"{head_of(cell)} {above}")
        if now.outputs:
            lines.append("[its outputs are those of the old source until it is run]")
    if edit.completed:
        lines.append(f"[{edit.completed} cells had no id, which the format demands; they have got one]")
    note = f"{len(cells)} cells"
    if where:
        lines.append(
            f"[{RELOAD[where]}: tell the user to reload it (File > Reload Notebook from Disk) before saving. "
            "If Jupyter says at a save that the file has changed on disk: Revert keeps this edit and drops what was "
            "not saved in the page, Overwrite does the opposite]"
        )
        note += "; reload the open page before you save it"
    return text_output("\n".join(lines), note=note)


# ---------------------------------------------------------------------- running


def _to_run(asked: EditArguments, path: Path, workspace: Workspace) -> tuple[Cell, ...]:
    """The cells that a run would run. Raises ToolFailure."""
    found = known(path, workspace)
    if found is None:
        raise ToolFailure(f"no notebook {shown(path, workspace)}")
    if path == workspace.notebook and not asked.cell:
        raise ToolFailure("of the user's own notebook one cell is run at a time; give `cell`")
    last = found.find(asked.cell) if asked.cell else found.cells[-1] if found.cells else None
    if last is not None and asked.cell and last.hidden:
        raise hidden(last)
    if last is not None and asked.cell and last.kind != "code":
        raise ToolFailure(f"cell {last.ident} is a {last.kind} cell; only code runs")
    if path == workspace.notebook and last is not None:
        return (last,)
    cells = tuple(cell for cell in found.cells[: last.number + 1 if last else 0] if cell.kind == "code")
    if kept := next((cell for cell in cells if cell.hidden and cell.source.strip()), None):
        # those below it may need what it makes: their outputs without it would be wrong
        raise ToolFailure(
            f"{hidden(kept)}, and what stands below it cannot run without it; run the notebook down to a cell above "
            "it, or tell the user"
        )
    cells = tuple(cell for cell in cells if not cell.hidden)
    if not cells:
        raise ToolFailure("there is no code cell in it")
    return cells


async def _run(asked: EditArguments, path: Path, workspace: Workspace) -> ToolOutput:
    cells = _to_run(asked, path, workspace)
    most = workspace.limit("tool_output_chars")
    if path == workspace.notebook:
        done = output_of(await workspace.run_code(cells[-1].source), most)
        told = text_block(f"[cell {cells[-1].ident} as last saved ran in the user's namespace]")
        return msgspec.structs.replace(done, blocks=(told, *done.blocks))
    writable(str(path), workspace)
    found = known(path, workspace)
    assert found is not None  # _to_run has looked
    where = workspace.opened(path)
    ran = await run_cells(found.completed(), cells[-1].number, path.parent, workspace.stream)
    edit = Edit(path, shown(path, workspace), found, ran.notebook, f"run {len(ran.numbers)} cells of", "", "")
    await edit.write(workspace)
    last = ran.notebook.cells[ran.numbers[-1]] if ran.numbers else None
    count = f"{len(ran.numbers)} of {len(cells)} code cells"
    lines = [f"ran {count} of {edit.name} in a new kernel; their outputs are saved in it"]
    if ran.error:
        lines.append(f"stopped at an error: {ran.error[:1_000]}")
    if last is not None:
        lines.append(cell_text(last, most))
    if where:
        lines.append(f"[{RELOAD[where]}: tell the user to reload it before saving]")
    pictures = pictures_of(last) if last is not None else []
    return ToolOutput(
        blocks=(text_block("\n".join(lines)), *pictures), is_error=bool(ran.error), note=f"{len(ran.numbers)} cells ran"
    )
