"""What a watched command tells before it does it, on every backend that works here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ipyagent import sandbox
from ipyagent.sandbox.syscalls import Attempt

BACKENDS = [each for each in sandbox.find().working if each.watches]
TOLD: dict[str, list[tuple[str, str]]] = {
    "echo x > a": [("write", "a")],
    "echo x >> a": [("append", "a")],
    "sort -o a a": [("write", "a")],
    "python3 -c \"open('a', 'r+')\"": [("write", "a")],
    "truncate -s 0 a": [("write", "a")],
    "rm a": [("remove", "a")],
    "mv a c": [("remove", "a"), ("replace", "c")],
    "cp a c": [("write", "c")],
    "tar cf c a": [("write", "c")],  # by creat
    "ln a c": [("link", "a"), ("write", "c")],
    "ln -s a c": [("symlink", "c")],
    "mkdir d": [("make", "d")],
    "exec 3< a; echo x > /dev/fd/3; echo x > /proc/self/fd/3": [("write", "a")],
    "cd sub && rmdir deep": [("remove", "sub/deep")],
    "chmod 600 link": [("mode", "a")],
    "touch -d 2020-01-01 a": [("write", "a"), ("mode", "a")],
    # what fails or changes nothing at any level is not told
    "cat a | sort | head -$(echo 1) > /dev/null; echo x > /dev/stderr": [],
    "python3 -c 'print(6*7)'": [],
    "rm nothing; echo x > none/b; mkdir sub; kill -0 1; sleep 9 & kill $!": [],
}


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda each: each.name)
@pytest.mark.parametrize("level", ["read", "project"])
def test_a_command_tells_what_it_is_about_to_change(tmp_path: Path, backend: sandbox.Backend, level: str) -> None:
    for number, (command, told) in enumerate(TOLD.items()):
        root = (tmp_path / str(number)).resolve()
        (root / "sub/deep").mkdir(parents=True)
        (root / "a").write_text("b\na\n")
        (root / "link").symlink_to("a")
        attempts, _ = run(backend, level, root, command)
        here = [attempt for attempt in attempts if attempt.path.startswith(str(root))]
        found = {(attempt.what, os.path.relpath(attempt.path, root)) for attempt in here}
        assert found == set(told), command
        assert all(attempt.allowed is (level == "project") for attempt in attempts), command


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda each: each.name)
def test_what_the_watch_refuses_is_not_done(tmp_path: Path, backend: sandbox.Backend) -> None:
    (tmp_path / "a").write_text("old")
    attempts, said = run(backend, "project", tmp_path, "echo x > a; rm a; mv a b; chmod 600 a", refuse=True)
    assert (tmp_path / "a").read_text() == "old"
    assert (tmp_path / "a").stat().st_mode & 0o777 != 0o600
    assert said.count("Permission denied") == 4
    assert {attempt.what for attempt in attempts} == {"write", "remove", "mode"}


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda each: each.name)
def test_a_network_is_told_and_not_reached(tmp_path: Path, backend: sandbox.Backend) -> None:
    code = "import socket; socket.create_connection(('127.0.0.1', 9))"
    attempts, said = run(backend, "project", tmp_path, f'python3 -c "{code}"')
    assert ("network", False) in {(attempt.what, attempt.allowed) for attempt in attempts}
    assert "Error" in said


def run(
    backend: sandbox.Backend, level: str, root: Path, command: str, refuse: bool = False
) -> tuple[list[Attempt], str]:
    attempts: list[Attempt] = []

    def watch(attempt: Attempt) -> bool:
        if attempt.what != "session":  # of the command itself
            attempts.append(attempt)
        return not refuse

    given = sandbox.policy("read" if level == "read" else "project", root)
    with sandbox.temporary(given, dict(os.environ)) as (policy, environment):
        process = backend.spawn(
            ["bash", "--norc", "-c", command], policy, watch, cwd=root, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        said = process.communicate(timeout=30)[0].decode()
    return [attempt for attempt in attempts if not attempt.path.startswith(str(policy.temporary))], said
