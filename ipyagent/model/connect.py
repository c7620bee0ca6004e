"""From a model's name to something that answers: the real API, a server nearby, or one of our own."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import msgspec

from ipyagent.errors import NoCredentials
from ipyagent.journal.protocols import ModelInfo
from ipyagent.model.capabilities import Capabilities
from ipyagent.model.client import AnthropicModel, has_credentials
from ipyagent.model.endpoint import HINT, Endpoint

PRACTICE = "practice"
LOCAL = "local:"


class OwnServer(Protocol):
    """A server that runs in this process."""

    @property
    def url(self) -> str: ...

    @property
    def window(self) -> int: ...

    @property
    def api_key(self) -> str | None: ...

    def stop(self) -> None: ...


class Connections:
    """The models in use, one for each endpoint; our own servers start with their first use and
    stop with `close`. One a kernel."""

    def __init__(self) -> None:
        self._models: dict[Endpoint, AnthropicModel] = {}
        self._servers: dict[str, OwnServer] = {}
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

    def server(self, name: str) -> OwnServer | None:
        """Our own server of that name, when it runs."""
        return self._servers.get(name)

    def _serve(self, name: str, window: int) -> OwnServer:
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


def _start(name: str, window: int) -> OwnServer:
    if name == PRACTICE:
        from ipyagent.practice.model.understanding import answer
        from ipyagent.practice.server import PracticeServer

        key = secrets.token_urlsafe(24)  # other users of this machine, and pages, must not reach it
        return PracticeServer(brain=answer, window=window or 200_000, api_key=key, keep_bodies=False).start()
    from ipyagent.model.local import LocalServer

    return LocalServer(Path(name.removeprefix(LOCAL)).expanduser(), window=window)
