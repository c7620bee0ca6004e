"""`%agent doctor` and `ipyagent doctor`: what the agent needs and whether it is there, one line each with the mend.

Nothing is sent to a model, no key is shown, nothing is started and nothing is written.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ipyagent.agent import Agent
from ipyagent.commands.context import counted
from ipyagent.errors import AgentError, ModelError
from ipyagent.journal.journal import read_events
from ipyagent.ui.escape import line
from ipyagent.version import __version__

Mark = Literal["ok", "note", "bad"]
SIGNS: dict[Mark, str] = {"ok": "✓", "note": "!", "bad": "✗"}
PATIENCE = 1.0
"""Seconds that a server may take to take a connection."""
LEAST_FREE = 500_000_000
"""Bytes of free disk below which a line says so: a session with figures can take some tens of megabytes."""
NEEDED = {"anthropic": "2.14", "ipython": "8.30", "ipywidgets": "8.1.5", "anywidget": "0.9.18"}
"""Packages that every turn needs, and the oldest version that will do."""
EXTRAS = {
    "documents": ("pypdf", "PDF, Excel and Parquet in read_file"),
    "embeddings": ("wordllama", "vectors in recall"),
    "mcp": ("mcp", "outside tools"),
    "local": ("xllamacpp", "a model file on this machine"),
    "dask": ("distributed", "agent_map on a cluster"),
    "ipyparallel": ("ipyparallel", "agent_map on a cluster"),
}
"""Extras: a module that each brings, and what it is for."""


class Finding(msgspec.Struct, frozen=True):
    """What was looked at, how it is, in words; `mend`: what to do, "" when there is nothing to do."""

    mark: Mark
    name: str
    words: str
    mend: str = ""

    def __str__(self) -> str:
        mend = f": {self.mend}" if self.mend else ""
        return f"{SIGNS[self.mark]} {self.name:<12} {line(self.words + mend, 400)}"


def examine(agent: Agent, shell: Any) -> list[Finding]:
    """Everything, in the order in which it matters; `shell` None: asked from a command line. Two seconds at most."""
    found: list[Finding] = []
    for part in (_versions, _packages, _extras, _front_end, _connection, _model, _project, _disk, _sessions, _rights,
                 _settings, _memory, _skills, _servers, _hooks, _transcript):  # fmt: skip
        try:
            found.extend(part(agent, shell))
        except (AgentError, OSError) as problem:
            found.append(Finding("bad", part.__name__.strip("_"), str(problem)))
    return found


def doctor(agent: Agent, shell: Any) -> tuple[str, bool]:
    """The lines, and whether all that is needed is there."""
    found = examine(agent, shell)
    bad, notes = (sum(each.mark == mark for each in found) for mark in ("bad", "note"))
    end = "all that is needed is there" if not bad else f"{counted(bad, 'thing')} to mend (✗)"
    end += f", {counted(notes, 'remark')} (!)" if notes else ""
    return "\n".join([*map(str, found), end]), not bad


# ---------------------------------------------------------------------- the machine


def _versions(agent: Agent, shell: Any) -> Iterator[Finding]:
    words = f"{__version__} on Python {sys.version.split()[0]}, {platform.system()}"
    if os.name == "posix":
        yield Finding("ok", "ipyagent", words)
    else:
        yield Finding("note", "ipyagent", words, "Linux and macOS are tried, this system is not")


def _packages(agent: Agent, shell: Any) -> Iterator[Finding]:
    told, missing = [], []
    for name, least in NEEDED.items():
        there = _version(name)
        told.append(f"{name} {there or 'missing'}")
        if not there or _parts(there) < _parts(least):
            missing.append(f"'{name}>={least}'")
    if missing:
        yield Finding("bad", "packages", ", ".join(told), f"pip install {' '.join(missing)}")
    else:
        yield Finding("ok", "packages", ", ".join(told))


def _extras(agent: Agent, shell: Any) -> Iterator[Finding]:
    there = [name for name, (module, _) in EXTRAS.items() if find_spec(module) is not None]
    absent = [f"{name} ({use})" for name, (_, use) in EXTRAS.items() if name not in there]
    words = f"installed: {', '.join(there) or 'none'}"
    if absent:
        words += f"; not installed: {', '.join(absent)}; pip install 'ipyagent[NAME]' brings one"
    yield Finding("ok", "extras", words)


def _front_end(agent: Agent, shell: Any) -> Iterator[Finding]:
    if shell is None:
        return
    from ipyagent.kernel.frontend import describe_frontend

    front = describe_frontend(shell, agent.settings.panels)
    if front.kind != "kernel":
        yield Finding("ok", "front-end", f"{front.kind}: text, questions on the line, Ctrl-C stops")
        return
    kernel = _version("ipykernel")
    if front.live_widgets:
        yield Finding("ok", "front-end", f"live panels, ipykernel {kernel}")
        if _parts(kernel) < (7,):
            yield Finding(
                "note", "buttons", "Stop and Allow wait while code blocks on this ipykernel",
                "the front-end's own ■ works; pip install 'ipykernel>=7'",
            )  # fmt: skip
    elif front.person:
        yield Finding(
            "note", "front-end", f"static output, written anew each second; ipykernel {kernel}",
            "where widgets work, %config IPyAgent.panels = 'widgets' has panels with buttons",
        )  # fmt: skip
    else:
        yield Finding(
            "note", "front-end", f"nobody can be asked here (as in nbclient, papermill, Voila); ipykernel {kernel}",
            "IPyAgent.mode = 'auto', or rules by %agent allow, let the agent run code",
        )  # fmt: skip
    if front.notebook is not None:
        yield Finding("ok", "notebook", str(front.notebook))
    else:
        yield Finding("ok", "notebook", "not known here: sessions are taken up with %agent resume")


# ---------------------------------------------------------------------- the model


def _connection(agent: Agent, shell: Any) -> Iterator[Finding]:
    from ipyagent.model.client import has_credentials
    from ipyagent.model.connect import LOCAL, PRACTICE

    if agent.model == PRACTICE:
        yield Finding("ok", "connection", "the practice server of this process: rule-based, no language model")
        return
    if agent.model.startswith(LOCAL):
        if find_spec("xllamacpp") is None:
            yield Finding("bad", "connection", f"{agent.model} needs the extra local", "pip install 'ipyagent[local]'")
        else:
            yield Finding("ok", "connection", "a model file in this process")
        return
    endpoint = agent.endpoint()
    try:
        if not has_credentials(endpoint):
            mend = "set ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL, or try it offline: %agent model practice"
            yield Finding("bad", "connection", "no key and no server", mend)
            return
    except ModelError as problem:
        yield Finding("bad", "connection", str(problem))
        return
    address = endpoint.base_url or os.environ.get("ANTHROPIC_BASE_URL", "")
    if not address:
        yield Finding("ok", "connection", f"credentials found for {endpoint.provider}; not tried")
        return
    from ipyagent.model.failures import redact

    shown = redact(address)
    if address.rstrip("/").endswith("/v1"):
        yield Finding("bad", "connection", f"{shown} ends in /v1, which is added to it", "leave /v1 away")
    elif why := _unreachable(address):
        mend = "start the server, or set ANTHROPIC_BASE_URL to where it listens"
        yield Finding("bad", "connection", f"{shown} does not answer ({why})", mend)
    else:
        yield Finding("ok", "connection", f"{shown} takes connections; no request was sent")


def _unreachable(address: str) -> str:
    """Why nobody listens there; "" when somebody does."""
    try:
        parts = urlsplit(address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=PATIENCE):
            return ""
    except (OSError, ValueError) as problem:
        return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


def _model(agent: Agent, shell: Any) -> Iterator[Finding]:
    from ipyagent.model.prices import price_of

    window = agent.session.info.window if agent.session is not None and agent.session.info is not None else 0
    known = f", window {window:,} tokens" if window else ""
    price = price_of(agent.model)
    if price is None:
        yield Finding("ok", "model", f"{agent.model}{known}; no price known: costs are not shown")
    else:
        yield Finding("ok", "model", f"{agent.model}{known}, ${price.input:g} and ${price.output:g} a million tokens")


# ---------------------------------------------------------------------- the project


def _project(agent: Agent, shell: Any) -> Iterator[Finding]:
    project = agent.project
    if project.trusted or agent.settings.trust_all:
        yield Finding("ok", "project", f"{project.root}, trusted")
    elif project.carried():
        mend = "look into .ipyagent/, then %agent trust"
        yield Finding("note", "project", f"{project.root}, not trusted yet: what it brings is not loaded", mend)
    else:
        yield Finding("ok", "project", f"{project.root}, not trusted yet (%agent trust); it brings nothing")


def _disk(agent: Agent, shell: Any) -> Iterator[Finding]:
    for name, folder in (("sessions in", agent.project.folder), ("yours in", agent.project.user)):
        there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
        if not os.access(there, os.W_OK):
            mend = "make it writable, or work in another folder" if name != "yours in" else "set IPYAGENT_HOME"
            yield Finding("bad", name, f"{folder} cannot be written", mend)
            continue
        free = shutil.disk_usage(there).free
        words = f"{folder}, {free / 1e9:,.1f} GB free"
        yield Finding("note", name, words, "make room") if free < LEAST_FREE else Finding("ok", name, words)


def _sessions(agent: Agent, shell: Any) -> Iterator[Finding]:
    yield Finding("ok", "sessions", f"{len(agent.sessions.stored())} stored")


def _rights(agent: Agent, shell: Any) -> Iterator[Finding]:
    rules = len(agent.permissions.rules)
    yield Finding("ok", "permissions", f"mode {agent.settings.mode}, {counted(rules, 'rule')} (%agent allow)")


def _settings(agent: Agent, shell: Any) -> Iterator[Finding]:
    for problem in agent.settings_files.apply():
        yield Finding("note", "settings", problem)


def _memory(agent: Agent, shell: Any) -> Iterator[Finding]:
    from ipyagent.commands.memory_report import doctor_lines

    if not agent.settings.memory:
        yield Finding("ok", "memory", "off (IPyAgent.memory)")
        return
    lines = doctor_lines(agent.bench.memories, mend=False)
    if lines[0].startswith("all is well"):
        yield Finding("ok", "memory", lines[0])
    else:
        yield Finding("note", "memory", f"{counted(len(lines), 'remark')}, the first: {lines[0]}", "%memory doctor")


def _skills(agent: Agent, shell: Any) -> Iterator[Finding]:
    found = agent.skills.look_anyway()
    words = f"{counted(len(found.skills), 'skill')}{'' if agent.settings.skills else ', off (IPyAgent.skills)'}"
    if found.problems:
        yield Finding("note", "skills", f"{words}, {counted(len(found.problems), 'remark')}", "%skills doctor")
    else:
        yield Finding("ok", "skills", words)


def _servers(agent: Agent, shell: Any) -> Iterator[Finding]:
    found = agent.mcp.servers.found()
    if not (found.running or found.waiting or found.off or found.problems):
        return
    words = f"{counted(len(found.running), 'server')} may run"
    if found.running and find_spec("mcp") is None:
        yield Finding("bad", "mcp", f"{words}, and the extra mcp is missing", "pip install 'ipyagent[mcp]'")
    elif found.waiting or found.problems:
        words += f", {len(found.waiting)} wait for a yes" if found.waiting else ""
        yield Finding("note", "mcp", f"{words}{'; ' if found.problems else ''}{'; '.join(found.problems)}",
                      "%agent mcp trust" if found.waiting else "%agent mcp doctor")  # fmt: skip
    else:
        yield Finding("ok", "mcp", words)


def _hooks(agent: Agent, shell: Any) -> Iterator[Finding]:
    from ipyagent.loop.hooks import NAMES
    from ipyagent.loop.shell_hooks import FILE, HooksFile

    if not (agent.project.user / FILE).exists():
        return
    problem = HooksFile(NAMES).problem
    yield Finding("bad", "hooks", problem) if problem else Finding("ok", "hooks", f"{FILE} can be read")


def _transcript(agent: Agent, shell: Any) -> Iterator[Finding]:
    if agent.session is None:
        return
    problems: list[Any] = []
    events = sum(1 for _ in read_events(agent.session.journal.path, problems))
    words = f"{events:,} events" + "".join(f"; {problem}" for problem in problems)
    yield Finding("note" if problems else "ok", "transcript", words)


# ---------------------------------------------------------------------- versions


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _parts(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing."""
    numbers: list[int] = []
    for part in text.split("."):
        digits = "".join(sign for sign in part if sign.isdigit())
        if not digits or not part[0].isdigit():
            break
        numbers.append(int(digits))
    return tuple(numbers)

