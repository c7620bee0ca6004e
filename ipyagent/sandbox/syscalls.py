"""What a confined command is about to change, use or end, told while it waits in that very system call.

A second seccomp filter, with a listener, stops the command in each call that writes, removes, renames, makes, changes
modes, opens a network socket or sends a signal; we look where the call leads, tell, and let it go on or refuse it. What
keeps a command at its level is the kernel (`ipyagent.sandbox.confine`, bubblewrap), which decides after us: a command
of several threads could change a path between our look and the kernel's.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from ipyagent.sandbox import confine
from ipyagent.sandbox.confine import (
    ALLOW,
    ANY_BIT,
    ARCHITECTURES,
    AT_EMPTY_PATH,
    AT_FDCWD,
    ATTRIBUTES,
    EQUAL,
    LOAD,
    NOTIFY,
    RETURN,
    Confinement,
    Instruction,
    Libc,
    Supervisor,
)

What: TypeAlias = Literal[
    "write", "append", "remove", "replace", "make", "symlink", "link", "mode", "network", "signal", "session"
]
"""A file's content, more behind it, the file itself, another in its place, a new folder or pipe, a symbolic link,
another name, its rights, owner, times or attributes; a network; a signal to a process that is not the command's; a
session of processes of its own."""


class Attempt(NamedTuple):
    """`path`: absolute, of the file itself ("" for a network; a process's number for a signal or a session).
    `allowed`: whether the command's level lets it."""

    what: What
    path: str
    allowed: bool


Watch: TypeAlias = Callable[[Attempt], bool]
"""Told on a thread of its own, before it is done; whether it may go on."""

# Numbers of system calls as in `confine`.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None), "openat": (257, 56), "creat": (85, None), "truncate": (76, 45),
    "unlink": (87, None), "unlinkat": (263, 35), "rmdir": (84, None), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34), "mknod": (133, None), "mknodat": (259, 33),
    "symlink": (88, None), "symlinkat": (266, 36), "link": (86, None), "linkat": (265, 37), "kill": (62, 129),
    "socket": (41, 198), "setsid": (112, 157),
}  # fmt: skip
_FLAGS = {"open": 1, "openat": 2}
"""Which argument holds the flags of opening."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FAMILIES = (2, 10, 16)
"""AF_INET, AF_INET6, AF_NETLINK; sockets of other kinds are refused before."""
_NO_NEW_PRIVILEGES = 38
_AT_SYMLINK_FOLLOW = 0x400
_MOST_LINKS = 40
"""As in the kernel."""
_STREAMS = ("/dev/tty", "/dev/pts/", "/proc/")
"""The system's own, and pipes that a command has open."""
_FORKED: dict[str, Any] = {}
"""Has Popen fork: before 3.11.4 it kept the interpreter's lock in `vfork`, and the child's `setsid` waits for us."""
if sys.platform != "win32" and sys.version_info < (3, 11, 4):
    _FORKED["group"] = os.getegid()


@cache
def _numbers() -> dict[str, int]:
    every = {**_CALLS, **{name: confine.CALLS[name] for name in ATTRIBUTES}}
    return confine.call_numbers(every, platform.machine())


