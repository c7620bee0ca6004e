"""Outside (MCP) tools of one kernel: brought up before a turn on the agent thread, offered to the model as they
are or, when there are many, behind a search; closed with the agent.

Once a session has the search it keeps it, whatever goes: what the model is given changes only with a recorded
head, when tools come that it was not given.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import shlex
from collections.abc import Callable, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ipyagent.errors import AgentError, UsageError
from ipyagent.journal.events import Block
from ipyagent.journal.journal import clean
from ipyagent.journal.protocols import Tool
from ipyagent.journal.tokens import estimate_blocks
from ipyagent.parts import Check, Command, Part
from ipyagent.parts.mcp.entries import (
    FILE,
    McpServerConfig,
    McpServers,
    approve,
    approved,
    entry_of,
    put_entry,
    read_entries,
    sorted_out,
)
from ipyagent.parts.mcp.listing import PREFIX, server_part, tool_names
from ipyagent.parts.mcp.server import Server
from ipyagent.parts.mcp.stdio import Processes, ServerLog
from ipyagent.parts.mcp.tool import OutsideTool
from ipyagent.tools.catalogue import SEARCH, told_of

if TYPE_CHECKING:
    from ipyagent.assembly.session_setup import SessionSetup
    from ipyagent.loop.session import Session
    from ipyagent.parts import RunningAgent


T = TypeVar("T")

CLOSE = 6.0
"""Seconds that closing all servers may take."""
MISSING = "MCP servers need the `mcp` package: %pip install 'ipyagent[mcp]', then restart the kernel"


class McpManager(Part):
    """Nothing is read or started before the first turn or `%agent mcp`. Tools come in the order of servers, then of
    tools, by name; one that was listed stays known, also when its server has ended. Coroutines are for the agent
    thread."""

    name, order, changing = "mcp", 60, True

    def __init__(self, host: SessionSetup) -> None:
        self._project, self._settings, self._notice = host.project, host.settings, host.notice
        self._agent, self._thread = host.agent, host.thread
        self._processes = Processes()
        self._told: set[str] = set()
        """Lines that the user was shown, each once."""
        self.seen: set[str] = set()
        """Digests of entries that the user was shown whole."""
        self._servers: dict[str, Server] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._folder: Path | None = None
        """The session's, where logs go."""

    def __repr__(self) -> str:
        return f"<McpManager {', '.join(map(repr, self._servers.values())) or 'none'}>"

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        """What was listed so far, for lists of tools; on any thread."""
        return dict(self.listed())

    def listed(self, *, deferred: bool = False) -> dict[str, OutsideTool]:
        """Every tool that was listed, by name, in stable order. May be called on any thread."""
        made: dict[str, OutsideTool] = {}
        for server in list(self._servers.values()):
            offered = {tool.name: tool for tool in server.tools}
            for raw, name in tool_names(server.log.part, offered).items():
                made[name] = OutsideTool(name, server, offered[raw], deferred=deferred)
        return made

    def commands(self) -> Mapping[str, Command]:
        about = "Manage MCP servers: list, add NAME COMMAND…|URL, remove, tools, restart, trust, doctor."
        return {"mcp": Command(partial(run_mcp, self._agent), about, "[COMMAND]")}

    def doctor(self) -> Iterable[Check]:
        found, states = self.found(), self.started
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
        if not (waiting := self.found().waiting):
            return []
        line = self.waiting_line(waiting.values())
        self._told.add(line)
        return [line]

    async def offered(self, tools: dict[str, Tool], session: Session, window: int) -> dict[str, Tool]:
        """With the outside tools that a session is given now, servers that start being waited for."""
        own = {name: tool for name, tool in tools.items() if not isinstance(tool, OutsideTool)}
        if not session.journal.session.endswith("-aside"):
            self.log_to(session.journal.folder)
        await self.ready(self._settings.mcp_wait, lambda: session.show_phase("starting MCP servers"))
        outside = self.listed()
        if not outside:
            return own
        searched = told_of(block for block in session.view.tools if block["name"] == SEARCH)
        searching = any(name.startswith(PREFIX) for name in searched)
        blocks: list[Block] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in outside.values()
        ]
        settings = self._settings
        many = len(outside) > settings.mcp_inline_tools
        many = many or bool(window and estimate_blocks(blocks) > window * settings.mcp_inline_percent / 100)
        return {**own, **self.listed(deferred=searching or many)}

    # ------------------------------------------------------------------ which there are

    @property
    def started(self) -> dict[str, Server]:
        """The servers that were started, by name."""
        return dict(self._servers)

    @property
    def project_file(self) -> Path:
        return self._project.folder / FILE

    @property
    def user_file(self) -> Path:
        return self._project.user / FILE

    def found(self) -> McpServers:
        """What the two files say now, sorted out; never raises."""
        return sorted_out(self._project, self._settings)

    def approve(self, *names: str) -> list[McpServerConfig]:
        """Say yes to the project's servers as they stand, or to those with these names only; what was approved
        before stays so. Returns those that may run now. Raises SettingError."""
        said = approved(self._project)
        entries = read_entries(self.project_file, "project", self._project.root).found
        agreed = [entry for entry in entries if not names or entry.name in names or entry.digest in said]
        if {entry.digest for entry in agreed} != said:
            approve(self._project, agreed)
        return agreed

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
        if find_spec("mcp") is None:
            self._tell(MISSING)
            return
        if not hasattr(await asyncio.to_thread(import_module, "mcp"), "Client"):
            self._tell(f"{MISSING} (the one that is installed is too old)")
            return
        settings, root = self._settings, str(self._project.root)
        limits = {"timeout": settings.mcp_timeout, "startup": settings.mcp_startup_timeout}
        for name, entry in found.running.items():
            if name not in self._servers:
                log = ServerLog(server_part(name))
                self._servers[name] = Server(entry, self._processes, log, project=root, **limits)
                self._servers[name].start()
        self._servers = dict(sorted(self._servers.items()))
        self.log_to(self._folder)
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
        self._folder = folder
        for server in self._servers.values():
            server.log.folder = folder

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
        if self._servers:
            try:
                self.wait(self.stop, CLOSE)
            except AgentError as problem:
                self._notice(f"MCP servers did not stop in time and are being killed: {problem}")
        self._processes.close()


