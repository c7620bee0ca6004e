from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import CHROME, CHROMIUM, Server
from .product import Product


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time for a machine that is half as fast: what waits in vain says so before."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("IPYAGENT_SCREENSHOTS")
    folder = Path(given) if given else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module", autouse=True)
def chrome() -> Iterator[None]:
    """While it is open, no other event loop runs on this thread: it is closed before tests of other modules."""
    yield
    CHROME.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _server(tmp_path_factory.mktemp("lab"), "lab")


@pytest.fixture(scope="session")
def notebook7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _server(tmp_path_factory.mktemp("notebook7"), "notebook")


@pytest.fixture(autouse=True)
def begun_anew(request: pytest.FixtureRequest) -> None:
    """Each attempt at a test starts clean, a repetition too: what serves a module has no kernel, file or scripted reply
    of the attempt before."""
    for name in {"product", "server", "lab", "notebook7"} & set(request.fixturenames):
        made = request.getfixturevalue(name)
        assert isinstance(made, Server | Product)
        made.begin_anew()


def _server(root: Path, app: str) -> Iterator[Server]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; set IPYAGENT_CHROMIUM")
    server = Server(root, app)
    try:
        yield server
    finally:
        server.stop()
