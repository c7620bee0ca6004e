"""`_agent` in the user's namespace: objects of stored results, alive under their handles.

Only the newest are kept, bounded in number and estimated bytes; the rest, and everything from an
earlier kernel, is gone, and looking it up says so and names the file that holds its text. Objects
are the user's own, not copies: what changes them changes what a handle shows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from ipyagent.journal.events import ResultStored
from ipyagent.kernel.previews import TypeInfo
from ipyagent.kernel.scope import users_namespace

NAME = "_agent"
_NUMBER = re.compile(r"\d+")


def handle_of(name: str) -> str:
    """How code says it: `_agent["r12"]`."""
    return f'{NAME}["{name}"]'


class LiveObjects(dict[str, Any]):
    """Objects by short names ("r12"). `most` and `most_bytes` bound what is kept alive.

    One kernel has one; `enter` turns it to another session. Called on the main thread, or while
    that waits for the agent thread.
    """

    def __init__(self, most: int = 20, most_bytes: int = 1_000_000_000) -> None:
        super().__init__()
        self.most, self.most_bytes = most, most_bytes
        self._known: Mapping[str, ResultStored] = {}
        self._place = ""
        self._last = 0
        self._alive: dict[str, tuple[str, Any, int]] = {}
        """By call, oldest first: the handle, the object and its bytes, of all sessions."""

    def __repr__(self) -> str:
        kept = ", ".join(f"{name}: {TypeInfo(type(value)).name}" for name, value in self.items())
        return f"<objects of stored results: {kept or 'none'}>"

    def __missing__(self, name: object) -> Any:
        known = self._known.get(handle_of(str(name)))
        if known is None:
            there = f"; there are {', '.join(self)}" if self else ""
            raise KeyError(f"no stored result {name!r}{there}")
        raise KeyError(
            f"{handle_of(str(name))} is gone: the kernel was restarted or newer results took its place; "
            f"its text is in the file {self._place}/{known.path}: use read_file or grep, or compute it again"
        )

    def enter(self, known: Mapping[str, ResultStored], place: str) -> None:
        """Show the objects of one session: `known` are its stored results by handle, `place` its
        folder as tools name it."""
        self._known, self._place = known, place
        self.clear()
        for event in known.values():
            if event.call in self._alive:
                name, value, _ = self._alive[event.call]
                if handle_of(name) == event.handle:
                    self[name] = value
        self._last = max([self._last, *(int(number) for name in known for number in _NUMBER.findall(name))])

    def install(self, shell: Any) -> bool:
        """Have the name in the user's namespace, not among their variables; False when it is theirs."""
        if users_namespace(shell).setdefault(NAME, self) is not self:
            return False
        shell.user_ns_hidden[NAME] = self
        return True

    def hold(self, call: str, value: Any) -> str:
        """Keep an object alive; its handle, "" when it is too large to be kept."""
        size = _bytes_of(value)
        if size > self.most_bytes or self.most < 1:
            return ""
        self._last += 1
        name = f"r{self._last}"
        self._alive.pop(call, None)
        self._alive[call] = (name, value, size)
        self[name] = value
        while len(self._alive) > self.most or sum(entry[2] for entry in self._alive.values()) > self.most_bytes:
            gone, *_ = self._alive.pop(next(iter(self._alive)))
            self.pop(gone, None)
        return handle_of(name)


def _bytes_of(value: Any) -> int:
    """About the memory of an object, at once: of arrays and tables their buffers, of anything else
    what Python says of its outermost part and a word for each item."""
    kind = TypeInfo(type(value))
    try:
        if kind.genuine("numpy"):
            return int(value.nbytes)
        if kind.genuine("pandas") and kind.name == "DataFrame":
            return int(value.memory_usage(deep=False).sum())
        if kind.genuine("pandas"):
            return int(value.nbytes)
        if kind.genuine("polars") and kind.name in ("DataFrame", "Series"):
            return int(value.estimated_size())
    except (AttributeError, TypeError, ValueError):
        return sys.getsizeof(value, 64)
    try:
        return sys.getsizeof(value, 64)
    except Exception:  # noqa: BLE001 - a foreign __sizeof__ may raise anything; the object counts as small
        return 64
