"""`%compact --step` in a live notebook: the step with buttons for the next one and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipyagent.kernel.frontend import describe_frontend

if TYPE_CHECKING:
    from ipyagent.extension import Extension


def run_steps(extension: Extension, line: str) -> str | None:
    """Show the step with its buttons; "" then. None when the line asks for something else, or nobody could press
    them. Raises as `Agent.compact`."""
    from ipyagent.assembly.compact_line import parse_compact
    from ipyagent.commands.cells import door_of
    from ipyagent.ui.steps import StepPanel

    wanted, shell = parse_compact(line), extension.shell
    captured = type(shell.display_pub).__name__ == "CapturingDisplayPublisher"  # %%capture
    loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
    if not wanted.step or captured or loop is None or not describe_frontend(shell).live_widgets:
        return None
    agent = extension.agent_now
    panel = StepPanel(
        agent.compaction.step, lambda: agent.compact("--undo"), door_of(extension), loop.add_callback
    )
    panel.open(agent.compaction.step(dry=wanted.dry_run))
    return ""
