"""One holder at a time, with the system's locks and without them, also where both meet."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from ipyagent.journal.journal import in_use
from ipyagent.locks import HELD, Lock, LockHeld, why_no_locks
from ipyagent.project import update_object

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the locks of POSIX")
ROOT = Path(__file__).parents[2]
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
int flock(int fd, int op) {
  char *number = getenv("NO_FLOCK");
  if (number) { errno = atoi(number); return -1; }
  int (*real)(int, int) = dlsym(RTLD_NEXT, "flock");
  return real(fd, op);
}
"""
HOLD = (
    "import sys; from pathlib import Path; from ipyagent.locks import Lock\n"
    "lock = Lock(Path(sys.argv[1]), seconds=5, long=True); lock.acquire(); print('held', flush=True)\n"
    "sys.stdin.read()\n"
    "lock.release()"
)
COUNT = (
    "import sys; from pathlib import Path; from ipyagent.project import update_object\n"
    "for i in range(25): update_object(Path(sys.argv[1]), lambda held: {'n': held.get('n', 0) + 1})"
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that lets `flock` fail with the error NO_FLOCK."""
    if shutil.which("gcc") is None or not sys.platform.startswith("linux"):
        pytest.skip("no gcc to make the library with")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    made = folder / "shim.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, folder / "shim.c", "-ldl"], check=True)
    return made


def without(shim: Path, number: int = errno.ENOLCK) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(shim), "NO_FLOCK": str(number)}


def holding(path: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    )
    out: IO[bytes] = process.stdout  # type: ignore[assignment]
    assert out.readline() == b"held\n"
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=30)


def test_processes_without_locks_count_as_one_whatever_the_system_says(shim: Path, tmp_path: Path) -> None:
    path = tmp_path / "count.json"
    numbers = (errno.ENOLCK, errno.ESTALE, errno.ENOSYS, errno.EOPNOTSUPP)
    environs = [without(shim, number) for number in numbers]
    running = [subprocess.Popen([sys.executable, "-c", COUNT, str(path)], env=environ) for environ in environs]
    assert [process.wait(120) for process in running] == [0] * 4
    assert json.loads(path.read_text()) == {"n": 100}
    assert not [each for each in tmp_path.iterdir() if HELD in each.name], "nothing is left"


def test_a_lock_service_that_goes_and_comes_back_gives_no_lock_twice(shim: Path, tmp_path: Path) -> None:
    """Whoever has the system's lock and whoever has none sees the other."""
    path = tmp_path / "lock"
    with_locks = {**os.environ, "PYTHONPATH": str(ROOT)}
    for mine, others in ((without(shim), with_locks), (with_locks, without(shim))):
        process = holding(path, mine)
        assert in_use(tmp_path), "seen with the system's locks"
        tried = "import sys; from pathlib import Path; from ipyagent.journal.journal import in_use\n"
        tried += "sys.exit(in_use(Path(sys.argv[1])))"
        assert subprocess.run([sys.executable, "-c", tried, str(tmp_path)], env=others, check=False).returncode == 1
        ended(process)
        assert subprocess.run([sys.executable, "-c", tried, str(tmp_path)], env=others, check=False).returncode == 0


@pytest.mark.parametrize("marked", [True, False])
def test_a_holder_that_was_killed_holds_nothing(shim: Path, tmp_path: Path, marked: bool) -> None:
    path = tmp_path / "lock"
    process = holding(path, without(shim) if marked else {**os.environ, "PYTHONPATH": str(ROOT)})
    process.kill()
    process.communicate()
    assert (tmp_path / f"lock{HELD}").exists() is marked
    assert not in_use(tmp_path)
    ended(holding(path, without(shim)))
    assert not (tmp_path / f"lock{HELD}").exists()


def test_whose_holder_cannot_be_known_counts_as_its_kind_of_lock_says(shim: Path, tmp_path: Path) -> None:
    path, marker = tmp_path / "lock", tmp_path / f"lock{HELD}"
    process = holding(path, without(shim))
    holder = json.loads(marker.read_bytes())
    process.kill()
    process.communicate()

    def free(long: bool) -> bool:
        lock = Lock(path, seconds=0, long=long)
        try:
            lock.acquire()
        except LockHeld:
            return False
        lock.release()
        return True

    marker.write_text(json.dumps({**holder, "host": "another machine"}))
    assert (free(False), free(True)) == (False, False)
    os.utime(marker, (time.time() - 700, time.time() - 700))
    assert (free(False), free(True)) == (True, False)
    if holder["boot"]:
        marker.write_text(json.dumps({**holder, "pid": os.getpid(), "boot": "an earlier run of this machine"}))
        assert free(True), "its machine was started anew"


def test_a_file_system_with_locks_is_not_said_to_have_none(tmp_path: Path) -> None:
    update_object(tmp_path / "x.json", {"a": 1})
    assert why_no_locks(tmp_path) == ""
    assert why_no_locks(tmp_path / "not" / "there") == ""
