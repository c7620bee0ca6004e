"""What `mcp.json` says of each server, and which may run: read leniently, one bad entry hides no other. Nothing is
started here.

The user's own (`~/.ipyagent/mcp.json`) run; a project's run when the project is trusted and each entry, as it
stands, has been approved. Of two with one name the project's counts once it may run.

The shape is the usual one, `{"mcpServers": {NAME: {"command": …, "args": […], "env": {…}, "cwd": …} or
{"url": …, "headers": {…}}}}`, with `disabled`, `timeout` and `startup_timeout` (seconds). `${NAME}` and
`${NAME:-default}` in any text stand for environment variables; they are filled in when a server starts, so
that what the user approves and what files keep is the text without secrets.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from ipyagent.config import IPyAgent
from ipyagent.errors import SettingError
from ipyagent.escape import exact_line
from ipyagent.locks import Lock
from ipyagent.nofollow import checked, remove, write_atomically
from ipyagent.project import Project, home_variable, update_object
from ipyagent.sandbox import LEVELS, Level
from ipyagent.trust import read_small

FILE = "mcp.json"
FILE_BYTES = 1_000_000
MOST_SERVERS = 100
LONG_SECONDS = 3_600
"""A timeout above this is likely meant in milliseconds, as some other programs have it."""
KEYS = ("type", "command", "args", "env", "cwd", "url", "headers", "disabled", "timeout", "startup_timeout", "sandbox")

Source: TypeAlias = Literal["project", "user"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]{0,2000}))?\}")
PROJECT = "IPYAGENT_PROJECT"
"""Stands for the project's folder in entries, as if it were an environment variable."""
_USUAL = re.compile(r"[!#-&(-~]+")
"""An address as it should be: no blanks, no quotes, nothing beyond ASCII."""
_SECRET = re.compile(r"key|token|secret|passw|pwd|pat\b|credential|auth", re.I)


class McpServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One server. `timeout` and `startup_timeout` in seconds (0: the setting's); `digest` is the SHA-256 of
    name and text of the entry; `base` is the folder that a relative `cwd` starts from."""

    name: str
    source: Source
    base: str
    digest: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False
    timeout: float = 0.0
    startup_timeout: float = 0.0
    sandbox: Level = "open"
    """The level of the sandbox at which its command runs."""

    @property
    def title(self) -> str:
        """The name for people, every character of it visible."""
        return exact_line(shlex.quote(self.name))

    @property
    def line(self) -> str:
        """What starts it, for people: the command line or the URL as a shell would take it, variables as they are
        written, and every character of it visible."""
        if self.url:
            return self.url if _USUAL.fullmatch(self.url) else exact_line(shlex.quote(self.url))
        return exact_line(shlex.join([self.command, *self.args]))

    def shown(self, most: int = 2_000) -> str:
        """The whole entry, for somebody who is to agree to it: `line` with environment, folder and headers, and which
        variables of the environment go where. No values that the user has set, or whose name says that they are
        secret. What does not fit into `most` characters (0: all fits) is said to be there."""
        given = [f"{exact_line(shlex.quote(name))}={self._told(name, text)}" for name, text in self.env.items()]
        words = " ".join([*given, self.line]) + (f" in {exact_line(shlex.quote(self.cwd))}" if self.cwd else "")
        words += f', at the sandbox level "{self.sandbox}"' if self.sandbox != "open" else ""
        for name, text in self.headers.items():
            words += f", header {exact_line(shlex.quote(name))}: {self._told(name, text)}"
        told = []
        for part in filter(None, (words, ", ".join(self._takes()))):
            over = len(part) - most if most else 0
            told.append(part if over <= 0 else f"{part[:most]} … and {over:,} characters more, see the file")
        return "; ".join(told)

    def _told(self, name: str, text: str) -> str:
        """A value; of a hidden one the variables alone."""
        if self.source != "user" and not _SECRET.search(name):
            return exact_line(shlex.quote(text))
        told, at = "", 0
        for found in _VARIABLE.finditer(text):
            told += "***" * (found.start() > at) + f"${{{found[1]}{':-***' if found[2] else ''}}}"
            at = found.end()
        return told + "***" * (at < len(text) or not text)

    def _takes(self) -> list[str]:
        places = [("its command", " ".join([self.command, *self.args])), ("its address", self.url)]
        places += [("its folder", self.cwd), *self.env.items(), *self.headers.items()]
        told: list[str] = []
        for place, text in places:
            names = dict.fromkeys(found[1] for found in _VARIABLE.finditer(text) if found[1] != PROJECT)
            if names:
                where = place if place.startswith("its ") else exact_line(shlex.quote(place))
                told.append(f"{where} takes {', '.join(names)} from your environment")
        return told


class McpConfig(msgspec.Struct, frozen=True):
    """`problems` are one line each."""

    found: tuple[McpServerConfig, ...] = ()
    problems: tuple[str, ...] = ()


def read_entries(path: Path, source: Source, base: Path) -> McpConfig:
    """The servers of one file, in the order of their names; never raises. No file, no servers. The user's own file
    may be a link, a project's may not."""
    if not os.path.lexists(path):
        return McpConfig()
    try:
        data = read_small(path if source == "project" else path.resolve(), FILE_BYTES + 1)
    except (OSError, RuntimeError):  # links in a circle
        data = None
    if data is None:
        return McpConfig(problems=(f"{path} cannot be read: it must be an ordinary file, and no link",))
    if len(data) > FILE_BYTES:
        return McpConfig(problems=(f"{path} has more than {FILE_BYTES:,} bytes and was not read",))
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        return McpConfig(problems=(f"{path} is not JSON: {problem}",))
    servers = value.get("mcpServers") if isinstance(value, dict) else None
    if not isinstance(servers, dict):
        return McpConfig(problems=(f'{path} has no object "mcpServers"',))
    found: list[McpServerConfig] = []
    problems: list[str] = []
    for name in sorted(servers)[:MOST_SERVERS]:
        try:
            entry, warnings = entry_of(name, servers[name], source, base)
        except SettingError as problem:
            problems.append(f"{path}: server {name!r} was left out: {problem}")
            continue
        found.append(entry)
        problems += [f"{path}: server {name!r}: {warning}" for warning in warnings]
    if len(servers) > MOST_SERVERS:
        problems.append(f"{path}: only the first {MOST_SERVERS} servers by name were read")
    return McpConfig(tuple(found), tuple(problems))


def entry_of(name: str, raw: Any, source: Source, base: Path) -> tuple[McpServerConfig, list[str]]:
    """One server as its JSON value says, and warnings. Raises SettingError."""
    if not name.strip() or len(name) > 200:
        raise SettingError("a server's name must have 1 to 200 characters")
    if not isinstance(raw, dict):
        raise SettingError('an entry must be an object with "command" or "url"')
    warnings = [f"{key!r} is not known and does nothing" for key in raw if key not in KEYS]
    if raw.get("type") == "sse":
        raise SettingError('the old transport "sse" is not supported; use its streamable HTTP address, type "http"')
    command, url = _text(raw, "command"), _text(raw, "url")
    if bool(command) == bool(url):
        raise SettingError('give either "command" or "url"')
    if url and not re.match(r"https?://|\$\{", url):
        raise SettingError(f"{url!r} is not an http or https address: \"url\" begins with https://")
    args = raw.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, (str, int, float)) for arg in args):
        raise SettingError('"args" must be a list of strings')
    level = raw.get("sandbox", "open")
    if level not in LEVELS:
        raise SettingError(f'"sandbox" must be one of {", ".join(LEVELS)}, not {str(level)[:100]!r}')
    if url and "sandbox" in raw:
        warnings.append('"sandbox" is for commands; a server at an address runs where it is')
    seconds: dict[str, float] = {}
    for key in ("timeout", "startup_timeout"):
        seconds[key] = value = raw.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 10**9:
            raise SettingError(f'"{key}" must be a number of seconds')
        if value > LONG_SECONDS:
            warnings.append(f'"{key}": {value:g} is in seconds here, more than an hour')
    text = json.dumps([name, raw], sort_keys=True, ensure_ascii=True)
    return McpServerConfig(
        name=name,
        source=source,
        base=str(base),
        digest=sha256(text.encode()).hexdigest(),
        command=command,
        args=tuple(str(arg) for arg in args),
        env=_texts(raw, "env"),
        cwd=_text(raw, "cwd"),
        url=url,
        headers=_texts(raw, "headers"),
        disabled=raw.get("disabled") is True,
        **seconds,
        sandbox=level,
    ), warnings


