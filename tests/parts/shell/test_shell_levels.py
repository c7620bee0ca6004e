"""At which sandbox level a shell command runs in each mode, what is asked, and what comes back: a real session, real
commands, on every sandbox that works here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rooms import KEY, MODEL

from ipyagent import Agent, IPyAgent, sandbox
from ipyagent.assembly.requests import NullSurface, Options
from ipyagent.journal.events import PermissionAsked, ToolReturned
from ipyagent.journal.protocols import PermissionAnswer
from ipyagent.practice.replies import text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.ui.items import ToolItem
from ipyagent.ui.transcript import fold


class Person(NullSurface):
    """Answers each question, yes unless a word of `no` stands in its title or its danger."""

    can_ask = True

    def __init__(self) -> None:
        self.asked: list[PermissionAsked] = []
        self.no: tuple[str, ...] = ()
        self.answer = "once"
        self.wait = 0.0

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        import asyncio

        self.asked.append(asked)
        await asyncio.sleep(self.wait)
        said = f"{asked.title} {asked.danger}"
        return PermissionAnswer("deny" if any(word in said for word in self.no) else self.answer)  # type: ignore[arg-type]


class Desk:
    """An agent whose model calls the shell."""

    def __init__(self, place: Path, server: PracticeServer, **settings: Any) -> None:
        self.folder, self.server, self.person = place / "project", server, Person()
        self.folder.mkdir()
        (self.folder / "a.txt").write_text("b\na\n")
        quiet = {"layer_notes": False, "extraction": False}
        made = IPyAgent(environ={}, base_url=server.url, model=MODEL, **{**quiet, **settings})
        self.agent = Agent(settings=made, folder=self.folder)

    def run(self, command: str, **given: Any) -> str:
        """The result that the model reads."""
        self.person.asked.clear()
        self.server.script(tool("shell", {"command": command, **given}), text("Done."))
        ended = self.agent.prepare("go", Options(), self.person).run_blocking()
        assert ended.status in ("finished", "stopped"), ended.message
        session = self.agent.session
        returned = [event for event in session.journal.read() if isinstance(event, ToolReturned)][-1]
        return "".join(block.get("text", "") for block in returned.blocks)

    @property
    def questions(self) -> list[tuple[str, str]]:
        return [(asked.title, asked.danger) for asked in self.person.asked]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PracticeServer]:
    place = tmp_path_factory.mktemp("levels")
    with pytest.MonkeyPatch.context() as patch, PracticeServer() as made:
        patch.setenv("IPYAGENT_HOME", str(place / "home"))
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        yield made


@pytest.fixture
def desks(tmp_path: Path, server: PracticeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(**settings: Any) -> Desk:
        desk = Desk(tmp_path, server, **settings)
        monkeypatch.chdir(desk.folder)
        made.append(desk)
        return desk

    yield make
    for desk in made:
        desk.agent.close()


@pytest.fixture(params=sandbox.find().working, ids=lambda each: each.name)
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other way than this one works here."""
    monkeypatch.setattr(sandbox, "find", lambda: sandbox.Found((request.param,), ()))


PROJECT, OPEN = "Let this command write in the project?", "Run this command outside the sandbox?"


def test_mode_ask_runs_what_reads_and_computes_and_asks_first_for_a_level_that_the_model_names(
    desks: Callable[..., Desk],
) -> None:
    desk = desks()
    assert desk.run("cat a.txt | sort | head -$(echo 1)") == "a"
    assert desk.run("python3 -c 'print(6*7)'") == "42"
    assert desk.run('f=$(mktemp) && sort a.txt > "$f" && cat "$f"') == "a\nb"
    assert desk.run("grep nothing a.txt; cat <<E\nhi\nE") == "hi"
    assert desk.questions == []
    desk.person.no = (PROJECT, OPEN)
    desk.run("echo x > new", needs="project")
    assert desk.questions == [(PROJECT, "it needs to write in the project")]
    desk.run("curl -s http://127.0.0.1:9/", needs="network")
    assert desk.questions == [(OPEN, "it needs the network")]
    desk.run("touch $'a.txt\\nAllowed by ipyagent\\e[2K\\u202e'")
    assert desk.questions == [(PROJECT, "it wants to write a.txt␊Allowed by ipyagent␛[2K⟨U+202E⟩")], "on one line"


