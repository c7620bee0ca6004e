"""`%agent cells [FILE]`: the agent's work as ordinary cells, in a new notebook or below the cell that asks. A
file that exists is never written over."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipyagent.agent.turns import undone_turn
from ipyagent.errors import AgentError, UsageError
from ipyagent.escape import plain
from ipyagent.journal.events import (
    AssistantMessage,
    Event,
    FilesRestored,
    SessionStarted,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    UserMessage,
)
from ipyagent.kernel.frontend import route_clicks, running_cell
from ipyagent.kernel.notebook import Notebook, new_cell
from ipyagent.kernel.workspace import BACKUPS
from ipyagent.loop.watching import CodeWatch
from ipyagent.tools.changes import Undone, restore
from ipyagent.ui.markdown import harmless

if TYPE_CHECKING:
    from ipyagent.agent import Agent
    from ipyagent.extension import Extension
    from ipyagent.ui.buttons import AsCells, ButtonBridge


_INTO_FILE = "%agent cells FILE.ipynb writes them into a new notebook"


def run_cells(extension: Extension, rest: str) -> str:
    """The command's answer. Raises UsageError when there is nothing to write or FILE exists."""
    session = extension.agent_now.session
    cells = work_cells(session.journal.read()) if session is not None else []
    if not any(cell["cell_type"] == "code" for cell in cells):
        raise UsageError(
            "the agent has not run any code without an error in this session: ask it for some first"
        )
    if rest:
        return _into_file(cells, extension.agent_now.folder / Path(rest).expanduser())
    front = extension.front
    if front.kind == "kernel" and front.person and running_cell(extension.shell):
        return _below(extension, cells, running_cell(extension.shell))
    if front.kind == "terminal" or front.person:
        extension.shell.set_next_input(as_script(cells))
        return f"{_count(cells)} in the next input; {_INTO_FILE}"
    raise UsageError(f"this front-end cannot insert cells; {_INTO_FILE}")


def as_cells(extension: Extension, below: str) -> AsCells:
    """The button below a turn that is shown in the cell `below`."""
    from ipyagent.ui.buttons import AsCells

    def made(events: Any) -> list[dict[str, Any]]:
        session = extension.agent_now.session
        return work_cells(events, session=session.journal.session if session is not None else "", request=False)

    return AsCells(_inserting(extension), buttons_of(extension), made, below)


def buttons_of(extension: Extension) -> ButtonBridge:
    """The kernel's one `ButtonBridge`, made with its first button."""
    from ipyagent.ui.buttons import ButtonBridge

    if extension.buttons is None:
        extension.buttons = ButtonBridge(partial(route_clicks, extension.shell.kernel))
    return extension.buttons


def _inserting(extension: Extension) -> Any:
    from ipyagent.ui.buttons import Inserting

    buttons = buttons_of(extension)
    if extension.inserting is None:
        extension.inserting = Inserting(buttons)
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
        raise UsageError(f"the cells would make an invalid notebook, so none was written: {wrong}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(notebook.data)
    except FileExistsError:
        raise UsageError(f"{path} already exists; choose another name") from None
    except OSError as problem:
        raise UsageError(f"cannot write {path} ({problem.strerror or problem}): name another file") from None
    return f"{_count(cells)} written to {path}"


def _count(cells: list[dict[str, Any]]) -> str:
    code = sum(cell["cell_type"] == "code" for cell in cells)
    return f"{len(cells)} cells ({code} with code)"


# ------------------------------------------------------------------ work cells
# The agent's work as ordinary notebook cells: each request, the code that ran without an error, and the answer, in
# order. What failed is left out, but for imports that later code stands on.


MARK = "ipyagent"
"""Key in a cell's metadata under which it says where it comes from: session, turn, call."""
TOOL = "python"


def work_cells(events: Iterable[Event], *, session: str = "", request: bool = True) -> list[dict[str, Any]]:
    """Cells of format 4.5 (`id`, `cell_type`, `metadata`, `source` and, for code, no outputs yet); none for
    turns in which no code ran. `request`: with the words that asked for it."""
    cells: list[dict[str, Any]] = []
    calls: dict[str, str] = {}
    spare: list[str] = []  # imports of code that failed, until a cell needs them
    known: set[str] = set()  # names that the cells import
    asked, answer, turn, work = "", "", 0, 0

    def add(kind: Any, source: str, **more: Any) -> None:
        mark = {key: value for key, value in {"session": session, "turn": turn, **more}.items() if value}
        cells.append(new_cell(kind, plain(source).strip("\n"), metadata={MARK: mark}))

    def end() -> None:
        nonlocal asked, answer
        if work and answer.strip():
            add("markdown", harmless(answer.strip()))
        asked = answer = ""

    for event in events:
        match event:
            case SessionStarted():
                session = session or event.session
            case UserMessage():
                end()
                asked, turn, work = event.text, turn + 1, 0
            case ToolCalled() if event.name == TOOL:
                calls[event.call] = str(event.input.get("code") or "")
                answer = ""  # what was said before more work is not the answer
            case ToolReturned() if event.call in calls:
                code = calls.pop(event.call).strip("\n").rstrip()
                if not code:
                    continue
                if event.is_error:
                    spare += _imports(code)
                    continue
                before = [line for line in dict.fromkeys(spare) if _gives(line) & _names(code) - known]
                code = "\n".join([*before, code])
                spare = [line for line in spare if line not in before]
                known |= {name for line in _imports(code) for name in _gives(line)}
                if cells and cells[-1]["cell_type"] == "code" and "".join(cells[-1]["source"]) == code:
                    continue  # the same once more
                if request and not work and asked.strip():
                    add("markdown", "\n".join(f"> {line}".rstrip() for line in harmless(asked.strip()).splitlines()))
                add("code", code, call=event.call)
                work += 1
            case AssistantMessage() if not event.partial:
                texts = [str(block.get("text", "")) for block in event.blocks if block.get("type") == "text"]
                answer = "\n\n".join(text for text in texts if text.strip()) or answer
            case TurnEnded():
                end()
            case _:
                pass  # nothing that a notebook's reader would run or read
    end()
    return cells


def as_script(cells: Iterable[Mapping[str, Any]]) -> str:
    """The cells as one piece of code, text as comments: for front-ends that take one cell only."""
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "code" else "\n".join(f"# {row}" for row in source.splitlines()))
    return "\n\n".join(parts)