USAGE = "%agent mcp [list | add NAME COMMAND ARGS…|URL | remove NAME | tools [NAME] | restart [NAME] | trust | doctor]"
ADD_USAGE = (
    "%agent mcp add [--user] [--env NAME=VALUE] [--header 'NAME: VALUE'] [--timeout SECONDS] NAME COMMAND ARGS… "
    "(or an http address)"
)
MOST_LINES = 200
_URL = re.compile(r"https?://\S+")


def run_mcp(agent: RunningAgent, line: str) -> str:
    """The answer of `%agent mcp LINE`. Raises UsageError, SettingError, AgentError."""
    word, _, rest = line.strip().partition(" ")
    command = COMMANDS.get(word or "list")
    if command is None:
        close = get_close_matches(word, COMMANDS, n=1)
        raise UsageError(f"no {word!r} here{f'; nearest: {close[0]}' if close else ''}; {USAGE}")
    return command(agent, rest.strip())


def _list(agent: RunningAgent, rest: str) -> str:
    """List the servers, where each comes from, and its state."""
    servers = agent.part(McpManager)
    found = servers.found()
    if not agent.settings.mcp:
        return "MCP servers are off (IPyAgent.mcp)"
    lines = [_line(servers, entry, servers.started.get(name)) for name, entry in found.running.items()]
    waits = "waiting for your approval (%agent mcp trust)"
    lines += [f"{entry.title}  {waits}  {_shown(servers, entry)}" for entry in found.waiting.values()]
    lines += [f"{entry.title}  disabled  {_shown(servers, entry)}" for entry in found.off.values()]
    lines += found.problems
    if line := agent.project.untrusted_line():
        lines += [line] if servers.project_file.exists() and not agent.settings.trust_all else []
    return "\n".join(lines) or "no MCP servers yet: %agent mcp add NAME COMMAND…, or a URL"


