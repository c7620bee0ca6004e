"""Processes of stdio servers: each in a session of its own, with few environment variables and no keys, and
known to one guard process that ends them when this one is killed."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ipyagent import sandbox
from ipyagent.errors import SettingError
from ipyagent.kernel.processes import MARK, end
from ipyagent.parts.mcp import guard
from ipyagent.parts.mcp.entries import McpServerConfig

GRACE = 0.7
"""Seconds that a server has to end by itself once its input is closed."""
PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP", "PATHEXT",
    "SYSTEMROOT", "SYSTEMDRIVE", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH",
    "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "COMSPEC", "VIRTUAL_ENV", "CONDA_PREFIX", "NVM_DIR", "NODE_PATH",
    "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY",
    "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""Variables that a server gets besides those of its entry, LC_*, XDG_* and the npm, pip and uv settings that say
where packages come from. Everything else of the kernel's environment (keys, tokens) stays here."""
PREFIXES = ("LC_", "XDG_")
REGISTRIES = ("npm_config_registry", "npm_config_cache", "npm_config_cafile", "PIP_INDEX_URL", "UV_INDEX_URL",
              "UV_DEFAULT_INDEX", "UV_CACHE_DIR")  # fmt: skip


def environment(entry: McpServerConfig, mark: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a server's process gets as its environment; function definitions are left out."""
    passed = {
        name: value
        for name, value in environ.items()
        if (name in PASSED or name in REGISTRIES or name.startswith(PREFIXES)) and not value.startswith("()")
    }
    return {**passed, **entry.env, MARK: mark}


class Running(NamedTuple):
    """A server's process; `mark` stands in the environment of all that it starts, `since` is Unix time; `leave` takes
    its temporary folder away."""

    process: asyncio.subprocess.Process
    mark: str
    since: float
    leave: ExitStack


class Processes:
    """Starts and ends the processes of one kernel. Called on the agent thread."""

    def __init__(self) -> None:
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __repr__(self) -> str:
        return f"<Processes {'guarded' if self._guard is not None else 'none yet'}>"

    async def start(self, entry: McpServerConfig, project: str) -> Running:
        """The process of an entry whose variables are filled in, at its level in this project. Raises SettingError."""
        folder = Path(entry.base, Path(entry.cwd).expanduser()) if entry.cwd else Path(entry.base)
        mark = secrets.token_hex(8)
        environ = environment(entry, mark)
        command = os.path.expanduser(entry.command)
        if os.sep in command and not os.path.isabs(command):
            command = str(folder / command)
        found = shutil.which(command, path=environ.get("PATH"))
        if found is None:
            raise SettingError(f"there is no command {entry.command!r} on PATH: install it, or give its full path")
        root = Path(project)
        try:
            leave = ExitStack()
            confined = await asyncio.to_thread(sandbox.confined, [found, *entry.args], entry.sandbox, root, environ)
            line, environ = leave.enter_context(confined)
        except sandbox.NoSandbox as problem:
            raise SettingError(str(problem)) from None
        since = time.time()
        try:
            process = await asyncio.create_subprocess_exec(
                *line,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env=environ,
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            leave.close()
            reason = getattr(problem, "strerror", None) or problem
            raise SettingError(f"{entry.command!r} cannot be started in {folder} ({reason}): fix its entry") from None
        self._tell("+", process.pid, mark)
        return Running(process, mark, since, leave)

    async def end(self, running: Running) -> None:
        """Close its input, wait a moment, then end it and all that it started."""
        process = running.process
        if process.stdin is not None:
            process.stdin.close()
        try:
            if process.returncode is None:
                await asyncio.wait_for(process.wait(), GRACE)
        except TimeoutError:
            pass
        finally:
            try:
                await asyncio.to_thread(end, process.pid, running.mark, running.since)
            except asyncio.CancelledError:
                end(process.pid, running.mark, running.since)
                raise
            finally:
                self._tell("-", process.pid, running.mark)
                running.leave.close()
                transport = getattr(process, "_transport", None)  # nothing public closes the pipes of a dead process
                if transport is not None:
                    transport.close()

    def close(self) -> None:
        """End the guard; servers that were not ended are ended by it."""
        guarding, self._guard = self._guard, None
        if guarding is not None and self._pid == os.getpid() and guarding.stdin is not None:
            guarding.stdin.close()
            try:
                guarding.wait(3)
            except subprocess.TimeoutExpired:
                guarding.kill()
                guarding.wait()

    def _tell(self, what: str, pid: int, mark: str) -> None:
        if os.name != "posix":
            return
        if self._guard is None or self._pid != os.getpid() or self._guard.poll() is not None:
            self._pid = os.getpid()
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                bufsize=0,
            )
        if self._guard.stdin is not None:
            try:
                self._guard.stdin.write(f"{what}{pid} {mark}\n".encode())
            except OSError:
                self._guard = None  # it was killed: the next server gets another
