"""Walking folders and matching lines, in one order and in bounds.

Also the program of grep's search process: Python's `re` cannot be interrupted and holds the whole
kernel while a bad pattern runs, so lines are matched in a process that can be killed. It is run as
`python -I -S searching.py`, hence nothing but the standard library is imported here.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator

SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".ipyagent", "node_modules", "__pycache__", ".ipynb_checkpoints", ".venv", "venv"}
    | {".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", "site-packages"}
)
LARGEST = 4 * 1024 * 1024
"""Bytes searched of one file."""
LONGEST = 4_000
"""Characters of a line that are matched."""


def walk(top: str) -> Iterator[str]:
    """Paths of the files under `top`, relative to it, with "/" and in sorted order; links to
    folders are not followed, folders of tools and environments left out."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.path.join(top, folder)) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue  # not ours to read, or gone since
        inner = []
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED and not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                    inner.append(path)
            else:
                yield path
        folders.extend(reversed(inner))


def glob_regex(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression over paths with "/": `*` and `?` stay within a name, `**/`
    stands for any number of folders, `{a,b}` for either. A pattern without "/" matches a file's
    name in any folder. Raises re.error."""
    pattern = pattern.removeprefix("./")
    if pattern.count("*") > 12:
        raise re.error("more than 12 stars")
    made = "" if "/" in pattern else "(?:.*/)?"
    depth = place = 0
    while place < len(pattern):
        char = pattern[place]
        if pattern.startswith("**/", place):
            made += "(?:.*/)?"
            place += 2
        elif pattern.startswith("**", place):
            made += ".*"
            place += 1
        elif char == "*":
            made += "[^/]*"
        elif char == "?":
            made += "[^/]"
        elif char == "[" and (end := pattern.find("]", place + 2)) > 0:
            inside = pattern[place + 1 : end]
            inside = "^" + inside[1:] if inside[0] in "!^" else inside
            made += "[" + inside.replace("\\", r"\\").replace("[", r"\[") + "]"
            place = end
        elif char == "{" and "}" in pattern[place:]:
            made += "(?:"
            depth += 1
        elif char == "}" and depth:
            made += ")"
            depth -= 1
        elif char == "," and depth:
            made += "|"
        else:
            made += re.escape(char)
        place += 1
    return re.compile(made + r"\Z", re.DOTALL)


def lines_of(path: str) -> list[str] | None:
    """A text file's lines, None for what is not one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(LARGEST)
    except OSError:
        return None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace").splitlines()
    if b"\x00" in data[:8_192]:
        return None
    return data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").split("\n")


def main() -> None:
    """Read one request as JSON from stdin, write one JSON line a match: [path, number, line, is
    it a match or context]; the last line is {"files": searched, "more": whether there were more}."""
    asked = json.load(sys.stdin)
    top, most, around = asked["top"], asked["max_results"], asked["context"]
    regex = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    wanted = glob_regex(asked["glob"]) if asked["glob"] else None
    inside = asked["inside"]
    names = walk(top) if os.path.isdir(top) else iter([""])
    searched = found = 0
    for name in names:
        if wanted and not wanted.match(name or os.path.basename(top)):
            continue
        path = os.path.join(top, name) if name else top
        # A link may lead out of the folders that may be read.
        if os.path.islink(path) and not any(
            os.path.commonpath([folder, os.path.realpath(path)]) == folder for folder in inside
        ):
            continue
        lines = lines_of(path)
        if lines is None:
            continue
        searched += 1
        written = 0
        for number, line in enumerate(lines, 1):
            if not regex.search(line[:LONGEST]):
                continue
            if found == most:
                _say({"files": searched, "more": True})
                return
            found += 1
            for near in range(max(written + 1, number - around), min(len(lines), number + around) + 1):
                shown = lines[near - 1][:300]
                _say([name, near, shown, bool(regex.search(lines[near - 1][:LONGEST]))])
                written = near
    _say({"files": searched, "more": False})


def _say(entry: object) -> None:
    sys.stdout.write(json.dumps(entry) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
