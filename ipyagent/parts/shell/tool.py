"""`shell`: a command in a session of its own, its output live, itself and all it started ended
when the call is stopped or its time is over. What it wrote until then is kept."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import glob as globs
import os
import re
import secrets
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import ToolFailure
from ipyagent.journal.protocols import Needed, PermissionQuestion, ToolOutput, Workspace
from ipyagent.kernel import processes
from ipyagent.loop.hooks import shell_words
from ipyagent.parts.shell.levels import Confined, Wanted, needed, watches
from ipyagent.parts.shell.rules import covers
from ipyagent.redaction import after_cut, before_cut
from ipyagent.tools.answers import plain, text_output
from ipyagent.tools.danger import history_danger, shell_danger
from ipyagent.tools.schema import tool

TICK = 0.04
"""Seconds between two pieces of live output."""
DRAIN = 0.15
"""Longest wait for the last output after the command has ended."""
_GIT_SETTINGS = (("core.fsmonitor", "false"), ("diff.autoRefreshIndex", "false"))
"""A repository may not name a program that runs at every `git status`; `git diff` writes no index (it takes a lock for
that whatever GIT_OPTIONAL_LOCKS says)."""


def _sandboxed(arguments: dict[str, Any], workspace: Workspace) -> Needed:
    needs = needed(arguments["needs"], workspace.root)
    if needs.level in ("read", "project"):
        return msgspec.structs.replace(needs, danger=_unrestorable(arguments, workspace))
    return needs


def _unrestorable(arguments: dict[str, Any], workspace: Workspace) -> str:
    """Why a command at "project" needs a yes in mode auto: no copy brings back what it would change."""
    danger = history_danger if watches("project", workspace.root) else shell_danger
    return danger(arguments["command"], workspace.folder)


def _question(arguments: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
    said = " ".join(arguments["description"].split())[:200]
    return PermissionQuestion(title="Run this command?", text=arguments["command"], language="bash", said=said)


@tool(
    permission=lambda given, workspace: "none" if _sandboxed(given, workspace).level == "read" else "ask",
    writes=lambda given, workspace: _sandboxed(given, workspace).level != "read",
    destructive=lambda given, workspace: shell_danger(given["command"], workspace.folder),
    question=_question,
    pattern=lambda given, _: f"shell({globs.escape(given['command'].strip())})",
    covers=lambda rule, given, _: covers(rule, given["command"]),
    sandboxed=_sandboxed,
    recreatable=True,
)
async def shell(
    command: str,
    timeout: int | None = None,
    description: str = "",
    needs: Wanted | None = None,
    *,
    workspace: Workspace,
) -> ToolOutput:
    """Run a bash command in the notebook's folder, without input. It can only read; when it needs more the user is
    asked.

    Args:
        timeout: Seconds, then it is ended.
        description: What for, shown to the user.
        needs: If known: to write in the project; network or more.
    """
    if not command.strip() or "\x00" in command:
        raise ToolFailure("`command` is empty" if not command.strip() else "`command` contains a NUL character")
    seconds = workspace.limit("shell_timeout") if timeout is None else timeout
    if seconds < 1:
        raise ToolFailure("`timeout` is at least 1 second")
    mark = secrets.token_hex(8)
    environment = _environment(mark)
    if workspace.level == "open":
        return await _followed_to_end(command, seconds, mark, environment, workspace, None)
    with Confined(command, workspace.level, workspace) as confined:
        await confined.look()
        return await _followed_to_end(command, seconds, mark, environment, workspace, confined)


async def _followed_to_end(
    command: str, seconds: int, mark: str, environment: dict[str, str], workspace: Workspace, confined: Confined | None
) -> ToolOutput:
    reader, writer = os.pipe()
    started = time.time()
    popen: dict[str, Any] = {
        "stdin": subprocess.DEVNULL, "stdout": writer, "stderr": writer, "cwd": workspace.folder,
        "start_new_session": True,
    }  # fmt: skip
    try:
        line = (*shell_words(), command)
        if confined is None:
            process = subprocess.Popen(line, env=environment, **popen)
        else:
            process = confined.start(line, environment, **popen)
    except BaseException as problem:
        os.close(reader)
        if isinstance(problem, OSError):
            raise ToolFailure(f"the shell did not start: {problem}") from None
        raise
    finally:
        os.close(writer)
    capture = PipeCapture(reader, workspace.limit("tool_output_chars"), workspace.limit("live_output_chars"))
    sessions: Collection[int] = () if confined is None else confined.sessions
    finished = False
    try:
        finished = await _followed(process, capture, seconds, workspace, confined)
    finally:
        if not finished:
            # Not awaited: when the call is cancelled all must have ended before it returns.
            processes.end(process.pid, mark, started, sessions)
            process.wait()
    until = time.monotonic() + DRAIN
    left = [] if not capture.thread.is_alive() else processes.of_command(process.pid, mark, started, sessions)
    while capture.thread.is_alive() and time.monotonic() < until and not left:
        await asyncio.sleep(0.005)
    if finished and not left:
        # One that does not hold the output: `cmd >/dev/null 2>&1 &`.
        left = processes.of_command(process.pid, mark, started, sessions) if "&" in command else []
    if left:
        await asyncio.sleep(TICK)  # a moment, so that a forked shell has become its command
        left = processes.of_command(process.pid, mark, started, sessions)
    if fresh := capture.take():
        workspace.stream(plain(fresh))
    status = process.returncode or 0
    notes = []
    if not finished and confined is not None and confined.stuck:
        notes.append("ended: it tried again and again to reach the network; the output so far is above")
    elif not finished:
        notes.append(f"ended after {seconds} s: the time was over; the output so far is above")
    elif status < 0:
        notes.append(f"ended by signal {_signal(-status)}")
    elif status:
        notes.append(f"exit status {status}")
    if left:
        notes.append("still running in the background: " + ", ".join(f"{one.pid} {_name(one)}" for one in left[:10]))
    body = plain(capture.text()).rstrip("\n")
    needs = None if confined is None else confined.needs(not finished or status != 0)
    told = [] if confined is None else confined.told(needs)
    text = "\n".join([body] * bool(body) + [f"[{note}]" for note in (*notes, *told)]) or "(no output)"
    short = "; ".join(notes) or "exit status 0"
    # `grep` and `diff` answer with 1: nothing found, a difference.
    last = next(iter(re.split(r"[|;&\n]", command.rstrip("; \n"))[-1].split()), "")  # the program of the last part
    failed = status not in (0, 1) or (status == 1 and (needs is not None or last not in _ANSWER_WITH_ONE))
    return msgspec.structs.replace(text_output(text, note=short, is_error=not finished or failed), needs=needs)


_ANSWER_WITH_ONE = frozenset(("grep", "egrep", "fgrep", "rg", "diff", "cmp", "git", "test", "["))


async def _followed(
    process: subprocess.Popen[bytes],
    capture: PipeCapture,
    seconds: int,
    workspace: Workspace,
    confined: Confined | None,
) -> bool:
    """Hand output on until the process ends (True), or its time is over or it will not get on (False)."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wait() -> None:
        process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, name="ipyagent-shell-end", daemon=True).start()
    until = time.monotonic() + seconds
    while not ended.is_set():
        if time.monotonic() >= until + (0.0 if confined is None else confined.waited):
            return False
        if confined is not None and confined.stuck:
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), TICK)
        if fresh := capture.take():
            workspace.stream(plain(fresh))
    return True


