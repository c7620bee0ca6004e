"""Hooks that are shell commands: `hooks.json` in the user's own folder, never one of a project.

    {"pre_tool": [{"command": "check-call", "tool": "shell", "timeout": 10}], "stop": ["notify-send done"]}

A command gets the facts of its point as one JSON object on stdin, and the point's name in IPYAGENT_HOOK. What
it prints is its answer: text, or for `pre_tool` a JSON object as a function would return it. An exit status
other than 0, or no end within `timeout` seconds, is a failure: `pre_tool` denies, the others are reported.
Nothing that a command began outlives its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.errors import AgentError
from ipyagent.kernel.processes import MARK
from ipyagent.project import user_folder

FILE = "hooks.json"
SECONDS = 30.0
"""How long a command may take unless it says otherwise."""
MOST_BYTES = 100_000
"""What is read of a command's output; the rest is thrown away."""
DRAIN = 0.3
"""Seconds for output that is still on its way when the command has ended."""


class HookEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One command of the file. `tool` limits `pre_tool` and `post_tool` to names that match it as a glob."""

    command: str
    timeout: float = SECONDS
    tool: str = "*"


class CommandFailed(AgentError):
    """A hook's command came to nothing; the message says how."""


class CommandHook:
    """One command at one point, called as a hook's function is."""

    def __init__(self, point: str, entry: HookEntry) -> None:
        self.point, self.entry = point, entry
        self.__name__ = entry.command if len(entry.command) <= 60 else entry.command[:59] + "…"

    def __repr__(self) -> str:
        return f"<CommandHook {self.point}: {self.__name__}>"

    async def __call__(self, facts: dict[str, Any]) -> Any:
        """The command's answer, None for none. Raises CommandFailed."""
        if not self._meant(facts):
            return None
        process = await asyncio.create_subprocess_exec(
            *_shell(),
            self.entry.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = bytearray(), bytearray()
        work = [
            asyncio.ensure_future(_feed(process.stdin, _encoded(facts))),
            asyncio.ensure_future(_drain(process.stdout, out)),
            asyncio.ensure_future(_drain(process.stderr, err)),
        ]
        try:
            await asyncio.wait_for(_ended(process), self.entry.timeout)
            await asyncio.wait(work, timeout=DRAIN)
        except TimeoutError:
            raise CommandFailed(f"it took longer than {self.entry.timeout:g} s") from None
        finally:
            for task in work:
                task.cancel()
            _end(process.pid)
            await process.wait()
        return self._answer(process.returncode, bytes(out), bytes(err))

    def call_now(self, facts: dict[str, Any], most: float | None = None) -> Any:
        """The same without awaiting, for the point where nobody can, for `most` seconds. Raises CommandFailed."""
        seconds = self.entry.timeout if most is None else min(most, self.entry.timeout)
        if not self._meant(facts):
            return None
        with subprocess.Popen(
            [*_shell(), self.entry.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(),
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(_encoded(facts), timeout=seconds)
            except subprocess.TimeoutExpired:
                raise CommandFailed(f"it took longer than {seconds:g} s") from None
            finally:
                _end(process.pid)
        return self._answer(process.returncode, out, err)

    def _meant(self, facts: dict[str, Any]) -> bool:
        return "tool" not in facts or fnmatchcase(str(facts["tool"]), self.entry.tool)

    def _environment(self) -> dict[str, str]:
        environ = {name: value for name, value in os.environ.items() if name != MARK}  # not of the run under way
        return {**environ, "IPYAGENT_HOOK": self.point}

    def _answer(self, status: int | None, out: bytes, err: bytes) -> Any:
        said = out.decode("utf-8", "replace").strip()
        if status:
            why = " ".join((err.decode("utf-8", "replace").strip() or said).split())[:300]
            raise CommandFailed(f"exit status {status}" + (f": {why}" if why else ""))
        if self.point != "pre_tool":
            return said or None
        if not said.startswith("{"):
            return None
        try:
            return msgspec.json.decode(said, type=dict[str, Any])
        except msgspec.DecodeError as problem:
            raise CommandFailed(f"its answer is no JSON object ({problem})") from None


class _Unreadable:
    """Stands for a file that cannot be read: what it was to check is not known, so it fails."""

    __name__ = FILE

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self, facts: dict[str, Any]) -> None:
        raise CommandFailed(self._why)


class HooksFile:
    """The commands of one file, read again when it has changed. `known` are the points there are."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known
        self._stamp: tuple[str, int, int] | None = None
        self._found: dict[str, list[CommandHook]] = {}
        self._problem = ""

    @property
    def problem(self) -> str:
        """What is wrong with the file as it is now; "" when it can be read or is not there."""
        self.of("")
        return self._problem

    def of(self, point: str) -> list[Any]:
        """The point's commands in order; one that fails where the file cannot be read."""
        try:
            path = user_folder() / FILE
            stat = path.stat()
        except (AgentError, OSError):  # what was there, and what was wrong with it, is gone
            self._stamp, self._found, self._problem = None, {}, ""
            return []
        stamp = str(path), stat.st_mtime_ns, stat.st_size
        if stamp != self._stamp:
            self._stamp = stamp
            self._found, self._problem = self._read(path, stat)
        return [_Unreadable(self._problem)] if self._problem else list(self._found.get(point, ()))

    def _read(self, path: Path, stat: os.stat_result) -> tuple[dict[str, list[CommandHook]], str]:
        if sys.platform != "win32" and (stat.st_uid not in (0, os.getuid()) or stat.st_mode & 0o022):
            return {}, f"{path} can be written by others: chmod go-w it, or remove it"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, list[str | HookEntry]])
        except (OSError, msgspec.DecodeError) as problem:
            return {}, f"{path} cannot be read ({problem}): fix or remove it"
        if unknown := sorted(set(found) - set(self._known)):
            return {}, f"{path} has no point {unknown[0]!r}; points: {', '.join(self._known)}"
        return {
            point: [CommandHook(point, HookEntry(each) if isinstance(each, str) else each) for each in entries]
            for point, entries in found.items()
        }, ""


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Return when the command itself has ended; `wait` would wait for all that hold its output as well."""
    pause = 0.002
    while process.returncode is None:
        await asyncio.sleep(pause)
        pause = min(0.05, pause * 1.5)


async def _feed(stdin: asyncio.StreamWriter, text: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # a command that does not read its facts
        stdin.write(text)
        await stdin.drain()
        stdin.close()


async def _drain(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while piece := await stream.read(65_536):
        kept += piece[: MOST_BYTES - len(kept)]


def _encoded(facts: dict[str, Any]) -> bytes:
    return msgspec.json.encode(facts, enc_hook=str)


def _end(pid: int) -> None:
    """End what the command has begun and left."""
    with contextlib.suppress(OSError):
        if sys.platform != "win32":
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)


def _shell() -> tuple[str, ...]:
    if os.name == "nt":
        return ("cmd.exe", "/d", "/c")
    bash = shutil.which("bash")
    return (bash, "--noprofile", "--norc", "-c") if bash else ("/bin/sh", "-c")
