"""`%agent undo`: the files of the newest turn that changed any and was not taken back are put back as they were
before it; called again, those of the turn before. Never over what somebody else has written since."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ipyagent.errors import UsageError
from ipyagent.escape import line
from ipyagent.journal.events import FilesRestored, ToolCalled, ToolReturned
from ipyagent.kernel.workspace import BACKUPS
from ipyagent.loop.session import Session
from ipyagent.loop.watching import CodeWatch
from ipyagent.tools.changes import Undone, restore

NOT_COVERED = "Undo does not cover files that code created, nor what commands or unwatched compiled code changed."
"""Said where code or commands ran."""
RUNS = ("python", "shell", "agent")
"""Tools that run code or commands, or have others run them."""
_REBOUND = re.compile(r"^\[rebound: (.+)\]$", re.MULTILINE)


class TurnUndone(NamedTuple):
    """`turn` counts from 1 (0: only files that an earlier undo had left, or a replayed cell of a notebook), `text` is
    its request; `restored` and `conflicts` as in `Undone`; `rebound`: variables that the turn rebound, which stay as
    they are; `removed`: those of `restored` that the turn had created; `ran`: whether it ran code or commands, whose
    files undo covers in part; `replay` as in `ToUndo`."""

    turn: int
    text: str
    restored: tuple[str, ...]
    conflicts: tuple[str, ...]
    rebound: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    ran: bool = False
    replay: str = ""

    def lines(self) -> list[str]:
        """What was done, for the user."""
        lines = [f"turn {self.turn}{', replayed' * bool(self.replay)} ({line(self.text, 60)}):"] if self.turn else []
        if self.replay and not self.turn:
            lines = [f"a replayed cell of {line(self.replay, 60)}:"]
        lines += [f"{'removed' if path in self.removed else 'put back'} {path}" for path in self.restored]
        lines += [f"{conflict}." for conflict in self.conflicts]
        if (self.turn or self.replay) and not (self.restored or self.conflicts):
            lines.append("nothing to restore")
        if self.rebound:
            lines.append(f"variables that it rebound stay as they are: {', '.join(self.rebound)}")
        return [*lines, NOT_COVERED] if self.ran else lines


def undo_turn(session: Session | None, root: Path) -> TurnUndone:
    """Take the newest turn's file changes back. Raises UsageError when there is nothing to restore."""
    if session is not None:
        session.kept(CodeWatch, lambda: CodeWatch(session)).settle()
    due = session.history.files.next if session is not None else None
    if session is None or due is None:
        more = f". {NOT_COVERED}" if session is not None and ran_in(session, 0, 0) else ""
        raise UsageError(f"no file changes are left to undo in this session{more}")
    undone = restore(due.changes, root, session.journal.folder / BACKUPS)
    if not (due.turn or due.replay) and not undone.restored:
        left = "; " + "; ".join(undone.conflicts) if undone.conflicts else ""
        raise UsageError(f"no file changes of the other turns are left to undo{left}")
    session.record(FilesRestored(paths=undone.restored, since=due.changes[0].id))
    if not due.turn:
        return TurnUndone(0, "", *undone, ran=bool(due.replay), replay=due.replay)
    return undone_turn(session, root, due.turn, undone, due.replay)


def undone_turn(session: Session, root: Path, number: int, undone: Undone, replay: str = "") -> TurnUndone:
    """What came of taking back the files of turn `number`, from 1, or of its `replay`."""
    turn = session.history.turns[number - 1]
    removed = tuple(path for path in undone.restored if not (root / path).exists())
    return TurnUndone(number, turn.text, *undone, rebound_in(session, turn.first, turn.last), removed,
                      ran_in(session, turn.first, turn.last), replay)  # fmt: skip


def ran_in(session: Session, first: int, last: int) -> bool:
    """Whether code or commands ran in the events from `first` to `last` (0: the newest)."""
    events = session.journal.read()
    return any(isinstance(event, ToolCalled) and event.name in RUNS and first <= event.id <= (last or event.id)
               for event in events)  # fmt: skip


def rebound_in(session: Session, first: int, last: int) -> tuple[str, ...]:
    """Names that code of the events from `first` to `last` rebound, as its results say."""
    names: dict[str, None] = {}
    for event in session.journal.read():
        if isinstance(event, ToolReturned) and event.name == "python" and first <= event.id <= (last or event.id):
            for block in event.blocks:
                for found in _REBOUND.findall(str(block.get("text", ""))):
                    names.update(dict.fromkeys(found.split(", ")))
    return tuple(names)
