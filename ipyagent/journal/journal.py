"""The append-only transcript of a session: on disk before anybody sees it, never rewritten.

One JSON object a line. What cannot be read is skipped and reported with its line number, and stays
in the file. A journal has one writer: the second opener of a session gets a fork of it.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ipyagent.errors import JournalError
from ipyagent.journal.events import Event, SessionStarted

TRANSCRIPT = "transcript.jsonl"
COPY_BYTES = 1 << 20
"""How much of a fork is written at once."""

E = TypeVar("E", bound=Event)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class Problem(msgspec.Struct, frozen=True):
    """One thing in a transcript that could not be used. `line` counts from 1; `torn`: a crash cut
    the last line off."""

    path: Path
    line: int
    what: str
    torn: bool = False

    def __str__(self) -> str:
        return f"{self.path.name} line {self.line}: {self.what}"


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


def new_session_id() -> str:
    """A fresh id that sorts by time, e.g. "20261127-233000-9f3a"."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


def encode(event: Event) -> bytes:
    """One line, with its newline. Raises JournalError for what JSON cannot hold."""
    return _encode(event)[0]


def _encode(event: E) -> tuple[bytes, E]:
    """The line of an event, and the event as it will be read again (lone surrogates replaced, NaN none)."""
    try:
        try:
            line = _encoder.encode(event)
            same = b"null" not in line
        except UnicodeEncodeError:  # a lone surrogate
            line, same = _encoder.encode(clean_json(msgspec.to_builtins(event))), False
        return line + b"\n", event if same else _decoder.decode(line)
    except (TypeError, ValueError, RecursionError) as problem:
        raise JournalError(f"cannot store a {type(event).__name__} event: {problem}") from None


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
    return event, "characters that are not Unicode"


def _decode_line(line: bytes) -> Iterator[tuple[Event | None, str]]:
    """The events of a line with what was wrong; a hole of zeros (a crash of the machine) parts records."""
    if b"\0" not in line:
        yield _decode(line)
        return
    for piece in filter(None, (piece.strip() for piece in line.split(b"\0"))):
        event, wrong = _decode(piece)
        yield event, "NUL bytes" + (f", {wrong}" if wrong else "")


def read_events(path: Path, problems: list[Problem] | None = None) -> Iterator[Event]:
    """Every readable event of a transcript in order, a line at a time.

    What is skipped or mended is appended to `problems`. Raises JournalError when the file cannot
    be read.
    """
    found = problems if problems is not None else []
    previous: Event | None = None
    gap = False
    ids: set[int] = set()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                if not line.strip(b"\0\r\n\t "):
                    found.append(Problem(path, number, f"{line.count(0):,} NUL bytes, skipped"))
                    continue
                for event, wrong in _decode_line(line):
                    if event is None:
                        torn = not line.endswith(b"\n")
                        what = "cut off in mid-write, dropped" if torn else f"unreadable, skipped ({wrong})"
                        found.append(Problem(path, number, what, torn))
                        gap = True
                        continue
                    if wrong:
                        found.append(Problem(path, number, f"{wrong}, mended"))
                    if event == previous:
                        found.append(Problem(path, number, f"event {event.id} is written twice, read once"))
                        continue
                    before = previous.id if previous is not None else 0
                    if event.id in ids:
                        found.append(Problem(path, number, f"event id {event.id} comes twice; both are read"))
                    elif event.parent != before and not gap:
                        what = f"event {event.id} follows event {event.parent}, which is missing; read after {before}"
                        found.append(Problem(path, number, what))
                    previous, gap = event, False
                    ids.add(event.id)
                    yield event
    except OSError as problem:
        raise JournalError(f"cannot read {path}: {problem.strerror or problem}") from None


