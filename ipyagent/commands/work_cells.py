"""The agent's work as ordinary notebook cells: each request, the code that ran without an error, and the
answer, in order. What failed is left out, but for imports that later code stands on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from ipyagent.journal.events import AssistantSaid, Event, SessionStarted, ToolCalled, ToolReturned, TurnEnded, UserSaid
from ipyagent.kernel.notebook import new_cell
from ipyagent.ui.escape import plain
from ipyagent.ui.markdown import harmless

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
            case UserSaid():
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
            case AssistantSaid() if not event.partial:
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
