"""What a watched command tells before it does it, on every backend that works here."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest

from ipyagent import sandbox
from ipyagent.sandbox.syscalls import Attempt

BACKENDS = [each for each in sandbox.find().working if each.watches]
each_backend = pytest.mark.parametrize("backend", BACKENDS, ids=lambda each: each.name)
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


@each_backend
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


@each_backend
def test_no_finalizer_runs_where_a_command_is_started(tmp_path: Path, backend: sandbox.Backend) -> None:
    seen: list[tuple[str, bool]] = []

    def collected(phase: str, info: dict[str, int]) -> None:
        at = {frame.name for frame in traceback.extract_stack()}
        seen.append((threading.current_thread().name, "_execute_child" in at))

    usual, policy = gc.get_threshold(), sandbox.policy("project", tmp_path)
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        process = backend.spawn(["true"], policy, lambda attempt: True)
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(collected)
    assert process.wait() == 0
    assert seen
    assert ("ipyagent-sandbox", True) not in seen
    assert gc.isenabled()


@each_backend
def test_what_the_watch_refuses_is_not_done(tmp_path: Path, backend: sandbox.Backend) -> None:
    (tmp_path / "a").write_text("old")
    attempts, said = run(backend, "project", tmp_path, "echo x > a; rm a; mv a b; chmod 600 a", refuse=True)
    assert (tmp_path / "a").read_text() == "old"
    assert (tmp_path / "a").stat().st_mode & 0o777 != 0o600
    assert said.count("Permission denied") == 4
    assert {attempt.what for attempt in attempts} == {"write", "remove", "mode"}


@each_backend
def test_what_is_kept_is_kept_by_its_name_and_by_what_is_open(tmp_path: Path, backend: sandbox.Backend) -> None:
    """A link in its place is kept as what it leads to is; a mode changes by an open folder, too (AT_EMPTY_PATH)."""
    hook = tmp_path / ".git/hooks/pre-commit"
    (tmp_path / "own").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/hooks").symlink_to("../own")
    hook.write_text("rm -rf /")
    hook.chmod(0o600)
    by_descriptor = (
        "import ctypes, os; f = os.open('own/pre-commit', os.O_PATH); "
        "ctypes.CDLL(None).syscall(452, f, b'', 0o755, 0x1000); "
        "ctypes.CDLL(None).fchownat(f, b'', -1, -1, 0x1000)"
    )
    command = f'rm .git/hooks; mv .git/hooks h; echo x > own/pre-commit; python3 -c "{by_descriptor}"'
    run(backend, "project", tmp_path, command)
    assert (hook.read_text(), hook.stat().st_mode & 0o777) == ("rm -rf /", 0o600)
    assert (tmp_path / ".git/hooks").is_symlink()


@each_backend
def test_a_folder_that_is_moved_to_the_temporary_one_is_told_file_by_file(
    tmp_path: Path, backend: sandbox.Backend
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/raw.csv").write_text("1")
    attempts, said = run(backend, "project", tmp_path, 'mv data "$TMPDIR"/ && cat "$TMPDIR"/data/raw.csv')
    assert said == "1"
    assert ("remove", str(tmp_path / "data/raw.csv")) in {(attempt.what, attempt.path) for attempt in attempts}


@each_backend
def test_a_place_that_no_memory_has_is_a_bad_address(tmp_path: Path, backend: sandbox.Backend) -> None:
    code = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); n = {nr}; " \
           "print([c.syscall(n, *a, 0o1101, 0o600) and ctypes.get_errno() for a in {at}])"  # fmt: skip
    nr, first = (2, ()) if os.uname().machine == "x86_64" else (56, (-100,))
    places = [(*first, each) for each in (-1, 1, 2**47 - 1)]
    command = f'python3 -c "{code.format(nr=nr, at=places)}"; echo x > a && cat a'
    _, said = run(backend, "project", tmp_path, command)
    assert said.splitlines() == ["[14, 14, 14]", "x"]


AS_NOBODY = """
import codecs, os, sys, tempfile
from ipyagent import sandbox
from ipyagent.sandbox import confine, syscalls

each = sandbox.find().working[int(sys.argv[1])]
[codecs.lookup(name) for name in ("ascii", "utf-8", "latin-1")]  # nobody may not read where Python is installed
tempfile.tempdir = "/tmp"
os.chdir("/")
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
confine.Libc().prctl(4, 1, 0, 0, 0)  # as a process is that has not changed its user: others of the user may look at it
print(sandbox._problem(each) or "it tells")
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
@each_backend
def test_who_is_not_root_is_told_too(backend: sandbox.Backend) -> None:
    number = str(sandbox.find().working.index(backend))
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, number], capture_output=True, text=True, timeout=60)
    if "namespace" in done.stdout:
        pytest.skip(f"others than root can do nothing here: {done.stdout}")
    assert (done.stdout.strip(), done.stderr) == ("it tells", "")


@each_backend
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
