"""Windows by the order of who knows, and what tokens cost."""

from __future__ import annotations

import pytest

from ipyagent.journal.events import Usage
from ipyagent.journal.protocols import ModelInfo
from ipyagent.model.capabilities import LONG_BETA, resolve
from ipyagent.model.prices import cost_of

TOLD = ModelInfo(model="m", window=300_000, max_output=9_000, source="Models API")
ENVIRON = {"IPYAGENT_DEFAULT_WINDOW": "50000"}


def test_the_window_is_told_by_the_first_who_knows() -> None:
    everything = {"setting": 10_000, "betas": (LONG_BETA,), "environ": ENVIRON}
    assert resolve("claude-opus-5-5[1m]", TOLD, **everything).window == 10_000
    del everything["setting"]
    assert resolve("claude-opus-5-5[1m]", TOLD, **everything).window == 1_000_000
    assert resolve("claude-sonnet-4-6", TOLD, **everything).window == 300_000
    assert resolve("claude-sonnet-4-6", None, **everything).window == 1_000_000
    assert resolve("claude-sonnet-4-6", None, environ=ENVIRON).window == 50_000
    assert resolve("claude-sonnet-4-6", None, environ={"IPYAGENT_DEFAULT_WINDOW": "much"}).window == 200_000
    assert resolve("claude-sonnet-5-5", None).window == 1_000_000
    assert resolve("llama", None).window == 200_000
    assert resolve("llama", None).source == "default"


def test_the_suffix_is_not_part_of_the_name() -> None:
    assert resolve("claude-sonnet-4-6[1M]", None).model == "claude-sonnet-4-6"


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-sonnet-5-5", Usage(input=1_000_000), 2.0),
        ("claude-sonnet-5-5", Usage(cache_read=1_000_000), 0.2),
        ("claude-sonnet-5-5", Usage(cache_write=1_000_000), 2.5),
        ("claude-sonnet-5-5", Usage(cache_write=1_000_000, cache_write_1h=1_000_000), 4.0),
        ("claude-sonnet-5-5", Usage(cache_write=1_000_000, cache_write_1h=400_000), 0.6 * 2.5 + 0.4 * 4.0),
        ("claude-opus-5-5", Usage(output=100_000), 2.0),
        ("claude-haiku-5-5", Usage(input=100_000, output=1_000), 0.0105),
        ("claude-haiku-5-5", Usage(input=50_000, cache_read=60_000, output=1_000), 0.0305),
        ("claude-haiku-5-5-20261001", Usage(input=100_000), 0.01),
        ("practice", Usage(input=100_000), 0.0),
        ("local:/a.gguf", Usage(input=100_000), 0.0),
        ("claude-sonnet-4-6[1m]", Usage(input=1_000_000), 3.0),
    ],
)
def test_cost(model: str, usage: Usage, dollars: float) -> None:
    assert cost_of(model, usage) == pytest.approx(dollars)


def test_an_unknown_model_has_no_price() -> None:
    assert cost_of("llama3", Usage(input=5)) is None
