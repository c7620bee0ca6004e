"""Kernels forked from a process that has imported what they need: importing it anew takes each three seconds.

`python forked.py FD FD` is that process, one for each process of tests: it imports, listens on the first socket, forks
for each line of JSON that comes through a connection, and ends with the second socket. Kernels end with the connection
that asked for them. What a kernel has of its own (folder, environment, sockets, threads, widgets, settings) is made
after the fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

AHEAD = (
    "ipykernel.kernelapp", "ipykernel.ipkernel", "jedi", "debugpy", "anthropic", "httpcore2", "markdown_it",
    "anyio._backends._asyncio", "opentelemetry.propagate", "ipyagent.agent", "ipyagent.extension.magics",
    "ipyagent.extension.context_report", "ipyagent.extension.surfaces", "ipyagent.extension.work_cells",
    "ipyagent.parts.memory.browsing", "ipyagent.practice.server",
)  # fmt: skip
ADDRESS = "IPYAGENT_TESTS_FORKER"
LAUNCHER = "ipykernel_launcher"
_ONE_AT_A_TIME = threading.Lock()
PATH = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]


class ForkedProvisioner(LocalProvisioner):
    """Gives a `KernelManager` a forked process in place of a started one."""

    async def launch_kernel(self, cmd: list[str], **given: Any) -> Any:
        self.process = _Process(cmd[cmd.index(LAUNCHER) + 1 :], given["env"], given["cwd"])  # type: ignore[assignment]
        self.pid = self.pgid = self.process.pid  # type: ignore[attr-defined]
        return self.connection_info


def forks(manager: Any) -> Any:
    """The manager of a kernel, which will be forked where that can be done."""
    if sys.platform == "linux":
        given = {"kernel_id": manager.kernel_id, "kernel_spec": manager.kernel_spec}
        manager.provisioner = ForkedProvisioner(**given, parent=manager)
    return manager


def executor(notebook: Any, folder: Path, **given: Any) -> Any:
    """What runs a notebook in a folder, as `jupyter execute` does, in a forked kernel."""
    from nbclient import NotebookClient

    there = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=120, resources=there, kernel_manager_class=_ForkingManager, **given)


class _ForkingManager(AsyncKernelManager):
    async def _async_pre_start_kernel(self, **given: Any) -> Any:
        if self.provisioner is None:  # that of a kernel that is restarted stays
            forks(self)
        return await super()._async_pre_start_kernel(**given)


class _Process:
    """What a provisioner needs of a `Popen`; no child of this process."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], env: dict[str, str], cwd: str | None) -> None:
        with _ONE_AT_A_TIME:
            asked = _connection()
            asked.sendall(json.dumps([arguments, env, cwd or os.getcwd()]).encode() + b"\n")
            told, descriptors, _, _ = socket.recv_fds(asked, 32, 1)
        self.pid, (self._fd,) = int(told), descriptors

    def __del__(self) -> None:
        os.close(self._fd)

    def poll(self) -> int | None:
        return 0 if select.select([self._fd], [], [], 0)[0] else None

    def wait(self) -> int:
        select.select([self._fd], [], [])
        return 0

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def in_server(folder: Path) -> Mapping[str, str]:
    """What lets a Jupyter server fork its kernels, too; in `folder` it finds the way to do it."""
    if sys.platform != "linux":
        return {}
    about = folder / "forked-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: forked\nVersion: 0\n")
    (about / "entry_points.txt").write_text("[jupyter_client.kernel_provisioners]\nforked = forked:ForkedProvisioner\n")
    path = os.pathsep.join([str(folder), str(Path(__file__).parent)])
    return {"PYTHONPATH": path, "JUPYTER_DEFAULT_PROVISIONER_NAME": "forked", ADDRESS: _forker()}


@cache
def _connection() -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect("\0" + (os.environ.get(ADDRESS) or _forker()))
    return made


@cache
def _forker() -> str:
    """The address of the process that forks."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(name := "\0" + f"ipyagent-tests-{os.getpid()}-{os.urandom(8).hex()}")
    listening.listen()
    ours, its = socket.socketpair()
    os.set_inheritable(ours.fileno(), False)
    passed = [listening.fileno(), its.fileno()]
    subprocess.Popen(
        [sys.executable, __file__, *map(str, passed)], env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)},
        pass_fds=passed, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    ours.detach()  # closed by the end of this process
    return name[1:]


def _serve(listening: socket.socket, owner: socket.socket) -> None:
    import gc
    import importlib

    for name in AHEAD:
        importlib.import_module(name)
    assert not {"ipywidgets", "numpy"} & sys.modules.keys()  # they ask for the kernel and the processors when imported
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for them
    kernels: dict[socket.socket, list[int]] = {}
    while owner not in (ready := select.select([listening, owner, *kernels], [], [])[0]):
        for each in ready:
            if each is listening:
                kernels[listening.accept()[0]] = []
            elif line := _line(each):
                if not (pid := os.fork()):
                    for known in (listening, owner, *kernels):
                        known.close()
                    _become(*json.loads(line))
                kernels[each].append(watched := os.pidfd_open(pid))
                socket.send_fds(each, [str(pid).encode()], [watched])
            else:
                _end(kernels.pop(each))
    for pids in kernels.values():
        _end(pids)


def _line(asked: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n") and (more := asked.recv(65536)):
        found += more
    return found


def _end(watched: list[int]) -> None:
    for each in watched:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(each, signal.SIGKILL)
        os.close(each)


def _become(arguments: list[str], env: dict[str, str], cwd: str) -> None:
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [f"{LAUNCHER}.py", *arguments]
    its = [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [*its, *(each for each in sys.path if each not in PATH)]
    IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
    sys.exit()  # what is registered for the end of a process is done


if __name__ == "__main__":
    _serve(*(socket.socket(fileno=int(given)) for given in sys.argv[1:]))
