"""Walking folders and matching lines, in one order and in bounds.

Also the program of grep's search process: Python's `re` cannot be interrupted and holds the whole
kernel while a bad pattern runs, so lines are matched in a process that can be killed. It is run as
`python -I -S searching.py`, hence nothing but the standard library is imported here.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
import time
from collections.abc import Iterator

SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".ipyagent", "node_modules", "__pycache__", ".ipynb_checkpoints", ".venv", "venv"}
    | {".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache", "site-packages"}
)
LARGEST = 4 * 1024 * 1024
"""Bytes searched of one file."""
WINDOW, STEP = 8_192, 4_096
"""A longer line is matched in windows of so many characters, so that the time is linear in its length: a match of up
to STEP characters is found wherever it is."""
SHOWN = 300
"""Characters shown of a line."""
STORED, PIECE = "tool-results", 2_000
"""The folder of stored results, whose lines `read_file` counts in pieces of so many characters (journal.stored)."""


def walk(top: str, until: float = math.inf) -> Iterator[str]:
    """Paths of the files under `top`, relative to it, with "/" and in sorted order; links to
    folders are not followed, folders of tools and environments left out. It ends when the monotonic clock is at
    `until`."""
    folders = [""]
    while folders and time.monotonic() < until:
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


def lines_of(path: str) -> tuple[list[str], bool] | None:
    """A text file's lines and whether they are those of its first LARGEST bytes only; None for what is no text."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = file.read(LARGEST + 1)
    except OSError:
        return None
    cut, data = len(data) > LARGEST, data[:LARGEST]
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", "replace")
    elif b"\x00" in data[:8_192]:
        return None
    else:
        text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines, cut


def match_in(regex: re.Pattern[str], line: str) -> re.Match[str] | None:
    """The first match in a line. Of a line over WINDOW characters only one of up to STEP characters is found, unless
    the pattern is bound to the line's beginning."""
    if len(line) <= WINDOW:
        return regex.search(line)
    if regex.pattern.startswith(("^", "\\A")) and "|" not in regex.pattern:
        return regex.match(line)
    for start in range(0, len(line), STEP):
        end = min(start + WINDOW, len(line))
        found = regex.search(line, start, end)
        # `$` and the like match at the window's end: such a match must hold with other ends too
        if found and found.end() == end < len(line):
            ends = (end + STEP, end + STEP + 1)
            found = found if all(regex.match(line, found.start(), other) for other in ends) else None
        if found:
            return found
    return None


def _excerpt(line: str, found: re.Match[str] | None) -> str:
    """A line as it is shown: a long one by what is around the match."""
    if len(line) <= SHOWN:
        return line
    at = found.start() if found else 0
    start = max(0, min(at - SHOWN // 3, len(line) - SHOWN))
    piece = f"{'…' * (start > 0)}{line[start : start + SHOWN]}{'…' * (start + SHOWN < len(line))}"
    place = f" [first match at character {at + 1:,} of {len(line):,}]" if found and len(line) > PIECE else ""
    return piece + place


def main() -> None:
    """Read one request as JSON from stdin, write one JSON line a match: [path, number, line, is it a match or
    context]; the last line is {"files": searched, "more": whether there were more, "cut": files of which only the
    first LARGEST bytes were searched, "long": whether a line was matched in windows}."""
    asked = json.load(sys.stdin)
    top, most, around = asked["top"], asked["max_results"], asked["context"]
    regex = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    wanted = glob_regex(asked["glob"]) if asked["glob"] else None
    inside = asked["inside"]
    names = walk(top) if os.path.isdir(top) else iter([""])
    searched = found = 0
    cut: list[str] = []
    long = False
    for name in names:
        if wanted and not wanted.match(name or os.path.basename(top)):
            continue
        path = os.path.join(top, name) if name else top
        # A link may lead out of the folders that may be read.
        if os.path.islink(path) and not any(
            os.path.commonpath([folder, os.path.realpath(path)]) == folder for folder in inside
        ):
            continue
        read = lines_of(path)
        if read is None:
            continue
        lines = read[0]
        searched += 1
        if read[1]:
            cut.append(name)
        pieces = os.path.basename(os.path.dirname(path)) == STORED
        written = extra = 0
        for number, line in enumerate(lines, 1):
            long = long or len(line) > WINDOW
            match = match_in(regex, line)
            if match:
                if found == most:
                    _say({"files": searched, "more": True, "cut": cut, "long": long})
                    return
                found += 1
                for near in range(max(written + 1, number - around), min(len(lines), number + around) + 1):
                    text = lines[near - 1]
                    hit = match if near == number else match_in(regex, text)
                    shift = extra + (hit.start() // PIECE if pieces and hit else 0)
                    _say([name, near + shift, _excerpt(text, hit), bool(hit)])
                    written = near
            if pieces:
                extra += max(0, len(line) - 1) // PIECE
    _say({"files": searched, "more": False, "cut": cut, "long": long})


def _say(entry: object) -> None:
    sys.stdout.write(json.dumps(entry) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
