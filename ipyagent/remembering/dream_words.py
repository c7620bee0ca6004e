"""What the user is told of a dream, in a line, and what it saved, as events."""

from __future__ import annotations

from ipyagent.journal.events import MemorySaved
from ipyagent.memory.dream import PURPOSE
from ipyagent.memory.dream_record import DreamChange
from ipyagent.memory.files import WriteResult
from ipyagent.memory.staging import Committed

SHOWN = 6


def saved_events(committed: Committed) -> list[MemorySaved]:
    """What was committed, as events."""
    made = []
    for change, written in zip(committed.done, committed.written, strict=True):
        made.append(_event(change, written))
    return [event for event in made if event.change != "unchanged"]


def _event(change: DreamChange, written: WriteResult) -> MemorySaved:
    path = written.memory.path
    old = f"{path[: -len(change.name)]}{change.old}" if change.old else ""
    return MemorySaved(path=path, change=written.change, by=PURPOSE, old=old, revision=written.revision)


def command(scope: str) -> str:
    """The line that dreams of the memories of a scope."""
    return "%memory dream" if scope == "project" else f"%memory dream --scope {scope}"


def done_line(committed: Committed | None, scope: str = "project") -> str:
    """What a dream did, in a line."""
    if committed is None or not (committed.done or committed.kept):
        return "all was in order, nothing changed"
    kept = f"; saved meanwhile, so left as they are: {_few(list(committed.kept))}" if committed.kept else ""
    if not committed.done:
        return f"nothing changed{kept}"
    return f"{counted(committed.done)}{kept}; undo: {command(scope)} --undo"


def waiting_line(changes: tuple[DreamChange, ...], why: str, dry_run: bool, scope: str = "project") -> str:
    """What a dream would do, and how it is done."""
    reason = f" ({why})" if why else ""
    yes = f"do it: {command(scope)} --accept"
    if dry_run:
        return f"would do: {counted(changes)}{reason}; {yes}"
    return f"waits for your yes, {why}: {counted(changes)}; {yes}, or drop it: {command(scope)} --undo"


def counted(changes: tuple[DreamChange, ...]) -> str:
    """Changes by kind, with some of the names: "1 changed (a.md), 2 deleted (b.md, c.md)"."""
    parts = []
    for kind in ("created", "changed", "renamed", "deleted"):
        names = [change.name for change in changes if change.kind == kind]
        if names:
            parts.append(f"{len(names)} {kind} ({_few(names)})")
    return ", ".join(parts)


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return f"{shown} …" if len(names) > SHOWN else shown
