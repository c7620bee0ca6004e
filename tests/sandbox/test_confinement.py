"""What is kept from commands by the operating system, each tried for real: hostile ones change, send, signal and tell
nothing that their level forbids, and those that only read give what they give outside."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipyagent import sandbox
from ipyagent.sandbox.secrets import secrets_of
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
    held = any(each in attack.text for each in ("call(437", "O_TMPFILE"))  # by the kernel, in any case
    return way != "watched" and not held and any(each in attack.text for each in shown)


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
def test_nor_does_one_that_nobody_watches(arena: Arena, name: str, kind: str) -> None:
    """Each at one level in one way: its rules are those of the commands above, at both levels."""
    for at, level, way in ((0, "read", "spawn"), (1, "project", "line"), (2, "project", "spawn"), (3, "read", "line")):
        assert not_held(arena, here(HOSTILE[kind])[at::4], name, level, way) == []


@each_backend
@pytest.mark.parametrize("way", ["watched", "line"])
def test_what_counts_later_in_a_project_is_not_written(arena: Arena, name: str, way: Way) -> None:
    assert not_held(arena, here(KEPT), name, "project", way) == []


def test_a_temporary_folder_goes_whatever_is_in_it_and_no_link_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "data.csv"
    outside.write_text("1")
    outside.chmod(0o640)
    makes = f"mkdir -p a/b && ln -s {outside} a/b/l && chmod 500 a/b && mkdir c && chmod 000 c && ln -s / r"
    deep = f'{sys.executable} -c \'import os; [(os.mkdir("d"), os.chdir("d")) for _ in range(1200)]\''
    with sandbox.temporary(sandbox.policy("read", tmp_path), {"PATH": os.environ["PATH"]}) as (own, environment):
        for command in (makes, deep):
            subprocess.run(["bash", "-c", command], cwd=own.temporary, env=environment, check=True)
        own.temporary.chmod(0o000)
    assert not own.temporary.exists()
    assert outside.read_text() == "1"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o640


@pytest.mark.parametrize("way", ["watched", "line"])
def test_a_folder_keeps_its_set_group_id_and_nothing_else_gets_one(tmp_path: Path, way: Way) -> None:
    if "landlock" not in BACKENDS:
        pytest.skip("no Landlock")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2700)
    (tmp_path / "other").mkdir()
    (tmp_path / "run").write_text("")
    command = ["bash", "-c", "chmod 750 shared; chmod g+s other run; chmod u+s shared run; chmod 2755 run"]
    with sandbox.temporary(sandbox.policy("project", tmp_path), dict(os.environ)) as (policy, environment):
        options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "stderr": subprocess.DEVNULL}
        if way == "watched":
            BACKENDS["landlock"].spawn(command, policy, lambda attempt: True, **options).wait(30)
        else:
            subprocess.run(BACKENDS["landlock"].argv(command, policy), **options, timeout=30)
    modes = {name: oct((tmp_path / name).stat().st_mode & 0o7777) for name in ("shared", "other", "run")}
    assert modes == {"shared": "0o2750", "other": "0o755", "run": "0o644"}


def test_a_secret_is_hidden_from_the_next_command_once_it_is_there(tmp_path: Path) -> None:
    root, home = tmp_path / "project", tmp_path / "home"
    for folder in (root, home / "work", tmp_path / "beside"):
        folder.mkdir(parents=True)
    assert not any(path.is_relative_to(tmp_path) for path in secrets_of(home, root))
    made = [
        home / ".netrc",
        home / ".aws/credentials",
        home / "work/.env",
        tmp_path / ".env",
        tmp_path / "beside/.envrc",
    ]
    for path in made:
        path.parent.mkdir(exist_ok=True)
        path.write_text("secret")
        assert any(path.is_relative_to(each) for each in secrets_of(home, root)), path
    (home / "loop").symlink_to("loop")  # nothing that lies beside a secret shows it again
    assert any((home / "work/.env").is_relative_to(each) for each in secrets_of(home, root))
    (root / ".env").write_text("the project's own")
    (home / "current").symlink_to(root)
    assert not any(each.is_relative_to(root) for each in secrets_of(home, root))


@pytest.mark.slow
@each_kind
def test_each_of_them_does_harm_without_a_sandbox(arena: Arena, kind: str) -> None:
    sure = [attack for attack in here(HOSTILE[kind]) if attack.sure]
    assert [attack for attack in sure if not arena.attack(attack.text, "read", None).harm] == []


@pytest.mark.parametrize("part", [pytest.param(0, id="some"), pytest.param(1, id="rest", marks=pytest.mark.slow)])
def test_what_only_reads_gives_what_it_gives_outside(arena: Arena, part: int) -> None:
    """The few at both levels, the others at every other one."""
    if not BACKENDS:
        pytest.skip("no sandbox here")
    few, found = reading()[::15], []
    for at, command in enumerate(few if part == 0 else [each for each in reading() if each not in few]):
        for level in LEVELS if part == 0 else (LEVELS[at % 2],):
            outside = arena.read(command, level, None)
            for name, backend in BACKENDS.items():
                if (inside := arena.read(command, level, backend)) != outside:
                    found.append((name, level, command, outside, inside))
    assert found == []


def test_the_profile_for_macos_keeps_a_veiled_notebook_unread_and_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    root = tmp_path.resolve()
    profile = sandbox.Seatbelt().profile(sandbox.Policy("project", root, veiled=(root / "sub/work.ipynb",)))
    veiled = f'(subpath "{root}/sub/work.ipynb")'
    assert f"(deny file-read* {veiled})" in profile
    assert any(line.startswith("(deny file-write* ") and veiled in line for line in profile.splitlines())
    assert f'(deny file-write-unlink (literal "{root}") (literal "{root}/sub"))' in profile
