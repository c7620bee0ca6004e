"""Every process that a command started, found and ended: its session, its descendants, and those
that left both, by a mark in their environment."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

MARK = "IPYAGENT_COMMAND"
"""Environment variable with the command's own random mark."""
PATIENCE = 0.1
"""Seconds between asking a process to end and ending it."""


def of_command(leader: int, mark: str, since: float) -> list[psutil.Process]:
    """The live processes of the command whose first process is `leader`, started after `since`
    (Unix time), that one included."""
    import psutil

    found: dict[int, psutil.Process] = {}
    try:
        first = psutil.Process(leader)
        if first.create_time() >= since - 1:
            found = {process.pid: process for process in (first, *first.children(recursive=True))}
    except psutil.Error:
        pass  # it has ended; what it started is found below
    for process in psutil.process_iter():
        if process.pid in found or process.pid == os.getpid():
            continue
        try:
            # One second: create_time has the clock's grain.
            if process.create_time() >= since - 1 and (
                _session(process.pid) == leader or process.environ().get(MARK) == mark
            ):
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or another user's
    return [process for process in found.values() if _alive(process)]


def end(leader: int, mark: str, since: float) -> None:
    """End them all: ask, wait up to 0.1 s, then kill. Blocks no longer than about 0.2 s."""
    import psutil

    processes = of_command(leader, mark, since)
    for process in processes:
        try:
            process.terminate()
        except psutil.Error:
            continue
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and any(_alive(process) for process in processes):
        time.sleep(0.005)
    # Looked up again: a process may have started another while it was asked to end.
    for process in of_command(leader, mark, since):
        try:
            process.kill()
        except psutil.Error:
            continue


def _session(pid: int) -> int:
    return os.getsid(pid) if hasattr(os, "getsid") else -1


def _alive(process: psutil.Process) -> bool:
    # psutil's own waiting would take the exit status away from asyncio.
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
