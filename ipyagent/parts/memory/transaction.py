"""One writer at a time in a memory directory, and nothing half done: before it touches a file a writer leaves
a note of its name, which it removes when the index is true again. Whoever comes after a killed writer finds
the note and finishes for it. The lock is the system's own, which dies with its holder, see `locks`."""

from __future__ import annotations

import json
import os
import platform
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import msgspec

from ipyagent.errors import MemoryRefused
from ipyagent.locks import Lock, LockHeld, ProcessIdentity, identity, is_gone, is_of_before
from ipyagent.parts.memory.history import HISTORY, NEW
from ipyagent.parts.memory.safe_paths import SandboxedDir

SECONDS = 30.0
ALL = "*"
"""Stands for every file in a note."""
_LOCK = f"{HISTORY}/lock"
_NOTE = f"{HISTORY}/unfinished.json"
_IGNORE = f"{HISTORY}/.gitignore"
STOP: ContextVar[threading.Event | None] = ContextVar("ipyagent_memory_stop", default=None)
"""Set by whoever no longer wants the work of this context: it waits for no lock, and begins no further write."""
STOPPED = "stopped"
"""The reason of the refusal that ends such work."""


class StoreLock:
    """The lock of one memory directory. `finish` makes the index true for the names that a killed writer left."""

    def __init__(
        self, files: SandboxedDir, finish: Callable[[list[str]], object], prepare: Callable[[], object] | None = None
    ) -> None:
        self._files = files
        self._finish = finish
        self._prepare = prepare
        self._held = threading.local()

    def __repr__(self) -> str:
        return f"<StoreLock of {self._files.root}>"

    @contextmanager
    def lock(self, seconds: float = SECONDS) -> Iterator[None]:
        """Reentrant in a thread. Raises MemoryRefused "busy" after so many seconds."""
        depth = self._depth()
        lock = None if depth else self._acquired(seconds)
        self._held.depth = depth + 1
        try:
            if lock is not None:
                self._recover()
            yield
        finally:
            self._held.depth = depth
            if lock is not None:
                lock.release()

    def begin(self, *names: str) -> None:
        """Leave the note of what is about to change. Raises MemoryRefused when the work was stopped; from here on it
        goes to its end."""
        _refuse_stopped()
        self._files.replace(_NOTE, json.dumps(names).encode(), f"{NEW}/note", durable=False)

    def end(self) -> None:
        """Remove the note."""
        self._files.remove(_NOTE)

    def look(self) -> None:
        """Finish what a killed writer left, if there is any; a living one is left alone."""
        with suppress(MemoryRefused):  # reading goes on: whoever writes is told
            if self._files.status(_NOTE) is not None and not self._depth():
                with self.lock(0.0):
                    pass

    def _depth(self) -> int:
        """How many times this thread holds the lock."""
        depth: int = self._held.__dict__.get("depth", 0)
        return depth

    def _acquired(self, seconds: float) -> Lock:
        root = self._files.root
        if not root.is_dir() and self._prepare is not None:
            self._prepare()
        status = self._files.make(_LOCK)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise MemoryRefused(f"{root / _LOCK} is a link or a folder; remove it", reason="link")
        lock = Lock(root / _LOCK, seconds=seconds, poll=0.004)
        try:
            stop = STOP.get()
            lock.acquire(stop.is_set if stop is not None else lambda: False)
        except LockHeld:
            _refuse_stopped()
            told = f"another process has held the lock of {root} for {seconds:.0f} s; try again"
            raise MemoryRefused(told, reason="busy") from None
        except OSError as problem:
            raise MemoryRefused(
                f"{root} cannot be locked ({problem}): fix its permissions, or name another folder", reason="disk"
            ) from None
        return lock

    def _recover(self) -> None:
        note = self._files.read(_NOTE)
        for left in self._files.names(NEW):
            self._files.remove(f"{NEW}/{left}")
        if self._files.status(_IGNORE) is None:  # the history is no part of what a project's memory gives to others
            self._files.replace(_IGNORE, b"*\n", f"{NEW}/ignore", durable=False)
        if note is None:
            return
        try:
            names = [str(name) for name in json.loads(note)]
        except (ValueError, TypeError):
            names = [ALL]
        self._finish(names)
        self.end()


def _refuse_stopped() -> None:
    stop = STOP.get()
    if stop is not None and stop.is_set():
        raise MemoryRefused("stopped before anything was written", reason=STOPPED)


# ---- `.consolidate-lock`: who tidies a memory directory now, and when that was last done. Its time of change IS
# the time of the last consolidation. A file without content is free. While a dream holds it, it says who does and
# which time to put back: its holder does so when it fails, whoever comes later when the holder is dead. A pid alone
# is not identity: the time at which the process began, counted from the machine's start so that setting the clock
# does not touch it, is.

