"""Why a shell command needs a yes even in mode "auto". It looks for commands that destroy what
cannot be had again, wherever the shell would run them, and names what it cannot see through."""

# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ipyagent.tools.shell_documents import without_documents
from ipyagent.tools.shell_overwrites import has_content, overwritten
from ipyagent.tools.shell_runners import inner_commands, inner_lines, unexamined

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_KEYWORDS = frozenset("then do else elif if while until ! time".split())
_SHELLS = frozenset("sh bash zsh dash ksh fish".split())
_INTERPRETERS = frozenset("perl ruby node php osascript powershell pwsh lua".split())
_PLAIN = {
    "dd": "writes raw data",
    "dropdb": "deletes a database",
    "doas": "becomes another user",
    "halt": "stops the machine",
    "kill": "ends processes",
    "killall": "ends processes",
    "pkill": "ends processes",
    "poweroff": "stops the machine",
    "reboot": "stops the machine",
    "rmdir": "deletes folders",
    "shred": "destroys files",
    "shutdown": "stops the machine",
    "su": "becomes another user",
    "sudo": "becomes another user",
    "truncate": "cuts files",
    "unlink": "deletes files",
    "eval": "runs text that is put together at run time",
    "source": "runs a file's commands",
    ".": "runs a file's commands",
    "wipefs": "destroys a file system",
    "crontab": "changes scheduled jobs",
    "at": "schedules what is not examined",
    "batch": "schedules what is not examined",
}
SQL = re.compile(r"\b(?:drop\s+(?:table|database|schema|view)|delete\s+from|truncate\s+table)\b", re.IGNORECASE)
_SEPARATORS = frozenset((";", "&", "&&", "||", "|", "|&", ";;", "(", ")", "{", "}", "\n", "$"))


def danger(command: str, folder: Path, depth: int = 0) -> str:
    """The reason, "" when there is none. `folder`: where it runs."""
    if depth > 4:
        return "it is nested too deeply to be examined"
    sql = SQL.search(command)
    if sql:
        return f"it contains {' '.join(sql[0].upper().split())}"
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
    while place < len(tokens):
        token = tokens[place]
        if token and set(token) <= set("<>&|") and ("<" in token or ">" in token):
            target = tokens[place + 1] if place + 1 < len(tokens) else ""
            if words and words[-1].isdecimal():
                words.pop()
            if token in (">", ">|", "&>", ">&") and not target.isdecimal() and has_content(target, folder):
                return f"it overwrites {target}"
            place += 2
            if "<<" in token and any(map(_interprets, words)):
                return "it runs a program given in the command"
            continue
        if token == "$" and tokens[place + 1 : place + 2] == ["("] and not any(map(_is_name, words)):
            return "it runs a command that is put together at run time"
        if token in _SEPARATORS or (token and set(token) <= set(";&|()")):
            reason = _of_command(words, piped, folder, depth)
            if reason:
                return reason
            if words[:1] == ["cd"] and len(words) == 2 and "$" not in words[1]:
                folder = folder / os.path.expanduser(words[1])
            words, piped = [], token in ("|", "|&")
        else:
            words.append(token)
        place += 1
    return _of_command(words, piped, folder, depth)


def _is_name(word: str) -> bool:
    """Whether a word before a command's arguments is its name."""
    return word not in _KEYWORDS and not _ASSIGNMENT.match(word)


def _interprets(word: str) -> bool:
    name = Path(word).name
    return name in _SHELLS | _INTERPRETERS or bool(re.fullmatch(r"python[0-9.]*", name))


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
    while rest and (_ASSIGNMENT.match(rest[0]) or rest[0] in _KEYWORDS or (rest[0] == "-p" and rest != words)):
        rest.pop(0)
    if not rest:
        return ""
    if rest[0].startswith(("$", "`")) or "$" in rest[0]:
        return "it runs a command held in a variable"
    name, arguments = Path(rest[0]).name, rest[1:]
    for line in inner_lines(name, arguments):
        if reason := danger(line, folder, depth + 1):
            return reason
    for inner in inner_commands(name, arguments):
        if reason := _of_command(inner, piped, folder, depth + 1):
            return reason
    if unexamined(name, arguments):
        return f"it gives {name} a program that is not examined"
    if name in _PLAIN:
        return f"`{name}` {_PLAIN[name]}"
    if name.startswith("mkfs"):
        return f"`{name}` destroys a file system"
    if _interprets(name):
        return _of_interpreter(name, arguments, piped, folder, depth)
    letters = "".join(word[1:] for word in arguments if re.fullmatch(r"-[A-Za-z]+", word))
    if file := overwritten(name, arguments, letters, folder):
        return f"it overwrites {file}"
    check = _CHECKS.get(name)
    return check(arguments, letters, folder, depth) if check else ""


