"""What a server offers: its tools in the order of their names, fit for a request, bounded in number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ipyagent.journal.journal import clean
from ipyagent.parts.mcp.mending import GIVEN
from ipyagent.parts.mcp.schemas import fitted

if TYPE_CHECKING:
    from mcp import Client

MOST_TOOLS = 1_000
MOST_PAGES = 50


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server offers it; `schema` and `description` are fit for a request."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]
    reads: bool = False
    """The server says that it changes nothing."""
    destroys: bool = False
    """The server says that it may destroy something."""


async def listed(client: Client) -> tuple[OfferedTool, ...]:
    """All tools, in the order of their names."""
    found: dict[str, OfferedTool] = {}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            if len(found) >= MOST_TOOLS or not tool.name:
                continue
            hints = tool.annotations
            given = tool.meta[GIVEN] if tool.meta and GIVEN in tool.meta else tool.input_schema
            schema, description = fitted(given, tool.description or tool.title or "")
            found[tool.name] = OfferedTool(
                name=tool.name,
                title=clean(tool.title or "")[:200],
                description=description,
                schema=schema,
                reads=hints is not None and hints.read_only_hint is True,
                destroys=hints is not None and hints.read_only_hint is not True and hints.destructive_hint is True,
            )
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found[name] for name in sorted(found))
