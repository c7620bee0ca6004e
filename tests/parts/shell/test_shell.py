from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from pace import within
from tools_workspace import ShellWorkspace

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import ToolOutput
from ipyagent.parts.shell.tool import shell


def run(workspace: ShellWorkspace, command: str, **more: Any) -> ToolOutput:
    return asyncio.run(shell.run({"command": command, **more}, workspace))


def text_of(output: ToolOutput) -> str:
    return "".join(block["text"] for block in output.blocks)


def pid_in(path: Path) -> int:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


def gone(pid: int, within: float = 0.5) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_output_and_errors_come_together_with_the_status(workspace: ShellWorkspace) -> None:
    (workspace.root / "sub").mkdir()
    inner = ShellWorkspace(workspace.root, folder=workspace.root / "sub")
    for command, told, failed in (
        ("echo out; echo err >&2; exit 3", "out\nerr\n[exit status 3]", True),
        ("true", "(no output)", False),
        ("false", "[exit status 1]", True),
        ("grep y /dev/null", "[exit status 1]", False),  # nothing found is no error
        ("pwd; cat", str(inner.folder), False),  # in the notebook's folder, without input
        (r"printf '10%%\r50%%\r100%%\n\033[31mred\033[0m\n'", "100%\nred", False),  # the last state of lines
        (r"printf '\xff\xfe a\x00b'", "\ufffd\ufffd a\ufffdb", False),  # bytes that are no text
    ):
        done = run(inner, command)
        assert (text_of(done), done.is_error) == (told, failed), command
    assert run(inner, "exit 3").note == "exit status 3"


def test_output_is_streamed_while_the_command_runs(workspace: ShellWorkspace) -> None:
    times: list[float] = []

    class Watching(ShellWorkspace):
        def stream(self, text: str) -> None:
            times.append(time.monotonic())
            super().stream(text)

    watching = Watching(workspace.root)
    run(watching, "for i in 1 2 3; do echo $i; sleep 0.3; done")
    assert "".join(watching.streamed) == "1\n2\n3\n"
    assert times[-1] - times[0] > 0.25


def test_long_output_keeps_head_and_tail_and_live_output_is_bounded(workspace: ShellWorkspace) -> None:
    workspace.limits |= {"tool_output_chars": 1_000, "live_output_chars": 5_000}
    text = text_of(run(workspace, "echo first; seq 200000; echo last"))
    assert text.startswith("first\n1\n2")
    assert text.endswith("199999\n200000\nlast")
    assert "characters cut here" in text
    assert len(text) < 1_200
    assert len("".join(workspace.streamed)) < 6_000


@pytest.mark.paced
def test_a_timeout_keeps_the_partial_output_and_ends_everything(workspace: ShellWorkspace) -> None:
    pid_file = workspace.root / "pid"
    began = time.monotonic()
    done = run(workspace, f"echo before; sleep 60 & echo $! > {pid_file}; sleep 60", timeout=1)
    assert time.monotonic() - began < within(2, 30)
    assert "before" in text_of(done)
    assert "ended after 1 s" in text_of(done)
    assert done.is_error
    assert gone(pid_in(pid_file))


@pytest.mark.paced
@pytest.mark.parametrize(
    "child",
    [
        "sleep 60 & echo $! > pid; wait",
        "setsid sh -c 'echo $$ > pid; exec sleep 60' & wait",
        "(setsid sh -c 'echo $$ > pid; exec sleep 60' &) ; sleep 60",
        "trap '' TERM; bash -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.05; done'",
        "nohup sh -c 'echo $$ > pid; exec sleep 60' >/dev/null 2>&1 & sleep 60",
    ],
    ids=["background", "own session", "orphan in own session", "ignores TERM", "nohup"],
)
def test_a_stop_ends_all_processes_quickly(workspace: ShellWorkspace, child: str) -> None:
    pid_file = workspace.root / "pid"

    async def stopped() -> float:
        running = asyncio.ensure_future(shell.run({"command": child}, workspace))
        while not (pid_file.exists() and pid_file.read_text().strip()):
            await asyncio.sleep(0.01)
        began = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return time.monotonic() - began

    took = asyncio.run(stopped())
    assert gone(pid_in(pid_file))
    assert took < within(0.6, 30)  # 0.3 s and some room; the commands take a minute


@pytest.mark.paced
def test_a_background_process_is_reported_and_not_waited_for(workspace: ShellWorkspace) -> None:
    began = time.monotonic()
    done = run(workspace, "sleep 30 & echo started")
    assert time.monotonic() - began < within(5, 25)
    assert "started" in text_of(done)
    assert "still running in the background" in text_of(done)
    pid = int(text_of(done).partition("background: ")[2].split()[0])
    try:
        assert "sleep" in text_of(done)
        assert psutil.Process(pid).is_running()
    finally:
        psutil.Process(pid).kill()


def test_a_background_process_can_go_on_writing(workspace: ShellWorkspace) -> None:
    run(workspace, "(sleep 0.3; echo late; echo done > finished) &")
    until = time.monotonic() + 3
    while time.monotonic() < until and not (workspace.root / "finished").exists():
        time.sleep(0.02)
    assert (workspace.root / "finished").exists()


def test_nonsense_arguments_are_refused(workspace: ShellWorkspace) -> None:
    for given in ({"command": "  "}, {"command": "a\x00"}, {"command": "ls", "timeout": 0}):
        with pytest.raises(ToolFailure):
            asyncio.run(shell.run(given, workspace))


def test_no_descriptor_is_left_open(workspace: ShellWorkspace) -> None:
    run(workspace, "echo x")
    time.sleep(0.05)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run(workspace, "echo x")
    time.sleep(0.05)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_question_is_the_command_in_full(workspace: ShellWorkspace) -> None:
    command = "echo " + "x" * 5_000
    asked = shell.question({"command": command, "description": "Build it"}, workspace)
    assert (asked.title, asked.text, asked.language) == ("Run this command?", command, "bash")
    assert asked.said == "Build it"


def test_a_repositorys_fsmonitor_does_not_run(workspace: ShellWorkspace) -> None:
    run(workspace, "git init -q . && git config core.fsmonitor 'touch pwned; false' && git status")
    assert not (workspace.root / "pwned").exists()


def test_it_runs_on_a_loop_in_another_thread(workspace: ShellWorkspace) -> None:
    outputs: list[ToolOutput] = []
    thread = threading.Thread(target=lambda: outputs.append(run(workspace, "echo there")))
    thread.start()
    thread.join(10)
    assert text_of(outputs[0]) == "there"
