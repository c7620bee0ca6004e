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

    def end(self) -> int:
        """Ask the run's children and their descendants to end (SIGTERM); whoever is still there at
        the next call is killed. Returns how many there were. Never waits."""
        import psutil

        try:
            mine = [child for child in psutil.Process().children() if child not in self._before]
        except psutil.Error:
            return 0
        spared = _resource_tracker()
        family: list[psutil.Process] = []
        for child in mine:
            if child.pid == spared:
                continue
            try:
                family += [*child.children(recursive=True), child]
            except psutil.Error:
                family.append(child)
        # those told before may have lost their parent since and are then nobody's children any more
        family += [process for process in self._told if process not in family]
        for process in family:
            try:
                if process in self._told:
                    process.kill()
                else:
                    process.terminate()
            except psutil.Error:
                continue  # it has ended, or was never ours to end
        self._told.update(family)
        return len(family)


def _resource_tracker() -> int:
    """multiprocessing's own keeper of shared memory: ended by force it only complains and returns."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return int(getattr(getattr(module, "_resource_tracker", None), "_pid", None) or 0)
