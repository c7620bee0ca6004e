"""`%agent pin` and `%agent hide`: which cells are marked, and how one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipyagent.kernel.cell_marks import HIDE
from ipyagent.ui.escape import line as one_line

if TYPE_CHECKING:
    from ipyagent.agent import Agent


def marked_lines(agent: Agent, mark: str) -> str:
    """The cells with a mark, a line each, and how to mark one."""
    agent.marks.notebook = agent.sessions.notebook
    cells = agent.marks.marked(mark)
    what = "hidden from the agent" if mark == HIDE else "pinned: the agent always has it before it"
    lines = [f"{one_line(cell.ident or '(no id)')}  {one_line(_first_line(cell.source))[:80]}" for cell in cells]
    lines.insert(0, f"{len(cells)} cell{'' if len(cells) == 1 else 's'} {what}")
    lines.append(
        f"to mark a cell: the tag {mark} (JupyterLab: property inspector, Cell Tags; counts once the notebook is "
        f"saved), or the comment # {mark} in its first line (counts when it runs)"
    )
    return "\n".join(lines)


def _first_line(source: str) -> str:
    return next((row.strip() for row in source.splitlines() if row.strip() and not row.strip().startswith("#")), "")
