"""`%agent doctor` and `ipyagent doctor`: what the agent needs and whether it is there, one line each with the mend.

Nothing is sent to a model, no key is shown, nothing is started and nothing is written."""

from __future__ import annotations

import difflib
import os
import platform
import shutil
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ipyagent.agent import Agent
from ipyagent.assembly.settings import SettingsFiles, address_of
from ipyagent.config import IPyAgent, setting_names, wrong_in
from ipyagent.errors import AgentError, ModelError, SettingError
from ipyagent.escape import line
from ipyagent.extension.context_report import counted
from ipyagent.journal.journal import read_events
from ipyagent.locks import why_no_locks
from ipyagent.version import __version__

# ---- One line of `doctor`: what was looked at, how it is, and what to do about it.

Mark = Literal["ok", "note", "bad"]
SIGNS: dict[Mark, str] = {"ok": "✓", "note": "!", "bad": "✗"}


class DoctorFinding(msgspec.Struct, frozen=True):
    """What was looked at, how it is, in words; `mend`: what to do, "" when there is nothing to do."""

    mark: Mark
    name: str
    words: str
    mend: str = ""

    def __str__(self) -> str:
        mend = f": {self.mend}" if self.mend else ""
        return f"{SIGNS[self.mark]} {self.name:<12} {line(self.words + mend, 600)}"


LEAST_FREE = 500_000_000
"""Bytes of free disk below which a line says so: a session with figures can take some tens of megabytes."""
BEGINNING = 200_000
"""Bytes without which no session begins: its first turn takes some tens of thousands."""
NEEDED = {"anthropic": "2.14", "ipython": "8.30", "ipywidgets": "8.1.5", "anywidget": "0.9.18"}
"""Packages that every turn needs, and the oldest version that will do."""
OLDEST_KERNEL = (6, 31)
FORGETFUL_KERNEL, MENDED_KERNEL = (7,), (7, 4)
"""From the first and below the second, a request that comes while a reply is sent may stay unread
(https://github.com/ipython/ipykernel/issues/1554)."""
EXTRAS = {
    "documents": ("pypdf openpyxl pyarrow", "PDF, Excel and Parquet in read_file"),
    "embeddings": ("wordllama", "vectors in recall"),
    "mcp": ("mcp", "outside tools"),
    "local": ("xllamacpp", "a model file on this machine"),
    "dask": ("distributed", "agent_map on a cluster"),
    "ipyparallel": ("ipyparallel", "agent_map on a cluster"),
}
"""Extras: the modules that each brings, and what it is for."""


def examine(agent: Agent, shell: Any) -> list[DoctorFinding]:
    """Everything, in the order in which it matters; `shell` None: asked from a command line. Two seconds at most."""
    found: list[DoctorFinding] = []
    for part in (_versions, _packages, _extras, _front_end, connection, model, _project, _disk, _sessions, _permissions,
                 _sandbox, _settings, _server_tools, _hooks, _transcript):  # fmt: skip
        name = part.__name__.strip("_")
        try:
            found.extend(part(agent, shell))
        except (AgentError, OSError, ValueError, RecursionError) as problem:
            found.append(DoctorFinding("bad", name.replace("_", "-"), str(problem)))
    for each in agent.parts:
        try:
            found.extend(DoctorFinding(check.mark, each.name, check.words, check.mend) for check in each.doctor())
        except (AgentError, OSError, ValueError, RecursionError) as problem:
            found.append(DoctorFinding("bad", each.name, str(problem)))
    return found


def doctor(agent: Agent, shell: Any) -> tuple[str, bool]:
    """The lines, and whether everything needed is there."""
    found = examine(agent, shell)
    bad, notes = (sum(each.mark == mark for each in found) for mark in ("bad", "note"))
    end = "Everything is set up" if not bad else f"{counted(bad, 'thing')} to fix (✗)"
    end += f"; {counted(notes, 'warning')} (!)" if notes else ""
    return "\n".join([*map(str, found), end]), not bad


# ---------------------------------------------------------------------- the machine


