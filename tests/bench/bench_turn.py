"""Our own part of a turn: from the last byte of a reply to the last byte of the next request.

The server runs in a process of its own and stamps both moments; the tool's time is subtracted, and
so is what the bare SDK needs for the same messages, measured in the same run.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing as mp
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.measuring import MODEL, Row, home

ROUNDS = 40
TARGETS = {100_000: 5.0, 500_000: 10.0}
"""Milliseconds, by tokens in the window."""


def _serve(pipe: Any) -> None:
    from ipyagent.practice.replies import calls, text
    from ipyagent.practice.server import PracticeServer

    state = {"rounds": 0}

    def brain(body: dict[str, Any]) -> Any:
        if state["rounds"] > 0:
            state["rounds"] -= 1
            return calls([("noop", {})])
        return text("Done.")

    with PracticeServer(brain=brain, window=1_000_000, keep_bodies=False) as server:
        pipe.send(server.url)
        while True:
            order = pipe.recv()
            if order == "stop":
                return
            if isinstance(order, int):
                state["rounds"] = order
                pipe.send("ok")
            else:
                pipe.send([(item.received, item.finished) for item in server.messages])


def _prose(tokens: int, seed: int) -> str:
    """Text of about so many tokens, different for every seed."""
    words = ("column", "median", "of", "the", "orders", "table", "rises", "in", "March", "by", "4.5", "percent", "and")
    return " ".join(words[(i * 7 + seed * 3 + i // 13) % len(words)] for i in range(int(tokens * 0.8)))


def _measure(tokens: int) -> tuple[float, float]:
    """Median milliseconds of our part, and of the bare SDK, at about `tokens` tokens."""
    from ipyagent import Agent, IPyAgent, tool

    @tool(permission="none", writes=False, parallel=True)
    async def noop() -> str:
        """Does nothing."""
        spans.append(time.monotonic())
        return "ok"

    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    url = ours.recv()
    spans: list[float] = []
    with tempfile.TemporaryDirectory() as folder, home(folder):
        settings = IPyAgent(
            base_url=url, model=MODEL, mode="auto", window=1_000_000, max_turns=ROUNDS + 2, extraction=False
        )
        agent = Agent(settings=settings, folder=Path(folder), tools=[noop])
        for part in range(10):
            agent.run_sync(_prose(tokens // 10, part))
        ours.send(ROUNDS)
        ours.recv()
        ours.send("log")
        before = len(ours.recv())
        result = agent.run_sync("go")
        assert result.status == "finished", result
        ours.send("log")
        stamps = ours.recv()[before:]
        gaps = [1e3 * (after[0] - reply[1]) for reply, after in itertools.pairwise(stamps)]
        system, tools, messages = agent.session.view.wire()
        bare = asyncio.run(_bare(url, system, tools, messages, ours))
        agent.close()
    ours.send("stop")
    process.join(5)
    return statistics.median(gaps) - bare, bare


async def _bare(url: str, system: Any, tools: Any, messages: Any, pipe: Any) -> float:
    """Median milliseconds from the SDK's call to the last byte of its request at the server."""
    import anthropic

    client = anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
    pipe.send("log")
    before = len(pipe.recv())
    began: list[float] = []
    messages = [*messages, {"role": "user", "content": [{"type": "text", "text": "once more"}]}]
    for _ in range(15):
        began.append(time.monotonic())
        stream = await client.messages.create(
            model=MODEL, max_tokens=100, system=system, tools=tools, messages=messages, stream=True
        )
        async with stream:
            async for _event in stream:
                pass
    await client.close()
    pipe.send("log")
    received = [stamp[0] for stamp in pipe.recv()[before:]]
    return statistics.median(1e3 * (end - start) for start, end in zip(began, received, strict=True))


def rows() -> list[Row]:
    found = []
    for tokens, target in TARGETS.items():
        own, bare = _measure(tokens)
        name = f"our part of a tool round at {tokens // 1000}K tokens"
        found.append((name, f"{own:.1f} ms (bare SDK {bare:.1f} ms)", f"{target:g} ms"))
    return [*found, _secrets_row()]


def _secrets_row() -> Row:
    """Looking for secrets in a text that comes a character at a time, and in one piece."""
    from ipyagent.redaction import Redactor
    from ipyagent.redaction.stream import Stream

    said = "rows by key and token count, total 12.5 of the table of sales\n" * (100_000 // 62)

    def milliseconds(size: int) -> float:
        stream, began = Stream(Redactor()), time.perf_counter()
        made = [stream.feed(said[at : at + size]) for at in range(0, len(said), size)]
        assert "".join([*made, stream.end()]) == said
        return 1e3 * (time.perf_counter() - began)

    single, whole = milliseconds(1), milliseconds(len(said))
    return "100,000 characters, one by one, without secrets", f"{single:.0f} ms (in one piece {whole:.0f} ms)", "500 ms"
