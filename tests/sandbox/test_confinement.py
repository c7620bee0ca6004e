"""What is kept from commands by the operating system, each tried for real: hostile ones change, send, signal and tell
nothing that their level forbids, and those that only read give what they give outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.arena import KILLED, LEVELS, Arena, Attack, Level, Way, backends, hostile, reading

BACKENDS = backends()
HOSTILE = hostile()
KEPT = HOSTILE.pop("kept")
GAPS = {
    "bubblewrap": ("MCP servers and hooks can write to a named pipe that a process outside reads", ("/pipe",)),
    "landlock": (
        "MCP servers and hooks at `project` can write .git/hooks, .git/config and .ipyagent",
        (".git/hooks", ".git/config", ".ipyagent", "git config core.fsmonitor", "git init -q $P", "rm -rf $P/.git"),
    ),
}
"""What a backend says that it does not cover where nobody watches, and the commands that show it."""
everywhere = pytest.mark.parametrize("level", LEVELS)
each_backend = pytest.mark.parametrize("name", sorted(BACKENDS))
each_kind = pytest.mark.parametrize("kind", list(HOSTILE))


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with Arena(tmp_path_factory.mktemp("arena")) as made:
        yield made


def gap(name: str, attack: Attack, way: Way) -> bool:
    said, shown = GAPS.get(name, ("", ()))
    assert not said or said in BACKENDS[name].gaps
    return way != "watched" and any(each in attack.text for each in shown)


def not_held(arena: Arena, some: list[Attack], name: str, level: Level, way: Way) -> list[str]:
    found = []
    for attack in some:
        ran = arena.attack(attack.text, level, BACKENDS[name], way)
        if ran.status == KILLED:
            found.append(f"{attack}: it was ended before its end")
        elif bool(ran.harm) is not gap(name, attack, way):
            found.append(f"{attack}: {ran.harm[:3] or 'was held: the gap is none'}")
    return found


def here(some: list[Attack]) -> list[Attack]:
    return [attack for attack in some if not attack.missing]


def test_there_are_enough_of_each() -> None:
    assert sum(map(len, HOSTILE.values())) >= 600
    assert len({attack.text for some in HOSTILE.values() for attack in some}) >= 600
    assert len(set(reading())) >= 100


@each_backend
@everywhere
def test_one_of_each_kind_is_held(arena: Arena, name: str, level: Level) -> None:
    some = [next(iter(here(each))) for each in HOSTILE.values()]
    assert not_held(arena, some, name, level, "watched") == []


@pytest.mark.slow
@each_kind
@each_backend
@everywhere
def test_a_hostile_command_does_no_harm(arena: Arena, name: str, level: Level, kind: str) -> None:
    assert not_held(arena, here(HOSTILE[kind]), name, level, "watched") == []


@pytest.mark.slow
@each_kind
@each_backend
@everywhere
def test_nor_does_one_that_nobody_watches(arena: Arena, name: str, level: Level, kind: str) -> None:
    some = here(HOSTILE[kind])
    found = not_held(arena, some[::2], name, level, "spawn") + not_held(arena, some[1::2], name, level, "line")
    assert found == []


@each_backend
@pytest.mark.parametrize("way", ["watched", "line"])
def test_what_counts_later_in_a_project_is_not_written(arena: Arena, name: str, way: Way) -> None:
    assert not_held(arena, here(KEPT), name, "project", way) == []


@pytest.mark.slow
@each_kind
def test_each_of_them_does_harm_without_a_sandbox(arena: Arena, kind: str) -> None:
    sure = [attack for attack in here(HOSTILE[kind]) if attack.sure]
    assert [attack for attack in sure if not arena.attack(attack.text, "read", None).harm] == []


@each_backend
@everywhere
@pytest.mark.parametrize("part", [pytest.param(0, id="some"), pytest.param(1, id="rest", marks=pytest.mark.slow)])
def test_what_only_reads_gives_what_it_gives_outside(arena: Arena, name: str, level: Level, part: int) -> None:
    few, found = reading()[::9], []
    for command in few if part == 0 else [each for each in reading() if each not in few]:
        outside, inside = arena.read(command, level, None), arena.read(command, level, BACKENDS[name])
        if inside != outside:
            found.append((command, outside, inside))
    assert found == []
