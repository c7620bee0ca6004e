"""From a model's name to something that answers: the real API, a server nearby, or one of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from ipyagent.errors import NoCredentials
from ipyagent.model.capabilities import Capabilities
from ipyagent.model.client import AnthropicModel, has_credentials
from ipyagent.model.endpoint import HINT, Endpoint

PRACTICE = "practice"
LOCAL = "local:"
DEFAULT_MODEL = "claude-sonnet-5-5"


class OwnServer(Protocol):
    """A server that runs in this process."""

    @property
    def url(self) -> str: ...

    def stop(self) -> None: ...


class Connections:
    """The models in use, one for each endpoint; our own servers start with their first use and
    stop with `close`. One a kernel."""

    def __init__(self) -> None:
        self._models: dict[Endpoint, AnthropicModel] = {}
        self._servers: dict[str, OwnServer] = {}
        self._capabilities = Capabilities()

    def get(self, name: str, endpoint: Endpoint) -> AnthropicModel:
        """What answers as `name`. Raises NoCredentials (the three-line hint) or SettingError."""
        own = name == PRACTICE or name.startswith(LOCAL)
        if own:
            endpoint = msgspec.structs.replace(
                endpoint, base_url=self._serve(name, endpoint.window), api_key="none", provider="anthropic"
            )
        elif not has_credentials(endpoint):
            raise NoCredentials(HINT, kind="credentials")
        if endpoint not in self._models:
            self._models[endpoint] = AnthropicModel(endpoint, self._capabilities)
        return self._models[endpoint]

    def server(self, name: str) -> OwnServer | None:
        """Our own server of that name, when it runs."""
        return self._servers.get(name)

    def _serve(self, name: str, window: int) -> str:
        if name not in self._servers:
            if name == PRACTICE:
                from ipyagent.practice.server import PracticeServer
                from ipyagent.practice.understanding import answer

                practice = PracticeServer(brain=answer, window=window or 200_000)
                practice.start()
                self._servers[name] = practice
            else:
                from ipyagent.model.local import LocalServer

                self._servers[name] = LocalServer(Path(name.removeprefix(LOCAL)).expanduser(), window=window)
        return self._servers[name].url

    async def close(self) -> None:
        """Close every connection and stop our own servers."""
        for model in self._models.values():
            await model.close()
        self._models.clear()
        for server in self._servers.values():
            server.stop()
        self._servers.clear()
