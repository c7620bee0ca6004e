"""A shell command as simple commands, for the plain part of the language only.

Whatever could mean something else to the shell than it says here (variables, substitutions,
redirections, braces, escapes, comments, control and odd space characters, …) is `Unclear`: such a
command is neither judged harmless nor matched by a rule with a wildcard. `shlex` cannot serve: it
drops the quotes, so that `'|'` and `|` read the same.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ipyagent.errors import ToolFailure

_BARE = frozenset("_-./,:=+%@")
_GLOB = frozenset("*?[]")
# `[^a]` and `[[:alpha:]]` mean to the shell another thing than to Python, which looks for the matches.
_SET = re.compile(r"\[[A-Za-z0-9_.,]+(?:-[A-Za-z0-9_.,]+)*\]")
_OPERATORS = ("&&", "||", "|", ";")


class Unclear(ToolFailure):
    """The command is not in the plain part of the language."""


class Word(NamedTuple):
    """`text` after quotes are removed; `glob`: it has an unquoted wildcard."""

    text: str
    glob: bool = False


def simple_commands(command: str) -> list[list[Word]]:
    """The commands of a sequence (`;`, `&&`, `||`) or pipe (`|`). Raises Unclear."""
    commands: list[list[Word]] = [[]]
    place = 0
    command = command.strip(" \n")
    while place < len(command):
        char = command[place]
        if char == " ":
            place += 1
            continue
        operator = next((sign for sign in _OPERATORS if command.startswith(sign, place)), "")
        if operator:
            place += len(operator)
            if not commands[-1]:
                raise Unclear(f"nothing before {operator!r}")
            commands.append([])
            continue
        word, place = _word(command, place)
        commands[-1].append(word)
    if not commands[-1]:
        if len(commands) == 1 or not command.endswith(";"):
            raise Unclear("an empty command")
        commands.pop()
    return commands


def _word(command: str, place: int) -> tuple[Word, int]:
    text, glob, start = "", False, place
    literal = False  # a wildcard's character in quotes, which is none
    while place < len(command):
        char = command[place]
        if char in " |;&":
            if char == "&" and not command.startswith("&&", place):
                raise Unclear("& starts a command in the background")
            break
        if char in "'\"":
            end = command.find(char, place + 1)
            if end < 0:
                raise Unclear("a quote is not closed")
            inside = command[place + 1 : end]
            if not inside.isprintable():
                raise Unclear("a character that cannot be seen")
            if char == '"' and any(sign in inside for sign in ("$", "`", "!", '\\"', "\\\\", "\\$", "\\`")):
                raise Unclear("an expansion in double quotes")
            if char == '"' and inside.endswith("\\"):
                raise Unclear("an escaped quote")
            text += inside
            literal = literal or not _GLOB.isdisjoint(inside)
            place = end + 1
            continue
        # `HEAD~1` and `HEAD^` are names of commits; at the start, or after = and :, ~ is a home.
        in_name = char in "~^" and place > start and command[place - 1] not in "=:,'\""
        if char in _GLOB:
            if not text or (text[0] not in "./_" and not text[0].isalnum()):
                raise Unclear("a wildcard that could become an option")
            glob = True
        elif not (char in _BARE or in_name or char.isalnum()):
            raise Unclear(f"{char!r} is not plain")
        text += char
        place += 1
    if glob and literal:
        raise Unclear("wildcards with and without quotes in one word")
    if glob and not {"[", "]"}.isdisjoint(_SET.sub("", text)):
        raise Unclear("a set of characters that not every reader reads the same")
    return Word(text, glob), place