def _versions(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    words = f"{__version__} on Python {sys.version.split()[0]}, {platform.system()}"
    if os.name == "posix":
        yield DoctorFinding("ok", "ipyagent", words)
    else:
        yield DoctorFinding("note", "ipyagent", words, "tested on Linux and macOS, not on this system")


def _packages(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    told, missing = [], []
    for name, least in NEEDED.items():
        there = _version(name)
        told.append(f"{name} {there or 'missing'}")
        if not there or _parts(there) < _parts(least):
            missing.append(f"'{name}>={least}'")
    kernel = _version("ipykernel")
    told.append(f"ipykernel {kernel or 'missing'}")
    if missing:
        yield DoctorFinding("bad", "packages", ", ".join(told), f"pip install {' '.join(missing)}")
    elif not kernel or _parts(kernel) < OLDEST_KERNEL:
        mend = "in notebooks the agent needs one: pip install 'ipykernel>=7'"
        yield DoctorFinding("note", "packages", ", ".join(told), mend)
    elif FORGETFUL_KERNEL <= _parts(kernel) < MENDED_KERNEL:
        mend = "with this version a cell sometimes waits until you reload the page: pip install 'ipykernel>=7.4'"
        yield DoctorFinding("note", "packages", ", ".join(told), mend)
    else:
        yield DoctorFinding("ok", "packages", ", ".join(told))


def _extras(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    there = [name for name, (modules, _) in EXTRAS.items() if all(map(find_spec, modules.split()))]
    absent = [f"{name} ({use})" for name, (_, use) in EXTRAS.items() if name not in there]
    words = f"installed: {', '.join(there) or 'none'}"
    if absent:
        words += f"; not installed: {', '.join(absent)}; pip install 'ipyagent[NAME]' brings one"
    yield DoctorFinding("ok", "extras", words)


def _front_end(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    if shell is None:
        return
    from ipyagent.kernel.frontend import describe_frontend

    front = describe_frontend(shell, agent.settings.panels)
    if front.kind != "kernel":
        yield DoctorFinding("ok", "front-end", f"{front.kind}: text, questions on the input line, Ctrl-C stops")
        return
    page = _page(shell)
    if front.live_widgets:
        yield DoctorFinding("ok", "front-end", f"{page}: live panels, questions on buttons or on the input line")
        if _parts(_version("ipykernel")) < (7,):
            yield DoctorFinding(
                "note", "buttons", "Stop and Allow wait while code blocks on this ipykernel",
                "the front-end's own ■ works; pip install 'ipykernel>=7'",
            )  # fmt: skip
    elif front.person:
        yield DoctorFinding(
            "note", "front-end", f"{page}: static output, updated every second; questions on the input line",
            "if widgets work here, %config IPyAgent.panels = 'widgets' shows panels with buttons",
        )  # fmt: skip
    else:
        yield DoctorFinding(
            "note", "front-end", f"{page}: nobody can be asked here (as in nbclient, papermill, Voila)",
            "IPyAgent.mode = 'auto', or rules by %agent allow, let the agent run code",
        )  # fmt: skip
    if front.notebook is not None:
        yield DoctorFinding("ok", "notebook", str(front.notebook))
    else:
        yield DoctorFinding("ok", "notebook", "not known here: sessions are resumed with %agent resume")


def _page(shell: Any) -> str:
    from ipyagent.kernel.scope import users_namespace

    if "google.colab" in sys.modules:
        return "Colab"
    if "__vsc_ipynb_file__" in users_namespace(shell):
        return "VS Code (its widgets may need a network; without one there is the text beside them)"
    return "a kernel"


# ---------------------------------------------------------------------- the project


def _project(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    project = agent.project
    if project.trusted or agent.settings.trust_all:
        yield DoctorFinding("ok", "project", f"{project.root}, trusted")
    elif project.home_line() and (line := project.untrusted_line()):
        yield DoctorFinding("note", "project", line)
    elif project.carried():
        mend, unused = "look at .ipyagent/, then run %agent trust", "its memory, settings and sessions are not loaded"
        yield DoctorFinding("note", "project", f"{project.root}, not trusted yet: {unused}", mend)
    else:
        words = f"{project.root}, not trusted yet (%agent trust); there is nothing to load"
        yield DoctorFinding("ok", "project", words)
    if project.elsewhere:
        yield DoctorFinding("note" if project.writable else "ok", "project", project.place_line())


def _disk(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    for name, folder in (("sessions in", agent.project.state), ("yours in", agent.project.user)):
        there = next((place for place in (folder, *folder.parents) if place.exists()), Path(folder.anchor))
        if name == "yours in" and (line := agent.project.home_line()):
            yield DoctorFinding("bad", name, line)
            continue
        if not there.is_dir():
            yield DoctorFinding("bad", name, f"{there} is a file and should be a folder", "move it away")
            continue
        if not os.access(there, os.W_OK | os.X_OK):
            mend = "set IPYAGENT_HOME to a folder that you own"
            yield DoctorFinding("bad", name, f"{folder} cannot be written", mend)
            continue
        if line := why_no_locks(folder):
            yield DoctorFinding("note", name, line)
        free = shutil.disk_usage(there).free
        words = f"{folder}, {free / 1e9:,.1f} GB free"
        if free < BEGINNING:
            yield DoctorFinding("bad", name, f"no space is left for {folder}", "free some space, or use another folder")
        else:
            yield (
                DoctorFinding("note", name, words, "make room")
                if free < LEAST_FREE
                else DoctorFinding("ok", name, words)
            )


def _sessions(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    from ipyagent.assembly.sessions import empty_line

    words = f"{len(agent.sessions.stored())} stored"
    if empty := agent.project.empty_sessions():
        more = f", and {len(empty) - 1} more like it" if len(empty) > 1 else ""
        yield DoctorFinding("note", "sessions", f"{words}; {empty_line(empty[0])}{more}", f"remove {empty[0]}")
    else:
        yield DoctorFinding("ok", "sessions", words)


def _permissions(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    rules = len(agent.permissions.rules)
    yield DoctorFinding("ok", "permissions", f"mode {agent.settings.mode}, {counted(rules, 'rule')} (%agent allow)")


WATCHED = (
    "Python in the kernel is watched, not confined: files, connections and programs that it opens itself, not what "
    "compiled code, ctypes or other processes do"
)


def _sandbox(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    from ipyagent import sandbox

    found = sandbox.find()
    if found.working:
        best, *others = found.working
        also = f" ({', '.join(each.name for each in others)} works too)" if others else ""
        words = f"uses {best.name}{also} for commands, and for MCP servers and hooks with a level"
        yield DoctorFinding("ok", "sandbox", f"{words}; not covered: {'; '.join(best.gaps)}")
    else:
        mend = (
            "install bubblewrap (Linux): until then every shell command is asked about, and MCP servers and hooks that "
            "name a level do not start"
        )
        yield DoctorFinding("note", "sandbox", found.why, mend)
    yield DoctorFinding("ok", "code", WATCHED)


def _settings(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    for problem in wrong_in(os.environ).values():
        yield DoctorFinding("bad", "settings", problem)
    known = setting_names(old=True)
    for variable in sorted(name for name in os.environ if name.startswith("IPYAGENT_")):
        name = variable.removeprefix("IPYAGENT_").lower()
        if name not in known and (near := difflib.get_close_matches(name, known, n=1, cutoff=0.8)):
            mend = f"did you mean IPYAGENT_{near[0].upper()}?"
            yield DoctorFinding("note", "settings", f"{variable} is not a setting and is ignored", mend)
    # read into settings of their own: looking changes nothing
    tried = IPyAgent(environ={}, trust_all=agent.settings.trust_all)
    for problem in SettingsFiles(tried, agent.project).apply():
        yield DoctorFinding("note", "settings", problem)


def _server_tools(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    """What the provider may run, as far as it is known without asking it."""
    from ipyagent.model.capabilities import standing

    found = standing(agent.settings.server_tools, agent.info, ())
    missing = [f"{name}: {why}" for name, why in found.items() if why not in ("", "off")]
    words = ", ".join(f"{name} {'off' if why == 'off' else 'on'}" for name, why in found.items())
    if missing:
        mend = "%agent model chooses another, or take it out of IPyAgent.server_tools"
        yield DoctorFinding("note", "server tools", f"{words}; {'; '.join(missing)}", mend)
    else:
        off = " (IPyAgent.server_tools turns them on)" if all(found.values()) else ""
        yield DoctorFinding("ok", "server tools", words + off)


def _hooks(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    from ipyagent.loop.hooks import FILE, NAMES, HooksFile

    if not (agent.project.user / FILE).exists():
        return
    problem = HooksFile(NAMES).problem
    yield DoctorFinding("bad", "hooks", problem) if problem else DoctorFinding("ok", "hooks", f"{FILE} can be read")


def _transcript(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    if agent.session is None:
        return
    problems: list[Any] = []
    events = sum(1 for _ in read_events(agent.session.journal.path, problems))
    words = f"{events:,} events" + "".join(f"; {problem}" for problem in problems)
    yield DoctorFinding("note" if problems else "ok", "transcript", words)


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


# ------------------------------------------------------------------ doctor model
# What `doctor` tells of the model: key, server, window and price. A server is only knocked at: a connection is opened
# and closed, nothing is sent. No key is shown.


PATIENCE = 1.0
"""Seconds that finding a server and its taking a connection may last together."""
USUAL = "https://api.anthropic.com"
"""Where the SDK sends requests when no address is set."""


def connection(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    """Whether there are credentials, and whether somebody listens where requests go."""
    from ipyagent.model.client import AnthropicModel, has_credentials
    from ipyagent.model.client_pool import LOCAL, PRACTICE

    if agent.model == PRACTICE:
        yield DoctorFinding("ok", "connection", "the practice server of this process: rule-based, no language model")
        return
    if agent.model.startswith(LOCAL):
        yield _model_file(agent.model.removeprefix(LOCAL))
        return
    endpoint = agent.endpoint()
    try:
        if not has_credentials(endpoint):
            mend = "set ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL, or try it offline: %agent model practice"
            yield DoctorFinding("bad", "connection", "no key and no server", mend)
            return
        _ = AnthropicModel(endpoint).client  # as a turn makes it
    except (ModelError, SettingError) as problem:
        yield DoctorFinding("bad", "connection", str(problem))
        return
    if endpoint.provider != "anthropic":
        yield DoctorFinding(
            "ok", "connection", f"provider {endpoint.provider}, with the credentials of its cloud; not tried"
        )
        return
    given = os.environ.get("ANTHROPIC_BASE_URL", "")
    yield _key(bool(endpoint.base_url or given))
    if not endpoint.base_url and given.rstrip("/").endswith("/v1"):  # of the setting it is taken away
        mend = "set ANTHROPIC_BASE_URL without /v1"
        yield DoctorFinding("bad", "connection", f"{_shown(given)} ends in /v1, which is added to it", mend)
    elif address := endpoint.base_url or given:
        yield _knocked(address, usual=False)
    elif os.environ.get("ANTHROPIC_PROFILE"):
        yield DoctorFinding("ok", "connection", "set by ANTHROPIC_PROFILE; not tried")
    else:
        yield _knocked(USUAL, usual=True)


def _model_file(path: str) -> DoctorFinding:
    if find_spec("xllamacpp") is None:
        return DoctorFinding(
            "bad", "connection", f"local:{path} needs the extra local", "pip install 'ipyagent[local]'"
        )
    if not Path(path).expanduser().is_file():
        return DoctorFinding("bad", "connection", f"no model file {path}", "%agent model local:PATH.gguf names another")
    return DoctorFinding("ok", "connection", "a model file in this process")


def _key(server: bool) -> DoctorFinding:
    """Where the key is from, never what it is. `server`: an address is set, which may need none."""
    from ipyagent.model.endpoint import BAD_KEY, keyring_key

    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        if key := os.environ.get(name):
            if not (key.isascii() and key.isprintable() and " " not in key):
                return DoctorFinding("bad", "key", f"set in {name}", BAD_KEY)
            return DoctorFinding("ok", "key", f"set in {name} (not shown, not tried)")
    if keyring_key():
        return DoctorFinding("ok", "key", "stored in the keyring (not shown, not tried)")
    return DoctorFinding(
        "ok", "key", "none set; a local server needs none" if server else "as the SDK's own login says"
    )


def _knocked(address: str, *, usual: bool) -> DoctorFinding:
    """`usual`: the address was not chosen; that it does not answer now is a remark then (no network)."""
    shown, parts = _shown(address), urlsplit(address)
    if _through_proxy(address):
        return DoctorFinding("ok", "connection", f"{shown}, through the proxy set in the environment; not tried")
    why = _unreachable(address) if parts.scheme in ("http", "https") else "it does not begin with http:// or https://"
    if not why:
        return DoctorFinding("ok", "connection", f"{shown} accepts connections; no request was sent")
    if usual:
        mend = "check the network; offline, use %agent model practice or a local server (ANTHROPIC_BASE_URL)"
        return DoctorFinding("note", "connection", f"{shown} does not answer ({why})", mend)
    mend = "start the server, or set ANTHROPIC_BASE_URL to its address"
    return DoctorFinding("bad", "connection", f"{shown} does not answer ({why})", mend)


def _shown(address: str) -> str:
    from ipyagent.redaction import without_keys

    return without_keys(address, os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN"))


def _through_proxy(address: str) -> bool:
    from ipyagent.model.endpoint import is_loopback

    try:
        parts = urlsplit(address)
        proxied = urllib.request.getproxies().keys() & {parts.scheme, "all"}
        return bool(proxied) and not is_loopback(address) and not urllib.request.proxy_bypass(parts.hostname or "")
    except ValueError:
        return False


def _unreachable(address: str) -> str:
    """Why nobody listens there; "" when somebody does."""
    said: list[str] = []

    def knock() -> None:
        try:
            parts = urlsplit(address)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            with socket.create_connection((parts.hostname or "", port), timeout=PATIENCE):
                said.append("")
        except (OSError, ValueError) as problem:
            said.append(getattr(problem, "strerror", None) or str(problem) or type(problem).__name__)

    # looking up a name has no time limit of its own
    knocking = threading.Thread(target=knock, name="ipyagent-doctor", daemon=True)
    knocking.start()
    knocking.join(PATIENCE)
    return said[0] if said else f"no answer within {PATIENCE:g} s"


def model(agent: Agent, shell: Any) -> Iterator[DoctorFinding]:
    """Window and price, as far as they are known without asking the server."""
    from ipyagent.extension.context_report import teller
    from ipyagent.model.capabilities import GUESSED
    from ipyagent.model.prices import price_of, told_prices

    told_prices.set(agent.settings.price)
    settings, known = agent.settings, agent.info
    chosen = settings.model or os.environ.get("ANTHROPIC_MODEL") or settings.served
    if address_of(settings) and not chosen and known.source in GUESSED:
        words = f"none chosen: the server's only one answers, else {agent.model}; window and price are known then"
        yield DoctorFinding("ok", "model", f"{words} (%agent model NAME chooses)")
        return
    words = f"{agent.model}, window {known.window:,} tokens"
    if known.source == "default" and agent.model != "practice":
        words += " is assumed until the server says (IPyAgent.window sets it)"
    elif known.source == "session":
        words += " (as last known in this session)"
    elif known.source not in (*GUESSED, "setting"):
        words += f" (according to {teller(known.source)})"
    price = price_of(agent.model, known.server)
    if agent.model == "practice" or agent.model.startswith("local:"):
        words += "; costs nothing"
    elif price is None:
        words += "; no price known: costs are not shown, limits count the most expensive known (IPyAgent.price sets it)"
    else:
        words += f", ${price.input:g} and ${price.output:g} a million tokens in and out"
        words += f" ({price.source})" if price.source else ""
    yield DoctorFinding("ok", "model", words)