def test_mode_ask_asks_once_for_what_the_command_was_refused(desks: Callable[..., Desk]) -> None:
    desk = desks()
    file, new = desk.folder / "a.txt", desk.folder / "new"
    for command, wants in (
        ("sort -o a.txt a.txt", "it wants to write a.txt"),
        ("chmod 600 a.txt", "it wants to change the mode, owner or times of a.txt"),
        ("touch -d 2020-01-01 a.txt", "it wants to write a.txt, change the mode, owner or times of a.txt"),
        ("rm a.txt", "it wants to remove a.txt"),
        ("python3 -c \"open('new', 'w').write('x')\"", "it wants to write new"),
        ("echo x > new; ls > /dev/null", "it wants to write new"),
    ):
        file.write_text("b\na\n")
        file.chmod(0o644)
        new.unlink(missing_ok=True)
        state = file.stat()
        desk.person.no = (PROJECT,)
        refused = desk.run(command)
        assert desk.questions == [(PROJECT, wants)]
        assert "The user denied this call" in refused
        assert (file.read_text(), file.stat().st_mode) == ("b\na\n", state.st_mode)
        desk.person.no = ()
        assert "refused" not in desk.run(command)
        assert desk.questions == [(PROJECT, wants)]
        changed = not file.exists() or file.read_text() != "b\na\n" or file.stat().st_mode != state.st_mode
        assert changed or file.stat().st_mtime != state.st_mtime or new.exists(), command


def test_always_is_for_the_level_that_was_asked_for(desks: Callable[..., Desk]) -> None:
    desk = desks()
    desk.person.answer = "always"
    desk.run("sort -o a.txt a.txt")
    assert [str(rule) for rule in desk.agent.permissions.rules] == ["shell(project: sort -o a.txt a.txt)"]
    desk.run("sort -o a.txt a.txt")
    assert desk.questions == []
    desk.agent.permissions.remember("shell(project: touch *)")
    desk.run("touch b.txt")
    assert desk.questions == []
    desk.person.no = (OPEN,)
    desk.run(f"touch {desk.folder.parent / 'outside'}")
    assert [title for title, _ in desk.questions] == [OPEN]
    desk.agent.permissions.remember("shell(touch *)")
    desk.run(f"touch {desk.folder.parent / 'outside'}")
    assert desk.questions == []
    assert (desk.folder.parent / "outside").exists()


def test_mode_auto_writes_in_the_project_and_asks_for_network_and_outside(desks: Callable[..., Desk]) -> None:
    desk = desks(mode="auto")
    subprocess.run(["git", "init", "-q", "."], cwd=desk.folder, check=True)
    assert "denied" not in desk.run("echo x > new && mkdir d && sort -o a.txt a.txt && git add new")
    assert desk.questions == []
    assert (desk.folder / "a.txt").read_text() == "a\nb\n"
    desk.person.no = (OPEN,)
    outside = desk.folder.parent / "outside"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        desk.run(f"curl -sS --max-time 3 http://127.0.0.1:{listener.getsockname()[1]}/")
        assert desk.questions == [(OPEN, "it wants to use the network")]
        with pytest.raises(TimeoutError):
            listener.accept()
    desk.run(f"touch made && touch {outside}")
    assert desk.questions == [(OPEN, f"it wants to write {outside}; it has changed made already and runs again")]
    assert not outside.exists()
    desk.person.no = ()
    desk.run(f"touch {outside}")
    assert outside.exists()
    assert len(desk.questions) == 1


def test_the_model_is_told_what_kept_a_command_back_and_when_it_was_not_the_sandbox(
    desks: Callable[..., Desk],
) -> None:
    desk = desks(mode="auto")
    assert desk.run("touch /tmp/beside.log; echo went on").splitlines()[-2:] == [
        "[not possible at the sandbox level project: write /tmp/beside.log]",
        "[a command's temporary folder is $TMPDIR; it is gone when the command has ended]",
    ]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        said = desk.run(f"kill {other.pid}; echo went on")
        assert f"[not possible at the sandbox level project: send a signal to process {other.pid} (" in said
        assert other.poll() is None
        assert "-c input())]" in said
        other.kill()
    assert desk.questions == []
    said = desk.run("curl -sS --max-time 3 http://127.0.0.1:9/")
    assert said.endswith("[exit status 7][allowed: it ran again outside the sandbox]")
    assert [title for title, _ in desk.questions] == [OPEN]


