"""A turn where nobody watches: nbclient, papermill, scripts, logs. Nobody can be asked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from ipyagent.escape import plain
from ipyagent.journal.events import Event, PermissionAsked, Streamed
from ipyagent.journal.protocols import PermissionAnswer, TurnStatus
from ipyagent.ui.items import TextItem, ThinkingItem
from ipyagent.ui.static import footer_line, plain_text, static_sections
from ipyagent.ui.transcript import Shown, TurnTranscript


class TextSurface:
    """In a kernel one static output at the end. `stream`: each item is written to `file` (default:
    the stdout at `open`) as it is complete, text as it comes, and nothing is displayed at the end."""

    can_ask = False
    text_alone = False

    def __init__(self, *, stream: bool = False, file: TextIO | None = None) -> None:
        self._stream = stream
        self._file = file
        self._events = Shown()
        self._status: TurnStatus | None = None
        self._transcript = TurnTranscript()
        self._written: dict[str, int] = {}  # text items: characters on paper; others: 1
        self._outputs: list[list[Callable[[], None]]] = [[]]  # what code displays, for the places between sections
        self._closed = False

    def __repr__(self) -> str:
        return f"<TextSurface {len(self._events)} events>"

    def open(self) -> None:
        self._file = self._file or sys.stdout

    def display(self, publish: Callable[[], None]) -> None:
        """It is shown in its place at the end; where nothing is displayed, not at all."""
        self._outputs[-1].append(publish)

    def displayed(self) -> None:
        self._outputs.append([])

    def show(self, event: Event) -> None:
        self._events.add(event)
        keys = self._transcript.add(event)
        if self._stream:
            for key in keys:
                self._progress(key, live=isinstance(event, Streamed))

    def status(self, status: TurnStatus) -> None:
        self._status = status

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        return PermissionAnswer("deny", "nobody can be asked here; allow it in the settings", "headless")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._stream:
            footer = footer_line(self._transcript, self._status)
            self._write(f"\n[{footer}]\n" if footer else "")
        elif _in_kernel():
            from IPython.display import display

            sections = static_sections(self._events, self._status, len(self._outputs))
            for bundle, outputs in zip(sections, self._outputs, strict=True):
                display(bundle, raw=True)  # type: ignore[no-untyped-call]  # no types
                for publish in outputs:
                    publish()
        else:
            footer = footer_line(self._transcript, self._status)
            self._write(plain_text(self._transcript.items, footer) + "\n")

    def _progress(self, key: str, *, live: bool) -> None:
        item = self._transcript.item(key)
        if isinstance(item, TextItem):
            done = self._written.get(key, 0)
            fresh = plain(item.text[done:])
            if fresh:
                self._write(("" if done else "\n") + fresh + ("" if item.live or fresh.endswith("\n") else "\n"))
            self._written[key] = len(item.text)
        elif item is not None and not live and not isinstance(item, ThinkingItem):
            text = plain_text([item], "")
            if getattr(item, "state", "") == "running" or self._written.get(key) == hash(text):
                return
            self._written[key] = hash(text)
            self._write("\n" + text + "\n")

    def _write(self, text: str) -> None:
        if self._file is None or not text:
            return
        try:
            self._file.write(text)
            self._file.flush()
        except UnicodeEncodeError:
            encoding = getattr(self._file, "encoding", None) or "ascii"
            self._file.write(text.encode(encoding, "replace").decode(encoding))
        except (BrokenPipeError, ValueError):
            self._file = None  # nobody reads any more; the journal has it all


def _in_kernel() -> bool:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None
