"""How far it is: a bar in a notebook that somebody watches, a line in a terminal, nothing without a person."""

from __future__ import annotations

import html
import sys
import time
from typing import Any, Protocol

STEP = 0.2
"""Seconds between two pictures."""


class Progress(Protocol):
    """What `agent_map` tells while it works."""

    def show(self, line: str, share: float, *, final: bool = False) -> None:
        """So far: a line, and the share that has ended (0 to 1)."""

    def say(self, line: str) -> None:
        """Something that a person should read."""


class Quiet:
    """Nobody watches: the rows say all."""

    def show(self, line: str, share: float, *, final: bool = False) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


class TerminalLine:
    """One line of stderr, written anew."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._width = 0

    def show(self, line: str, share: float, *, final: bool = False) -> None:
        """See `Progress.show`."""
        now = time.monotonic()
        if now - self._shown < STEP and not final:
            return
        self._shown = now
        sys.stderr.write("\r" + line.ljust(self._width) + ("\n" if final else ""))
        sys.stderr.flush()
        self._width = len(line)

    def say(self, line: str) -> None:
        """See `Progress.say`."""
        sys.stderr.write("\r" + line.ljust(self._width) + "\n")


class NotebookBar:
    """One display of the cell, updated; what it says last stays in the saved notebook."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0
        self._said: list[str] = []

    def show(self, line: str, share: float, *, final: bool = False) -> None:
        """See `Progress.show`."""
        from IPython.display import display

        now = time.monotonic()
        if self._handle is not None and now - self._shown < STEP and not final:
            return
        self._shown = now
        lines = [line, *self._said]
        bar = f'<progress value="{share:.4f}" max="1" style="width: 16em; vertical-align: middle"></progress> '
        shown = ("" if final else bar) + "<br>".join(map(html.escape, lines))
        bundle = {"text/plain": "\n".join(lines), "text/html": f'<div role="status">{shown}</div>'}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)

    def say(self, line: str) -> None:
        """See `Progress.say`."""
        self._said.append(line)


def progress_for(shell: Any, wanted: bool | None) -> Progress:
    """What fits where this runs; `wanted` False: nothing, True: at least a line."""
    if wanted is False:
        return Quiet()
    if getattr(shell, "kernel", None) is not None:
        from ipyagent.kernel.frontend import describe_frontend

        return NotebookBar() if wanted or describe_frontend(shell).person else Quiet()
    return TerminalLine() if wanted or sys.stderr.isatty() else Quiet()
