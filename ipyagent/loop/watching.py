"""What becomes of what agent code does in the kernel (`ipyagent.kernel.audit` sees it): a file of the project that was
there before is copied into the session's backups before it changes, and in mode auto, and for recorded code that runs
again, the user is asked once for each host, for each program, and for a file that no undo brings back or that the same
code has read.

Code that the user allowed is not asked about again and has backups only; under a rule, what no undo brings back is."""

from __future__ import annotations

import copy as copying
import hashlib
import ipaddress
import os
import secrets
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ipyagent import nofollow
from ipyagent.errors import AgentError, ToolFailure
from ipyagent.escape import exact_line
from ipyagent.journal.events import FileChanged, LayerFailed, PermissionAsked
from ipyagent.journal.protocols import PermissionAnswer
from ipyagent.kernel.audit import How, Refused, watching
from ipyagent.kernel.interrupts import Waiting
from ipyagent.kernel.workspace import KernelWorkspace
from ipyagent.loop.permissions import because
from ipyagent.loop.session import Session
from ipyagent.tools.changes import Copy, copied, digest_of_file
from ipyagent.tools.danger import named_files, shell_danger
from ipyagent.tools.paths import in_force, is_guarded

LOOKS = frozenset(
    ("file", "fc-list", "getconf", "ldconfig", "locale", "lscpu", "nproc", "nvidia-smi", "rocm-smi",
     "sw_vers", "sysctl", "uname")
)  # fmt: skip
"""Programs that libraries start to look at the machine; they write and send nothing."""
_SYSTEM = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/run/current-system/sw/bin")
_OPEN_ENDED = frozenset(
    ("ash", "awk", "bash", "busybox", "cmd.exe", "dash", "docker", "doas", "env", "find", "fish", "gawk", "ksh", "lua",
     "make", "nice", "node", "nohup", "npx", "perl", "php", "podman", "powershell", "pwsh", "pypy", "python", "Rscript",
     "ruby", "setsid", "sh", "ssh", "su", "sudo", "timeout", "uv", "uvx", "watch", "xargs", "zsh")
)  # fmt: skip
"""Programs that do whatever their arguments say: each command line is asked about by itself."""
_SOCKETS = ("docker", "podman", "containerd", "crio", "buildkit", "ssh-", "gpg-agent", "dbus", "bus", "libvirt")
"""What the names of sockets begin with behind which programs act for others."""
KNOWN_FOR = 60.0
"""Seconds for which an address is taken for its host's; a host is looked up anew at most so often."""
_TOOLS = ("python", "shell")
"""Tools whose rules may name what code and commands do."""
ALL_COPIES = 4
"""A run's copies together may have so many times the size of one."""


class Question(NamedTuple):
    """`key` is what is asked about once ("host:example.com"), as rules of the python tool name it; `action` what the
    code is about to do ("connect to example.com"); `text` says more, `danger` why it is asked."""

    key: str
    action: str
    text: str
    danger: str = ""
    language: str = "text"
    tool: str = "python"


class CodeWatch:
    """What one session's code was seen to do, and what the user said to it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._allowed: set[str] = set()
        self._denied: dict[str, tuple[int, str]] = {}
        self._addresses: dict[str, tuple[str, float]] = {}
        """By an address the host that was allowed, and when it was found."""
        self._looked_up: dict[str, float] = {}
        """By an allowed host when its addresses were last asked for because one was not known."""
        self.made: dict[str, tuple[tuple[int, ...], int]] = {}
        """Files that earlier runs made, as they left them, and in which turn: the code's own while so."""
        self.told: set[str] = set()
        self.held: list[tuple[RunWatch, str, Copy, str | None]] = []
        """Files that runs left open: what stands in a buffer is written later."""
        self._asking = threading.Lock()

    def __repr__(self) -> str:
        return f"<CodeWatch of {self._session.journal.session}>"

    def run(self, workspace: KernelWorkspace, code: str) -> RunWatch:
        """The watch of one run of `code`; "": of a command."""
        return RunWatch(self, self._session, workspace, code)

    def settle(self) -> None:
        """Journal what became of files that were left open. Raises JournalError."""
        held, self.held = self.held, []
        for run, path, copy, before in held:
            run.settle_later(path, copy, before)

    def allow(self, question: Question, wait: Waiting, call: str) -> None:
        """Return when the user allows it now or did before. Raises Refused."""
        with self._asking:  # one question at a time, also from several threads
            if self.allowed(question.key):
                return
            if self.denied(question.key):
                raise Refused(self._denied[question.key][1])
            answer = self._answer(question, wait, call)
            if answer is not None and answer.answer != "deny":
                self._allowed.add(question.key)
                return
            self._denied[question.key] = (self.turn, _refusal(question, answer))
            raise Refused(self._denied[question.key][1])

    @property
    def turn(self) -> int:
        return len(self._session.history.turns)

    def denied(self, key: str) -> bool:
        """Whether it was refused in this turn."""
        return self._denied.get(key, (-1, ""))[0] == self.turn

    def _answer(self, question: Question, wait: Waiting, call: str) -> PermissionAnswer | None:
        session = self._session
        surface = session.surface
        if surface is None or not surface.can_ask:
            return None
        asked = PermissionAsked(
            call=f"{call}:{question.key}"[:200],
            tool=question.tool,
            title=f"Let this {_by(question)} {question.action}?",
            text=question.text,
            language=question.language,
            pattern=_rule(question),
            digest=hashlib.sha256(f"{question.key}\n{question.text}".encode("utf-8", "replace")).hexdigest(),
            danger=question.danger,
        )
        answer: PermissionAnswer = wait(lambda: session.ask(asked, call))
        return answer

    def allowed(self, key: str) -> bool:
        """Whether the user allowed it before, by an answer or a rule."""
        if key in self._allowed:
            return True
        patterns = [rule.argument for rule in self._session.permissions.rules if rule.tool in _TOOLS]
        return any(pattern is not None and (pattern == key or fnmatchcase(key, pattern)) for pattern in patterns)

    # ------------------------------------------------------------------ names and addresses

    def resolved(self, host: str) -> None:
        """Remember the addresses of an allowed host, so that a connection to one is no other question."""
        with suppress(OSError, UnicodeError):
            import _socket  # whatever the code has made of `socket.getaddrinfo`

            for found in _socket.getaddrinfo(host, None):
                self._addresses[str(found[4][0]).partition("%")[0]] = (host, time.monotonic())

    def host_of(self, address: str) -> str:
        """The allowed host of an address; "" when there is none."""
        now = time.monotonic()
        host, found = self._addresses.get(address, ("", 0.0))
        if host and now - found < KNOWN_FOR:
            return host
        for host in {host for host, _ in self._addresses.values()}:  # its addresses may have changed
            if now - self._looked_up.get(host, -KNOWN_FOR) >= KNOWN_FOR:
                self._looked_up[host] = now
                self.resolved(host)
        host, found = self._addresses.get(address, ("", 0.0))
        return host if host and time.monotonic() - found < KNOWN_FOR else ""


def _refusal(question: Question, answer: PermissionAnswer | None) -> str:
    if answer is None:
        why = f" ({question.danger})" if question.danger else ""
        return (
            f"the user is asked before {_by(question)} may {question.action}{why}, and nobody can be asked here; to "
            f"let it: %agent allow {_rule(question)}"
        )
    return f"the user did not allow this {_by(question)} to {question.action}.{because(answer.reason)}"


def _by(question: Question) -> str:
    return "command" if question.tool == "shell" else "code"


def _rule(question: Question) -> str:
    import glob

    return f"{question.tool}({glob.escape(question.key)})"


