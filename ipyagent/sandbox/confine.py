"""Landlock and seccomp: a command that the kernel itself keeps from writing, sending and signalling.

Both confine a thread, and what it starts inherits that: `spawn` confines a short-lived thread of this process, which
starts the command and ends. As a script (`python -I -S confine.py POLICY COMMAND…`) the process confines itself. It
fails rather than run a command unconfined. Imports nothing of the package, so that the script needs no environment.

Landlock knows nothing of modes, owners, times and attributes of files. Where nothing may be written seccomp refuses
those calls. Where something may, they are made on the command's behalf (seccomp's user notification): we open the path
ourselves, look where it leads and act on what was opened, so that nobody can change what a path means in between.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import platform
import queue
import select
import signal
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

MINIMUM = 6
"""Landlock's version with scopes for signals and abstract sockets: Linux 6.12."""
FAILED = 125
"""Exit status when the command was not run."""
EVERYDAY = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
"""Devices that can be read and written."""

# ---------------------------------------------------------------------- seccomp

_AMD64, _ARM64 = 0xC000003E, 0xC00000B7
ARCHITECTURES = {"x86_64": _AMD64, "aarch64": _ARM64}
"""AUDIT_ARCH of <linux/audit.h>, of the machines whose numbers stand here."""
# Numbers of system calls, from <asm/unistd_64.h> and <asm-generic/unistd.h> of Linux; None: there is none.
CALLS: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
    # what only a whole system needs
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "swapon": (167, 224),
    "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "iopl": (172, None), "ioperm": (173, None), "syslog": (103, 116), "vhangup": (153, 58),
    "fanotify_init": (300, 262), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    # other processes, and ways around a path or this filter
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "unshare": (272, 97), "setns": (308, 268), "clone3": (435, 435), "openat2": (437, 437),
    # memory and queues that processes share by a number or a name
    "mq_open": (240, 180), "mq_unlink": (241, 181), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    # looked at with their arguments
    "socket": (41, 198), "socketpair": (53, 199), "ioctl": (16, 29), "clone": (56, 220), "prlimit64": (302, 261),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "open": (2, None), "openat": (257, 56), "creat": (85, None), "mknod": (133, None), "mknodat": (259, 33),
}  # fmt: skip
_LOOKED_AT = tuple(CALLS)[tuple(CALLS).index("socket") :]
ATTRIBUTES = tuple(CALLS)[: tuple(CALLS).index("mount")]
"""Calls that change a file's mode, owner, times or attributes."""
_ABSENT = ("clone3", "openat2", "setxattrat", "removexattrat", "file_setattr")
"""Answered as if the system did not have them: their arguments are in memory, where a filter cannot look; all are too
new to be used without an older one to fall back on."""

_MODES = {
    "chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2, "open": 2,
    "openat": 3,
}  # fmt: skip
"""Which argument is a new mode."""
_SET_USER, _SET_GROUP = 0o4000, 0o2000
"""Set-user-ID and set-group-ID: never set by a command; a folder that has the second keeps it (`chmod` names it)."""
_OPENING = {"open": 1, "openat": 2}
"""Which argument says whether a file is made: otherwise its mode has no meaning."""
_MAKING = 0o20000100
"""O_CREAT, and the bit of O_TMPFILE."""

LOAD, EQUAL, _OVER, ANY_BIT, _AND, RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
ALLOW, _ERRNO, NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_NEW_NAMESPACE = 0x7E020000
"""Flags of clone: user, PID, network, mount, UTS, IPC and control group namespaces."""
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET = 1, 5
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI, TIOCLINUX: typing into a terminal for somebody else."""
_REQUESTS = (0x5400, 0x8900)
"""Of ioctl's requests those of terminals and pipes, and of sockets."""
_FILE_REQUESTS = (1, 2, 0x80086601, 0x80087601, 0x801C581F, 0xC020660B, 0x40049409, 0x4020940D)
"""And those that look at a file (blocks, flags, version, attributes, extents) or clone one into what is open to write:
the others change what Landlock does not know, flags of files, subvolumes, encryption, also of files opened to read."""
_NEWEST = 470
"""The highest number of a call known here; what comes after is answered as if it were not there."""

