from __future__ import annotations

from collections.abc import Iterator

import pytest

from ipyagent.practice.server import PracticeServer


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own environment reaches the SDK."""
    for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL", "MODEL", "CUSTOM_HEADERS", "PROFILE"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running
