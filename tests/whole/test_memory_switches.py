"""Memory as a user meets it: nothing is made before the first save, which says where; every switch; words asked
for in any language; what was forgotten comes back. Real kernels, the practice model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rooms import MODEL, Room, plain, room

from ipyagent.journal.events import MemorySaved
from ipyagent.practice.server import PracticeServer


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Room]:
    with room(tmp_path, IPYAGENT_EXTRACTION="true", IPYAGENT_MODE="auto") as made:
        made.ok("%load_ext ipyagent")
        yield made


def memories(made: Room) -> list[str]:
    """Every file of both scopes that is no hidden one."""
    folders = [made.folder / ".ipyagent" / "memory", made.home / "memory"]
    return sorted(path.name for folder in folders for path in folder.glob("*.md"))


def test_a_plain_request_makes_no_memory(place: Room) -> None:
    place.ok("%%agent\nwhat is 2 + 2?")
    place.ok("%memory list")
    place.ok("%memory stats")
    place.ok("%memory doctor")
    assert not (place.folder / ".ipyagent" / "memory").exists()
    assert not (place.home / "memory").exists()


def test_with_memory_off_by_the_environment_nothing_is_loaded_and_no_file_is_made(tmp_path: Path) -> None:
    with PracticeServer() as server, room(tmp_path, server=server) as first:
        first.ok("%load_ext ipyagent")
        first.ok("%memory add The budget of the project is 300 euros.")
    kept = {path: path.read_bytes() for path in (first.folder / ".ipyagent" / "memory").glob("*.md")}
    with PracticeServer() as server:
        environ = {"IPYAGENT_MEMORY": "0", "IPYAGENT_EXTRACTION": "true", "IPYAGENT_MODEL": MODEL}
        with room(tmp_path, server=server, **environ) as made:
            made.ok("%load_ext ipyagent")
            made.asks("what is the budget of the project? please remember that it is 400 now")
            bodies = [exchange.body for exchange in server.messages]
            assert len(bodies) == 1  # no selector, no extraction
            assert "300 euros" not in str(bodies)
            assert "memory" not in [tool["name"] for tool in made.sent()["tools"]]
            assert "/memories" not in str(made.sent()["system"])
        cache = made.folder / ".ipyagent" / "cache"
        assert not [path.name for path in cache.glob("recall*")]
    assert {path: path.read_bytes() for path in (made.folder / ".ipyagent" / "memory").glob("*.md")} == kept
    assert not (made.home / "memory").exists()


def test_scratch_notebooks_in_the_home_directory_share_no_memory(tmp_path: Path) -> None:
    home = tmp_path / "user"
    for name in ("first", "second"):
        with room(tmp_path, JPY_SESSION_NAME=str(home / f"{name}.ipynb")) as made:
            made.folder = home
            made.ok("%load_ext ipyagent")
            made.ok(f"%memory add This is of {name}.")
            assert "This is of" in plain(made.ok("%memory list"))
    found = sorted(path.relative_to(home).as_posix() for path in home.rglob("MEMORY.md"))
    assert found == ["first/.ipyagent/memory/MEMORY.md", "second/.ipyagent/memory/MEMORY.md"]


def test_in_read_only_mode_nothing_is_saved_behind_a_turn_and_later_modes_catch_up(place: Room) -> None:
    place.ok("%agent mode read_only")
    place.ok("%%agent\nI always plot in blue, with a grid. What is 2 + 2?")
    place.ok("%%agent\nremember that I like green")
    assert memories(place) == []
    place.ok("%agent mode auto")
    place.ok("%memory extract")
    assert [event for event in place.events() if isinstance(event, MemorySaved)]
