"""Kernels forked from a process that has imported what they need: importing it anew takes each three seconds.

`python forked.py FD` is that process: it imports, then forks for each line of JSON that comes through the socket FD,
and ends with it, its kernels too. What a kernel has of its own (folder, environment, sockets, threads, widgets,
settings) is made after the fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from jupyter_client.provisioning import LocalProvisioner

AHEAD = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "jedi", "debugpy", "anthropic", "httpcore2", "markdown_it",
    "anyio._backends._asyncio", "opentelemetry.propagate", "ipyagent.agent", "ipyagent.extension.magics",
    "ipyagent.extension.context_report", "ipyagent.extension.surfaces", "ipyagent.extension.work_cells",
    "ipyagent.parts.memory.browsing", "ipyagent.practice.server",
)  # fmt: skip


class ForkedProvisioner(LocalProvisioner):
    """Gives a `KernelManager` a forked process in place of a started one."""

    async def launch_kernel(self, cmd: list[str], **given: Any) -> Any:
        self.process = _Process(cmd[cmd.index("ipykernel_launcher") + 1 :], given["env"], given["cwd"])  # type: ignore[assignment]
        self.pid = self.pgid = self.process.pid  # type: ignore[attr-defined]
        return self.connection_info


class _Process:
    """What a provisioner needs of a `Popen`; no child of this process."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], env: dict[str, str], cwd: str | None) -> None:
        ours = _forker()
        ours.sendall(json.dumps([arguments, env, cwd or os.getcwd()]).encode() + b"\n")
        told, descriptors, _, _ = socket.recv_fds(ours, 32, 1)
        self.pid, (self._fd,) = int(told), descriptors

    def __del__(self) -> None:
        os.close(self._fd)

    def poll(self) -> int | None:
        return 0 if select.select([self._fd], [], [], 0)[0] else None

    def wait(self) -> int:
        select.select([self._fd], [], [])
        return 0

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _forker() -> socket.socket:
    """The process that forks, one for each process of tests."""
    ours, its = socket.socketpair()
    path = os.pathsep.join(map(str, (Path(__file__).parents[2], Path(__file__).parent)))
    argv = [sys.executable, __file__, str(its.fileno())]
    subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": path}, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
    its.close()
    return ours


def _serve(asked: socket.socket) -> None:
    import gc
    import importlib
    import threading

    for name in AHEAD:
        importlib.import_module(name)
    # these know a kernel when they are imported
    assert not {"ipywidgets", "numpy", "zmq.asyncio.context"} & sys.modules.keys()
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for them
    for line in asked.makefile("rb"):
        pid = os.fork()
        if not pid:
            asked.close()
            _become(*json.loads(line))
        watched = os.pidfd_open(pid)
        socket.send_fds(asked, [str(pid).encode()], [watched])
        os.close(watched)


def _become(arguments: list[str], env: dict[str, str], cwd: str) -> None:
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["ipykernel_launcher.py", *arguments]
    sys.path.remove(str(Path(__file__).parent))  # where this file is; it stays as one of PYTHONPATH
    try:
        IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
    finally:
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