def _of_interpreter(name: str, arguments: Sequence[str], piped: bool, folder: Path, depth: int) -> str:
    shell = name in _SHELLS
    flag = next((word for word in arguments if re.fullmatch(r"-[a-z]*[ce]", word)), "")
    if flag:
        code = [word for word in arguments[list(arguments).index(flag) + 1 :] if word != "--"][:1]
        if shell and flag.endswith("c"):
            return danger(code[0], folder, depth + 1) if code else ""
        if name.startswith("python") and code:
            from ipyagent.tools.code_danger import danger as code_danger

            return code_danger(code[0], folder)
        return f"it runs {name} code that is not examined"
    if piped and (not arguments or arguments[0] in ("-", "-s")):
        return f"it feeds {name} from a pipe"
    if list(arguments[:3]) == ["-m", "pip", "uninstall"]:
        return "it uninstalls packages"
    return ""


def _rm(arguments: Sequence[str], letters: str, folder: Path, depth: int) -> str:
    return "it deletes files"


def _git(arguments: Sequence[str], letters: str, folder: Path, depth: int) -> str:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "-c" and rest and not rest[0].startswith(("user.", "color.", "advice.", "init.")):
            return "an option of git's may name a program"
        if option in ("-c", "-C", "--git-dir", "--work-tree") and rest:
            rest.pop(0)
    name, options = rest[0] if rest else "", set(rest)
    plain = [word for word in rest if not word.startswith("-")]
    match name:
        case "rm":
            return "" if "--cached" in options else "it deletes files"
        case "worktree" if "remove" in plain:
            return "it deletes a folder"
        case "push":
            forced = (
                bool(options & {"--mirror", "--delete", "--prune"} or set("fd") & set(letters))
                or any(word.startswith("--force") for word in arguments)
                or any(word.startswith(("+", ":")) for word in plain)
            )
            return "it overwrites or deletes what others may have pushed" if forced else ""
        case "reset":
            return "`git reset --hard` throws uncommitted work away" if "--hard" in options else ""
        case "clean":
            return "`git clean` deletes untracked files"
        case "checkout" | "restore" | "switch":
            paths = name == "restore" or options & {"--", ".", "-f", "--force", "--discard-changes"}
            return f"`git {name}` may throw uncommitted work away" if paths else ""
        case "branch":
            return "it deletes branches" if set("D") & set(letters) or "--delete" in options else ""
        case "stash":
            return "it throws stashed work away" if options & {"drop", "clear"} else ""
        case "filter-branch" | "filter-repo" | "gc" | "reflog" | "update-ref":
            return f"`git {name}` may throw history away"
    return ""


def _find(arguments: Sequence[str], letters: str, folder: Path, depth: int) -> str:
    if "-delete" in arguments:
        return "`find -delete` deletes files"
    for place, word in enumerate(arguments):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            reason = _of_command(arguments[place + 1 :], False, folder, depth + 1)
            if reason:
                return reason
    return ""


def _changes_rights(arguments: Sequence[str], letters: str, folder: Path, depth: int) -> str:
    return "it changes the rights of whole folders" if "R" in letters or "--recursive" in arguments else ""


def _uninstalls(arguments: Sequence[str], letters: str, folder: Path, depth: int) -> str:
    return "it uninstalls packages" if {"uninstall", "remove", "purge", "autoremove"} & set(arguments) else ""


def _rsync(arguments: Sequence[str], letters: str, folder: Path, depth: int) -> str:
    return "it deletes files" if any(word.startswith(("--delete", "--remove-source")) for word in arguments) else ""


def _docker(arguments: Sequence[str], letters: str, folder: Path, depth: int) -> str:
    return "it removes containers, images or volumes" if {"rm", "rmi", "prune", "down", "kill"} & set(arguments) else ""


def _remote(arguments: Sequence[str], letters: str, folder: Path, depth: int) -> str:
    verbs = {"rm", "rb", "delete", "purge", "drain", "--delete", "delete-object", "terminate-instances", "deletefile"}
    return "it deletes what is kept elsewhere" if verbs & set(arguments) else ""


_CHECKS = {
    "rm": _rm,
    "git": _git,
    "find": _find,
    "chmod": _changes_rights,
    "chown": _changes_rights,
    "pip": _uninstalls,
    "pip3": _uninstalls,
    "uv": _uninstalls,
    "conda": _uninstalls,
    "mamba": _uninstalls,
    "apt": _uninstalls,
    "apt-get": _uninstalls,
    "brew": _uninstalls,
    "npm": _uninstalls,
    "rsync": _rsync,
    "docker": _docker,
    "podman": _docker,
    "kubectl": _remote,
    "aws": _remote,
    "gsutil": _remote,
    "gcloud": _remote,
    "az": _remote,
    "rclone": _remote,
}