@cache
def _program() -> bytes:
    """The filter as the kernel's BPF. What is asked for stands in registers, so nothing changes it meanwhile."""
    code: list[Instruction] = [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, ARCHITECTURES[platform.machine()]),
        (RETURN, 0, 0, ALLOW),  # refused by the other filter
        (LOAD, 0, 0, 0),
    ]
    notify, allow = (RETURN, 0, 0, NOTIFY), (RETURN, 0, 0, ALLOW)
    for name, number in _numbers().items():
        rest = [notify]
        if name in _FLAGS:
            rest = [confine.argument(_FLAGS[name]), (ANY_BIT, 0, 1, _WRITING), notify, allow]
        elif name == "socket":
            families = [(EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
            rest = [confine.argument(0), *families, allow, notify]
        code += [(EQUAL, 0, len(rest), number), *rest]
    return confine.assembled([*code, allow])


class _Caller:
    """The process that waits in a call: its memory and its paths, as it sees them: `/proc/self` is its own, and
    bubblewrap gives it mounts and numbers of processes that are not ours."""

    def __init__(self, process: int) -> None:
        self.process = process
        self._root = f"/proc/{process}/root"

    def text(self, place: int) -> str:
        with open(f"/proc/{self.process}/mem", "rb", buffering=0) as memory:
            return os.fsdecode(confine.text_at(memory.fileno(), place))

    def path(self, folder: int, place: int, *, follow: bool) -> str:
        """Absolute, with the links on the way followed; "" for what is none."""
        name = self.text(place) if place else ""
        if not name:
            return ""
        if not os.path.isabs(name):
            where = "cwd" if folder == AT_FDCWD else f"fd/{folder}"
            name = os.path.join(os.readlink(f"/proc/{self.process}/{where}"), name)
        return self._followed(name, follow)

    def _followed(self, name: str, follow: bool) -> str:
        done, left, links = "/", name.split("/")[::-1], 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = os.path.dirname(done)
                continue
            at = os.path.join(done, part)
            last = not follow and not any(left)
            if last or (link := self._link(done, part)) is None:
                done = at
                continue
            if (links := links + 1) > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            done = "/" if link.startswith("/") else done
            left += link.split("/")[::-1]
        return done

    def _link(self, folder: str, name: str) -> str | None:
        """Where a link leads; None for what is none, or a pipe that is open."""
        if folder == "/proc" and name in ("self", "thread-self"):
            lines = self._status()
            process = lines["NStgid"][-1]  # as it sees itself
            return process if name == "self" else f"{process}/task/{lines['NSpid'][-1]}"
        try:
            link = os.readlink(os.path.join(self._root + folder, name))
        except OSError:
            return None
        in_process = folder.startswith("/proc/") and folder[6].isdigit()
        return None if in_process and not link.startswith("/") else link

    @property
    def number(self) -> str:
        """Of the process, as we see it."""
        return self._status()["Tgid"][0]

    def _status(self) -> dict[str, list[str]]:
        with open(f"/proc/{self.process}/status", encoding="ascii", errors="replace") as status:
            return {name: rest.split() for name, _, rest in (line.partition(":") for line in status)}

    def sets_up(self, program: str) -> bool:
        """Whether it is `program` (bubblewrap) on its way to the command, and not the command, which may run it too:
        in the processes of its own that one is never the first."""
        if os.path.realpath(os.readlink(f"/proc/{self.process}/exe")) != program:
            return False
        seen = self._status()["NStgid"]
        return len(seen) == 1 or seen[-1] == "1"

    def there(self, path: str) -> bool:
        return os.path.lexists(self._root + path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(self._root + path)

    def is_file(self, path: str) -> bool:
        return not os.path.isdir(self._root + path) or os.path.islink(self._root + path)

    def is_private(self, folder: str) -> bool:
        """Whether it is not our folder of that name: a mount of the command's own."""
        try:
            ours, its = os.stat(folder), os.stat(self._root + folder)
        except OSError:
            return True
        return (ours.st_dev, ours.st_ino) != (its.st_dev, its.st_ino)

    def opened(self, descriptor: int) -> str:
        where = "cwd" if descriptor == AT_FDCWD else f"fd/{descriptor}"
        found = os.readlink(f"/proc/{self.process}/{where}")
        return found if os.path.isabs(found) else ""


def _signed(argument: int) -> int:
    return ctypes.c_int(argument & 0xFFFFFFFF).value


class _Watching:
    """Serves the listener of one command. `confinement`: what keeps the command, for calls that are made on its behalf;
    None where bubblewrap (`outer`, its program) keeps it."""

    def __init__(
        self, libc: Libc, listener: int, watch: Watch, folders: Sequence[str], kept: Sequence[str],
        confinement: Confinement | None, outer: str,
    ) -> None:  # fmt: skip
        self._watch, self._folders, self._kept, self._outer = watch, folders, kept, outer
        self._inner = confinement is not None
        hide = confinement.hide if confinement is not None else ()
        self._narrow = {str(above) for each in hide for above in Path(each).parents if confine.under(each, folders)}
        """Where Landlock lets nothing be made, moved or removed: folders on the way to what is hidden."""
        self._supervisor = Supervisor(libc, listener, folders, hide)
        self._sessions: set[int] = set()

    def answer(self, name: str, identity: int, process: int, given: Sequence[int]) -> int:
        """The error; 0: it was done on the command's behalf; -1: the kernel goes on with it."""
        caller = _Caller(process)
        if self._outer and caller.sets_up(self._outer):
            return -1
        if name == "setsid":  # what leaves the command's session is still the command's
            self._sessions.add(int(caller.number))
            self._watch(Attempt("session", caller.number, True))
            return -1
        attempts = [attempt for attempt in self._attempts(caller, name, given) if attempt is not None]
        if name == "socket":
            for attempt in attempts:
                self._watch(attempt)
            return errno.EACCES if self._inner else -1
        if not all(self._watch(attempt) for attempt in attempts) or any(self._refuses(attempt) for attempt in attempts):
            return errno.EACCES
        if name in ATTRIBUTES and self._inner:
            return self._supervisor.answer(name, identity, process, given)
        return -1

    def _refuses(self, attempt: Attempt) -> bool:
        """What the kernel would let pass: what is kept in the project (bubblewrap keeps what is there), and with
        bubblewrap a pipe of others."""
        if attempt.allowed or attempt.what == "signal":
            return False
        return self._is_kept(attempt) or (not self._inner and Path(attempt.path).is_fifo())

    def _is_kept(self, attempt: Attempt) -> bool:
        above = attempt.what in ("remove", "replace", "link")  # so would be a folder around it
        path = attempt.path
        return any(confine.under(path, [each]) or (above and confine.under(each, [path])) for each in self._kept)

    def _attempts(self, caller: _Caller, name: str, given: Sequence[int]) -> list[Attempt | None]:
        at = name != "creat" and name.endswith(("at", "at2"))

        def file(what: What, path: str, *, there: bool | None = None) -> Attempt | None:
            return self._file(caller, what, path, there)

        first = (_signed(given[0]), given[1]) if at else (AT_FDCWD, given[0])
        match name:
            case "socket":
                return [Attempt("network", "", False)] if _signed(given[0]) != _FAMILIES[2] else []
            case "kill":
                return [self._signal(caller, _signed(given[0]), given[1])]
            case "open" | "openat" | "creat":
                flags = given[_FLAGS[name]] if name in _FLAGS else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                return [self._opens(caller, caller.path(*first, follow=True), flags)] if flags & _WRITING else []
            case "truncate":
                return [file("write", caller.path(*first, follow=True), there=True)]
            case "unlink" | "unlinkat" | "rmdir":
                return [file("remove", caller.path(*first, follow=False), there=True)]
            case "mkdir" | "mkdirat" | "mknod" | "mknodat":
                return [file("make", caller.path(*first, follow=False), there=False)]
            case "symlink" | "symlinkat":
                target = (_signed(given[1]), given[2]) if at else (AT_FDCWD, given[1])
                return [file("symlink", caller.path(*target, follow=False), there=False)]
            case "link" | "linkat":
                second = (_signed(given[2]), given[3]) if at else (AT_FDCWD, given[1])
                flags = given[4] if at else 0
                old = caller.path(*first, follow=bool(flags & _AT_SYMLINK_FOLLOW))
                nameless = not old and flags & AT_EMPTY_PATH
                if nameless:  # what is open, perhaps without a name until now
                    old = caller.opened(first[0])
                if not nameless and not caller.there(old) and not old.endswith(" (deleted)"):
                    return []
                return [file("link", old, there=True), file("write", caller.path(*second, follow=False), there=False)]
            case "rename" | "renameat" | "renameat2":
                second = (_signed(given[2]), given[3]) if at else (AT_FDCWD, given[1])
                old, new = caller.path(*first, follow=False), caller.path(*second, follow=False)
                if not old or not caller.there(old):
                    return []
                places = [self._around(old), self._around(new)]
                if all(places) and places[0] != places[1] and not caller.is_file(old):
                    # what is moved there is gone with the command's temporary folder: `mv` copies and removes it then
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                return [file("remove", old, there=True), file("replace", new)]
            case _:  # attributes
                if name in ("fchmod", "fchown", "fsetxattr", "fremovexattr") or (at and not given[1]):
                    return [file("mode", caller.opened(_signed(given[0])), there=True)]
                path = caller.path(*first, follow=not name.startswith("l"))
                return [file("mode", caller.opened(first[0]) if at and not path else path, there=True)]

    def _around(self, path: str) -> str:
        """The innermost folder that it lies in, of those where the command may write; "" for none."""
        return max((folder for folder in self._folders if confine.under(path, [folder])), key=len, default="")

    def _opens(self, caller: _Caller, path: str, flags: int) -> Attempt | None:
        there = caller.there(path)
        if caller.is_folder(path) or (there and flags & os.O_CREAT and flags & os.O_EXCL):
            return None  # the call fails
        if not there and not flags & os.O_CREAT:
            return None
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC) and there:
            return None
        return self._file(caller, "append" if flags & os.O_APPEND and not flags & os.O_TRUNC else "write", path, None)

    def _file(self, caller: _Caller, what: What, path: str, there: bool | None) -> Attempt | None:
        """None where the call would fail, or lead nowhere, whatever the level."""
        if not path or path in confine.EVERYDAY or path.startswith(_STREAMS):
            return None
        exists, folder = caller.there(path), os.path.dirname(path)
        if (there is not None and there != exists) or not (exists or caller.is_folder(folder)):
            return None
        if not self._inner and caller.is_private(folder):
            return None
        allowed = confine.under(path, self._folders) and not self._is_kept(Attempt(what, path, True))
        in_place = exists and what in ("write", "append", "mode", "link")
        if folder in self._narrow and not in_place:
            allowed = False
        touched = path if in_place else folder
        if not allowed and what != "mode" and not os.access(touched, os.W_OK):
            return None
        return Attempt(what, path, allowed)

    def _signal(self, caller: _Caller, process: int, number: int) -> Attempt | None:
        if not number or process <= 0 or not self._inner:
            return None  # 0 only asks; a group is the caller's or its children's
        if sys.platform == "win32":
            return None
        try:
            session = os.getsid(process)
            mark = session in self._sessions or session == os.getsid(caller.process)
        except OSError:
            return None  # there is none
        return None if mark else Attempt("signal", str(process), False)


def spawn(
    command: Sequence[str],
    watch: Watch,
    folders: Sequence[str],
    kept: Sequence[str],
    *,
    confinement: Confinement | None = None,
    outer: str = "",
    **popen: Any,
) -> subprocess.Popen[bytes]:
    """Start the command, confined or by `outer` (a program that confines it), and tell `watch` what it is about to do
    outside of its own. `folders`: where it may write, but for `kept`. Raises OSError."""
    outer = os.path.realpath(outer) if outer else ""

    def enter() -> int:
        if confinement is not None:
            confinement.enter(watched=True)
        else:
            Libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # who is not root installs no filter without it
        return confine.install(Libc(), _program(), listen=True)

    def supervise(listener: int) -> None:
        watching = _Watching(Libc(), listener, watch, folders, kept, confinement, outer)
        confine.serve(listener, _numbers(), watching.answer)

    # bwrap is told to end with its parent, and that is the thread
    return confine.spawn_in(command, enter, supervise, _until_ended if outer else None, **popen, **_FORKED)


def _until_ended(process: int) -> None:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "this is Linux's")
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    os.close(watched)
