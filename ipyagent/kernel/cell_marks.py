"""Cells that their author keeps from the agent (`agent-hide`) or wants it to have before it (`agent-pin`): by the
tag of the saved cell, or by the comment `# agent-hide` in its first line, which also holds unsaved and in terminals.

Nothing here blocks, raises or imports nbformat: the file is read when it has changed, and what cannot be read
marks nothing. Hiding wins over pinning. On the main thread.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ipyagent.escape import line as one_line

HIDE, PIN = "agent-hide", "agent-pin"
HIDDEN = "[hidden by its author: agent-hide]"
"""What the model reads in the place of a hidden cell, or of what it gave."""
MOST = 64_000_000
"""Bytes of a notebook that are read for its tags."""
MOST_ERRORS = 200
"""Inputs of which it is kept how they failed."""
_NUMBERED = re.compile(r"_i?(\d+)")
_COMMENT = re.compile(r"\s*#\s*(agent-hide|agent-pin)\b")


def mark_of(source: str, tags: Any = None) -> str:
    """The mark of a cell, "" for none."""
    found = _COMMENT.match(source)
    marks = [found[1]] if found else []
    marks += tags if isinstance(tags, list) else []
    return HIDE if HIDE in marks else PIN if PIN in marks else ""


def bare(source: str) -> str:
    """The text of a cell without its mark."""
    found = _COMMENT.match(source)
    return source[found.end() if found else 0 :].strip()


class Marked(NamedTuple):
    """A marked cell: its `mark`, its id ("" where it has none) and its source."""

    mark: str
    ident: str
    source: str


class SavedCells(NamedTuple):
    """What a notebook file says: the marked cells, and the ids of all."""

    cells: tuple[Marked, ...] = ()
    idents: frozenset[str] = frozenset()
    at: float = 0.0


class Runs:
    """Which notebook cell each input was, as far as the front-end tells, and when it ran. Registered with a shell's
    events it keeps what `CellMarks` cannot know later."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.cells: dict[int, tuple[str, float]] = {}
        self.errors: dict[int, str] = {}
        """The last line of the error in which an input ended, by its number."""

    def note(self, info: Any) -> None:
        """A cell begins (`pre_run_cell`)."""
        manager = getattr(self._shell, "history_manager", None)
        ident = getattr(info, "cell_id", None)
        if isinstance(ident, str) and manager is not None and getattr(info, "store_history", False):
            # its number; the shell's own count is raised before or after this, by version
            self.cells[len(manager.input_hist_raw)] = (ident, time.time())

    def note_end(self, result: Any) -> None:
        """A cell has ended (`post_run_cell`)."""
        manager = getattr(self._shell, "history_manager", None)
        error = getattr(result, "error_before_exec", None) or getattr(result, "error_in_exec", None)
        if error is None or manager is None or not getattr(getattr(result, "info", None), "store_history", False):
            return
        from ipyagent.kernel.rendering import last_line  # loading needs it not

        self.errors[len(manager.input_hist_raw) - 1] = last_line(error)
        while len(self.errors) > MOST_ERRORS:
            del self.errors[min(self.errors)]


