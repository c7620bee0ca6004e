"""Sees what agent code is about to do to files, other hosts and programs, in whatever spelling: Python's audit events
(PEP 578) are raised on the thread that does it, before it is done.

An audit hook cannot be taken out, so a process has one; it looks at nothing unless the code that raised the event runs
for an agent. What does not raise events is not seen: compiled code that opens files or connections itself (Polars,
DuckDB, Arrow, curl bindings), ctypes, and other processes. This is watching, no confinement."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal, Protocol, TypeAlias


class Refused(Exception):
    """What a watch raises: the code that tried gets PermissionError with the same words."""


How: TypeAlias = Literal["write", "append", "remove", "replace", "mode", "link"]
"""What is about to be done to a file: its content, more behind it, the file itself, another in its place, its rights,
another name for it."""


class Watch(Protocol):
    """What one run of agent code does, told on the thread that does it, before it is done. What these raise is raised
    in the code."""

    @property
    def opened(self) -> set[Any]:
        """Paths that were opened for reading, as they were written; at most `MOST_READ`."""

    @property
    def behind(self) -> Watch:
        """What is told once the run has ended of threads that it left: others may work in them, so it neither asks nor
        refuses."""

    def changes(self, path: str, how: How) -> None:
        """A file is about to change. `path` is absolute, its links are not followed."""

    def moves(self, folder: str, target: str) -> None:
        """A folder is about to get another path. Both are absolute."""

    def connects(self, host: str, port: int) -> None:
        """Something is about to be sent to a host, a name or an address ("unix:PATH" for a socket in the file
        system)."""

    def starts(self, command: str, program: str) -> None:
        """A program is about to be started: the whole command as a shell would take it, and the program, its path
        where it is found ("" where a shell reads the command)."""

    def ends(self, process: int, group: bool) -> None:
        """A process, or a group of them, is about to get a signal."""

    def failed(self, problem: Exception) -> None:
        """A fault of ours kept something from being looked at."""


MOST_READ = 20_000
"""Paths of files read that are remembered of one run."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_UNSEEN: Any = object()
"""Stands for a watch while our own code works within."""
_watch: ContextVar[Any] = ContextVar("ipyagent_watch", default=None)
"""The watch of the code that runs in this context: in the run itself, and in the tasks that it makes."""
_opened: ContextVar[set[Any] | None] = ContextVar("ipyagent_opened", default=None)
"""The `opened` of that watch; None in code that is not watched."""
_running: list[tuple[Watch, frozenset[threading.Thread]]] = []
"""Runs under way, the innermost last, each with the threads that were there before it."""
_left: weakref.WeakKeyDictionary[threading.Thread, Watch] = weakref.WeakKeyDictionary()
"""Threads that an ended run left behind."""
_tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
"""Tasks that an ended run left behind."""
_on = False
"""Whether anything is to be looked at."""
_installed = False
_before_process: Callable[[str, Any], None] | None = None
"""Who is told of every process that is about to be started, whoever starts it."""


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """What runs within, on this thread, in threads that it starts and in tasks that it makes, is told to `watch`; the
    threads and tasks that it leaves also afterwards."""
    install()
    run, tasks = (watch, frozenset(threading.enumerate())), _pending()
    _running.append(run)
    _turn()
    token, reads = _watch.set(watch), _opened.set(watch.opened)
    try:
        yield
    finally:
        _watch.reset(token)
        _opened.reset(reads)
        _running.remove(run)
        if left := [thread for thread in threading.enumerate() if _is_new(thread, run[1]) and thread not in _left]:
            _left.update(dict.fromkeys(left, watch.behind))
        _tasks.update(_pending() - tasks)
        _turn()


def _pending() -> set[asyncio.Task[Any]]:
    """The tasks of this thread's loop."""
    try:
        return asyncio.all_tasks()
    except RuntimeError:  # none runs
        return set()


def _turn() -> None:
    """On while agent code runs, and while threads or tasks of it are left."""
    global _on
    threads = any(thread.is_alive() for thread in _left)
    _on = bool(_running) or threads or any(not task.done() for task in _tasks)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """What our own code does within is nobody's action."""
    token, reads = _watch.set(_UNSEEN), _opened.set(None)
    try:
        yield
    finally:
        _watch.reset(token)
        _opened.reset(reads)


