"""`%agent cells [FILE]`: the agent's work as ordinary cells, in a new notebook or below the cell that asks. A
file that exists is never written over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipyagent.commands.work_cells import as_script, work_cells
from ipyagent.errors import UsageError
from ipyagent.kernel.frontend import running_cell
from ipyagent.kernel.notebook import Notebook

if TYPE_CHECKING:
    from ipyagent.extension import Extension
    from ipyagent.ui.as_cells import AsCells
    from ipyagent.ui.door import Door

_INTO_FILE = "%agent cells FILE.ipynb writes them into a new notebook"


def run_cells(extension: Extension, rest: str) -> str:
    """The command's answer. Raises UsageError when there is nothing to write or FILE exists."""
    session = extension.agent_now.session
    cells = work_cells(session.journal.read()) if session is not None else []
    if not any(cell["cell_type"] == "code" for cell in cells):
        raise UsageError("the agent has run no code in this session that ended without an error: ask it for some first")
    if rest:
        return _into_file(cells, extension.agent_now.folder / Path(rest).expanduser())
    front = extension.front
    if front.kind == "kernel" and front.person and running_cell(extension.shell):
        return _below(extension, cells, running_cell(extension.shell))
    if front.kind == "terminal" or front.person:
        extension.shell.set_next_input(as_script(cells))
        return f"{_count(cells)} in the next input; {_INTO_FILE}"
    raise UsageError(f"nobody is there to take cells; {_INTO_FILE}")


def as_cells(extension: Extension, below: str) -> AsCells:
    """The button below a turn that is shown in the cell `below`."""
    from ipyagent.ui.as_cells import AsCells

    def made(events: Any) -> list[dict[str, Any]]:
        session = extension.agent_now.session
        return work_cells(events, session=session.journal.session if session is not None else "", request=False)

    return AsCells(_inserting(extension), door_of(extension), made, below)


def door_of(extension: Extension) -> Door:
    """The kernel's one door, made with its first button."""
    from ipyagent.kernel.comms import route_clicks
    from ipyagent.ui.door import Door

    if extension.door is None:
        kernel = extension.shell.kernel
        extension.door = Door(lambda comm, click: route_clicks(kernel, comm, click))
    return extension.door


def _inserting(extension: Extension) -> Any:
    from ipyagent.ui.as_cells import Inserting

    door = door_of(extension)
    if extension.inserting is None:
        extension.inserting = Inserting(door)
    return extension.inserting


def _below(extension: Extension, cells: list[dict[str, Any]], cell: str) -> str:
    """Offer the cells to the page; what came of it takes the place of the first words."""
    from IPython.display import display, update_display

    count = _count(cells)
    shown = "ipyagent-cells-" + os.urandom(8).hex()

    def told(inserted: int) -> None:
        words = f"{count} inserted below" if inserted else f"this front-end does not take cells; {_INTO_FILE}"
        update_display({"text/plain": words}, display_id=shown, raw=True)  # type: ignore[no-untyped-call]

    words = f"{count} for the page to insert below; if they do not appear: {_INTO_FILE}"
    display({"text/plain": words}, display_id=shown, raw=True)  # type: ignore[no-untyped-call] # IPython has no types
    _inserting(extension).offer(cells, cell, told)
    return ""


def _into_file(cells: list[dict[str, Any]], path: Path) -> str:
    if path.suffix.lower() != ".ipynb":
        raise UsageError(f"%agent cells FILE: a notebook's name ends in .ipynb, {path.name!r} does not")
    notebook = Notebook.new(cells)
    if wrong := notebook.problem():
        raise UsageError(f"the cells make no valid notebook: {wrong}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(notebook.data)
    except FileExistsError:
        raise UsageError(f"{path} exists and is not written over; give another name") from None
    except OSError as problem:
        raise UsageError(f"cannot write {path} ({problem.strerror or problem}): name another file") from None
    return f"{_count(cells)} written to {path}"


def _count(cells: list[dict[str, Any]]) -> str:
    code = sum(cell["cell_type"] == "code" for cell in cells)
    return f"{len(cells)} cells ({code} with code)"
