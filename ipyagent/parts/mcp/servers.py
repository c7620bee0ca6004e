"""All servers of one kernel: which there are, which may run, what they offer.

The user's own (`~/.ipyagent/mcp.json`) run; a project's run when the project is trusted and each entry, as it
stands, has been approved. Of two with one name the project's counts once it may run. Tools come in the order of
servers, then of tools, by name; a tool once listed stays known, also when its server has ended.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from ipyagent.config import IPyAgent
from ipyagent.errors import SettingError
from ipyagent.parts.mcp.entries import FILE, McpServerConfig, read_entries
from ipyagent.parts.mcp.listing import server_part, tool_names
from ipyagent.parts.mcp.server import Server
from ipyagent.parts.mcp.stdio import Processes, ServerLog
from ipyagent.parts.mcp.tool import OutsideTool
from ipyagent.project import Project, home_variable, update_object

MISSING = "MCP servers need the `mcp` package: %pip install 'ipyagent[mcp]', then restart the kernel"


class McpServers:
    """What the files say now. `running`: may run; `waiting`: for a yes of the user's; `off`: disabled."""

    def __init__(self) -> None:
        self.running: dict[str, McpServerConfig] = {}
        self.waiting: dict[str, McpServerConfig] = {}
        self.off: dict[str, McpServerConfig] = {}
        self.problems: list[str] = []


class Servers:
    """`notice` takes lines that the user should see, each once. Methods that are coroutines are called on the
    agent thread."""

    def __init__(self, project: Project, settings: IPyAgent, notice: Callable[[str], None]) -> None:
        self.project = project
        self.settings = settings
        self.processes = Processes()
        self._notice = notice
        self._told: set[str] = set()
        self.seen: set[str] = set()
        """Digests of entries that the user was shown whole."""
        self._servers: dict[str, Server] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.folder: Path | None = None
        """The session's, where logs go."""

    def __repr__(self) -> str:
        return f"<Servers {', '.join(map(repr, self._servers.values())) or 'none'}>"

    @property
    def running(self) -> dict[str, Server]:
        """The servers that were started, by name."""
        return dict(self._servers)

    @property
    def project_file(self) -> Path:
        return self.project.folder / FILE

    @property
    def user_file(self) -> Path:
        return self.project.user / FILE

    # ------------------------------------------------------------------ which there are

    def found(self) -> McpServers:
        """What the two files say now, sorted out; never raises."""
        found = McpServers()
        if not self.settings.mcp:
            return found
        own = read_entries(self.user_file, "user", _home(self.project.user))
        found.problems += own.problems
        for entry in own.found:
            (found.off if entry.disabled else found.running)[entry.name] = entry
        if self.project_file == self.user_file or not (self.settings.trust_all or self.project.trusted):
            return found  # of an untrusted project one line speaks already
        theirs = read_entries(self.project_file, "project", self.project.root)
        found.problems += theirs.problems
        said = approved(self.project)
        for entry in theirs.found:
            if entry.disabled:
                found.off[entry.name] = entry
            elif self.settings.trust_all or entry.digest in said:
                if entry.name in found.running:
                    found.problems.append(f"MCP server {entry.name!r}: the project's takes the place of your own")
                found.running[entry.name] = entry
            else:
                found.waiting[entry.name] = entry
        found.running = dict(sorted(found.running.items()))
        return found

    def approve(self, *names: str) -> list[McpServerConfig]:
        """Say yes to the project's servers as they stand, or to those with these names only; what was approved
        before stays so. Returns those that may run now. Raises SettingError."""
        said = approved(self.project)
        entries = read_entries(self.project_file, "project", self.project.root).found
        agreed = [entry for entry in entries if not names or entry.name in names or entry.digest in said]
        if {entry.digest for entry in agreed} != said:
            approve(self.project, agreed)
        return agreed

    def tell_waiting(self, entries: Iterable[McpServerConfig]) -> str:
        """The line about servers that wait, which is then not told again: which they are, and how a yes is given."""
        line = self.waiting_line(entries)
        self._told.add(line)
        return line

    def waiting_line(self, entries: Iterable[McpServerConfig]) -> str:
        """One line: which servers wait for the user's yes, and how it is given."""
        waiting = list(entries)
        shown = [f"{entry.title} ({self.whole(entry, 2_000)})" for entry in waiting[:4]]
        more = f" and {len(waiting) - 4} more (%agent mcp lists them)" if len(waiting) > 4 else ""
        return (
            f".ipyagent/{FILE} has new or changed MCP servers: {', '.join(shown)}{more}; "
            "they start once you run %agent mcp trust"
        )

    def whole(self, entry: McpServerConfig, most: int = 0) -> str:
        """The entry for the user's eyes; unless it is cut to `most` characters (0: it is not), it counts as seen."""
        text = entry.shown(most)
        if text == entry.shown(0):
            self.seen.add(entry.digest)
        return text

    # ------------------------------------------------------------------ before a turn

    async def ready(self, wait: float, starting: Callable[[], None] = lambda: None) -> None:
        """Bring what runs in line with the files, and wait up to `wait` seconds for servers that start; `starting`
        is called when there are such."""
        found = self.found()
        for problem in found.problems:
            self._tell(problem)
        if found.waiting:
            self._tell(self.waiting_line(found.waiting.values()))
        if self._loop is not asyncio.get_running_loop():  # the first time, or after a fork
            self._servers, self._loop = {}, asyncio.get_running_loop()
        gone = [name for name, server in self._servers.items() if found.running.get(name) != server.entry]
        await asyncio.gather(*(self._servers.pop(name).stop() for name in gone))
        if not found.running:
            return
        if importlib.util.find_spec("mcp") is None:
            self._tell(MISSING)
            return
        if not hasattr(await asyncio.to_thread(importlib.import_module, "mcp"), "Client"):
            self._tell(f"{MISSING} (the one that is installed is too old)")
            return
        settings, root = self.settings, str(self.project.root)
        limits = {"timeout": settings.mcp_timeout, "startup": settings.mcp_startup_timeout}
        for name, entry in found.running.items():
            if name not in self._servers:
                log = ServerLog(server_part(name))
                self._servers[name] = Server(entry, self.processes, log, project=root, **limits)
                self._servers[name].start()
        self._servers = dict(sorted(self._servers.items()))
        self.log_to(self.folder)
        await asyncio.gather(*(server.refresh() for server in self._servers.values()))
        if any(server.state == "starting" for server in self._servers.values()):
            starting()
        await self._settle(wait)

    async def _settle(self, wait: float) -> None:
        starting = [asyncio.create_task(server.settled()) for server in self._servers.values()]
        try:
            await asyncio.wait(starting, timeout=wait)
        finally:
            for task in starting:
                task.cancel()
        for name, server in self._servers.items():
            if server.state == "starting":
                self._tell(f"MCP server {name} is still starting; its tools come with a later request")
            elif server.state in ("failed", "lost"):
                self._tell(f"MCP server {name} does not run: {server.problem}; see %agent mcp doctor")
            if nameless := server.mended.nameless:
                what = "1 tool" if nameless == 1 else f"{nameless} tools"
                self._tell(f"MCP server {name} lists {what} without a name, which cannot be called")

    def log_to(self, folder: Path | None) -> None:
        """Logs and files go to this session's folder from here on."""
        self.folder = folder
        for server in self._servers.values():
            server.log.folder = folder

    # ------------------------------------------------------------------ what they offer

    def tools(self, *, deferred: bool = False) -> dict[str, OutsideTool]:
        """Every tool that was listed, by name, in stable order. May be called on any thread."""
        made: dict[str, OutsideTool] = {}
        for server in list(self._servers.values()):
            offered = {tool.name: tool for tool in server.tools}
            for raw, name in tool_names(server.log.part, offered).items():
                made[name] = OutsideTool(name, server, offered[raw], deferred=deferred)
        return made

    # ------------------------------------------------------------------ ends

    async def restart(self, name: str) -> Server:
        """Stop a server and start it again. Raises KeyError for one that is not there."""
        server = self._servers[name]
        self._told = {line for line in self._told if f"MCP server {name} " not in line}
        await server.renew()
        return server

    async def stop(self) -> None:
        """Stop all servers; the next turn starts them again."""
        servers, self._servers = self._servers, {}
        if self._loop is not asyncio.get_running_loop():
            return  # a forked process: they are its parent's
        await asyncio.gather(*(server.stop() for server in servers.values()), return_exceptions=True)

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._notice(line)


