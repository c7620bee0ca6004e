"""What a call of the notebook tool would change: from the notebook as the model read it to the one that it leaves, as a
diff of cells that a person can read. A file that somebody else has written since is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import PermissionQuestion, Workspace
from ipyagent.kernel.notebook import Cell, Kind, Notebook, own_id
from ipyagent.kernel.page import OpenNotebook
from ipyagent.tools.changes import PendingChange, current, left_out, refuse_stand_in
from ipyagent.tools.notebook_view import hidden
from ipyagent.tools.paths import digest, resolved, shown, writable

Action: TypeAlias = Literal["read", "insert", "replace", "move", "delete", "run"]
UNSAVED = {
    "own": "save this notebook first: it is open in your page, and unsaved changes there would conflict with this edit",
    "page": "save this notebook first: it is open in another page, where unsaved changes would conflict with this edit",
}
RELOAD = {
    "own": "it is open in the user's page, which still shows the old cells",
    "page": "it is open in another page of the user's, which still shows the old cells",
}
KINDS = ("code", "markdown", "raw")
_DIFF = 20_000
"""Characters of a diff that the page shows at most of each cell; the question has all of it."""


@dataclass(frozen=True)
class EditArguments:
    """The arguments of one call, "" for what was not given."""

    action: Action
    path: str = ""
    cell: str = ""
    source: str = ""
    old: str = ""
    after: str = ""
    before: str = ""
    cell_type: str = ""
    cells: tuple[tuple[str, Kind], ...] = ()
    """Source and kind of each new cell."""

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> EditArguments:
        given = {key: value for key, value in arguments.items() if value is not None and key != "cells"}
        cells = tuple(_new_cell(cell) for cell in arguments.get("cells") or ())
        if cells and (given["action"] != "insert" or given.get("source") or given.get("cell_type")):
            raise ToolFailure("`cells` is for insert, instead of `source` and `cell_type`")
        return cls(**given, cells=cells)

    @property
    def new(self) -> tuple[tuple[str, Kind], ...]:
        """Source and kind of each cell that an insert makes."""
        kind: Kind = self.cell_type or "code"  # type: ignore[assignment] # the schema lets only kinds through
        return self.cells or ((self.source.rstrip("\n"), kind),)


def _new_cell(given: dict[str, str]) -> tuple[str, Kind]:
    kind = given.get("cell_type", "code")
    if kind not in KINDS or set(given) - {"source", "cell_type"} or "source" not in given:
        raise ToolFailure(f"each of `cells` has a `source` and, unless it is code, a `cell_type`: {', '.join(KINDS)}")
    return given["source"].rstrip("\n"), kind  # type: ignore[return-value] # one of KINDS


@dataclass(frozen=True)
class Edit:
    """A change of one notebook. `title` says it in a few words, `diff` exactly; `ident` of the cell it is about,
    of several the last; `completed`: cells that get the id that the format demands on the way. `page`: where it is
    made, as `changes` (None: in the file)."""

    path: Path
    name: str
    before: Notebook | None
    after: Notebook
    title: str
    diff: str
    ident: str
    completed: int = 0
    page: OpenNotebook | None = None
    changes: tuple[dict[str, Any], ...] = ()

    def question(self) -> PermissionQuestion:
        return PermissionQuestion(title=f"{self.title}?", text=self.diff, language="diff")

    async def write(self, workspace: Workspace) -> None:
        """Check what comes out, journal the change and make it. Raises ToolFailure."""
        if problem := self.after.problem():
            raise ToolFailure(f"the edit would leave {self.name} invalid ({problem}); nothing was written")
        await PendingChange(self.path, None if self.before is None else self.before.data, self.after.data).write(
            workspace
        )
        workspace.cell_ids[self.path] = self.after.known


def target_of(asked: EditArguments, workspace: Workspace) -> Path:
    """The notebook that is meant: the one named, else the user's own. Raises ToolFailure."""
    if asked.path:
        path = resolved(asked.path, workspace)
        if path.suffix.lower() != ".ipynb":
            raise ToolFailure(f"{asked.path} is not an .ipynb file; use read_file, edit_file and write_file for it")
        return path
    if workspace.notebook is None:
        raise ToolFailure("which notebook? this front end does not say which one is open; give `path`")
    return workspace.notebook


def page_of(path: Path, workspace: Workspace) -> OpenNotebook | None:
    """Where the notebook, which must be the user's own, is open in a page that can be asked; None where it is not."""
    found = workspace.page
    if not isinstance(found, OpenNotebook) or found.page(path) is None:
        return None
    return found if path == workspace.notebook else None  # another may be called the same, in another folder


