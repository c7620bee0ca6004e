"""The head of every request: our instructions and the tools. Rendered once a session, journalled."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from ipyagent.journal.events import Block, PromptRendered
from ipyagent.journal.protocols import Tool
from ipyagent.journal.tokens import estimate_blocks, estimate_text


def render(tools: Mapping[str, Tool]) -> PromptRendered:
    """The same tools give the same bytes, whatever the day, the machine or the project."""
    text = files("ipyagent").joinpath("system.md").read_text(encoding="utf-8").strip()
    system: tuple[Block, ...] = ({"type": "text", "text": text},)
    described: tuple[Block, ...] = tuple(
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        for tool in tools.values()
    )
    tool_tokens = estimate_blocks(described)
    return PromptRendered(
        system=system, tools=described, tokens=tool_tokens + estimate_text(text), tool_tokens=tool_tokens
    )
