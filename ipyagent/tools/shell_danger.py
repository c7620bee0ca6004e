"""Why a shell command needs a yes even in mode "auto". It looks for commands that destroy what
cannot be had again, wherever the shell would run them, and names what it cannot see through."""

# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ipyagent.tools.git_danger import git_danger
from ipyagent.tools.shell_deletes import PLAIN, deletes, sql_danger
from ipyagent.tools.shell_documents import without_documents
from ipyagent.tools.shell_interpreters import SHELLS, code_given, fed, interprets
from ipyagent.tools.shell_overwrites import has_content, overwritten, settles, written_to
from ipyagent.tools.shell_runners import inner_commands, inner_lines, unexamined
from ipyagent.tools.standing_files import in_force

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_KEYWORDS = frozenset("then do else elif if while until ! time".split())
_BEFORE = frozenset("sudo doas env command builtin exec nohup time nice".split())
_SEPARATORS = frozenset((";", "&", "&&", "||", "|", "|&", ";;", "(", ")", "{", "}", "\n", "$"))


def danger(command: str, folder: Path, depth: int = 0) -> str:
    """The reason, "" when there is none. `folder`: where it runs."""
    if depth > 4:
        return "it is nested too deeply to be examined"
    if reason := sql_danger(command):
        return reason
    for inner in _substitutions(command):
        reason = danger(inner, folder, depth + 1)
        if reason:
            return reason
    try:
        tokens = _tokens(without_documents(command))
    except ValueError as problem:
        return f"it cannot be parsed ({problem})"
    words: list[str] = []
    piped = False
    place = 0
    entered = ""
    while place < len(tokens):
        token = tokens[place]
        if token and set(token) <= set("<>&|") and ("<" in token or ">" in token):
            target = tokens[place + 1] if place + 1 < len(tokens) else ""
            number = words.pop() if words and words[-1].isdecimal() else ""
            if token == "<>" and number not in ("", "0") and has_content(target, folder):
                return f"it overwrites {target}"
            if token in (">", ">|", "&>", ">&") and not target.isdecimal() and has_content(target, folder):
                return f"it overwrites {target}"
            if ">" in token and (reason := in_force(os.path.join(entered, target), folder)):
                return reason
            place += 2
            if "<<" in token and any(map(interprets, words)):
                return "it runs a program given in the command"
            continue
        if token == "$" and tokens[place + 1 : place + 2] == ["("] and not any(map(_is_name, words)):
            return "it runs a command that is put together at run time"
        if token in _SEPARATORS or (token and set(token) <= set(";&|()")):
            pattern = token == ")" and len(words) == 1 and "case" in tokens[:place]
            reason = "" if pattern else _of_command(words, piped, folder, depth) or _standing(words, entered, folder)
            if reason:
                return reason
            if words[:1] == ["cd"] and len(words) == 2:
                entered = os.path.join(entered, words[1])
            if words[:1] == ["cd"] and len(words) == 2 and "$" not in words[1]:
                folder = folder / os.path.expanduser(words[1])
            words, piped = [], token in ("|", "|&")
        else:
            words.append(token)
        place += 1
    return _of_command(words, piped, folder, depth) or _standing(words, entered, folder)


def _standing(words: Sequence[str], entered: str, folder: Path) -> str:
    """Of a command that writes what stays in force."""
    rest = [word for at, word in enumerate(words) if at or not _ASSIGNMENT.match(word)]
    while rest and (_ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS or rest[0] in _BEFORE):
        rest.pop(0)
    if not rest:
        return ""
    name, arguments = Path(rest[0]).name, rest[1:]
    if reason := settles(name, arguments):
        return f"`{name}` {reason}"
    targets = (os.path.join(entered, target) for target in written_to(name, arguments, folder))
    return next((reason for target in targets if (reason := in_force(target, folder))), "")


def _is_name(word: str) -> bool:
    """Whether a word before a command's arguments is its name."""
    return word not in _KEYWORDS and not _ASSIGNMENT.match(word)