Instruction: TypeAlias = tuple[int, int, int, int]
"""Of BPF: what is done, how far to jump where it holds and where not, and its operand."""


def call_numbers(calls: Mapping[str, tuple[int | None, int | None]], machine: str) -> dict[str, int]:
    """Of those that the machine has."""
    which = 0 if ARCHITECTURES[machine] == _AMD64 else 1
    return {name: number for name, both in calls.items() if (number := both[which]) is not None}


def argument(at: int) -> Instruction:
    """Look at an argument: its low half, on machines with the low byte first."""
    return (LOAD, 0, 0, 16 + 8 * at)


def assembled(code: Iterable[Instruction]) -> bytes:
    """The program as the kernel takes it."""
    return b"".join(struct.pack("=HBBI", *each) for each in code)


@cache
def seccomp(machine: str, attributes: str, own_network: bool) -> bytes:
    """The filter as the kernel's BPF. `attributes`: what happens at `ATTRIBUTES`: "allow", "refuse", "notify", or
    "watched" (another filter notifies). `own_network`: TCP and UDP are allowed, in a network of the command's own;
    sockets of other kinds never are, but for pairs."""
    numbers = call_numbers(CALLS, machine)
    refuse, absent = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    code: list[Instruction] = [
        (LOAD, 0, 0, 4),
        (EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, absent),
        (LOAD, 0, 0, 0),
        (_OVER, 0, 1, _NEWEST),  # also the x32 way of calling
        (RETURN, 0, 0, absent),
    ]

    def when(name: str, rest: list[Instruction]) -> None:
        if name in numbers:
            code.extend([(EQUAL, 0, len(rest), numbers[name]), *rest])

    def among(values: Iterable[int], answer: int) -> list[Instruction]:
        return [each for value in values for each in ((EQUAL, 0, 1, value), (RETURN, 0, 0, answer))]

    def special(name: str) -> list[Instruction]:
        if name not in _MODES:
            return []
        looked_at = name in ATTRIBUTES and attributes in ("notify", "watched")  # by whoever is told, see `_done`
        never = _SET_USER if looked_at else _SET_USER | _SET_GROUP
        return [argument(_MODES[name]), (ANY_BIT, 0, 1, never), (RETURN, 0, 0, refuse)]

    for name in CALLS:
        if name in _ABSENT:
            when(name, [(RETURN, 0, 0, absent)])
        elif name in ATTRIBUTES:
            answer = {"allow": ALLOW, "refuse": refuse, "notify": NOTIFY, "watched": ALLOW}[attributes]
            when(name, [*special(name), (RETURN, 0, 0, answer)])
        elif name not in _LOOKED_AT:
            when(name, [(RETURN, 0, 0, refuse)])
    families = (_AF_INET, _AF_INET6, _AF_NETLINK) if own_network else ()
    allowed = [(EQUAL, len(families) - at, 0, family) for at, family in enumerate(families)]
    when("socket", [argument(0), *allowed, (RETURN, 0, 0, _ERRNO | errno.EACCES), (RETURN, 0, 0, ALLOW)])
    # a pair of datagram sockets could still be made to send to others
    kinds = [argument(1), (_AND, 0, 0, 15), (EQUAL, 2, 0, _STREAM), (EQUAL, 1, 0, _SEQPACKET)]
    when("socketpair", [*kinds, (RETURN, 0, 0, refuse), (RETURN, 0, 0, ALLOW)])
    looks = [argument(1), *among(_TERMINAL_INPUT, refuse), *among(_FILE_REQUESTS, ALLOW)]
    when("ioctl", [*looks, (_AND, 0, 0, 0xFF00), *among(_REQUESTS, ALLOW), (RETURN, 0, 0, refuse)])
    when("clone", [argument(0), (ANY_BIT, 0, 1, _NEW_NAMESPACE), (RETURN, 0, 0, refuse), (RETURN, 0, 0, ALLOW)])
    own = [(EQUAL, 1, 0, 0), (RETURN, 0, 0, refuse), (RETURN, 0, 0, ALLOW)]
    for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        when(name, [argument(0), *own])
    for name, user in (("setpriority", 2), ("ioprio_set", 3)):  # neither others nor all of the user's
        when(name, [argument(0), (EQUAL, 2, 0, user), argument(1), *own])
    for name in ("open", "openat", "creat", "mknod", "mknodat"):
        making = [argument(_OPENING[name]), (ANY_BIT, 0, 3, _MAKING)] if name in _OPENING else []
        when(name, [*making, *special(name), (RETURN, 0, 0, ALLOW)])
    return assembled([*code, (RETURN, 0, 0, ALLOW)])


