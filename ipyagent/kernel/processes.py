"""Every process that a command or a run of code started, found and ended: by a mark in its environment, by its
session and its descendants. What others started meanwhile (a user's thread, an MCP server) is left alone."""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import sys
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import psutil

from ipyagent.kernel import audit

MARK = "IPYAGENT_COMMAND"
"""Environment variable with the random mark of the command or run that started a process. Once set here it is never
taken out but emptied: whoever goes through `os.environ` on another thread would stumble over a name that is gone."""
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS")
"""Environment variables with the credentials of the model: no process that the agent starts gets them."""
PATIENCE = 0.1
"""Seconds between asking a process to end and ending it."""
_LINUX: bool = sys.platform.startswith("linux")
_GRAIN = 1.0
"""Seconds: a process's start time has the clock's grain."""
_LAST = 2.0
"""Seconds after which the search for what is left of a stopped run is given up."""
_PR_SET_CHILD_SUBREAPER = 36
"""From Linux's <sys/prctl.h>."""
_FORKED = struct.Struct("=ii")
"""A forked child's report: its number and its parent's. Short enough for a pipe to take it whole."""


def without_keys(environ: Mapping[Any, Any]) -> dict[Any, Any]:
    """The environment without the model's credentials, for a process that the agent starts."""
    return {name: value for name, value in environ.items() if name not in KEYS and name not in _KEYS}


_KEYS = tuple(map(str.encode, KEYS))


def _show_keys(shown: bool) -> None:
    """Whether what is started with this process's own environment gets them. `os.environ` keeps them: our own code
    reads it, and so may the user's."""
    for name in KEYS:
        if value := os.environ.get(name):
            if shown:
                os.putenv(name, value)
            else:
                os.unsetenv(name)


def _filter_environment(frame: Any) -> None:
    """Have a Popen that is about to start give its process no keys: its frame has the environment as `env`."""
    given = frame.f_locals.get("env")
    environ = os.environ if given is None else given
    if not any(name in environ for name in (KEYS if environ is os.environ else (*KEYS, *_KEYS))):
        return
    import ctypes

    frame.f_locals["env"] = without_keys(environ)
    if sys.version_info < (3, 13):  # from then on it is written through
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


# ---------------------------------------------------------------------- one command, by its first process


def of_command(leader: int, mark: str, since: float, sessions: Collection[int] = ()) -> list[psutil.Process]:
    """The live processes of the command whose first process is `leader`, started after `since`
    (Unix time), that one included. `sessions`: those that it is known to have begun."""
    found: dict[int, psutil.Process] = {}
    try:
        first = psutil.Process(leader)
        if first.create_time() >= since - _GRAIN:
            found = {process.pid: process for process in (first, *first.children(recursive=True))}
    except psutil.Error:
        pass  # it has ended; what it started is found below
    for process in _since(since):
        if process.pid not in found and (_session(process.pid) in (leader, *sessions) or _mark(process) == mark):
            found[process.pid] = process
    return [process for process in found.values() if _alive(process)]


def end(leader: int, mark: str, since: float, sessions: Collection[int] = ()) -> None:
    """End them all: ask, wait up to 0.1 s, then kill. Blocks no longer than about 0.2 s."""
    processes = of_command(leader, mark, since, sessions)
    _signal(processes, "terminate")
    _await(processes, PATIENCE)
    # Looked up again: a process may have started another while it was asked to end.
    _signal(of_command(leader, mark, since, sessions), "kill")


