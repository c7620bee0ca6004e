"""The options of a `%%agent` line. A wrong one gives one line that names the nearest right one."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ipyagent.errors import UsageError

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


def help_text(head: Sequence[str], groups: Iterable[tuple[str, Sequence[tuple[str, str]]]], width: int = 0) -> str:
    """Commands with what they do, in groups under a title ("": none), in lines of at most `width` columns (0: those of
    the terminal, else 100). No word is broken: a longer one has a line of its own."""
    columns = max(40, min(width or shutil.get_terminal_size((100, 24)).columns, 120))

    def wrapped(text: str, first: str, rest: str) -> list[str]:
        return textwrap.wrap(
            text, columns, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )

    lines = [row for each in head for row in wrapped(each, "", "    " if each.startswith("%") else "")]
    listed = [(title, rows) for title, rows in groups if rows]
    side = min(max((len(usage) for _, rows in listed for usage, _ in rows), default=0), columns * 2 // 5)
    for title, rows in listed:
        lines += ["", *([title] if title else [])]
        for usage, about in rows:
            start = "  " + usage.ljust(side) + "  "
            if len(usage) > side:  # it does not fit beside its text
                lines += wrapped(usage, "  ", "      ")
                start = " " * (side + 4)
            lines += wrapped(about, start, " " * (side + 4))
    return "\n".join(lines)


def nearest(word: str, known: tuple[str, ...] | list[str], cutoff: float = 0.5) -> str:
    """" did you mean …" for a word that is not known, "" when nothing is near."""
    from difflib import get_close_matches  # loading needs it not

    close = get_close_matches(word, known, n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


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
        raise UsageError("--fresh and --fork exclude each other: without history, or with a copy of it")
    if found.get("rerun") and found.get("replay"):
        raise UsageError("--rerun and --replay exclude each other: asked again, or replayed without the model")
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
