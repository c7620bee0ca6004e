"""What a run prints, kept within bounds: any thread may write, memory stays bounded however much comes.

Text is cleaned as it enters: terminal escapes and control characters go, lone surrogates are
replaced, and of a line that was rewritten with carriage returns only its last state stays.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque

from ipyagent.redaction import after_cut, before_cut

_ESCAPE = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|[ -/]*[0-~])"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_OPEN_ESCAPE = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,4000}\x1b?|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SUSPECT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

_LINE_LIMIT = 8_000
"""Characters of an unfinished line that can still be taken back by a carriage return."""
_REWRITE_PAUSE = 0.5
"""Seconds between two states of a progress bar in the live text."""


def clean(text: str) -> str:
    """`text` without terminal escapes, control characters and lone surrogates, lines settled."""
    text = _scrub(text).replace("\r\n", "\n")
    return "\n".join(map(_last_state, text.split("\n"))) if "\r" in text else text


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
        self._pending: list[str] = []
        self._pending_size = 0
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
        self._line = ""

    def clear(self) -> None:
        """What was written is gone; what was shown live of it was shown."""
        with self._lock:
            self._reset()

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
            self._keep(text)
            if not self._live_over:
                self._pending.append(text)
                self._pending_size += len(text)
                if self._pending_size > self._live_limit + 65_536:
                    self._compact()

    def line(self, text: str) -> None:
        """Add text as a line of its own."""
        with self._lock:
            self.write(f"\n{text}\n" if self._line else f"{text}\n")

    def take(self, final: bool = False) -> str:
        """What is new for the live display, cleaned. A leading "\\r" means: this replaces the line
        that was last begun. `final`: hold nothing back."""
        with self._lock:
            if not self._pending:
                return ""
            text = "".join(self._pending).replace("\r\n", "\n")
            self._pending.clear()
            self._pending_size = 0
            held = ""
            if text.endswith("\r") and not final:  # the "\n" may be on its way
                text, held = text[:-1], "\r"
            text = _settle(text)
            rewrite = text.startswith("\r") and "\n" not in text
            now = time.monotonic()
            if rewrite and not final and now - self._rewrote < _REWRITE_PAUSE:
                text, held = "", text + held
            if held:
                self._pending.append(held)
                self._pending_size = len(held)
            if not text:
                return ""
            if rewrite:
                self._rewrote = now
                return text[: _LINE_LIMIT + 1]
            if len(text) <= self._live_left:
                self._live_left -= len(text)
                return text
            text = text[: self._live_left]
            self._live_left = 0
            self._live_over = True
            self._pending.clear()
            self._pending_size = 0
            return f"{text}\n… live output ends here: more than {self._live_limit:,} characters; the run continues …\n"

    def text(self, most: int | None = None) -> str:
        """Head and tail of all that was written, `most` characters of them at most, the cut named between them."""
        with self._lock:
            head, tail = "".join(self._head), "".join(self._tail) + _last_state(self._line)
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

    def _keep(self, text: str) -> None:
        text = self._line + text
        done, newline, self._line = text.rpartition("\n")
        if newline:
            if "\r" in done:
                done = "\n".join(map(_last_state, done.split("\n")))
            self._store(done + "\n")
        if "\r" in self._line:
            # a trailing "\r" must stay: what follows may be the "\n", or the next state
            self._line = _last_state(self._line) + ("\r" if self._line.endswith("\r") else "")
        if len(self._line) > _LINE_LIMIT:
            line, self._line = self._line, ""
            self._store(_last_state(line))

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
        text = _settle("".join(self._pending).replace("\r\n", "\n"))[: self._live_left + 1]
        self._pending = [text]
        self._pending_size = len(text)
        if len(text) > self._live_left:
            self._live_over = True  # write() adds no more; take() says so


def _scrub(text: str) -> str:
    text = _ESCAPE.sub("", text)
    text = _CONTROL.sub("", text)
    return _SURROGATE.sub("\ufffd", text)


def _last_state(line: str) -> str:
    if "\r" not in line:
        return line
    return next((state for state in reversed(line.split("\r")) if state), "")


def _settle(text: str) -> str:
    if "\r" not in text:
        return text
    first, *rest = text.split("\n")
    begun = "\r" + _last_state(first) if "\r" in first and _last_state(first) else _last_state(first)
    return "\n".join([begun, *map(_last_state, rest)])


def _cut(count: int) -> str:
    return f"\n… {count:,} characters of output left out here …\n"