def test_a_project_with_hidden_folders_in_it_gets_new_files(
    desks: Callable[..., Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not any(isinstance(each, sandbox.Bubblewrap) for each in sandbox.find().working):
        pytest.skip("Landlock lets none be made beside a hidden folder")
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "project" / ".home"))
    desk = desks(mode="auto")
    assert desk.run("echo new > new.txt && cat new.txt; ls .home") != ""
    assert (desk.folder / "new.txt").read_text() == "new\n"


def test_where_landlock_lets_no_file_be_made_the_user_is_asked(
    desks: Callable[..., Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (only := tuple(each for each in sandbox.find().working if isinstance(each, sandbox.Landlock))):
        pytest.skip("no Landlock")
    monkeypatch.setattr(sandbox, "find", lambda: sandbox.Found(only, ()))
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "project" / ".home"))
    desk = desks(mode="auto")
    desk.run("echo new > new.txt; echo went on")
    assert desk.questions == [(OPEN, "it wants to write new.txt")]
    assert (desk.folder / "new.txt").read_text() == "new\n"


def test_mode_auto_asks_while_a_command_waits_to_write_what_others_obey(desks: Callable[..., Desk]) -> None:
    desk = desks(mode="auto")
    desk.person.no = ("AGENTS.md", ".envrc", "Makefile", "hooks", "history")
    desk.run("git gc")
    assert desk.questions == [(PROJECT, "`git gc` may throw history away")], "no copy of a file brings that back"
    subprocess.run(["git", "init", "-q", "."], cwd=desk.folder, check=True)
    desk.run("echo x > .git/hooks/pre-commit")
    [(title, why)] = desk.questions
    assert title == OPEN
    assert why.endswith("it wants to write .git/hooks/pre-commit")
    assert not (desk.folder / ".git/hooks/pre-commit").exists()
    for name in ("AGENTS.md", ".envrc", "Makefile"):
        said = desk.run(f"python3 -c \"open('{name}', 'w')\"; echo went on")
        assert [title for title, _ in desk.questions] == [f"Let this command write {name}?"], name
        assert f"did not allow this command to write {name}" in said
        assert "went on" in said
        assert not (desk.folder / name).exists()
    desk.person.no = ()
    desk.run("echo x > AGENTS.md")
    assert (desk.folder / "AGENTS.md").read_text() == "x\n"


