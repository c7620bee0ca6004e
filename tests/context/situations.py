"""Views of any length and the situation in which a layer looks at them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipyagent.config import IPyAgent
from ipyagent.context.clear_results import clear_results
from ipyagent.context.thresholds import window_state
from ipyagent.journal.events import (
    AssistantMessage,
    Block,
    Event,
    ToolCalled,
    ToolReturned,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.protocols import Forked, ForkOrder, LayerContext, Rates
from ipyagent.journal.view import ContextView

SONNET = Rates(input=2e-6, read=0.2e-6, write=2.5e-6, output=10e-6)
"""Dollars a token, as claude-sonnet-5-5 costs."""
NO_DISK = Path(os.devnull) / "session"
"""A session's folder in which nothing can be written."""
TOLD = ("bound_thinking", "server_edits", "place", "turn_starts")
TOOLS = frozenset({"python", "read_file", "grep"})


def said(text: str) -> tuple[Block, ...]:
    return ({"type": "text", "text": text},)


class Talk:
    """A conversation put together step by step; `view` is what came of it."""

    def __init__(self) -> None:
        self.view = ContextView()
        self.events: list[Event] = []
        self._calls = 0

    def add(self, event: Any) -> Any:
        import msgspec

        made = msgspec.structs.replace(event, id=len(self.events) + 1, at=float(len(self.events) + 1))
        self.events.append(made)
        self.view.apply(made)
        return made

    def user(self, text: str = "Go on with the next step.") -> Talk:
        self.add(UserMessage(text=text, blocks=said(text)))
        return self

    def call(
        self,
        words: int = 400,
        *,
        tool: str = "python",
        many: int = 1,
        error: bool = False,
        thinking: bool = False,
        returned: bool = True,
        given: dict[str, str] | None = None,
    ) -> Talk:
        """A reply with `many` calls (of what is `given`) and their results of `words` words each."""
        given = given or {"code": "df.head()"}
        names = [f"toolu_{self._calls + n}" for n in range(many)]
        self._calls += many
        thought = {"type": "thinking", "thinking": "Let me see. " * 40, "signature": "s"}
        blocks: list[Block] = [thought] if thinking else []
        blocks += [{"type": "tool_use", "id": name, "name": tool, "input": given} for name in names]
        self.answer(tuple(blocks), "tool_use")
        for name in names:
            self.add(ToolCalled(call=name, name=tool, input=given))
            if returned:
                self.add(ToolReturned(call=name, name=tool, blocks=said("word " * words), is_error=error))
        return self

    def answer(self, blocks: tuple[Block, ...] = said("It is done."), stop: str = "end_turn") -> Talk:
        """A reply, and the server's count of what was sent."""
        count = self.view.count()
        self.add(AssistantMessage(blocks=blocks, stop_reason=stop))
        usage = Usage(cache_read=max(1, count.tokens))
        self.add(UsageReported(usage=usage, predicted=count.tokens, raw=count.raw))
        return self

    def results(self) -> list[str]:
        """Every result's text."""
        content = [block for message in self.view.messages for block in message["content"]]
        return [str(block["content"][0]["text"]) for block in content if block["type"] == "tool_result"]

    def consider(self, **given: Any) -> list[Any]:
        """What the layer decides now, taken in by the view."""
        starts = tuple(event.id for event in self.events if isinstance(event, UserMessage))
        made = list(decide(self.view, turn_starts=starts, **given))
        for event in made:
            self.add(event)
        return made


def situation(
    view: ContextView,
    *,
    window: int = 200_000,
    turns: int = 20,
    idle: float = 1.0,
    rates: Rates = SONNET,
    **settings: Any,
) -> LayerContext:
    given = {name: settings.pop(name) for name in TOLD if name in settings}
    folder = settings.pop("folder", NO_DISK)
    chosen = IPyAgent(environ={}, **settings)
    return LayerContext(
        view=view,
        state=window_state(view.count().tokens, window, 64_000),
        rates=rates,
        moment="request",
        folder=folder,
        idle=idle,
        turns=turns,
        recreatable=TOOLS,
        setting=lambda name: getattr(chosen, name),
        fork=_no_fork,
        restore=_nothing,
        hook=_no_hook,
        **given,
    )


def decide(view: ContextView, **given: Any) -> Sequence[Event]:
    return asyncio.run(clear_results.consider(situation(view, **given)))


async def _no_fork(order: ForkOrder) -> Forked:
    raise AssertionError("clearing asks no model")


async def _nothing() -> list[tuple[str, str]]:
    return []


async def _no_hook(name: str, facts: dict[str, Any]) -> list[str]:
    return []
