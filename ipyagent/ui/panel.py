"""A turn in a live front-end: widgets while it runs, static output when it ends. One widget holds it, and what code
displays stands between that and the next.

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
from functools import cache, partial
from typing import Any, TypeAlias

from ipyagent.journal.events import Event, PermissionAnswered, PermissionAsked
from ipyagent.journal.protocols import PermissionAnswer, TurnStatus
from ipyagent.journal.recorded import Recording
from ipyagent.ui import theme
from ipyagent.ui.buttons import AsCells, ButtonBridge, UndoActions, UndoController
from ipyagent.ui.items import QuestionItem, ReadLine, ask_on_a_line, call_key
from ipyagent.ui.segments import DeltaBuffer
from ipyagent.ui.static import static_sections
from ipyagent.ui.theme import script
from ipyagent.ui.transcript import Shown, TurnTranscript

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
def panel_class() -> Any:
    """The widget's class."""
    import anywidget
    import traitlets

    class AgentPanel(anywidget.AnyWidget):
        _esm = script("panel", dom="dom")
        _css = theme.sheet("panel")
        snapshot = traitlets.Any()

        def __repr__(self) -> str:  # all that a front-end without widgets shows
            return "ipyagent works on this; its answer appears here when it ends"

        # Never assigned, so never sent by itself: only a page that asks for the state gets it.
        state = traitlets.Dict().tag(sync=True, to_json=lambda _value, panel: panel.snapshot())

    return AgentPanel


class _Part:
    """One panel of the turn: its widget and what a page has seen of it."""

    def __init__(self, segments: DeltaBuffer) -> None:
        self.segments = segments
        self.display = uuid.uuid4().hex
        self.widget: Any = None
        self.model = ""  # the widget's id, also when it is closed
        self.unroute: Callable[[], None] = lambda: None
        self.sent_at = 0.0
        self.unheard = 0  # messages sent before a page said that it listens
        self.pages: set[str] = set()  # pages that said they listen
        self.settled: dict[str, Any] = {}  # what stays, for pages that come late