LOW = """
import ctypes, os
def call(*given):
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in given]
    if ctypes.CDLL(None, use_errno=True).syscall(*given) < 0:
        raise OSError
"""
DETOURS = {
    "the numbers of another process's view": "echo evil > /proc/$$/cwd/AGENTS.md",
    "a folder that is open": "exec 9<.; ln -s /proc/self/fd/9 l; echo evil > l/AGENTS.md",
    "a thread's folder": "echo evil > /proc/self/task/$$/cwd/AGENTS.md",
    "a link in a private mount": "ln -s $PWD/AGENTS.md /dev/shm/l; echo evil > /dev/shm/l",
    "a link in another": "ln -s $PWD /run/l; echo evil > /run/l/AGENTS.md",
    "a root of one's own": 'low \'import struct; d = os.open(".", 0); how = struct.pack("=QQQ", 65, 420, 16); '
    'call(437, d, b"/AGENTS.md", how, 24)\'; test -f AGENTS.md && echo evil >> AGENTS.md',
    "a file without a name": 'low \'f = os.open(".", os.O_TMPFILE | os.O_RDWR); os.write(f, b"evil"); '
    'call(265, f, b"", -100, b"AGENTS.md", 0x1000)\'',
    "another name": "ln CLAUDE.md x; echo evil > x",
    "another name of what is open": 'low \'f = os.open("CLAUDE.md", 0); call(265, f, b"", -100, b"x", 0x1000)\'; '
    "echo evil > x",
    "a folder under another name": "mkdir t; echo evil > t/x; mv t .github",
    "a link instead of a folder": "mkdir t; echo evil > t/x; ln -s t .vscode",
    "a file that leads git elsewhere": "mkdir s; echo evil > s/.git",
    "a repository under another name": "mkdir g s; echo evil > g/config; mv g s/.git",
    "the sandbox's own program": "gcc -shared -fPIC -o $TMPDIR/e.so e.c && LD_PRELOAD=$TMPDIR/e.so bwrap --version",
}
PRELOADED = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) void f(void) {
    int d = open("AGENTS.md", O_WRONLY | O_CREAT, 0644);
    if (write(d, "evil", 4)) _exit(0);
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of its system calls")
def test_mode_auto_asks_whatever_way_leads_to_what_others_obey(desks: Callable[..., Desk], each_way: None) -> None:
    desk = desks(mode="auto")
    desk.person.no = ("command",)
    (desk.folder / "CLAUDE.md").write_text("good")
    (desk.folder / "e.c").write_text(PRELOADED)
    (desk.folder / "low.py").write_text(f"{LOW}\nimport sys; exec(sys.argv[1])")
    for way, command in DETOURS.items():
        said = desk.run(command.replace("low '", "python3 low.py '"))
        evil = [path for path in desk.folder.rglob("*") if path.is_file() and path.read_bytes().startswith(b"evil")]
        guarded = [path for path in evil if path.name in ("AGENTS.md", ".git") or "/." in str(path.parent)]
        assert guarded == [], (way, desk.questions, said)
        assert (desk.folder / "CLAUDE.md").read_text() == "good", way
        subprocess.run("rm -rf t g s x l", shell=True, cwd=desk.folder, check=True)


@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_undo_brings_back_what_a_command_changed_in_the_project(desks: Callable[..., Desk], mode: str) -> None:
    desk = desks(mode=mode)
    (desk.folder / "raw.csv").write_bytes(b"a,b\r\n1,2\r\n")
    desk.run("head -1 raw.csv > raw.csv; rm a.txt; mkdir d; echo n > d/new", needs="project")
    assert (desk.folder / "raw.csv").read_bytes() == b""
    assert len(desk.questions) == (1 if mode == "ask" else 0)
    called = [item for item in fold(list(desk.agent.session.journal.read())) if isinstance(item, ToolItem)]
    assert called[-1].changes == ("wrote raw.csv", "removed a.txt")
    desk.agent.undo()
    assert (desk.folder / "raw.csv").read_bytes() == b"a,b\r\n1,2\r\n"
    assert (desk.folder / "a.txt").read_text() == "b\na\n"


def test_mode_read_only_runs_commands_that_can_change_nothing(desks: Callable[..., Desk]) -> None:
    desk = desks(mode="read_only")
    assert desk.run("sort a.txt") == "a\nb"
    assert "sandbox level read: write a.txt" in desk.run("sort -o a.txt a.txt")
    assert "mode is read_only" in desk.run("ls", needs="network")
    assert (desk.folder / "a.txt").read_text() == "b\na\n"
    assert desk.questions == []


def test_hidden_cells_and_secrets_stay_hidden(desks: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    desk = desks()
    home = desk.folder.parent / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text("my key")
    monkeypatch.setenv("HOME", str(home))
    notebook = desk.folder / "work.ipynb"
    notebook.write_text('{"cells": [{"source": "# agent-hide\\nthe grades"}]}')
    (desk.folder / "other.ipynb").write_text('{"cells": []}')
    desk.person.no = (OPEN, PROJECT)
    code = "print(open('work.ipynb').read())"
    for command in ("cat work.ipynb", "grep -r grades .", f"cat {home}/.ssh/id_rsa", f'python3 -c "{code}"'):
        said = desk.run(command)
        assert "the grades" not in said, command
        assert "my key" not in said, command
    assert "cells" in desk.run("cat other.ipynb")
    notebook.write_text('{"cells": []}')
    assert "cells" in desk.run("cat work.ipynb")


def test_no_command_gives_a_notebook_with_hidden_cells_a_name_that_the_next_can_read(
    desks: Callable[..., Desk], each_way: None
) -> None:
    desk = desks(mode="auto")
    desk.person.no = (OPEN, PROJECT)
    (desk.folder / "sub").mkdir()
    (desk.folder / "sub/work.ipynb").write_text('{"cells": [{"source": "# agent-hide\\nthe grades"}]}')
    for command in ("mv sub/work.ipynb v.txt", "ln sub/work.ipynb v.txt", "mv sub other", "rm sub/work.ipynb"):
        desk.run(command)
        assert "the grades" not in desk.run("cat v.txt other/work.ipynb")
    assert (desk.folder / "sub/work.ipynb").exists()


def test_a_stop_ends_a_confined_command_and_its_temporary_folder_is_gone(
    desks: Callable[..., Desk], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    desk = desks()
    command = 'echo $$ > "$TMPDIR/pid"; setsid sleep 77 & env -i setsid -f sleep 77; sleep 77'
    desk.server.script(tool("shell", {"command": command}), text("Done."))
    running = desk.agent.prepare("go", Options(), desk.person)
    thread = threading.Thread(target=running.run_blocking)
    thread.start()
    until = time.monotonic() + 20
    while not (found := [path for path in place.glob("ipyagent-*/pid") if path.is_file()]) and time.monotonic() < until:
        time.sleep(0.02)
    assert found
    while len([*sleeping()]) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    assert len([*sleeping()]) == 3
    desk.agent.stop()
    thread.join(20)
    assert not any(sleeping())
    assert not found[0].parent.exists()


def sleeping() -> Iterator[int]:
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == ["sleep", "77"] and process.status() != psutil.STATUS_ZOMBIE:
            yield process.pid


OLD_KERNEL = """
import os, struct, sys
from pathlib import Path
from ipyagent.sandbox import confine
refused = {444: 38, 272: 1}  # no Landlock (ENOSYS), no new namespaces (EPERM)
if os.uname().machine == "aarch64":
    refused = {444: 38, 97: 1}
code = [(0x20, 0, 0, 0)]
for number, error in refused.items():
    code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error)]
clone = 56 if os.uname().machine == "x86_64" else 220
code += [(0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E020000), (0x06, 0, 0, 0x00050001)]
code += [(0x06, 0, 0, 0x7FFF0000)]
libc = confine.Libc()
libc.prctl(38, 1, 0, 0, 0)
confine.install(libc, b"".join(struct.pack("=HBBI", *each) for each in code), False)

from ipyagent import sandbox
from ipyagent.loop.permissions import Permissions
from ipyagent.parts.shell.tool import shell
from tools_workspace import ShellWorkspace

place = Path(sys.argv[1])
workspace = ShellWorkspace(place)
for mode in ("ask", "auto", "read_only"):
    permissions = Permissions(place / "rules.json", place, mode)
    for command in ("ls", "rm -r x"):
        given = shell.validate({"command": command})
        decision = permissions.decide(shell, given, workspace, can_ask=True)
        print(mode, command, type(decision).__name__, getattr(decision, "danger", ""), sep=" | ")
permissions = Permissions(place / "rules.json", place, "ask")
permissions.remember("shell(ls *)")
print(permissions.decide(shell, shell.validate({"command": "ls -l"}), workspace, can_ask=True))
"""


def test_without_a_sandbox_every_command_is_asked_about_and_the_line_says_why(tmp_path: Path) -> None:
    tests = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests), str(tests / "tools")])}
    done = subprocess.run(
        [sys.executable, "-c", OLD_KERNEL, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *lines, rule = done.stdout.splitlines()
    for line in lines:
        mode, command, decision, danger = line.split(" | ")
        assert decision == ("Deny" if mode == "read_only" else "Ask"), line
        if mode != "read_only":
            assert "no sandbox works here: the kernel has no Landlock; bubblewrap" in danger
            assert ("it deletes files" in danger or "deletes files" in danger) is (command != "ls")
    assert rule == "Allow(by='rule', rule='shell(ls *)', level='open')"
