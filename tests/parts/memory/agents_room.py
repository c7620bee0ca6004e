"""Agents of one project on the disk, whose server a test has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rooms import KEY, MODEL

from ipyagent import Agent, IPyAgent


@contextmanager
def agents(place: Path, url: str, **defaults: Any) -> Iterator[Callable[..., Agent]]:
    """What makes agents in `place`, with a key and a home of their own; they end with it."""
    made: list[Agent] = []

    def agent(**settings: Any) -> Agent:
        (place / "project").mkdir(exist_ok=True)
        given = {"base_url": url, "model": MODEL, "mode": "auto", "extraction": False, "dreaming": False,
                 "layer_notes": False, **defaults, **settings}  # fmt: skip
        made.append(Agent(settings=IPyAgent(environ={}, **given), folder=place / "project"))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("IPYAGENT_HOME", str(place / "home"))
        yield agent
        for each in made:
            each.close()
