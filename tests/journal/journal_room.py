"""What the journal's tests share: sessions written and opened again, and processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ipyagent.errors import JournalError
from ipyagent.journal.events import (
    Event,
    SessionStarted,
    UserMessage,
)
from ipyagent.journal.journal import Journal, Problem

ROOT = Path(__file__).parents[2]


def started(session: str = "s1") -> SessionStarted:
    return SessionStarted(session=session, version="0")


def said(text: str) -> UserMessage:
    return UserMessage(text=text, blocks=({"type": "text", "text": text},))


def written(folder: Path, *texts: str) -> Path:
    """A session with these requests; its transcript."""
    journal = Journal.create(folder, started())
    for text in texts:
        journal.append(said(text))
    journal.close()
    return journal.path


def texts_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, UserMessage)]


def reopened(path: Path) -> tuple[Journal, list[Event], list[Problem]]:
    events: list[Event] = []
    journal, problems = Journal.open(path.parent, events.append)
    return journal, events, problems


def refused(folder: Path) -> str:
    with pytest.raises(JournalError) as caught:
        Journal.open(folder, lambda event: None)
    return str(caught.value)


def run(code: str, *arguments: Any, **more: Any) -> subprocess.CompletedProcess[str]:
    """A Python process that ends by itself."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False, **more,
    )


