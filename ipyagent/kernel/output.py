"""What a run prints, kept within bounds: any thread may write, memory stays bounded however much comes.

Text is cleaned as it enters: terminal escapes and control characters go, lone surrogates are
replaced, and of lines that were rewritten (progress bars: carriage returns, backspaces, a cursor that
goes up) only their last state stays."""

from __future__ import annotations

import io
import re
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from ipyagent.escape import SEQUENCE, plain
from ipyagent.redaction import after_cut, before_cut

_OPEN_ESCAPE = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,4000}\x1b?|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]|\x1b(?!\[\d{0,4}[A-GJK])")
_MOVE = re.compile(r"\x1b\[(\d{0,4})([A-GJK])")
_REWRITES = re.compile(r"[\r\x08\x1b]")
_TOKEN = re.compile(rf"[^\r\n\x08\x1b]+|[\r\n\x08]|{_MOVE.pattern}|\x1b")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SUSPECT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

_LINE_LIMIT = 8_000
"""Characters of the last lines that can still be rewritten."""
_ROWS = 50
"""Lines that can still be rewritten."""
_REWRITE_PAUSE = 0.5
"""Seconds between two states of a progress bar in the live text."""


def clean(text: str) -> str:
    """`text` without terminal escapes, control characters and lone surrogates, lines settled."""
    return settled(_scrub(text))


def settled(text: str) -> str:
    """`text` as a terminal leaves it: `\\r`, `\\b` and moves of the cursor (all other sequences are taken out before,
    see `moves_alone`) rewrite what stands there. Linear in the text."""
    text = text.replace("\r\n", "\n")
    if not _REWRITES.search(text):
        return text
    screen = _Screen()
    return screen.write(text) + str(screen)


def moves_alone(sequence: re.Match[str]) -> str:
    """What stays of a terminal's escape sequence: a move of the cursor, which rewrites lines."""
    return sequence[0] if _MOVE.fullmatch(sequence[0]) else ""


def output(text: str) -> str:
    """What a program printed, as a terminal would have left it: `\\r` starts its line again, `\\b` and moves of
    the cursor rewrite what stands there. For a screen: see `ipyagent.escape`."""
    return plain(settled(SEQUENCE.sub(moves_alone, text)))


def cap(text: str, max_chars: int) -> str:
    """`text` itself, or its head and tail with the cut named between them."""
    if len(text) <= max_chars:
        return text
    head = max_chars // 2
    tail = max_chars - head
    return text[:head] + _cut(len(text) - max_chars) + text[-tail:]


class OutputLog:
    """The output of one run: head and tail of it for the model, all of it (to a limit) live.

    `max_chars` bounds `text()` (the cut's own line comes on top), `live_chars` the sum of what
    `take()` gives; states of a progress bar do not count, but come at most twice a second.
    """

    def __init__(self, max_chars: int = 25_000, live_chars: int = 200_000) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler of the user may print
        self._max_chars = max_chars
        self._reset()
        self._open = ""
        self._pending: list[str] = []  # what cannot be rewritten any more and was not taken
        self._pending_size = 0
        self._taken = [""]  # the last lines as they were taken
        self._live_limit = live_chars
        self._live_left = live_chars
        self._live_over = False
        self._rewrote = 0.0

    def _reset(self) -> None:
        self._head_room = self._max_chars // 2
        self._tail_room = self._max_chars - self._head_room
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._dropped = 0
        self._screen = _Screen()

    def clear(self) -> None:
        """What was written is gone; of what was shown live the last lines are."""
        with self._lock:
            self._reset()
            if not self._live_over:
                self._pending, self._pending_size = [], 0

    def write(self, text: str) -> None:
        """Add text. Thread-safe; never blocks for long, never raises for odd characters."""
        with self._lock:
            if self._open or _SUSPECT.search(text):
                text = self._open + text
                self._open = ""
                half = _OPEN_ESCAPE.search(text)
                if half is not None:
                    self._open = half.group()
                    text = text[: half.start()]
                text = _scrub(text)
            if not text:
                return
            done = self._screen.write(text)
            if not done:
                return
            self._store(done)
            if not self._live_over:
                self._pending.append(done)
                self._pending_size += len(done)
                if self._pending_size > self._live_limit + 65_536:
                    self._compact()

    def line(self, text: str) -> None:
        """Add text as a line of its own."""
        with self._lock:
            self.write(f"\n{text}\n" if self._screen.begun else f"{text}\n")

    def take(self, final: bool = False) -> str:
        """What is new for the live display, cleaned. A leading "\\r" means: this replaces the line that was last
        begun; behind a move of the cursor up, lines before it too. `final`: hold nothing back."""
        with self._lock:
            if self._live_over and not self._pending:
                return ""
            held = "".join(self._pending)
            rows = (held + str(self._screen)).split("\n")
            known = self._taken
            same = next((at for at, row in enumerate(known) if rows[at : at + 1] != [row]), len(known))
            last = len(known) - 1
            if same > last and len(rows) == len(known):
                return ""
            if same >= last and rows[last].startswith(known[last]):
                text = "\n".join([rows[last][len(known[last]) :], *rows[last + 1 :]])
            else:
                up = f"\x1b[{last - same}A\r\x1b[J" if same < last else "\r" if rows[last] else "\r\x1b[K"
                text = up + "\n".join(rows[same:])
                now = time.monotonic()
                if len(rows) <= len(known) and not held:
                    if not final and now - self._rewrote < _REWRITE_PAUSE:
                        return ""
                    self._rewrote, self._taken = now, rows
                    return text
            self._pending, self._pending_size = [], 0
            self._taken = list(self._screen.rows)
            if len(text) <= self._live_left:
                self._live_left -= len(text)
                return text
            text = text[: self._live_left]
            self._live_left = 0
            self._live_over = True
            return f"{text}\n… live output ends here: more than {self._live_limit:,} characters; the run continues …\n"

    def text(self, most: int | None = None) -> str:
        """Head and tail of all that was written, `most` characters of them at most, the cut named between them."""
        with self._lock:
            head, tail = "".join(self._head), "".join(self._tail) + str(self._screen)
            dropped = self._dropped
            if self._head_room <= 0 and len(tail) > self._tail_room:
                dropped += len(tail) - self._tail_room
                tail = tail[len(tail) - self._tail_room :]
            if most is not None and len(head) + len(tail) > most:
                written = dropped + len(head) + len(tail)
                both = head + tail if not dropped else ""
                head = (both or head)[: most // 2]
                tail = (both or tail)[-(most - len(head)) :]
                dropped = written - len(head) - len(tail)
            if not dropped:
                return head + tail
            written = dropped + len(head) + len(tail)
            head, tail = before_cut(head), after_cut(tail)
            return head + _cut(written - len(head) - len(tail)) + tail

    def _store(self, text: str) -> None:
        if self._head_room > 0:
            part = text[: self._head_room]
            self._head.append(part)
            self._head_room -= len(part)
            text = text[len(part) :]
        if not text:
            return
        if len(text) > self._tail_room:
            self._dropped += len(text) - self._tail_room
            text = text[len(text) - self._tail_room :]
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size - len(self._tail[0]) >= self._tail_room:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._dropped += gone

    def _compact(self) -> None:
        """Nobody takes fast enough: keep what may still be shown, and one character to tell."""
        text = "".join(self._pending)[: self._live_left + 1]
        self._pending = [text]
        self._pending_size = len(text)
        if len(text) > self._live_left:
            self._live_over = True  # write() adds no more; take() says so


class _Screen:
    """The last lines of a text, which can still be rewritten, and where the cursor stands: `rows[row]`, before its
    character `column` (None: behind its end)."""

    def __init__(self) -> None:
        self.rows = [""]
        self._row = 0
        self._column: int | None = None
        self._anew = False  # a carriage return: what comes replaces the line

    def __str__(self) -> str:
        return "\n".join(self.rows)

    @property
    def begun(self) -> bool:
        """Whether a line stands where text would go."""
        return bool(self.rows[self._row])

    def write(self, text: str) -> str:
        """Take in text; what can no longer be rewritten by it, a part of the whole from its beginning."""
        rows = self.rows
        if not _REWRITES.search(text) and self._column is None and not self._anew and self._row == len(rows) - 1:
            first, *more = text.split("\n")
            rows[-1] += first
            rows += more
            self._row = len(rows) - 1
            return self._scrolled(_ROWS)
        gone: list[str] = []
        for token in _TOKEN.finditer(text):
            self._take(token)
            if len(rows) > 2 * _ROWS or len(rows[self._row]) > _LINE_LIMIT:
                gone.append(self._scrolled(_ROWS))
        gone.append(self._scrolled(_ROWS))
        return "".join(gone)

    def _take(self, token: re.Match[str]) -> None:
        text, rows = token[0], self.rows
        if text == "\n":
            self._row += 1
            self._column, self._anew = (None if self._row == len(rows) else 0), False
            if self._row == len(rows):
                rows.append("")
        elif text == "\r":
            self._column, self._anew = 0, True
        elif text == "\b":
            self._column = max(self._at - 1, 0)
        elif token[2]:
            self._move(token[2], min(int(token[1] or -1), 1_000))
        elif text != "\x1b":
            row, at = rows[self._row], self._at
            if self._anew and not at:
                rows[self._row] = text.rstrip(" ") and text
                self._column, self._anew = (None, False) if text.rstrip(" ") else (0, True)
            else:
                rows[self._row] = row[:at].ljust(at) + text + row[at + len(text) :]
                at += len(text)
                self._column, self._anew = (None if at >= len(rows[self._row]) else at), False

    @property
    def _at(self) -> int:
        return len(self.rows[self._row]) if self._column is None else self._column

    def _move(self, kind: str, count: int) -> None:
        rows, at, some = self.rows, self._at, max(count, 1)
        if kind in "ABEF":
            self._row = max(self._row - some, 0) if kind in "AF" else min(self._row + some, len(rows) - 1)
            self._column, self._anew = (0, True) if kind in "EF" else (at, self._anew)
        elif kind in "CDG":
            self._column = max({"C": at + some, "D": at - some, "G": some - 1}[kind], 0)
        elif kind == "K":
            rows[self._row] = {1: " " * at + rows[self._row][at:], 2: ""}.get(count, rows[self._row][:at])
        elif count <= 0:  # J: all behind the cursor
            rows[self._row] = rows[self._row][:at]
            del rows[self._row + 1 :]

    def _scrolled(self, most: int) -> str:
        """The lines above the last `most`, and those that are too long together."""
        rows = self.rows
        over = max(len(rows) - most, 0)
        room = sum(map(len, rows[over:])) - _LINE_LIMIT
        while room > 0 and over < len(rows) - 1:
            room -= len(rows[over])
            over += 1
        if not over and room <= 0:
            return ""
        gone = "".join([row + "\n" for row in rows[:over]])
        del rows[:over]
        self._row = max(self._row - over, 0)
        if room > 0:  # one endless line: the beginning of it
            gone, rows[0] = gone + rows[0], ""
            self._column, self._anew = None, False
        return gone


def _scrub(text: str) -> str:
    text = SEQUENCE.sub(moves_alone, text)
    text = _CONTROL.sub("", text)
    return _SURROGATE.sub("\ufffd", text)


def _cut(count: int) -> str:
    return f"\n… {count:,} characters of output left out here …\n"


# ---- Standard output where it is no ordinary stream: missing, sealed, or read from a pipe by ipykernel.

class Tapped(io.TextIOBase):
    """A stand-in for a missing or sealed standard stream."""

    def __init__(self, log: OutputLog) -> None:
        self._log = log

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._log.write(text)
        return len(text)

    def close(self) -> None:
        """Stay open."""


def drain(streams: Iterable[Any]) -> None:
    """Let ipykernel's watcher threads read what child processes wrote: they are milliseconds behind."""
    pipes = [pipe for stream in streams if (pipe := getattr(stream, "_fid", None)) is not None]
    if not pipes:
        return
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline and any(map(readable, pipes)):
        time.sleep(0.001)
    time.sleep(0.002)


def readable(source: Any, seconds: float = 0.0) -> bool:
    """Whether a descriptor, or something with one, can be read within so long; `select.select` knows none above
    1023."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(source, selectors.EVENT_READ)
        return bool(waiting.select(seconds))
