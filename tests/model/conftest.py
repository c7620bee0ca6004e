from __future__ import annotations

from collections.abc import Iterator

import pytest

from ipyagent.practice.server import PracticeServer


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running