NAME = ".consolidate-lock"
HERE = 3600.0
"""Seconds after which the lock of a dead process of this machine counts no longer."""
ELSEWHERE = 6 * 3600.0
"""The same for another machine, whose processes cannot be looked at."""
MOST = 10_000


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that tidies: `boot` names the run of its machine ("" where the system does not tell), `started`
    is in seconds from then; `space` names the numbering of its
    processes; `before` the time to put back, in nanoseconds (0: there was none)."""

    pid: int
    host: str
    boot: str
    started: float
    token: str
    before: int = 0
    space: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """`last`: Unix time of the last consolidation, 0.0 for never; `holder`: who is at it now, since `since`."""

    last: float = 0.0
    holder: Holder | None = None
    since: float = 0.0


class DreamLock:
    """The lock of one memory directory. `guard` is the store's lock, held for moments only."""

    def __init__(self, folder: Path, guard: Callable[[], AbstractContextManager[None]]) -> None:
        self.path = folder / NAME
        self._files = SandboxedDir(folder)
        self._guard = guard

    def __repr__(self) -> str:
        return f"<DreamLock {self.path}>"

    def glance(self) -> State | None:
        """How it stands when nobody tidies: one `stat`. None: somebody does, or did when it was killed."""
        try:
            status = os.lstat(self.path)
        except OSError:  # nobody ever tidied here; where it cannot be read it cannot be taken either
            return State()
        return State(last=status.st_mtime) if not status.st_size and stat.S_ISREG(status.st_mode) else None

    def state(self, *, certain: bool = False) -> State:
        """How it stands. A lock whose holder is dead is rolled back first, if it is old enough not to be doubted;
        `certain`: also a younger one of a dead process of this machine."""
        if (free := self.glance()) is not None:
            return free
        with self._guard():
            return self._seen(certain)

    def acquire(self, *, certain: bool = False) -> HeldLock:
        """Take it: write, then read again who won. Raises MemoryRefused ("busy") while another dreams."""
        mine = _this_process()
        with self._guard():
            now = self._seen(certain)
            if now.holder is not None:
                raise busy(now)
            before = self._files.status(NAME)
            mine = msgspec.structs.replace(mine, before=before.st_mtime_ns if before is not None else 0)
            self._put(msgspec.json.encode(mine), None)
        won = self._read()
        if won is None or won.token != mine.token:
            raise busy(State(holder=won, since=time.time()))
        return HeldLock(self, mine)

    def release(self, holder: Holder, *, done: bool) -> bool:
        """Let go, `done` or else with the old time; whether it was still this holder's."""
        with self._guard():
            now = self._read()
            if now is None or now.token != holder.token:
                return False  # it was taken for dead, and rolled back, by somebody else
            self._free(None if done else holder.before)
        return True

    def _seen(self, certain: bool) -> State:
        """The state, a dead lock rolled back; under the guard."""
        status = self._files.status(NAME)
        if status is None:
            return State()
        if not stat.S_ISREG(status.st_mode):
            raise MemoryRefused(f"{self.path} is a link or a folder; remove it", reason="link")
        if not status.st_size:
            return State(last=status.st_mtime)
        holder = self._read() or _stranger(status.st_mtime_ns)
        if not is_stale(holder, time.time() - status.st_mtime, certain=certain):
            return State(last=holder.before / 1e9, holder=holder, since=status.st_mtime)
        self._free(holder.before)
        return State(last=holder.before / 1e9)

    def _read(self) -> Holder | None:
        try:
            return msgspec.json.decode(self._files.read(NAME, MOST) or b"", type=Holder)
        except msgspec.DecodeError:
            return None

    def _free(self, modified: int | None) -> None:
        """No holder; the time now, or the one given, or with 0 no file."""
        if modified == 0:
            self._files.remove(NAME)
        else:
            self._put(b"", modified)

    def _put(self, content: bytes, modified: int | None) -> None:
        """Content and time change in one step: a process killed in between would leave a false time."""
        ready = f"{NEW}/dream-lock"
        self._files.replace(ready, content, f"{NEW}/dream-lock-new")
        if modified is not None:
            self._files.touch(ready, modified)
        self._files.move(ready, NAME)


class HeldLock:
    """A lock that is held. Used as a context it is rolled back at the end, unless `succeed` came first."""

    def __init__(self, lock: DreamLock, holder: Holder) -> None:
        self._lock = lock
        self._holder = holder
        self._open = True

    def __repr__(self) -> str:
        return f"<HeldLock {self._lock.path}, {'held' if self._open else 'let go'}>"

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.fail()

    def succeed(self) -> bool:
        """The consolidation is done, now; whether the lock was still ours."""
        return self._end(done=True)

    def fail(self) -> bool:
        """Put the old time back; nothing when it was let go already."""
        return self._end(done=False)

    def _end(self, *, done: bool) -> bool:
        if not self._open:
            return False
        self._open = False
        return self._lock.release(self._holder, done=done)


def is_stale(holder: Holder, age: float, *, certain: bool = False) -> bool:
    """Whether a lock of so many seconds counts no longer. An age below zero, the clock was set back, counts as
    long as it is far away."""
    known = ProcessIdentity(holder.pid, holder.host, holder.boot, holder.space, holder.started, holder.token)
    if is_of_before(known):
        return True
    gone = is_gone(known)
    return abs(age) > ELSEWHERE if gone is None else gone and (certain or abs(age) > HERE)


def busy(state: State) -> MemoryRefused:
    """Why the lock cannot be had."""
    holder = state.holder
    if holder is None or not holder.pid:
        return MemoryRefused("another process tidies these memories now; try again later", reason="busy")
    where = "" if holder.host == platform.node() else f" on {holder.host}"
    since = time.strftime("%H:%M", time.localtime(state.since))
    return MemoryRefused(
        f"process {holder.pid}{where} tidies these memories since {since}; try again later", reason="busy"
    )


def _this_process() -> Holder:
    return Holder(**identity()._asdict())


def _stranger(modified: int) -> Holder:
    """Whoever wrote something else into the lock: judged by age alone, and the time stays."""
    return Holder(pid=0, host="", boot="", started=0.0, token="", before=modified)