def _environment(mark: str) -> dict[str, str]:
    environment = processes.without_keys(os.environ)
    environment[processes.MARK] = mark
    # No pager waits for a key, no git asks for a password or takes a lock only to look.
    environment |= {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    count = environment.get("GIT_CONFIG_COUNT", "0")
    if count.isdecimal():
        for number, (key, value) in enumerate(_GIT_SETTINGS, int(count)):
            environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        environment["GIT_CONFIG_COUNT"] = str(int(count) + len(_GIT_SETTINGS))
    return environment


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _name(process: Any) -> str:
    import psutil

    try:
        return Path(" ".join(process.cmdline()[:1]) or process.name()).name
    except psutil.Error:
        return "(ended)"


# ------------------------------------------------------------------ capture
# A command's output while it runs: read by a thread until its last writer has closed it, kept as head and tail,
# handed on in pieces.


class PipeCapture:
    """Reads a pipe's `descriptor` to its end and closes it. Keeps the first two thirds of `keep`
    characters and the last third; `take` hands out what is new, up to `live` characters."""

    def __init__(self, descriptor: int, keep: int, live: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._head: list[str] = []
        self._room = keep * 2 // 3
        self._tail: deque[str] = deque()
        self._tail_length = 0
        self._tail_most = keep - keep * 2 // 3
        self._fresh: list[str] = []
        self._live = live
        self._total = 0
        # A background process that the command left goes on writing: the thread goes on reading,
        # so that the process does not die of a closed pipe.
        self.thread = threading.Thread(target=self._read, name="ipyagent-shell-output", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            while piece := os.read(self._descriptor, 65_536):
                self._keep(decoder.decode(piece))
            self._keep(decoder.decode(b"", True))
        finally:
            os.close(self._descriptor)

    def _keep(self, text: str) -> None:
        with self._lock:
            self._total += len(text)
            if self._live > 0:
                self._fresh.append(text[: self._live])
                self._live -= len(text)
                if self._live <= 0:
                    self._fresh.append("\n[… the rest is not shown live …]\n")
            head, rest = text[: self._room], text[self._room :]
            self._room -= len(head)
            if head:
                self._head.append(head)
            if rest:
                self._tail.append(rest)
                self._tail_length += len(rest)
                while self._tail_length - len(self._tail[0]) >= self._tail_most:
                    self._tail_length -= len(self._tail.popleft())

    def take(self) -> str:
        """What came since the last call."""
        with self._lock:
            text, self._fresh = "".join(self._fresh), []
            return text

    def text(self) -> str:
        """All that is kept; the cut is named."""
        with self._lock:
            tail = "".join(self._tail)[-self._tail_most :]
            head = "".join(self._head)
            if self._total <= len(head) + len(tail):
                return head + tail
            head, tail = before_cut(head), after_cut(tail)
            return f"{head}\n[… {self._total - len(head) - len(tail):,} characters cut here …]\n{tail}"
