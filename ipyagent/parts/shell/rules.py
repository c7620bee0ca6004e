"""Which commands a permission rule covers. A rule without a wildcard covers exactly its command. One with a wildcard
covers commands in the plain part of the language only, and each command of a sequence on its own, so that `pytest *` is
not also `pytest; rm -r x`; behind a pipe what only shortens or counts what it is given may follow."""

from __future__ import annotations

import glob as globs
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

# ---- A shell command as simple commands, for the plain part of the language only. Whatever could mean something
# else to the shell than it says here (variables, substitutions, redirections, braces, escapes, comments, control
# and odd space characters, …) is `Unclear`: no rule with a wildcard covers it. `shlex` cannot serve: it drops the
# quotes, so that `'|'` and `|` read the same.

_BARE = frozenset("_-./,:=+%@")
_GLOB = frozenset("*?[]")
# `[^a]` and `[[:alpha:]]` mean to the shell another thing than to Python, which looks for the matches.
_SET = re.compile(r"\[[A-Za-z0-9_.,]+(?:-[A-Za-z0-9_.,]+)*\]")
_OPERATORS = ("&&", "||", "|", ";")


class Unclear(Exception):
    """The command is not in the plain part of the language."""


class Word(NamedTuple):
    """`text` after quotes are removed; `glob`: it has an unquoted wildcard."""

    text: str
    glob: bool = False


def simple_commands(command: str) -> tuple[list[list[Word]], list[bool]]:
    """The commands of a sequence (`;`, `&&`, `||`) or pipe (`|`), and for each whether it stands behind a pipe. Raises
    Unclear."""
    commands: list[list[Word]] = [[]]
    piped = [False]
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
                raise Unclear  # nothing before an operator
            commands.append([])
            piped.append(operator == "|")
            continue
        word, place = _word(command, place)
        commands[-1].append(word)
    if not commands[-1]:
        if len(commands) == 1 or not command.endswith(";"):
            raise Unclear  # an empty command
        commands.pop()
        piped.pop()
    return commands, piped


def _word(command: str, place: int) -> tuple[Word, int]:
    text, glob, start = "", False, place
    literal = False  # a wildcard's character in quotes, which is none
    while place < len(command):
        char = command[place]
        if char in " |;&":
            if char == "&" and not command.startswith("&&", place):
                raise Unclear  # & starts a command in the background
            break
        if char in "'\"":
            end = command.find(char, place + 1)
            if end < 0:
                raise Unclear  # a quote is not closed
            inside = command[place + 1 : end]
            if not inside.isprintable():
                raise Unclear  # a character that cannot be seen
            if char == '"' and any(sign in inside for sign in ("$", "`", "!", '\\"', "\\\\", "\\$", "\\`")):
                raise Unclear  # an expansion in double quotes
            if char == '"' and inside.endswith("\\"):
                raise Unclear  # an escaped quote
            text += inside
            literal = literal or not _GLOB.isdisjoint(inside)
            place = end + 1
            continue
        # `HEAD~1` and `HEAD^` are names of commits; at the start, or after = and :, ~ is a home.
        in_name = char in "~^" and place > start and command[place - 1] not in "=:,'\""
        if char in _GLOB:
            if not text or (text[0] not in "./_" and not text[0].isalnum()):
                raise Unclear  # a wildcard that could become an option
            glob = True
        elif not (char in _BARE or in_name or char.isalnum()):
            raise Unclear  # it is not plain
        text += char
        place += 1
    if glob and literal:
        raise Unclear  # wildcards with and without quotes in one word
    if glob and not {"[", "]"}.isdisjoint(_SET.sub("", text)):
        raise Unclear  # a set of characters that not every reader reads the same
    return Word(text, glob), place


# ---- Rules

_FILTERS = {
    "cat": r"(-[nbsAETv]+)?", "head": r"(-[0-9]+|-[nc] ?[0-9]+)?", "tail": r"(-[0-9]+|-[nc] ?[+-]?[0-9]+)?",
    "wc": r"(-[lwcmL]+)?", "nl": r"", "grep": r"(-[ivwxcnohEFP]+ )*[^-].*", "sort": r"(-[nrubhV]+ ?)*",
    "uniq": r"(-[cdiu]+ ?)*", "cut": r"(-[dfc] ?[^ ]{1,20} ?)+", "tr": r"(-[cds] )*[^-].*",
}  # fmt: skip
"""What may follow a covered command behind a pipe, with the arguments with which it names no file."""


def covers(rule: str, command: str) -> bool:
    """Whether the text in a rule's parentheses covers this command."""
    command = command.strip()
    if globs.escape(command) == rule or command == rule:
        return True
    try:
        commands, piped = simple_commands(command)
    except Unclear:
        return False
    each = list(zip(commands, piped, strict=True))
    return all(_fits(words, rule) or (behind and _filters(words)) for words, behind in each)


def _fits(words: Sequence[Word], rule: str) -> bool:
    text = " ".join(word.text for word in words)
    # `pytest *` covers plain `pytest`, but no program whose name goes on after a space
    return len(words[0].text.split()) == 1 and any(fnmatchcase(each, rule) for each in (text, f"{text} "))


def _filters(words: Sequence[Word]) -> bool:
    name, rest = words[0].text, words[1:]
    if name not in _FILTERS or any(word.glob for word in words):
        return False
    given = [word.text for word in rest]
    most = {"grep": 1, "tr": 2}.get(name)
    if most is not None:
        plain = [at for at, text in enumerate(given) if not text.startswith("-")]
        if len(plain) > most or (plain and plain[-1] != len(given) - 1):  # it takes options behind them, too
            return False
    return re.fullmatch(_FILTERS[name], " ".join(given)) is not None
