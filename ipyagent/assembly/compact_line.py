"""The line of `%compact` and what it asks for."""

from __future__ import annotations

import difflib
import re

import msgspec

from ipyagent.errors import UsageError

USAGE = "%compact [wishes for the summary] [--from N] [--up-to N] [--snip A:B] [--step] [--dry-run] [--undo]"
NAMES = ("--from", "--up-to", "--snip", "--step", "--dry-run", "--undo")
_PAIR = re.compile(r"(\d+)(?::(\d+))?")


class CompactOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a `%compact` line says. Turns are counted from 1, 0 means open; `snip` is (0, 0) for none."""

    instructions: str = ""
    start: int = 0
    upto: int = 0
    snip: tuple[int, int] = (0, 0)
    step: bool = False
    dry_run: bool = False
    undo: bool = False


def parse_compact(line: str) -> CompactOptions:
    """The line's options; every other word belongs to the wishes. Raises UsageError."""
    wishes: list[str] = []
    found: dict[str, object] = {}
    words = iter(line.split())
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            wishes.append(word)
        elif name == "--from":
            found["start"] = _number(name, value if equals else next(words, ""))
        elif name == "--up-to":
            found["upto"] = _number(name, value if equals else next(words, ""))
        elif name == "--snip":
            found["snip"] = _pair(value if equals else next(words, ""))
        elif word in ("--step", "--dry-run", "--undo"):
            found[word.removeprefix("--").replace("-", "_")] = True
        else:
            close = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
            near = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"%compact has no option {name}{near}  usage: {USAGE}")
    wanted = msgspec.convert({**found, "instructions": " ".join(wishes)}, CompactOptions)
    alone = [name for name, on in _alone(wanted) if on]
    if alone and (len(alone) > 1 or wishes or wanted.start or wanted.upto):
        raise UsageError(f"{alone[0]} cannot be combined with anything but --dry-run  usage: {USAGE}")
    if wanted.start and wanted.upto and wanted.start > wanted.upto:
        raise UsageError(f"--from {wanted.start} is after --up-to {wanted.upto}: give the earlier turn to --from")
    return wanted


def _alone(wanted: CompactOptions) -> tuple[tuple[str, bool], ...]:
    return ("--undo", wanted.undo), ("--snip", wanted.snip != (0, 0)), ("--step", wanted.step)


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"{name} takes the number of a turn, from 1 up, not {value!r}")
    return int(value)


def _pair(value: str) -> tuple[int, int]:
    match = _PAIR.fullmatch(value)
    if match is None or not int(match[1]) or int(match[2] or match[1]) < int(match[1]):
        raise UsageError(f"--snip takes turns as A:B, for example --snip 3:5, not {value!r}")
    return int(match[1]), int(match[2] or match[1])
