"""A server that reads only a part of the prompt and says nothing of it is noticed by its counts, and no other is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from model.model_room import odd_server, page

from ipyagent import Agent, IPyAgent
from ipyagent.extension.context_report import report
from ipyagent.journal.events import Compacted, LayerFailed, UsageReported
from ipyagent.journal.events import Usage as UsageEvent
from ipyagent.journal.tokens import TokenCounter, estimate_blocks
from ipyagent.journal.view import ContextView

Usage = Callable[[list[int]], dict[str, Any] | None]
"""A server's count of a prompt, given the tokens of its head and of each of its messages."""


def tokens(body: dict[str, Any]) -> list[int]:
    head = estimate_blocks(body.get("system", [])) + estimate_blocks(body.get("tools", []))
    return [head, *(estimate_blocks(message["content"]) for message in body["messages"])]


@contextmanager
def counting(usage: Usage) -> Iterator[tuple[str, list[int]]]:
    """A Messages API server that answers everything with "ok" and counts like this; the prompts that it got."""
    prompts: list[int] = []

    def answer(handler: Any) -> None:
        if handler.path.partition("?")[0] != "/v1/messages":
            return page("application/json", b'{"error": "not found"}', 404)(handler)
        weighed = tokens(json.loads(handler.body))
        prompts.append(sum(weighed))
        said, told = [{"type": "text", "text": "<summary>ok</summary>"}], usage(weighed)
        body = {"type": "message", "role": "assistant", "content": said, "stop_reason": "end_turn",
                "usage": {**told, "output_tokens": 5} if told is not None else None}  # fmt: skip
        return page("application/json", json.dumps(body).encode())(handler)

    with odd_server(answer) as url:
        yield url, prompts


@contextmanager
def agent_at(url: str, folder: Path, **given: Any) -> Iterator[Agent]:
    settings = {"trust_all": True, "extraction": False, "layer_notes": False, "recall": False, "dreaming": False}
    agent = Agent(settings=IPyAgent(environ={}, base_url=url, model="qwen3", **{**settings, **given}), folder=folder)
    try:
        yield agent
    finally:
        agent.close()


def told(agent: Agent) -> list[str]:
    events = agent.session.journal.read()
    return [event.why for event in events if isinstance(event, LayerFailed) and event.layer == "window"]


def story(number: int, words: int = 700) -> str:
    return " ".join(f"box{number} weighs {number * word} kilograms;" for word in range(words // 4))


def at(limit: int) -> Usage:
    """Cuts tokens in the middle (Ollama before 0.4)."""
    return lambda weighed: {"input_tokens": min(limit, sum(weighed))}


def whole_messages(limit: int) -> Usage:
    """Leaves out the oldest messages, whole (Ollama 0.4 and later)."""

    def count(weighed: list[int]) -> dict[str, Any]:
        head, *messages = weighed
        while len(messages) > 1 and head + sum(messages) > limit:
            messages.pop(0)
        return {"input_tokens": head + sum(messages)}

    return count


@pytest.mark.parametrize("turns", [["hello", "and now?"], [story(1, 30_000)], ["hello", story(2, 4_000)]])
def test_a_count_that_stands_still_is_noticed_within_two_requests_and_said_once(
    home: Path, tmp_path: Path, turns: list[str]
) -> None:
    with counting(lambda _: {"input_tokens": 4_096}) as (url, prompts), agent_at(url, tmp_path) as agent:
        for text in turns:
            agent.run_sync(text)
        [line] = told(agent)
        assert "IPyAgent.window" in line
        assert "4,096" in line
        assert "\n" not in line
        session = agent.session
        assert session.view.calibration.factor == 1.0, "nothing was learned from it"
        assert session.view.count().tokens > 0.9 * prompts[-1]
        agent.run_sync("once more")
        assert len(told(agent)) == 1
        assert ContextView.of(session.journal.read()).count() == session.view.count(), "told the same by its transcript"


@pytest.mark.parametrize("usage", [at(24_576), whole_messages(24_576)])
def test_what_the_server_reads_is_its_window_and_the_conversation_is_compacted_within_it(
    home: Path, tmp_path: Path, usage: Usage
) -> None:
    with counting(usage) as (url, prompts), agent_at(url, tmp_path) as agent:
        noticed = 0
        for number in range(12):
            assert agent.run_sync(story(number, 3_000)).status == "finished"
            noticed = noticed or (len(prompts) if told(agent) else 0)
        assert noticed
        first_over = next(at for at, size in enumerate(prompts) if size > 24_576)
        assert noticed - first_over <= 3, "the first that was cut, and two more"
        assert max(prompts[noticed + 1 :]) <= 24_576
        session = agent.session
        assert any(isinstance(event, Compacted) for event in session.journal.read())
        assert "according to what the server counts" in report(agent, [])
        assert agent.info.window <= 24_576


def cached(weighed: list[int], *, told: bool) -> dict[str, Any]:
    """What is new is counted as input; what was read from the cache apart, or not at all."""
    old, new = sum(weighed[:-1]), weighed[-1]
    return {"input_tokens": new, "cache_read_input_tokens": old} if told else {"input_tokens": new + 1_100}


HONEST: dict[str, Usage] = {
    "an efficient tokenizer": lambda weighed: {"input_tokens": int(0.3 * sum(weighed))},
    "a wasteful one": lambda weighed: {"input_tokens": int(1.8 * sum(weighed))},
    "cached tokens apart": lambda weighed: cached(weighed, told=True),
    "cached tokens not told": lambda weighed: cached(weighed, told=False),
    "the head is not read": lambda weighed: {"input_tokens": 1_200 + sum(weighed[1:])},
    "zero": lambda _: {"input_tokens": 0},
    "null": lambda _: {"input_tokens": None},
    "nothing": lambda _: None,
    "a constant that is no window": lambda _: {"input_tokens": 10},
}


@pytest.mark.parametrize("server", HONEST)
def test_no_other_server_is_suspected(home: Path, tmp_path: Path, server: str) -> None:
    with counting(HONEST[server]) as (url, _), agent_at(url, tmp_path, window=1_000_000) as agent:
        for sizes in ((20,) * 5, (900, 900, 900, 20, 900, 20)):  # also by turns: what is new grows and shrinks
            for number, words in enumerate(sizes):
                assert agent.run_sync(story(number, words)).status == "finished"
            assert told(agent) == []
            agent.new()


def test_what_a_server_may_leave_out_of_a_whole_prompt_is_no_growth_that_it_missed() -> None:
    """Thinking of earlier turns, pictures for a model that sees none."""
    for unread, noticed in ((1_990, False), (0, True)):
        tally = TokenCounter()
        tally.render(4_000)
        for number in range(4):
            tally.add(2_000, unread)
            tally.reply(10, 0)
            counted = UsageEvent(input=5_000 + 3 * number, output=5)
            tally.report(UsageReported(usage=counted, predicted=6_000, raw=2_000))
        assert bool(tally.ceiling) is noticed
