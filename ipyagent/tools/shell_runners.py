"""Commands that run another command: what they would run, as far as their arguments tell.

Their options are not all known here, so every word that may be the inner command is taken for one: a question too
many is better than a file too few.
"""

# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ipyagent.tools.shell_interpreters import interprets

RUNNERS = frozenset(
    "env nohup time nice exec command builtin setsid stdbuf ionice chrt timeout xargs watch parallel flock "
    "strace ltrace unshare chroot busybox script coproc systemd-run taskset caffeinate ssh conda mamba "
    "uv poetry pipenv npx bunx toybox fakeroot proot firejail bwrap setpriv setarch numactl prlimit nsenter perf "
    "valgrind hyperfine xvfb-run dbus-run-session unbuffer rlwrap catchsegv hatch pdm pnpm yarn npm pipx direnv sem "
    "rush docker podman fd fdfind entr chpst start-stop-daemon tmux screen".split()
)
_OPERAND_FIRST = frozenset(
    "timeout flock ssh chroot taskset ionice conda mamba uv poetry pipenv hatch pdm pnpm yarn npm pipx perf numactl "
    "setarch".split()
)
"""Those with an operand of their own before the command: a time, a file, a host, the word `run`."""
_ONLY_RUN = frozenset("conda mamba uv poetry pipenv hatch pdm pnpm yarn npm pipx".split())
_RUNS = frozenset("run exec dlx x tool".split())
_ANYWHERE = frozenset("docker podman fd fdfind direnv tmux screen bwrap proot firejail start-stop-daemon".split())
"""Those whose command may stand behind any number of words of their own."""
_FROM_INPUT = frozenset("xargs parallel sem rush".split())
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SED_RUNS = re.compile(r"(?:^|[;{}\d$/])\s*e(?:\s|$)|^s(.)(?:(?!\1).)*+\1.*\1[gpimIM\d]{0,20}e")
_STRINGS = {
    "env": ("-S", "--split-string"), "script": ("-c", "--command"), "flock": ("-c", "--command"), "trap": ("",),
    "alias": ("",), "watch": ("",), "ssh": ("",), "parallel": ("",), "coproc": ("",), "hyperfine": ("",),
    "tmux": ("",), "make": ("--eval", "-E"), "nix-shell": ("--run", "--command"), "npx": ("-c", "--call"),
    "entr": ("",), "sem": ("",), "rush": ("",), "sqlite3": ("",),
}  # fmt: skip
"""Options whose value is a command line; "": every argument may be one."""
_PROGRAMS = {
    "awk": ("system(", ">", "|"), "gawk": ("system(", ">", "|"), "mawk": ("system(", ">", "|"),
    "tar": ("--checkpoint-action", "--to-command", "--use-compress-program", "--remove-files"),
    "rg": ("--pre", "--hostname-bin"), "sort": ("--compress-program",), "man": ("-P", "--pager"),
    "vim": ("-", "+"), "vi": ("-", "+"), "ex": ("-", "+"), "nvim": ("-", "+"), "ed": ("",), "gdb": ("-ex", "-x"),
    "hash": ("-p",), "enable": ("-f",), "mapfile": ("-C",), "readarray": ("-C",), "compgen": ("-C",),
    "sqlite3": (".shell", ".system", ".output", ".once", ".restore", ".save", ".backup", ".read", ".import"),
    "psql": ("\\!", "\\o", "\\copy"), "mysql": ("\\!", "system "), "mariadb": ("\\!", "system "),
}  # fmt: skip
"""Marks of arguments with which these programs run or write what is not examined here."""


def inner_commands(name: str, arguments: Sequence[str]) -> Iterator[Sequence[str]]:
    """The commands, as words, that a runner may run."""
    if name not in RUNNERS or (name in _ONLY_RUN and not _RUNS & set(arguments[:2])):
        return
    if name in _ANYWHERE:
        yield from (arguments[place:] for place, word in enumerate(arguments) if not word.startswith(("-", ".")))
        return
    operands = 1 if name in _OPERAND_FIRST else 0
    for place, word in enumerate(arguments):
        if word.startswith("-") or _SETTING.match(word):
            continue
        yield arguments[place:]
        before = arguments[place - 1] if place else ""
        if before.startswith("-") and "=" not in before:
            continue  # it may be the value of that option
        if not operands:
            return
        operands -= 1


def inner_lines(name: str, arguments: Sequence[str]) -> Iterator[str]:
    """The command lines that a command is given as text."""
    for option in _STRINGS.get(name, ()):
        for place, word in enumerate(arguments):
            if not option:
                yield word.partition("=")[2] if name == "alias" else word
            elif word == option and place + 1 < len(arguments):
                yield arguments[place + 1]
            elif word.startswith(option):
                yield word.removeprefix(option).removeprefix("=")


def unexamined(name: str, arguments: Sequence[str]) -> bool:
    """Whether the command is given a program of its own language that may run or write anything."""
    marks = _PROGRAMS.get(name, ())
    if name in ("awk", "gawk", "mawk"):
        return any(mark in word for word in arguments for mark in marks) or bool({"-f", "-i"} & set(arguments))
    if name in _FROM_INPUT:
        words = [word for word in arguments if not word.startswith("-")]
        last = words[-1].rpartition("/")[2] if words else ""
        return last in RUNNERS or interprets(last) or (not words and name != "xargs")
    if name == "sed":
        return any(_SED_RUNS.search(word) for word in arguments)
    return any(word.startswith(mark) for word in arguments for mark in marks)
