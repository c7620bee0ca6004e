"""One server: a task of its own on the agent thread's loop opens the connection, keeps it and closes it again.

Calls run in tasks of their own, so that a stop or a time-out never waits for the server. A server that ends by
itself is started once more, at the next call or turn; after that its tools answer with an error until the user
restarts it. One at an address is connected anew whenever it is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ipyagent.errors import AgentError, SettingError, ToolFailure
from ipyagent.journal.journal import clean
from ipyagent.parts.mcp.entries import PROJECT, McpServerConfig, expanded
from ipyagent.parts.mcp.listing import Mended, OfferedTool, listed
from ipyagent.parts.mcp.stdio import MOST_LINE, Processes, ServerLog, stdio_streams

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp_types import CallToolResult

State: TypeAlias = Literal["off", "starting", "ready", "failed", "lost"]
"""Not started yet or stopped; on its way; serving; it never came up; it was ready and ended by itself."""
Heard: TypeAlias = Callable[[str], None]

RESTARTS = 1
STRETCH = 10
"""Progress puts a call's time-out off, up to so many times its length."""
PROGRESS_EVERY = 0.5
"""Seconds between two lines of progress."""


class Server:
    """The server of an entry. `timeout` and `startup` in seconds, where the entry does not say. All methods
    are called on the agent thread's loop."""

    def __init__(
        self,
        entry: McpServerConfig,
        processes: Processes,
        log: ServerLog,
        *,
        timeout: float,
        startup: float,
        project: str,
    ) -> None:
        self.entry = entry
        self.log = log
        self.state: State = "off"
        self.problem = ""
        self.tools: tuple[OfferedTool, ...] = ()
        """As they were listed last; they stay when the server ends."""
        self.about = ""
        """What the server calls itself, and the version of the protocol."""
        self.timeout = entry.timeout or timeout
        self._project = project
        self._startup = entry.startup_timeout or startup
        self._processes = processes
        self._restarts = 0
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._over = asyncio.Event()
        self._settled = asyncio.Event()
        self._stale = False
        self.mended = Mended()

    def __repr__(self) -> str:
        return f"<MCP server {self.entry.name} {self.state}, {len(self.tools)} tools>"

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Begin to connect, unless it is on its way or ready."""
        if self._task is not None and not self._task.done():
            return
        self.state, self.problem = "starting", ""
        self._over, self._settled = asyncio.Event(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._live(), name=f"mcp {self.entry.name}")

    async def settled(self) -> None:
        """Wait until it is ready or has failed; starts nothing."""
        if self.state == "starting":
            await self._settled.wait()

    async def stop(self) -> None:
        """Close the connection and end the process; safe to call at any time."""
        task = self._task
        if task is None or task.done():
            self.state = "off"
            return
        if self.state == "starting":
            task.cancel()
        self._over.set()
        await asyncio.wait({task}, timeout=4)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=2)
        self.state = "off"

    async def renew(self) -> None:
        """Stop and start again, on the user's word."""
        await self.stop()
        self._restarts = 0
        self.start()
        await self.settled()

    async def refresh(self) -> None:
        """Before a turn: start again what ended; list the tools anew if the server says they changed."""
        if self._over.is_set() and self._task is not None:
            await asyncio.wait({self._task}, timeout=4)
        if (self.state == "lost" or (self.state == "failed" and self.tools)) and self._may_restart():
            self.start()
        elif self.state == "ready" and self._stale and self._client is not None:
            self._stale = False
            with contextlib.suppress(Exception):  # the old list stays; a call will tell what is wrong
                async with asyncio.timeout(self._startup):
                    self.tools = await listed(self._client)

    def _may_restart(self) -> bool:
        if self.entry.url:
            return True
        if self._restarts >= RESTARTS:
            return False
        self._restarts += 1
        return True

    async def _live(self) -> None:
        """The connection from its opening to its end, in this one task (its cancel scopes ask for that)."""
        task = asyncio.current_task()
        was_ready = False
        try:
            async with asyncio.timeout(self._startup) as clock, self._connected() as client:
                self.tools = await listed(client)
                info = client.server_info
                called = clean(f"{info.name} {info.version}") if info is not None else ""
                self.about = f"{called[:80]} protocol {client.protocol_version}".strip()
                clock.reschedule(None)
                self._client, self.state, was_ready = client, "ready", True
                self._settled.set()
                await self._over.wait()
        except TimeoutError:
            self.problem = f"it did not answer within {self._startup:g} s"
        except asyncio.CancelledError:
            self.problem = self.problem or "stopped"
            if task is not None and task.cancelling():
                raise
        except BaseException as problem:  # noqa: BLE001 - whatever a foreign server or the SDK makes of it: it is told
            self.problem = self.problem or reason_of(problem)
        finally:
            self._client = None
            self.state = "lost" if was_ready else "failed"
            if self.problem:
                self.log.note(self.problem)
            self._over.set()
            self._settled.set()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        from mcp import Client
        from mcp_types import Implementation, ToolListChangedNotification

        from ipyagent.version import __version__

        logger = logging.getLogger("mcp")
        if not logger.handlers:  # its log goes where the user sends it, else nowhere: not into the notebook
            logger.addHandler(logging.NullHandler())
        entry = expanded(self.entry, {**os.environ, PROJECT: self._project})
        streams: contextlib.AbstractAsyncContextManager[TransportStreams]
        if entry.url:
            streams = http_streams(entry, self.timeout)
        else:
            streams = stdio_streams(entry, self._project, self._processes, self.log, self._ended)
        self.mended = Mended()

        @asynccontextmanager
        async def mending(
            streams: contextlib.AbstractAsyncContextManager[TransportStreams],
        ) -> AsyncIterator[TransportStreams]:
            async with streams as both:
                yield self.mended.streams(both)

        async def heard(message: Any) -> None:
            self._stale |= isinstance(message, ToolListChangedNotification)

        async with Client(
            mending(streams),
            client_info=Implementation(name="ipyagent", version=__version__),
            message_handler=heard,
            cache=None,
        ) as client:
            yield client

    def _ended(self, why: str) -> None:
        """The transport ended by itself."""
        if not self._over.is_set():
            self.problem = why
            self._over.set()

    # ------------------------------------------------------------------ calls

    async def call(self, tool: str, arguments: dict[str, Any], heard: Heard) -> CallToolResult:
        """Call a tool; `heard` gets lines of progress. Raises ToolFailure. Cancelling returns at once, the server
        is told."""
        from mcp_types import CONNECTION_CLOSED

        client = await self._ready()
        over = self._over
        until = time.monotonic() + self.timeout
        most = time.monotonic() + self.timeout * STRETCH
        told = 0.0

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal until, told
            now = time.monotonic()
            until = min(now + self.timeout, most)
            if now - told >= PROGRESS_EVERY:
                told = now
                amount = f"{progress:g} of {total:g}" if total else f"{progress:g}"
                heard(f"{clean(message)[:200]} ({amount})\n" if message else f"{amount}\n")

        work = asyncio.create_task(client.call_tool(tool, arguments, progress_callback=on_progress))
        gone = asyncio.create_task(over.wait())
        try:
            while not work.done():
                left = until - time.monotonic()
                if left <= 0:
                    raise ToolFailure(
                        f"The MCP server {self.entry.name} did not answer within {self.timeout:g} s. "
                        "The call was given up; whether it had an effect is not known."
                    )
                await asyncio.wait({work, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if gone.done() and not work.done():
                    await asyncio.wait({work}, timeout=0.2)
                    break
            if not work.done():
                raise self._died()
            return work.result()
        except (ToolFailure, asyncio.CancelledError):
            raise
        except Exception as problem:  # noqa: BLE001 - whatever the SDK makes of an answer is the call's result
            # the SDK says that there is no connection any more; servers use the same code for other errors
            if getattr(problem, "code", None) == CONNECTION_CLOSED and str(problem) == "Connection closed":
                await asyncio.wait({gone}, timeout=0.5)  # the transport knows more of it
                self._ended("the connection was lost")
            if over.is_set():
                raise self._died() from None
            said = reason_of(problem)
            raise ToolFailure(f"The MCP server {self.entry.name} answered with an error: {said}") from None
        finally:
            gone.cancel()
            work.cancel()
            # nobody waits for it any more: its exception is looked at, so that nothing is printed
            work.add_done_callback(lambda task: None if task.cancelled() else task.exception())

    def _died(self) -> ToolFailure:
        more = self.entry.url or self._restarts < RESTARTS
        again = "it is started again at the next call" if more else "it stays off"
        return ToolFailure(
            f"The MCP server {self.entry.name} ended during the call: {self.problem or 'the connection was lost'}. "
            f"Whether the call had an effect is not known; {again}."
        )

    async def _ready(self) -> Client:
        if self._over.is_set() and self._task is not None and not self._task.done():
            await asyncio.wait({self._task}, timeout=4)  # it ended by itself and is being closed
        if self.state == "off" or (self.state in ("lost", "failed") and self._may_restart()):
            self.start()
        await self.settled()
        if self._client is None or self.state != "ready":
            raise ToolFailure(
                f"The MCP server {self.entry.name} is not running: {self.problem or 'stopped'}. Go on without it, or "
                f"ask the user for `%agent mcp restart {self.entry.name}`."
            )
        return self._client


def reason_of(problem: BaseException) -> str:
    """What went wrong, in one line: the first real exception of a group."""
    while isinstance(problem, BaseExceptionGroup) and problem.exceptions:
        problem = problem.exceptions[0]
    text = " ".join(clean(str(problem)).split())[:1_000].rstrip(".")
    if isinstance(problem, (AgentError, SettingError)):
        return text
    kind = type(problem).__name__
    return text if kind == "MCPError" and text else f"{kind}: {text}" if text else kind


# ------------------------------------------------------------------ http
# The streamable HTTP transport: the SDK's, with the entry's headers and bounded answers.


CONNECT = 15.0
"""Seconds for connecting, sending and a free connection."""


@asynccontextmanager
async def http_streams(entry: McpServerConfig, timeout: float) -> AsyncIterator[TransportStreams]:
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
