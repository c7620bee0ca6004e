"""An outside tool as one of the model's: `mcp__<server>__<tool>`. Each call asks, unless a rule of the user's
with that name lets it run. The server's hints widen no right: what it says to be read-only may be asked for in
mode read_only, what it says to be destructive asks in mode auto too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.journal import clean_json
from ipyagent.journal.protocols import Permission, PermissionQuestion, ToolOutput, Workspace
from ipyagent.journal.stored import FOLDER as RESULTS
from ipyagent.parts.mcp.listing import OfferedTool
from ipyagent.parts.mcp.results import ResultFiles, named_from, output_of
from ipyagent.parts.mcp.server import Server

MOST_TIMES = 4
"""Times `tool_output_chars` that a result may have on its way to the layer that keeps it in a file."""


class OutsideTool:
    """`deferred`: its schema is not in the requests; the model finds it through `tool_search`."""

    parallel = False
    recreatable = False

    def __init__(self, name: str, server: Server, offered: OfferedTool, *, deferred: bool = False) -> None:
        self.name = name
        self.server = server
        self.offered = offered
        self.deferred = deferred
        self.description = offered.description or offered.title or f"{offered.name} of {server.entry.name}"
        self.input_schema = offered.schema

    def __repr__(self) -> str:
        return f"<tool {self.name}{' (deferred)' if self.deferred else ''}>"

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        """The arguments; the server looks closer. Raises ToolFailure for what lacks a required one."""
        if not isinstance(input, dict):
            raise ToolFailure(f"{self.name}: the arguments are an object")
        required = self.input_schema.get("required")
        missing = [str(key) for key in required if key not in input] if isinstance(required, list) else []
        if missing:
            schema = json.dumps(self.input_schema, ensure_ascii=False)[:4_000]
            raise ToolFailure(f"{self.name}: missing {', '.join(missing)}. The arguments, as JSON schema: {schema}")
        return input

    def permission(self, input: dict[str, Any], workspace: Workspace) -> Permission:
        return "ask"

    def writes(self, input: dict[str, Any], workspace: Workspace) -> bool:
        return not self.offered.reads

    def destructive(self, input: dict[str, Any], workspace: Workspace) -> str:
        return f"its server says that {self.offered.name} may destroy something" if self.offered.destroys else ""

    def pattern(self, input: dict[str, Any], workspace: Workspace) -> str:
        return self.name

    def question(self, input: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
        text = json.dumps(clean_json(input), indent=2, ensure_ascii=False, default=str)
        title = f"Call {self.offered.name} of the MCP server {self.server.entry.name}?"
        return PermissionQuestion(title=title, text=text, language="json")

    async def run(self, input: dict[str, Any], workspace: Workspace) -> ToolOutput:
        """Raises ToolFailure when the server does not answer; its own errors are results."""
        result = await self.server.call(self.offered.name, clean_json(input), workspace.stream)
        log = self.server.log
        folder: Path | None = log.folder / RESULTS if log.folder is not None else None
        limit = workspace.limit("tool_output_chars")
        most = max(limit, min(MOST_TIMES * limit, workspace.limit("whole_chars")))
        kept = ResultFiles(folder, named_from(workspace.folder))
        return await asyncio.to_thread(output_of, result, most, kept)  # scaling a picture takes its time
