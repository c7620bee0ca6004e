"""Buttons whose click reaches the kernel: the bridge, undo of one turn's changes, and a turn's work as cells."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from ipyagent.errors import AgentError
from ipyagent.journal.events import Event, LayerFailed, MemorySaved
from ipyagent.ui.items import SavedItem
from ipyagent.ui.memory_chips import actions_of
from ipyagent.ui.theme import MemoryAction
from ipyagent.ui.transcript import fold

# ---- Buttons in static output that work while their kernel lives. Static HTML cannot ring in a kernel. One widget
# a kernel, never displayed, listens in the page for clicks on buttons that carry this kernel's secret mark, and
# shows only those; in any other page, and in the file, they stay hidden and are without words. A click may come
# twice: what a button does must be idempotent.

Route: TypeAlias = Callable[[Any, Callable[[dict[str, Any]], None]], Callable[[], None]]
"""As in `ui.panel`: has a comm's messages delivered even while the main thread is busy."""


@cache
def _door_class() -> Any:
    import anywidget
    import traitlets

    class AgentDoor(anywidget.AnyWidget):
        _esm = Path(__file__).with_suffix(".js").read_text("utf-8")
        mark = traitlets.Unicode().tag(sync=True)

        def __repr__(self) -> str:
            return "buttons of ipyagent in this page"

    return AgentDoor


class ButtonBridge:
    """The buttons of one kernel. The widget is made with the first of them."""

    def __init__(self, route: Route | None = None) -> None:
        self._route = route
        self._mark = secrets.token_hex(8)
        self._acts: dict[str, Callable[[], None]] = {}
        self._pressed: set[str] = set()
        self._listeners: list[Callable[[dict[str, Any]], None]] = []
        self._widget: Any = None

    def __repr__(self) -> str:
        return f"<ButtonBridge with {len(self._acts)} buttons>"

    def button(self, act: Callable[[], None]) -> str:
        """The mark for a new button (`data-ipyagent-door`); `act` is called on any thread when it is pressed."""
        self._open()
        name = f"{self._mark}.{len(self._acts)}"
        self._acts[name] = act
        return name

    def listen(self, heard: Callable[[dict[str, Any]], None]) -> None:
        """Have the page's other messages given to `heard`, on any thread, perhaps twice."""
        self._listeners.append(heard)

    def send(self, content: dict[str, Any]) -> None:
        """A message to every page of this kernel; one that is still loading misses it, and says when it is ready."""
        self._open()
        self._widget.send(content)

    def _open(self) -> None:
        if self._widget is None:
            self._widget = _door_class()(mark=self._mark)
            self._widget.on_msg(lambda _widget, content, _buffers: self.press(content))
            if self._route is not None and self._widget.comm is not None:
                self._route(self._widget.comm, self.press)

    def press(self, content: dict[str, Any]) -> None:
        """One message of the page; marks that were not given out are ignored."""
        if content.get("method") == "custom" and isinstance(content.get("content"), dict):
            content = content["content"]
        act = self._acts.get(str(content.get("button")))
        press = str(content.get("press") or "")
        if act is not None and press not in self._pressed:
            if press:
                self._pressed.add(press)
            act()
        elif act is None:
            for heard in self._listeners:
                heard(content)


# ---- What the chips of a turn ask for: to click a recalled memory away, to undo a saved one; each once.

class UndoActions(Protocol):
    """What can be done about memories. Both journal what they did and return it; both are called on a thread
    of their own and may raise AgentError or OSError."""

    def dismiss(self, path: str) -> Event:
        """The memory does not come again in this session."""

    def undo(self, saved: MemorySaved) -> Event:
        """Take back what was saved."""


