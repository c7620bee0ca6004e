"""Every product in every situation: all is well, or one line says what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipyagent import Agent, IPyAgent
from ipyagent.journal.events import UsageReported
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.practice.replies import text
from tests.servers.products import PRODUCTS, VLLM, OpenRouter, Product, serving
from tests.servers.situations import KEY, SITUATIONS, refusals

SHORT = ("tools, thinking, streams", "thinking sent back")
EACH = [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow, id=name) for name in SITUATIONS]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize("situation", EACH)
def test_a_session_with_another_server_works_or_says_in_a_line_what_to_do(
    situation: str, product: Product, tmp_path: Path
) -> None:
    SITUATIONS[situation](product, tmp_path)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_what_another_server_refuses_is_a_line_that_says_what_to_do(product: Product, tmp_path: Path) -> None:
    refusals(product, tmp_path)


@pytest.mark.parametrize("by", ["setting", "environment"])
def test_what_a_server_tells_of_a_model_holds_at_that_server_alone(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three servers have a model of one name, each with a window, two with a price: each session has its own server's,
    also where only the environment says which."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    with (
        serving(OpenRouter(), window=50_000) as dear,
        serving(VLLM(), window=30_000) as silent,
        serving(OpenRouter(), window=40_000, priced=False) as unpriced,
    ):
        given = IPyAgent(model=dear.model, extraction=False, skills=False, environ={})
        agent = Agent(settings=given, folder=tmp_path)
        try:
            for server, window in ((dear, 50_000), (silent, 30_000), (unpriced, 40_000), (dear, 50_000)):
                if by == "setting":
                    given.base_url = server.url
                else:
                    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
                agent.new()
                server.script(text("ok"))
                assert agent.run_sync("hello").status == "finished"
                assert (agent.info.window, agent.info.server) == (window, server.url)
                (told,) = (
                    event for event in read_events(agent.session.journal.folder / TRANSCRIPT)
                    if isinstance(event, UsageReported)
                )  # fmt: skip
                assert (told.cost is not None) == (server is dear), server.product.name
        finally:
            agent.close()
