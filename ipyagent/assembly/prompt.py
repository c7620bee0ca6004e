"""Our own instructions and the tools as they go out, and what is added to them (see `ipyagent.assembly.head`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ipyagent.journal.events import Block, SystemPromptFrozen
from ipyagent.journal.protocols import Tool
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.loop.redacting import values_without, without_secrets
from ipyagent.redaction import Redactor
from ipyagent.tools.catalogue import builtin_tools

_AS_IT_IS = Redactor(lambda: False)


def render(
    tools: Mapping[str, Tool],
    extra: Sequence[Block] = (),
    *,
    redact: Redactor = _AS_IT_IS,
    all_listed: bool = False,
    server: Sequence[Block] = (),
) -> SystemPromptFrozen:
    """The same tools and the same `extra` blocks give the same bytes, whatever the day or the machine; `redact` takes
    out the secrets that files, servers and the user's tools have in their words. With `all_listed` deferred tools
    stand in it too; `server` are tools that the provider runs, as they are declared."""
    text = files("ipyagent.assembly").joinpath("system.md").read_text(encoding="utf-8").strip()
    system: tuple[Block, ...] = ({"type": "text", "text": text}, *without_secrets(extra, redact))
    described: tuple[Block, ...] = tuple(
        {"name": tool.name, "description": redact(tool.description), "input_schema": schema_of(tool, redact)}
        for tool in tools.values()
        if all_listed or not getattr(tool, "deferred", "")  # found by a search, called by name
    )
    described = (*described, *server)
    tool_tokens = estimate_blocks(described)
    return SystemPromptFrozen(
        system=system, tools=described, tokens=tool_tokens + estimate_blocks(system), tool_tokens=tool_tokens
    )


def render_own() -> SystemPromptFrozen:
    """The same for our own tools alone; their descriptions and schemas are kept from then on."""
    return render(builtin_tools())


def schema_of(tool: Tool, redact: Redactor) -> dict[str, Any]:
    """What a tool takes, as the model reads it."""
    schema: dict[str, Any] = values_without(tool.input_schema, redact)
    return schema
