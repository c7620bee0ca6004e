"""The plan: a short list of steps that the model keeps (`tool.py`). It stands again after a compaction, unless all of
it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ipyagent.context.reminders import guarded
from ipyagent.journal.events import Event, PlanWritten
from ipyagent.journal.protocols import Tool
from ipyagent.parts import Host, Part
from ipyagent.parts.plan.tool import plan

if TYPE_CHECKING:
    from ipyagent.kernel.workspace import KernelWorkspace
    from ipyagent.loop.session import Session


class Plan:
    """Folds events."""

    def __init__(self) -> None:
        self.written: PlanWritten | None = None
        """The model's newest plan."""

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        if isinstance(event, PlanWritten):
            self.written = event


class PlanPart(Part):
    """See the module."""

    name, order, states = "plan", 80, (Plan,)

    def __init__(self, host: Host) -> None:
        pass

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        found: dict[str, Any] = {plan.name: plan}
        return found

    async def after_compaction(self, session: Session, workspace: KernelWorkspace, room: int) -> list[tuple[str, str]]:
        written = session.folded(Plan).written
        if written is None or all(step.state == "done" for step in written.steps):
            return []
        rows = "\n".join(f"- [{step.state}] {guarded(step.text)}" for step in written.steps)
        return [("plan", f"<context>\nYour plan, as you last wrote it:\n{rows}\n</context>")]
