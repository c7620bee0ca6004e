"""Our own instructions and the tools as they go out, and what is added to them (see `ipyagent.assembly.head`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from ipyagent.journal.events import Block, PromptRendered
from ipyagent.journal.protocols import Tool
from ipyagent.journal.tokens import estimate_blocks


def render(tools: Mapping[str, Tool], extra: Sequence[Block] = (), *, all_listed: bool = False) -> PromptRendered:
    """The same tools and the same `extra` blocks give the same bytes, whatever the day or the machine. With
    `all_listed` deferred tools stand in it too."""
    text = files("ipyagent.assembly").joinpath("system.md").read_text(encoding="utf-8").strip()
    system: tuple[Block, ...] = ({"type": "text", "text": text}, *extra)
    described: tuple[Block, ...] = tuple(
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        for tool in tools.values()
        if all_listed or not getattr(tool, "deferred", "")  # found by a search, called by name
    )
    tool_tokens = estimate_blocks(described)
    return PromptRendered(
        system=system, tools=described, tokens=tool_tokens + estimate_blocks(system), tool_tokens=tool_tokens
    )
