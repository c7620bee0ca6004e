"""The options of a `%%agent` line. A wrong one gives one line that names the nearest right one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ipyagent.errors import UsageError, nearest

FLAGS = ("--fresh", "--fork", "--quiet", "--rerun", "--replay")
VALUES = ("--model", "--max-turns", "--effort", "--mode", "--lesson")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
MODES = ("ask", "auto", "read_only")

USAGE = (
    "%%agent [--model NAME] [--mode ask|auto|read_only] [--max-turns N] [--effort LEVEL] "
    "[--fresh | --fork] [--quiet] [--rerun | --replay] [--lesson NAME]"
)


class CellOptions(NamedTuple):
    """What stands on the `%%agent` line; empty means the setting. `fresh`: without history, not
    kept. `fork`: with history, not kept. `quiet`: only the answer. `rerun`: asked even if unchanged. `replay`: its
    recorded code once more, without the model. `lesson`: which one the practice model plays."""

    model: str = ""
    max_turns: int = 0
    effort: str = ""
    mode: str = ""
    fresh: bool = False
    fork: bool = False
    quiet: bool = False
    rerun: bool = False
    replay: bool = False
    lesson: str = ""


def one_line(line: str) -> tuple[str, str]:
    """A `%%agent` line below which nothing stands, as its options and the request on it. Raises UsageError."""
    rest = line.strip()
    while rest.startswith("-"):
        word, _, after = rest.partition(" ")
        if word in VALUES:
            _, _, after = after.lstrip().partition(" ")
        rest = after.lstrip()
    options = line.strip().removesuffix(rest) if rest else line
    if not rest:
        parse(line)
        raise UsageError(f"%%agent: the request is missing; it goes below the options or behind them  usage: {USAGE}")
    return options, rest


def parse(line: str) -> CellOptions:
    """The options of a line. Words are split at spaces, quotes mean nothing. Raises UsageError."""
    found: dict[str, Any] = {}
    words = iter(line.split())
    for word in words:
        name, equals, value = word.partition("=")
        key = name.removeprefix("--").replace("-", "_")
        if name in FLAGS and not equals:
            found[key] = True
        elif name in VALUES:
            found[key] = _value(name, value if equals else _next(name, words))
        elif name.startswith("-"):
            raise UsageError(f"%%agent has no option {name}{nearest(name, (*FLAGS, *VALUES))}  usage: {USAGE}")
        else:
            raise UsageError(f"%%agent takes options only on its first line, not {word!r}; the request goes below it")
    if found.get("fresh") and found.get("fork"):
        raise UsageError("use either --fresh (no history) or --fork (a copy of the history)")
    if found.get("rerun") and found.get("replay"):
        raise UsageError("use either --rerun (asks the model) or --replay (runs the recorded code)")
    return CellOptions(**found)


def _next(name: str, words: Iterator[str]) -> str:
    value = next(words, "")
    if not value or value.startswith("--"):
        raise UsageError(f"{name} needs a value  usage: {USAGE}")
    return value


def _value(name: str, value: str) -> str | int:
    choices = {"--mode": MODES, "--effort": EFFORTS}.get(name)
    if choices is not None and value not in choices:
        raise UsageError(f"{name} is one of {', '.join(choices)}, not {value!r}{nearest(value, choices)}")
    if name != "--max-turns":
        return value
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"--max-turns takes a number from 1 up, not {value!r}")
    return int(value)
