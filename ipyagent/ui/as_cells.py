"""Cells on their way into the page's notebook: offered to every page of the kernel, given to the first one that
can take them, and to no other; pages that cannot are told so. A page that loads late is offered them again."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ipyagent.journal.events import Event
from ipyagent.ui.door import ButtonBridge

Cells: TypeAlias = Sequence[Mapping[str, Any]]
OPEN = 60.0
"""Seconds in which a page that comes late may take cells: later nobody expects them."""
_KEYS = ("cell_type", "metadata")


class _Offer(NamedTuple):
    cells: list[dict[str, Any]]
    below: str
    told: Callable[[int], None]
    at: float


class Inserting:
    """The cells that one kernel puts into its notebook, through the door's widget."""

    def __init__(self, door: ButtonBridge) -> None:
        self._door = door
        self._offers: dict[str, _Offer] = {}
        self._lock = threading.Lock()  # messages come on several threads, some twice
        door.listen(self._hear)

    def __repr__(self) -> str:
        return f"<Inserting {len(self._offers)} offers>"

    def offer(self, cells: Cells, below: str, told: Callable[[int], None]) -> None:
        """Have `cells` put below the cell with the id `below`. `told` is called, on any thread, with how many
        came in; with 0 when a page said that it cannot (another may still)."""
        token = secrets.token_hex(8)
        sent = [{**{key: cell[key] for key in _KEYS}, "source": "".join(cell["source"])} for cell in cells]
        with self._lock:
            now = time.monotonic()
            self._offers = {name: offer for name, offer in self._offers.items() if now - offer.at < OPEN}
            self._offers[token] = _Offer(sent, below, told, now)
        self._door.send({"offer": token, "below": below})

    def _hear(self, content: dict[str, Any]) -> None:
        if content.get("ready"):
            with self._lock:
                open_ = [item for item in self._offers.items() if time.monotonic() - item[1].at < OPEN]
            for token, offer in open_:
                self._door.send({"offer": token, "below": offer.below})
        elif content.get("unable"):
            with self._lock:
                found = self._offers.get(str(content["unable"]))
            if found is not None:
                found.told(0)  # another page may still take them
        elif content.get("claim"):
            with self._lock:
                found = self._offers.pop(str(content["claim"]), None)
            if found is not None:  # else another page has them, or this message came before
                self._door.send({"insert": found.cells, "below": found.below, "page": content.get("page")})
                found.told(len(found.cells))


class AsCells:
    """The button below one turn. `cells` makes the cells of its events, `below` is the turn's own cell."""

    def __init__(
        self, inserting: Inserting, door: ButtonBridge, cells: Callable[[Sequence[Event]], Cells], below: str
    ) -> None:
        self._inserting = inserting
        self._door = door
        self._cells = cells
        self._below = below
        self._button = ""

    def __repr__(self) -> str:
        return f"<AsCells below {self._below or 'nothing'}>"

    def button(self, events: Iterable[Event]) -> str:
        """The button's mark; "" when the turn left nothing to insert, or nobody knows where."""
        kept = tuple(events)
        if not self._button and self._below and self._cells(kept):
            self._button = self._door.button(
                lambda: self._inserting.offer(self._cells(kept), self._below, lambda count: None)
            )
        return self._button
