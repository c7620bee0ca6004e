"""The append-only transcript of a session: on disk before anybody sees it, never rewritten.

One JSON object a line. What cannot be read is skipped and reported with its line number, and stays
in the file. A journal has one writer: the second opener of a session gets a fork of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from ipyagent.errors import JournalError
from ipyagent.journal.events import Event, SessionStarted
from ipyagent.locks import Lock, LockHeld
from ipyagent.nofollow import checked, opened, reading, spot

# ---- The lines of a transcript: one event each as JSON, read again whatever has happened to the file. What cannot
# be read is skipped, what can be mended is mended, and both are reported with the line's number; the file itself is
# never changed.

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
            f"cannot store a {type(event).__name__} event ({problem}): start a new session with %agent new"
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


__all__ = [
    "CHILDREN", "COPY_BYTES", "TRANSCRIPT", "Journal", "Problem", "clean", "clean_json", "in_use",
    "new_session_id", "read_events",
]  # fmt: skip

TRANSCRIPT = "transcript.jsonl"
CHILDREN = "children"
"""Folder beside a transcript with a folder for each of the session's sub-agents."""
LOCK_WAIT = 0.1
"""Seconds in which whoever only looks whether a session is in use has let go of its lock."""
COPY_BYTES = 1 << 20
"""How much of a fork is written at once."""


def new_session_id() -> str:
    """A fresh id that sorts by time, e.g. "20261127-233000-9f3a"."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


class Journal:
    """The one writer of a session's transcript.

    Made by `create`, `open` or `fork`; `append` gives each event its id, parent and time and has
    it on disk (not yet synced) when it returns.
    """

    def __init__(
        self, folder: Path, session: str, *, last: int, lock: Lock | None, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder = folder
        self._clock = clock
        self.path = folder / TRANSCRIPT
        self.session = session
        self._last = last
        self._lock = lock
        self._fd = opened(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._size = os.fstat(self._fd).st_size
        """Bytes up to which every line is a whole event that has its number."""
        self._ragged = self._size > 0 and not _ends_with_newline(self.path)

    def __repr__(self) -> str:
        return f"<Journal {self.session}, {self._last} events>"

    @property
    def last(self) -> int:
        """Id of the newest event; 0 when there is none."""
        return self._last

    @classmethod
    def create(cls, sessions: Path, started: SessionStarted, *, clock: Callable[[], float] = time.time) -> Journal:
        """A new session in `sessions/<id>/` with `started` as its first event; `clock` gives the events' time."""
        return cls._begin(sessions / started.session, started, clock)

    @classmethod
    def _begin(cls, folder: Path, started: SessionStarted, clock: Callable[[], float] = time.time) -> Journal:
        with _writing(f"in {folder}", "fix its permissions"):
            with spot(folder, make=True) as (leaf, at):
                os.mkdir(leaf, 0o700, dir_fd=at)
            journal = cls(folder, started.session, last=0, lock=_lock(folder), clock=clock)
        try:
            journal.append(started)
        except JournalError:
            journal.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return journal

    @classmethod
    def open(
        cls,
        folder: Path,
        replay: Callable[[Event], None],
        problems: list[Problem] | None = None,
        begin: Callable[[], Start | None] = lambda: None,
    ) -> tuple[Journal, list[Problem]]:
        """An existing session for appending, and what could not be read of it. `begin`, asked once the session is
        ours, tells from where on events are read.

        Each event is handed to `replay` in order and not kept here; by then `problems` (given: that list) has what was
        wrong before it. Raises JournalError when another kernel holds the session (fork it then), it cannot be read,
        or no line of it is an event.
        """
        path = folder / TRANSCRIPT
        if not os.path.lexists(path):
            raise JournalError(f"there is no session in {folder}; %agent sessions lists them")
        with _writing(f"in {folder}", "fix its permissions"):
            lock = _lock(folder)
        if lock is None:
            raise JournalError(f"session {folder.name} is open in another kernel; %agent fork continues in a copy")
        problems = [] if problems is None else problems
        try:
            with _writing(path, "free some space"):
                start = begin()
                last, events = (start.newest, 1) if start is not None else (0, 0)
                for event in read_events(path, problems, start):
                    last, events = max(last, event.id), events + 1
                    replay(event)
                if not events and any(not problem.torn for problem in problems):
                    hint = "start a new session with %agent new"
                    raise JournalError(f"{path} is not a transcript, none of its lines is an event: {hint}")
                return cls(folder, folder.name, last=last, lock=lock), problems
        except BaseException:
            lock.release()
            raise

    @classmethod
    def fork(
        cls, source: Path, sessions: Path, started: SessionStarted, upto: int = 0
    ) -> tuple[Journal, list[Problem]]:
        """A new session that begins with the events of `source` (a session's folder), up to event
        `upto` (0: all), and what could not be read of them. Events keep their ids, which other
        events refer to; files beside the transcript (backups, stored results) go along as links.
        `started` names the new id and where it came from."""
        staging, folder = sessions / f".{started.session}.part", sessions / started.session
        problems: list[Problem] = []
        journal = cls._begin(staging, started)
        try:
            with _writing(f"in {folder}", "fix its permissions"):
                journal._copy(read_events(source / TRANSCRIPT, problems), upto)
                _link_files(source, staging)
                journal.close()
                with spot(staging) as old, spot(folder) as new:  # whole or not at all: half a copy is never taken up
                    os.rename(old.name, new.name, src_dir_fd=old.at, dst_dir_fd=new.at)
                return cls(folder, started.session, last=journal.last, lock=_lock(folder)), problems
        finally:
            journal.close()
            shutil.rmtree(staging, ignore_errors=True)

    def _copy(self, events: Iterable[Event], upto: int) -> None:
        lines: list[bytes] = []
        size = 0
        for event in events:
            if upto and event.id > upto:
                break
            if isinstance(event, SessionStarted):
                continue
            line, copied = encode(msgspec.structs.replace(event, parent=self._last))
            lines.append(line)
            size += len(line)
            self._last = copied.id
            if size > COPY_BYTES:
                self._write(b"".join(lines), 0)
                lines.clear()
                size = 0
        self._write(b"".join(lines), 0)

    def append(self, event: E) -> E:
        """Write an event and return it with id, parent and time set, exactly as it will be read again.

        An event that has a time keeps it. Raises JournalError when it could not be written whole;
        the transcript is then as it was before.
        """
        self._settle()
        at = event.at or self._clock()
        event = msgspec.structs.replace(event, id=self._last + 1, parent=self._last, at=at)
        line, event = encode(event)
        self._write(line, 1)
        return event

    def _settle(self) -> None:
        """See what the file is now: an interrupt within a write may have left a whole event there, which has its
        number and is never taken back, or a part of one, after which a line begins afresh."""
        if self._fd < 0:
            raise JournalError(f"session {self.session} was closed; continue it with %agent resume")
        try:
            size = os.fstat(self._fd).st_size
            if size != self._size:
                whole = size == 0 or _ends_with_newline(self.path)
                grown = int(whole and size > self._size + self._ragged)
                self._last, self._size, self._ragged = self._last + grown, size, not whole
        except OSError as problem:
            raise self._refused(problem) from None

    def _write(self, line: bytes, events: int) -> None:
        """Write so many events whole, or leave the file as it was. Raises JournalError."""
        if self._ragged:
            line = b"\n" + line
        try:
            written = os.write(self._fd, line)
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError as problem:
            self._take_back()
            raise self._refused(problem) from None
        self._last, self._size, self._ragged = self._last + events, self._size + len(line), False

    def _refused(self, problem: OSError) -> JournalError:
        return JournalError(
            f"cannot write {self.path}: {problem.strerror}; free some space or move the project, then run again"
        )

    def _take_back(self) -> None:
        """Remove our own half-written line; where that fails the next one begins afresh after it, see `_settle`."""
        with suppress(OSError):
            os.ftruncate(self._fd, self._size)

    def sync(self) -> None:
        """Have everything on the disk itself (fsync): at turn ends and before tools run."""
        with _writing(self.path, "free some space, then run again"):
            os.fsync(self._fd)
            links = os.fstat(self._fd).st_nlink
        if not links:
            raise JournalError(f"{self.path} was deleted while it was in use; start a new session with %agent new")

    @property
    def closed(self) -> bool:
        """Whether another kernel may write."""
        return self._fd < 0

    @property
    def size(self) -> int:
        """Bytes of the transcript up to which every line is a whole event; 0 while a torn line stands at its end."""
        return 0 if self._ragged else self._size

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


