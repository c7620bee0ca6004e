"""From a name to what answers: our own servers start once, again with another window, and stop."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

import pytest
from model_room import KEY, answers, request, said

from ipyagent.model.client_pool import Connections
from ipyagent.model.endpoint import Endpoint
from ipyagent.practice.server import PracticeServer


def test_the_practice_server_starts_once_and_stops_with_the_connections() -> None:
    async def use() -> None:
        connections = Connections()
        model = connections.get("practice", Endpoint(api_key=KEY))
        assert connections.get("practice", Endpoint(api_key=KEY)) is model
        assert said(await answers(model, request(model="practice")))
        assert connections.server("practice") is not None
        await connections.close()
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{model.endpoint.base_url}/v1/models", timeout=2)

    asyncio.run(use())


def test_nobody_else_reaches_the_practice_server_and_it_keeps_no_bodies() -> None:
    async def use() -> None:
        connections = Connections()
        model = connections.get("practice", Endpoint(api_key=KEY))
        assert said(await answers(model, request(model="practice")))
        server = connections.server("practice")
        assert isinstance(server, PracticeServer)
        assert [exchange.body for exchange in server.messages] == [None]
        for headers, status in (
            ({"x-api-key": KEY}, 401),
            ({"x-api-key": "none"}, 401),
            ({"x-api-key": server.api_key or "", "host": "evil.example:80"}, 403),
        ):
            wanted = urllib.request.Request(f"{server.url}/v1/models", headers=headers)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(wanted, timeout=5)
            assert refused.value.code == status
        await connections.close()

    asyncio.run(use())


def test_another_window_starts_the_server_anew() -> None:
    async def use() -> None:
        connections = Connections()
        first = connections.get("practice", Endpoint())
        second = connections.get("practice", Endpoint(window=9_000))
        assert first.endpoint.base_url != second.endpoint.base_url
        server = connections.server("practice")
        assert server.window == 9_000
        assert (await second.info("practice")).window == 9_000
        await connections.close()

    asyncio.run(use())


def test_models_of_one_server_share_a_connection_and_what_was_learnt() -> None:
    connections = Connections()
    endpoint = Endpoint(base_url="http://127.0.0.1:9", api_key=KEY)
    assert connections.get("one", endpoint) is connections.get("two", endpoint)
