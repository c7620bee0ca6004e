"""A turn in a live front-end: one widget while it runs, static output when it ends.

What is shown is batched into at most 25 messages a second, sent from the agent's event loop; nothing
waits for the browser. Clicks may come twice and from any thread: each is a request that only the
agent's loop acts on, and an answer counts for the one question that it names.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from ipyagent.journal.events import Event, PermissionAnswered, PermissionAsked
from ipyagent.journal.protocols import Answer, Status
from ipyagent.ui import look
from ipyagent.ui.as_cells import AsCells
from ipyagent.ui.asking import ReadLine, ask_on_a_line
from ipyagent.ui.door import Door
from ipyagent.ui.items import QuestionItem, call_key
from ipyagent.ui.joined import script
from ipyagent.ui.segments import Segments
from ipyagent.ui.static import static_bundle
from ipyagent.ui.take_back import Deeds, TakeBack
from ipyagent.ui.transcript import Shown

TICK = 0.04
"""Seconds between two messages to the front-end."""

UNHEARD_TICK = 0.25
"""Seconds between two messages while no page has said that it listens: each is then whole, and each
comes later than the one before by half, up to `UNHEARD_LONGEST`."""

UNHEARD_LONGEST = 5.0

GRACE = 20.0
"""Seconds after the end in which a page that was reloaded while code blocked the kernel may ask what
became of its panel: it hears nothing before."""

PAGE_PATIENCE = 5.0
"""Seconds that a question waits for a page that shows the panel; then it is asked on the line of input, too."""

REASON_CHARS = 2_000

Route: TypeAlias = Callable[[Any, Callable[[dict[str, Any]], None]], Callable[[], None]]
"""Has a comm's messages delivered to a callback even while the main thread is busy (the callback
gets the content of a custom message, or the comm's data around it); returns what undoes it."""


@cache
def _panel_class() -> Any:
    import anywidget
    import traitlets

    class AgentPanel(anywidget.AnyWidget):
        _esm = script("panel", dom="dom")
        _css = look.sheet("panel")
        snapshot = traitlets.Any()

        def __repr__(self) -> str:  # all that a front-end without widgets shows
            return "ipyagent works on this; its answer appears here when it ends"

        # Never assigned, so never sent by itself: only a page that asks for the state gets it.
        state = traitlets.Dict().tag(sync=True, to_json=lambda _value, panel: panel.snapshot())

    return AgentPanel


