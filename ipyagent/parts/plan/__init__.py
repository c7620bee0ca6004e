"""The plan: a short list of steps that the model keeps. It stands again after a compaction, unless all of
it is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipyagent.context.reminders import guarded
from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Event, PlanWritten, Step, StepState
from ipyagent.journal.protocols import ToolOutput, Workspace
from ipyagent.parts import Part
from ipyagent.tools.answers import clean, text_output
from ipyagent.tools.schema import tool

if TYPE_CHECKING:
    from ipyagent.kernel.workspace import KernelWorkspace
    from ipyagent.loop.session import Session


MOST_STEPS = 20
LONGEST = 200
"""Characters of one step."""


@dataclass(frozen=True)
class PlanStep:
    step: str
    state: StepState = "pending"


@tool(permission="none", writes=False, deferred="a checklist that the user sees")
async def plan(steps: list[PlanStep], *, workspace: Workspace) -> ToolOutput:
    """Keep a short plan of work that has three or more steps; the user sees it as a checklist.

    Give the whole list each time: it takes the place of the one before. Mark a step `doing` when you
    begin it and `done` as soon as it is done; at most one is `doing`. An empty list drops the plan.

    Args:
        steps: All steps in order, each a few words with its state: pending, doing or done.
    """
    kept = tuple(Step(" ".join(clean(step.step).split()), step.state) for step in steps)
    problem = _problem(kept)
    if problem:
        raise ToolFailure(f"{problem}; the plan was left as it was")
    workspace.record_plan(kept)
    said = summary(kept)
    return text_output(said, note=said)


def summary(steps: tuple[Step, ...]) -> str:
    """"2 of 5 steps done; doing: clean the dates"."""
    if not steps:
        return "no plan now"
    done = sum(step.state == "done" for step in steps)
    doing = next((f"; doing: {step.text}" for step in steps if step.state == "doing"), "")
    return f"{done} of {len(steps)} steps done{doing}"


def _problem(steps: tuple[Step, ...]) -> str:
    """What is wrong with a plan, "" for nothing."""
    if len(steps) > MOST_STEPS:
        return f"a plan has at most {MOST_STEPS} steps, not {len(steps)}: put small ones together"
    doing = [step.text for step in steps if step.state == "doing"]
    if len(doing) > 1:
        return f"one step is `doing` at a time, not {len(doing)} ({'; '.join(doing)})"
    for number, step in enumerate(steps, 1):
        if not step.text:
            return f"step {number} has no text"
        if len(step.text) > LONGEST:
            return f"step {number} has {len(step.text)} characters; say it in at most {LONGEST}"
    return ""


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

    name, order, states, own = "plan", 80, (Plan,), ("plan",)

    async def after_compaction(self, session: Session, workspace: KernelWorkspace, room: int) -> list[tuple[str, str]]:
        written = session.folded(Plan).written
        if written is None or all(step.state == "done" for step in written.steps):
            return []
        rows = "\n".join(f"- [{step.state}] {guarded(step.text)}" for step in written.steps)
        return [("plan", f"<context>\nYour plan, as you last wrote it:\n{rows}\n</context>")]
