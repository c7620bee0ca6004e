"""Which shell commands only read, inside the folders that may be read: those run without a
question. Every command, option and operand must be known here; what is not known asks.

The options come from the manuals of GNU coreutils, findutils, grep, ripgrep and git; those that
write, run a program or read a list of files from elsewhere are left out."""
# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Workspace
from ipyagent.tools.git_reads import git_only_reads
from ipyagent.tools.paths import readable

# ---- A shell command as simple commands, for the plain part of the language only. Whatever could mean something
# else to the shell than it says here (variables, substitutions, redirections, braces, escapes, comments, control
# and odd space characters, …) is `Unclear`: such a command is neither judged harmless nor matched by a rule with a
# wildcard. `shlex` cannot serve: it drops the quotes, so that `'|'` and `|` read the same.

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


MOST_MATCHES = 1_000
"""A wildcard with more matches than this asks."""


@dataclass(frozen=True)
class CommandSpec:
    """`short` options without a value, `valued` with one, `long` ones ("name" or "name=").
    `text` operands that come first are text and not files; `files` False: no operand is a file;
    `most`: how many operands there may be; `number`: `-5` is an option; `alone`: a short option with
    a value stands by itself, for letters after it would be options still (`tree` does not use getopt)."""

    short: str = ""
    valued: str = ""
    long: str = ""
    text: int = 0
    files: bool = True
    most: int = 1_000
    number: bool = False
    alone: bool = False


_GREP = CommandSpec(
    "abchiHlLnoqrsvwxEFGPzZ",
    "ABCme",
    "count ignore-case line-number recursive invert-match files-with-matches files-without-match only-matching "
    "word-regexp fixed-strings extended-regexp perl-regexp no-filename with-filename quiet include= exclude= "
    "exclude-dir= color color= colour= max-count= after-context= before-context= context= regexp=",
    text=1,
    number=True,
)
READERS: dict[str, CommandSpec] = {
    "basename": CommandSpec(files=False),
    "cat": CommandSpec("nbsAETve", long="number number-nonblank show-all squeeze-blank"),
    "cmp": CommandSpec("bls"),
    "column": CommandSpec("t", "s"),
    "comm": CommandSpec("123"),
    "cut": CommandSpec(
        "sn", "dfcb", "delimiter= fields= characters= bytes= complement only-delimited output-delimiter="
    ),
    "date": CommandSpec("uR", "", "utc rfc-email iso-8601 iso-8601="),
    "df": CommandSpec("hTiakHP", long="human-readable inodes total"),
    "diff": CommandSpec(
        "uqwiBbyaEZ", "U", "unified unified= brief ignore-case ignore-all-space color color= side-by-side"
    ),
    "dirname": CommandSpec(files=False),
    "du": CommandSpec("shackmbx", "d", "human-readable summarize max-depth= total apparent-size all"),
    "echo": CommandSpec("ne", files=False),
    "egrep": _GREP,
    "fgrep": _GREP,
    "file": CommandSpec("biL", long="brief mime mime-type mime-encoding"),
    "grep": _GREP,
    "head": CommandSpec("qvz", "nc", "lines= bytes= quiet verbose", number=True),
    "ls": CommandSpec(
        "laAhRtrS1dFipsnGgoXvcukmxCQb",
        long="all almost-all human-readable recursive reverse size directory color color= sort= time= full-time inode "
        "group-directories-first classify time-style= format=",
    ),
    "md5sum": CommandSpec("b"),
    "nl": CommandSpec("", "b"),
    "nproc": CommandSpec(long="all", files=False, most=0),
    "pwd": CommandSpec("LP", files=False, most=0),
    "readlink": CommandSpec("fen"),
    "realpath": CommandSpec("ems"),
    "rg": CommandSpec(
        "nilcwFovgtTsSHIUxN",
        "ABCemgtT",
        "line-number ignore-case files-with-matches files-without-match count word-regexp fixed-strings only-matching "
        "invert-match smart-case case-sensitive hidden no-ignore glob= type= type-not= max-count= max-depth= "
        "context= after-context= before-context= regexp= no-heading heading color color= stats multiline json sort=",
        text=1,
    ),
    "sha256sum": CommandSpec("b"),
    "sort": CommandSpec(
        "nrufbghMVdisz",
        "kt",
        "numeric-sort reverse unique key= field-separator= human-numeric-sort version-sort "
        "general-numeric-sort ignore-case stable check",
    ),
    "stat": CommandSpec("Lft", "c", "format= dereference printf= terse"),
    "tail": CommandSpec("qvz", "nc", "lines= bytes= quiet verbose", number=True),
    "tr": CommandSpec("cdsCt", long="delete squeeze-repeats complement", files=False),
    "tree": CommandSpec("adfhspDCFrt", "LIP", "noreport dirsfirst", alone=True),
    "true": CommandSpec(files=False),
    "uname": CommandSpec("asnrmpvio", files=False, most=0),
    "uniq": CommandSpec("cdiuD", "fsw", "count repeated unique ignore-case skip-fields= skip-chars=", most=1),
    "wc": CommandSpec("lwcmL", long="lines words bytes chars max-line-length"),
    "which": CommandSpec("a", files=False),
    "whoami": CommandSpec(files=False, most=0),
}

