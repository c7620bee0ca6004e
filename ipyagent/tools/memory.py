"""`memory`: the model reads and keeps its memories, with the commands of Anthropic's memory tool.

Everything is confined to the tree `/memories`; what is written is checked there (`MemoryAccess`).
Messages say the same as those of the public tool's documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ipyagent.errors import AgentError, MemoryRefused, ToolFailure
from ipyagent.headers import read_headed
from ipyagent.journal.protocols import ToolOutput, Workspace
from ipyagent.memory.access import KINDS, Address, MemoryAccess, Saved
from ipyagent.memory.memories import OFF
from ipyagent.memory.names import ROOT
from ipyagent.memory.texts import check_edit, header_lines
from ipyagent.tools.answers import capped, clean, text_output
from ipyagent.tools.memory_view import MISSING, lines_of, numbered, viewed
from ipyagent.tools.schema import tool

WHERE = f"a path; paths begin with {ROOT}/project or {ROOT}/user"
SNIPPET = 4
"""Lines shown before and after a change."""
HEAD = 8_192
"""Characters of a new file that tell its type."""


def _writes(arguments: dict[str, Any], workspace: Workspace) -> bool:
    return bool(arguments["command"] != "view")


@tool(permission="none", writes=_writes)
async def memory(
    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"],
    path: str = "",
    view_range: list[int] | None = None,
    file_text: str = "",
    old_str: str = "",
    new_str: str = "",
    insert_line: int = -1,
    insert_text: str = "",
    old_path: str = "",
    new_path: str = "",
    *,
    workspace: Workspace,
) -> ToolOutput:
    """View and keep memories: Markdown files in /memories/project (this project) and /memories/user (all
    projects). A file begins with frontmatter: name, description, type. Secrets are refused; what tools
    returned is never a user or feedback memory.

    Args:
        command: What to do.
        path: The file or folder; all commands but rename.
        view_range: view: first and last line, from 1; -1 is the end.
        file_text: create: the whole text of a new file.
        old_str: str_replace: text that is in the file once.
        new_str: str_replace: what takes its place.
        insert_line: insert: the line after which to insert; 0 is the beginning.
        insert_text: insert: the text.
        old_path: rename: the file or folder.
        new_path: rename: its new path.
    """
    access = workspace.memory
    if not isinstance(access, MemoryAccess):
        raise ToolFailure(OFF)
    if command != "view":
        await access.ready()
    most = workspace.limit("tool_output_chars")

    def work() -> ToolOutput:
        match command:
            case "view":
                return viewed(access, access.find(_given("path", path, WHERE)), view_range, most)
            case "create":
                return _create(access, path, _given("file_text", file_text), most)
            case "str_replace":
                return _replace(access, _written(access, path), _given("old_str", old_str), _text(new_str))
            case "insert":
                if insert_line == -1:
                    raise ToolFailure("Error: this command needs `insert_line`")
                return _insert(access, _written(access, path), insert_line, _given("insert_text", insert_text))
            case "delete":
                return _delete(access, access.find(_given("path", path, WHERE)))
            case "rename":
                return _rename(access, access.find(_given("old_path", old_path)), _given("new_path", new_path))

    try:
        return await access.beside(work)
    except AgentError as problem:
        raise ToolFailure(f"Error: {problem}") from None


def _given(name: str, value: str, where: str = "") -> str:
    if not value:
        raise ToolFailure(f"Error: this command needs {where or f'`{name}`'}")
    return _text(value)


def _text(value: str) -> str:
    return clean(value).replace("\r\n", "\n").replace("\r", "\n")


def _written(access: MemoryAccess, path: str) -> Address:
    return access.find(_given("path", path, WHERE), new=True)


def _missing(place: Address) -> ToolFailure:
    return ToolFailure(f"Error: {MISSING.format(path=place.path)}")


# ---------------------------------------------------------------------- write


def _create(access: MemoryAccess, path: str, text: str, most: int) -> ToolOutput:
    kind = str(read_headed(text[:HEAD].encode(), part=True).fields.get("type", ""))
    place = access.find(_given("path", path, WHERE), new=True, kind=kind.strip().casefold())
    try:
        saved = access.create(place, text)
    except MemoryRefused as problem:
        if problem.reason == "exists" and (there := access.read(place)) is not None:
            told = f"Error: File {place.path} already exists. Change it with str_replace or insert. It holds:"
            raise ToolFailure(capped(f"{told}\n{numbered(lines_of(there), 1)}", most)) from None
        raise
    untyped = saved.memory.kind not in KINDS
    hint = f" It has no type; frontmatter `type` is one of {', '.join(KINDS)}." if untyped else ""
    added = f"Its frontmatter now also says where it comes from: view it before you use line numbers.{hint}"
    return _done(f"File created successfully at: {place.path}", saved, added)


def _replace(access: MemoryAccess, place: Address, old: str, new: str) -> ToolOutput:
    def edit(before: str) -> str:
        places = _places(before, old)
        if not places:
            raise ToolFailure(
                f"No replacement was performed, old_str `{_brief(old)}` did not appear verbatim in {place.path}."
            )
        if len(places) > 1:
            numbers = ", ".join(dict.fromkeys(str(before.count("\n", 0, at) + 1) for at in places))
            raise ToolFailure(
                f"No replacement was performed. Multiple occurrences of old_str `{_brief(old)}` in lines: {numbers}. "
                "Please ensure it is unique"
            )
        after = before[: places[0]] + new + before[places[0] + len(old) :]
        check_edit(place.path, before, after)
        return after

    return _changed(access, place, edit, new, lambda: "The memory file has been edited.")


def _places(text: str, part: str) -> list[int]:
    found: list[int] = []
    at = text.find(part) if part else -1
    while at >= 0:
        found.append(at)
        at = text.find(part, at + 1)
    return found


def _brief(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def _insert(access: MemoryAccess, place: Address, line: int, text: str) -> ToolOutput:
    moved = [0]

    def edit(before: str) -> str:
        lines = lines_of(before)
        if not 0 <= line <= len(lines):
            raise ToolFailure(
                f"Error: Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file: "
                f"[0, {len(lines)}]"
            )
        head = header_lines(before)
        moved[0] = head if line < head else 0
        at = max(line, head)
        after = "\n".join([*lines[:at], *lines_of(text), *lines[at:]]) + "\n"
        check_edit(place.path, before, after)
        return after

    def words() -> str:
        head = moved[0]
        told = f" Lines 1 to {head} were its frontmatter, so the text was put after line {head}." if head else ""
        return f"The file {place.path} has been edited.{told}"

    return _changed(access, place, edit, text, words)


def _changed(
    access: MemoryAccess, place: Address, edit: Callable[[str], str], part: str, words: Callable[[], str]
) -> ToolOutput:
    try:
        saved = access.change(place, edit)
    except MemoryRefused as problem:
        if problem.reason == "missing" or place.is_folder:
            raise _missing(place) from None
        raise
    if saved.event.change == "unchanged":
        raise ToolFailure(f"Error: {place.path} was not changed: the edit leaves it as it is")
    return _done(words(), saved, _snippet(access.read(place) or "", part))


def _snippet(text: str, part: str) -> str:
    """The lines around what was put in, numbered."""
    lines = lines_of(text)
    at = text.find(part) if part else -1
    if at < 0:
        return ""
    first = text.count("\n", 0, at)
    start, end = max(0, first - SNIPPET), min(len(lines), first + part.count("\n") + 1 + SNIPPET)
    return f"Here's the snippet with line numbers:\n{numbered(lines[start:end], start + 1)}"


def _delete(access: MemoryAccess, place: Address) -> ToolOutput:
    if not place.name:
        raise ToolFailure(f"Error: Cannot delete the {place.path} directory itself")
    if not place.is_folder:
        try:
            return _done(f"Successfully deleted {place.path}", access.delete(place))
        except MemoryRefused as problem:
            if problem.reason == "missing":
                raise _missing(place) from None
            raise
    inside = access.listed(place.scope, place.name)
    if not inside:
        raise _missing(place)
    for found in inside:
        access.delete(Address(place.scope, found.name))
    return text_output(f"Successfully deleted {place.path}", note=f"{len(inside)} deleted")


def _rename(access: MemoryAccess, place: Address, goal: str) -> ToolOutput:
    if not place.name:
        raise ToolFailure(f"Error: Cannot rename the {place.path} directory itself")
    to = access.renamed(place, goal)
    words = f"Successfully renamed {place.path} to {to.path}"
    if place.is_folder != to.is_folder:
        kind = "folder" if place.is_folder else "file that ends in .md"
        raise ToolFailure(f"Error: {to.path} must name a {kind}, as {place.path} does")
    if place == to and access.read(place) is not None:
        raise ToolFailure(f"Error: The destination {to.path} already exists")
    inside = access.listed(place.scope, place.name) if place.is_folder else []
    if place.is_folder and not inside:
        raise _missing(place)
    if place.is_folder and (not to.name or access.listed(to.scope, to.name)):
        raise ToolFailure(f"Error: The destination {to.path} already exists")
    try:
        if not inside:
            return _done(words, access.rename(place, to))
        for found in inside:
            moved = Address(to.scope, to.name + found.name.removeprefix(place.name))
            access.rename(Address(place.scope, found.name), moved)
    except MemoryRefused as problem:
        if problem.reason == "missing":
            raise _missing(place) from None
        if problem.reason == "exists":
            raise ToolFailure(f"Error: The destination {to.path} already exists") from None
        raise
    return text_output(words, note=f"{len(inside)} renamed")


def _done(words: str, saved: Saved, *more: str) -> ToolOutput:
    event = saved.event
    name = event.path.removeprefix(f"{ROOT}/")
    return text_output("\n".join(part for part in (words, saved.remark, *more) if part), note=f"{event.change} {name}")
