"""What holds for every test: Ctrl-C is left as it was found."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest


def pytest_configure() -> None:
    """A shell's background job is born with SIGINT ignored; the tests send it to themselves and their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # no test touches what the user has in the home directory
    os.environ["IPYAGENT_HOME"] = tempfile.mkdtemp(prefix="ipyagent-tests-")


@pytest.fixture(autouse=True)
def _sigint_is_left_as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.getsignal(signal.SIGINT)
    if after is not before:
        signal.signal(signal.SIGINT, before)
    assert after is before, f"SIGINT is left to {after}"
