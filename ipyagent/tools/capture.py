"""A command's output while it runs: read by a thread until its last writer has closed it, kept as
head and tail, handed on in pieces."""

from __future__ import annotations

import codecs
import os
import threading
from collections import deque

from ipyagent.redaction import after_cut, before_cut


class Capture:
    """Reads a pipe's `descriptor` to its end and closes it. Keeps the first two thirds of `keep`
    characters and the last third; `take` hands out what is new, up to `live` characters."""

    def __init__(self, descriptor: int, keep: int, live: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._head: list[str] = []
        self._room = keep * 2 // 3
        self._tail: deque[str] = deque()
        self._tail_length = 0
        self._tail_most = keep - keep * 2 // 3
        self._fresh: list[str] = []
        self._live = live
        self._total = 0
        # A background process that the command left goes on writing: the thread goes on reading,
        # so that the process does not die of a closed pipe.
        self.thread = threading.Thread(target=self._read, name="ipyagent-shell-output", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            while piece := os.read(self._descriptor, 65_536):
                self._keep(decoder.decode(piece))
            self._keep(decoder.decode(b"", True))
        finally:
            os.close(self._descriptor)

    def _keep(self, text: str) -> None:
        with self._lock:
            self._total += len(text)
            if self._live > 0:
                self._fresh.append(text[: self._live])
                self._live -= len(text)
                if self._live <= 0:
                    self._fresh.append("\n[… the rest is not shown live …]\n")
            head, rest = text[: self._room], text[self._room :]
            self._room -= len(head)
            if head:
                self._head.append(head)
            if rest:
                self._tail.append(rest)
                self._tail_length += len(rest)
                while self._tail_length - len(self._tail[0]) >= self._tail_most:
                    self._tail_length -= len(self._tail.popleft())

    def take(self) -> str:
        """What came since the last call."""
        with self._lock:
            text, self._fresh = "".join(self._fresh), []
            return text

    def text(self) -> str:
        """All that is kept; the cut is named."""
        with self._lock:
            tail = "".join(self._tail)[-self._tail_most :]
            head = "".join(self._head)
            if self._total <= len(head) + len(tail):
                return head + tail
            head, tail = before_cut(head), after_cut(tail)
            return f"{head}\n[… {self._total - len(head) - len(tail):,} characters cut here …]\n{tail}"
