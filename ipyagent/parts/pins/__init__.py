"""Pinned cells: the user marks a cell, and the model always has it before it.

They stand in the context: told once, told again when they change or a decision took them away, never in the prefix.
What stands there is read from the events, so a resumed session tells nothing twice.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ipyagent.context.reminders import guarded
from ipyagent.errors import UsageError
from ipyagent.escape import line
from ipyagent.journal.events import (
    Block,
    Compacted,
    DecisionUndone,
    Event,
    KernelStarted,
    SystemReminder,
    TurnCollapsed,
    TurnsRemoved,
)
from ipyagent.journal.journal import clean
from ipyagent.journal.tokens import estimate_text
from ipyagent.kernel.cell_marks import PIN, bare
from ipyagent.parts import Command, Part, TakenIn, Turn

if TYPE_CHECKING:
    from ipyagent.assembly.session_setup import SessionSetup
    from ipyagent.kernel.workspace import KernelWorkspace
    from ipyagent.loop.session import Session

LAYER = "pins"
CELL_CHARS = 4_000
ALL_CHARS = 12_000
"""Characters of one pinned cell, and of all."""
_INTRO = "Cells that the user pinned for you, as they stand now:"
_FIRST = re.compile(r'<pinned-cell id="([^"\n]*)">\n')
_LAST = "\n</pinned-cell>"
_GONE = re.compile(r"^No longer pinned: (.*)$", re.MULTILINE)
_TAG = re.compile(r"<(?=/?pinned-cell)")


def pinned(cells: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Each pinned cell's id and source as it is told, cut where it or all are too long; those that do not fit any
    more are named only."""
    shown: dict[str, str] = {}
    room = ALL_CHARS
    for ident, source in cells:
        most = min(CELL_CHARS, room)
        text = _TAG.sub("<\\\\", guarded(source.strip("\n")))
        if len(text) > most:
            left = f"\n[… {len(text) - most:,} more characters]"
            text = text[:most] + left if most else "[no room: too much is pinned]"
        room -= min(len(text), room)
        shown[re.sub(r'["\n]', "'", ident)] = text
    return shown


def words(shown: Mapping[str, str], gone: Iterable[str] = ()) -> str:
    """What the model reads of pinned cells; "" for none."""
    parts = [f'<pinned-cell id="{ident}">\n{text}\n</pinned-cell>' for ident, text in shown.items()]
    if parts:
        parts.insert(0, _INTRO)
    if gone := list(gone):
        parts.append(f"No longer pinned: {', '.join(gone)}")
    return "<context>\n" + "\n".join(parts) + "\n</context>" if parts else ""


class Pins:
    """Folds events: which pinned cells the model has before it."""

    def __init__(self) -> None:
        self._standing: dict[str, tuple[str, int]] = {}
        self._earlier: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Pins {', '.join(self._standing)}>"

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case KernelStarted():
                self._earlier |= {ident: text for ident, (text, _) in self._standing.items()}
            case SystemReminder() if event.layer == LAYER:
                self._take(event.text, event.id)
            case Compacted() | TurnCollapsed() | TurnsRemoved():
                for ident, (_, at) in list(self._standing.items()):
                    if event.first <= at <= event.last:
                        del self._standing[ident]
                self._take(_text(event.blocks), event.id)
            case DecisionUndone():
                self._standing.clear()
            case _:
                pass

    def _take(self, text: str, at: int) -> None:
        first = _FIRST.search(text)
        while first and (end := text.find(_LAST, first.end())) >= 0:
            self._standing[first[1]] = (text[first.end() : end], at)
            first = _FIRST.search(text, end)
        for names in _GONE.findall(text):
            for ident in names.split(", "):
                self._standing.pop(ident, None)
                self._earlier.pop(ident, None)

    def with_earlier(self, shown: Mapping[str, str], ran: Collection[str], file: bool) -> dict[str, str]:
        """What is pinned now, with what earlier kernels ran pinned and no notebook file could show: cells without an
        id, and where there is no `file` all of them. Those without an id stay until this kernel runs such a pinned
        cell, and each until one of its text (`ran`, without marks) runs."""
        anew = any(map(_numbered, shown))
        kept = {
            ident: text
            for ident, text in self._earlier.items()
            if bare(text) not in ran and (not anew if _numbered(ident) else not file)
        }
        return {**kept, **shown}

    def news(self, shown: Mapping[str, str]) -> SystemReminder | None:
        """What is to be told when these are pinned now; None when nothing is new."""
        new = {ident: text for ident, text in shown.items() if self._standing.get(ident, ("", 0))[0] != text}
        gone = [ident for ident in self._standing if ident not in shown]
        text = words(new, gone)
        if not text:
            return None
        why = f"pinned: {', '.join(new)}" if new else f"no longer pinned: {', '.join(gone)}"
        return SystemReminder(text=text, why=why, tokens=estimate_text(text), layer=LAYER)


def _numbered(ident: str) -> bool:
    """Whether this stands for a cell without an id."""
    return ident.startswith("In[")


def _text(blocks: Iterable[Block]) -> str:
    return "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


class PinnedCells(Part):
    """See the module."""

    name, order, states = "pins", 15, (Pins,)

    def __init__(self, host: SessionSetup) -> None:
        self._marks, self._agent = host.marks, host.agent

    def commands(self) -> Mapping[str, Command]:
        about = "List pinned cells, which the agent always sees, and say how to pin one."
        return {"pin": Command(self._told, about, looks=True)}

    def _told(self, rest: str) -> str:
        if rest:
            raise UsageError("%agent pin takes no argument; write requests in a %%agent cell")
        self._marks.notebook, session = self._agent.sessions.notebook, self._agent.session
        earlier: dict[str, str] = {}
        if session is not None:
            shown = {cell.ident: "" for cell in self._marks.marked(PIN)}
            earlier = session.folded(Pins).with_earlier(shown, *self._now()[1:])
        left = ", ".join(line(ident) for ident, text in earlier.items() if text)
        until = "until you pin a cell in this one or run that cell without its mark"
        return self._marks.told(PIN) + f"\npinned in an earlier kernel, {until}: {left}" * bool(left)

    def snapshot(self, text: str) -> TakenIn:
        return TakenIn(self._now())

    def _now(self) -> tuple[list[tuple[str, str]], frozenset[str], bool]:
        """The pinned cells, the texts of all that ran, and whether a notebook file was read. On the main thread."""
        cells = [(cell.ident, cell.source) for cell in self._marks.marked(PIN)]
        return cells, self._marks.unmarked(), bool(self._marks.saved().idents)

    @asynccontextmanager
    async def turn(self, turn: Turn) -> AsyncIterator[None]:
        redact, pins = turn.session.redact, turn.session.folded(Pins)
        cells, *known = turn.taken(self) or ((), (), True)
        shown = pinned((ident, redact(clean(source))) for ident, source in cells)
        if (news := pins.news(pins.with_earlier(shown, *known))) is not None:
            turn.session.record(news)
        yield

    async def after_compaction(self, session: Session, workspace: KernelWorkspace, room: int) -> list[tuple[str, str]]:
        cells, *known = await workspace.on_main(self._now)
        found = words(session.folded(Pins).with_earlier(pinned(cells), *known))
        return [("pinned cells", session.redact(found))] if found else []
