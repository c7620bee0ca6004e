"""Random sessions of a real agent over HTTP, every layer on, in a window of 8,000 tokens: nothing is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipyagent import Agent, IPyAgent
from ipyagent.journal.events import Compacted, ResultsCleared, ResultStored, TurnCollapsed
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.view import ContextView
from ipyagent.practice.replies import Reply, calls, text
from ipyagent.practice.server import PracticeServer

QUICK, MANY = (7, 105), (0, 1, 2, 3, 4, 5, 6, *range(100, 105), 106)
TURNS = 9
MODELS = ("practice", "claude-opus-5-5", "claude-sonnet-4-6")
SETTINGS = {
    "window": 8_000, "mode": "auto", "max_retry_wait": 0.01, "max_retries": 0, "store_chars": 1_500,
    "notes_start": 700, "notes_step": 400, "keep_tokens": 300, "keep_messages": 1, "compact_thrash_turns": 0,
    "collapse_percent": 60, "auto_compact_percent": 65,
}  # fmt: skip


DIRECTIVE = "<summary>"
SUMMARY = text("<analysis>so</analysis>\n<summary>The rows were looked at, again and again.</summary>", thinking="hm")


class Talk:
    """Answers the conversation from a queue and, apart from it, whoever asks for a summary."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def __call__(self, body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]["content"]
        if isinstance(last, list) and DIRECTIVE in str(last[-1].get("text", "")):
            return SUMMARY
        return self.replies.pop(0) if self.replies else text("ok")


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def server(talk: Talk) -> Iterator[PracticeServer]:
    with PracticeServer(talk) as running:
        yield running


def script(dice: random.Random) -> list[Reply]:
    """The replies of one turn: thinking or not, one call or several, small and large results, failures."""
    replies: list[Reply] = []
    for _ in range(dice.randrange(0, 4)):
        wanted = []
        for _ in range(dice.choice((1, 1, 2, 4))):
            size = dice.choice((3, 40, 300))
            code = dice.choice(
                (
                    f"for n in range({size}): print(f'row {{n:03}} dat')",
                    "1 / 0", f"list(range({size}))", f"data = {dice.random()}",
                )
            )
            wanted.append(("python", {"code": code}))
        thinking = dice.choice((None, "I look at the rows.", "hm " * 60))
        replies.append(calls(wanted, thinking=thinking, say=dice.choice((None, "Looking."))))
    replies.append(text("The answer is as follows. " * dice.randrange(1, 80), thinking=dice.choice((None, "done"))))
    return replies


@pytest.mark.parametrize("seeds", [QUICK, pytest.param(MANY, marks=pytest.mark.slow)], ids=["quick", "many"])
def test_no_random_session_is_refused_anything(
    seeds: tuple[int, ...], tmp_path: Path, talk: Talk, server: PracticeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    decided: set[type] = set()
    for number in seeds:
        dice = random.Random(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        given = {**SETTINGS, "base_url": server.url, "model": dice.choice(MODELS), "layer_collapse": number % 3 == 0}
        given["clear_policy"] = "every_turn" if number % 2 else "economic"
        agent = Agent(settings=IPyAgent(environ={}, extraction=False, **given), folder=folder)
        try:
            for turn in range(TURNS):
                talk.replies = script(dice)
                agent.run_sync(f"request {turn}: " + "look at the table again. " * dice.randrange(1, 60))
                if dice.random() < 0.1:
                    agent.settings.model = dice.choice(MODELS)
            events = list(read_events(agent.session.journal.folder / TRANSCRIPT))
            assert ContextView.of(events).wire() == agent.session.view.wire()
            decided |= {type(event) for event in events}
        finally:
            agent.close()
        wrong = [exchange.error for exchange in server.refused if "too long" not in str(exchange.error)]
        assert wrong == []
    assert {Compacted, ResultsCleared, ResultStored, TurnCollapsed} <= decided
