"""Each environment in a real process: a session that works, or one line that names the variable, as in doctor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders that may not be written, as POSIX has them")
ROOT = Path(__file__).parents[2]
ASK = "get_ipython().run_cell_magic('agent', '', 'which files are in this folder?')\n"
WORDS = "%load_ext ipyagent\n" + ASK
BOUND = (  # root without the right to write everywhere; for other users the folders' modes do
    "import ctypes, os, sys\n"
    "if os.getuid() == 0: [ctypes.CDLL(None).prctl(24, right, 0, 0, 0) for right in (1, 2)]\n"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Place:
    """A project folder and a home, and cells that are run there in a process of their own."""

    def __init__(self, base: Path) -> None:
        self.project, self.home = base / "course", base / "home"
        for folder in (self.project, self.home, base / "ipython"):
            folder.mkdir()
        (self.project / "data.csv").write_text("a\n1\n")
        self.base = base

    def run(self, cells: str, *options: str, **environ: str | None) -> str:
        script = self.base / "cells.ipy"
        script.write_text(cells)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IPYAGENT_", "ANTHROPIC_"))}
        given = {"HOME": str(self.home), "IPYTHONDIR": str(self.base / "ipython"), "PYTHONPATH": str(ROOT),
                 "IPYAGENT_MODEL": "practice", **environ}  # fmt: skip
        kept = {name: value for name, value in {**kept, **given}.items() if value is not None}
        done = subprocess.run(
            [sys.executable, "-c", BOUND, *options, "-m", "IPython", "--no-banner", "--colors=NoColor",
             "--simple-prompt", str(script)],
            cwd=self.project, env=kept, capture_output=True, timeout=200, check=False,
        )  # fmt: skip
        return " ".join((done.stdout + done.stderr).decode("utf-8", "replace").split())  # lines wrap at a width


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.slow
def test_a_project_that_may_not_be_written_is_kept_in_the_users_folder_said_once_and_found_again(place: Place) -> None:
    (place.project / "AGENTS.md").write_text("be kind")
    place.project.chmod(0o555)
    said = place.run(WORDS + "%memory add the course uses seed 42\n%agent allow python\n%agent trust\n%agent doctor\n")
    line = f"{place.project} cannot be written, so sessions and memories of this project are kept in "
    assert "data.csv" in said
    talk, doctor = said.split("✓ ipyagent")
    assert talk.count(line) == 1
    assert line in doctor
    assert "1 stored" in doctor
    assert f"{place.project}, trusted" in doctor
    assert sorted(entry.name for entry in place.project.iterdir()) == ["AGENTS.md", "data.csv"]

    again = place.run("%load_ext ipyagent\n%agent resume\n%memory search seed\n%agent allow\n" + ASK)
    assert "resumed session" in again
    assert "the course uses seed 42" in again
    assert "allowed in this project: python" in again
    assert "cannot be written" not in again
    assert "not trusted" not in again

    place.project.chmod(0o755)
    writable = place.run("%load_ext ipyagent\n%agent resume\n%memory search seed\n" + ASK + "%agent doctor\n")
    assert "resumed session" in writable
    assert "the course uses seed 42" in writable
    assert writable.count("could not be written when they began") == 2, "by the session and by doctor"


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_named_and_the_session_works(place: Place) -> None:
    place.home.chmod(0o555)
    home = place.home / "none"
    said = place.run(WORDS + "%memory list\n%agent doctor\n", HOME=str(home))
    assert "data.csv" in said
    line = f"{home}/.ipyagent cannot be written (HOME is {home}), so trust,"
    assert said.count(line) == 2, "by the session and by doctor"
    asked = "try: get_ipython().run_line_magic('agent', 'resume')\nexcept Exception as problem: print(problem)\n"
    asked += "print('tried it')\n"
    again = place.run(f"%load_ext ipyagent\n{asked}%memory list\n%agent trust\n%agent resume\n", HOME=str(home))
    refused, tried, after = again.partition("tried it")
    assert tried
    assert f"whether you trust {place.project} is unknown" in refused
    assert "resumed session" not in refused
    assert "resumed session" in after
    assert "Traceback" not in said + again
    assert "elsewhere" not in said + again


def test_where_nothing_can_be_written_one_line_names_the_variable(place: Place) -> None:
    place.project.chmod(0o555)
    place.home.chmod(0o555)
    said = place.run(WORDS)
    assert f"AgentError: {place.project} cannot be written, nor can {place.home}/.ipyagent" in said
    assert f"HOME is {place.home}); set IPYAGENT_HOME to a folder that you own" in said
    assert "Traceback" not in said


ASCII = {"PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize(
    ("options", "environ"),
    [
        ((), {"TMPDIR": "/nonexistent", **ASCII}),
        pytest.param(("-I", "-OO"), {"HOME": None, "TMPDIR": "/proc"}, marks=pytest.mark.slow),  # all is compiled
    ],
    ids=["ASCII, no folder for temporary files", "isolated, no docstrings, no HOME, one that takes none"],
)
def test_a_session_works_and_its_help_says_what_commands_do(
    place: Place, options: tuple[str, ...], environ: dict[str, str | None]
) -> None:
    if "HOME" in environ:  # the tests leave alone what the system then says is the user's home
        environ = {**environ, "IPYAGENT_HOME": str(place.home)}
    found = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"  # python -I heeds no PYTHONPATH
    said = place.run(found + WORDS + "%agent help\n%memory help\n%agent doctor\n", *options, **environ)
    assert "data.csv" in said
    assert "Check the setup and say what is missing." in said
    assert "None" not in said
    assert "Everything is set up" in said.replace("\n", " ")
    assert "Traceback" not in said


HELP = """
from types import SimpleNamespace
from ipyagent import Agent
from ipyagent.extension.commands import COMMANDS
from ipyagent.parts.memory.commands import show_memory
agent = Agent(folder=".")
print(COMMANDS["help"].__doc__, COMMANDS["help"](SimpleNamespace(agent_now=agent), ""))
print("of memory", show_memory(agent, "help", None))
"""


def test_help_says_what_commands_do_where_python_drops_docstrings(tmp_path: Path) -> None:
    environ = {**os.environ, "IPYAGENT_HOME": str(tmp_path / "home"), "IPYAGENT_MODEL": "practice"}
    done = subprocess.run([sys.executable, "-OO", "-c", HELP], cwd=tmp_path, env={**environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, timeout=200, check=True)  # fmt: skip
    dropped, said = done.stdout[:4], " ".join(done.stdout[4:].split())
    assert dropped == "None"
    assert "Check the setup and say what is missing." in said
    assert "Show and change memories (same as %memory)." in said
    assert "Show this list." in said.partition("of memory")[2]
    assert "None" not in said


@pytest.mark.slow
def test_an_empty_transcript_is_named(place: Place) -> None:
    empty = place.project / ".ipyagent" / "sessions" / "20260101-000000-abcd"
    made = f"import os; os.mkdir({str(empty)!r}); open({str(empty / 'transcript.jsonl')!r}, 'w').close()\n"
    said = place.run(f"{WORDS}{made}%agent sessions\n%agent doctor\n%agent resume 20260101\n")
    assert said.count("session 20260101-000000-abcd is empty: its transcript has 0 bytes") == 3


MANY = WORDS + (
    "%memory add the course uses seed 42\n%memory search seed\n%agent allow python\n%agent sessions\n%agent trust\n"
    "get_ipython().run_cell_magic('agent', '--mode auto', 'run: open(\"out.txt\", \"w\").write(\"hi\")')\n"
    "%agent new\n%agent resume\n%context\n%agent doctor\n"
)


@pytest.mark.slow
def test_a_path_may_be_anything_that_a_path_can_be(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"two words\nand not \xff text")
    folder.mkdir()
    place = Place(folder)
    said = place.run(MANY)
    assert "data.csv" in said
    assert "Traceback" not in said
    assert "Everything is set up" in said
    assert (place.project / "out.txt").read_text() == "hi"
    again = place.run("%load_ext ipyagent\n%agent resume\n%memory search seed\n%agent allow\n" + ASK)
    assert "resumed session" in again
    assert "the course uses seed 42" in again
    assert "allowed in this project: python" in again
    assert "not trusted" not in again


@pytest.mark.slow
def test_sixty_four_open_files_are_enough(place: Place) -> None:
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
    said = place.run(few + WORDS + ASK * 3 + "%agent doctor\n")
    assert said.count("glob 1 file") == 4
    assert "Traceback" not in said
    assert "Everything is set up" in said


@pytest.fixture
def small(place: Place) -> Iterator[Callable[[Path, str], None]]:
    """Puts a folder on a disk of its own."""
    mounted: list[Path] = []

    def put(folder: Path, size: str) -> None:
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
        )
        if made.returncode:
            pytest.skip("this user may mount nothing")
        mounted.append(folder)

    if os.getuid() or not shutil.which("mount"):
        pytest.skip("only root mounts a small disk")
    yield put
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


FILL = "held = open('full', 'wb', buffering=0)\ntry:\n    while held.write(b'x' * 4096): pass\nexcept OSError: pass\n"
EMPTY = "held.close(); import os; os.remove('full')\n"


@pytest.mark.slow
def test_a_full_disk_is_named_at_the_start_and_by_doctor(place: Place, small: Callable[[Path, str], None]) -> None:
    small(place.project, "64k")
    said = place.run(FILL + "%load_ext ipyagent\n%agent doctor\n" + ASK)
    assert f"no space is left for {place.project}/.ipyagent" in said
    assert f"AgentError: cannot write in {place.project} (No space left on device); free some space, or " in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_home_on_a_full_disk_is_named_and_the_session_works(place: Place, small: Callable[[Path, str], None]) -> None:
    small(place.home, "64k")
    home = f"import os; os.chdir({str(place.home)!r})\n{FILL}os.chdir({str(place.project)!r})\n"
    said = place.run(home + WORDS + "%agent doctor\n")
    assert "data.csv" in said
    assert said.count(f"{place.home}/.ipyagent cannot be written: No space left on device") == 2, "doctor says it, too"
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_disk_that_gets_full_ends_the_turn_with_one_line_and_the_session_goes_on_once_there_is_room(
    place: Place, small: Callable[[Path, str], None]
) -> None:
    small(place.project, "1m")
    asks = (
        f"for number in range(40):\n    try: {ASK}"
        "    except Exception as problem: print(type(problem).__name__, problem); break\n"
    )
    said = place.run(WORDS + FILL + asks + "%agent doctor\n" + EMPTY + "print('ROOM')\n" + ASK)
    full, room = said.split("ROOM")
    assert "TurnFailed cannot write " in full
    assert "No space left on device; free some space or move the project, then run again" in full
    assert f"no space is left for {place.project}/.ipyagent" in full
    assert "✓ glob " in room
    assert "Traceback" not in said
    again = place.run("%load_ext ipyagent\n%agent resume\n" + ASK)
    assert "resumed session" in again
    assert "✓ glob " in again