class Journal:
    """The one writer of a session's transcript.

    Made by `create`, `open` or `fork`; `append` gives each event its id, parent and time and has
    it on disk (not yet synced) when it returns.
    """

    def __init__(self, folder: Path, session: str, *, last: int, lock: Any) -> None:
        self.folder = folder
        self.path = folder / TRANSCRIPT
        self.session = session
        self._last = last
        self._lock = lock
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._ragged = self._size > 0 and not _ends_with_newline(self.path)

    def __repr__(self) -> str:
        return f"<Journal {self.session}, {self._last} events>"

    @property
    def last(self) -> int:
        """Id of the newest event; 0 when there is none."""
        return self._last

    @classmethod
    def create(cls, sessions: Path, started: SessionStarted) -> Journal:
        """A new session in `sessions/<id>/` with `started` as its first event."""
        folder = sessions / started.session
        try:
            folder.mkdir(parents=True, mode=0o700)
            journal = cls(folder, started.session, last=0, lock=_lock(folder))
        except OSError as problem:
            raise JournalError(f"cannot write in {folder}: {problem.strerror or problem}") from None
        try:
            journal.append(started)
        except JournalError:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, folder: Path, replay: Callable[[Event], None]) -> tuple[Journal, list[Problem]]:
        """An existing session for appending, and what could not be read of it.

        Each event is handed to `replay` in order and not kept here. Raises JournalError when
        another kernel holds the session (fork it then), it cannot be read, or no line of it is an
        event.
        """
        path = folder / TRANSCRIPT
        if not path.exists():
            raise JournalError(f"there is no session in {folder}")
        try:
            lock = _lock(folder)
        except OSError as problem:
            raise JournalError(f"cannot write in {folder}: {problem.strerror or problem}") from None
        if lock is None:
            raise JournalError(f"session {folder.name} is open in another kernel")
        problems: list[Problem] = []
        try:
            last = events = 0
            for event in read_events(path, problems):
                last, events = max(last, event.id), events + 1
                replay(event)
            if not events and any(not problem.torn for problem in problems):
                raise JournalError(f"{path} is not a transcript: none of its lines is an event")
            return cls(folder, folder.name, last=last, lock=lock), problems
        except OSError as problem:
            lock.release()
            raise JournalError(f"cannot write {path}: {problem.strerror or problem}") from None
        except BaseException:
            lock.release()
            raise

    @classmethod
    def fork(
        cls, source: Path, sessions: Path, started: SessionStarted, upto: int = 0
    ) -> tuple[Journal, list[Problem]]:
        """A new session that begins with the events of `source` (a session's folder), up to event
        `upto` (0: all), and what could not be read of them. Events keep their ids, which other
        events refer to. `started` names the new id and where it came from."""
        journal = cls.create(sessions, started)
        problems: list[Problem] = []
        lines: list[bytes] = []
        size = 0
        try:
            for event in read_events(source / TRANSCRIPT, problems):
                if upto and event.id > upto:
                    break
                if isinstance(event, SessionStarted):
                    continue
                line, copied = _encode(msgspec.structs.replace(event, parent=journal._last))
                lines.append(line)
                size += len(line)
                journal._last = copied.id
                if size > COPY_BYTES:
                    journal._write(b"".join(lines))
                    lines.clear()
                    size = 0
            journal._write(b"".join(lines))
        except BaseException:
            journal.close()
            raise
        return journal, problems

    def append(self, event: E) -> E:
        """Write an event and return it with id, parent and time set, exactly as it will be read again.

        An event that has a time keeps it. Raises JournalError when it could not be written whole;
        the transcript is then as it was before.
        """
        at = event.at or time.time()
        event = msgspec.structs.replace(event, id=self._last + 1, parent=self._last, at=at)
        line, event = _encode(event)
        self._write(line)
        self._last += 1
        return event

    def _write(self, line: bytes) -> None:
        if self._fd < 0:
            raise JournalError(f"session {self.session} was closed; go on with %agent resume")
        ragged = self._ragged
        if ragged:
            line = b"\n" + line
        self._ragged = True  # until the line is whole, whatever interrupts us
        try:
            written = os.write(self._fd, line)
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError as problem:
            self._take_back(ragged)
            raise JournalError(
                f"cannot write {self.path}: {problem.strerror}; free some space or move the project, then run again"
            ) from None
        self._size += len(line)
        self._ragged = False

    def _take_back(self, ragged: bool) -> None:
        """Remove our own half-written line, or have the next line start afresh after it."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            return
        self._ragged = ragged

    def sync(self) -> None:
        """Have everything on the disk itself (fsync): at turn ends and before tools run."""
        try:
            os.fsync(self._fd)
            links = os.fstat(self._fd).st_nlink
        except OSError as problem:
            raise JournalError(f"cannot sync {self.path}: {problem.strerror}") from None
        if not links:
            raise JournalError(f"{self.path} was deleted while it was in use; start afresh with %agent new")

    def read(self) -> Iterator[Event]:
        """The events again, from the file."""
        return read_events(self.path)

    def close(self) -> None:
        """Let another kernel write; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self._lock is not None:
                self._lock.release()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _lock(folder: Path) -> Any:
    """The session's lock, held; None when another process or journal holds it."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / "lock", timeout=0, is_singleton=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock
