"""What this front-end can do and where its notebook is. Unknown front-ends get text, never an error.

The notebook is looked for in this order: VS Code's variable, the Jupyter server's own list of
sessions (right also after a rename), JPY_SESSION_NAME (stale after a rename). Only servers on this
machine are asked, with the token they left in the user's own runtime folder."""

from __future__ import annotations

import functools
import hmac
import http.client
import ipaddress
import json
import os
import re
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from ipyagent.kernel.scope import users_namespace

_PATIENCE = 1.0
"""Seconds for all servers together."""
_MAX_REPLY = 4_000_000


class Frontend(msgspec.Struct, frozen=True, kw_only=True):
    """`person`: somebody watches a notebook. `live_widgets`: somebody does, and widgets are shown there.
    `can_input`: `input()` works. `notebook`: the .ipynb file, absolute, when it could be found. `cell`: the
    running cell's id."""

    kind: Literal["kernel", "terminal", "script"]
    person: bool = False
    live_widgets: bool = False
    can_input: bool = False
    notebook: Path | None = None
    cell: str = ""


def describe_frontend(shell: Any, panels: str = "auto") -> Frontend:
    """Look at `shell` (None: a plain script) and its environment; a second at most. `panels` as in the setting."""
    if shell is None:
        return Frontend(kind="script", can_input=_has_terminal())
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        terminal = hasattr(shell, "prompts") or hasattr(shell, "pt_app")
        return Frontend(kind="terminal" if terminal else "script", can_input=terminal or _has_terminal())
    # nbclient, papermill and Voila forbid input; so does everything else without a person
    person = bool(getattr(kernel, "_allow_stdin", False))
    if _kernel_id(kernel) == str(os.getppid()):  # jupyter console and qtconsole: no output of theirs is written anew
        return Frontend(kind="terminal", can_input=person)
    colab = "google.colab" in sys.modules  # shows no widget of others unless its own manager of them is turned on
    return Frontend(
        kind="kernel",
        person=person,
        live_widgets=person and (panels == "widgets" or (panels == "auto" and not colab)),
        can_input=person,
        notebook=_notebook(shell, kernel),
        cell=running_cell(shell),
    )


def running_cell(shell: Any) -> str:
    """The id of the notebook cell that runs now; "" where the front-end does not tell."""
    metadata = _parent(getattr(shell, "kernel", None)).get("metadata")
    cell = metadata.get("cellId") if isinstance(metadata, dict) else None
    return cell if isinstance(cell, str) else ""


def running_request(shell: Any) -> str:
    """The id of the front-end's message that is worked on now, another one for each cell; "" where there is none."""
    header = _parent(getattr(shell, "kernel", None)).get("header")
    ident = header.get("msg_id") if isinstance(header, dict) else None
    return ident if isinstance(ident, str) else ""


def own_notebook(shell: Any) -> Path | None:
    """The notebook that this shell's kernel serves; None when nobody tells."""
    kernel = getattr(shell, "kernel", None)
    return None if kernel is None else _notebook(shell, kernel)


def opened(shell: Any, path: Path) -> Literal["", "own", "page"]:
    """Where the notebook `path` (resolved) may stand with changes that are not saved: "own", the page that a
    person runs this kernel from; "page", another that is connected to its kernel; "" when nobody tells so.
    A notebook that is open without a kernel is not known."""
    kernel = getattr(shell, "kernel", None)
    own = own_notebook(shell)
    if own is not None and own.resolve() == path:
        return "own" if getattr(kernel, "_allow_stdin", False) else ""
    for served, said in served_notebooks():
        if served.resolve() == path and (said.get("connections") or 0) > 0:
            return "page"
    return ""


def _has_terminal() -> bool:
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except (AttributeError, ValueError):
        return False


def _parent(kernel: Any) -> dict[str, Any]:
    get_parent = getattr(kernel, "get_parent", None)
    parent = get_parent() if callable(get_parent) else None
    return parent if isinstance(parent, dict) else {}


def _notebook(shell: Any, kernel: Any) -> Path | None:
    named = users_namespace(shell).get("__vsc_ipynb_file__")
    if isinstance(named, str) and named.endswith(".ipynb"):
        return Path(named)
    if (served := _served(kernel)) is not None:
        return served[0]
    session = os.environ.get("JPY_SESSION_NAME", "")
    if session.endswith(".ipynb"):
        return Path(session).absolute()
    return None


def _kernel_id(kernel: Any) -> str:
    config = getattr(kernel, "config", None) or {}
    file = str((config.get("IPKernelApp") or {}).get("connection_file") or "")
    if not file:
        parent = getattr(kernel, "parent", None)
        file = str(getattr(parent, "connection_file", "") or "")
    match = re.fullmatch(r"kernel-(.+)\.json", os.path.basename(file))
    return match.group(1) if match else ""


def server_root(kernel: Any) -> Path | None:
    """The folder that paths in pages of this kernel's server are relative to; None when nobody tells. A second at
    most."""
    served = _served(kernel)
    return None if served is None else Path(served[1]["root_dir"])


def _served(kernel: Any) -> tuple[Path, dict[str, Any]] | None:
    """The notebook that a server has this kernel for, and what it says of it."""
    ident = _kernel_id(kernel)
    return next((each for each in served_notebooks() if each[1].get("id") == ident), None) if ident else None


def served_notebooks() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Notebooks that servers on this machine have a kernel for, each with what the server says of the kernel
    (its id, how many pages are connected) and its own `root_dir`; a second at most for all servers together."""
    from jupyter_core.paths import jupyter_runtime_dir

    deadline = time.monotonic() + _PATIENCE
    try:
        files = [*Path(jupyter_runtime_dir()).glob("jpserver-*.json")]
        files.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    except OSError:
        return
    for file in files:
        left = deadline - time.monotonic()
        if left <= 0.01:
            return
        try:
            server = json.loads(file.read_text("utf-8"))
            sessions = _sessions(server, left)
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            continue  # a server that has ended leaves its file behind
        for session in sessions:
            try:
                if str(session["path"]).endswith(".ipynb"):
                    said = {**session["kernel"], "root_dir": server["root_dir"]}
                    yield Path(server["root_dir"], session["path"]), said
            except (KeyError, TypeError, ValueError):
                continue  # a session without a kernel


def _sessions(server: dict[str, Any], timeout: float) -> list[Any]:
    url = urllib.parse.urlsplit(server["url"])
    host = "127.0.0.1" if server.get("hostname") in ("0.0.0.0", "::", "", "*") else url.hostname or ""
    if url.scheme != "http" or not _is_loopback(host):
        return []
    headers = {"Authorization": f"token {server['token']}"} if server.get("token") else {}
    # http.client knows no proxies: the token goes nowhere but to this machine
    connection = http.client.HTTPConnection(host, url.port or 80, timeout=timeout)
    try:
        connection.request("GET", url.path.rstrip("/") + "/api/sessions", headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            return []
        sessions = json.loads(response.read(_MAX_REPLY))
    finally:
        connection.close()
    return sessions if isinstance(sessions, list) else []


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ---- Clicks reach us while the cell runs: they are read where they enter the kernel process. A running cell holds
# the main shell, so a comm message for it waits. ipykernel 7 can hand it to a subshell, if the front-end asked for
# one; ipykernel 7.4 then sends it to whichever shell last published on the comm, which is the blocked one, hence
# the override. Without a subshell, a look at each message in the shell-channel thread delivers clicks in
# milliseconds. The message itself goes on to the widget as always, so each click may come twice: the callback is
# idempotent, and only sets flags or futures, since it runs on any thread. ipykernel 6 has no such thread: there
# clicks arrive while the cell awaits, not while its code blocks; the front-end's own interrupt button always works.

Click = Callable[[dict[str, Any]], None]
_PEEK = "_ipyagent_peek"


def route_clicks(kernel: Any, comm: Any, callback: Click) -> Callable[[], None]:
    """Call `callback(data)` with the `data` of each message the front-end sends on `comm`, at once
    and on whatever thread; with `{"kind": "looking"}` when it asks for comms of a target that is called as the comm is.
    Returns an undo, which may be called twice. Where the kernel is of a
    kind we do not know this does nothing: the widget's own messages still come."""
    if hasattr(comm, "_msg_callback"):  # else each message has the shell draw and close all figures, on its thread
        vars(comm)["handle_msg"] = lambda message: comm._msg_callback(message) if comm._msg_callback else None
    overridden = hasattr(comm, "_reply_subshell_for")
    if overridden:
        comm._reply_subshell_for = lambda data, default: default
    peek = _peek_of(kernel)
    comm_id = comm.comm_id
    if peek is not None:
        peek.callbacks[comm_id] = callback

    def undo() -> None:
        if peek is not None and peek.callbacks.get(comm_id) is callback:
            del peek.callbacks[comm_id]
        if overridden:
            vars(comm).pop("_reply_subshell_for", None)

    return undo


def forget_clicks(kernel: Any) -> None:
    """Take off what looks at the kernel's messages, if anything does."""
    if isinstance(peek := vars(kernel).get(_PEEK), _Peek):
        peek.remove()


class _Peek:
    """One a kernel: looks at shell messages before they are dispatched."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.callbacks: dict[str, Click] = {}
        self._take_off: Callable[[], None] = lambda: None

    def remove(self) -> None:
        """Look at nothing any more: messages go where they went without us."""
        self.callbacks.clear()
        self._take_off()
        vars(self._kernel).pop(_PEEK, None)

    def install(self) -> bool:
        """Whether this kernel can be looked into."""
        kernel = self._kernel
        stream = getattr(kernel, "shell_stream", None)
        channel = getattr(kernel, "shell_channel_thread", None)
        if stream is None or not hasattr(stream, "on_recv"):
            return False
        if channel is not None and hasattr(kernel, "shell_channel_thread_main"):
            forward, on_its_thread = kernel.shell_channel_thread_main, channel.io_loop.add_callback
        elif channel is None and hasattr(kernel, "schedule_dispatch") and hasattr(kernel, "dispatch_shell"):
            forward = functools.partial(kernel.schedule_dispatch, kernel.dispatch_shell)
            on_its_thread = lambda call: call()  # noqa: E731 - in the place of the other's method
        else:
            return False

        def receive(message: list[Any]) -> Any:
            self._look(message)
            return forward(message)  # a coroutine of ipykernel 7, which the stream awaits

        on_its_thread(lambda: stream.on_recv(receive, copy=False))
        self._take_off = lambda: on_its_thread(lambda: stream.on_recv(forward, copy=False))
        return True

    def _look(self, message: list[Any]) -> None:
        if not self.callbacks:
            return
        try:
            _, frames = self._kernel.session.feed_identities(message, copy=False)
            parts = [bytes(frame.buffer) for frame in frames[:5]]
            if len(parts) < 5 or (b"comm_msg" not in parts[1] and b"comm_info_request" not in parts[1]):
                return
            session = self._kernel.session
            if session.auth is not None and not hmac.compare_digest(session.sign(parts[1:5]), parts[0]):
                return  # not from our front-end; dispatch will refuse it too
            header, content = json.loads(parts[1]), json.loads(parts[4])
            looking = header.get("msg_type") == "comm_info_request"
            click = self.callbacks.get(content.get("target_name" if looking else "comm_id"))
            if click is None or not (looking or header.get("msg_type") == "comm_msg"):
                return
            data = {"kind": "looking"} if looking else content.get("data")
        except (AttributeError, ValueError, TypeError, IndexError) as problem:
            self._kernel.log.warning("ipyagent could not look at a shell message: %r", problem)
            return
        try:
            click(data if isinstance(data, dict) else {})
        except Exception:
            self._kernel.log.exception("ipyagent: a click was not taken")


def _peek_of(kernel: Any) -> _Peek | None:
    peek = vars(kernel).get(_PEEK)
    if peek is None and (made := _Peek(kernel)).install():
        peek = vars(kernel)[_PEEK] = made
    return peek if isinstance(peek, _Peek) else None
