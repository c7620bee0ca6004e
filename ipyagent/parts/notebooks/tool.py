"""`notebook`: cells of an .ipynb file by their ids, read, changed and run. The user's own notebook is read and changed
in the page that it stands in, where our companion is there (`kernel.page`). Elsewhere what a page of the user's has
not saved is never overwritten without a word: such an edit is asked for in every mode."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import glob as globs
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from ipyagent.errors import ToolFailure
from ipyagent.escape import counted
from ipyagent.journal.protocols import Execution, Permission, PermissionQuestion, ReadStamp, ToolOutput, Workspace
from ipyagent.kernel.notebook import Cell, Notebook, nodes, split_output
from ipyagent.kernel.page import OpenNotebook
from ipyagent.parts.notebooks.edits import (
    RELOAD,
    UNSAVED,
    Action,
    Edit,
    EditArguments,
    cut_short,
    known,
    page_of,
    planned,
    remaining,
    remember_place,
    target_of,
)
from ipyagent.tools.answers import text_block, text_output
from ipyagent.tools.changes import current
from ipyagent.tools.danger import code_danger
from ipyagent.tools.notebook_view import cell_text, head_of, hidden, pictures_of, whole_text
from ipyagent.tools.paths import digest, read_permission, shown, writable
from ipyagent.tools.python import output_of
from ipyagent.tools.schema import tool

# ---- Cells of a notebook that is not the user's own, run in a kernel of its own: from the top to the one that is
# wanted, because a cell means what those above it made. Through nbclient, which is optional.


@dataclass(frozen=True)
class Ran:
    """`notebook` has the new outputs; `numbers` of the cells that ran; `error` of the last one, "" when none."""

    notebook: Notebook
    numbers: tuple[int, ...]
    error: str = ""


async def run_cells(notebook: Notebook, last: int, folder: Path, progress: Callable[[str], None]) -> Ran:
    """Run the code cells up to number `last` that are not hidden in a fresh kernel in `folder`. Raises ToolFailure
    when nbclient or the notebook's kernel is missing or dies."""
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, DeadKernelError
    except ImportError:
        raise ToolFailure(
            "running a cell of another notebook needs nbclient: run `%pip install nbclient ipykernel` with the "
            "python tool, or run the cell's source with python in the user's namespace"
        ) from None
    from jupyter_client.kernelspec import NoSuchKernel

    whole = nodes(notebook.layout.value)
    spec = notebook.layout.value.get("metadata", {}).get("kernelspec", {})
    name = str(spec.get("name") or "python3") if isinstance(spec, Mapping) else "python3"
    client = NotebookClient(
        whole, timeout=None, kernel_name=name, record_timing=False, shutdown_kernel="immediate",
        resources={"metadata": {"path": str(folder)}}
    )
    cells = [cell for cell in notebook.cells[: last + 1] if cell.kind == "code" and not cell.hidden]
    wanted = [cell.number for cell in cells if cell.source.strip()]
    ran: list[int] = []
    error = ""
    try:
        async with client.async_setup_kernel():
            for number in wanted:
                progress(f"cell {notebook.cells[number].ident} ({len(ran) + 1} of {len(wanted)})\n")
                ran.append(number)
                try:
                    await client.async_execute_cell(whole.cells[number], number)
                except CellExecutionError as problem:
                    error = f"{problem.ename}: {problem.evalue}"
                    break
    except NoSuchKernel:
        raise ToolFailure(f"there is no kernel {name!r} here; `jupyter kernelspec list` names the others") from None
    except DeadKernelError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # nbclient takes every cancellation for a death
            raise asyncio.CancelledError from None
        raise ToolFailure(f"the kernel died in cell {notebook.cells[ran[-1]].ident if ran else '?'}") from None
    for number in ran:
        node = whole.cells[number]
        outputs = [split_output(_plain(output)) for output in node.get("outputs", [])]
        with contextlib.suppress(KeyError):  # a code cell that lacks one of the two is not valid and was refused
            values = {"execution_count": node.get("execution_count"), "outputs": outputs}
            notebook = notebook.with_values(number, values)
    return Ran(notebook, tuple(ran), error)


