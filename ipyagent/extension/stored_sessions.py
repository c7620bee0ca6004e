"""Stored sessions at a glance, and one of their turns to look at; files that did not change are not read again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ipyagent.errors import JournalError
from ipyagent.journal.events import (
    ChildEnded,
    ChildProgress,
    ChildStarted,
    Event,
    ForkEnded,
    SessionStarted,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.parts.subagents.subagent import Subagent


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


def turn_events(events: Iterable[Event], number: int) -> tuple[list[Event], int]:
    """The events of a turn, numbered from 1 (those before the first belong to it; the last one there is when
    `number` is larger), and how many turns there are."""
    turns: list[list[Event]] = [[]]
    count = 0
    for event in events:
        if isinstance(event, UserMessage):
            count += 1
            if count > 1:
                turns.append([])
        turns[-1].append(event)
    return turns[max(1, min(number, len(turns))) - 1], max(count, 1)


# ---- A session's sub-agents as its journal tells of them, with what is known now of those at work.

class Sub(msgspec.Struct, frozen=True, kw_only=True):
    """A sub-agent. `status` is "running", "cut off" (its kernel stopped) or how it ended; `began` in seconds of
    the epoch; `seconds` of work; `cost` in dollars (None: no price known, or not told yet)."""

    child: str
    name: str
    kind: str
    task: str
    model: str = ""
    background: bool = False
    status: str = "running"
    doing: str = ""
    message: str = ""
    began: float = 0.0
    seconds: float = 0.0
    cost: float | None = None
    requests: int = 0
    handed: tuple[str, ...] = ()


class SubagentList:
    """Folds events, one at a time."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._subs: dict[str, Sub] = {}
        for event in events:
            self.apply(event)

    def __repr__(self) -> str:
        return f"<SubagentList of {len(self._subs)}>"

    def apply(self, event: Event) -> bool:
        """Take in the next event; whether it told of a sub-agent."""
        match event:
            case ChildStarted():
                self._subs.pop(event.child, None)  # taken up again: the newest is the last
                self._subs[event.child] = Sub(
                    child=event.child, name=event.name, kind=event.kind, task=event.task, model=event.model,
                    background=event.background, began=event.at,
                )  # fmt: skip
            case ChildProgress() if event.child in self._subs:
                self._change(event.child, doing=event.text)
            case ChildEnded() if event.child in self._subs:
                self._change(
                    event.child, status=event.status, message=event.message, seconds=event.seconds, cost=event.cost,
                    requests=event.requests, handed=event.handed, doing="",
                )  # fmt: skip
            case _:
                return False
        return True

    def _change(self, child: str, **fields: object) -> None:
        self._subs[child] = msgspec.structs.replace(self._subs[child], **fields)

    def listed(self, running: Iterable[Subagent]) -> list[Sub]:
        """All of them, the newest first; `running` are those of this kernel that are at work."""
        at_work = {child.id: child for child in running}
        return [self._now(sub, at_work.get(sub.child)) for sub in reversed(self._subs.values())]

    def _now(self, sub: Sub, child: Subagent | None) -> Sub:
        if sub.status != "running":
            return sub
        if child is None:
            return msgspec.structs.replace(sub, status="cut off", message="the kernel stopped")
        doing = child.now if child.stands() else sub.doing or child.phase
        return msgspec.structs.replace(
            sub, doing=doing, seconds=child.seconds, cost=child.cost, requests=child.requests
        )