# ---------------------------------------------------------------------- Landlock

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_HANDLED = (1 << 16) - 1
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGE = _HANDLED & ~(_READ | _MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK | _IOCTL_DEV)
_O_PATH = getattr(os, "O_PATH", 0o10000000)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446


class Libc:
    """The C library's `syscall` and `prctl`; failures raise OSError."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self._library.syscall.restype = ctypes.c_long

    def syscall(self, number: int, *arguments: object) -> int:
        given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
        return self._checked(self._library.syscall(ctypes.c_long(number), *given))

    def prctl(self, *arguments: int) -> int:
        return self._checked(self._library.prctl(*(ctypes.c_long(each) for each in arguments)))

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def version() -> int:
    """Landlock's version here, 0 where there is none."""
    try:
        return Libc().syscall(_CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


class _Rules:
    def __init__(self, libc: Libc) -> None:
        self._libc = libc
        handled = struct.pack("=QQQ", _HANDLED, 3, 3)  # files; TCP bind and connect; abstract sockets and signals
        self.place = libc.syscall(_CREATE_RULESET, handled, len(handled), 0)

    def allow(self, path: str, rights: int, folder: bool | None = None) -> None:
        """What is not there is passed over, and links are: what they lead to has rules of its own."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "this is Linux's")
        try:
            place = os.open(path, _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if folder is None:
                folder = os.path.isdir(f"/proc/self/fd/{place}")
            rights = rights if folder else rights & _ON_FILES
            self._libc.syscall(_ADD_RULE, self.place, 1, struct.pack("=Qi", rights, place), 0)
        finally:
            os.close(place)

    def allow_but(self, path: str, rights: int, names: int, without: Sequence[str]) -> None:
        """`rights` for `path` and all below it, except for the paths `without`: Landlock takes nothing back, so the
        folders on the way to those get only the right `names`, and all else in them one by one."""
        if path in without:
            return
        inside = f"{path.rstrip('/')}/"
        below = [each for each in without if each.startswith(inside)]
        if not below:
            self.allow(path, rights)
            return
        if names:
            self.allow(path, names, True)
        try:
            entries = list(os.scandir(path))
        except OSError:
            return
        for entry in entries:
            if entry.is_symlink():
                continue
            if any(entry.path == each or each.startswith(f"{entry.path}/") for each in below):
                self.allow_but(entry.path, rights, names, below)
            else:
                self.allow(entry.path, rights, entry.is_dir(follow_symlinks=False))


def _restrict(libc: Libc, write: Sequence[str], hide: Sequence[str], veil: Sequence[str]) -> None:
    rules = _Rules(libc)
    devices = [name for name in ("/dev", "/proc/kcore") if os.path.exists(name)]
    rules.allow_but("/", _READ, _READ_DIR, [*hide, *veil, *devices])
    for device in EVERYDAY:
        rules.allow(device, _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV, False)
    rules.allow("/dev", _READ_DIR, True)
    for folder in write:
        rules.allow_but(folder, _CHANGE, 0, hide)
    libc.syscall(_RESTRICT_SELF, rules.place, 0)
    os.close(rules.place)


_KEPT = (0, 1, 2, 3, 4)
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID: of root's powers those over files, which the rules bound."""


def _drop_powers(libc: Libc) -> None:
    """Of root's, all but those; for anybody else there are none."""
    for power in range(64):
        if power not in _KEPT:
            try:
                libc.prctl(24, power)  # PR_CAPBSET_DROP
            except OSError as problem:
                if problem.errno == errno.EINVAL:
                    break  # the last one there is
                return  # not root
    kept = sum(1 << power for power in _KEPT)
    number = {_AMD64: 126, _ARM64: 91}[ARCHITECTURES[platform.machine()]]  # capset
    libc.syscall(number, struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0))


