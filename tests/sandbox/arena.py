"""A place to attack: a project, a folder outside, a home with secrets, listeners that must hear nothing and a process
to be left alone, all of it looked at before and after each command. Commands are in `hostile.txt`, `reading.txt`."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import hashlib
import os
import platform
import pty
import re
import secrets
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ipyagent import sandbox
from ipyagent.sandbox import Backend, Bubblewrap, Landlock

Level = Literal["read", "project"]
Way = Literal["watched", "spawn", "line"]
"""How it is started: with a watch, without one, by the backend's command line."""
LEVELS: tuple[Level, ...] = ("read", "project")
SECONDS = 30
KILLED = -signal.SIGKILL
"""How a command ends that took longer, or whose sandbox broke: then nothing was shown."""
SECRETS = (
    ".ssh/id_ed25519", ".aws/credentials", ".config/gcloud/credentials.db", ".netrc", ".pypirc", ".gnupg/key",
    ".local/share/keyrings/login.keyring", ".mozilla/firefox/x/logins.json", ".config/google-chrome/Default/Cookies",
    ".env", ".ipyagent/key", ".local/share/jupyter/runtime/kernel-1.json", ".kube/config", ".docker/config.json",
    ".git-credentials", ".config/gh/hosts.yml", ".kaggle/kaggle.json", ".cache/huggingface/token", ".vault-token",
    ".pgpass", ".my.cnf", ".npmrc", ".bash_history", ".python_history", ".ipython/profile_default/history.sqlite",
    "vault/more.txt", "work/.env",
)  # fmt: skip
"""Below the home folder, each with a canary; "vault" is hidden by the setting."""
VEILED = "veiled.ipynb"


REACHED = "REACHED"
"""What a command says that got what it must not get and leaves no other trace."""
LOW = r'''
import ctypes, errno, fcntl, mmap, os, signal, socket, struct, sys, threading, time
E = os.environ
T, P, O, H, S = (E[name] for name in "TPOHS")
V, A = int(E["VICTIM"]), int(E["ADDRESS"])
L = ctypes.CDLL(None, use_errno=True)
L.shmat.restype = ctypes.c_void_p
def call(number, *given):
    got = L.syscall(ctypes.c_long(number), *[ctypes.c_long(x) if isinstance(x, int) else x for x in given])
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got
def ok(got=0):
    if got is None or got >= 0:
        print("REA" + "CHED", flush=True)
def unless_refused(number, *given):
    """It counts when the system takes it up, also when it then finds a fault with it."""
    try:
        call(number, *given)
    except OSError as problem:
        if problem.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise
    ok()
def b(text): return text.encode()
def say(data): sys.stdout.buffer.write(data if isinstance(data, bytes) else data.encode()); sys.stdout.flush()
def unix(path, kind=1):
    s = socket.socket(socket.AF_UNIX, kind); s.connect(path); s.send(b"x"); return s
exec(sys.argv[1])
'''

VICTIM = r"""
import ctypes, os, signal, sys
memory = ctypes.create_string_buffer(sys.stdin.readline().strip().encode(), 64)
for number in range(1, 65):
    try: signal.signal(number, lambda number, frame: os.write(1, b"felt %d " % number))
    except (OSError, ValueError): pass
secret = open(sys.argv[1])
print(ctypes.addressof(memory), flush=True)
while True: signal.pause()
"""

_OPTIONAL = frozenset(
    ("rg", "gdb", "strace", "node", "perl", "docker", "dbus-send", "tclsh", "sqlite3", "jq", "vim", "ed", "ex", "zip",
     "unzip", "zstd", "xz", "gpg", "ssh", "ssh-add", "ssh-keygen", "curl", "wget", "openssl", "man", "less", "more",
     "gcc", "ld", "as", "ar", "bzip2", "bc", "chattr", "setcap", "capsh", "debugfs", "ip", "losetup", "iconv",
     "xxd", "script", "column", "patch", "make", "fallocate", "strings", "logger", "choom", "bwrap", "ionice", "ipcmk",
     "nsenter", "modprobe", "dmesg", "sysctl", "prlimit", "chrt", "taskset", "setpriv")
)  # fmt: skip


