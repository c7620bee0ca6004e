"""A request of the user on its way: what it may say, what was taken in with it, how it ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from ipyagent.assembly.mentions import Mention
from ipyagent.config import IPyAgent
from ipyagent.context.reminders import EnvironmentSnapshot
from ipyagent.errors import UsageError
from ipyagent.journal.events import Ending, Mode
from ipyagent.journal.protocols import Surface, Tool
from ipyagent.kernel.dispatcher import MainThreadExecutor

_OUR_CELL = re.compile(r"(?:\s*+%%(?:time|timeit|capture|prun)\b.*\n)*+\s*+%%(?:ipyagent|agent|memory)\b")
_OUR_LINES = re.compile(r"(?:\s*+%(?:ipyagent|agent|context|compact|memory|skills|load_ext|reload_ext)\b.*+(?:\n|$))++")


def is_ours(source: str) -> bool:
    """Whether a cell only speaks to us: the model need not be told of it."""
    return _OUR_CELL.match(source) is not None or _OUR_LINES.fullmatch(source) is not None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What one request may say beside its words; empty means the setting.

    `max_turns`: model calls at most. `fresh`: without history, not kept in the conversation. `fork`: with history,
    not kept. Raises UsageError for what no request can be sent with.
    """

    model: str = ""
    max_turns: int = 0
    effort: str = ""
    mode: Mode | None = None
    fresh: bool = False
    fork: bool = False

    def __post_init__(self) -> None:
        """Refuse what no request can be sent with."""
        for name, value in (("mode", self.mode or ""), ("effort", self.effort)):
            known: tuple[str, ...] = getattr(IPyAgent.class_traits()[name], "values")  # noqa: B009 - an Enum's own
            if value and value not in known:
                raise UsageError(f"{name} is one of {', '.join(filter(None, known))}, not {value!r}")
        if self.max_turns < 0:
            raise UsageError(f"max_turns must be a number from 1 up, or 0 for the setting, not {self.max_turns}")
        if self.fresh and self.fork:
            raise UsageError("fresh and fork exclude each other: without history, or with a copy of it")

    @property
    def aside(self) -> bool:
        """Whether the request runs beside the conversation."""
        return self.fresh or self.fork


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended: `status` finished, stopped, limit, refused or failed; `message` one line
    for the user; `text` the model's last words; `cost` US dollars (None: no price known); `seconds` from
    request to end. A turn that failed is a result, too: nothing is raised for it."""

    status: Ending
    message: str
    text: str
    cost: float | None
    seconds: float


class PreparedRequest(msgspec.Struct, frozen=True):
    """A request as it was taken in on the main thread."""

    text: str
    cell: str
    seen: EnvironmentSnapshot
    mentions: list[Mention]
    tools: dict[str, Tool]
    options: Options
    taken: dict[str, Any]
    """What each part took in with it, by the part's name."""
    request: str = ""
    """What parts left of the text ("": all of it)."""
    own: str | None = None
    """What of the text the user typed, where a command wrote the rest; None: all."""

    @property
    def said(self) -> str:
        """The user's own words."""
        return self.text if self.own is None else self.own


class PreparedTurn:
    """A request that was taken in and not begun yet; run it once, on the same thread."""

    def __init__(
        self,
        occupied: Callable[[Surface], AbstractContextManager[MainThreadExecutor]],
        surface: Surface,
        work: Callable[[MainThreadExecutor], Coroutine[object, object, TurnResult]],
    ) -> None:
        self._occupied, self._surface, self._work = occupied, surface, work

    async def run(self) -> TurnResult:
        """Show it and run it, awaited from the cell. Raises KeyboardInterrupt after an interrupt and
        AgentError when it could not begin; every other ending is a value."""
        with self._open() as main:
            return await main.door(lambda: self._work(main))

    def run_blocking(self) -> TurnResult:
        """The same without awaiting."""
        with self._open() as main:
            return main.blocking_door(lambda: self._work(main))

    @contextmanager
    def _open(self) -> Iterator[MainThreadExecutor]:
        with self._occupied(self._surface) as main:
            self._surface.open()
            try:
                yield main
            finally:
                self._surface.close()
