"""What a server writes to its error output goes to a file of its own, `mcp/<server>.log` in the session's
folder, up to a limit: what a flooding server writes beyond is read and dropped, slowly."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from ipyagent.nofollow import opened, status

FOLDER = "mcp"
MOST_BYTES = 2_000_000
TAIL = 20
"""Lines that are kept to tell why a server ended."""


class ServerLog:
    """The log of the server whose part of tool names is `part`. `folder` is the session's and may change;
    None: nothing is written."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.folder: Path | None = None
        self._written: dict[Path, int] = {}
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._rest = b""

    def __repr__(self) -> str:
        return f"<ServerLog {self.path}>"

    @property
    def path(self) -> Path | None:
        return None if self.folder is None else self.folder / FOLDER / f"{self.part}.log"

    @property
    def full(self) -> bool:
        """Whether what comes now is dropped."""
        path = self.path
        return path is not None and self._written.get(path, 0) >= MOST_BYTES

    @property
    def last(self) -> str:
        """The last lines, for people; "" when there are none."""
        rest = self._rest.decode("utf-8", "replace").strip()
        return "\n".join([*self._tail, *([rest] if rest else [])])

    def write(self, data: bytes) -> None:
        """Take in a piece. A disk that is full loses it: a log stops no work."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[-2_000:]
        self._tail.extend(line[:500].decode("utf-8", "replace") for line in lines[-TAIL:] if line.strip())
        path = self.path
        if path is None or self.full:
            return
        try:
            if path not in self._written:
                found = status(path)
                self._written[path] = found.st_size if found is not None else 0
            room = MOST_BYTES - self._written[path]
            piece = data[:room] + (b"\n[what follows was dropped]\n" if len(data) >= room else b"")
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with os.fdopen(opened(path, flags, make=True), "ab") as file:
                file.write(piece)
            self._written[path] += len(piece)
        except OSError:
            self._written[path] = MOST_BYTES

    def note(self, line: str) -> None:
        """A line of ours."""
        self.write(f"[ipyagent] {line}\n".encode("utf-8", "replace"))