class Attack:
    """One command; `sure`: it does harm without a sandbox."""

    def __init__(self, text: str) -> None:
        self.sure = not text.startswith("~")
        text = text.removeprefix("~").strip()
        only, text = text.startswith("x86 "), text.removeprefix("x86 ")
        self.here = not only or platform.machine() == "x86_64"
        self.text = re.sub(r"(?<![\w$/])low (?=')", '"$PY" -I -S "$LOW" ', text.replace("\\\n", "\n"))
        self.needs = {
            word for word in re.findall(r"[A-Za-z][\w-]*", text) if word in _OPTIONAL and f"/{word}" not in text
        }

    @property
    def missing(self) -> list[str]:
        return [*(each for each in sorted(self.needs) if not shutil.which(each)), *([] if self.here else ["x86"])]

    def __repr__(self) -> str:
        return self.text


def _with_secret(text: str) -> str:
    """The path of a secret for each K, also within quotes."""
    found, quoted = "", False
    for letter in text:
        quoted = not quoted if letter == "'" else quoted and letter != "\n"
        found += ("'$H/.ssh/id_ed25519'" if quoted else "$H/.ssh/id_ed25519") if letter == "K" else letter
    return found


def hostile() -> dict[str, list[Attack]]:
    """By kind; "kept" are those against what is never written in the project."""
    found: dict[str, list[Attack]] = {}
    for part in Path(__file__).with_name("hostile.txt").read_text().split("\n## ")[1:]:
        kind, _, text = part.partition("\n")
        text = _with_secret(text) if kind == "secrets" else text
        found[kind] = [Attack(line) for line in re.split(r"(?<!\\)\n", text) if line]
    return found


def reading() -> list[str]:
    return Path(__file__).with_name("reading.txt").read_text().strip().split("\n")[1:]


def backends() -> dict[str, Backend]:
    """Those of Linux that work here."""
    names = {Landlock: "landlock", Bubblewrap: "bubblewrap"}
    return {names[type(each)]: each for each in sandbox.find().working if type(each) in names}


@dataclass(frozen=True)
class Ran:
    """What a command said, how it ended, and what was seen of its harm."""

    said: str
    status: int
    harm: tuple[str, ...]