def _plain(value: Any) -> Any:
    """nbformat's objects as plain ones."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


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
    beside = " while open in a page" if asked.action not in ("read", "run") and _unsaved(path, workspace) else ""
    return f"notebook({what}{globs.escape(subject)}{beside})"


def _unsaved(path: Path, workspace: Workspace) -> Literal["", "own", "page"]:
    """Where it may stand with changes that an edit of the file does not know of."""
    return "" if page_of(path, workspace) is not None else workspace.opened(path)


def _destructive(arguments: dict[str, Any], workspace: Workspace) -> str:
    asked = EditArguments.of(arguments)
    path = target_of(asked, workspace)
    if asked.action == "read":
        return ""
    where = _unsaved(path, workspace)
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
        edit = planned(asked, workspace)
        if edit.page is not None and (page := edit.page.page(path)) is not None:
            edit.page.planned = (page.ident, list(edit.changes))
        return edit.question()
    cells = _to_run(asked, path, workspace)
    text = "\n\n".join(f"# cell {cell.ident}\n{cell.source}" for cell in cells)
    own = path == workspace.notebook
    run = f"cell {cells[-1].ident} of {name}" if own else f"{counted(len(cells), 'cell')} of {name} in a new kernel"
    return PermissionQuestion(title=f"Run {run}?", text=text, language="python")


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
            return await _read(asked, target, workspace)
        case "run":
            return await _run(asked, target, workspace)
        case _:
            edit = planned(asked, workspace)
            if edit.page is not None:
                return await _in_page(asked, edit, edit.page, workspace)
            where = workspace.opened(target)
            await edit.write(workspace)
            remember_place(asked, edit, [edit.ident], workspace)
            return _told(edit, where, len(asked.new) if action == "insert" else 1)


async def _in_page(asked: EditArguments, edit: Edit, page: OpenNotebook, workspace: Workspace) -> ToolOutput:
    """Make the edit in the user's page, but for what they rejected there."""
    if problem := edit.after.problem():
        raise ToolFailure(f"the edit would leave {edit.name} invalid ({problem}); nothing was changed")
    rejected = page.rejected.pop(workspace.call, frozenset())
    changes = remaining(edit.changes, rejected)
    now = await page.change(edit.path, changes)
    if asked.action == "insert":
        remember_place(asked, edit, [str(change["id"]) for change in changes], workspace)
    lines = [f"done in the user's open page: {edit.title[0].lower()}{edit.title[1:]}; {len(now.cells)} cells now"]
    if rejected:
        out = [edit.changes[number] for number in sorted(rejected)]
        firsts = "; ".join(str(change.get("source", "")).split("\n")[0][:60] for change in out)
        lines.append(f"[the user rejected {len(out)} of {len(edit.changes)} cells, which were not inserted: {firsts}]")
    done = {change.get("cell", change.get("id")): change["action"] for change in changes}
    for ident, action in done.items():
        lines += _placed([cell for cell in now.cells if cell.ident == ident], now.cells, stale=action == "replace")
    lines.append("[the page is not saved yet; the user can undo each change there]")
    return text_output("\n".join(lines), note=f"{len(now.cells)} cells, in the open page")