class RunWatch:
    """A `Watch` of one run of code; `refused`: what was not allowed, for the model; `waited`: seconds for the user."""

    def __init__(self, watch: CodeWatch, session: Session, workspace: KernelWorkspace, code: str) -> None:
        self.opened: set[Any] = set()
        self.refused: list[str] = []
        self.waited = 0.0
        self._watch, self._session, self._workspace, self._code = watch, session, workspace, code
        self._wait: Waiting | None = None
        self._mode = session.permissions.mode
        self._refuses = True
        allowed = session.consented.get(workspace.call)
        self._asks = allowed == "recorded" or (self._mode == "auto" and allowed is None)
        self._guards = self._asks or allowed == "rule"
        """Whether what cannot be undone is asked about: a rule was given for the usual code, not for that."""
        self._pid = os.getpid()
        self._copies: dict[str, Copy] = {}
        """By the file, what it was before; its change is journalled."""
        self._named: dict[str, Copy] = {}
        """The same of files that the code names, before anybody knows whether it changes them."""
        self._seen: set[str] = set()
        self._made: set[str] = set()
        """Files that were not there before."""
        self._size = 0
        self._of_forks = workspace.backups / f".{secrets.token_hex(8)}.forked"
        """Where forked processes write down what they change: they cannot journal it."""

    @property
    def behind(self) -> RunWatch:
        """The same, for threads that the run left behind: the user's own code may hand them work."""
        other = copying.copy(self)
        other._asks = other._guards = False
        other._refuses = False
        return other

    @contextmanager
    def around(self, wait: Waiting) -> Iterator[None]:
        """To be entered around the run, on its thread; `wait` waits there for the agent thread."""
        self._wait = wait
        if self._mode != "read_only":
            for path in named_files(self._code, self._workspace.namespace, self._workspace.folder):
                self._keep_named(path)
        try:
            with watching(self):
                yield
        finally:
            self._settle()

    @contextmanager
    def beside(self, wait: Waiting) -> Iterator[None]:
        """To be entered around a command, whose changes are told by `changes`."""
        self._wait = wait
        try:
            yield
        finally:
            self._settle()

    def _settle(self) -> None:
        """Journal what became of the files, and let go of copies of those that are as they were."""
        for path, copy in self._named.items():
            if path in self._copies or copy.same(path):
                copy.discard()
            else:
                self._copies[path] = copy
                copy.keep()
        if self._of_forks.exists():
            for line in self._of_forks.read_text("utf-8", "surrogateescape").split("\0")[:-1]:
                backup, mode, name = line.split(" ", 2)
                copy = Copy(self._workspace.backups / backup, mode=int(mode))
                self._copies.setdefault(str(self._workspace.root / name), copy)
            nofollow.remove(self._of_forks)
        left = [(path, copy, copy.after(path)) for path, copy in self._copies.items()]
        held = _open_files() if left else frozenset()
        self._watch.held += [(self, path, copy, after) for path, copy, after in left if path in held]
        if changes := [self._change(path, copy, after) for path, copy, after in left if after is not None]:
            with suppress(AgentError):  # a transcript that cannot be written: the call's result meets it again
                self._record(*changes)
        again: list[FileChanged] = []
        for path in self._made:
            with suppress(OSError, ValueError, ToolFailure):
                stamp = _stamp(os.lstat(path))
                if self._session.history.files.removed(self._name(path)):  # so that undo finds the way to what it was
                    digest = digest_of_file(Path(path))
                    again.append(FileChanged(call=self._workspace.call, path=self._name(path), digest=digest))
                else:
                    known = self._watch.made.get(path) if path in self._copies else None
                    self._watch.made[path] = stamp, known[1] if known else self._watch.turn
        if again:
            with suppress(AgentError):
                self._record(*again)

    def settle_later(self, path: str, copy: Copy, before: str | None) -> None:
        """Journal what a file that the run left open has become since (`before`: its digest then)."""
        if (after := copy.after(path)) is not None and after != before:
            self._workspace.record(self._change(path, copy, after))

    def _change(self, path: str, copy: Copy, after: str | None) -> FileChanged:
        """`after`: the digest of what stands there now; None: it is about to change."""
        return FileChanged(
            call=self._workspace.call, path=self._name(path), backup=copy.digest, digest=after or "", mode=copy.mode,
            begun=after is None,
        )  # fmt: skip

    def _keep_named(self, path: str) -> None:
        target = os.path.realpath(path)
        if target in self._named or not self._is_ours(target):
            return
        with suppress(OSError):
            if self._fits(os.lstat(target)):
                self._named[target] = copied(target, self._workspace.backups)

    # ------------------------------------------------------------------ files

    def changes(self, path: str, how: How) -> None:
        if not path or path in self._seen:
            return
        target = _target(path, follow=how in ("write", "append", "link", "mode"))
        if self._refuses and self._mode == "read_only":
            raise Refused(f"mode is read_only: {target} may not be changed")
        if self._guards and how != "mode" and (reason := in_force(target, self._workspace.folder, whole=True)):
            verb = "give another name to" if how == "link" else "write"
            self._ask(f"write:{self._name(target)}", f"{verb} {self._name(target)}", target, reason)
        try:
            state = os.lstat(target)
        except (OSError, ValueError):
            if how != "remove" and target not in self._copies and target not in self._named:
                self._made.add(target)
            return
        made, turn = self._watch.made.get(target, ((), 0))
        if own := made == _stamp(state):
            self._made.add(target)
        if not stat.S_ISREG(state.st_mode) or (target in self._made and not (own and turn != self._watch.turn)):
            return
        if self._is_ours(target):
            self._change_ours(target, how, state, own)
        elif self._guards and how in ("write", "remove", "replace") and not _is_scratch(target):
            outside = not Path(target).is_relative_to(self._workspace.root)
            where = "outside the project" if outside else "in a folder of which no copies are kept"
            self._ask(
                f"write:{target}", f"change {target}", f"{_size(state)}; it is {where}, so no copy is kept",
                f"it changes a file {where}",
            )  # fmt: skip
        self._seen.add(path)

    def moves(self, folder: str, target: str) -> None:
        old, new = _target(folder, follow=False), _target(target, follow=False)
        if self._guards and self._is_ours(old) and not Path(new).is_relative_to(self._workspace.root):
            name = self._name(old)
            text = f"{name} goes to {new}, outside the project, so no copies of its files are kept"
            self._ask(f"move:{name}", f"move {name} out of the project", text, "undo cannot bring it back")

    def _change_ours(self, target: str, how: How, state: os.stat_result, own: bool) -> None:
        """`own`: code of an earlier turn made it: undo brings that back, nothing is asked."""
        if target in self._copies:
            return
        name, size = self._name(target), state.st_size
        fits = self._fits(state)
        if not fits and self._guards and not own and how != "mode":
            if size > self._most:
                key, action, what = f"write:{name}", f"change {name}", f"{name} has {_size(state)}"
            else:
                key, action = f"copies:{self._workspace.call}", "change further files without copies"
                what = f"{name} is the next one; the copies of this run have {_mb(self._size)}"
            self._ask(key, action, f"{what}: more than is copied (IPyAgent.backup_mb), so undo cannot bring it back",
                      "undo cannot bring it back")  # fmt: skip
        elif (
            self._asks and not own and how in ("write", "remove", "replace")
            and (self._was_read(target) or self._watch.denied(f"write:{name}"))  # nor in a call of its own
        ):  # fmt: skip
            self._ask(f"write:{name}", f"{_VERBS[how]} {name}",
                      f"{name} ({_size(state)}) was read by the same code; a copy is kept for %agent undo",
                      "it changes what it has read")  # fmt: skip
        if not fits:
            self._say(f"{name} ({_size(state)}) is changed without a copy: undo cannot bring it back")
            return
        copy = self._named.pop(target, None) if os.getpid() == self._pid else None
        if copy is None or not copy.same(target):
            if copy is not None:
                copy.discard()
            copy = None
        self._size += size
        try:
            copy = copy or copied(target, self._workspace.backups)
            copy.keep()
            self._copies[target] = copy
            self._record(self._change(target, copy, None))
            if not self._refuses:
                self._watch.held.append((self, target, copy, None))
        except (OSError, AgentError) as problem:
            if not self._refuses:
                return
            raise Refused(f"{name} stays as it is, for no copy of it can be kept: {problem}") from None

    def _fits(self, state: os.stat_result) -> bool:
        return (
            stat.S_ISREG(state.st_mode)
            and state.st_size <= self._most
            and self._size + state.st_size <= ALL_COPIES * self._most
        )

    @property
    def _most(self) -> int:
        return self._workspace.limit("backup_mb") * 1_000_000

    def _was_read(self, target: str) -> bool:
        base = os.path.basename(target)
        names = (os.fsdecode(path) for path in tuple(self.opened) if not isinstance(path, int))
        return any(os.path.basename(name) == base and os.path.realpath(name) == target for name in names)

    def _is_ours(self, target: str) -> bool:
        try:
            parts = Path(target).relative_to(self._workspace.root).parts
        except ValueError:
            return False
        return not any(is_guarded(part) or part == "__pycache__" for part in parts)

    def _name(self, target: str) -> str:
        with suppress(ValueError):
            return Path(target).relative_to(self._workspace.root).as_posix()
        return target

    # ------------------------------------------------------------------ hosts, programs, processes

    def connects(self, host: str, port: int) -> None:
        if self._refuses and self._mode == "read_only":
            raise Refused("mode is read_only: nothing may be sent")
        if not self._asks:
            return
        if host.startswith("unix:"):
            path = host.removeprefix("unix:")
            name = os.path.basename(path)
            if path == os.environ.get("SSH_AUTH_SOCK") or name.startswith(_SOCKETS) or "/agent." in path:
                self._ask(host, f"use the socket {path}", path, "another program acts for whoever uses it")
            return
        host = host.lower().rstrip(".").partition("%")[0]
        address = _address(host)
        if _is_here(host, address, port):
            return
        if address is not None and (known := self._watch.host_of(str(address))):
            host = known
        what = f"{host}{f':{port}' if port else ''}\nWhat it sends there is not known beforehand."
        self._ask(f"host:{host}", f"connect to {host}", what, "it can send data out")
        if address is None:
            self._watch.resolved(host)

    def starts(self, command: str, program: str) -> None:
        name = os.path.basename(program)
        if self._refuses and self._mode == "read_only":
            raise Refused("mode is read_only: no program may be started")
        of_system = os.path.isabs(program) and os.path.realpath(os.path.dirname(program)) in _SYSTEM
        if not self._guards or (name in LOOKS and of_system):
            return
        danger = shell_danger(command, self._workspace.folder)
        if not self._asks and not danger:
            return
        open_ended = name.rstrip("0123456789.") in _OPEN_ENDED
        if open_ended and os.path.basename(command) == name:  # %%bash: it reads what to do
            command = f"{command} <<'END'\n{self._code}\nEND"
        key = f"program:{command if danger or open_ended or not name else name}"
        self._ask(key, f"run {name or 'a command'}", command, danger or "a program is not watched", "bash")

    def ends(self, process: int, group: bool) -> None:
        if self._refuses and self._mode == "read_only":
            raise Refused("mode is read_only: no process may be ended")
        if not self._guards:
            return
        import psutil

        try:
            found = psutil.Process(process)
            if any(parent.pid == os.getpid() for parent in found.parents()):  # this process has started it
                return
        except psutil.Error:
            return  # there is none
        text = str(process)
        with suppress(psutil.Error):
            text = f"{process}: {' '.join(found.cmdline())[:500]}"
        what = f"process group {process}" if group else f"process {process}"
        self._ask(f"process:{process}", f"send a signal to {what}", text, "it may end a process that it did not start")

    def failed(self, problem: Exception) -> None:
        self._say(f"what code did could not be looked at ({type(problem).__name__}: {problem})")

    # ------------------------------------------------------------------ the agent thread

    def _ask(self, key: str, action: str, text: str, danger: str = "", language: str = "text") -> None:
        question = Question(key, exact_line(action), text, danger, language, "python" if self._code else "shell")
        began = time.monotonic()
        try:
            if os.getpid() == self._pid and self._wait is not None:
                self._watch.allow(question, self._wait, self._workspace.call)
            elif not self._watch.allowed(key):
                raise Refused(f"a forked process cannot ask whether it may {action}: do it in the kernel's own process")
        except Refused as refused:
            if str(refused) not in self.refused:
                self.refused.append(str(refused))
            raise
        finally:
            self.waited += time.monotonic() - began

    def _record(self, *changes: FileChanged) -> None:
        """Journal changes, before they are made where that can be."""
        if os.getpid() != self._pid:
            lines = "".join(f"{change.backup} {change.mode} {change.path}\0" for change in changes)
            with open(nofollow.opened(self._of_forks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, make=True), "a") as file:
                file.write(lines)
        if os.getpid() != self._pid or self._wait is None:
            return

        async def record() -> None:
            for change in changes:
                self._workspace.record(change)

        self._wait(record)

    def _say(self, why: str) -> None:
        if os.getpid() != self._pid or self._wait is None or why in self._watch.told:
            return
        self._watch.told.add(why)

        async def say() -> None:
            self._session.record(LayerFailed(layer="watching code", why=why))

        with suppress(AgentError):
            self._wait(say)


