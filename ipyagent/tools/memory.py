"""`memory`: the model reads and keeps its memories, with the commands of Anthropic's memory tool.

Everything is confined to the tree `/memories`; what is written is checked there (`MemoryAccess`).
Messages say the same as those of the public tool's documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ipyagent.errors import AgentError, MemoryRefused, ToolFailure
from ipyagent.journal.protocols import ToolOutput, Workspace
from ipyagent.memory.access import KINDS, Address, MemoryAccess, Saved, address
from ipyagent.memory.memories import OFF
from ipyagent.memory.names import ROOT
from ipyagent.tools.answers import clean, text_output
from ipyagent.tools.memory_view import MISSING, lines_of, numbered, viewed
from ipyagent.tools.schema import tool

SNIPPET = 4
"""Lines shown before and after a change."""


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
    try:
        match command:
            case "view":
                return viewed(access, _place(path), view_range, workspace.limit("tool_output_chars"))
            case "create":
                return _create(access, _place(path), _given("file_text", file_text))
            case "str_replace":
                return _replace(access, _place(path), _given("old_str", old_str), clean(new_str))
            case "insert":
                if insert_line == -1:
                    raise ToolFailure("Error: this command needs `insert_line`")
                return _insert(access, _place(path), insert_line, _given("insert_text", insert_text))
            case "delete":
                return _delete(access, _place(path))
            case "rename":
                return _rename(access, _place(_given("old_path", old_path)), _place(_given("new_path", new_path)))
    except AgentError as problem:
        raise ToolFailure(f"Error: {problem}") from None


def _place(path: str) -> Address:
    if not path:
        raise ToolFailure(f"Error: this command needs a path; paths begin with {ROOT}/project or {ROOT}/user")
    return address(path)


def _given(name: str, value: str) -> str:
    if not value:
        raise ToolFailure(f"Error: this command needs `{name}`")
    return clean(value)


def _missing(place: Address) -> ToolFailure:
    return ToolFailure(f"Error: {MISSING.format(path=place.path)}")


# ---------------------------------------------------------------------- write


def _create(access: MemoryAccess, place: Address, text: str) -> ToolOutput:
    try:
        saved = access.create(place, text)
    except MemoryRefused as problem:
        if problem.reason == "exists":
            raise ToolFailure(f"Error: File {place.path} already exists") from None
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
        return before[: places[0]] + new + before[places[0] + len(old) :]

    return _changed(access, place, edit, new, "The memory file has been edited.")


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
    def edit(before: str) -> str:
        lines = lines_of(before) if before else []
        if not 0 <= line <= len(lines):
            raise ToolFailure(
                f"Error: Invalid `insert_line` parameter: {line}. It should be within the range of lines of the file: "
                f"[0, {len(lines)}]"
            )
        return "\n".join([*lines[:line], *lines_of(text), *lines[line:]]) + "\n"

    return _changed(access, place, edit, text, f"The file {place.path} has been edited.")


def _changed(
    access: MemoryAccess, place: Address, edit: Callable[[str], str], part: str, words: str
) -> ToolOutput:
    try:
        saved = access.change(place, edit)
    except MemoryRefused as problem:
        if problem.reason == "missing" or place.is_folder:
            raise _missing(place) from None
        raise
    return _done(words, saved, _snippet(access.read(place) or "", part))


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


def _rename(access: MemoryAccess, place: Address, to: Address) -> ToolOutput:
    words = f"Successfully renamed {place.path} to {to.path}"
    if not place.name:
        raise ToolFailure(f"Error: Cannot rename the {place.path} directory itself")
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
