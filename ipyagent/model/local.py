"""A GGUF file on this machine, served by llama.cpp's own Messages API inside the process (extra `local`)."""

from __future__ import annotations

import json
import os
import urllib.request
import weakref
from pathlib import Path
from typing import Any

from ipyagent.errors import SettingError

MAGIC = b"GGUF"
QUIET = 0
"""llama.cpp's verbosity: it writes to the process's stderr, and what fails is said in our own words."""


class LocalServer:
    """llama.cpp's server on a random loopback port, from `xllamacpp`; loads in under a second for
    small files. `window` in tokens as given, or the file's own (0). Raises SettingError when the
    extra or the file is missing, or the file cannot be loaded."""

    def __init__(self, path: Path, *, window: int = 0) -> None:
        self.path = path
        _check(path)
        try:
            import xllamacpp
        except ImportError:
            raise SettingError("local models need the extra: pip install 'ipyagent[local]'") from None
        parameters: Any = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.hostnames = ["127.0.0.1"]
        parameters.port = 0
        parameters.n_parallel = 1
        parameters.n_ctx = window
        parameters.verbosity = QUIET
        parameters.ui = False
        # One core stays for the kernel: llama.cpp's threads wait by spinning, and a shared core costs
        # more than it gives (40 tokens on two busy cores: 4.0 s with two threads, 1.4 s with one).
        threads = max(1, (os.cpu_count() or 2) - 1)
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        try:
            server: Any = xllamacpp.Server(parameters)
        except Exception as problem:  # noqa: BLE001 - a native library names its failures as it likes
            raise SettingError(f"{path} could not be loaded ({problem}): check that it is a whole .gguf file") from None
        # Nothing but this list holds the server: its threads end when it is let go.
        self._held: list[Any] = [server]
        self._end = weakref.finalize(self, self._held.clear)
        self.url: str = str(server.listening_address)
        self.window = _window_of(self.url) or window
        self.api_key: str | None = None

    def __repr__(self) -> str:
        return f"<LocalServer {self.path.name} {self.url if self._held else 'stopped'}>"

    def stop(self) -> None:
        """End the server and its threads; waits for them. Idempotent."""
        self._end()


def _check(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError as problem:
        raise SettingError(
            f"no model file {path} ({problem.strerror}): give the path of a .gguf file, as in local:~/models/m.gguf"
        ) from None
    if head != MAGIC:
        raise SettingError(f"{path} is not a GGUF file: choose a .gguf file of llama.cpp")


def _window_of(url: str) -> int:
    """Tokens of a slot's window, as the server says; 0 when it does not."""
    try:
        with urllib.request.urlopen(f"{url}/props", timeout=5) as answer:
            told = json.load(answer)["default_generation_settings"]["n_ctx"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return told if isinstance(told, int) and told > 0 else 0
