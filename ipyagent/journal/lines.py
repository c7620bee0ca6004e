"""The lines of a transcript: one event each as JSON, read again whatever has happened to the file.

What cannot be read is skipped, what can be mended is mended, and both are reported with the line's
number; the file itself is never changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from ipyagent.errors import JournalError
from ipyagent.journal.events import Event
from ipyagent.nofollow import reading

E = TypeVar("E", bound=Event)

_NOTHING = b"\0\r\n\t\x0b\x0c "
NOT_UNICODE = "characters that are not Unicode"
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class Problem(msgspec.Struct, frozen=True):
    """One thing in a transcript that could not be used. `line` counts from 1; `torn`: a crash cut
    the last line off; `altered`: an event was read with other characters than it was written with."""

    path: Path
    line: int
    what: str
    torn: bool = False
    altered: bool = False

    def __str__(self) -> str:
        return f"{self.path.name} line {self.line}: {self.what}"


class Start(msgspec.Struct, frozen=True):
    """Where reading a transcript goes on: behind so many bytes and lines, of which `last` is the newest event and
    `newest` the highest id."""

    offset: int
    line: int
    last: Event
    newest: int


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded, stored and sent."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def clean_json(value: Any) -> Any:
    """`clean` applied to every string of a JSON value, keys included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value


def encode(event: E) -> tuple[bytes, E]:
    """The line of an event with its newline, and the event as it will be read again (lone surrogates
    replaced, NaN none). Raises JournalError for what JSON cannot hold."""
    try:
        try:
            line = _encoder.encode(event)
            same = b"null" not in line
        except UnicodeEncodeError:  # a lone surrogate
            line, same = _encoder.encode(clean_json(msgspec.to_builtins(event))), False
        return line + b"\n", event if same else cast("E", _decoder.decode(line))
    except (TypeError, ValueError, RecursionError) as problem:
        raise JournalError(
            f"cannot store a {type(event).__name__} event ({problem}): start afresh with %agent new"
        ) from None


def _decode(line: bytes) -> tuple[Event | None, str]:
    """The event of a line and what was wrong with the line ("" when nothing)."""
    try:
        return _decoder.decode(line), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        reason = str(problem)
    try:
        event = msgspec.convert(clean_json(json.loads(line.decode("utf-8", "replace"))), Event)
    except (ValueError, msgspec.ValidationError, RecursionError):
        return None, reason
    return event, NOT_UNICODE


def _decode_line(line: bytes) -> Iterable[tuple[Event | None, str]]:
    """The events of a line with what was wrong; a hole of zeros (a crash of the machine) parts records."""
    try:
        return ((_decoder.decode(line), ""),)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _mended(line)


def _mended(line: bytes) -> Iterator[tuple[Event | None, str]]:
    if not line.strip(_NOTHING):
        yield None, ""
        return
    if b"\0" not in line:
        yield _decode(line)
        return
    for piece in filter(None, (piece.strip() for piece in line.split(b"\0"))):
        event, wrong = _decode(piece)
        yield event, "NUL bytes" + (f", {wrong}" if wrong else "")


def read_events(
    path: Path, problems: list[Problem] | None = None, start: Start | None = None
) -> Iterator[Event]:
    """Every readable event of a transcript in order, a line at a time; those behind `start`, if it is given.

    What is skipped or mended is appended to `problems`. Raises JournalError when the file cannot
    be read.
    """
    found = problems if problems is not None else []
    previous = start.last if start is not None else None
    known = start.newest if start is not None else 0
    gap = False
    ids: set[int] = set()
    try:
        with reading(path) as file:
            file.seek(start.offset if start is not None else 0)
            for number, line in enumerate(file, start.line + 1 if start is not None else 1):
                for event, wrong in _decode_line(line):
                    if event is None and not wrong:
                        if zeros := line.count(0):
                            found.append(Problem(path, number, f"{zeros:,} NUL bytes, skipped"))
                        continue
                    if event is None:
                        torn = not line.endswith(b"\n")
                        what = "cut off in mid-write, dropped" if torn else f"unreadable, skipped ({wrong})"
                        found.append(Problem(path, number, what, torn))
                        gap = True
                        continue
                    if wrong:
                        found.append(Problem(path, number, f"{wrong}, repaired", altered=NOT_UNICODE in wrong))
                    if event == previous:
                        found.append(Problem(path, number, f"event {event.id} is written twice, read once"))
                        continue
                    before = previous.id if previous is not None else 0
                    if event.id <= known or event.id in ids:
                        found.append(Problem(path, number, f"event id {event.id} comes twice; both are read"))
                    elif event.parent != before and not gap:
                        what = f"event {event.id} follows event {event.parent}, which is missing; read after {before}"
                        found.append(Problem(path, number, what))
                    previous, gap = event, False
                    ids.add(event.id)
                    yield event
    except OSError as problem:
        raise JournalError(f"cannot read {path} ({problem.strerror or problem}): fix its permissions") from None