@contextmanager
def _writing(what: object, mend: str) -> Iterator[None]:
    """What the system refuses is a JournalError that says what to do."""
    try:
        yield
    except OSError as problem:
        raise JournalError(f"cannot write {what} ({problem.strerror or problem}): {mend}") from None


def _ends_with_newline(path: Path) -> bool:
    with reading(path) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _link_files(source: Path, target: Path) -> None:
    """The folders beside a transcript in another session: their files are written once and never
    changed, so a link is as good as a copy. Sub-agents stay with the session that has them. Raises OSError."""

    def link(file: str, place: str) -> str:
        try:
            os.link(file, place)
        except OSError:  # no links on this file system
            shutil.copyfile(file, place)
            os.chmod(place, 0o600)
        return place

    def links(folder: str, found: list[str]) -> list[str]:
        return [name for name in found if os.path.islink(os.path.join(folder, name))]

    for entry in sorted(source.iterdir()):
        if entry.is_dir() and not entry.is_symlink() and entry.name != CHILDREN:
            shutil.copytree(entry, target / entry.name, symlinks=True, ignore=links, copy_function=link)


def in_use(folder: Path) -> bool:
    """Whether a kernel has the session in this folder open now."""
    try:
        lock = _lock(folder)
    except OSError:
        return False
    if lock is not None:
        lock.release()
    return lock is None


def _lock(folder: Path) -> Lock | None:
    """The session's lock, held; None when another process or journal holds it."""
    lock = Lock(checked(folder / "lock"), seconds=LOCK_WAIT, long=True)
    try:
        lock.acquire()
    except LockHeld:
        return None
    return lock


# ---- Stored results: whole tool results in files beside the transcript, written once, never changed.

FOLDER = "tool-results"
"""Folder beside the transcript."""
LONGEST_LINE = 2_000
"""Characters of a line as it is shown; a longer one counts and is read as several lines."""

_ODD = re.compile(r"[^A-Za-z0-9_-]")


def file_stem(call: str) -> str:
    """A call's id as the beginning of a file name. Different ids give different stems."""
    stem = _ODD.sub("_", call)[:80]
    if stem and stem == call:
        return stem
    return f"{stem}-{hashlib.sha256(call.encode('utf-8', 'replace')).hexdigest()[:8]}"


def lines_of(text: str) -> list[str]:
    """The lines as `read_file` counts them in a stored result."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if all(len(line) <= LONGEST_LINE for line in lines):
        return lines
    return [line[at : at + LONGEST_LINE] for line in lines for at in range(0, max(1, len(line)), LONGEST_LINE)]