class Arena:
    """Use as a context manager; `attack` and `read` run commands in it."""

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.project, self.outside, self.home = (self.base / name for name in ("project", "outside", "home"))
        self.tools, self.sockets, self._template = (self.base / name for name in ("tools", "sockets", "template"))
        self._canaries: dict[str, str] = {}
        self._ends = contextlib.ExitStack()
        self._last: tuple[Level, dict[str, Any]] | None = None

    def __enter__(self) -> Arena:
        self.base.mkdir(exist_ok=True)
        self._make()
        self._victim = _Victim(self._canary("memory"), self._canary("environment"), self.home / ".ssh/id_ed25519")
        self._ends.callback(self._victim.end)
        self._ears = self._ends.enter_context(_Ears(self.sockets))
        self._shared = self._ends.enter_context(_Shared(self._canary("shared")))
        self._before = {name: os.environ.get(name) for name in ("HOME", "IPYAGENT_HOME", "JUPYTER_RUNTIME_DIR")}
        os.environ["HOME"] = str(self.home)
        for name in ("IPYAGENT_HOME", "JUPYTER_RUNTIME_DIR"):
            os.environ.pop(name, None)
        self._inherited = os.open(self.outside / "a.txt", os.O_RDWR)  # as a careless caller's
        os.set_inheritable(self._inherited, True)
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._inherited)
        self._ends.close()
        for name, value in self._before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)

    # ------------------------------------------------------------------ the place

    def _canary(self, of: str) -> str:
        return self._canaries.setdefault(of, f"CANARY-{secrets.token_hex(8)}")

    def _make(self) -> None:
        made = self._template
        for name in ("project", "outside"):
            folder = made / name
            (folder / "dir").mkdir(parents=True)
            (folder / "empty").mkdir()
            (folder / ".ipyagent").mkdir()
            (folder / ".ipyagent" / "config.toml").write_text("x = 1\n")
            for file, text in _FILES.items():
                (folder / file).write_text(text)
            (folder / "run.sh").chmod(0o755)
            (folder / "link").symlink_to("a.txt")
            (folder / "to-key").symlink_to(self.home / ".ssh/id_ed25519")
            os.setxattr(folder / "tagged.txt", "user.tag", b"1")
            subprocess.run(["bash", "-c", _REPOSITORY], cwd=folder, env=self._environment(), check=True)
        (made / "project" / VEILED).write_text(f"{self._canary('veiled')}\n")
        (made / "outside" / ".env").write_text(f"{self._canary('outside .env')}\n")
        for name in SECRETS:
            (made / "home" / name).parent.mkdir(parents=True, exist_ok=True)
            (made / "home" / name).write_text(f"{self._canary(name)}\n")
        self.sockets.mkdir()
        self.tools.mkdir()
        (self.tools / "low.py").write_text(LOW)
        (self.tools / "evil").write_text('#!/bin/sh\necho x > "$T/by-evil"\n[ $# = 0 ] && [ -t 0 ] || cat "$@"\ntrue\n')
        (self.tools / "evil").chmod(0o755)
        (self.tools / "evil.1").write_text(".TH EVIL 1\n.SH NAME\nevil\n")
        (self.tools / "evil.mk").write_text('X := $(shell echo x > "$$T/by-make")\nall:\n\t+echo x > "$$T/by-plus"\n')
        subprocess.run(["bash", "-c", _TOOLS], cwd=self.tools, env=self._environment(), check=True)
        self._lay_out()

    def _lay_out(self) -> None:
        subprocess.run(["cp", "-a", *(str(self._template / name) for name in _ROOTS), str(self.base)], check=True)

    def _reset(self, victim_too: bool) -> None:
        """As it was made."""
        self._last = None
        for name in _ROOTS:
            shutil.rmtree(self.base / name)
        self._lay_out()
        os.close(self._inherited)
        self._inherited = os.open(self.outside / "a.txt", os.O_RDWR)
        os.set_inheritable(self._inherited, True)
        if victim_too:
            self._victim.again()
        self._ears.take()
        self._shared.again()

    def _environment(self, level: Level = "read") -> dict[str, str]:
        target = self.project if level == "read" else self.outside
        places = {"P": self.project, "O": self.outside, "H": self.home, "T": target, "S": self.sockets}
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
        return {
            **kept, **{name: str(path) for name, path in places.items()}, "HOME": str(self.home), "TERM": "xterm",
            "PY": getattr(sys, "_base_executable", "") or sys.executable, "VENV": sys.executable,
            "LOW": str(self.tools / "low.py"), "TOOLS": str(self.tools), "GIT_CONFIG_NOSYSTEM": "1",
        }  # fmt: skip

    # ------------------------------------------------------------------ what is looked at

    def _looks(self, level: Level) -> dict[str, Any]:
        roots = [self.outside, self.home, self.sockets, *([self.project] if level == "read" else [])]
        found: dict[str, Any] = {}
        for root in roots:
            found.update(tree(root))
        if level == "project":
            for name in sandbox.KEPT:
                found.update({f"kept {path}": each for path, each in tree(self.project / name).items()})
        return {**found, **self._victim.looks(), **self._shared.looks()}

    def _harm(self, before: dict[str, Any], after: dict[str, Any], said: str) -> Iterator[str]:
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                yield f"{name}: {before.get(name)} is {after.get(name)}"
        yield from (f"heard: {each}" for each in self._ears.take())
        if REACHED in said:
            yield "reached what it should not"
        yield from (f"secret: {of}" for of, canary in self._canaries.items() if _tells(said, canary))

    # ------------------------------------------------------------------ running

    def attack(self, command: str, level: Level, backend: Backend | None, way: Way = "watched") -> Ran:
        """Run `command` at a level, None: without a sandbox. What it changed is set right again."""
        environment = {
            **self._environment(level), **self._ears.names, **self._shared.names, "VICTIM": str(self._victim.pid),
            "ADDRESS": str(self._victim.address), "FD": str(self._inherited), "CANARY": "",
        }  # fmt: skip
        before = self._last[1] if self._last is not None and self._last[0] == level else self._looks(level)
        said, status = self._run(command, level, backend, environment, way, True)
        after = self._looks(level)
        harm = tuple(self._harm(before, after, said))
        self._last = (level, after)
        if harm:
            self._reset(before["victim"] != after["victim"])
        return Ran(said, status, harm)

    def read(self, command: str, level: Level, backend: Backend | None) -> Ran:
        """Run what only reads."""
        self._last = None
        veiled = level == "read"  # else not by Landlock, as it says
        said, status = self._run(command, level, backend, self._environment(level), "watched", veiled)
        return Ran(said, status, ())

    def _run(
        self, command: str, level: Level, backend: Backend | None, environment: dict[str, str], way: Way, veiled: bool
    ) -> tuple[str, int]:
        policy = sandbox.policy(level, self.project, more=("vault",), veiled=(self.project / VEILED,) if veiled else ())
        master, terminal = pty.openpty()
        words = ["bash", "-c", command]
        options: dict[str, Any] = {
            "cwd": self.project, "stdin": terminal, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
            "start_new_session": True,
        }  # fmt: skip
        with sandbox.temporary(policy, environment) as (own, given):
            if backend is None:
                process = subprocess.Popen(words, **options, env=given, close_fds=False)
            elif way == "watched" and backend.watches:  # as the shell tool does; who watches lets all of it pass
                process = backend.spawn(words, own, lambda attempt: True, **options, env=given)
            elif way == "line":
                process = subprocess.Popen(backend.argv(words, own), **options, env=given)
            else:
                process = backend.spawn(words, own, **options, env=given)
            os.close(terminal)
            try:
                said = process.communicate(timeout=SECONDS)[0]
            except subprocess.TimeoutExpired:
                said = b"(timed out)"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                os.close(master)
                process.communicate()
            folder = given["TMPDIR"]
        return said.decode("latin-1").replace(folder, "$TMPDIR"), process.returncode


