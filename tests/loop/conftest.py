from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_rig import Rig
from notes_room import NotesRoom, notes_room

from ipyagent.practice.server import PracticeServer


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running


@pytest.fixture
def make_rig(home: Path, server: PracticeServer) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(**options: Any) -> Rig:
        given = options.pop("server", server)
        made.append(Rig(options.pop("folder", home / "project"), given, **options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


@pytest.fixture
def room(tmp_path: Path) -> Iterator[NotesRoom]:
    with notes_room(tmp_path) as made:
        yield made