async def _read(asked: EditArguments, path: Path, workspace: Workspace) -> ToolOutput:
    name = shown(path, workspace)
    most = workspace.limit("tool_output_chars")
    if (page := page_of(path, workspace)) is not None and (live := await page.read(path, asked.cell)) is not None:
        workspace.read_stamps.pop(path, None)  # what it then says of the file, the model has not read
        if not asked.cell:
            text = f"{whole_text(live, name, most)}\n[as it stands in the user's open page]"
            return text_output(text, note=f"{len(live.cells)} cells, from the open page")
        one = live.find(asked.cell)
        return ToolOutput(blocks=(text_block(cell_text(one, most)), *pictures_of(one)), note=f"cell {one.ident}")
    data = current(path)
    if data is None:
        raise ToolFailure(f"no notebook {name}; insert a cell to create it")
    found = Notebook.read(data, workspace.cell_ids.get(path))
    if asked.cell:
        one = found.find(asked.cell)
        blocks = (text_block(cell_text(one, most)), *pictures_of(one))
        output = ToolOutput(blocks=blocks, note=f"cell {one.ident}")
    else:
        text = whole_text(found, name, most)
        if workspace.opened(path):
            text += "\n[it is open in a page of the user's: what is not saved there is not seen here]"
        output = text_output(text, note=f"{len(found.cells)} cells")
    workspace.read_stamps[path] = ReadStamp(digest(data))
    workspace.cell_ids[path] = found.known
    return output


def _told(edit: Edit, where: str, count: int) -> ToolOutput:
    """What was done, where the cells (`count`) stand now, and what the user must do to see it."""
    cells = edit.after.cells
    now = next((cell for cell in cells if cell.ident == edit.ident), None)
    lines = [f"done: {edit.title[0].lower()}{edit.title[1:]}; {len(cells)} cells now"]
    if now is not None:
        lines += _placed(cells[now.number + 1 - count : now.number + 1], cells, stale=True)
    if edit.completed:
        lines.append(f"[{edit.completed} cells had no id, which the format requires; each was given one]")
    note = f"{len(cells)} cells"
    if where:
        lines.append(
            f"[{RELOAD[where]}: tell the user to reload it (File > Reload Notebook from Disk) before saving. "
            "If Jupyter says at a save that the file has changed on disk: Revert keeps this edit and drops what was "
            "not saved in the page, Overwrite does the opposite]"
        )
        note += "; reload the open page before you save it"
    return text_output("\n".join(lines), note=note)


def _placed(cells: Iterable[Cell], of: Sequence[Cell], *, stale: bool) -> Iterator[str]:
    """Where these cells stand; `stale`: what outputs they have are those of another source."""
    for cell in cells:
        yield f"{head_of(cell)} {f'after {of[cell.number - 1].ident}' if cell.number else 'at the top'}"
        if stale and cell.outputs:
            yield "[its outputs are those of the old source until it is run]"


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


def _outputs(ran: Execution) -> list[dict[str, Any]]:
    """What a run gave, as outputs of its cell."""
    made: list[dict[str, Any]] = []
    if ran.output:
        made.append({"output_type": "stream", "name": "stdout", "text": ran.output})
    for text in ran.displays:
        made.append({"output_type": "display_data", "data": {"text/plain": text}, "metadata": {}})
    for image in ran.images:
        data = {image.media_type: base64.b64encode(image.data).decode(), "text/plain": "<Figure>"}
        made.append({"output_type": "display_data", "data": data, "metadata": {}})
    if ran.result is not None:
        data = {"text/plain": ran.result}
        made.append({"output_type": "execute_result", "execution_count": None, "data": data, "metadata": {}})
    if ran.error:
        name, _, value = ran.error.strip().rpartition("\n")[2].partition(": ")
        made.append({"output_type": "error", "ename": name, "evalue": value, "traceback": ran.error.split("\n")})
    return made


async def _run(asked: EditArguments, path: Path, workspace: Workspace) -> ToolOutput:
    cells = _to_run(asked, path, workspace)
    most = workspace.limit("tool_output_chars")
    if path == workspace.notebook:
        page, cell = page_of(path, workspace), cells[-1]
        given = await workspace.run_code(cell.source)
        done = output_of(given, most)
        how = "as last saved" if page is None else "as it stands in the open page"
        told = f"[cell {cell.ident} {how} ran in the user's namespace]"
        if page is not None:
            try:
                outputs = {"action": "outputs", "cell": cell.ident, "base": cell.source, "outputs": _outputs(given)}
                await page.change(path, [outputs])
            except ToolFailure as failure:
                told += f"\n[its outputs are not shown below it: {failure}]"
        return msgspec.structs.replace(done, blocks=(text_block(told), *done.blocks))
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
