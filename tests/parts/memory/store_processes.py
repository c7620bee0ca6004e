"""Processes that work in memory directories, each forked from one that has imported all they need: some are killed.

`python store_processes.py` does what each line of its input asks, `[function below, *arguments]` as JSON, and answers
with a line; `Processes` is a test's end of it. What a process began and finished of its work it writes into a log.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from recall_room import index_names

from ipyagent.errors import MemoryRefused
from ipyagent.parts.memory.dream_workspace import DreamWorkspace
from ipyagent.parts.memory.store import MemoryStore, WriteResult
from ipyagent.parts.memory.transaction import DreamLock


class Processes:
    """The script at work; its end is theirs."""

    def __init__(self) -> None:
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        self._script = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )
        self._lock = threading.Lock()

    def ask(self, function: str, *given: Any) -> Any:
        with self._lock:
            print(json.dumps([function, *given], default=str), file=self._script.stdin, flush=True)
            return json.loads(self._script.stdout.readline())

    def close(self) -> None:
        self._script.communicate(timeout=60)


CHILDREN: dict[int, int | None] = {}
"""Processes that were begun, and how they ended (None: they have not)."""


def begun(work: Callable[[], object]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001 - it ends with the child
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    CHILDREN[child] = None
    return child


def ended(child: int, flags: int = 0) -> int | None:
    """How a process ended; None while it works."""
    if CHILDREN[child] is None:
        pid, status = os.waitpid(child, flags)
        CHILDREN[child] = os.waitstatus_to_exitcode(status) if pid else None
    return CHILDREN[child]


def working() -> list[int]:
    return [child for child in CHILDREN if ended(child, os.WNOHANG) is None]


def kill(child: int) -> bool:
    """Whether it was at work still."""
    if ended(child, os.WNOHANG) is None:
        os.kill(child, signal.SIGKILL)
    return ended(child) == -signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# ---------------------------------------------------------------------- who adds, edits, renames and deletes

SHARED = [f"shared_{number}.md" for number in range(4)]
END = "<!-- end -->\n"
"""The last line of every text: what has it is whole."""


def text_of(name: str, *tokens: str) -> str:
    """Words of its own, so that no two are about the same; and a day that a dream makes a date of."""
    lines = "".join(f"- {token}\n" for token in tokens)
    letters = hashlib.sha256(name.encode()).hexdigest().translate(str.maketrans("0123456789", "ghijklmnop"))
    own = " ".join(letters[at : at + 5] for at in range(0, 60, 5))
    head = f"name: {name}\ndescription: {own}\ntype: project"
    return f"---\n{head}\n---\n\n# Facts\n{lines}\nDue on Thursday.\n\n{END}"


def with_token(text: str, token: str) -> str:
    return text.replace("# Facts\n", f"# Facts\n- {token}\n", 1)


class Log:
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, *words: str) -> None:
        self._file.write(json.dumps(words) + "\n")
        self._file.flush()


def work(store: MemoryStore, log: Log, me: str, count: int, chance: random.Random) -> None:
    own: list[str] = []
    stale = {name: store.read(name) for name in SHARED}
    for number in range(count):
        token = f"{me}-{number}"
        choice = chance.random()
        if choice < 0.3 or not own:
            name = f"{me}_{number}.md" if chance.random() < 0.7 else f"team_{me}/{number}.md"
            log.write("began", "add", name, token)
            store.write(name, text_of(name, token), expected=None, by="agent")
            log.write("done", "add", name, token)
            own.append(name)
        elif choice < 0.6:
            name = chance.choice(SHARED)
            log.write("began", "edit", name, token)
            if chance.random() < 0.5:
                store.change(name, lambda text, token=token: with_token(text, token), by="agent")  # type: ignore[misc]
            else:  # from a text that was read a while ago
                store.write(name, with_token(stale[name].text, token), expected=stale[name].digest, by="agent")
            log.write("done", "edit", name, token)
            if chance.random() < 0.5:
                stale[name] = store.read(name)
        elif choice < 0.75:
            name = chance.choice(own)
            log.write("began", "edit", name, token)
            store.change(name, lambda text, token=token: with_token(text, token), by="agent")  # type: ignore[misc]
            log.write("done", "edit", name, token)
        elif choice < 0.88:
            old = own.pop(chance.randrange(len(own)))
            new = f"{me}_renamed_{number}.md"
            log.write("began", "rename", old, new)
            store.rename(old, new, by="agent")
            log.write("done", "rename", old, new)
            own.append(new)
        else:
            name = own.pop(chance.randrange(len(own)))
            log.write("began", "delete", name)
            store.delete(name, by="agent")
            log.write("done", "delete", name)


def tidy(store: MemoryStore, log: Log, me: str, count: int, chance: random.Random) -> None:
    """As a dream does: stages what it read and commits it; whoever wrote meanwhile is not overwritten."""
    for number in range(count):
        staged = {}
        for memory in chance.sample(found := store.list(), min(3, len(found))):
            try:
                staged[memory.name] = store.read(memory.name)
            except MemoryRefused as problem:
                if problem.reason != "missing":
                    raise
        store.index.loaded()
        for name, read in staged.items():
            assert read.text.endswith(END), f"{name} is not whole: {read.text!r}"
            token = f"{me}-{number}"
            log.write("began", "dream", name, token)
            try:
                if name in SHARED:
                    store.write(name, with_token(read.text, token), expected=read.digest, by="dream")
                else:  # rewritten only if nobody touched it: it may be gone by now
                    store.change(name, lambda text, token=token: with_token(text, token), by="dream")  # type: ignore[misc]
                log.write("done", "dream", name, token)
            except MemoryRefused as problem:
                if problem.reason != "missing":
                    raise


def start(folder: str, logs: str, me: str, count: int, seed: int) -> int:
    """Somebody who does so many things; "dream" tidies."""

    def at_work() -> None:
        with (Path(logs) / me).open("a", encoding="utf-8") as file:
            (tidy if me == "dream" else work)(
                MemoryStore(Path(folder), "project"), Log(file), me, count, random.Random(seed)
            )

    return begun(at_work)


# ---------------------------------------------------------------------- a writer that is killed at each of its steps

STEPS = frozenset(("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.utime"))
"""With files that are made, all that changes what stands on the disk."""
OPERATIONS: dict[str, Any] = {
    "create": lambda store: store.write("new.md", "# New\n", expected=None, by="agent"),
    "create in a folder": lambda store: store.write("team/new.md", "# New\n", expected=None, by="agent"),
    "change": lambda store: store.change("a.md", lambda text: text.replace("about a", "news of a"), by="agent"),
    "delete": lambda store: store.delete("a.md", by="agent"),
    "rename": lambda store: store.rename("a.md", "z.md", by="agent"),
    "restore": lambda store: store.restore("b.md", "000001", by="agent"),
    "put back": lambda store: store.put_back(next((store.folder / ".history" / "snapshots").iterdir())),
}


def prepared(folder: Path) -> MemoryStore:
    store = MemoryStore(folder, "project")
    for name in "abc":
        store.write(f"{name}.md", f"---\nname: {name}\ndescription: about {name}\n---\n", expected=None, by="agent")
    store.snapshot()
    store.change("b.md", lambda text: text.replace("about b", "news of b"), by="agent")
    store.delete("c.md", by="agent")
    return store


def state(folder: Path) -> dict[str, Any]:
    """What stands there after the next writer came."""
    store = MemoryStore(folder, "project")
    index = index_names(store)
    files = {memory.name: store.read(memory.name).text for memory in store.list()}
    with store.lock():  # the next writer sweeps
        pass
    new = folder / ".history" / "new"
    left = [path.name for path in new.iterdir()] if new.is_dir() else []
    note = folder / ".history" / "unfinished.json"
    return {"files": files, "index": index, "left": left + [note.name] * note.exists()}


def steps(base: str) -> dict[str, list[dict[str, Any]]]:
    """By operation what stood there when its writer was killed before a step, for each, last when it was let finish."""
    template = Path(base) / "template"
    prepared(template)
    return {operation: killed_at_steps(template, operation) for operation in OPERATIONS}


def killed_at_steps(template: Path, operation: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        folder = template.with_name(f"step{len(found)}")
        shutil.copytree(template, folder)
        left = len(found) * (3 if operation == "put back" else 1)  # it has many steps of a kind

        def die_at_the_step(event: str, given: tuple[Any, ...]) -> None:
            nonlocal left
            if event in STEPS or (event == "open" and isinstance(given[0], str) and given[2] & os.O_CREAT):
                if left == 0:
                    die()
                left -= 1

        def write(folder: Path = folder) -> None:
            store = MemoryStore(folder, "project")
            store.exists("a.md")
            sys.addaudithook(die_at_the_step)
            OPERATIONS[operation](store)

        how = ended(begun(write))
        found.append(state(folder))
        shutil.rmtree(folder)
        if how == 0:
            return found
        assert how == -signal.SIGKILL, how


# ---------------------------------------------------------------------- who dreams, and holds the lock of it


class Mortal(MemoryStore):
    """Dies before it does for the second time what `where` says."""

    def __init__(self, folder: Path, where: str) -> None:
        super().__init__(folder, "project")
        self._where, self._left = where, 2

    def _count(self, name: str) -> None:
        self._left -= name == self._where
        if not self._left and name == self._where:
            die()

    def write(self, *args: Any, **kwargs: Any) -> WriteResult:
        self._count("writing")
        return super().write(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> WriteResult:
        self._count("deleting")
        return super().delete(*args, **kwargs)

    def snapshot(self) -> Path:
        made = super().snapshot()
        if self._where == "snapshot":
            die()
        return made


def dream(folder: Path) -> None:
    """Dies in the phase after which the folder is named."""
    where = folder.name
    store = Mortal(folder, where)
    lock = DreamLock(folder, store.lock).acquire()
    if where == "taken":
        die()
    staging = DreamWorkspace.make(store)
    if where == "copied":
        die()
    for name in ("a.md", "b.md"):
        staging.copy.change(name, lambda text: text + "\nDreamed.\n", by="dream")
    for name in ("c.md", "d.md"):
        staging.copy.delete(name, by="dream")
    if where == "dreamed":
        die()
    staging.commit("session", staging.changes())
    assert lock
    die()


def dream_and_die(folder: str) -> int | None:
    return ended(begun(lambda: dream(Path(folder))))


def want(folder: Path, begin: int, told: int) -> None:
    """Take the lock once all are there, and keep it; writes "busy", or who has it."""
    lock = DreamLock(folder, MemoryStore(folder, "project").lock)
    os.read(begin, 1)
    try:
        lock.acquire()
    except MemoryRefused as problem:
        os.write(told, f"{problem.reason}\n".encode())
    else:
        os.write(told, f"{os.getpid()}\n".encode())
        time.sleep(60)


def race(folder: str, count: int) -> list[str]:
    """What comes of it for each of so many processes that want one lock at once."""
    begin, go = os.pipe()
    heard, told = os.pipe()

    def wants() -> None:
        os.close(go)
        want(Path(folder), begin, told)

    for _ in range(count):
        begun(wants)
    for end in (begin, go, told):
        os.close(end)
    with os.fdopen(heard) as lines:
        return [lines.readline().strip() for _ in range(count)]


def serve() -> None:
    os.fsync = lambda _: None  # type: ignore[assignment] # a killed process takes nothing from the system
    for line in sys.stdin:
        function, *given = json.loads(line)
        print(json.dumps(globals()[function](*given)), flush=True)
    for child in working():
        kill(child)


if __name__ == "__main__":
    serve()