def _is_new(thread: threading.Thread | None, before: frozenset[threading.Thread]) -> bool:
    """Whether it came during a run, and is none of ours or of ipykernel's (the user opens subshells)."""
    if thread is None or thread in before or thread.name.startswith("ipyagent"):
        return False
    return type(thread).__module__.partition(".")[0] != "ipykernel"


def _of_thread() -> Watch | None:
    """The watch of a thread that agent code started: its context is empty."""
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined] # current_thread() makes one
    if thread is threading.main_thread():
        return None
    for watch, before in reversed(_running):
        if _is_new(thread, before):
            return watch
    return _left.get(thread) if thread is not None else None


def install(before_process: Callable[[str, Any], None] | None = None) -> None:
    """Look at the events of this process from now on, with a single hook: each hook slows down every event.

    `before_process(event, frame)` is called on the thread that starts a process, before it is there and once no watch
    has refused it; `frame` is that of `Popen`, None for other ways.
    """
    global _before_process, _installed
    _before_process = before_process or _before_process
    if not _installed:
        _installed = True
        sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    # Every event of the process comes here, also of the user's own cells. Reads are the most frequent: the shortest
    # way is theirs, and `==` comes before `in`, which computes the hash of a text that is new each time.
    if event == "open":
        try:
            if (opened := _opened.get()) is None:
                if not _on:
                    return
            elif not args[2] & _WRITING:
                if len(opened) < MOST_READ:
                    opened.add(args[0])
                return
        except (TypeError, IndexError):
            pass  # no file object's own event
    if _on and event in _TOLD:
        _look(event, args)
    if event in _STARTS and _before_process is not None:
        _before_process(event, sys._getframe(1) if event == "subprocess.Popen" else None)


def _look(event: str, args: tuple[Any, ...]) -> None:
    watch = _watch.get() or _of_thread()
    if watch is None or watch is _UNSEEN:
        return
    with unwatched():
        try:
            _TOLD[event](watch, *args)
        except Refused as refused:
            raise PermissionError(str(refused)) from None
        except Exception as problem:  # noqa: BLE001 - a fault of ours is not the code's
            watch.failed(problem)


# ------------------------------------------------------------------ files


def _path(path: Any, folder: Any = -1) -> str:
    """Absolute, links not followed; "" for what is no path (an open descriptor)."""
    if isinstance(path, int) or path is None:
        return ""
    name = os.fsdecode(path)
    if not os.path.isabs(name) and isinstance(folder, int) and folder >= 0:
        name = os.path.join(_folder(folder), name)
    return os.path.abspath(name)


