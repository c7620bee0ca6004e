"""Buttons in static output that work while their kernel lives.

Static HTML cannot ring in a kernel. One widget a kernel, never displayed, listens in the page for clicks on
buttons that carry this kernel's secret mark, and shows only those; in any other page, and in the file, they
stay hidden and are without words. A click may come twice: what a button does must be idempotent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

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
