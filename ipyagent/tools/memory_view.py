"""What the memory tool shows: a folder with sizes, a file with line numbers."""

from __future__ import annotations

from ipyagent.errors import AgentError, ToolFailure
from ipyagent.journal.protocols import ToolOutput
from ipyagent.memory.access import Address, MemoryAccess
from ipyagent.memory.names import INDEX, ROOT, SCOPES
from ipyagent.tools.answers import capped, text_output

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
    shown = numbered(content[first - 1 : last], first)
    access_note = f"{last - first + 1} of {len(content)} lines" if lines else f"{len(content)} lines"
    return text_output(
        capped(f"Here's the content of {place.path} with line numbers:\n{shown}", most), note=access_note
    )


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
        index = access.read(Address(scope, INDEX)) if not place.name else None
        for path, size in [(memory.path, memory.size) for memory in listed] + (
            [(f"{base}/{INDEX}", len(index.encode()))] if index else []
        ):
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
