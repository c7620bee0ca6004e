"""An MCP server over streamable HTTP: `http_server.py PORT`. Tools: add, who (the caller's X-Who header), slow, end."""

from __future__ import annotations

import asyncio
import os
import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("over http")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def who(context: Context) -> str:  # type: ignore[type-arg]
    """The caller's X-Who header."""
    return str((context.headers or {}).get("x-who"))


@server.tool()
async def slow() -> str:
    """Answer after an hour."""
    await asyncio.sleep(3600)
    return "late"


@server.tool()
def end() -> str:
    """End the server."""
    os._exit(0)


@server.tool()
def large() -> str:
    """Five megabytes."""
    return "0123456789" * 500_000


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
