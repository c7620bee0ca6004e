"""`%agent fix`: the newest error of the user's own code becomes a request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ipyagent.errors import AgentError, UsageError
from ipyagent.kernel.cell_marks import HIDE
from ipyagent.kernel.failures import cells_of, render_failure
from ipyagent.redaction import mask

if TYPE_CHECKING:
    from ipyagent.extension import Extension


def fix_request(extension: Extension, rest: str) -> str:
    """Ask for the newest error to be mended; words after it are added."""
    # What IPython and Python keep of the newest error that was shown; our own say what to do themselves.
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException) or isinstance(error, AgentError | KeyboardInterrupt | SystemExit):
        raise UsageError("%agent fix takes the newest error of a cell, and there is none here")
    marks = extension.agent_now.marks
    if any(marks.hides(source) for source in cells_of(error)):
        raise UsageError(
            f"the newest error is in a cell that is hidden from the agent: take {HIDE} out of it to have it fixed"
        )
    told = mask(render_failure(error)).replace("```", "'''")
    wish = f"\n{rest}" if rest else ""
    return f"Find out why this failed and fix it.{wish}\n\n```\n{told}\n```"
