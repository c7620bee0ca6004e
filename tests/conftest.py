"""What holds for every test: Ctrl-C is left as it was found, and what starts a kernel for each session is slow."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pace
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """A shell's background job is born with SIGINT ignored; the tests send it to themselves and their children."""
    pace.alone = "paced" in config.option.markexpr.replace("not paced", "")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # no test touches what the user has in the home directory, nor a real server
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        del os.environ[name]
    os.environ["IPYAGENT_HOME"] = tempfile.mkdtemp(prefix="ipyagent-tests-")
    config.add_cleanup(lambda: _removed(os.environ["IPYAGENT_HOME"]))
    # what a power cut would take is not tested, and a busy disk takes 10 ms for each of the thousands of small files
    os.fsync = lambda _: None  # type: ignore[assignment]
    # hundreds of kernels and every worker find what the first one has compiled, whatever the environment says
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # jsonschema would build 38 grammars in every worker, for formats that nothing here has
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


def _removed(home: str) -> None:
    """What this process made: a worker of xdist ends without `atexit`."""
    from ipyagent.kernel import scope

    shutil.rmtree(home, ignore_errors=True)
    if scope._profile.cache_info().currsize:
        scope._profile().cleanup()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Folders of which nothing would be run are not even imported."""
    left_out = {"browser"} if "not browser" in config.option.markexpr else set()
    left_out |= {"whole", "notebooks"} if config.option.markexpr.startswith("not slow") else set()
    return True if collection_path.name in left_out else None


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: a collection of garbage need not look at two million objects of theirs."""
    gc.collect()
    gc.freeze()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One more than the processors: most tests wait for a kernel or a server for a part of their time."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it itself
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if (drawn := sys.modules.get("hypothesis.internal.conjecture.providers")) is not None:
        # it would parse every module of ours in every worker, 20 s each, to draw constants from them, too
        drawn._get_local_constants = lambda: drawn._local_constants  # type: ignore[attr-defined]
    for item in items:
        if item.path.parent.name in {"whole", "notebooks"}:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)  # before its fixtures are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A repetition has kernels and servers of its own: those of its module hold what the failed test left in them."""
    if getattr(item, "execution_count", 1) > 1:
        assert isinstance(item, pytest.Function)
        for made in (each for known in item._fixtureinfo.name2fixturedefs.values() for each in known):
            if made.scope == "module":
                made.finish(item._request)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """A kernel in which turns are scripted (`scripted.Scripted(ip, …)`), one for a file."""
    from kernels import Kernel

    made = Kernel()
    try:
        made.run("import scripted_turn as scripted; ip = get_ipython()")
        yield made
    finally:
        made.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a key and a home of its own; the folder of the test."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-api03-Zq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5E")
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture(autouse=True)
def _sigint_is_left_as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.getsignal(signal.SIGINT)
    if after is not before:
        signal.signal(signal.SIGINT, before)
    assert after is before, f"SIGINT is left to {after}"


@pytest.fixture
def workspace(tmp_path: Path) -> Any:
    """What a tool may touch: a project's folder, and a shell."""
    from tools_workspace import ShellWorkspace

    root = tmp_path / "project"
    root.mkdir()
    return ShellWorkspace(root)
