"""Names of outside tools as the model knows them, `mcp__<server>__<tool>`: at most 64 letters, digits, `_` and
`-`, the same for the same server and tool whatever else is there, so that a rule of the user's never comes to
cover another tool. A name that cannot be used as it is gets a hash of what it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

PREFIX = "mcp__"
MOST = 64
MOST_SERVER = 24
_HASH = 8

_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


def server_part(name: str) -> str:
    """A server's part of its tools' names: without two underscores in a row, so that the parts can be told apart."""
    return _fitted(re.sub("_{2,}", "_", _ODD.sub("_", name)).strip("_"), name, MOST_SERVER)


def tool_names(part: str, tools: Iterable[str]) -> dict[str, str]:
    """The full name of each tool of the server whose part is `part`, by the server's own name for it. Two that
    would be the same (a tool called like another's hash): the later in order is left out."""
    room = MOST - len(PREFIX) - len(part) - 2
    made: dict[str, str] = {}
    for tool in sorted(tools):
        made.setdefault(f"{PREFIX}{part}__{_fitted(_ODD.sub('_', tool), tool, room)}", tool)
    return {tool: name for name, tool in made.items()}


def _fitted(safe: str, raw: str, room: int) -> str:
    """`safe` if it is the raw name and fits, else with the raw name's hash."""
    if safe == raw and len(safe) <= room and re.search("[a-zA-Z0-9]", safe):
        return safe
    mark = sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    stem = safe[: room - _HASH - 1].strip("_")
    return f"{stem}_{mark}" if stem else f"x{mark}"
