"""Stored sessions at a glance, and one of their turns to look at; files that did not change are not read again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ipyagent.errors import JournalError
from ipyagent.journal.events import (
    ChildEnded,
    ForkEnded,
    SessionStarted,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import TRANSCRIPT, read_events


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session on the disk. `changed` in seconds of the epoch; `bytes` of its transcript; `cost` in dollars
    (None: no price known); `problem` why it cannot be read."""

    session: str
    changed: float
    bytes: int
    notebook: str = ""
    forked_from: str = ""
    first: str = ""
    turns: int = 0
    cost: float | None = 0.0
    problem: str = ""


class Archive:
    """Reads sessions of folders when they are asked for."""

    def __init__(self) -> None:
        self._known: dict[Path, StoredSession] = {}

    def __repr__(self) -> str:
        return f"<Archive, {len(self._known)} read>"

    def look(self, folder: Path) -> StoredSession:
        """The session in a folder as it is now."""
        path = folder / TRANSCRIPT
        try:
            stat = path.stat()
        except OSError as problem:
            return StoredSession(session=folder.name, changed=0.0, bytes=0, problem=problem.strerror or str(problem))
        known = self._known.get(folder)
        if known is None or (known.changed, known.bytes) != (stat.st_mtime, stat.st_size):
            known = self._known[folder] = _read(folder.name, path, stat.st_mtime, stat.st_size)
        return known


def _read(name: str, path: Path, changed: float, size: int) -> StoredSession:
    notebook, forked, first, turns, cost, problem = "", "", "", 0, 0.0, ""
    priced = True
    try:
        for event in read_events(path):
            match event:
                case SessionStarted():
                    notebook, forked = event.notebook, event.forked_from
                case UserMessage():
                    first, turns = first or event.text, turns + 1
                case UsageReported() | ForkEnded() | ChildEnded():
                    priced = priced and event.cost is not None
                    cost += event.cost or 0.0
                case _:
                    pass
    except JournalError as wrong:
        problem = str(wrong)
    return StoredSession(
        session=name, changed=changed, bytes=size, notebook=notebook, forked_from=forked, first=first, turns=turns,
        cost=cost if priced else None, problem=problem,
    )  # fmt: skip
