"""Programs that run code, and whether a command gives them some: as an argument, or from a pipe."""

# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

SHELLS = frozenset("sh bash zsh dash ksh mksh ash rbash fish csh tcsh".split())
_CODE = {
    "perl": "eE", "ruby": "e", "node": "ep", "nodejs": "ep", "bun": "ep", "deno": "", "php": "rBRE", "lua": "e",
    "osascript": "e", "Rscript": "e", "R": "e", "julia": "eEL", "groovy": "e", "elixir": "e", "guile": "c",
    "octave": "", "matlab": "r", "gnuplot": "e", "sbcl": "", "emacs": "fl", "expect": "c", "mongo": "", "mongosh": "",
    "tclsh": "", "scala": "e", "swipl": "g", "clojure": "e", "racket": "e", "ghc": "e", "erl": "", "luajit": "e",
}  # fmt: skip
"""The letters of their options whose value is code."""
_LONG = ("--eval", "--print", "--command", "--execute", "-eval", "-command", "-encodedcommand", "-batch", "eval")
_POWER = ("powershell", "pwsh")
_PYTHON = re.compile(r"(?:python|pypy|ipython)[0-9.]*")
_PYTHON_CODE = re.compile(r"-[bBdEhiIOPqRsSuvVx]*c(.*)", re.DOTALL)


def interprets(word: str) -> bool:
    """Whether a word names a program that runs code."""
    name = Path(word).name
    return name in SHELLS or name in _CODE or name in _POWER or bool(_PYTHON.fullmatch(name))


def code_given(name: str, arguments: Sequence[str]) -> list[str] | None:
    """What may be the code that an argument holds (of a shell every word that may be it); None: no argument does."""
    for place, word in enumerate(arguments):
        rest = [each for each in arguments[place + 1 :] if each != "--"]
        if name in SHELLS:
            if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word):
                return [each for each in rest if not each.startswith(("-", "+"))]
        elif _PYTHON.fullmatch(name):
            if found := _PYTHON_CODE.fullmatch(word):
                return [found[1]] if found[1] else rest[:1]
        elif _is_code(name, word):
            return rest
    return None


def _is_code(name: str, word: str) -> bool:
    """Whether an option is one whose value is code."""
    if word.lower().partition("=")[0] in _LONG:
        return True
    if name in _POWER:
        return word.lower().startswith(("-c", "-e", "/c"))
    return word[:1] == "-" and word[:2] != "--" and bool(set(_CODE.get(name, "")) & set(word))


def fed(name: str, arguments: Sequence[str]) -> bool:
    """Whether the program takes its code from what it is given on its input."""
    operands = []
    for place, word in enumerate(arguments):
        if name in SHELLS and place and arguments[place - 1] in ("-o", "+o", "-O", "+O"):
            continue
        if name in SHELLS and re.fullmatch(r"-[A-Za-z]*s[A-Za-z]*", word):
            return True
        if not word.startswith(("-", "+")) and word not in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            operands.append(word)
    return not operands and "-m" not in arguments