_FIND_ALONE = frozenset(
    "-empty -print -print0 -not -o -or -a -and -prune -ls -daystart -xdev -mount -depth -readable -writable "
    "-executable -true -false -quit ! ( )".split()
)
_FIND_VALUED = frozenset(
    "-name -iname -path -ipath -wholename -type -maxdepth -mindepth -size -mtime -mmin -atime -amin -ctime -cmin "
    "-regex -iregex -regextype -perm -user -group -printf".split()
)
_FIND_FILES = frozenset("-newer -anewer -cnewer".split())
_SED_LINES = re.compile(r"\d+(,(\d+|\$))?p(;\d+(,(\d+|\$))?p)*")


def only_reads(command: str, workspace: Workspace) -> bool:
    """Whether the command is known to change nothing and to read nothing outside the folders
    that may be read."""
    if os.name == "nt":
        return False  # another shell, with other words
    try:
        return all(words_only_read(words, workspace) for words in simple_commands(command))
    except Unclear:
        return False


def words_only_read(words: Sequence[Word], workspace: Workspace) -> bool:
    """`only_reads` for one simple command in its words, whose wildcards are not expanded yet."""
    try:
        return os.name != "nt" and _reads(words, workspace) and not shows_hidden(words, workspace)
    except (ToolFailure, OSError, RuntimeError, ValueError):
        return False


def command_names(command: str) -> list[list[Word]] | None:
    """The simple commands, None when the command is not plain."""
    try:
        return simple_commands(command)
    except Unclear:
        return None


def _reads(words: Sequence[Word], workspace: Workspace) -> bool:
    name, rest = words[0].text, words[1:]
    if words[0].glob or not _from_system(name, workspace) or f"BASH_FUNC_{name}%%" in os.environ:
        return False
    if name == "rg" and "RIPGREP_CONFIG_PATH" in os.environ:
        return False  # that file may name a program
    special = _SPECIAL.get(name)
    if special is not None:
        return special(rest, workspace)
    reader = READERS.get(name)
    if reader is None:
        return False
    operands = _operands(reader, rest)
    if operands is None or len(operands) > reader.most:
        return False
    if name in ("uniq", "date") and any(word.glob for word in operands):
        return False  # a second file of `uniq` is written to
    if name == "date":
        return all(word.text.startswith("+") for word in operands)
    if name == "diff" and any(_has_folder(word, workspace) for word in operands):
        return False  # of folders it reads the files inside, through links
    if not reader.files:
        return not any(word.glob and not _inside(word, workspace) for word in operands)
    return all(_inside(word, workspace) for word in operands)


def _operands(reader: CommandSpec, words: Sequence[Word]) -> list[Word] | None:
    """The operands that are files, None when an option is not known."""
    operands: list[Word] = []
    # Where options end at the first operand (BSD, POSIXLY_CORRECT), each word after it is a file,
    # of `uniq` the one it writes to.
    long = reader.long.split()
    text = reader.text
    queue = list(words)
    while queue:
        word = queue.pop(0)
        argument = word.text
        if argument == "--":
            operands.extend(queue)
            break
        if not argument.startswith("-") or argument == "-":
            operands.append(word)
        elif word.glob or (operands and len(operands) >= reader.most):
            return None
        elif argument.startswith("--"):
            name, equals, _ = argument[2:].partition("=")
            # A value in the next word is not taken: for an option whose value may be left out,
            # that word is an operand.
            if (f"{name}=" if equals else name) not in long:
                return None
            if name == "regexp":
                text = 0
        elif reader.number and argument[1:].isdecimal() and argument.isascii():
            continue
        else:
            for place, letter in enumerate(argument[1:], 1):
                if letter in reader.valued:
                    if reader.alone and len(argument) > 2:
                        return None
                    if place == len(argument) - 1:
                        if not queue or queue[0].glob:
                            return None
                        value = queue.pop(0)
                        if operands:
                            operands.append(value)
                    text = 0 if letter == "e" else text
                    break
                if letter not in reader.short:
                    return None
    first = operands[:text]
    return None if any(word.glob for word in first) else operands[text:]


def _find(words: Sequence[Word], workspace: Workspace) -> bool:
    queue = list(words)
    while queue and not queue[0].text.startswith(("-", "(", "!")):
        if not _inside(queue.pop(0), workspace):
            return False
    while queue:
        word = queue.pop(0)
        if word.glob:
            return False
        if word.text in _FIND_ALONE:
            continue
        if word.text not in _FIND_VALUED | _FIND_FILES or not queue:
            return False
        value = queue.pop(0)
        if value.glob or (word.text in _FIND_FILES and not _inside(value, workspace)):
            return False
    return True