class UndoController:
    """What can be undone of one turn. `events` gives what the turn consists of by now, `done` takes the event of each
    action on the agent's loop."""

    def __init__(
        self,
        undo_actions: UndoActions,
        buttons: ButtonBridge | None,
        events: Callable[[], Iterable[Event]],
        done: Callable[[Event], None],
    ) -> None:
        self._undo_actions = undo_actions
        self._buttons = buttons
        self._events = events
        self._done = done
        self._marks: dict[MemoryAction, str] = {}
        self._tasks: dict[MemoryAction, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<UndoController {len(self._tasks)} done>"

    def marks(self, loop: asyncio.AbstractEventLoop | None) -> dict[MemoryAction, str]:
        """The marks of the buttons that the turn's static form has."""
        if self._buttons is None or loop is None:
            return {}
        for action in actions_of(fold(self._events())):
            if action not in self._marks:
                self._marks[action] = self._buttons.button(lambda action=action: self.ask(action, loop))  # type: ignore[misc]
        return dict(self._marks)

    def ask(self, action: MemoryAction, loop: asyncio.AbstractEventLoop | None) -> None:
        """A button was pressed, on any thread, perhaps twice."""
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._begin, action)

    def _begin(self, action: MemoryAction) -> None:
        if action not in self._tasks:
            self._tasks[action] = asyncio.get_running_loop().create_task(self._work(action))

    async def _work(self, action: MemoryAction) -> None:
        kind, of = action
        items = fold(self._events())
        if action not in actions_of(items):
            return  # not of this turn, or done already
        saved = next((item.saved for item in items if isinstance(item, SavedItem) and item.key == of), None)
        try:
            if kind == "dismiss":
                event = await asyncio.to_thread(self._undo_actions.dismiss, of)
            elif saved is not None:
                event = await asyncio.to_thread(self._undo_actions.undo, saved)
            else:
                return
        except (AgentError, OSError) as problem:
            del self._tasks[action]  # it may be tried again
            event = LayerFailed(layer="memory", why=f"not undone: {' '.join(str(problem).split())[:300]}")
        self._done(event)


# ---- Cells on their way into the page's notebook: offered to every page of the kernel, given to the first one that
# can take them, and to no other; pages that cannot are told so. A page that loads late is offered them again.

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
    """The cells that one kernel puts into its notebook, through the buttons' widget."""

    def __init__(self, buttons: ButtonBridge) -> None:
        self._buttons = buttons
        self._offers: dict[str, _Offer] = {}
        self._lock = threading.Lock()  # messages come on several threads, some twice
        buttons.listen(self._hear)

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
        self._buttons.send({"offer": token, "below": below})

    def _hear(self, content: dict[str, Any]) -> None:
        if content.get("ready"):
            with self._lock:
                open_ = [item for item in self._offers.items() if time.monotonic() - item[1].at < OPEN]
            for token, offer in open_:
                self._buttons.send({"offer": token, "below": offer.below})
        elif content.get("unable"):
            with self._lock:
                found = self._offers.get(str(content["unable"]))
            if found is not None:
                found.told(0)  # another page may still take them
        elif content.get("claim"):
            with self._lock:
                found = self._offers.pop(str(content["claim"]), None)
            if found is not None:  # else another page has them, or this message came before
                self._buttons.send({"insert": found.cells, "below": found.below, "page": content.get("page")})
                found.told(len(found.cells))


class AsCells:
    """The button below one turn. `cells` makes the cells of its events, `below` is the turn's own cell."""

    def __init__(
        self, inserting: Inserting, buttons: ButtonBridge, cells: Callable[[Sequence[Event]], Cells], below: str
    ) -> None:
        self._inserting = inserting
        self._buttons = buttons
        self._cells = cells
        self._below = below
        self._button = ""

    def __repr__(self) -> str:
        return f"<AsCells below {self._below or 'nothing'}>"

    def button(self, events: Iterable[Event]) -> str:
        """The button's mark; "" when the turn left nothing to insert, or nobody knows where."""
        kept = tuple(events)
        if not self._button and self._below and self._cells(kept):
            self._button = self._buttons.button(
                lambda: self._inserting.offer(self._cells(kept), self._below, lambda count: None)
            )
        return self._button