def _home(otherwise: Path) -> Path:
    """Where the user's own servers start: never in a project, whose files `npx` or `python -m` would run."""
    try:
        home = Path.home()
    except RuntimeError:
        return otherwise
    return home if home.is_dir() else otherwise


# ------------------------------------------------------------------ approvals
# Which servers of a project the user has said yes to: each by the hash of its entry's text, kept in the user's own
# directory. A changed entry (after `git pull`, say) is another one and waits for another yes. The hash covers the
# entry, not the programs that it starts.


APPROVED = "mcp-approved.json"


def approved(project: Project) -> frozenset[str]:
    """Digests of this project's entries that the user has said yes to; none when the file is not readable."""
    try:
        value = json.loads((project.user / APPROVED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset()
    digests = value.get(str(project.root)) if isinstance(value, dict) else None
    return frozenset(str(one) for one in digests) if isinstance(digests, list) else frozenset()


def approve(project: Project, entries: Iterable[McpServerConfig]) -> None:
    """Remember a yes to these entries, in place of all that was said before. Raises SettingError."""
    path: Path = project.user / APPROVED
    try:
        update_object(path, {str(project.root): sorted(entry.digest for entry in entries)})
    except OSError as problem:
        reason = f"{problem.strerror or problem}; {home_variable()}"
        raise SettingError(f"{path} cannot be written ({reason}): fix that, or set IPYAGENT_HOME") from None
