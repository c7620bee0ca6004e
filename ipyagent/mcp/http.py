"""The streamable HTTP transport: the SDK's, with the entry's headers and bounded answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ipyagent.mcp.entries import Entry
from ipyagent.mcp.stdio import MOST_LINE

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

CONNECT = 15.0
"""Seconds for connecting, sending and a free connection."""


@asynccontextmanager
async def http_streams(entry: Entry, timeout: float) -> AsyncIterator[TransportStreams]:
    """Streams to the server at an entry's address; `timeout` seconds of silence end an answer."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Bounded(httpx2.AsyncByteStream):
        """Bytes of one answer, `MOST_LINE` at most."""

        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            count = 0
            async for piece in self._stream:
                count += len(piece)
                if count > MOST_LINE:
                    raise httpx2.ReadError(f"the server's answer has more than {MOST_LINE // 1_000_000} MB")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: httpx2.Response) -> None:
        if not response.headers.get("content-type", "").startswith("text/event-stream") and isinstance(
            response.stream, httpx2.AsyncByteStream
        ):
            response.stream = Bounded(response.stream)

    async with (
        httpx2.AsyncClient(
            headers=entry.headers,
            timeout=httpx2.Timeout(CONNECT, read=timeout + 5),
            event_hooks={"response": [bound]},
        ) as client,
        streamable_http_client(entry.url, http_client=client, max_sse_event_size=MOST_LINE) as streams,
    ):
        yield streams
