"""A GGUF file on this machine, served by llama.cpp's own Messages API inside the process (extra `local`)."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from ipyagent.errors import SettingError


class LocalServer:
    """llama.cpp's server on a random loopback port, from `xllamacpp`; loads in under a second for
    small files. `window` in tokens (0: the file's own). Raises SettingError when the extra or the
    file is missing."""

    def __init__(self, path: Path, *, window: int = 0) -> None:
        if not path.is_file():
            raise SettingError(f"no model file {path}: give the path of a .gguf file, as in local:~/models/m.gguf")
        try:
            import xllamacpp
        except ImportError:
            raise SettingError("local models need the extra: pip install 'ipyagent[local]'") from None
        parameters: Any = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.hostname = "127.0.0.1"
        parameters.port = _free_port()
        parameters.n_parallel = 1
        if window:
            parameters.n_ctx = window
        self._server: Any = xllamacpp.Server(parameters)
        self.url = f"http://127.0.0.1:{parameters.port}"

    def stop(self) -> None:
        """Let go of the server; its threads end with it."""
        self._server = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
