"""What is so in the kernel now, for the model to be told: read on the main thread when a request is taken in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ipyagent.assembly.requests import is_ours
from ipyagent.context.reminders import VARIABLES, EnvironmentSnapshot, told_in, variables_block
from ipyagent.kernel.cell_marks import CellMarks
from ipyagent.kernel.scope import users_namespace
from ipyagent.kernel.variables import ReportedVariables, short_types, survey
from ipyagent.redaction import mask


class NotebookObserver:
    """Watches one IPython shell: its variables, and what the user ran since `pass_by` was last called."""

    def __init__(self, shell: Any, marks: CellMarks | None = None) -> None:
        self._shell = shell
        self.marks = marks or CellMarks(shell)
        self._passed = len(self.inputs())
        self._told: ReportedVariables | None = None
        self._looked: ReportedVariables | None = None
        self._listed: dict[str, ReportedVariables] = {}
        """What was told in each block of `listing` since `pass_by`, oldest first."""

    def __repr__(self) -> str:
        return f"<NotebookObserver over {self._passed} inputs>"

    def inputs(self) -> list[str]:
        """The source of every cell that was run, by its number; empty in a shell without a history."""
        return self.marks.inputs()

    def listing(self) -> str:
        """All variables as a block that stands after a compaction; "" for none. As long as it stands, `look` tells what
        has changed since."""
        namespace, hidden = users_namespace(self._shell), self._shell.user_ns_hidden
        text, listed = survey(namespace, None, hidden=hidden, inputs=self.inputs())
        block = variables_block(text) if text else ""
        self._listed.pop(block, None)
        self._listed[block] = listed
        return block

    def look(self, place: str, standing: Sequence[str] | None = None) -> EnvironmentSnapshot:
        """Date, place (the notebook's path, "" when unknown), variables, and what the user ran but for hidden cells.

        Of the variables only what is new to the model, as long as all that it was told of them, and that there still
        is, stands in `standing`, the `<context>` blocks in its context (None: it has none); otherwise all of them."""
        inputs = self.inputs()
        hidden, new = self.marks.hidden_inputs(inputs), range(self._passed, len(inputs))
        cells = [
            (mask(inputs[number].strip()), mask(self.marks.error_of(number))) for number in new if number not in hidden
        ]
        hidden, told = self._shell.user_ns_hidden, self._told
        told = next((self._listed[block] for block in reversed(self._listed) if block in (standing or ())), told)
        if told is not None and not (standing is not None and self._among(told, told_in(standing))):
            told = None
        text, self._looked = survey(self._shell.user_ns, told, hidden=hidden, inputs=inputs)
        if told is None:
            text = f"{VARIABLES}\n{text}" if text else f"{VARIABLES} none."
        return EnvironmentSnapshot(
            date=time.strftime("%Y-%m-%d"),
            place=place,
            variables=text,
            types=short_types(self._shell.user_ns, hidden=hidden),
            cells=[(cell, error) for cell, error in cells if cell and not is_ours(cell)],
        )

    def _among(self, told: ReportedVariables, names: set[str]) -> bool:
        """Whether what was told of the variables that there still are is among `names`."""
        return told.names - told.gone(self._shell.user_ns) <= names

    def pass_by(self) -> None:
        """What was run until now, and what was last looked at, counts as told."""
        self._passed = len(self.inputs())
        self._told = self._looked
        self._listed.clear()

    def forget(self) -> None:
        """Another conversation comes: it was told nothing yet."""
        self._told = None
        self._listed.clear()
