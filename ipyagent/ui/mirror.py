"""A turn in a live front-end that shows no widgets of ours: the static output, written anew now and then.

Colab, and wherever the setting `panels` is "static". Questions are asked on the front-end's line of input;
the front-end's own button stops the turn.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from ipyagent.journal.events import Event, PermissionAsked
from ipyagent.journal.protocols import PermissionAnswer, TurnStatus
from ipyagent.ui.asking import ReadLine, ask_on_a_line
from ipyagent.ui.static import static_sections
from ipyagent.ui.transcript import Shown

TICK = 1.0
"""Seconds between two states of the output, at least."""
SHARE = 20
"""Writing one takes at most this part of the time: a long turn is shown more seldom."""


class MirrorSurface:
    """`read_line` asks the user. What is shown goes through the publisher that was there at `open`: while code
    runs the shell's own one belongs to that code."""

    can_ask = True
    text_alone = False

    def __init__(self, read_line: ReadLine) -> None:
        self._read_line = read_line
        self._displays = [uuid.uuid4().hex]
        self._published: dict[str, dict[str, str]] = {}
        self._events = Shown()
        self._status: TurnStatus | None = None
        self._publisher: Any = None
        self._lock = threading.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"<MirrorSurface {len(self._events)} events{', closed' if self._closed else ''}>"

    def open(self) -> None:
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        self._publisher = shell.display_pub if shell is not None else None
        self._publish()

    def display(self, publish: Callable[[], None]) -> None:
        publish()

    def displayed(self) -> None:
        self._displays.append(uuid.uuid4().hex)
        self._publish()

    def show(self, event: Event) -> None:
        self._events.add(event)
        self._schedule()

    def later(self, event: Event) -> None:
        """What came of the turn once it was over joins the output."""
        self._events.add(event)
        if self._closed:
            self._publish()

    def status(self, status: TurnStatus) -> None:
        self._status = status

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        if not any(isinstance(event, PermissionAsked) and event.digest == asked.digest for event in self._events):
            self._events.add(asked)
        self._publish()  # what is asked about stands there before the line does
        return await ask_on_a_line(self._read_line, asked)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._publish()

    def _schedule(self) -> None:
        if self._timer is not None or self._closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # shown from outside a loop (a restored turn): `close` shows it
        self._timer = loop.call_later(max(self._due - time.monotonic(), 0.0), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._closed:
            self._publish()

    def _publish(self) -> None:
        if self._publisher is None:
            return
        began = time.monotonic()
        with self._lock:
            names = tuple(self._displays)
            for name, bundle in zip(names, static_sections(self._events, self._status, len(names)), strict=True):
                if self._published.get(name) != bundle:
                    update = name in self._published
                    self._published[name] = bundle
                    self._publisher.publish(bundle, {}, transient={"display_id": name}, update=update)
        self._due = time.monotonic() + max(TICK, SHARE * (time.monotonic() - began))
