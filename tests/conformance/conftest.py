"""A practice server and the SDK's client at it."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import pytest
from practice_api import client

from ipyagent.practice.server import PracticeServer


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running


@pytest.fixture
def sdk(server: PracticeServer) -> Iterator[anthropic.Anthropic]:
    with client(server) as made:
        yield made