def expanded(entry: McpServerConfig, environ: Mapping[str, str] = os.environ) -> McpServerConfig:
    """The entry with its variables filled in. Raises SettingError that names what is not set."""
    missing: list[str] = []

    def value(found: re.Match[str]) -> str:
        given = environ.get(found[1])
        if given:
            return given
        if found[2] is None:
            missing.append(found[1])
        return found[2] or ""

    def filled(text: str) -> str:
        return _VARIABLE.sub(value, text)

    made = msgspec.structs.replace(
        entry,
        command=filled(entry.command),
        args=tuple(filled(arg) for arg in entry.args),
        env={name: filled(text) for name, text in entry.env.items()},
        cwd=filled(entry.cwd),
        url=filled(entry.url),
        headers={name: filled(text) for name, text in entry.headers.items()},
    )
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise SettingError(f"{names} is not set in the environment; set it before the kernel starts, or in os.environ")
    if "\0" in "".join([made.command, *made.args, made.cwd, *made.env, *made.env.values()]):
        raise SettingError("a NUL character cannot be part of a command: remove it")
    return made


def put_entry(path: Path, name: str, raw: Mapping[str, Any] | None) -> bool:
    """Write one server into a file, or take it out (None), all else kept; whether there was one before.
    Raises SettingError."""
    try:
        with Lock(checked(path.with_name(f"{path.name}.lock"), make=True), seconds=5):
            value = _whole(path)
            servers = value.setdefault("mcpServers", {})
            if not isinstance(servers, dict):
                raise SettingError(f'"mcpServers" of {path} is not an object; fix it first')
            before = name in servers
            servers.pop(name, None)
            if raw is not None:
                servers[name] = dict(raw)
            if before or raw is not None:
                write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
    except OSError as problem:
        raise SettingError(
            f"{path} cannot be written ({getattr(problem, 'strerror', None) or problem}): free it"
        ) from None
    finally:
        with suppress(OSError):
            remove(path.with_name(f"{path.name}.lock"))
    return before


def _whole(path: Path) -> dict[str, Any]:
    if not os.path.lexists(path):
        return {}
    data = read_small(path, FILE_BYTES)
    try:
        value = json.loads((data or b"").decode("utf-8-sig"))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise SettingError(f"{path} is not a JSON object; fix it first")
    return value


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key, "")
    if not isinstance(value, str):
        raise SettingError(f'"{key}" must be a string')
    return value.strip() if key in ("command", "url") else value


def _texts(raw: Mapping[str, Any], key: str) -> dict[str, str]:
    value = raw.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(item, (str, int, float)) for item in value.values()):
        raise SettingError(f'"{key}" must be an object of strings')
    return {str(name): str(item) for name, item in value.items()}


class McpServers:
    """What the files say now. `running`: may run; `waiting`: for a yes of the user's; `off`: disabled."""

    def __init__(self) -> None:
        self.running: dict[str, McpServerConfig] = {}
        self.waiting: dict[str, McpServerConfig] = {}
        self.off: dict[str, McpServerConfig] = {}
        self.problems: list[str] = []


def sorted_out(project: Project, settings: IPyAgent) -> McpServers:
    """What the user's own file and the project's say now; never raises."""
    found = McpServers()
    if not settings.mcp:
        return found
    user_file, project_file = project.user / FILE, project.folder / FILE
    own = read_entries(user_file, "user", _home(project.user))
    found.problems += own.problems
    for entry in own.found:
        (found.off if entry.disabled else found.running)[entry.name] = entry
    if project_file == user_file or not (settings.trust_all or project.trusted):
        return found  # of an untrusted project one line speaks already
    theirs = read_entries(project_file, "project", project.root)
    found.problems += theirs.problems
    said = approved(project)
    for entry in theirs.found:
        if entry.disabled:
            found.off[entry.name] = entry
        elif settings.trust_all or entry.digest in said:
            if entry.name in found.running:
                found.problems.append(f"MCP server {entry.name!r}: the project's takes the place of your own")
            found.running[entry.name] = entry
        else:
            found.waiting[entry.name] = entry
    found.running = dict(sorted(found.running.items()))
    return found


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
