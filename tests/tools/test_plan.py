"""The plan that the model keeps: checked whole, one step in hand, shown once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Step
from ipyagent.tools.answers import text_of
from ipyagent.tools.plan import LONGEST, MOST_STEPS, plan


def write(workspace: ShellWorkspace, *steps: Any) -> str:
    given = plan.validate({"steps": [{"step": text, "state": state} for text, state in steps]})
    return text_of(asyncio.run(plan.run(given, workspace)))
