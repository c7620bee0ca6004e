"""The child processes of one run: what code started is ended with it when the user stops it."""

from __future__ import annotations

import sys
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
        return family


def _resource_tracker() -> int:
    """multiprocessing's own keeper of shared memory: ended by force it only complains and returns."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return int(getattr(getattr(module, "_resource_tracker", None), "_pid", None) or 0)
