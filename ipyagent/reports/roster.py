"""A session's sub-agents as its journal tells of them, with what is known now of those at work."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ipyagent.children.child import Subagent
from ipyagent.journal.events import ChildEnded, ChildProgress, ChildStarted, Event


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
