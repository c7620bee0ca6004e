from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import CHROMIUM, Server


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("IPYAGENT_SCREENSHOTS")
    folder = Path(given) if given else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _server(tmp_path_factory.mktemp("lab"), "lab")


@pytest.fixture(scope="module")
def notebook7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _server(tmp_path_factory.mktemp("notebook7"), "notebook")


def _server(root: Path, app: str) -> Iterator[Server]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; set IPYAGENT_CHROMIUM")
    server = Server(root, app)
    try:
        yield server
    finally:
        server.stop()