def known(path: Path, workspace: Workspace) -> Notebook | None:
    """The notebook as the model last read it; None when there is no such file. Raises ToolFailure."""
    name = shown(path, workspace)
    if (page := page_of(path, workspace)) is not None:
        found = page.seen(path)
        if found is None:
            raise ToolFailure(
                f"{name} is open in the user's page and was not read there; read it first: notebook(action='read')"
            )
        return found
    data = current(path)
    if data is None:
        return None
    stamp = workspace.read_stamps.get(path)
    if stamp is None:
        raise ToolFailure(f"{name} was not read in this session; read it first: notebook(action='read')")
    if stamp.digest != digest(data):
        raise ToolFailure(f"{name} was saved by another program since it was read; read it again, then edit")
    notebook = Notebook.read(data, workspace.cell_ids.get(path))
    if problem := notebook.problem():
        raise ToolFailure(f"{name} is not a valid notebook ({problem}), so it is not edited; repair it with python")
    return notebook


def planned(asked: EditArguments, workspace: Workspace) -> Edit:
    """The edit that this call makes now. Raises ToolFailure."""
    path = target_of(asked, workspace)
    writable(str(path), workspace)
    name = shown(path, workspace)
    before = known(path, workspace)
    if before is None and asked.action != "insert":
        raise ToolFailure(f"no notebook {name}; the first cell that is inserted creates it")
    notebook = (before or Notebook.new()).completed()
    match asked.action:
        case "insert":
            # behind the cells that calls of this message have put after the one that is named
            beside = notebook.find(asked.after).ident if asked.after else ""
            put = workspace.beside.get(("notebook", path, beside), []) if beside else []
            title, ident, after, diff = _insert(asked, notebook, put)
        case "replace":
            title, ident, after, diff = _replace(asked, notebook)
        case "move":
            title, ident, after, diff = _move(asked, notebook)
        case "delete":
            title, ident, after, diff = _delete(asked, notebook)
        case _:
            raise ToolFailure(f"{asked.action} changes nothing")
    title += f" {name}" if before is not None else f" {name}, a new notebook"
    page = page_of(path, workspace)
    if page is not None:
        changes = tuple(_changes(asked, notebook, after, ident))
        return Edit(path, name, before, after, title, diff, ident, page=page, changes=changes)
    pairs = zip(before.cells, notebook.cells, strict=True) if before is not None else ()
    completed = sum(not own_id(cell.value) and bool(own_id(now.value)) for cell, now in pairs)
    return Edit(path, name, before, after, title, diff, ident, completed)


def _changes(asked: EditArguments, before: Notebook, after: Notebook, ident: str) -> Iterator[dict[str, Any]]:
    """The edit as the page makes it, cell by cell, each with what the user is shown of it."""
    count = len(asked.new) if asked.action == "insert" else 1
    last = next((cell.number for cell in after.cells if cell.ident == ident), 0)
    for cell in after.cells[last + 1 - count : last + 1] if asked.action in ("insert", "move") else ():
        above = after.cells[cell.number - 1].ident if cell.number else ""
        if asked.action == "move":
            rows = f"- number {before.find(ident).number}\n+ number {cell.number}"
            yield {"action": "move", "cell": ident, "after": above, "title": "Move this cell", "diff": rows}
        else:
            made = {"id": cell.ident, "cell_type": cell.kind, "source": cell.source, "after": above}
            yield {"action": "insert", **made, "title": f"New {cell.kind} cell", **_rows("", cell.source)}
    if asked.action in ("replace", "delete"):
        old = before.find(ident).source
        new = after.find(ident).source if asked.action == "replace" else ""
        title = "Edit this cell" if asked.action == "replace" else "Delete this cell"
        made = {"action": asked.action, "cell": ident, "base": old, "source": new}
        yield {**made, "title": title, **_rows(old, new)}


def _rows(before: str, after: str) -> dict[str, Any]:
    """The diff for the page; `cut` when it is not all of it."""
    text = _diff(before, after, "").strip("\n")
    if len(text) <= _DIFF:
        return {"diff": text, "cut": False}
    return {"diff": f"{text[:_DIFF]}\n… {len(text) - _DIFF:,} more characters", "cut": True}


def remaining(changes: tuple[dict[str, Any], ...], rejected: frozenset[int]) -> list[dict[str, Any]]:
    """The changes that the user did not reject; what came after a rejected cell comes after the one above that."""
    instead: dict[str, str] = {}
    left: list[dict[str, Any]] = []
    for number, change in enumerate(changes):
        after = change.get("after")
        after = instead.get(after, after) if isinstance(after, str) else after
        if number in rejected:
            instead[str(change.get("id"))] = str(after)
        else:
            sent = {key: value for key, value in change.items() if key not in ("title", "diff", "cut")}
            left.append(sent if after is None else {**sent, "after": after})
    return left


_Made: TypeAlias = tuple[str, str, Notebook, str]


def remember_place(asked: EditArguments, edit: Edit, idents: Iterable[str], workspace: Workspace) -> None:
    """Note which cell an insert of these came after, for other calls of the same message."""
    if asked.action == "insert" and asked.after:
        beside = edit.after.find(asked.after).ident
        workspace.beside.setdefault(("notebook", edit.path, beside), []).extend(idents)