# ---------------------------------------------------------------------- modes, owners, times and attributes
# Made on the command's behalf where it may write.

_RECEIVE, _SEND, _VALID = 0xC0502100, 0xC0182101, 0x40082102
_CONTINUE = 1
_OWN_ATTRIBUTES = (b"user.", b"system.posix_acl_")
"""Of extended attributes those that give no powers."""
AT_FDCWD, _AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x1000
_MOST_VALUE = 65_536


def serve(listener: int, numbers: Mapping[str, int], answer: Callable[[str, int, int, Sequence[int]], int]) -> None:
    """Answer the calls of what is confined, those with these `numbers`, until all of it has ended. `answer` makes of a
    call, its identity, its process and its arguments an error, 0 where it is done, -1 where the kernel goes on."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "this is Linux's")
    import fcntl

    names = {number: name for name, number in numbers.items()}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    try:
        while all(ready & select.POLLIN for _, ready in poll.poll()):
            request = bytearray(80)
            try:
                fcntl.ioctl(listener, _RECEIVE, request)
            except OSError:
                continue  # the process was ended meanwhile
            identity, process, _, call = struct.unpack_from("=QIIi", request)
            try:
                problem = answer(names[call], identity, process, struct.unpack_from("=6Q", request, 32))
            except OSError as failure:
                problem = failure.errno or errno.EPERM
            except (ValueError, ArithmeticError, LookupError, struct.error):
                problem = errno.EINVAL
            sent = (identity, 0, 0, _CONTINUE) if problem < 0 else (identity, 0, -problem, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(listener, _SEND, struct.pack("=QqiI", *sent))
    finally:
        os.close(listener)


class Supervisor:
    """Makes the calls in `ATTRIBUTES` for a command where it may write, and refuses them elsewhere."""

    def __init__(self, libc: Libc, listener: int, folders: Sequence[str], hide: Sequence[str]) -> None:
        self._libc, self._listener = libc, listener
        self._folders, self._hide = folders, hide
        self.numbers = call_numbers({name: CALLS[name] for name in ATTRIBUTES}, platform.machine())
        """Of the calls that it answers."""

    def answer(self, name: str, identity: int, process: int, given: Sequence[int]) -> int:
        """The error, 0 for none."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "this is Linux's")
        import fcntl

        follow, empty = not name.startswith("l"), False
        by_descriptor = name.startswith("f") and name in ("fchmod", "fchown", "fsetxattr", "fremovexattr")
        at = name in ("fchmodat", "fchmodat2", "fchownat", "utimensat", "futimesat")
        rest = list(given[1:]) if not at else list(given[2:])
        if at:
            flags = {"fchmodat2": given[3], "fchownat": given[4], "utimensat": given[3]}.get(name, 0)
            follow, empty = not flags & _AT_SYMLINK_NOFOLLOW, bool(flags & AT_EMPTY_PATH)
        with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:

            def bytes_at(place: int, count: int) -> bytes:
                return os.pread(memory.fileno(), count, place)

            place = given[1 if at else 0]
            path = text_at(memory.fileno(), place) if place and not by_descriptor else b""
            base = ctypes.c_int(given[0] & 0xFFFFFFFF).value if at or by_descriptor else AT_FDCWD
            attribute, value, times = b"", b"", None
            if name.endswith("xattr"):
                attribute = text_at(memory.fileno(), rest[0])
                if "set" in name:
                    if rest[2] > _MOST_VALUE:
                        return errno.E2BIG
                    value = bytes_at(rest[1], rest[2]) if rest[2] else b""
            elif name == "utime" and rest[0]:
                first, second = struct.unpack("=qq", bytes_at(rest[0], 16))
                times = struct.pack("=qqqq", first, 0, second, 0)
            elif name in ("utimes", "futimesat") and rest[0]:
                first, micro, second, micros = struct.unpack("=qqqq", bytes_at(rest[0], 32))
                times = struct.pack("=qqqq", first, micro * 1000, second, micros * 1000)
            elif name == "utimensat" and rest[0]:
                times = bytes_at(rest[0], 32)
        fcntl.ioctl(self._listener, _VALID, struct.pack("=Q", identity))  # the memory was that process's
        if not path and not (by_descriptor or empty or (name in ("utimensat", "futimesat") and not given[1])):
            return errno.ENOENT
        place = self._opened(process, base, path, follow)
        try:
            target = f"/proc/self/fd/{place}".encode()
            real = os.readlink(target).decode(errors="surrogateescape")
            if not under(real, self._folders) or under(real, self._hide):
                return errno.EPERM
            return self._done(name, target, rest, attribute, value, times)
        finally:
            os.close(place)

    def _opened(self, process: int, base: int, path: bytes, follow: bool) -> int:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "this is Linux's")
        where = f"/proc/{process}/cwd" if base == AT_FDCWD else f"/proc/{process}/fd/{base}"
        start = os.open(where, _O_PATH | os.O_CLOEXEC)
        if not path:
            return start
        if path.startswith(b"/proc/self/"):  # the C library changes modes so: it means itself, not us
            path = b"/proc/%d/%s" % (process, path.removeprefix(b"/proc/self/"))
        try:
            return os.open(path, _O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW), dir_fd=start)
        finally:
            os.close(start)

    def _done(
        self, name: str, target: bytes, rest: Sequence[int], attribute: bytes, value: bytes, times: bytes | None
    ) -> int:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "this is Linux's")
        if attribute and not attribute.startswith(_OWN_ATTRIBUTES):
            return errno.EPERM
        if "chmod" in name:
            before = os.stat(target).st_mode
            if rest[0] & _SET_GROUP and not (stat.S_ISDIR(before) and before & _SET_GROUP):
                return errno.EPERM
            os.chmod(target, rest[0] & 0o7777)
        elif "chown" in name:
            os.chown(target, *(ctypes.c_int(each & 0xFFFFFFFF).value for each in rest[:2]))
        elif "utime" in name:
            self._libc.syscall(self.numbers["utimensat"], AT_FDCWD, target, times, 0)
        elif "set" in name:
            os.setxattr(target, attribute, value, ctypes.c_int(rest[3] & 0xFFFFFFFF).value)
        else:
            os.removexattr(target, attribute)
        return 0


