"""The child processes of one run: what code started is ended with it when the user stops it."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


class Brood:
    """The direct children that exist when it is made are not the run's; those that come later are.

    Making one takes 1-2 ms. A pool or server started by an earlier run survives.
    """

    def __init__(self) -> None:
        import psutil

        self._before = frozenset(psutil.Process().children())
        self._group = _group()
        self._told: set[psutil.Process] = set()

    def gather(self) -> list[psutil.Process]:
        """The run's children and all their descendants that live now. To be called before anything is
        ended: the children of one that has ended are nobody's. A few milliseconds."""
        import psutil

        pause = sys.getswitchinterval()
        sys.setswitchinterval(0.0001)  # beside a busy loop each of the hundred small reads would wait 5 ms
        try:
            return self._family()
        except psutil.Error:
            return []
        finally:
            sys.setswitchinterval(pause)

    def end(self, family: list[psutil.Process]) -> None:
        """Ask `family` to end (SIGTERM); whoever is still there at the next call is killed. Never waits."""
        import psutil

        for process in {*family, *self._told}:
            try:
                if process in self._told:
                    process.kill()
                else:
                    process.terminate()
            except psutil.Error:
                continue  # it has ended, or was never ours to end
        self._told.update(family)

    def bury(self, patience: float = 0.05) -> None:
        """End whoever is left of the run, by force after `patience` seconds. For a run that has ended."""
        family = self.gather()
        self.end(family)
        deadline = time.monotonic() + patience
        # looked at, not waited for: a wait would take the exit status from the user's Popen object
        while (family := [process for process in family if _lives(process)]) and time.monotonic() < deadline:
            time.sleep(0.002)
        self.end(family)  # told before: killed now

    def _family(self) -> list[psutil.Process]:
        import psutil

        mine = [child for child in psutil.Process().children() if child not in self._before]
        spared = _resource_tracker()
        family: list[psutil.Process] = []
        for child in mine:
            if child.pid == spared:
                continue
            try:
                family += [*child.children(recursive=True), child]
            except psutil.Error:
                family.append(child)
        # a shell that an interrupt ended first leaves its background jobs to init, but in our group
        group = _group()
        for pid in group - self._group - {process.pid for process in family}:
            try:
                orphan = psutil.Process(pid)
                if orphan.ppid() != os.getpid() and orphan.ppid() not in group:
                    family.append(orphan)
            except psutil.Error:
                continue
        return family


def _lives(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _group() -> frozenset[int]:
    """The other processes of our process group, where it is ours: a kernel leads one, a script may not."""
    import psutil

    if not hasattr(os, "getpgrp") or os.getpgrp() != os.getpid():
        return frozenset()
    members = set()
    for pid in psutil.pids():
        try:
            if os.getpgid(pid) == os.getpid() and pid != os.getpid():
                members.add(pid)
        except OSError:
            continue  # ended meanwhile
    return frozenset(members)


def _resource_tracker() -> int:
    """multiprocessing's own keeper of shared memory: ended by force it only complains and returns."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return int(getattr(getattr(module, "_resource_tracker", None), "_pid", None) or 0)
