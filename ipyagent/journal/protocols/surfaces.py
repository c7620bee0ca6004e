"""What the user sees of a turn, and how the user answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

import msgspec

from ipyagent.journal.events import Event, PermissionAsked


class WindowState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the context window stands: all figures in tokens, `percent_left` 0-100 of the way to
    the auto-compact threshold. Marks are in the order warning, auto, block, effective, window."""

    tokens: int
    window: int
    effective: int
    warning_mark: int
    error_mark: int
    auto_mark: int
    block_mark: int
    percent_left: float
    above_warning: bool
    above_error: bool
    above_auto: bool
    blocked: bool


class TurnStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The running turn in one glance. `phase` is a short present participle ("waiting for the
    model", "writing", "running python"); `cost` US dollars of the session so far (None: no price
    known for the model), `turn_cost` of this request."""

    phase: str
    model: str
    window: WindowState | None = None
    cost: float | None = None
    turn_cost: float | None = None
    tokens_read: int = 0
    """Prompt tokens of the session read from cache, and (next) all prompt tokens."""
    tokens_prompt: int = 0


class PermissionAnswer(msgspec.Struct, frozen=True):
    """What the user said to a permission question. `by` as in `PermissionAnswered`."""

    answer: Literal["once", "always", "deny"]
    reason: str = ""
    by: str = "user"


class Surface(Protocol):
    """Where one turn is shown: a panel, a terminal, plain text. `show`, `status` and `ask` are
    called on the agent thread and never block it; `open` and `close` on the main thread."""

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer a question here."""

    def open(self) -> None:
        """Appear, before the turn begins."""

    def show(self, event: Event) -> None:
        """Show an event; it is on disk already."""

    def status(self, status: TurnStatus) -> None:
        """Show where the turn stands."""

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        """Wait for the user's answer to exactly this question, however long it takes.
        Cancelled when the turn stops; an answer that comes later is void."""

    def close(self) -> None:
        """Leave what was shown as static text that needs no kernel."""


@runtime_checkable
class CellOutput(Protocol):
    """A surface in a cell that shows what code displays beside it; called on the thread that runs code."""

    text_alone: bool
    """Whether all of it is shown as text, in a terminal; else text stands with its call."""

    def display(self, publish: Callable[[], None]) -> None:
        """Have `publish` put what code displays into the cell, at once or in its turn later."""

    def displayed(self) -> None:
        """Code that displayed something has ended: what the turn shows next stands below it."""
