"""The plan that the model keeps: checked as a whole, one step in hand at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Step, StepState
from ipyagent.parts.plan import LONGEST, MOST_STEPS, plan


def write(workspace: ShellWorkspace, *steps: tuple[str, StepState]) -> str:
    given = plan.validate({"steps": [{"step": text, "state": state} for text, state in steps]})
    output = asyncio.run(plan.run(given, workspace))
    return str(output.blocks[0]["text"])


def test_a_plan_is_journalled_whole_and_said_in_a_line(tmp_path: Path) -> None:
    workspace = ShellWorkspace(tmp_path)
    said = write(workspace, ("read", "done"), ("clean\nthe  dates", "doing"), ("plot", "pending"))
    assert said == "1 of 3 steps done; doing: clean the dates"
    assert workspace.plans == [(Step("read", "done"), Step("clean the dates", "doing"), Step("plot", "pending"))]
    assert write(workspace) == "no plan now"
    assert workspace.plans[-1] == ()


def test_a_step_is_pending_unless_said_otherwise_and_no_permission_is_needed(tmp_path: Path) -> None:
    workspace = ShellWorkspace(tmp_path)
    given = plan.validate({"steps": [{"step": "read"}]})
    asyncio.run(plan.run(given, workspace))
    assert workspace.plans == [(Step("read"),)]
    assert plan.permission(given, workspace) == "none"
    assert not plan.writes(given, workspace)


def test_a_plan_that_breaks_a_rule_leaves_the_one_before(tmp_path: Path) -> None:
    workspace = ShellWorkspace(tmp_path)
    wrong: list[tuple[list[tuple[str, StepState]], str]] = [
        ([("a", "doing"), ("b", "doing")], r"one step is `doing` at a time, not 2 \(a; b\)"),
        ([("a", "pending"), (" ", "pending")], "step 2 has no text"),
        ([("x" * (LONGEST + 1), "pending")], f"at most {LONGEST}"),
        ([("a", "pending")] * (MOST_STEPS + 1), f"at most {MOST_STEPS} steps, not {MOST_STEPS + 1}"),
    ]
    for steps, why in wrong:
        with pytest.raises(ToolFailure, match=f"{why}.*left as it was"):
            write(workspace, *steps)
    assert workspace.plans == []
    with pytest.raises(ToolFailure, match=r"steps\.0\.state.*'pending', 'doing' or 'done'"):
        plan.validate({"steps": [{"step": "a", "state": "later"}]})
