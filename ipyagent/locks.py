"""Locks between processes: the system's own (`flock`), which dies with its holder; where a file system has none (NFS
without its lock service, Lustre, some of FUSE), a file that only one can make and that names its holder.

Both tell who holds them, and each looks for the other: a lock service can go and come back while locks are held. A
holder is gone for certain when its machine was started anew since or its process is no longer there. Of a holder on
another machine nothing is known: a lock that is held for moments counts for ten minutes, a longer one for ever.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

HELD = ".held"
"""Ends the name of the file that stands in for the system's lock."""
MOMENTS = 600.0
"""Seconds after which a lock that is held for moments counts no longer, if nothing is known of its holder."""
SAME_START = 2.0
"""Seconds by which two readings of when a process began may differ."""
_BREAKING = 30.0
"""Seconds that writing a holder's file, or taking a dead one's away, takes at most."""
_NAMELESS = ("", "localhost", "localhost.localdomain")
_NO_LOCKS = (errno.ENOLCK, errno.ESTALE, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.EINVAL)
_LINUX: bool = sys.platform.startswith("linux")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOST = 2_000


class LockHeld(OSError):
    """Somebody else holds the lock."""

    def __str__(self) -> str:
        return "another process holds its lock"


class ProcessIdentity(NamedTuple):
    """A process: `boot` names the run of its machine and `space` its numbering of processes ("" where the system does
    not tell), `started` is in seconds from the machine's start; `token` tells one lock of it from another."""

    pid: int
    host: str
    boot: str
    space: str
    started: float
    token: str


class Lock:
    """The lock that a file stands for. `seconds`: how long `acquire` waits; `long`: it may be held for days, and a
    holder of whom nothing is known holds it still. May be let go of on any thread."""

    def __init__(self, path: Path, *, seconds: float, long: bool = False, poll: float = 0.01) -> None:
        self.path = path
        self._seconds, self._long, self._poll = seconds, long, poll
        self._held: Callable[[], None] | None = None
        self._pid = 0

    def __repr__(self) -> str:
        return f"<Lock {self.path}{', held' if self._held is not None else ''}>"

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()

    def acquire(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Raises Held after `seconds`, or once `stopped`; OSError when the file cannot be made."""
        deadline = time.monotonic() + self._seconds
        while True:
            self._held = _native(self.path) if sys.platform == "win32" else self._take()
            if self._held is not None:
                self._pid = os.getpid()
                return
            if stopped() or time.monotonic() >= deadline:
                raise LockHeld
            time.sleep(self._poll)

    def release(self) -> None:
        """Let go; nothing when it is not held, or by the process that this one was forked from."""
        held, self._held = self._held, None
        if held is not None and self._pid == os.getpid():
            held()

    def holder(self) -> ProcessIdentity | None:
        """Who holds it, or held it last; None when nobody is named, an identity without a pid when nobody can be
        told."""
        return _read(self.path) or _read(self._marker)

    # ------------------------------------------------------------------ the system's lock

    def _take(self) -> Callable[[], None] | None:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0)  # closed when nobody has it: interrupts
        handle = file.fileno()

        def let_go() -> None:
            with suppress(OSError):
                os.ftruncate(handle, 0)
            _unlock(handle)
            file.close()

        problem = _flock(handle)
        if problem is not None and problem.errno in _NO_LOCKS:
            file.close()
            return self._stand_in()
        if problem is not None or not self._is_there(handle):
            file.close()
            return None
        with suppress(OSError):  # a full disk: it is held all the same
            os.ftruncate(handle, 0)
            os.write(handle, _encoded(identity()))
            if self._long:
                os.fsync(handle)
        if (there := _read(self._marker)) is not None and not self._gone(there, self._marker):
            let_go()
            return None
        return let_go

    def _is_there(self, handle: int) -> bool:
        """Whether the file that was locked is the one at the path still."""
        try:
            there, ours = os.stat(self.path), os.fstat(handle)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    # ------------------------------------------------------------------ a file in its stead

    @property
    def _marker(self) -> Path:
        return self.path.with_name(self.path.name + HELD)

    def _stand_in(self) -> Callable[[], None] | None:
        marker, mine = self._marker, identity()
        if self._natively() or ((there := _read(marker)) is not None and not self._break(there, marker)):
            return None
        if not _make(marker, mine):
            return None

        def let_go() -> None:
            if (there := _read(marker)) is not None and there.token == mine.token:
                with suppress(OSError):
                    os.unlink(marker)

        if self._natively():  # it came between
            let_go()
            return None
        return let_go

    def _natively(self) -> bool:
        """Whether somebody holds the system's lock, whom this process cannot see by it."""
        there = _read(self.path)
        return there is not None and not self._gone(there, self.path)

    def _gone(self, holder: ProcessIdentity, file: Path) -> bool:
        if not holder.pid:
            return _age(file) > _BREAKING
        known = is_gone(holder)
        if known is not None:
            return known
        return not self._long and _age(file) > MOMENTS

    def _break(self, holder: ProcessIdentity, marker: Path) -> bool:
        """Take the file of a holder that is gone away; whether the place is free. Who makes the file that is named
        after this very holder may do it, so nobody takes away what the next one makes."""
        if not self._gone(holder, marker):
            return False
        breaking = marker.with_name(f"{marker.name}-{holder.token or 'unknown'}")
        try:
            os.close(os.open(breaking, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if _age(breaking) > _BREAKING:
                with suppress(OSError):
                    os.unlink(breaking)
            return False
        try:
            there = _read(marker)
            if there is not None and there.token == holder.token:
                os.unlink(marker)
            return there is None or there.token == holder.token
        finally:
            with suppress(OSError):
                os.unlink(breaking)


def why_no_locks(folder: Path) -> str:
    """One line when the file system of a folder has no locks; "" when it has, or that cannot be told. Nothing is
    written."""
    there = next((place for place in (folder, *folder.parents) if place.is_dir()), folder)
    try:
        with os.scandir(there) as entries:  # of a folder itself NFS does not ask its server
            files = (entry.path for entry in entries if entry.is_file(follow_symlinks=False))
            handle = os.open(next(files, str(there)), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return ""
    try:
        problem = _flock(handle, shared=True)
    finally:
        os.close(handle)
    if problem is None or problem.errno not in _NO_LOCKS:
        return ""
    return (
        f"{folder} is on a file system without locks ({problem.strerror}), so lock files that end in {HELD} "
        "are used instead"
    )


# ---------------------------------------------------------------------- who holds a lock


def identity() -> ProcessIdentity:
    """This process, with a new token."""
    host, boot, space = _machine()
    return ProcessIdentity(os.getpid(), host, boot, space, _started(os.getpid()) or 0.0, secrets.token_hex(8))


def is_gone(holder: ProcessIdentity) -> bool | None:
    """Whether a process has ended: its machine was started anew since, or it is not among this machine's; None when
    that cannot be told."""
    host, boot, space = _machine()
    if holder.host != host or host in _NAMELESS:
        return None
    if holder.boot != boot:
        return True if holder.boot and boot else None
    if holder.space and holder.space != space:
        return None
    return not is_running(holder.pid, holder.started)


def is_running(pid: int, started: float) -> bool:
    """Whether the process of this number that began so many seconds after the machine's start runs."""
    began = _started(pid)
    return began is not None and (began < 0 or abs(began - started) < SAME_START)


def _started(pid: int) -> float | None:
    """When a process began, in seconds from the machine's start, so that setting the clock does not touch it; None
    when there is none (or a dead one that nobody has waited for), -1.0 where the system does not tell more."""
    if pid <= 0:
        return None
    if sys.platform != "win32" and _LINUX:
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            return None if fields[0] in (b"Z", b"X") else int(fields[19]) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            pass  # /proc may hide what other users run
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except OSError:
            return -1.0
        return -1.0
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time() - psutil.boot_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:  # it is there, and that is all the system tells
        return -1.0


def _machine() -> tuple[str, str, str]:
    boot = space = ""
    with suppress(OSError):
        boot = _BOOT.read_text("ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    return platform.node(), boot, space


def _encoded(holder: ProcessIdentity) -> bytes:
    return json.dumps(holder._asdict()).encode()


def _read(path: Path) -> ProcessIdentity | None:
    """Who is named in a file; None when there is none, or nobody; an identity without a pid for what cannot be
    read."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))) as file:
            content = file.read(_MOST)
            empty = not content and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError:
        return None
    if empty and not path.name.endswith(HELD):
        return None
    try:
        found: dict[str, Any] = json.loads(content)
        return ProcessIdentity(
            int(found["pid"]), str(found["host"]), str(found["boot"]), str(found["space"]), float(found["started"]),
            "".join(sign for sign in str(found["token"])[:40] if sign.isalnum()),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError):  # its maker is at work, or was killed
        return ProcessIdentity(0, "", "", "", 0.0, "")


def _make(marker: Path, mine: ProcessIdentity) -> bool:
    """Make the file with its content in one step; whether it was not there. Raises OSError."""
    new = marker.with_name(f".{marker.name}-{mine.token}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            file.write(_encoded(mine))
        try:
            os.link(new, marker)
        except FileExistsError:
            return False
        except OSError as problem:
            if problem.errno not in _NO_LINKS:
                raise
            try:  # no links either: for a moment it names nobody, and is held
                with os.fdopen(os.open(marker, flags, 0o600), "wb") as file:
                    file.write(_encoded(mine))
            except FileExistsError:
                return False
        return True
    finally:
        with suppress(OSError):
            os.unlink(new)


def _age(path: Path) -> float:
    """Seconds since a file was written, by the clock of the machine that keeps it."""
    probe = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        then = os.stat(path).st_mtime
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        return os.stat(probe).st_mtime - then
    except OSError:
        return 0.0
    finally:
        with suppress(OSError):
            os.unlink(probe)


# ---------------------------------------------------------------------- the system's calls


def _flock(handle: int, *, shared: bool = False) -> OSError | None:
    """Take the system's lock, waiting for nobody; what came in between. Raises OSError that is about no lock."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, *_NO_LOCKS) and not shared:
                raise
            return problem
    return None


def _unlock(handle: int) -> None:
    if sys.platform != "win32":
        import fcntl

        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)


def _native(path: Path) -> Callable[[], None] | None:
    """The lock of Windows."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0, mode=0o600, is_singleton=False, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock.release