def _since(since: float) -> Iterator[psutil.Process]:
    """The other processes that were started after `since`."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.create_time() >= since - _GRAIN:
                yield process
        except psutil.Error:
            continue  # ended meanwhile


def _mark(process: psutil.Process) -> str:
    try:
        return str(process.environ().get(MARK, ""))
    except (psutil.Error, OSError):
        return ""  # ended meanwhile, or another user's


def _session(pid: int) -> int:
    try:
        return os.getsid(pid) if hasattr(os, "getsid") else -1
    except OSError:
        return -1


def _alive(process: psutil.Process) -> bool:
    # psutil's own waiting would take the exit status away from asyncio or a Popen object.
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _signal(processes: Iterable[psutil.Process], how: str) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):  # it has ended, or was never ours to end
            getattr(process, how)()


def _await(processes: Iterable[psutil.Process], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(_alive(process) for process in processes):
        time.sleep(0.002)


# ---------------------------------------------------------------------- one run of code in this process


class ChildProcessTracker:
    """The processes that one run of code starts. A context manager, entered on the run's thread; the other methods
    may be called from any thread while it is entered, and do nothing otherwise.

    A process is the run's when it carries the run's mark (set in `os.environ` while the run's own threads start
    something, emptied while another thread does), when it reported its fork, when it is in a session that one of
    these led, or descends from one of these. While no other thread has started a process, every new child is. On
    Linux the orphans of the run become our children (PR_SET_CHILD_SUBREAPER) and so stay findable.
    """

    def __init__(self) -> None:
        self._own = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._told: set[psutil.Process] = set()
        self._entered = False
        self._looking = threading.Lock()

    def __enter__(self) -> ChildProcessTracker:
        _install()
        self._before = frozenset(_children())
        self._group = _group()
        self._since = time.time()
        self._strangers = frozenset(threading.enumerate()) - {threading.current_thread()}
        self._sessions: set[int] = set()
        self._reported: dict[int, int] = {}
        self._pools = frozenset(_pools())
        self._popens: list[weakref.ref[Any]] = []
        self._foreign = self._unknown = 0
        self._reader, self._writer = os.pipe()
        self._reads = sys.platform != "win32"  # there no process forks and none reports: reading would wait
        if sys.platform != "win32":
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)
        self._environ = os.environ.get(MARK, "")
        self._entered = True
        _running.append(self)
        os.environ[MARK] = self._own
        _show_keys(False)
        _adopt_orphans(True)
        return self

    def __exit__(self, *error: object) -> None:
        _running.remove(self)
        os.environ[MARK] = self._environ
        if not _running:
            _show_keys(True)
            _adopt_orphans(False)
        with self._looking:
            self._entered = False
            try:
                self._take_reports()
            finally:
                os.close(self._reader)
                os.close(self._writer)
        self._reap()

    def gather(self) -> list[psutil.Process]:
        """The run's live processes. To be called before anything is ended. A few milliseconds."""
        pause = sys.getswitchinterval()
        sys.setswitchinterval(0.0001)  # beside a busy loop each of the hundred small reads would wait 5 ms
        try:
            with self._looking:
                return self._family() if self._entered else []
        except psutil.Error:
            return []
        finally:
            sys.setswitchinterval(pause)

    def end(self, family: list[psutil.Process]) -> None:
        """Ask `family` to end (SIGTERM); whoever is still there at the next call is killed. Never waits."""
        _signal(self._told, "kill")
        _signal((process for process in family if process not in self._told), "terminate")
        self._told.update(family)

    def end_all(self, patience: float = 0.05) -> None:
        """End whoever is left of the run, by force after `patience` seconds, until none is left. For a run that has
        ended; gives up after 2 s (a process that the system cannot end)."""
        until = time.monotonic() + _LAST
        _close_pools(_pools() - self._pools)
        family = self.gather()
        while family and time.monotonic() < until:
            self.end(family)
            _await(family, patience)
            family = self.gather()  # whoever began meanwhile, too

    # ------------------------------------------------------------------ whose a process is

    def _family(self) -> list[psutil.Process]:
        self._take_reports()
        new = list(_since(self._since))
        marked = {process.pid: process for process in new if _mark(process) == self._own}
        marked |= {process.pid: process for process in new if process.pid in self._reported}
        if not self._foreign:
            children = [child for child in _children() if child not in self._before]
            marked |= {child.pid: child for child in children}
            # without adoption: a shell that an interrupt ended first leaves its jobs to init, but in our group
            for pid in _group() - self._group:
                marked |= {process.pid: process for process in new if process.pid == pid}
        own = _session(os.getpid())
        self._sessions |= {session for pid in marked if (session := _session(pid)) not in (own, -1)}
        marked |= {process.pid: process for process in new if _session(process.pid) in self._sessions}
        family = dict(marked)
        for process in marked.values():
            with contextlib.suppress(psutil.Error):
                family |= {child.pid: child for child in process.children(recursive=True)}
        family.pop(_resource_tracker(), None)
        family.pop(os.getpid(), None)
        return [process for process in family.values() if process not in self._before and _alive(process)]

    def spawning(self, event: str, frame: Any) -> None:
        """A thread is about to start a process: whether it will carry the run's mark."""
        if self._is_stranger():
            self._foreign += 1
            os.environ[MARK] = ""
            _show_keys(True)
            return
        _show_keys(False)
        if os.environ.get(MARK) != self._own:
            os.environ[MARK] = self._own
        if event == "subprocess.Popen" and frame is not None:
            with contextlib.suppress(Exception):
                self._popens.append(weakref.ref(frame.f_locals["self"]))
                _filter_environment(frame)
        elif event not in ("os.fork", "os.forkpty", "os.system"):  # a fork reports itself, the last waits for its own
            self._unknown += 1

    def forked(self) -> None:
        """In a forked child: report it and its parent, if one of the run's threads made it."""
        if not self._is_stranger():
            with contextlib.suppress(OSError):
                os.write(self._writer, _FORKED.pack(os.getpid(), os.getppid()))

    def _is_stranger(self) -> bool:
        # an ident may be given to a new thread; `threading.current_thread()` would make an object for any thread
        thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
        # a thread of ours that starts a command of its own comes during the run
        return thread in self._strangers or getattr(thread, "name", "") == "ipyagent-sandbox"

    def _take_reports(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._reads and (data := os.read(self._reader, _FORKED.size * 512)):
                self._reported |= dict(_FORKED.iter_unpack(data))

    def _reap(self) -> None:
        """Of the orphans that became ours, let those go that have ended: nobody else waits for them."""
        if self._unknown or self._foreign or not _LINUX:
            return  # a dead child may be one that somebody will wait for
        waited = {pid for pid, parent in self._reported.items() if parent == os.getpid()}
        waited |= {popen.pid for ref in self._popens if (popen := ref()) is not None}
        workers = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
        waited |= {worker.pid for worker in workers} | {_resource_tracker()}
        with contextlib.suppress(psutil.Error, OSError):
            for child in _children():
                if child not in self._before and child.pid not in waited and not _alive(child):
                    os.waitpid(child.pid, getattr(os, "WNOHANG", 0))


def _children() -> list[psutil.Process]:
    """This process's own children. Linux keeps a list of each thread's; psutil's way reads about every process of the
    machine, 2 ms for a hundred."""
    # a list is whole only if no child ends while it is read
    last: list[int] | None = None
    for _ in range(5):
        try:
            found = sorted(number for task in os.listdir("/proc/self/task") for number in _listed(task))
        except OSError:  # a thread has ended; another system
            continue
        if found == last:
            break
        last = found
    else:
        return psutil.Process().children()
    children = []
    for number in found:
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            children.append(psutil.Process(number))
    return children


def _listed(task: str) -> list[int]:
    with open(f"/proc/self/task/{task}/children", "rb") as file:
        return [int(number) for number in file.read().split()]


def _pools() -> set[Any]:
    """What ends each multiprocessing.Pool that there is: a pool replaces workers that are ended one by one."""
    registry = getattr(sys.modules.get("multiprocessing.util"), "_finalizer_registry", {})
    return {end for end in list(registry.values()) if "_terminate_pool" in repr(getattr(end, "_callback", ""))}


def _close_pools(pools: set[Any]) -> None:
    """End the pools; one whose lock was lost with a worker is left after a moment."""

    def close() -> None:
        for end in pools:
            with contextlib.suppress(Exception):
                end()

    if pools:
        thread = threading.Thread(target=close, name="ipyagent-pools", daemon=True)
        thread.start()
        thread.join(0.5)


_running: list[ChildProcessTracker] = []
"""The runs under way, the innermost last."""
_installed = False


def _install() -> None:
    """See to it, once a process, that new processes are noticed."""
    global _installed
    if _installed:
        return
    _installed = True

    def starts(event: str, frame: Any) -> None:
        for run in _running[-1:]:  # it may end on its thread meanwhile
            run.spawning(event, frame)

    audit.install(starts)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _running[-1].forked() if _running else None)


def _adopt_orphans(on: bool) -> None:
    if not _LINUX:
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def _group() -> frozenset[int]:
    """The other processes of our process group, where it is ours: a kernel leads one, a script may not."""
    members: set[int] = set()
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        for pid in psutil.pids():
            with contextlib.suppress(OSError):  # ended meanwhile
                if os.getpgid(pid) == os.getpid() and pid != os.getpid():
                    members.add(pid)
    return frozenset(members)


def _resource_tracker() -> int:
    """multiprocessing's own keeper of shared memory: ended by force it only complains and returns."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return int(getattr(getattr(module, "_resource_tracker", None), "_pid", None) or 0)
