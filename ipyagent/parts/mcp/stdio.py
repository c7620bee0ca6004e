"""The stdio transport: JSON-RPC lines over a process's pipes, bounded in every direction.

The SDK's own transport keeps a line of any length in memory, prints a traceback for each line that is no
message, and leaves the server's error output to the notebook; hence this one. A line that is no message is
logged; if it names the call that it answers, that call gets an error instead of waiting."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ipyagent import sandbox
from ipyagent.errors import SettingError
from ipyagent.journal.journal import clean_json
from ipyagent.kernel.processes import MARK, end
from ipyagent.nofollow import opened, status
from ipyagent.parts.mcp import guard
from ipyagent.parts.mcp.entries import McpServerConfig

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage


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


# ---- What a server writes to its error output goes to a file of its own, `mcp/<server>.log` in the session's
# folder, up to a limit: what a flooding server writes beyond is read and dropped, slowly.

FOLDER = "mcp"
MOST_BYTES = 2_000_000
TAIL = 20
"""Lines that are kept to tell why a server ended."""


class ServerLog:
    """The log of the server whose part of tool names is `part`. `folder` is the session's and may change;
    None: nothing is written."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.folder: Path | None = None
        self._written: dict[Path, int] = {}
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._rest = b""

    def __repr__(self) -> str:
        return f"<ServerLog {self.path}>"

    @property
    def path(self) -> Path | None:
        return None if self.folder is None else self.folder / FOLDER / f"{self.part}.log"

    @property
    def full(self) -> bool:
        """Whether what comes now is dropped."""
        path = self.path
        return path is not None and self._written.get(path, 0) >= MOST_BYTES

    @property
    def last(self) -> str:
        """The last lines, for people; "" when there are none."""
        rest = self._rest.decode("utf-8", "replace").strip()
        return "\n".join([*self._tail, *([rest] if rest else [])])

    def write(self, data: bytes) -> None:
        """Take in a piece. A disk that is full loses it: a log stops no work."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[-2_000:]
        self._tail.extend(line[:500].decode("utf-8", "replace") for line in lines[-TAIL:] if line.strip())
        path = self.path
        if path is None or self.full:
            return
        try:
            if path not in self._written:
                found = status(path)
                self._written[path] = found.st_size if found is not None else 0
            room = MOST_BYTES - self._written[path]
            piece = data[:room] + (b"\n[what follows was dropped]\n" if len(data) >= room else b"")
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with os.fdopen(opened(path, flags, make=True), "ab") as file:
                file.write(piece)
            self._written[path] += len(piece)
        except OSError:
            self._written[path] = MOST_BYTES

    def note(self, line: str) -> None:
        """A line of ours."""
        self.write(f"[ipyagent] {line}\n".encode("utf-8", "replace"))


PIECE = 65_536
MOST_LINE = 32_000_000
"""Bytes of one message; a server that sends a longer one is ended."""
MOST_NOISE = 16_000_000
"""Bytes in a row that are no message; then the server is ended."""
MOST_RATE = 5_000
"""Messages and bad lines a second; beyond, they are taken in more slowly, and the pipe makes the server wait."""

_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')


@asynccontextmanager
async def stdio_streams(
    entry: McpServerConfig, project: str, processes: Processes, log: ServerLog, over: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    """Start the server of an entry in a project and give its streams; `over` is told why it ended by itself.
    Raises SettingError."""
    import anyio

    running = await processes.start(entry, project)
    into, read = anyio.create_memory_object_stream[Any](0)
    write, outof = anyio.create_memory_object_stream[Any](0)

    async def reader() -> None:
        async with into:
            why = await _read(running, into.send, log)
        if not why:
            why = await _ending(running, log)
        over(why)

    async def writer() -> None:
        stdin = running.process.stdin
        if stdin is None:
            return
        async with outof:
            async for message in outof:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    stdin.write(text.encode() + b"\n")
                    await stdin.drain()
                except (OSError, RuntimeError):
                    return  # the reader tells how it ended

    tasks = [asyncio.create_task(work()) for work in (reader, writer)]
    tasks.append(asyncio.create_task(_drain(running, log)))
    try:
        yield read, write
    finally:
        read.close()
        write.close()
        try:
            await processes.end(running)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=1)
            into.close()
            outof.close()


async def _read(running: Running, send: Callable[[SessionMessage], Any], log: ServerLog) -> str:
    """Pass messages on until the output ends (""), or must be ended (why)."""
    import anyio

    stdout = running.process.stdout
    if stdout is None:
        return ""
    pieces: list[bytes] = []
    held = noise = 0
    count, began = 0, time.monotonic()
    while data := await stdout.read(PIECE):
        first, *lines = data.split(b"\n")
        pieces.append(first)
        held += len(first)
        if held > MOST_LINE:
            return f"it sent one message of more than {MOST_LINE // 1_000_000} MB"
        if not lines:
            continue
        whole, pieces = [b"".join(pieces), *lines[:-1]], [lines[-1]]
        held = len(lines[-1])
        for line in whole:
            if not line.strip():
                continue
            count += 1
            if count % 100 == 0:
                await asyncio.sleep(0)
            if count >= MOST_RATE:
                await asyncio.sleep(max(0.0, began + 1 - time.monotonic()))
                count, began = 0, time.monotonic()
            message = message_of(line)
            if message is None:
                noise += len(line)
                log.write(b"[no JSON-RPC message on its output] " + line[:2_000] + b"\n")
                if noise > MOST_NOISE:
                    return "it floods its output with what is no JSON-RPC message"
                continue
            noise = 0
            try:
                await send(message)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                return "closed"
    return ""


def message_of(line: bytes) -> SessionMessage | None:
    """The message of a line, mended where it can be: lone surrogates replaced; an answer that cannot be read
    becomes an error answer of the same id. None: no message."""
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

    with suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    try:
        value = json.loads(line.decode("utf-8", "replace"))
        if not isinstance(value, dict):
            return None
        with suppress(ValueError):
            return SessionMessage(jsonrpc_message_adapter.validate_python(clean_json(value), by_name=False))
        number = value.get("id") if "method" not in value else None
    except (ValueError, RecursionError):
        if not line.lstrip().startswith(b"{") or b'"method"' in line[:500]:
            return None
        found = _ID.search(line[:500]) or _ID.search(line[-500:])
        number = int(found[1]) if found is not None else None
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    error = ErrorData(code=-32700, message="the server's answer is not a JSON-RPC message that can be read")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))


async def _ending(running: Running, log: ServerLog) -> str:
    """How the process ended, in words."""
    with suppress(TimeoutError):
        await asyncio.wait_for(running.process.wait(), 0.3)
    status = running.process.returncode
    if status is None:
        return "it closed its output"
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    last = log.last.strip().rpartition("\n")[2]
    return f"it {how}" + (f" ({last[:300]})" if last else "")


async def _drain(running: Running, log: ServerLog) -> None:
    """Error output into the log; a full log is drained slowly."""
    stderr = running.process.stderr
    while stderr is not None and (data := await stderr.read(PIECE)):
        log.write(data)
        if log.full:
            await asyncio.sleep(0.05)
