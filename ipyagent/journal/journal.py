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
from typing import IO, Any

import msgspec

from ipyagent.errors import JournalError
from ipyagent.journal.events import Event, SessionStarted

TRANSCRIPT = "transcript.jsonl"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class Problem(msgspec.Struct, frozen=True):
    """One thing in a transcript that could not be used. `line` counts from 1."""

    path: Path
    line: int
    what: str

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
    """One line, with its newline."""
    try:
        line = _encoder.encode(event)
    except UnicodeEncodeError:  # a lone surrogate
        line = _encoder.encode(clean_json(msgspec.to_builtins(event)))
    return line + b"\n"


def _decode(line: bytes) -> tuple[Event | None, str]:
    """The event of a line and what was wrong with the line ("" when nothing)."""
    try:
        return _decoder.decode(line), ""
    except msgspec.DecodeError as problem:
        reason = str(problem)
    stripped = line.strip(b"\0 \t\r\n")
    try:
        value = json.loads(stripped)
        event = msgspec.convert(clean_json(value), Event)
    except (ValueError, msgspec.ValidationError, RecursionError):
        return None, reason
    return event, "NUL bytes" if len(stripped) < len(line.strip()) else "characters that are not Unicode"


def read_events(path: Path, problems: list[Problem] | None = None) -> Iterator[Event]:
    """Every readable event of a transcript in order, a line at a time.

    What is skipped or mended is appended to `problems`. Raises JournalError when the file cannot
    be opened.
    """
    found = problems if problems is not None else []
    previous = 0
    try:
        file: IO[bytes] = path.open("rb")
    except OSError as problem:
        raise JournalError(f"cannot read {path}: {problem.strerror}") from None
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            event, wrong = _decode(line)
            if event is None:
                torn = not line.endswith(b"\n")
                what = "cut off in mid-write, dropped" if torn else f"unreadable, skipped ({wrong})"
                found.append(Problem(path, number, what))
                continue
            if wrong:
                found.append(Problem(path, number, f"{wrong}, mended"))
            if event.parent != previous:
                what = f"event {event.id} follows event {event.parent}, which is missing; read after {previous}"
                found.append(Problem(path, number, what))
            previous = event.id
            yield event


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
        journal.append(started)
        return journal

    @classmethod
    def open(cls, folder: Path, replay: Callable[[Event], None]) -> tuple[Journal, list[Problem]]:
        """An existing session for appending, and what could not be read of it.

        Each event is handed to `replay` in order and not kept here. Raises JournalError when
        another kernel holds the session (fork it then) or it cannot be read.
        """
        lock = _lock(folder)
        if lock is None:
            raise JournalError(f"session {folder.name} is open in another kernel")
        problems: list[Problem] = []
        try:
            last = 0
            for event in read_events(folder / TRANSCRIPT, problems):
                last = max(last, event.id)
                replay(event)
            return cls(folder, folder.name, last=last, lock=lock), problems
        except (OSError, JournalError) as problem:
            lock.release()
            raise problem if isinstance(problem, JournalError) else JournalError(str(problem)) from None

    @classmethod
    def fork(cls, source: Path, sessions: Path, started: SessionStarted, upto: int = 0) -> Journal:
        """A new session that begins with the events of `source` (a session's folder), up to event
        `upto` (0: all). `started` names the new id and where it came from."""
        journal = cls.create(sessions, started)
        problems: list[Problem] = []
        for event in read_events(source / TRANSCRIPT, problems):
            if upto and event.id > upto:
                break
            if not isinstance(event, SessionStarted):
                journal.append(event)
        return journal

    def append(self, event: Event) -> Event:
        """Write an event and return it with id, parent and time set.

        A copied event keeps its time. Raises JournalError when it could not be written whole; the
        transcript is then as it was before.
        """
        at = event.at or time.time()
        event = msgspec.structs.replace(event, id=self._last + 1, parent=self._last, at=at)
        line = encode(event)
        if self._ragged:
            line = b"\n" + line
        try:
            written = os.write(self._fd, line)
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError as problem:
            self._take_back()
            raise JournalError(
                f"cannot write {self.path}: {problem.strerror}; free some space or move the project, then run again"
            ) from None
        self._size += len(line)
        self._ragged = False
        self._last += 1
        return event

    def _take_back(self) -> None:
        """Remove our own half-written line, or have the next line start afresh after it."""
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._ragged = True

    def sync(self) -> None:
        """Have everything on the disk itself (fsync): at turn ends and before tools run."""
        try:
            os.fsync(self._fd)
        except OSError as problem:
            raise JournalError(f"cannot sync {self.path}: {problem.strerror}") from None

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
