"""What the context engine costs: considering a clearing in a long view, and all layers of a turn at 500,000 tokens."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ipyagent.context.clear_results import ClearResults
from ipyagent.context.thresholds import window_state
from ipyagent.journal.events import (
    AssistantMessage,
    LayerDecision,
    ResultsCleared,
    ToolCalled,
    ToolReturned,
    TurnCollapsed,
    Usage,
    UsageReported,
    UserMessage,
)
from ipyagent.journal.protocols import Forked, ForkOrder, LayerContext, Rates
from ipyagent.journal.view import ContextView
from tests.bench.measuring import Row

ROUNDS = 30
RATES = Rates(input=2e-6, read=0.2e-6, write=2.5e-6, output=10e-6)


def long_view(results: int, tokens: int) -> ContextView:
    """A session of `results` calls and about `tokens` tokens."""
    from itertools import count

    view, ids = ContextView(), count(1)

    def text(size: int, seed: int) -> tuple[dict[str, Any], ...]:
        words = ("orders", "median", "of", "the", "table", "rises", "4.5", "percent", "in", "March")
        return ({"type": "text", "text": " ".join(words[(seed + 3 * at) % 10] for at in range(max(1, size)))},)

    view.apply(UserMessage(id=next(ids), text="go", blocks=text(20, 0)))
    for number in range(results):
        call = f"toolu_{number}"
        use = {"type": "tool_use", "id": call, "name": "python", "input": {"code": "df.describe()"}}
        view.apply(AssistantMessage(id=next(ids), blocks=(use,), stop_reason="tool_use", tokens=30))
        view.apply(UsageReported(id=next(ids), usage=Usage(cache_read=max(1, view.count().tokens))))
        view.apply(ToolCalled(id=next(ids), call=call, name="python", input={}))
        found = text(tokens * 7 // results // 10, number)
        view.apply(ToolReturned(id=next(ids), call=call, name="python", blocks=found))
    return view


def situation(view: ContextView, turns: int) -> LayerContext:
    from ipyagent.config import IPyAgent

    settings = IPyAgent(environ={})

    async def no_fork(order: ForkOrder) -> Forked:
        raise AssertionError

    async def nothing(*_given: Any) -> Any:
        return []

    return LayerContext(
        view=view,
        state=window_state(view.count().tokens, 1_000_000, 64_000),
        rates=RATES,
        moment="request",
        folder=Path(os.devnull) / "session",
        idle=1.0,
        turns=turns,
        recreatable=frozenset({"python"}),
        setting=lambda name: getattr(settings, name),
        fork=no_fork,
        restore=nothing,
        hook=nothing,
    )


def considering(results: int, *, turns: int, done: bool = False) -> float:
    """Median processor milliseconds of one look at the view: of `results` results all but the newest were
    cleared and there is nothing to be done (`done`), or all of them are weighed against `turns` requests to come: at
    one they stay, as at most requests, at twenty they go, with the text of the file that keeps them."""
    view = long_view(results, 200 * results)
    layer, now, seconds = ClearResults(), situation(view, turns), []
    goes = [] if done else [LayerDecision] if turns == 1 else [ResultsCleared, LayerDecision]

    async def look() -> None:
        if done:
            for event in await layer.consider(now):
                view.apply(event)
        for _ in range(ROUNDS):
            began = time.process_time()
            made = await layer.consider(now)
            seconds.append(time.process_time() - began)
            assert [type(event) for event in made] == goes, made

    asyncio.run(look())
    return 1e3 * statistics.median(seconds)


def whole_turn(tokens: int) -> tuple[float, float, int]:
    """Median and longest milliseconds of all layers before a request, over the last requests of a real
    session that grows to `tokens` tokens of results, and its messages."""
    from ipyagent import Agent, IPyAgent
    from ipyagent.loop.context_engine import Engine
    from ipyagent.practice.replies import text
    from ipyagent.practice.server import PracticeServer

    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder, PracticeServer(window=1_000_000, keep_bodies=False) as server:
        given = {"base_url": server.url, "model": "claude-sonnet-5-5", "mode": "auto", "window": 1_000_000}
        agent = Agent(settings=IPyAgent(environ={}, layer_notes=False, extraction=False, **given), folder=Path(folder))
        server.script(text("Yes."))
        agent.run_sync("hello")
        session = agent.session
        engine = Engine(session, agent.workspace(session, None))  # type: ignore[arg-type] # no code runs here

        async def requests() -> None:
            for number in range(500):
                call = f"toolu_{number}"
                # memory is never cleared, so that the view does grow
                tool = "python" if number % 5 == 0 else "memory"
                use = {"type": "tool_use", "id": call, "name": tool, "input": {"code": "df.describe()"}}
                count = session.view.count()
                session.record(AssistantMessage(blocks=(use,), stop_reason="tool_use"))
                usage = Usage(cache_read=count.tokens, output=40)
                session.record(UsageReported(usage=usage, predicted=count.tokens, raw=count.raw))
                session.record(ToolCalled(call=call, name=tool, input={}))
                found = ({"type": "text", "text": f"{number} orders median of the table " * (tokens // 500 // 7)},)
                session.record(ToolReturned(call=call, name=tool, blocks=found))
                began = time.perf_counter()
                await engine.before_request()
                session.view.wire()
                seconds.append(time.perf_counter() - began)

        asyncio.run(requests())
        messages, size = len(session.view.messages), session.view.count().tokens
        assert size > 0.6 * tokens, size
        agent.close()
    last = seconds[-100:]
    return 1e3 * statistics.median(last), 1e3 * max(last), messages


def collapsing(turns: int, every: int) -> tuple[float, float]:
    """Seconds and megabytes of a view of `turns` turns; of `every` turns one is collapsed (0: none)."""
    import tracemalloc
    from itertools import count

    def grown() -> ContextView:
        view, ids, firsts = ContextView(), count(1), []
        for number in range(turns):
            first, call = next(ids), f"toolu_{number}"
            firsts.append(first)
            view.apply(UserMessage(id=first, text="go", blocks=({"type": "text", "text": f"question {number} " * 10},)))
            use = {"type": "tool_use", "id": call, "name": "python", "input": {"code": f"x{number}"}}
            view.apply(AssistantMessage(id=next(ids), blocks=(use,), stop_reason="tool_use"))
            view.apply(ToolCalled(id=next(ids), call=call, name="python", input={}))
            found = ({"type": "text", "text": f"result {number} " * 30},)
            view.apply(ToolReturned(id=next(ids), call=call, name="python", blocks=found))
            answer = ({"type": "text", "text": f"answer {number} " * 10},)
            view.apply(AssistantMessage(id=next(ids), blocks=answer, stop_reason="end_turn"))
            if every and number % every == every - 1 and number > 10:
                gone = firsts[number - 5], firsts[number - 4] - 1
                blocks = ({"type": "text", "text": f"summary {number}"},)
                view.apply(TurnCollapsed(id=next(ids), first=gone[0], last=gone[1], blocks=blocks))
        return view

    began = time.perf_counter()
    grown()
    seconds = time.perf_counter() - began
    tracemalloc.start()
    try:
        kept = grown()
        return seconds, tracemalloc.get_traced_memory()[0] / 1e6 + 0 * len(kept.messages)
    finally:
        tracemalloc.stop()


def rows() -> list[Row]:
    found = []
    looks = ("nothing to do", 20, True), ("weighed, kept", 1, False), ("weighed, cleared", 20, False)
    for what, turns, done in looks:
        for results in (500, 5_000):
            millis = considering(results, turns=turns, done=done)
            target = "< 1 ms" if results == 500 else ""
            found.append((f"clearing considered, {2 * results + 1:,} messages, {what}", f"{millis:.3f} ms CPU", target))
    millis, longest, messages = whole_turn(500_000)
    name = f"all layers before a request, 500,000 tokens, {messages:,} messages"
    found.append((name, f"{millis:.2f} ms (longest {longest:.2f} ms)", "< 10 ms"))
    more: dict[int, tuple[float, float]] = {}
    for turns in (1_000, 2_000):
        seconds, size = collapsing(turns, 10)
        plain, base = collapsing(turns, 0)
        more[turns] = seconds, size - base
        told = f"{seconds:.2f} s, {size:.1f} MB; without {plain:.2f} s, {base:.1f} MB"
        found.append((f"{turns:,} turns, {turns // 10 - 1} collapses", told, ""))
    (half, kept), (whole, kept_whole) = more[1_000], more[2_000]
    ratio = f"{whole / half:.1f} x the time, {kept_whole / kept:.1f} x the memory for an undo"
    found.append(("2,000 turns with collapses to 1,000", ratio, "memory 2 x"))
    return found
