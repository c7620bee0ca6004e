from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import CHROME, CHROMIUM
from .product import Product


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time for a machine that is half as fast: what waits in vain says so before."""
    none = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no Chromium at {CHROMIUM}; set IPYAGENT_CHROMIUM")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            for mark in (pytest.mark.browser, pytest.mark.timeout(900), none):
                item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """While Chromium is open, no other event loop runs on this thread: it is closed before tests of other folders."""
    try:
        yield
    finally:
        if nextitem is None or nextitem.path.parent != item.path.parent:
            CHROME.close()


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with Product(tmp_path_factory.mktemp("lab")) as made:
        yield made


@pytest.fixture(scope="session")
def notebook7(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with Product(tmp_path_factory.mktemp("notebook7"), "notebook") as made:
        yield made


@pytest.fixture(params=["product", "notebook7"])
def either(request: pytest.FixtureRequest) -> Product:
    """JupyterLab, then Notebook 7."""
    made: Product = request.getfixturevalue(request.param)
    return made


@pytest.fixture(autouse=True)
def begun_anew(request: pytest.FixtureRequest) -> None:
    """Each attempt at a test starts clean, a repetition too: what serves many has no kernel, file or scripted reply of
    the attempt before, nor a page that it left."""
    CHROME.close_others()
    for name in {"product", "notebook7", "either"} & set(request.fixturenames):
        request.getfixturevalue(name).begin_anew()
