"""Names of outside tools as the model knows them, `mcp__<server>__<tool>`: at most 64 letters, digits, `_` and
`-`, the same for the same server and tool whatever else is there, and never one name for two tools."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

PREFIX = "mcp__"
MOST = 64
MOST_SERVER = 24
_HASH = 6

_ODD = re.compile(r"[^a-zA-Z0-9_-]+")


def safe_server(name: str) -> str:
    """A server's part: without two underscores in a row, so that the parts can be told apart."""
    return _fitted(re.sub("_{2,}", "_", _ODD.sub("_", name)).strip("_"), name, MOST_SERVER)


def server_parts(names: Iterable[str]) -> dict[str, str]:
    """Each server's part of the names; two that would be the same differ by the hash of what they are called."""
    return _apart({name: safe_server(name) for name in names}, MOST_SERVER)


def tool_names(part: str, tools: Iterable[str]) -> dict[str, str]:
    """The full name of each tool of the server whose part is `part`, by the server's own name for it."""
    room = MOST - len(PREFIX) - len(part) - 2
    fitted = {tool: _fitted(_ODD.sub("_", tool), tool, room) for tool in tools}
    return {tool: f"{PREFIX}{part}__{name}" for tool, name in _apart(fitted, room).items()}


def _fitted(safe: str, raw: str, room: int) -> str:
    """`safe` if it fits and says something, else with the hash of the raw name."""
    if len(safe) <= room and re.search("[a-zA-Z0-9]", safe):
        return safe
    return _hashed(safe, raw, room)


def _hashed(safe: str, raw: str, room: int) -> str:
    mark = sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    stem = safe[: room - _HASH - 1].strip("_")
    return f"{stem}_{mark}" if stem else f"x{mark}"


def _apart(names: dict[str, str], room: int) -> dict[str, str]:
    """Names by raw name, no two the same: the one that is called so itself keeps it."""
    owners: dict[str, list[str]] = {}
    for raw, safe in names.items():
        owners.setdefault(safe, []).append(raw)
    return {
        raw: safe if len(owners[safe]) == 1 or raw == safe else _hashed(safe, raw, room) for raw, safe in names.items()
    }