def _open_files() -> frozenset[str]:
    """The files that this process has open, where the system tells."""
    found = set()
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                found.add(os.readlink(f"/proc/self/fd/{name}"))
    return frozenset(found)


_VERBS = {"write": "overwrite", "remove": "remove", "replace": "replace"}


def _target(path: str, *, follow: bool) -> str:
    """The file itself; of a link that goes or is replaced, the link."""
    if follow:
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _stamp(state: os.stat_result) -> tuple[int, ...]:
    return state.st_ino, state.st_mtime_ns, state.st_size


def _size(state: os.stat_result) -> str:
    return _mb(state.st_size) if state.st_size >= 100_000 else f"{state.st_size:,} bytes"


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _is_scratch(target: str) -> bool:
    """Whether a file without a copy is nobody's work: temporary, a cache or settings of a library, a package."""
    if os.path.basename(os.path.dirname(target)) == "__pycache__" and ".pyc" in os.path.basename(target):
        return True
    places = {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev", "/proc", sys.prefix, sys.base_prefix}
    if any(Path(target).is_relative_to(os.path.realpath(place)) for place in places):
        return True
    with suppress(ValueError):
        return Path(target).relative_to(os.path.realpath(os.path.expanduser("~"))).parts[0].startswith(".")
    return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _is_here(host: str, address: Any, port: int) -> bool:
    """Whether it is this machine by its usual address, and no proxy that hands on whatever it gets."""
    if host != "localhost" and str(address) not in ("127.0.0.1", "::1", "0.0.0.0", "::"):
        return False
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    with suppress(ValueError):
        return not port or all(urlsplit(proxy).port != port for proxy in getproxies().values())
    return True