class PanelSurface:
    """`on_stop` is called on any thread, once, when Stop is pressed. `deeds` do what memory chips ask for,
    `door` keeps their buttons alive when the turn is over, `as_cells` is the button that puts its code into cells,
    `read_line` asks where no page shows the panel."""

    can_ask = True

    def __init__(
        self,
        on_stop: Callable[[], None],
        route: Route | None = None,
        *,
        deeds: Deeds | None = None,
        door: Door | None = None,
        as_cells: AsCells | None = None,
        read_line: ReadLine | None = None,
    ) -> None:
        self._on_stop = on_stop
        self._route = route
        self._display = uuid.uuid4().hex
        self._events = Shown()
        self._last: Status | None = None
        self._segments = Segments(time.time)
        self._settling = threading.Lock()
        self._lock = threading.Lock()  # segments are read by the main thread when a page reloads
        self._widget: Any = None
        self._unroute: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._unheard = 0  # messages sent before a page said that it listens
        self._pages: set[str] = set()  # pages that said they listen
        self._open: dict[tuple[str, str], asyncio.Future[Answer]] = {}
        self._stopped = False
        self._closed = False
        self._take_back = TakeBack(deeds, door, lambda: self._events, self._taken) if deeds is not None else None
        self._as_cells = as_cells
        self._read_line = read_line
        self._settled: dict[str, Any] = {}  # what stays, for pages that come late

    def __repr__(self) -> str:
        return f"<PanelSurface {len(self._events)} events{', closed' if self._closed else ''}>"

    # ------------------------------------------------------------------ main thread

    def open(self) -> None:
        from IPython.display import display

        self._widget = _panel_class()(snapshot=self._snapshot)
        self._widget.on_msg(lambda _widget, content, _buffers: self.click(content))
        if self._route is not None and self._widget.comm is not None:
            self._unroute = self._route(self._widget.comm, self.click)
        display(self._widget, display_id=self._display)  # type: ignore[no-untyped-call]  # IPython has no types

    def close(self) -> None:
        if self._closed or self._widget is None:
            return
        self._flush(last=True)
        self._closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._give_up)
        bundle = self._settle()
        if self._unroute is not None:
            self._unroute()
        # A page that was reloaded in mid-run does not follow `update_display`. Its script puts the
        # static output in the widget's place where it can; else the widget stays, ended.
        with self._lock:
            self._settled = {"settle": bundle, "id": self._widget.model_id}
        if len(self._pages) > 1:
            self._widget.send(self._settled)
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.call_later, GRACE, self._let_go)
        else:
            self._widget.close()

    def _settle(self) -> dict[str, str]:
        """Put the static output in the panel's place."""
        from IPython.display import update_display

        with self._settling:  # the newest is the last to be sent
            doors = self._take_back.doors(self._loop) if self._take_back is not None else {}
            cells = self._as_cells.button(self._events) if self._as_cells is not None else ""
            bundle = static_bundle(list(self._events), self._last, doors, cells)
            update_display(bundle, display_id=self._display, raw=True)  # type: ignore[no-untyped-call]  # no types
        return bundle

    # ------------------------------------------------------------------ agent thread

    def later(self, event: Event) -> None:
        """What came of the turn once it was over joins the output that stays."""
        self._events.add(event)
        if not self._closed:
            return  # `close` shows it
        bundle = self._settle()
        with self._lock:
            self._settled = {**self._settled, "settle": bundle}
        if len(self._pages) > 1 and self._widget is not None:
            self._widget.send(self._settled)

    def _taken(self, event: Event) -> None:
        """Something was taken back; in a turn that runs the journal has shown it already."""
        if any(known is event for known in self._events):
            self._schedule()
        else:
            (self.later if self._closed else self.show)(event)

    def show(self, event: Event) -> None:
        self._events.add(event)
        with self._lock:
            self._segments.add(event)
        self._schedule()

    def status(self, status: Status) -> None:
        self._last = status
        with self._lock:
            self._segments.status(status)
        self._schedule()

    async def ask(self, asked: PermissionAsked) -> Answer:
        loop = self._loop = asyncio.get_running_loop()
        with self._lock:
            item = self._segments.transcript.item(call_key(asked.call))
        if not isinstance(item, QuestionItem) or item.asked.digest != asked.digest or item.answer is not None:
            self.show(asked)
        name = (asked.call, asked.digest)
        future: asyncio.Future[Answer] = loop.create_future()
        self._open[name] = future
        try:
            answer = await self._answered(asked, future)
            if answer.answer == "always" and not asked.pattern:
                answer = Answer("once", answer.reason, answer.by)
        except asyncio.CancelledError:
            self._end_card(asked, Answer("deny", "", "stop"))
            raise
        finally:
            del self._open[name]
        self._end_card(asked, answer)
        return answer

    async def _answered(self, asked: PermissionAsked, future: asyncio.Future[Answer]) -> Answer:
        """What was clicked, or typed where the panel is on no page."""
        if self._read_line is None or self._pages:
            return await future
        await asyncio.wait((future,), timeout=PAGE_PATIENCE)
        if future.done() or self._pages:
            return await future
        prompt = ask_on_a_line(self._read_line, asked, words=asked.text)
        typed = asyncio.ensure_future(prompt)
        try:
            await asyncio.wait((typed, future), return_when=asyncio.FIRST_COMPLETED)
            return future.result() if future.done() else typed.result()
        finally:
            typed.cancel()

    def _end_card(self, asked: PermissionAsked, answer: Answer) -> None:
        """The buttons go at once; the journal's own `PermissionAnswered` says the same again."""
        said = PermissionAnswered(call=asked.call, answer=answer.answer, by=answer.by, reason=answer.reason)
        with self._lock:
            self._segments.add(said)
        self._schedule()

    def _schedule(self) -> None:
        if self._timer is not None or self._closed:
            return
        try:
            loop = self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # shown from outside a loop (a restored turn): close() sends it
        wait = TICK if self._pages else min(UNHEARD_TICK * 1.5**self._unheard, UNHEARD_LONGEST)
        self._timer = loop.call_later(max(self._sent_at + wait - loop.time(), 0.0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._loop is not None:
            self._sent_at = self._loop.time()
        self._flush()

    def _flush(self, *, last: bool = False) -> None:
        if self._closed or self._widget is None:
            return
        with self._lock:
            message = self._segments.drain()
            # Messages to a page whose script is still loading are lost, so it gets the whole again.
            if message is not None and (not self._pages or last):
                message = {"whole": self._segments.snapshot()}
                self._unheard = min(self._unheard + 1, 20)
        if message is not None:
            self._widget.send(message)

    def _give_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for future in self._open.values():
            if not future.done():
                future.set_result(Answer("deny", "", "stop"))

    def _let_go(self) -> None:
        if len(self._pages) <= 1:
            self._widget.close()

    def _snapshot(self) -> dict[str, Any]:
        with self._lock:
            return {**self._segments.snapshot(), **self._settled}

    # ------------------------------------------------------------------ clicks, from any thread

    def click(self, content: dict[str, Any]) -> None:
        """One message of the page. What it does not name exactly is ignored."""
        if content.get("method") == "custom" and isinstance(content.get("content"), dict):
            content = content["content"]
        kind = content.get("kind")
        if kind == "stop":
            if not self._stopped and not self._closed:
                self._stopped = True
                self._on_stop()
            self._on_loop(self._stop_shown)
        elif kind == "answer":
            self._on_loop(self._answer, content)
        elif (kind == "dismiss" or kind == "undo") and self._take_back is not None:
            self._take_back.ask((kind, str(content.get("of"))), self._loop)
        elif kind == "ready" and self._loop is None:
            self._pages.add(str(content.get("page", "")))  # nothing was sent yet, so it missed nothing
        elif kind == "ready":
            self._on_loop(self._ready, content)

    def _on_loop(self, call: Callable[..., None], *args: Any) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(call, *args)

    def _stop_shown(self) -> None:
        with self._lock:
            self._segments.stopping = True
            self._segments.touch()
        self._schedule()

    def _ready(self, content: dict[str, Any]) -> None:
        self._pages.add(str(content.get("page", "")))
        if not self._closed and self._widget is not None:
            with self._lock:
                self._segments.drain()  # the whole has it
                whole = self._segments.snapshot()
            self._widget.send({"whole": whole})
        elif self._settled and len(self._pages) > 1:
            self._widget.send(self._settled)

    def _answer(self, content: dict[str, Any]) -> None:
        future = self._open.get((str(content.get("call")), str(content.get("digest"))))
        answer = content.get("answer")
        if future is None or future.done():
            return
        reason = str(content.get("reason") or "")[:REASON_CHARS].strip()
        match answer:
            case "once" | "always" | "deny":
                future.set_result(Answer(answer, reason if answer == "deny" else "", "user"))
            case _:
                return