_ROOTS = ("project", "outside", "home")
_FILES = {
    "a.txt": "alpha\nbeta\ngamma\n", "b.txt": "beta\nalpha\n", "data.csv": "n,x\n1,2\n3,4\n5,6\n",
    "run.sh": "echo run\n", "dir/inner.txt": "inner\n", "tagged.txt": "tagged\n", "note.md": "# Note\ntext\n",
    "p.patch": "",
    "t.json": '{"a": [1, 2, {"b": "c"}]}\n', "Makefile": "all: out.txt\nout.txt: a.txt\n\tcp a.txt out.txt\n",
}  # fmt: skip
_REPOSITORY = """
git init -q -b main . && find .git/hooks -type f ! -name 'pre-commit*' -delete && git config user.email a@b.c
git config user.name n && git add a.txt b.txt data.csv dir run.sh && git commit -qm first
echo delta >> b.txt && git commit -qam second && git branch other && git tag v1
echo changed >> a.txt && "$PY" -c "
import sqlite3; c = sqlite3.connect('db.sqlite'); c.execute('create table t(n, x)')
c.executemany('insert into t values(?, ?)', [(1, 2), (3, 4)]); c.commit()"
printf -- '--- a/a.txt\\n+++ b/a.txt\\n@@ -1,3 +1,3 @@\\n-alpha\\n+omega\\n beta\\n gamma\\n' > p.patch
"""
_TOOLS = "mkdir in && echo x > in/from-archive && tar cf x.tar -C in from-archive && rm -r in && cp x.tar y.tar"


def tree(root: Path) -> dict[str, Any]:
    """All that a command might change of a file or folder and of what is in it, but for the times of reading."""
    if not os.path.lexists(root):
        return {}
    found = {str(root): _file(str(root))}
    if root.is_dir() and not root.is_symlink():
        for folder, folders, files in os.walk(root):
            found.update({path: _file(path) for path in (os.path.join(folder, name) for name in (*folders, *files))})
    return found


_KNOWN: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
_GRAIN = 100_000_000
"""Nanoseconds within which a file may change again and show the same time (ctime: nobody can set it)."""


def _file(path: str) -> tuple[Any, ...]:
    state = os.lstat(path)
    which = (state.st_ino, oct(state.st_mode), state.st_uid, state.st_gid, state.st_nlink, state.st_size)
    which = (*which, state.st_mtime_ns, state.st_ctime_ns)
    if path in _KNOWN and _KNOWN[path][0] == which:
        return (*which, *_KNOWN[path][1])
    content, flags = "", 0
    if stat.S_ISLNK(state.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode):
        opened = os.open(path, os.O_RDONLY | os.O_NOATIME)
        with contextlib.suppress(OSError):
            flags = struct.unpack("=l", fcntl.ioctl(opened, 0x80086601, b"\0" * 8)[:4])[0]
        if stat.S_ISREG(state.st_mode):
            content = hashlib.sha1(os.read(opened, 1_000_000), usedforsecurity=False).hexdigest()[:12]
        os.close(opened)
    marks = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}
    if time.time_ns() - state.st_ctime_ns > _GRAIN:
        _KNOWN[path] = (which, (content, flags, marks))
    return (*which, content, flags, marks)


