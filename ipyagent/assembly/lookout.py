"""What is so in the kernel now, for the model to be told: read on the main thread when a request is taken in."""

from __future__ import annotations

import time
from typing import Any

from ipyagent.assembly.requests import is_ours
from ipyagent.context.reminders import Seen
from ipyagent.kernel.cell_marks import CellMarks
from ipyagent.kernel.masking import mask
from ipyagent.kernel.variables import short_types, summarize


class Lookout:
    """Watches one IPython shell: its variables, and what the user ran since `pass_by` was last called."""

    def __init__(self, shell: Any, marks: CellMarks | None = None) -> None:
        self._shell = shell
        self.marks = marks or CellMarks(shell)
        self._passed = len(self.inputs())

    def __repr__(self) -> str:
        return f"<Lookout over {self._passed} inputs>"

    def inputs(self) -> list[str]:
        """The source of every cell that was run, by its number; empty in a shell without a history."""
        return self.marks.inputs()

    def look(self, place: str) -> Seen:
        """Date, place (the notebook's path, "" when unknown), variables, and what the user ran but for hidden cells."""
        inputs = self.inputs()
        hidden, new = self.marks.hidden_inputs(inputs), range(self._passed, len(inputs))
        cells = [mask(inputs[number].strip()) for number in new if number not in hidden]
        hidden = self._shell.user_ns_hidden
        return Seen(
            date=time.strftime("%Y-%m-%d"),
            place=place,
            variables=summarize(self._shell.user_ns, hidden=hidden),
            types=short_types(self._shell.user_ns, hidden=hidden),
            cells=[cell for cell in cells if cell and not is_ours(cell)],
        )

    def pass_by(self) -> None:
        """What was run until now counts as told."""
        self._passed = len(self.inputs())