class PanelSurface:
    """`on_stop` is called on any thread, once, when Stop is pressed. `undo_actions` do what memory chips ask for,
    `buttons` keeps their buttons alive when the turn is over, `as_cells` is the button that puts its code into cells,
    `read_line` asks where no page shows the panel, `recording` is what is replayed here (None: the turn is new)."""

    can_ask = True
    text_alone = False

    def __init__(
        self,
        on_stop: Callable[[], None],
        route: Route | None = None,
        *,
        undo_actions: UndoActions | None = None,
        buttons: ButtonBridge | None = None,
        as_cells: AsCells | None = None,
        read_line: ReadLine | None = None,
        recording: Recording | None = None,
    ) -> None:
        self._on_stop = on_stop
        self._route = route
        self._events = Shown()
        self._last: TurnStatus | None = None
        self._transcript = TurnTranscript()
        self._parts = [_Part(DeltaBuffer(time.time, self._transcript, partial(self._stands_in, 0)))]
        self._settling = threading.Lock()
        self._lock = threading.Lock()  # segments are read by the main thread when a page reloads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._open: dict[tuple[str, str], asyncio.Future[PermissionAnswer]] = {}
        self._stopped = False
        self._closed = False
        self._take_back: UndoController | None = None
        if undo_actions is not None:
            self._take_back = UndoController(undo_actions, buttons, lambda: self._events, self._taken)
        self._as_cells = as_cells
        self._read_line = read_line
        self._recording = recording

    def __repr__(self) -> str:
        return f"<PanelSurface {len(self._events)} events{', closed' if self._closed else ''}>"

    # ------------------------------------------------------------------ main thread

    def open(self) -> None:
        self._appear(self._parts[-1])

    def display(self, publish: Callable[[], None]) -> None:
        publish()

    def displayed(self) -> None:
        with self._lock:
            part = _Part(DeltaBuffer(time.time, self._transcript, partial(self._stands_in, len(self._parts))))
            status = self._parts[-1].segments.pass_bar()
            if status is not None:
                part.segments.status(status)
            part.segments.stopping = self._stopped
        self._appear(part)
        with self._lock:
            self._parts.append(part)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._schedule)

    def _appear(self, part: _Part) -> None:
        from IPython.display import display

        part.widget = panel_class()(snapshot=partial(self._snapshot, part))
        part.model = part.widget.model_id
        click = partial(self.click, part=part)
        part.widget.on_msg(lambda _widget, content, _buffers: click(content))
        if self._route is not None and part.widget.comm is not None:
            part.unroute = self._route(part.widget.comm, click)
        display(part.widget, display_id=part.display)  # type: ignore[no-untyped-call]  # IPython has no types

    def _stands_in(self, number: int, key: str) -> bool:
        """Whether the item is shown in this part."""
        return min(self._transcript.section(key), len(self._parts) - 1) == number

    def close(self) -> None:
        if self._closed or self._parts[0].widget is None:
            return
        self._flush(last=True)
        self._closed = True
        loop = self._loop if self._loop is not None and not self._loop.is_closed() else None
        if loop is not None:
            loop.call_soon_threadsafe(self._give_up)
        self._settle()
        for part in self._parts:
            part.unroute()
            # A page that was reloaded in mid-run does not follow `update_display`. Its script puts the
            # static output in the widget's place where it can; else the widget stays, ended.
            if len(part.pages) > 1:
                part.widget.send(part.settled)
            elif loop is not None:
                loop.call_soon_threadsafe(loop.call_later, GRACE, self._let_go, part)
            else:
                part.widget.close()

    def _settle(self) -> None:
        """Put the static output in the panels' places."""
        from IPython.display import update_display

        with self._settling:  # the newest is the last to be sent
            marks = self._take_back.marks(self._loop) if self._take_back is not None else {}
            cells = self._as_cells.button(self._events) if self._as_cells is not None else ""
            there = len(self._parts)
            sections = static_sections(self._events, self._last, there, marks, cells, recording=self._recording)
            for part, (bundle, kept) in zip(self._parts, sections, strict=True):
                if part.settled.get("settle") == bundle:
                    continue
                update_display(bundle, metadata=kept, display_id=part.display, raw=True)  # type: ignore[no-untyped-call]  # no types
                with self._lock:
                    part.settled = {"settle": bundle, "metadata": kept, "id": part.model}

    # ------------------------------------------------------------------ agent thread

    def later(self, event: Event) -> None:
        """What came of the turn once it was over joins the output that stays."""
        self._events.add(event)
        if not self._closed:
            return  # `close` shows it
        before = [part.settled for part in self._parts]
        self._settle()
        for part, old in zip(self._parts, before, strict=True):
            if part.settled is not old and len(part.pages) > 1:
                part.widget.send(part.settled)

    def _taken(self, event: Event) -> None:
        """Something was taken back; in a turn that runs the journal has shown it already."""
        if any(known is event for known in self._events):
            self._schedule()
        else:
            (self.later if self._closed else self.show)(event)

    def show(self, event: Event) -> None:
        self._events.add(event)
        self._take_in(event)

    def _take_in(self, event: Event) -> None:
        with self._lock:
            keys = self._transcript.add(event)
            for part in self._parts:
                part.segments.changed(event, keys)
        self._schedule()

    def status(self, status: TurnStatus) -> None:
        self._last = status
        with self._lock:
            self._parts[-1].segments.status(status)
        self._schedule()

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        loop = self._loop = asyncio.get_running_loop()
        with self._lock:
            item = self._transcript.item(call_key(asked.call))
        if not isinstance(item, QuestionItem) or item.asked.digest != asked.digest or item.answer is not None:
            self.show(asked)
        name = (asked.call, asked.digest)
        future: asyncio.Future[PermissionAnswer] = loop.create_future()
        self._open[name] = future
        try:
            answer = await self._answered(asked, future)
            if answer.answer == "always" and not asked.pattern:
                answer = PermissionAnswer("once", answer.reason, answer.by)
        except asyncio.CancelledError:
            self._end_card(asked, PermissionAnswer("deny", "", "stop"))
            raise
        finally:
            del self._open[name]
        self._end_card(asked, answer)
        return answer

    async def _answered(self, asked: PermissionAsked, future: asyncio.Future[PermissionAnswer]) -> PermissionAnswer:
        """What was clicked, or typed where the panel is on no page."""
        if self._read_line is None or self._heard:
            return await future
        await asyncio.wait((future,), timeout=PAGE_PATIENCE)
        if future.done() or self._heard:
            return await future
        prompt = ask_on_a_line(self._read_line, asked, words=asked.text)
        typed = asyncio.ensure_future(prompt)
        try:
            await asyncio.wait((typed, future), return_when=asyncio.FIRST_COMPLETED)
            return future.result() if future.done() else typed.result()
        finally:
            typed.cancel()

    def _end_card(self, asked: PermissionAsked, answer: PermissionAnswer) -> None:
        """The buttons go at once; the journal's own `PermissionAnswered` says the same again."""
        self._take_in(PermissionAnswered(call=asked.call, answer=answer.answer, by=answer.by, reason=answer.reason))

    @property
    def _heard(self) -> bool:
        """Whether a page shows the turn."""
        return any(part.pages for part in self._parts)

    def _schedule(self) -> None:
        if self._timer is not None or self._closed:
            return
        try:
            loop = self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # shown from outside a loop (a restored turn): close() sends it
        part = self._parts[-1]
        wait = TICK if part.pages else min(UNHEARD_TICK * 1.5**part.unheard, UNHEARD_LONGEST)
        self._timer = loop.call_later(max(part.sent_at + wait - loop.time(), 0.0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._loop is not None:
            self._parts[-1].sent_at = self._loop.time()
        self._flush()

    def _flush(self, *, last: bool = False) -> None:
        if self._closed:
            return
        for part in tuple(self._parts):
            with self._lock:
                message = part.segments.drain()
                # Messages to a page whose script is still loading are lost, so it gets the whole again.
                if message is not None and (not part.pages or last):
                    message = {"whole": part.segments.snapshot()}
                    part.unheard = min(part.unheard + 1, 20)
            if message is not None and part.widget is not None:
                part.widget.send(message)

    def _give_up(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for future in self._open.values():
            if not future.done():
                future.set_result(PermissionAnswer("deny", "", "stop"))

    def _let_go(self, part: _Part) -> None:
        if len(part.pages) <= 1:
            part.widget.close()

    def _snapshot(self, part: _Part) -> dict[str, Any]:
        with self._lock:
            return {**part.segments.snapshot(), **part.settled}

    # ------------------------------------------------------------------ clicks, from any thread

    def click(self, content: dict[str, Any], part: _Part | None = None) -> None:
        """One message of the page, from the panel of `part` (None: the newest). What it does not name exactly is
        ignored."""
        part = part or self._parts[-1]
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
            part.pages.add(str(content.get("page", "")))  # nothing was sent yet, so it missed nothing
        elif kind == "ready":
            self._on_loop(self._ready, part, content)

    def _on_loop(self, call: Callable[..., None], *args: Any) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(call, *args)

    def _stop_shown(self) -> None:
        with self._lock:
            segments = self._parts[-1].segments
            segments.stopping = True
            segments.touch()
        self._schedule()

    def _ready(self, part: _Part, content: dict[str, Any]) -> None:
        part.pages.add(str(content.get("page", "")))
        if not self._closed and part.widget is not None:
            with self._lock:
                part.segments.drain()  # the whole has it
                whole = part.segments.snapshot()
            part.widget.send({"whole": whole})
        elif part.settled and len(part.pages) > 1:
            part.widget.send(part.settled)

    def _answer(self, content: dict[str, Any]) -> None:
        future = self._open.get((str(content.get("call")), str(content.get("digest"))))
        answer = content.get("answer")
        if future is None or future.done():
            return
        reason = str(content.get("reason") or "")[:REASON_CHARS].strip()
        match answer:
            case "once" | "always" | "deny":
                future.set_result(PermissionAnswer(answer, reason if answer == "deny" else "", "user"))
            case _:
                return