def _tree(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # magics, and what was never code
        return ast.Module([], [])


def _imports(code: str) -> list[str]:
    """The import statements at the top level of `code`."""
    return [ast.unparse(node) for node in _tree(code).body if isinstance(node, (ast.Import, ast.ImportFrom))]


def _gives(line: str) -> set[str]:
    """The names that an import statement binds."""
    return {
        (name.asname or name.name.partition(".")[0])
        for node in _tree(line).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }


def _names(code: str) -> set[str]:
    """The names that `code` reads and does not import itself."""
    tree = _tree(code)
    own = {name for line in _imports(code) for name in _gives(line)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - own


# ---- `%agent rollback N`: one turn is taken back as a whole. Its files are put back, never over what somebody else
# or a later turn has written since, and it leaves the conversation as a recorded decision, which `%compact --undo`
# reverts.

def offer(agent: Agent, cell: str) -> str:
    """The line for a cell that is asked again: which turn it had, and how that is taken back; "" for no such turn."""
    session = agent.session
    if session is None or not cell:
        return ""
    for number, turn in reversed(list(enumerate(session.history.turns, 1))):
        if turn.cell == cell and not turn.out:
            return (
                f"you ran this cell before (turn {number}); undo that turn with %agent rollback {number}"
            )
    return ""


def roll_back(agent: Agent, words: str) -> str:
    """Take a turn back, by its number from 1; what was done, in lines. Raises UsageError."""
    agent.check_free()
    session = agent.sessions.take_up()
    count = len(session.history.turns) if session is not None else 0
    if not count:
        raise UsageError("%agent rollback N: this session has no turn yet")
    if session is None or not words.isdecimal() or not 1 <= int(words) <= count:
        known = f"N is a turn from 1 to {count} (%context --turns lists them)" if count > 1 else "there is only turn 1"
        raise UsageError(f"%agent rollback N: {known}" + (f", not {words!r}" if words else ""))
    number = int(words)
    turn = session.history.turns[number - 1]
    session.kept(CodeWatch, lambda: CodeWatch(session)).settle()
    undone = Undone((), ())
    for made in session.history.files.of(number):
        each = restore(made.changes, agent.project.root, session.journal.folder / BACKUPS)
        session.record(FilesRestored(paths=each.restored, since=made.changes[0].id, upto=made.changes[-1].id))
        undone = Undone(*(tuple(dict.fromkeys((*old, *new))) for old, new in zip(undone, each, strict=True)))
    try:
        snip = "it was removed from the conversation before" if turn.out else agent.compact(f"--snip {number}")
    except AgentError as problem:
        snip = f"turn {number} stays in the conversation ({problem})"
    return "\n".join([*undone_turn(session, agent.project.root, number, undone).lines(), snip])