def text_at(memory: int, place: int) -> bytes:
    """The C string at a place in a process's memory. Raises OSError where there is none."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "this is Linux's")
    found = b""
    while b"\0" not in found and len(found) < 4096:
        at = place + len(found)
        try:
            piece = os.pread(memory, 4096 - at % 4096, at)
        except (OSError, ValueError, OverflowError):  # no place in it
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT)) from None
        if not piece:
            return b""
        found += piece
    return found.partition(b"\0")[0]


def under(path: str, folders: Iterable[str]) -> bool:
    """Whether it is one of these or lies in one."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


# ---------------------------------------------------------------------- the command


def install(libc: Libc, program: bytes, listen: bool) -> int:
    """Have this filter decide for the calling thread and what it starts; a descriptor to listen by, if asked for."""
    number = {_AMD64: 317, _ARM64: 277}[ARCHITECTURES[platform.machine()]]
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    return libc.syscall(number, 1, 8 if listen else 0, header)  # SET_MODE_FILTER, NEW_LISTENER


class Confinement:
    """What a command may do. `write`: folders where it may write as it likes; `temporary`: one where it may make
    files; `hide`: paths that can be neither read nor written; `veil`: files that cannot be read."""

    def __init__(self, write: Sequence[str], temporary: str, hide: Sequence[str], veil: Sequence[str]) -> None:
        self.write = [os.path.realpath(each) for each in write]
        self.folders = [*self.write, *([os.path.realpath(temporary)] if temporary else [])]
        self.hide = [os.path.realpath(each) for each in hide]
        self.veil = [os.path.realpath(each) for each in veil]

    def enter(self, watched: bool = False) -> int:
        """Confine the calling thread, for ever, and what it starts. Where it may write, the descriptor by which to
        `supervise`, else -1. `watched`: another filter follows that is told of attributes and of network sockets and
        answers for them (`ipyagent.sandbox.syscalls`). Raises OSError."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "this is Linux's")
        libc = Libc()
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        if os.geteuid() == 0:
            _drop_powers(libc)
        _restrict(libc, self.folders, self.hide, self.veil)
        if watched:
            install(libc, seccomp(platform.machine(), "watched", True), False)
            return -1
        listen = bool(self.write)
        listener = install(libc, seccomp(platform.machine(), "notify" if listen else "refuse", False), listen)
        return listener if listen else -1

    def supervise(self, listener: int) -> None:
        """Make the calls that need it on behalf of what is confined, until all of it has ended."""
        supervisor = Supervisor(Libc(), listener, self.folders, self.hide)
        serve(listener, supervisor.numbers, supervisor.answer)


def spawn(command: Sequence[str], confinement: Confinement, **popen: Any) -> subprocess.Popen[bytes]:
    """Start the command, confined; `popen` is for subprocess.Popen. Raises OSError."""
    return spawn_in(command, confinement.enter, confinement.supervise, None, **popen)


def spawn_in(
    command: Sequence[str],
    enter: Callable[[], int],
    supervise: Callable[[int], None],
    then: Callable[[int], None] | None,
    **popen: Any,
) -> subprocess.Popen[bytes]:
    """Start the command on a thread that `enter` confines. Where that gives a descriptor to listen by (not -1),
    `supervise` serves it on another one; `then` is what the first does before it ends, with the process's number."""
    listeners: queue.SimpleQueue[int] = queue.SimpleQueue()
    made: list[subprocess.Popen[bytes]] = []
    failed: list[BaseException] = []
    started = threading.Event()

    def supervised() -> None:
        if (listener := listeners.get()) >= 0:
            supervise(listener)

    def confined() -> None:
        listener = -1
        try:
            try:
                listener = enter()
            finally:
                listeners.put(listener)
            made.append(subprocess.Popen(command, **popen))
        except BaseException as problem:  # noqa: BLE001 -- raised again below, on the caller's thread
            failed.append(problem)
        finally:
            started.set()
        if made and then is not None:
            then(made[0].pid)

    collects = gc.isenabled()
    gc.disable()  # others' finalizers would run where the command is confined, and wait for our caller
    try:  # both from here: a thread inherits what confines the one that starts it
        threading.Thread(target=supervised, name="ipyagent-sandbox-calls", daemon=True).start()
        try:
            threading.Thread(target=confined, name="ipyagent-sandbox", daemon=True).start()
        except RuntimeError:  # no thread may be started: the other one would wait for ever
            listeners.put(-1)
            raise
        started.wait()
    finally:
        if collects:
            gc.enable()
    if failed:
        raise failed[0]
    return made[0]


def main(policy: str, command: list[str]) -> int:
    """Become the command, or stay as its parent and return its exit status."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "this is Linux's")
    confinement = Confinement(**json.loads(policy))
    if not confinement.write:
        confinement.enter()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp(command[0], command)
    process = spawn(command, confinement, close_fds=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: process.send_signal(number))
    status = process.wait()
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    try:
        status = main(sys.argv[1], sys.argv[2:])
    except OSError as failure:
        sys.stderr.write(f"the sandbox could not start {sys.argv[2]}: {failure}\n")
        status = FAILED
    sys.stdout.flush()
    os._exit(status)