class CellMarks:
    """The marks of one notebook as they are now. `notebook` is set by whoever knows the file."""

    def __init__(self, shell: Any, runs: Runs | None = None) -> None:
        self._shell = shell
        self._runs = runs or Runs(shell)
        self.notebook: Path | None = None
        self._stamp: tuple[Path, int, int] | None = None
        self._saved = SavedCells()

    def __repr__(self) -> str:
        return f"<CellMarks of {self.notebook}>"

    def inputs(self) -> list[str]:
        """The source of every cell that was run, by its number; empty in a shell without a history."""
        manager = getattr(self._shell, "history_manager", None)
        return list(manager.input_hist_raw) if manager is not None else []

    def error_of(self, number: int) -> str:
        """The last line of the error in which an input ended; "" when it did not, or when that is not known."""
        return self._runs.errors.get(number, "")

    def failure_of(self, number: int) -> str:
        """The same, of the newest error the whole traceback."""
        line, error = self.error_of(number), getattr(sys, "last_value", None)
        if not line or number != max(self._runs.errors) or not isinstance(error, BaseException):
            return line
        from ipyagent.kernel.rendering import last_line, render_failure  # loading needs it not

        return render_failure(error) if last_line(error) == line else line

    def saved(self) -> SavedCells:
        """The notebook file's marks, read anew when the file is another."""
        path = self.notebook
        if path is None:
            return SavedCells()
        try:
            facts = path.stat()
            stamp = (path, facts.st_mtime_ns, facts.st_size)
            if stamp != self._stamp:
                data = path.read_bytes() if facts.st_size <= MOST else b""
                self._saved, self._stamp = _read(data, facts.st_mtime), stamp
        except OSError:
            self._saved, self._stamp = SavedCells(), None
        return self._saved

    def hidden_inputs(self, inputs: list[str] | None = None) -> frozenset[int]:
        """The numbers of inputs that are hidden from the agent."""
        saved = self.saved()
        hidden = [cell for cell in saved.cells if cell.mark == HIDE]
        idents = {cell.ident for cell in hidden if cell.ident}
        sources = {cell.source.strip() for cell in hidden if cell.source.strip()}
        found = set()
        for number, source in enumerate(self.inputs() if inputs is None else inputs):
            ident, _ = self._runs.cells.get(number, ("", 0.0))
            if ident in idents or source.strip() in sources or mark_of(source) == HIDE:
                found.add(number)
        return frozenset(found)

    def hides(self, source: str) -> bool:
        """Whether this is the source of a hidden cell."""
        text = source.strip()
        if mark_of(text) == HIDE:
            return True
        if any(cell.mark == HIDE and cell.source.strip() == text for cell in self.saved().cells):
            return True
        inputs = self.inputs()
        return any(inputs[number].strip() == text for number in self.hidden_inputs(inputs))

    def shown(self, namespace: dict[str, Any]) -> dict[str, Any]:
        """The namespace with what IPython keeps of hidden cells (`In`, `Out`, `_i3`, `_3`, `_`) left out."""
        hidden = self.hidden_inputs()
        if not hidden:
            return namespace
        shown = dict(namespace)
        results = [value for number, value in dict(_held(namespace, "Out", dict)).items() if number in hidden]
        for name in ("In", "_ih"):
            sources = list(_held(namespace, name, list))
            shown[name] = [HIDDEN if number in hidden else source for number, source in enumerate(sources)]
        for name in ("Out", "_oh"):
            shown[name] = {n: value for n, value in dict(_held(namespace, name, dict)).items() if n not in hidden}
        for name, value in namespace.items():
            found = _NUMBERED.fullmatch(name) if isinstance(name, str) else None
            if (
                (found is not None and int(found[1]) in hidden)
                or (name in ("_i", "_ii", "_iii") and isinstance(value, str) and self.hides(value))
                or (name in ("_", "__", "___") and any(value is result for result in results))
            ):
                shown[name] = HIDDEN
        return shown

    def marked(self, mark: str) -> list[Marked]:
        """The cells with a mark, those of the file first, each as it was saved or, when that was later, run."""
        saved = self.saved()
        inputs = self.inputs()
        hidden = self.hidden_inputs(inputs)
        found = {cell.ident or f"#{number}": cell for number, cell in enumerate(saved.cells) if cell.mark == mark}
        for number, source in enumerate(inputs):
            ident, at = self._runs.cells.get(number, ("", 0.0))
            newer = at > saved.at or ident not in saved.idents
            if mark == PIN and number in hidden:
                continue
            if ident in found and newer:
                found[ident] = found[ident]._replace(source=source.rstrip())
            elif mark_of(source) == mark and newer:
                key = ident or f"In[{number}]"
                if ident or all(cell.source.strip() != source.strip() for cell in found.values()):
                    found[key] = Marked(mark, ident or key, source.rstrip())
        return list(found.values())

    def unmarked(self) -> frozenset[str]:
        """The texts, without a mark, of what was run."""
        return frozenset(bare(source) for source in self.inputs())

    def told(self, mark: str) -> str:
        """The cells with a mark for the user, a line each, and how to mark one."""
        cells = self.marked(mark)
        what = "hidden from the agent" if mark == HIDE else "pinned; the agent always sees them"
        none = "hidden cells. The agent never" if mark == HIDE else "pinned cells. The agent always"
        none = f"No {none} sees a {none.split()[0]} cell."
        lines = []
        for cell in cells:
            rows = map(str.strip, cell.source.splitlines())
            first = next((row for row in rows if row and not row.startswith("#")), "")
            lines.append(f"{one_line(cell.ident or '(no id)')}  {one_line(first)[:80]}")
        lines.insert(0, f"{len(cells)} cell{'' if len(cells) == 1 else 's'} {what}" if cells else none)
        lines.append(
            f"to mark a cell: the tag {mark} (JupyterLab: property inspector, Cell Tags; counts once the notebook is "
            f"saved), or the comment # {mark} in its first line (counts when it runs)"
        )
        return "\n".join(lines)


def _held(namespace: Mapping[str, Any], name: str, kind: type) -> Any:
    value = namespace.get(name)
    return value if isinstance(value, kind) else kind()


def _read(data: bytes, at: float) -> SavedCells:
    try:
        value = json.loads(data) if data else None
    except (ValueError, RecursionError):
        return SavedCells()
    cells = value.get("cells") if isinstance(value, dict) else None
    found, idents = [], set()
    for cell in cells if isinstance(cells, list) else []:
        if not isinstance(cell, dict):
            continue
        source, metadata = cell.get("source"), cell.get("metadata")
        if isinstance(source, list):
            source = "".join(part for part in source if isinstance(part, str))
        text = source if isinstance(source, str) else ""
        ident = cell.get("id")
        ident = ident if isinstance(ident, str) else ""
        idents.add(ident)
        if mark := mark_of(text, metadata.get("tags") if isinstance(metadata, dict) else None):
            found.append(Marked(mark, ident, text))
    return SavedCells(tuple(found), frozenset(idents - {""}), at)