def cut_short(asked: EditArguments, workspace: Workspace) -> str:
    """Why a replace is likely to lose what the cell holds, see `changes.left_out`; "" when it is not."""
    if asked.action != "replace":
        return ""
    path = target_of(asked, workspace)
    found = known(path, workspace)
    return "" if found is None else left_out(asked.source, asked.old or _cell(asked, found).source)


def _insert(asked: EditArguments, notebook: Notebook, put: list[str]) -> _Made:
    if asked.cell:
        raise ToolFailure("`cell` is for a cell that exists; say where the new one goes with `after` or `before`")
    at, where = _place(asked, notebook)
    while at < len(notebook.cells) and notebook.cells[at].ident in put:
        where = f"after {notebook.cells[at].ident}"
        at += 1
    near = notebook.cells[max(at - 1, 0) : at + 1]
    after, diffs = notebook, []
    for number, (source, kind) in enumerate(asked.new, at):
        twin = next((one for one in near if source and (one.source, one.kind) == (source, kind)), None)
        if twin is not None:
            raise ToolFailure(f"this very cell stands there already, as {twin.ident}: it is not inserted twice")
        refuse_stand_in(source, "")
        after = after.inserted(number, kind, source)
        diffs.append(_diff("", source, f"new {kind} cell {where if number == at else 'after that'}"))
    ident = after.cells[at + len(diffs) - 1].ident
    what = f"a {asked.new[0][1]} cell" if len(diffs) == 1 else f"{len(diffs)} cells"
    return f"Insert {what} {where} in", ident, after, "\n".join(diffs)


def _replace(asked: EditArguments, notebook: Notebook) -> _Made:
    cell = _cell(asked, notebook)
    if asked.cell_type and asked.cell_type != cell.kind:
        raise ToolFailure(
            f"cell {cell.ident} is a {cell.kind} cell and stays one; for a {asked.cell_type} cell insert a new one "
            "and delete this"
        )
    if asked.after or asked.before:
        raise ToolFailure("`replace` leaves the cell where it is; use move for another place")
    source = asked.source.rstrip("\n")
    if asked.old:
        count = cell.source.count(asked.old)
        if count != 1:
            raise ToolFailure(f"`old` is in cell {cell.ident} {count} times; it must be there once")
        source = cell.source.replace(asked.old, asked.source).rstrip("\n")
    refuse_stand_in(source, cell.source)
    if source == cell.source.rstrip("\n"):
        raise ToolFailure(f"cell {cell.ident} has this source already")
    after = notebook.replaced(cell.number, source)
    return f"Edit cell {cell.ident} of", cell.ident, after, _diff(cell.source, source, f"{cell.kind} cell {cell.ident}")


def _move(asked: EditArguments, notebook: Notebook) -> _Made:
    cell = _cell(asked, notebook)
    if cell.ident in (asked.after, asked.before):
        raise ToolFailure("a cell cannot be placed next to itself; name another cell")
    at, where = _place(asked, notebook)
    at -= at > cell.number
    if at == cell.number:
        raise ToolFailure(f"cell {cell.ident} is {where} already")
    first = " ".join(cell.source.split())[:80]
    diff = f"cell {cell.ident} ({cell.kind}: {first})\n- number {cell.number}\n+ number {at}, {where}\n"
    return f"Move cell {cell.ident} {where} in", cell.ident, notebook.moved(cell.number, at), diff


def _delete(asked: EditArguments, notebook: Notebook) -> _Made:
    cell = _cell(asked, notebook)
    diff = _diff(cell.source, "", f"{cell.kind} cell {cell.ident}")
    if cell.outputs:
        diff += f"-[with its {len(cell.outputs)} output{'s' * (len(cell.outputs) > 1)}]\n"
    return f"Delete cell {cell.ident} from", cell.ident, notebook.deleted(cell.number), diff


def _cell(asked: EditArguments, notebook: Notebook) -> Cell:
    if not asked.cell:
        raise ToolFailure(f"{asked.action} needs `cell`, the id of a cell as read shows it")
    cell = notebook.find(asked.cell)
    if cell.hidden:
        raise hidden(cell)
    return cell


def _place(asked: EditArguments, notebook: Notebook) -> tuple[int, str]:
    """The number that the cell will have, and the place in words."""
    if asked.after and asked.before:
        raise ToolFailure("give `after` or `before`, not both")
    if asked.after:
        beside = notebook.find(asked.after)
        return beside.number + 1, f"after {beside.ident}"
    if asked.before:
        beside = notebook.find(asked.before)
        return beside.number, f"before {beside.ident}"
    return len(notebook.cells), "at the end"


def _diff(before: str, after: str, name: str) -> str:
    old, new = (text.removesuffix("\n").split("\n") if text else [] for text in (before, after))
    lines = unified_diff(old, new, name, name, lineterm="", n=3)  # other ends of lines stay, to be spelled out
    text = "\n".join(list(lines)[2:])
    return f"{name}\n{text}\n"
