"""The session's sub-agents on the board: what its journal tells of them, with what is known now of those at work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ipyagent.escape import line
from ipyagent.journal.events import ChildEnded, ChildProgress, ChildStarted, Event
from ipyagent.journal.journal import CHILDREN, TRANSCRIPT
from ipyagent.loop.session import Session
from ipyagent.parts.subagents import SubagentManager
from ipyagent.parts.subagents.subagent import Subagent
from ipyagent.ui.board import STATIC_ROWS, BoardHost, BoardTab, Reply, Rows, counted, looked, number_in, text_in, when
from ipyagent.ui.meter import dollars, duration

SUBS = 100
"""Sub-agents that are told of at once, the newest."""


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


class SubagentsTab(BoardTab):
    """The session's sub-agents."""

    title = "Sub-agents"

    def __init__(self, host: BoardHost, manager: SubagentManager) -> None:
        self._manager = manager
        super().__init__(host)

    def begin(self, session: Session | None) -> None:
        self._session = session
        self._roster = SubagentList()
        self._told: list[Any] | None = None

    def take(self, event: Event) -> None:
        self._roster.apply(event)

    def listed(self) -> list[Sub]:
        """All of them, the newest first."""
        return self._roster.listed(self._manager.at_work())

    def rows(self) -> Rows:
        subs = self.listed()
        cells = [
            [f"{line(sub.name, 60)} ({line(sub.kind, 30)})", line(sub.task, 80),
             f"{sub.status}{': ' + line(sub.doing or sub.message, 100) if sub.doing or sub.message else ''}",
             duration(sub.seconds), "-" if sub.cost is None else dollars(sub.cost)]
            for sub in subs[:STATIC_ROWS]
        ]  # fmt: skip
        head = counted(len(subs), "sub-agent") + " in this session"
        return head, ("sub-agent", "task", "status", "time", "cost"), cells, len(subs)

    def fresh(self) -> Reply:
        subs = self.listed()
        rows = [sub_row(sub) for sub in subs[:SUBS]]
        signs = [{**row, "seconds": 0} if row["status"] == "running" else row for row in rows]
        if signs == self._told:
            return None
        self._told = signs
        return {"subs": rows, "total": len(subs), "from": 0}

    def answer(self, content: dict[str, Any]) -> Reply:
        child = text_in(content, "child")
        match content.get("kind"):
            case "subs":
                subs, begin = self.listed(), number_in(content, "from")
                return {"subs": [sub_row(sub) for sub in subs[begin : begin + SUBS]], "total": len(subs), "from": begin}
            case "stop" if child in {each.id for each in self._manager.at_work()}:
                self._manager.stop_one(child)
                return {"said": f"stopping {line(child, 80)}"}
            case "look" if self._session is not None and child in {sub.child for sub in self.listed()}:
                path = self._session.journal.folder / CHILDREN / child / TRANSCRIPT
                return {"look": {"of": child, **looked(path, number_in(content, "turn"))}}
            case _:
                return None


def sub_row(sub: Sub) -> dict[str, Any]:
    """A sub-agent as its page gets it."""
    return {
        "id": line(sub.child, 80), "name": line(sub.name, 80), "kind": line(sub.kind, 40), "task": line(sub.task, 200),
        "status": sub.status, "doing": line(sub.doing, 160), "message": line(sub.message, 300),
        "seconds": round(sub.seconds, 1), "cost": "" if sub.cost is None else dollars(sub.cost),
        "requests": sub.requests, "background": sub.background, "handed": line(", ".join(sub.handed), 200),
        "model": line(sub.model, 60), "began": when(sub.began),
    }  # fmt: skip
