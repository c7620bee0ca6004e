"""Pinned cells: the user marks a cell, and the model always has it before it (`ipyagent.context.pins`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ipyagent.context.pins import Pins, pinned, words
from ipyagent.journal.journal import clean
from ipyagent.kernel.cell_marks import PIN
from ipyagent.parts import Part, TakenIn, Turn

if TYPE_CHECKING:
    from ipyagent.assembly.workbench import SessionSetup
    from ipyagent.kernel.workspace import KernelWorkspace
    from ipyagent.loop.session import Session


class PinnedCells(Part):
    """See the module."""

    name, order, states = "pins", 15, (Pins,)

    def __init__(self, host: SessionSetup) -> None:
        self._marks = host.marks

    def snapshot(self, text: str) -> TakenIn:
        return TakenIn([(cell.ident, cell.source) for cell in self._marks.marked(PIN)])

    @asynccontextmanager
    async def turn(self, turn: Turn) -> AsyncIterator[None]:
        redact = turn.session.redact
        shown = pinned((ident, redact(clean(source))) for ident, source in turn.taken(self) or ())
        if (news := turn.session.folded(Pins).news(shown)) is not None:
            turn.session.record(news)
        yield

    async def after_compaction(self, session: Session, workspace: KernelWorkspace, room: int) -> list[tuple[str, str]]:
        found: str = await workspace.on_main(self._words)
        return [("pinned cells", session.redact(found))] if found else []

    def _words(self) -> str:
        """The pinned cells as the model reads them; "" for none. On the main thread."""
        return words(pinned((cell.ident, cell.source) for cell in self._marks.marked(PIN)))
