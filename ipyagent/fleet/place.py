"""The working directory of a worker process is the agents' folder while tasks run there, and its own again after."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def here() -> str:
    """This process, as no other on any machine is called."""
    return f"{platform.node()}:{os.getpid()}"


class WorkingDirectory:
    """The directory belongs to the process: the first task goes there, the last one back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks = 0
        self._before = ""

    @contextmanager
    def within(self, folder: str, caller: str) -> Iterator[None]:
        """Work in `folder`; in the caller's own process the directory is the user's and stays."""
        if caller == here():
            yield
            return
        with self._lock:
            if not self._tasks:
                self._before = os.getcwd()
                os.chdir(folder)
            self._tasks += 1
        try:
            yield
        finally:
            with self._lock:
                self._tasks -= 1
                if not self._tasks:
                    os.chdir(self._before)


PLACE = WorkingDirectory()
"""The process's own."""
