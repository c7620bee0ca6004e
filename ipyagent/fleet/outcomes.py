"""What became of a task, and where finished ones are kept: a file each, named by the task's key.

A file is written whole or not at all, so any number of workers write at once, and a killed run leaves nothing half.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ipyagent.journal.events import Ending
from ipyagent.project import write_atomically

DONE = "done"
"""The folder of finished tasks."""


class Outcome(msgspec.Struct, frozen=True):
    """`cost` in US dollars (None: no price known), `tokens` in and out together, `session` the transcript's
    folder, relative to the project where it lies in it; `tries` how often it was begun."""

    key: str
    status: Ending
    text: str = ""
    data: Any = None
    cost: float | None = 0.0
    tokens: int = 0
    seconds: float = 0.0
    session: str = ""
    tries: int = 0
    error: str = ""


def keep(into: Path, outcome: Outcome) -> None:
    """Write a finished task down."""
    write_atomically(into / DONE / f"{outcome.key}.json", msgspec.json.encode(outcome))


def kept(into: Path, key: str) -> Outcome | None:
    """What an earlier run has written down; None when there is nothing that can be read."""
    try:
        found = msgspec.json.decode((into / DONE / f"{key}.json").read_bytes(), type=Outcome)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.key == key else None