def _folder(descriptor: int) -> str:
    """The folder that is open as this descriptor."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        import fcntl

        found: bytes = fcntl.fcntl(descriptor, fcntl.F_GETPATH, b"\0" * 1_024)  # type: ignore[attr-defined, unused-ignore] # macOS
        return os.fsdecode(found.rstrip(b"\0"))


def _open(watch: Watch, path: Any, mode: Any, flags: Any) -> None:
    """To read or to write."""
    new, flags = os.O_CREAT | os.O_EXCL, flags or 0
    if not flags & _WRITING:
        if isinstance(path, (str, bytes)) and len(watch.opened) < MOST_READ:
            watch.opened.add(path)
        return
    name = _path(path)
    if name and (flags & new != new or not os.path.lexists(name)):  # else it fails
        watch.changes(name, "append" if flags & os.O_APPEND and not flags & os.O_TRUNC else "write")


def _rename(watch: Watch, source: Any, target: Any, at: int = -1, to: int = -1) -> None:
    old, new = _path(source, at), _path(target, to)
    if os.path.isdir(old) and not os.path.islink(old):
        watch.moves(old, new)
    watch.changes(old, "remove")
    watch.changes(new, "replace")


def _mode(watch: Watch, path: Any, mode: Any, at: int = -1, *more: Any) -> None:
    name = _folder(path) if isinstance(path, int) else _path(path, at)
    if os.path.isabs(name):
        watch.changes(os.path.realpath(name), "mode")


def _link(watch: Watch, source: Any, target: Any, at: int = -1, to: int = -1) -> None:
    watch.changes(_path(source, at), "link")
    watch.changes(_path(target, to), "write")


def _writes(watch: Watch, path: Any, at: int = -1) -> None:
    if name := _path(path, at):  # "": a descriptor, which was opened for writing
        watch.changes(name, "write")


def _database(watch: Watch, database: Any) -> None:
    """SQLite opens its files itself."""
    name = os.fsdecode(database) if isinstance(database, (str, bytes, os.PathLike)) else ""
    if name.startswith("file:"):
        from urllib.parse import parse_qs, unquote, urlsplit

        parts = urlsplit(name)
        asked = parse_qs(parts.query)
        if asked.get("mode") in (["ro"], ["memory"]) or "immutable" in asked:
            return
        name = unquote(parts.path)
    if name and name != ":memory:":
        for end in ("", "-wal", "-journal"):
            if not end or os.path.exists(name + end):
                watch.changes(os.path.abspath(name) + end, "link")


# ------------------------------------------------------------------ hosts


def _resolves(watch: Watch, host: Any, *more: Any) -> None:
    if host:
        watch.connects(os.fsdecode(host), 0)


def _connects(watch: Watch, connection: Any, address: Any) -> None:
    family = getattr(connection, "family", None)
    if family == getattr(socket, "AF_UNIX", _UNSEEN):
        watch.connects(f"unix:{os.fsdecode(address)}", 0)
    elif family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple) and len(address) >= 2:
        watch.connects(os.fsdecode(address[0]), int(address[1]))


def _sends(watch: Watch, connection: Any, address: Any = None) -> None:
    if address is not None:  # without one it is connected
        _connects(watch, connection, address)


# ------------------------------------------------------------------ programs and processes


def _words(args: Any) -> list[str]:
    if isinstance(args, (str, bytes, os.PathLike)):
        return [os.fsdecode(args)]
    return [os.fsdecode(arg) for arg in args]


def _search_path(environ: Any) -> str:
    """Where a program is looked for that gets this environment."""
    with contextlib.suppress(Exception):  # an environment may be anything
        own = environ if isinstance(environ, Mapping) else None
        return os.pathsep.join(os.fsdecode(each) for each in os.get_exec_path(own))
    return os.devnull


def _popen(watch: Watch, executable: Any, args: Any, folder: Any = None, environ: Any = None) -> None:
    words = _words(args)
    if len(words) > 2 and os.path.basename(words[0]) in ("sh", "bash", "cmd.exe") and words[1] in ("-c", "/c"):
        watch.starts(" ".join(words[2:]), "")
    else:
        program = os.fsdecode(executable) if executable is not None else words[0]
        program = shutil.which(program, path=_search_path(environ)) or program
        watch.starts(shlex.join(words), program)


def _kill(watch: Watch, process: int, signal: int) -> None:
    own_interrupt = process == os.getpid() and signal == 2  # as Ctrl-C does
    if signal and not own_interrupt:  # 0 asks whether it is there
        watch.ends(process, group=False)


_TOLD: dict[str, Callable[..., None]] = {
    "open": _open, "os.rename": _rename, "os.chmod": _mode, "os.chown": _mode, "os.setxattr": _mode,
    "os.removexattr": _mode, "os.link": _link, "sqlite3.connect": _database, "socket.connect": _connects,
    "socket.sendto": _sends, "socket.sendmsg": _sends, "socket.getaddrinfo": _resolves,
    "socket.gethostbyname": _resolves, "subprocess.Popen": _popen, "os.kill": _kill,
    "os.remove": lambda watch, path, at=-1: watch.changes(_path(path, at), "remove"),
    "os.truncate": lambda watch, path, length: _writes(watch, path),
    "os.symlink": lambda watch, source, target, to=-1: _writes(watch, target, to),
    "os.system": lambda watch, command: watch.starts(os.fsdecode(command), ""),
    "os.exec": lambda watch, path, args, environ=None: _popen(watch, path, args),
    "os.posix_spawn": lambda watch, path, args, environ=None: _popen(watch, path, args),
    "os.spawn": lambda watch, mode, path, args, environ=None: _popen(watch, path, args),
    "os.startfile": lambda watch, path, *more: _popen(watch, None, path),
    "pty.spawn": lambda watch, args: _popen(watch, None, args),
    "os.killpg": lambda watch, group, signal: watch.ends(group, group=True) if signal else None,
}  # fmt: skip
_STARTS = frozenset(("subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.spawn"))
"""Events of a new process."""
