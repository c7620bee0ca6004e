"""Outside (MCP) tools of one kernel: brought up before a turn on the agent thread, offered to the model as they
are or, when there are many, behind a search; closed with the agent.

Once a session has the search it keeps it, whatever goes: what the model is given changes only with a recorded
head, when tools come that it was not given.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from ipyagent.errors import AgentError
from ipyagent.journal.events import Block
from ipyagent.journal.protocols import Tool
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.parts import Check, Command, Part
from ipyagent.parts.mcp.listing import PREFIX
from ipyagent.parts.mcp.servers import Servers
from ipyagent.parts.mcp.tool import OutsideTool
from ipyagent.tools.catalogue import SEARCH, told_of

if TYPE_CHECKING:
    from ipyagent.assembly.workbench import SessionSetup
    from ipyagent.loop.session import Session

T = TypeVar("T")

CLOSE = 6.0
"""Seconds that closing all servers may take."""


class McpManager(Part):
    """Nothing is read or started before the first turn or `%agent mcp`."""

    name, order, changing = "mcp", 60, True

    def __init__(self, host: SessionSetup) -> None:
        self.servers = Servers(host.project, host.settings, host.notice)
        self._agent, self._settings = host.agent, host.settings
        self._thread = host.thread
        self._notice = host.notice

    def __repr__(self) -> str:
        return f"<McpManager {self.servers!r}>"

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        """What was listed so far, for lists of tools; on any thread."""
        return dict(self.servers.tools())

    def commands(self) -> Mapping[str, Command]:
        from ipyagent.parts.mcp.commands import run_mcp

        about = "Manage MCP servers: list, add NAME COMMAND…|URL, remove, tools, restart, trust, doctor."
        return {"mcp": Command(partial(run_mcp, self._agent), about, "[COMMAND]")}

    def doctor(self) -> Iterable[Check]:
        found, states = self.servers.found(), self.servers.running
        if not (found.running or found.waiting or found.off or found.problems):
            return
        words = f"{len(found.running):,} server{'s' * (len(found.running) != 1)} may run"
        words += "".join(f", {name} {server.state}" for name, server in states.items())
        failed = [f"{name}: {server.problem}" for name, server in states.items() if server.state in ("failed", "lost")]
        if found.running and find_spec("mcp") is None:
            yield Check("bad", f"{words}, and the extra mcp is missing", "pip install 'ipyagent[mcp]'")
        elif failed or found.problems:
            yield Check("note", f"{words}; {'; '.join([*failed, *found.problems])}", "%agent mcp doctor")
        elif found.waiting:
            yield Check(
                "note", f"{words}, {len(found.waiting)} of the project wait for your approval", "%agent mcp trust"
            )
        else:
            yield Check("ok", words)

    def trusted_now(self) -> list[str]:
        """A line about the project's servers that wait for the user's yes; none when there are none."""
        waiting = self.servers.found().waiting
        return [self.servers.tell_waiting(waiting.values())] if waiting else []

    async def offered(self, tools: dict[str, Tool], session: Session, window: int) -> dict[str, Tool]:
        """With the outside tools that a session is given now, servers that start being waited for."""
        own = {name: tool for name, tool in tools.items() if not isinstance(tool, OutsideTool)}
        return {**own, **await self._ready(session, window)}

    async def _ready(self, session: Session, window: int) -> dict[str, Tool]:
        if not session.journal.session.endswith("-aside"):
            self.servers.log_to(session.journal.folder)
        await self.servers.ready(self._settings.mcp_wait, lambda: session.show_phase("starting MCP servers"))
        tools = self.servers.tools()
        if not tools:
            return {}
        searched = told_of(block for block in session.view.tools if block["name"] == SEARCH)
        searching = any(name.startswith(PREFIX) for name in searched)
        return dict(self.servers.tools(deferred=searching or self._many(tools, window)))

    def _many(self, tools: Mapping[str, Tool], window: int) -> bool:
        settings = self._settings
        if len(tools) > settings.mcp_inline_tools:
            return True
        blocks: list[Block] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in tools.values()
        ]
        return bool(window and estimate_blocks(blocks) > window * settings.mcp_inline_percent / 100)

    # ------------------------------------------------------------------ doors for the main thread

    def wait(self, make: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
        """Run something of the servers' on the agent thread and wait for it. Raises AgentError after `seconds`."""
        future = self._thread.start(make)
        try:
            return future.result(timeout=seconds)
        except concurrent.futures.TimeoutError:
            self._thread.cancel(future)
            raise AgentError(f"no MCP server answered within {seconds:g} s: see %agent mcp doctor") from None
        except BaseException:
            self._thread.cancel(future)
            raise

    def close(self) -> None:
        """End all servers. Never raises."""
        if self.servers.running:
            try:
                self.wait(self.servers.stop, CLOSE)
            except AgentError as problem:
                self._notice(f"MCP servers did not stop in time and are being killed: {problem}")
        self.servers.processes.close()
