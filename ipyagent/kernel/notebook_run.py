"""Cells of a notebook that is not the user's own, run in a kernel of its own: from the top to the one that is
wanted, because a cell means what those above it made. Through nbclient, which is optional."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.kernel.notebook import Notebook, nodes, split_output


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
        notebook = _with_outputs(notebook, number, whole.cells[number])
    return Ran(notebook, tuple(ran), error)


def _with_outputs(notebook: Notebook, number: int, node: Any) -> Notebook:
    values: dict[str, Any] = {
        "execution_count": node.get("execution_count"),
        "outputs": [split_output(_plain(output)) for output in node.get("outputs", [])],
    }
    with contextlib.suppress(KeyError):  # a code cell that lacks one of the two is not valid and was refused
        notebook = notebook.with_values(number, values)
    return notebook


def _plain(value: Any) -> Any:
    """nbformat's objects as plain ones."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
