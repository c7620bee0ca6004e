"""Ends the servers of a kernel that was killed: a process of its own, with nothing but the standard library.

It reads lines from its input, `+PID MARK` for a server that was started and `-PID MARK` for one that ended. When the
input ends, or its parent is another one, it ends the process groups that are left, and on Linux every process
with one of the marks in its environment. Run as a script; importing it does nothing.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

MARK = "IPYAGENT_COMMAND"
PATIENCE = 1.0
"""Seconds from asking to killing."""


def watch() -> None:
    parent, servers, rest = os.getppid(), dict[int, str](), b""
    while os.getppid() == parent:
        if not select.select([0], [], [], 1.0)[0]:
            continue
        data = os.read(0, 65_536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            pid, _, mark = line[1:].decode("ascii", "replace").partition(" ")
            if line[:1] == b"+":
                servers[int(pid)] = mark
            else:
                servers.pop(int(pid), None)
    if servers:
        _end(servers, signal.SIGTERM)
        time.sleep(PATIENCE)
        _end(servers, getattr(signal, "SIGKILL", signal.SIGTERM))


def _end(servers: dict[int, str], how: signal.Signals) -> None:
    found = _marked(set(servers.values()))
    for pid in servers:
        # The group's number is not given away while one of it lives; one that is gone is no longer the server's.
        if found is None or any(_group(one) == pid for one in found):
            with suppress(OSError):
                if sys.platform != "win32":
                    os.killpg(pid, how)
    for pid in found or ():
        with suppress(OSError):
            os.kill(pid, how)


def _group(pid: int) -> int:
    if sys.platform != "win32":
        with suppress(OSError):
            return os.getpgid(pid)
    return -1


def _marked(marks: set[str]) -> list[int] | None:
    """Processes with one of the marks; None where that cannot be told."""
    wanted = [f"{MARK}={mark}".encode() for mark in marks]
    found: list[int] = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return None
    if not os.path.exists("/proc/self/environ"):
        return None
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    held = file.read().split(b"\0")
            except OSError:
                continue
            if any(one in held for one in wanted):
                found.append(int(name))
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch()