def _tokens(command: str) -> list[str]:
    if re.search(r"\$'[^']*\\'", command):
        raise ValueError("an escaped quote in $'…'")
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    # The shell takes # as a comment only at a word's start; shlex anywhere. Unread text could
    # hide a command, so a comment is examined like code.
    lexer.commenters = ""
    tokens: list[str] = []
    for token in lexer:
        if "\n" in token and not token.strip("();<>|&\n"):
            tokens.extend(part for part in re.split(r"(\n)", token) if part)
        else:
            tokens.append(token)
    return tokens


def _substitutions(command: str) -> list[str]:
    """The commands inside $( ), <( ), >( ) and backticks, outermost only."""
    found = re.findall(r"`([^`]*)`", command)
    for start in re.finditer(r"[$<>]\((?!\()", command):
        depth = 1
        for place in range(start.end(), len(command)):
            depth += {"(": 1, ")": -1}.get(command[place], 0)
            if depth == 0:
                found.append(command[start.end() : place])
                break
    return found


def _of_command(words: Sequence[str], piped: bool, folder: Path, depth: int) -> str:
    rest = list(words)
    for word in rest if len(rest) > 1 else ():  # PAGER='rm x' git log; export PAGER='rm x'
        value = word.partition("=")[2] if _ASSIGNMENT.match(word) else ""
        if " " in value and "$" not in value.split()[0] and (reason := danger(value, folder, depth + 1)):
            return f"{reason} (by a variable)"
    while rest and (_ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS or (rest[0] == "-p" and rest != words)):
        rest.pop(0)
    if not rest:
        return ""
    if "$" in rest[0] or "`" in rest[0]:
        return "it runs a command held in a variable"
    if set("*?[{") & set(rest[0]) and rest[0] not in ("[", "[[", "{"):
        return "it runs a command that is put together at run time"
    name, arguments = "." if rest[0] == "." else Path(rest[0]).name, rest[1:]
    for line in inner_lines(name, arguments):
        if reason := danger(line, folder, depth + 1):
            return reason
    for inner in inner_commands(name, arguments):
        if reason := _of_command(inner, piped, folder, depth + 1) or _standing(inner, "", folder):
            return reason
    if unexamined(name, arguments):
        return f"it gives {name} a program that is not examined"
    if name in PLAIN:
        return f"`{name}` {PLAIN[name]}"
    if name.startswith("mkfs"):
        return f"`{name}` destroys a file system"
    if interprets(name):
        return _of_interpreter(name, arguments, piped, folder, depth)
    letters = "".join(word[1:] for word in arguments if re.fullmatch(r"-[A-Za-z]+", word))
    if file := overwritten(name, arguments, letters, folder):
        return f"it overwrites {file}"
    if name == "git":
        reason, inner, place = git_danger(arguments, folder)
        return reason or (danger(" ".join(inner), place, depth + 1) if inner else "")
    if name == "find":
        return _find(arguments, folder, depth)
    return deletes(name, arguments, letters)


def _of_interpreter(name: str, arguments: Sequence[str], piped: bool, folder: Path, depth: int) -> str:
    given = code_given(name, arguments)
    if given is not None:
        if name in SHELLS:
            return next((reason for code in given if (reason := danger(code, folder, depth + 1))), "")
        if name.startswith("python") and given:
            from ipyagent.tools.code_danger import danger as code_danger

            return code_danger(given[0], folder)
        return f"it runs {name} code that is not examined"
    if "<(" in "".join(arguments):
        return "it runs a program given in the command"
    if piped and fed(name, arguments):
        return f"it feeds {name} from a pipe"
    if "-m" in arguments and (module := arguments[list(arguments).index("-m") + 1 :]):
        return deletes(module[0], module[1:], "")
    return ""


def _find(arguments: Sequence[str], folder: Path, depth: int) -> str:
    if "-delete" in arguments:
        return "`find -delete` deletes files"
    for place, word in enumerate(arguments):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            reason = _of_command(arguments[place + 1 :], False, folder, depth + 1)
            if reason:
                return reason
    return ""