def _line(servers: McpManager, entry: McpServerConfig, server: Server | None) -> str:
    state: str = "not started yet" if server is None else server.state
    if server is not None and server.tools:
        state += f", {len(server.tools)} tool{'s' * (len(server.tools) != 1)}"
    if server is not None and server.problem:
        state += f" ({server.problem})"
    return f"{entry.title}  {state}  {_shown(servers, entry)}"


def _shown(servers: McpManager, entry: McpServerConfig) -> str:
    return f"{'your own' if entry.source == 'user' else 'project'}: {clean(servers.whole(entry, 2_000))}"


def _add(agent: RunningAgent, rest: str) -> str:
    """Add a server to mcp.json, approve it and start it."""
    name, raw, user = parse_add(rest)
    servers = agent.part(McpManager)
    entry_of(name, raw, "user" if user else "project", agent.project.root)
    if user:
        before = put_entry(servers.user_file, name, raw)
    else:
        agent.project.make()
        if not agent.project.trusted and not agent.settings.trust_all:
            raise UsageError("this project is not trusted yet: run %agent trust first, or add the server with --user")
        before = put_entry(servers.project_file, name, raw)
        servers.approve(name)
    where = servers.user_file if user else servers.project_file
    told = f"{name} {'replaced' if before else 'added'} in {where}"
    if not user and any("${" not in text for key in ("env", "headers") for text in raw.get(key, {}).values()):
        told += "; its values are stored as written; ${NAME} keeps a secret out of the project"
    return "\n".join([told, *_brought_up(agent, name)])


def parse_add(rest: str) -> tuple[str, dict[str, Any], bool]:
    """The name, the entry and whether it is the user's own. Raises UsageError."""
    try:
        words = shlex.split(rest)
    except ValueError as problem:
        raise UsageError(f"{problem}; {ADD_USAGE}") from None
    raw: dict[str, Any] = {}
    user = False
    while words and words[0].startswith("--") and words[0] != "--":
        option, words = words[0], words[1:]
        if option == "--user":
            user = True
            continue
        if not words:
            raise UsageError(f"{option} needs a value; {ADD_USAGE}")
        value, words = words[0], words[1:]
        match option:
            case "--env":
                key, sign, text = value.partition("=")
                raw.setdefault("env", {})[key] = text
            case "--header":
                key, sign, text = value.partition(":")
                raw.setdefault("headers", {})[key.strip()] = text.strip()
            case "--timeout":
                try:
                    raw["timeout"], sign = float(value), "="
                except ValueError:
                    raise UsageError(
                        f"--timeout takes a number of seconds, as in --timeout 30, not {value!r}"
                    ) from None
            case _:
                raise UsageError(f"no option {option!r}; {ADD_USAGE}")
        if not sign:
            raise UsageError(f"{option} {value!r} has no value in it; {ADD_USAGE}")
    words = [word for place, word in enumerate(words) if word != "--" or place > 1]  # as other programs write it
    if len(words) < 2:
        raise UsageError(f"a server needs a name and a command or an address: {ADD_USAGE}")
    name, *words = words
    if len(words) == 1 and _URL.fullmatch(words[0]):
        return name, {"type": "http", "url": words[0], **raw}, user
    return name, {"command": words[0], "args": words[1:], **raw}, user


def _brought_up(agent: RunningAgent, name: str) -> list[str]:
    server = _started(agent).started.get(name)
    notices = agent.take_notices()
    if server is None or server.state != "ready":
        return notices or [f"{name} did not start; see %agent mcp doctor"]
    shown = ", ".join(tool.name for tool in server.tools[:12]) + (" …" if len(server.tools) > 12 else "")
    return [f"{name} runs and has {len(server.tools)} tools: {clean(shown)}; the next request has them", *notices]


def _remove(agent: RunningAgent, rest: str) -> str:
    """Remove a server from mcp.json and stop it."""
    servers = agent.part(McpManager)
    if not rest or " " in rest:
        raise UsageError("no server is named: %agent mcp remove NAME")
    found = servers.found()
    entry = found.running.get(rest) or found.waiting.get(rest) or found.off.get(rest)
    if entry is None:
        raise UsageError(_unknown(rest, [*found.running, *found.waiting, *found.off]))
    where = servers.user_file if entry.source == "user" else servers.project_file
    put_entry(where, rest, None)
    if servers.started:
        servers.wait(lambda: servers.ready(0), 10)
    return f"{rest} removed from {where}"