def _tells(said: str, canary: str) -> bool:
    """Whether a text tells a secret, in one of the usual ways of writing it."""
    if canary in said or canary in said[::-1]:
        return True
    tight, written = "".join(said.split()), canary.encode()
    return any(
        each in tight
        for each in (canary, written.hex(), written.hex().upper(), base64.b64encode(written[:21]).decode()[:28])
    )


# ------------------------------------------------------------------ who must hear and feel nothing


class _Ears:
    """Listeners on TCP, UDP, UNIX sockets with a path and without, a named pipe and a message queue."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._heard: list[str] = []
        self._lock = threading.Lock()

    def __enter__(self) -> _Ears:
        self._waits = selectors.DefaultSelector()
        mark = secrets.token_hex(4)
        self.names = {"ABSTRACT": f"ipyagent-{mark}", "ABSTRACT_DGRAM": f"ipyagent-d-{mark}"}
        inet = [(socket.AF_INET, "127.0.0.1", "")] + ([(socket.AF_INET6, "::1", "6")] if socket.has_ipv6 else [])
        for family, host, end in inet:
            for kind, name in ((socket.SOCK_STREAM, "PORT"), (socket.SOCK_DGRAM, "UDP")):
                with contextlib.suppress(OSError):
                    self.names[f"{name}{end}"] = str(self._listen(family, kind, (host, 0), f"{name}{end}")[1])
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        for name in ("docker.sock", "bus", "agent.123", "kernel-ipc-1", "X0"):
            self._listen(socket.AF_UNIX, stream, str(self._folder / name), name)
        self._listen(socket.AF_UNIX, datagram, str(self._folder / "log"), "log")
        self._listen(socket.AF_UNIX, socket.SOCK_SEQPACKET, str(self._folder / "seq"), "seq")
        self._listen(socket.AF_UNIX, stream, f"\0{self.names['ABSTRACT']}", "abstract")
        self._listen(socket.AF_UNIX, datagram, f"\0{self.names['ABSTRACT_DGRAM']}", "abstract datagram")
        os.mkfifo(self._folder / "pipe")
        self._pipe = os.open(self._folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
        self._waits.register(self._pipe, selectors.EVENT_READ, ("pipe", None))
        self._stop, self._wake = os.pipe()
        self._waits.register(self._stop, selectors.EVENT_READ, ("stop", None))
        self._thread = threading.Thread(target=self._listens, name="ears")
        self._thread.start()
        return self

    def _listen(self, family: int, kind: int, address: Any, name: str) -> Any:
        ear = socket.socket(family, kind)
        ear.bind(address)
        if kind != socket.SOCK_DGRAM:
            ear.listen(50)
        ear.setblocking(False)
        self._waits.register(ear, selectors.EVENT_READ, (name, ear))
        return ear.getsockname()

    def _listens(self) -> None:
        while True:
            for key, _ in self._waits.select():
                name, ear = key.data
                if name == "stop":
                    return
                with contextlib.suppress(BlockingIOError):
                    end: socket.socket | None = None
                    if ear is None:
                        os.read(self._pipe, 4096)
                    elif ear.type == socket.SOCK_DGRAM:
                        ear.recv(4096)
                    else:
                        end = ear.accept()[0]
                    with self._lock:
                        self._heard.append(name)
                    if end is not None:
                        end.close()

    def take(self) -> list[str]:
        """What was heard since the last time."""
        for _ in range(2):  # when the second is answered, what came before the first was heard
            with socket.create_connection(("127.0.0.1", int(self.names["PORT"]))) as probe:
                probe.recv(1)
        with self._lock:
            heard, self._heard = self._heard, []
        for _ in range(2):
            heard.remove("PORT")
        return heard

    def __exit__(self, *exc: object) -> None:
        os.write(self._wake, b"x")
        self._thread.join()
        for key in list(self._waits.get_map().values()):
            if key.data[1] is not None:
                key.data[1].close()
        for each in (self._pipe, self._stop, self._wake):
            os.close(each)
        self._waits.close()


class _Victim:
    """A process of the same user that nobody may signal, stop, trace or read."""

    def __init__(self, memory: str, environment: str, opened: Path) -> None:
        self._memory, self._environment, self._opened = memory, environment, opened
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", VICTIM, str(self._opened)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            env={"PATH": os.environ["PATH"], "TOKEN": self._environment},
        )  # fmt: skip
        self._process.stdin.write(f"{self._memory}\n".encode())
        self._process.stdin.flush()
        self.pid, self.address = self._process.pid, int(self._process.stdout.readline())
        os.set_blocking(self._process.stdout.fileno(), False)

    def looks(self) -> dict[str, Any]:
        """Its state: running, its signals, priorities, limits, memory."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
                content = os.pread(memory.fileno(), 32, self.address)
            limits = Path(f"/proc/{self.pid}/limits").read_text()
            adjusted = Path(f"/proc/{self.pid}/oom_score_adj").read_text() + Path(f"/proc/{self.pid}/comm").read_text()
            nice = (os.getpriority(os.PRIO_PROCESS, self.pid), os.sched_getscheduler(self.pid))
            which = "stopped" if fields[0] in "TtZX" else "runs"
            idle = ctypes.CDLL(None).syscall(252, 1, self.pid) if os.uname().machine == "x86_64" else 0
            felt = self._process.stdout.read(1_000)
            more = (nice, idle, sorted(os.sched_getaffinity(self.pid)), limits, adjusted, content)
            return {"victim": (self.pid, which, felt, *more)}
        except (OSError, IndexError):
            return {"victim": "ended"}

    def again(self) -> None:
        self.end()
        self._start()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Shared:
    """Memory, a queue and a semaphore that belong to others, and a file in /dev/shm."""

    def __init__(self, canary: str) -> None:
        self._canary = canary
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.shmat.restype = ctypes.c_void_p
        self._file = Path(f"/dev/shm/ipyagent-{secrets.token_hex(4)}")

    def __enter__(self) -> _Shared:
        self._memory = self._libc.shmget(0, 4096, 0o1600)
        self._place = self._libc.shmat(self._memory, None, 0)
        self._queue = self._libc.msgget(0, 0o1600)
        self._semaphore = self._libc.semget(0, 1, 0o1600)
        self._name = f"/ipyagent-{secrets.token_hex(4)}"
        self._posix = self._libc.mq_open(self._name.encode(), os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, 0o600, None)
        assert min(self._memory, self._queue, self._semaphore, self._posix) >= 0
        self.names = {
            "SHM": str(self._memory), "MSG": str(self._queue), "SEM": str(self._semaphore), "MQ": self._name,
            "SHMFILE": str(self._file), "SHMNEW": f"{self._file}-new",
        }  # fmt: skip
        self.again()
        return self

    def again(self) -> None:
        ctypes.memmove(self._place, self._canary.encode(), len(self._canary))
        self._file.write_text(self._canary)
        Path(f"{self._file}-new").unlink(missing_ok=True)
        buffer = ctypes.create_string_buffer(8192)
        while self._libc.msgrcv(self._queue, buffer, 8000, 0, 0o4000) >= 0:  # IPC_NOWAIT
            continue
        self._libc.semctl(self._semaphore, 0, 16, 0)  # SETVAL
        while self._libc.mq_receive(self._posix, buffer, 8192, None) >= 0:
            continue

    def looks(self) -> dict[str, Any]:
        queue = ctypes.create_string_buffer(256)
        self._libc.msgctl(self._queue, 2, queue)  # IPC_STAT
        attributes = (ctypes.c_long * 8)()
        self._libc.mq_getattr(self._posix, attributes)
        new = os.path.exists(f"{self._file}-new")
        shared = (ctypes.string_at(self._place, 64), queue.raw[:120], self._libc.semctl(self._semaphore, 0, 12))
        return {"shared": (*shared, attributes[3], new), **tree(self._file)}

    def __exit__(self, *exc: object) -> None:
        for file in (self._file, Path(f"{self._file}-new")):
            file.unlink(missing_ok=True)
        self._libc.mq_close(self._posix)
        self._libc.mq_unlink(self._name.encode())
        self._libc.shmctl(self._memory, 0, None)
        self._libc.msgctl(self._queue, 0, None)
        self._libc.semctl(self._semaphore, 0, 0)
