"""`memory`: the model reads and keeps its memories, with the commands of Anthropic's memory tool.

Everything is confined to the tree `/memories`; what is written is checked there (`MemoryAccess`).
Messages say the same as those of the public tool's documentation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ipyagent.errors import AgentError, MemoryRefused, ToolFailure
from ipyagent.escape import cut
from ipyagent.frontmatter import read_headed
from ipyagent.journal.protocols import REPLY, ToolOutput, Workspace
from ipyagent.parts.memory.access import MemoryAccess, SavedMemory
from ipyagent.parts.memory.metadata_index import KEPT, KINDS, check_edit, header_lines
from ipyagent.parts.memory.safe_paths import INDEX, ROOT, SCOPES, Address
from ipyagent.parts.memory.stores import OFF
from ipyagent.parts.memory.transcripts import PastSessions
from ipyagent.tools.answers import capped, clean, text_output
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
    said: str | list[str] = "",
    *,
    workspace: Workspace,
) -> ToolOutput:
    """View and keep memories: Markdown files in /memories/project and /memories/user. Secrets are refused.

    Args:
        view_range: First and last line, from 1; -1 is the end.
        old_str: Must occur once.
        insert_line: Insert after this line; 0 is the beginning.
        said: The user's exact words, where they said it; user and feedback need them.
    """
    access = workspace.memory
    if not isinstance(access, MemoryAccess):
        raise ToolFailure(OFF)
    if command != "view":
        await access.ready()
    most = workspace.limit("tool_output_chars")
    words = _pieces(said)
    edit = _Edit(command, path, old_str, new_str, insert_line, insert_text, words)

    def work() -> ToolOutput:
        match command:
            case "view":
                return viewed(access, access.find(_given("path", path, WHERE)), view_range, most)
            case "create":
                return _create(access, path, _given("file_text", file_text), words, most)
            case "str_replace" | "insert":
                return _edited(access, edit)
            case "delete":
                return _delete(access, access.find(_given("path", path, WHERE)))
            case "rename":
                return _rename(access, access.find(_given("old_path", old_path or path)), _given("new_path", new_path))

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


def _missing(access: MemoryAccess, place: Address) -> ToolFailure:
    return ToolFailure(f"Error: {access.missing(place) or MISSING.format(path=place.path)}")


# ---------------------------------------------------------------------- write


def _create(access: MemoryAccess, path: str, text: str, said: list[str], most: int) -> ToolOutput:
    kind = str(read_headed(text[:HEAD].encode(), part=True).fields.get("type", ""))
    place = access.find(_given("path", path, WHERE), new=True, kind=kind.strip().casefold())
    try:
        saved = access.create(place, text, said)
    except MemoryRefused as problem:
        if problem.reason == "exists" and (there := access.read(place)) is not None:
            told = f"Error: File {place.path} already exists. Change it with str_replace or insert. It holds:"
            raise ToolFailure(capped(f"{told}\n{numbered(lines_of(there), 1)}", most)) from None
        raise
    untyped = saved.memory.kind not in KINDS
    hint = f" It has no type; frontmatter `type` is one of {', '.join(KINDS)}." if untyped else ""
    added = f"Its frontmatter now also says where it comes from: view it before you use line numbers.{hint}"
    return _done(f"File created successfully at: {saved.memory.path}", saved, added)


class _Edit(NamedTuple):
    """The arguments of one str_replace or insert."""

    command: str
    path: str
    old_str: str = ""
    new_str: str = ""
    insert_line: int = -1
    insert_text: str = ""
    said: Sequence[str] = ()

    @classmethod
    def of(cls, given: dict[str, Any]) -> _Edit:
        known = {name: given[name] for name in cls._fields if given.get(name) is not None}
        return cls(**{**known, "said": _pieces(known.get("said", ""))})

    def applied(self, before: str, path: str) -> tuple[str, str]:
        """The text after the edit, and what the model is told. Raises ToolFailure, MemoryRefused."""
        self.check()
        after, told = self._replaced(before, path) if self.command == "str_replace" else self._inserted(before, path)
        if after != before or not self.said:
            check_edit(path, before, after)
        return after, told

    def check(self) -> None:
        """Raises ToolFailure for an argument that is missing."""
        if self.command == "str_replace":
            _given("old_str", self.old_str)
        elif self.insert_line == -1:
            raise ToolFailure("Error: this command needs `insert_line`")
        else:
            _given("insert_text", self.insert_text)

    @property
    def part(self) -> str:
        """What comes into the text."""
        return _text(self.new_str if self.command == "str_replace" else self.insert_text)

    def _replaced(self, before: str, path: str) -> tuple[str, str]:
        old = _text(self.old_str)
        places = _places(before, old)
        if not places:
            told = f"No replacement was performed, old_str `{cut(old, 200)}` did not appear verbatim in {path}."
            raise ToolFailure(told)
        if len(places) > 1 and not (places := _of_one_fact(before, found := places)):
            numbers = ", ".join(dict.fromkeys(str(before.count("\n", 0, at) + 1) for at in found))
            raise ToolFailure(
                f"No replacement was performed. Multiple occurrences of old_str `{cut(old, 200)}` in lines: {numbers}. "
                "Please ensure it is unique"
            )
        after = before
        for at in reversed(places):
            after = after[:at] + self.part + after[at + len(old) :]
        return after, f"The memory file has been edited{', in its description too' * (len(places) > 1)}."

    def _inserted(self, before: str, path: str) -> tuple[str, str]:
        lines, line = lines_of(before), self.insert_line
        if not 0 <= line <= len(lines):
            raise ToolFailure(
                f"Error: Invalid `insert_line` parameter: {line}. It should be within the range of lines of the "
                f"file: [0, {len(lines)}]"
            )
        head = header_lines(before)
        at = max(line, head)
        after = "\n".join([*lines[:at], *lines_of(self.part), *lines[at:]]) + "\n"
        moved = f" Lines 1 to {head} were its frontmatter, so the text was put after line {head}."
        return after, f"The file {path} has been edited.{moved if line < head else ''}"


def _edited(access: MemoryAccess, edit: _Edit) -> ToolOutput:
    """Do an edit; those of the same file in one reply together, so that all are made or none is."""
    edit.check()
    calls = REPLY.get()
    place = access.find(_given("path", edit.path, WHERE), new=True)
    key = (place, *(call.get("id") for call in calls))
    if key in access.answers:
        return _next(access.answers, key)
    others = [
        _Edit.of(call["input"])
        for call in calls
        if call.get("name") == "memory"
        and call["input"].get("command") in ("str_replace", "insert")
        and _is_at(access, call["input"].get("path"), place)
    ]
    if len(others) < 2 or edit not in others:
        (answer,) = _changed(access, [edit])
        return answer
    try:
        access.answers[key] = list(_changed(access, others))
    except (ToolFailure, MemoryRefused) as problem:
        told = f"None of the {len(others)} edits of {edit.path} in this message was made. {problem}"
        access.answers[key] = [ToolFailure(told) for _ in others]
    return _next(access.answers, key)


def _is_at(access: MemoryAccess, path: object, place: Address) -> bool:
    try:
        return isinstance(path, str) and bool(path) and access.find(path, new=True) == place
    except MemoryRefused:
        return False


def _next(answers: dict[Any, list[ToolOutput | ToolFailure]], key: Any) -> ToolOutput:
    answer = answers[key].pop(0)
    if not answers[key]:
        del answers[key]
    if isinstance(answer, ToolFailure):
        raise answer
    return answer


def _changed(access: MemoryAccess, edits: list[_Edit]) -> list[ToolOutput]:
    """The answers to edits of one file, made in their order and saved at once. Raises ToolFailure, MemoryRefused."""
    place = access.find(_given("path", edits[0].path, WHERE), new=True)
    told: list[str] = []

    def change(text: str) -> str:
        told.clear()
        for number, edit in enumerate(edits, 1):
            try:
                text, words = edit.applied(text, place.path)
            except (ToolFailure, MemoryRefused) as problem:
                if len(edits) == 1:
                    raise
                raise ToolFailure(f"Edit {number}: {problem}") from None
            told.append(words)
        return text

    try:
        saved = access.change(place, change, [piece for edit in edits for piece in edit.said])
    except MemoryRefused as problem:
        if problem.reason == "missing" or place.is_folder:
            raise _missing(access, place) from None
        raise
    if saved.event.change == "unchanged":
        told_too = f". {saved.remark}" if saved.remark else ""
        raise ToolFailure(f"Error: {place.path} was not changed: the edit leaves it as it is{told_too}")
    now = access.read(place) or ""
    return [_done(words, saved, _snippet(now, edit.part)) for words, edit in zip(told, edits, strict=True)]


def _places(text: str, part: str) -> list[int]:
    found: list[int] = []
    at = text.find(part) if part else -1
    while at >= 0:
        found.append(at)
        at = text.find(part, at + 1)
    return found


def _of_one_fact(text: str, places: list[int]) -> list[int]:
    """These places where they are one in the body and one in the description, which says the same; none otherwise.
    What code keeps in the header does not count."""
    lines, head = text.split("\n"), header_lines(text)
    found: dict[str, int] = {}
    for at in places:
        number = text.count("\n", 0, at)
        field = lines[number].partition(":")[0] if number < head else ""
        if field in KEPT:
            continue
        if field in found or field not in ("", "description"):
            return []
        found[field] = at
    return list(found.values())


def _pieces(said: str | list[str]) -> list[str]:
    return [clean(piece) for piece in ([said] if isinstance(said, str) else said) if isinstance(piece, str) and piece]


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
                raise _missing(access, place) from None
            raise
    inside = access.listed(place.scope, place.name)
    if not inside:
        raise _missing(access, place)
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
        raise _missing(access, place)
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
            raise _missing(access, place) from None
        if problem.reason == "exists":
            raise ToolFailure(f"Error: The destination {to.path} already exists") from None
        raise
    return text_output(words, note=f"{len(inside)} renamed")


def _done(words: str, saved: SavedMemory, *more: str) -> ToolOutput:
    event = saved.event
    name = event.path.removeprefix(f"{ROOT}/")
    return text_output("\n".join(part for part in (words, saved.remark, *more) if part), note=f"{event.change} {name}")


# ------------------------------------------------------------------ memory view
# What the memory tool shows: a folder with sizes, a file with line numbers.


MOST_LINES = 999_999
DEPTH = 2
MISSING = "The path {path} does not exist. Please provide a valid path."


def viewed(access: MemoryAccess, place: Address, lines: list[int] | None, most: int) -> ToolOutput:
    folder = listing(access, place) if place.is_folder else None
    if folder is not None:
        if lines:
            raise ToolFailure("Error: `view_range` is not allowed when `path` is a directory")
        return text_output(capped(folder, most), note=f"{folder.count(chr(10))} entries")
    text = access.read(place)
    if text is None:
        raise ToolFailure(access.missing(place) or MISSING.format(path=place.path))
    content = lines_of(text)
    if len(content) > MOST_LINES:
        raise ToolFailure(f"File {place.path} exceeds maximum line limit of {MOST_LINES:,} lines.")
    first, last = _span(lines, len(content))
    shown = f"Here's the content of {place.path} with line numbers:\n{numbered(content[first - 1 : last], first)}"
    note = f"{last - first + 1} of {len(content)} lines" if lines else f"{len(content)} lines"
    return text_output(capped(shown, most), note=note)


def listing(access: MemoryAccess, place: Address) -> str | None:
    """What a folder holds, two levels deep, with sizes; None when the place is no folder."""
    scopes = [place.scope] if place.scope else list(SCOPES)
    entries: dict[str, int] = {}
    for scope in scopes:
        base = f"{ROOT}/{scope}"
        try:
            listed = access.listed(scope, place.name)
        except AgentError as problem:
            if place.scope:
                raise
            entries[f"{base} ({problem})"] = 0
            continue
        if place.name and not listed:
            return None  # folders exist only by what is in them
        top = place.path
        sizes = {memory.path: memory.size for memory in listed}
        if not place.name and (index := access.read(Address(scope, INDEX))):
            sizes[f"{base}/{INDEX}"] = len(index.encode())
        for path, size in sizes.items():
            parts = path.removeprefix(top).strip("/").split("/")
            for level in range(min(len(parts), DEPTH) + 1):
                at = "/".join((top, *parts[:level]))
                entries[at] = entries.get(at, 0) + size
        entries.setdefault(base if not place.name else top, 0)
    entries.setdefault(place.path, 0)
    listing = "\n".join(f"{_size(entries[path])}\t{path}" for path in sorted(entries))
    return (
        f"Here're the files and directories up to {DEPTH} levels deep in {place.path}, "
        f"excluding hidden items and node_modules:\n{listing}"
    )


def _size(count: int) -> str:
    """As `du -h` writes sizes."""
    if not count:
        return "0"
    size = float(count) / 1024
    for unit in ("K", "M"):
        if size < 1024:
            return f"{max(size, 0.1):.1f}{unit}"
        size /= 1024
    return f"{size:.1f}G"


def lines_of(text: str) -> list[str]:
    """The lines that `view` shows and `insert` counts."""
    found = text.split("\n")
    return found if found[-1] else found[:-1]


def _span(lines: list[int] | None, count: int) -> tuple[int, int]:
    """First and last line of a view, from 1."""
    if not lines:
        return 1, count
    if len(lines) != 2:
        raise ToolFailure("Error: `view_range` is two line numbers: [first, last], -1 for the end")
    first, last = lines[0], count if lines[1] == -1 else lines[1]
    if not 1 <= first <= max(count, 1) or last < first:
        raise ToolFailure(
            f"Error: Invalid `view_range` parameter: {lines}. It should be within the range of lines of the file: "
            f"[1, {count}]"
        )
    return first, min(last, count)


def numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


# ---- `past_sessions`: passages of earlier sessions, and of this one from before its compactions, by words.

@tool(
    permission="none",
    writes=False,
    parallel=True,
    recreatable=True,
    deferred="search earlier sessions by words",
)
async def past_sessions(query: str, *, workspace: Workspace) -> str:
    """Search what was said and done in earlier sessions of this project, and in this one before a compaction, by a few
    telling words."""
    past = workspace.sessions
    if not isinstance(past, PastSessions):
        raise ToolFailure("past sessions cannot be searched here")
    return await asyncio.to_thread(past.passages, query)
