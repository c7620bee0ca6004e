"""Fixtures of the MCP tests."""

from __future__ import annotations

from mcp_room import mcp_room, server

__all__ = ["mcp_room", "server"]
