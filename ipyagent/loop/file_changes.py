"""Which files each turn changed and what of it can still be put back, turn by turn, newest first.

A change that could not be put back stays on the list of what was left: it is tried again with the turns before
it, whose undo would otherwise pass over it, until the agent changes that file anew.
"""

from __future__ import annotations

from typing import NamedTuple

from ipyagent.journal.events import Event, FileChanged, FilesRestored, UserSaid


class ToUndo(NamedTuple):
    """The turn (from 1; 0: only what was left of later ones) and the changes to take back, oldest first."""

    turn: int
    changes: tuple[FileChanged, ...]


class FileChanges:
    """Folds events, one at a time."""

    def __init__(self) -> None:
        self._turn = 0
        self._by_turn: dict[int, list[FileChanged]] = {}
        self._left: list[FileChanged] = []

    def __repr__(self) -> str:
        return f"<FileChanges of {len(self._by_turn)} turns>"

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case UserSaid():
                self._turn += 1
            case FileChanged():
                self._by_turn.setdefault(self._turn, []).append(event)
                self._left = [change for change in self._left if change.path != event.path]
            case FilesRestored():
                upto = event.upto or event.id
                undone = [turn for turn, changes in self._by_turn.items() if event.since <= changes[0].id <= upto]
                for turn in undone:
                    self._left += self._by_turn.pop(turn)
                self._left = sorted(
                    (change for change in self._left if change.path not in event.paths), key=lambda each: each.id
                )
            case _:
                pass

    @property
    def next(self) -> ToUndo | None:
        """What `%agent undo` takes back now; None when there is nothing."""
        if not self._by_turn:
            return ToUndo(0, tuple(self._left)) if self._left else None
        turn = max(self._by_turn)
        changes = sorted((*self._by_turn[turn], *self._left), key=lambda each: each.id)
        return ToUndo(turn, tuple(changes))

    def of(self, turn: int) -> tuple[FileChanged, ...]:
        """The changes of one turn that were not taken back, oldest first."""
        return tuple(self._by_turn.get(turn, ()))
