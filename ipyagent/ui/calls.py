"""What a tool call says about itself: the argument worth a line, and its input as source text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ipyagent.escape import line

_CODE = ("code", "source")
_COMMAND = ("command", "cmd")
_PATH = ("path", "file_path", "filename", "notebook", "file")
_PAIRS = (
    ("old", "new"), ("old_string", "new_string"), ("old_text", "new_text"), ("old_str", "new_str"), ("before", "after"),
)  # fmt: skip
_CONTENT = ("content", "text", "body", "file_text", "insert_text")
_FIRST = (*_CODE, *_COMMAND, *_PATH, "pattern", "query", "name", "skill", "task", "prompt", "url")


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A piece of input: `text` as it is (not cleaned), the lexer by `language` or `filename`."""

    text: str
    language: str = ""
    filename: str = ""


def main_argument(input: Mapping[str, Any], width: int = 90) -> str:
    """The most telling argument on one line, cleaned; "" when there is none."""
    if verb := _verb(input):
        return line(f"{verb} {_place(input)}", width)
    for key in (*_FIRST, *input):
        value = input.get(key)
        if isinstance(value, str) and value.strip():
            return line(_telling_row(value) if key in _CODE else value, width)
    for value in input.values():
        if value not in (None, "", [], {}):
            return line(_json(value), width)
    return ""


def sources(input: Mapping[str, Any]) -> list[CodeBlock]:
    """All of the input, the code, command or diff first; nothing is left out."""
    rest = dict(input)
    path = next((str(rest[key]) for key in _PATH if isinstance(rest.get(key), str)), "")
    found: list[CodeBlock] = []
    if _verb(input):
        del rest["command"]  # it is on the line already
    for key in _CODE:
        if isinstance(rest.get(key), str):
            found.append(CodeBlock(rest.pop(key), "" if path else "python", path))
    for key in _COMMAND:
        if isinstance(rest.get(key), str):
            found.append(CodeBlock(rest.pop(key), "bash"))
    for old, new in _PAIRS:
        if isinstance(rest.get(old), str) and isinstance(rest.get(new), str):
            found.append(CodeBlock(diff(rest.pop(old), rest.pop(new)), "diff"))
    for key in _CONTENT:
        if path and isinstance(rest.get(key), str):
            found.append(CodeBlock(rest.pop(key), "", path))
    if rest and not (found and len(rest) == 1 and path):  # a lone path is on the line already
        rows = [f"{key}: {value if isinstance(value, str) else _json(value)}" for key, value in rest.items()]
        found.append(CodeBlock("\n".join(rows), "text"))
    return found


def _verb(input: Mapping[str, Any]) -> str:
    """A `command` that is no command line but what is to be done with a path: "create"."""
    command = input.get("command")
    return command if isinstance(command, str) and command.isidentifier() and _place(input) else ""


def _place(input: Mapping[str, Any]) -> str:
    return next((value for key in (*_PATH, "old_path") if isinstance(value := input.get(key), str)), "")


def diff(old: str, new: str) -> str:
    """Changed rows with three of context, without file names."""
    rows = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    return "\n".join(list(rows)[2:])


def _telling_row(code: str) -> str:
    rows = [row.strip() for row in code.splitlines()]
    rows = [row for row in rows if any(char.isalnum() for char in row)]
    telling = (row for row in rows if not row.startswith(("#", "import ", "from ", "%matplotlib", '"""')))
    return next(telling, rows[0] if rows else "")


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)