def _tools(agent: RunningAgent, rest: str) -> str:
    """List the tools of all servers, or of NAME."""
    servers = _started(agent)
    if rest and rest not in servers.started:
        raise UsageError(_unknown(rest, servers.started))
    lines = [
        f"{tool.name}  {' '.join(tool.description.split())[:100]}"
        for tool in servers.listed().values()
        if not rest or tool.server.entry.name == rest
    ]
    more = [f"… and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return "\n".join([*lines[:MOST_LINES], *more]) or "no MCP tools; see %agent mcp"


def _restart(agent: RunningAgent, rest: str) -> str:
    """Restart all servers, or NAME."""
    servers = _started(agent)
    if rest and rest not in servers.started:
        raise UsageError(_unknown(rest, servers.started))
    lines: list[str] = []
    for name in [rest] if rest else list(servers.started):
        wait = agent.settings.mcp_startup_timeout
        server = servers.wait(lambda name=name: servers.restart(name), wait + 10)  # type: ignore[misc]
        lines.append(_line(servers, server.entry, server))
    return "\n".join(lines) or "no MCP servers run; see %agent mcp"


def _trust(agent: RunningAgent, rest: str) -> str:
    """Approve the project's servers as they are now; what you have not seen in full is shown first."""
    servers = agent.part(McpManager)
    if not agent.project.trusted and not agent.settings.trust_all:
        raise UsageError("this project is not trusted yet: run %agent trust first")
    names = rest.split()
    found = servers.found()
    for name in names:
        if name not in found.waiting:
            raise UsageError(_unknown(name, found.waiting))
    asked = [entry for name, entry in found.waiting.items() if not names or name in names]
    if unseen := [entry for entry in asked if entry.digest not in servers.seen]:
        shown = [f"{entry.title}: {clean(servers.whole(entry))}" for entry in unseen]
        return "\n".join(["not approved yet; to approve the following, run %agent mcp trust again:", *shown])
    agreed = servers.approve(*names)
    lines = [f"{entry.title}: {clean(servers.whole(entry))}" for entry in agreed if not entry.disabled]
    return "\n".join(["may run from now on:", *lines]) if lines else "the project has no MCP servers"


def _doctor(agent: RunningAgent, rest: str) -> str:
    """Check the servers, their entries and what they need."""
    servers = agent.part(McpManager)
    found = servers.found()
    lines = list(found.problems)
    if find_spec("mcp") is None:
        lines.append(MISSING)
    elif found.running:
        _started(agent)
    if found.waiting:
        lines.append(servers.waiting_line(found.waiting.values()))
    for name, server in servers.started.items():
        lines.append(f"{_line(servers, server.entry, server)}{f'  {server.about}' if server.about else ''}")
        if server.state != "ready" and server.log.last:
            lines += [f"    {clean(said)[:200]}" for said in server.log.last.splitlines()[-6:]]
        if server.log.path is not None and server.log.path.exists():
            lines.append(f"    log: {agent.project.relative(server.log.path)}")
        opened = [tool for tool in server.tools if tool.schema.get("additionalProperties") is True]
        lines += [f"    {tool.name}: its arguments go as text" for tool in opened if not tool.schema.get("properties")]
        if not name.isascii():
            lines.append(f"    its tools are called mcp__{server.log.part}__…")
    return "\n".join(lines) or "no MCP servers, and nothing wrong"


def _started(agent: RunningAgent) -> McpManager:
    """The servers, brought up if they were not."""
    servers = agent.part(McpManager)
    wait = agent.settings.mcp_startup_timeout
    servers.wait(lambda: servers.ready(wait), wait + 10)
    return servers


def _unknown(name: str, known: Any) -> str:
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"no MCP server {name!r}; {f'nearest: {close[0]}' if close else 'known: ' + (', '.join(names) or 'none')}"


COMMANDS: dict[str, Callable[[RunningAgent, str], str]] = {
    "list": _list,
    "add": _add,
    "remove": _remove,
    "tools": _tools,
    "restart": _restart,
    "trust": _trust,
    "doctor": _doctor,
}
