"""The model's plan as a small checklist. The state of a step is in words or signs, never in colour alone."""

from __future__ import annotations

from collections.abc import Callable

from ipyagent.escape import escape, line
from ipyagent.journal.events import Step, StepState
from ipyagent.ui.items import PlanItem
from ipyagent.ui.look import Theme

LONGEST = 200
"""Characters of a step that are shown."""

_SIGNS: dict[StepState, tuple[str, str]] = {"pending": ("☐", "to do"), "doing": ("▸", "doing"), "done": ("☑", "done")}


def plan_head(item: PlanItem) -> str:
    """"Plan, 2 of 5 done"."""
    done = sum(step.state == "done" for step in item.steps)
    return f"Plan, {done} of {len(item.steps)} done"


def plan_lines(item: PlanItem) -> list[str]:
    """A heading and a line a step."""
    return [plan_head(item), *(f"  {_SIGNS[step.state][0]} {line(step.text, LONGEST)}" for step in item.steps)]


def plan_markdown(item: PlanItem, words: Callable[[str], str]) -> str:
    """A list with the sign of each step; `words` makes text in which nothing is Markdown."""
    rows = (f"- {_SIGNS[step.state][0]} {words(line(step.text, LONGEST))}" for step in item.steps)
    return "\n".join([f"*{words(plan_head(item))}*", "", *rows])


def plan_html(item: PlanItem, look: Theme) -> str:
    """The checklist, which a screen reader reads with the states."""
    rows = "".join(_row(step) for step in item.steps)
    return (
        f'<div {look.kind("ia-plan")}><small {look.kind("ia-notice")}>{escape(plan_head(item))}</small>'
        f'<ul {look.kind("ia-steps")} aria-label="Plan">{rows}</ul></div>'
    )


def _row(step: Step) -> str:
    sign, word = _SIGNS[step.state]
    text = escape(line(step.text, LONGEST))
    shown = {"done": f"<s>{text}</s>", "doing": f"<b>{text}</b>"}.get(step.state, text)
    return f'<li><span role="img" aria-label="{word}">{sign}</span> {shown}</li>'
