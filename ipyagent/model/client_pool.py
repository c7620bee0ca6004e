"""From a model's name to something that answers: the real API, a server nearby, or one of our own."""

from __future__ import annotations

import json
import os
import secrets
import urllib.request
import weakref
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ipyagent.errors import NoCredentials, SettingError
from ipyagent.journal.protocols import ModelInfo
from ipyagent.model.capabilities import Capabilities, split_suffix
from ipyagent.model.client import AnthropicModel, has_credentials
from ipyagent.model.endpoint import HINT, Endpoint

if TYPE_CHECKING:
    from ipyagent.practice.server import PracticeServer

PRACTICE = "practice"
LOCAL = "local:"


class Connections:
    """The models in use, one for each endpoint; our own servers start with their first use and
    stop with `close`. One a kernel."""

    def __init__(self) -> None:
        self._models: dict[Endpoint, AnthropicModel] = {}
        self._servers: dict[str, PracticeServer | LocalServer] = {}
        self._asked: dict[str, int] = {}
        """The window that each server was started with."""
        self._capabilities = Capabilities()

    def get(self, name: str, endpoint: Endpoint) -> AnthropicModel:
        """What answers as `name`. Raises NoCredentials (the three-line hint) or SettingError."""
        own = name == PRACTICE or name.startswith(LOCAL)
        if own:
            server = self._serve(name, endpoint.window)
            window = server.window if name.startswith(LOCAL) else endpoint.window
            endpoint = msgspec.structs.replace(
                endpoint, base_url=server.url, api_key=server.api_key or "none", provider="anthropic", window=window
            )
        elif not has_credentials(endpoint):
            raise NoCredentials(HINT, kind="credentials")
        if endpoint not in self._models:
            self._models[endpoint] = AnthropicModel(endpoint, self._capabilities)
        return self._models[endpoint]

    def known(self, name: str, wanted: Endpoint) -> ModelInfo | None:
        """What is known of a model that was used before at this server and with this setting of its window; None for no
        such."""
        own = self._servers.get(name)
        address = wanted.base_url if own is None else own.url
        for endpoint, model in reversed(self._models.items()):
            info = model.known(name)
            same = endpoint.base_url == address and (own is not None or endpoint.provider == wanted.provider)
            if info is not None and same and (endpoint.window == wanted.window or name.startswith(LOCAL)):
                return info
        return None

    def unlisted(self, name: str, wanted: Endpoint) -> list[str]:
        """The models that this server has listed, when `name` is none of them; [] when it is, or no list is known."""
        for endpoint, model in reversed(self._models.items()):
            same = endpoint.base_url == wanted.base_url and endpoint.provider == wanted.provider
            names = model.listed() if same and name != PRACTICE and not name.startswith(LOCAL) else []
            if names:
                bare = split_suffix(name)[0]
                return [] if bare in names or f"{bare}:latest" in names else names
        return []

    def server(self, name: str) -> PracticeServer | LocalServer | None:
        """Our own server of that name, when it runs."""
        return self._servers.get(name)

    def _serve(self, name: str, window: int) -> PracticeServer | LocalServer:
        """The server of that name; started anew when the setting of its window has changed."""
        if name in self._servers and self._asked[name] != window:
            self._servers.pop(name).stop()
        if name not in self._servers:
            self._servers[name], self._asked[name] = _start(name, window), window
        return self._servers[name]

    async def close(self) -> None:
        """Close every connection and stop our own servers."""
        async with AsyncExitStack() as steps:  # one that cannot be closed keeps none of the others
            while self._servers:
                steps.callback(self._servers.popitem()[1].stop)
            while self._models:
                steps.push_async_callback(self._models.popitem()[1].close)


def _start(name: str, window: int) -> PracticeServer | LocalServer:
    if name == PRACTICE:
        from ipyagent.practice.model import answer, extract
        from ipyagent.practice.server import PracticeServer

        key = secrets.token_urlsafe(24)  # other users of this machine, and pages, must not reach it
        server = PracticeServer(answer, window=window or 200_000, api_key=key, keep_bodies=False, summarise=extract)
        return server.start()

    return LocalServer(Path(name.removeprefix(LOCAL)).expanduser(), window=window)


# ------------------------------------------------------------------ local
# A GGUF file on this machine, served by llama.cpp's own Messages API inside the process (extra `local`).


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
            raise SettingError("local models need an extra: pip install 'ipyagent[local]'") from None
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
            raise SettingError(
                f"{path} could not be loaded ({problem}): check that it is a complete .gguf file"
            ) from None
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
