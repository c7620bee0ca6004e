"""Notebooks: the tool that reads and edits their cells, in the page that they stand in where our companion is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ipyagent.escape import exact, exact_line
from ipyagent.journal.events import Event, PermissionAnswered, PermissionAsked, TurnEnded, UsageReported
from ipyagent.kernel.page import OpenNotebook, PageLink, link_of
from ipyagent.parts import Host, Part, Turn

if TYPE_CHECKING:
    from ipyagent.loop.session import Session


class Notebooks(Part):
    """See the module."""

    name, order, own = "notebooks", 72, ("notebook",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def services(self, session: Session, others: Mapping[str, object]) -> Mapping[str, object]:
        shell = self._host.shell
        return {"page": session.kept(OpenNotebook, lambda: OpenNotebook(lambda: link_of(shell)))}

    @asynccontextmanager
    async def turn(self, turn: Turn) -> AsyncIterator[None]:
        link, opened = link_of(self._host.shell), turn.workspace.page
        if link is None or not isinstance(opened, OpenNotebook):
            yield
            return
        proposals = _Proposals(turn.session, link, opened)
        turn.session.heard.append(proposals.take)
        leave = link.listen(proposals.hear)
        link.changed()
        try:
            yield
        finally:
            leave()
            turn.session.heard.remove(proposals.take)
            link.changed()


class _Proposals:
    """What the user is asked of the notebook stands as a diff in the cells it concerns, too. Answered there or in the
    turn's panel, whichever comes first; a part of the new cells may be rejected there."""

    def __init__(self, session: Session, link: PageLink, opened: OpenNotebook) -> None:
        self._session, self._link, self._opened = session, link, opened
        self._asked: dict[str, tuple[str, int, frozenset[int]]] = {}
        """By call: the question's digest, how many changes it has, and which the page does not show whole."""

    def take(self, event: Event) -> None:
        """An event of the session, on the agent thread."""
        match event:
            case PermissionAsked(tool="notebook"):
                planned, self._opened.planned = self._opened.planned, None
                if planned is not None:
                    page, changes = planned
                    shown = [_shown(change) for change in changes]
                    cut = frozenset(number for number, change in enumerate(shown) if change["cut"])
                    self._asked[event.call] = (event.digest, len(changes), cut)
                    told = {"call": event.call, "digest": event.digest, "changes": shown}
                    self._link.send({"kind": "propose", "page": page, **told})
            case PermissionAnswered() if self._asked.pop(event.call, None) is not None:
                self._link.send({"kind": "settle", "call": event.call})
            case UsageReported() | TurnEnded():
                self._link.changed()
            case _:
                pass  # nothing that a page shows outside of the turn's panel

    def hear(self, data: dict[str, Any]) -> None:
        """The user has decided on each change, on any thread."""
        call = str(data.get("call"))
        digest, count, cut = self._asked.get(call, ("", 0, frozenset()))
        rejected, click = data.get("rejected"), getattr(self._session.surface, "click", None)
        if data.get("kind") != "answer" or not digest or data.get("digest") != digest or click is None:
            return
        numbers = frozenset(each for each in rejected if each in range(count)) if isinstance(rejected, list) else None
        if numbers is None or cut - numbers:  # nobody accepts what was not all to be seen
            return
        if len(numbers) < count:
            self._opened.rejected[call] = numbers
        answer = "deny" if len(numbers) == count else "once"
        click({"kind": "answer", "call": call, "digest": digest, "answer": answer, "reason": ""})


def _shown(change: Mapping[str, Any]) -> dict[str, Any]:
    """A change as the page shows it, spelled out as on the card in the panel: what is pressed there is consent."""
    named = {key: change.get(key) for key in ("cell", "after")}
    words = {"title": exact_line(str(change.get("title", ""))), "diff": exact(str(change.get("diff", "")))}
    return {**named, **words, "cut": bool(change.get("cut"))}