def _sed(words: Sequence[Word], workspace: Workspace) -> bool:
    """Only `sed -n '3,20p' FILE…`."""
    return (
        len(words) >= 2
        and words[0].text == "-n"
        and bool(_SED_LINES.fullmatch(words[1].text))
        and all(not word.text.startswith("-") and _inside(word, workspace) for word in words[2:])
    )


def _git(words: Sequence[Word], workspace: Workspace) -> bool:
    if any(word.glob for word in words):
        return False
    arguments = [word.text for word in words]
    return git_only_reads(arguments, workspace.folder) and all(
        _inside(word, workspace)
        for word in words
        if word.text.startswith("/") or ".." in word.text.split("/") or (workspace.folder / word.text).exists()
    )


_SPECIAL: dict[str, Callable[[Sequence[Word], Workspace], bool]] = {"find": _find, "sed": _sed, "git": _git}


def _inside(word: Word, workspace: Workspace) -> bool:
    """Whether a file operand, with its wildcards, stays in the folders that may be read."""
    if word.text == "-":
        return True
    if not word.glob:
        return readable((workspace.folder / word.text).resolve(), workspace)
    if not readable((workspace.folder / re.split(r"[*?\[]", word.text)[0]).resolve(), workspace):
        return False
    if any(part.startswith(".") and part != ".." and fnmatchcase("..", part) for part in word.text.split("/")):
        return False  # before version 5.2 bash finds `..` as well
    for number, name in enumerate(glob.iglob(word.text, root_dir=workspace.folder, include_hidden=True)):
        if number == MOST_MATCHES or not readable((workspace.folder / name).resolve(), workspace):
            return False
    return True


def _has_folder(word: Word, workspace: Workspace) -> bool:
    names = glob.iglob(word.text, root_dir=workspace.folder, include_hidden=True) if word.glob else (word.text,)
    return any((workspace.folder / name).is_dir() for name in names)


def _from_system(name: str, workspace: Workspace) -> bool:
    """Whether the name is a bare one and the program it runs is not a file of the project."""
    if "/" in name or not all(map(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep))):
        return False  # with a relative entry in PATH a program may be any folder's
    found = shutil.which(name)
    if found is None:
        return name in ("echo", "pwd", "true")  # the shell has these itself
    files = (Path(found), Path(found).resolve())
    return not any(file.is_relative_to(folder) for file in files for folder in (workspace.root, workspace.folder))


# ------------------------------------------------------------------ hidden reads
# Whether a reading command shows a cell that its author hides from the agent (`agent-hide`): such a command asks. The
# tools of ours leave those cells out; a command of the system knows nothing of them.


MARK = b"agent-hide"
"""Stands in the file of every notebook with a hidden cell, as a tag or in a comment."""
MOST_ENTRIES = 20_000
"""Files and folders looked through for notebooks; a command that reads more than that asks."""
_NAMES = frozenset((
    "basename", "date", "df", "dirname", "du", "echo", "file", "find", "ls", "md5sum", "nproc", "pwd", "readlink",
    "realpath", "sha256sum", "stat", "tr", "tree", "true", "uname", "wc", "which", "whoami",
))  # fmt: skip
"""Commands that tell names, sizes and sums only."""
_GIT_NAMES = frozenset((
    "status", "shortlog", "branch", "tag", "remote", "ls-files", "ls-tree", "rev-parse", "rev-list", "describe",
))  # fmt: skip
_GREPS = frozenset(("grep", "egrep", "fgrep", "rg"))
_PASSED = frozenset((".git", "node_modules", "site-packages", "__pycache__"))


def shows_hidden(words: Sequence[Word], workspace: Workspace) -> bool:
    """Whether a command that only reads may show a hidden cell of a notebook. Raises OSError."""
    name, rest = words[0].text, words[1:]
    if name in _NAMES:
        return False
    if name == "git":
        command = next((word.text for word in rest if not word.text.startswith("-")), "")
        return command not in _GIT_NAMES and _any_hidden([workspace.root])
    named = [path for word in rest for path in _paths(word, workspace)]
    recursive = name == "rg" or any("r" in word.text for word in rest if word.text.startswith("-"))
    if not named and name in _GREPS and recursive:
        named = [workspace.folder]
    return _any_hidden(named)


def _paths(word: Word, workspace: Workspace) -> Iterator[Path]:
    """The files and folders that a word may name; what may not be read is the value of an option."""
    folder = workspace.folder
    names = glob.iglob(word.text, root_dir=folder, include_hidden=True) if word.glob else (word.text,)
    found = (folder / name for name in names)
    return (path for path in found if os.path.lexists(path) and readable(path.resolve(), workspace))


def _any_hidden(paths: Sequence[Path]) -> bool:
    left = MOST_ENTRIES
    for path in paths:
        if not path.is_dir():
            if _hides(path):
                return True
            continue
        for place, folders, files in os.walk(path):
            folders[:] = [name for name in folders if name not in _PASSED]
            left -= len(folders) + len(files)
            if left < 0 or any(_hides(Path(place, name)) for name in files):
                return True
    return False


def _hides(file: Path) -> bool:
    return file.suffix.casefold() == ".ipynb" and file.is_file() and MARK in file.read_bytes()
