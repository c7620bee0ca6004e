"""A command at its sandbox level: what it needs, what it may not see there, and what it was refused.

Nothing here reads the command to judge it. It runs where it can do no harm, the system tells what it was about to
change (`ipyagent.sandbox.syscalls`), and that is what the user is asked about."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ipyagent import sandbox
from ipyagent.errors import AgentError, ToolFailure
from ipyagent.escape import cut, exact_line
from ipyagent.journal.protocols import Needed, Workspace
from ipyagent.kernel.audit import How, Refused
from ipyagent.sandbox.secrets import Seen
from ipyagent.sandbox.syscalls import Attempt

if TYPE_CHECKING:
    from ipyagent.loop.watching import RunWatch

Wanted = Literal["project", "network"]
HIDE = b"agent-hide"
"""Stands in the file of every notebook with a hidden cell, as a tag or in a comment."""
MOST_FOLDERS = 20_000
"""Folders looked through for such notebooks; with more the user is asked."""
_PASSED = frozenset((".git", "node_modules", "site-packages", "__pycache__"))
ENOUGH, AFTER = 6, 2.0
"""A command that was refused a network so often, and is still at it after these seconds, will not get on."""
MOST_NAMED, LONGEST = 3, 200
TEMPORARY = ("/tmp/", "/var/tmp/")
_VERBS = {
    "write": "write", "append": "write", "remove": "remove", "replace": "replace", "make": "create",
    "symlink": "create", "link": "link",
    "mode": "change the mode, owner or times of",
}  # fmt: skip
_HOW: dict[str, How] = {"write": "write", "append": "append", "remove": "remove", "replace": "replace",
                        "symlink": "replace", "link": "link", "mode": "mode"}  # fmt: skip
_GIT_RUNS = ("config", "config.worktree", "hooks", "attributes", "commondir", "gitdir")
"""What git obeys or runs of its own folder; the rest is its own affair."""


def needed(wanted: Wanted | None, root: Path) -> Needed:
    """The level that a call says it needs; "" where nothing keeps a command at one."""
    found = sandbox.find()
    if not found.working:
        return Needed(level="", why=f"{found.why}, so every command is asked about")
    match wanted:
        case "network":
            return Needed(level="open", why="it needs the network")
        case "project":
            return Needed(level="project", why="it needs to write in the project")
        case _:
            return Needed(level="read")


def watches(level: str, root: Path) -> bool:
    """Whether what a command changes at this level is seen before, so that there is a copy of it."""
    if level not in ("read", "project") or not sandbox.find().working:
        return False
    found = sandbox.backend(sandbox.policy("project", root))
    return found is not None and found.watches


# ------------------------------------------------------------------ hidden cells


_looking = threading.Lock()


def unseen(folders: Sequence[Path]) -> tuple[Path, ...]:
    """What a command may not read: notebooks with hidden cells, and with them what git keeps of earlier states. Raises
    ToolFailure where there is too much to look through."""
    with _looking:
        found: list[Path] = []
        for top in dict.fromkeys(map(str, folders)):
            seen = [Path(notebook) for notebook in _notebooks(top) if _hides(notebook)]
            objects = (_objects(folder) for folder in dict.fromkeys(notebook.parent for notebook in seen))
            found += [*seen, *(folder for folder in objects if folder is not None)]
        return tuple(dict.fromkeys(found))


def _objects(folder: Path) -> Path | None:
    """Where the repository around a folder keeps its states, also that of a worktree or a submodule."""
    with suppress(OSError, ValueError):
        git = next((above / ".git" for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), None)
        if git is None:
            return None
        if git.is_file():
            git = git.parent / git.read_text(encoding="utf-8")[:4096].partition("gitdir:")[2].strip()
        if (common := git / "commondir").is_file():
            git = git / common.read_text(encoding="utf-8")[:4096].strip()
        objects = (git / "objects").resolve()
        return objects if objects.is_dir() else None
    return None


def _notebooks(top: str) -> Iterator[str]:
    queue, left = [top], MOST_FOLDERS
    while queue:
        folder = queue.pop()
        left -= 1
        if left < 0:
            raise ToolFailure("there are too many folders to look through for hidden cells")
        inner, files = _entries(folder)
        yield from files
        queue += inner


def _entries_of(folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders and the notebooks in it."""
    with os.scandir(folder) as entries:
        every = list(entries)
    inner = (each.path for each in every if each.is_dir(follow_symlinks=False) and each.name not in _PASSED)
    return tuple(inner), tuple(each.path for each in every if each.name.casefold().endswith(".ipynb"))


_entries: Seen[tuple[tuple[str, ...], tuple[str, ...]]] = Seen(_entries_of, ((), ()))
_hides = Seen(lambda notebook: os.path.isfile(notebook) and HIDE in Path(notebook).read_bytes(), False)
"""Whether a notebook has a hidden cell."""


# ------------------------------------------------------------------ one command


class Confined:
    """One run of a command at "read" or "project". A context manager: behind it, the temporary folder is gone and the
    changes are journalled."""

    def __init__(self, command: str, level: Literal["read", "project"], workspace: Workspace) -> None:
        self._level, self._workspace, self._command = level, workspace, command
        self._root = workspace.root.resolve()
        self._refused: dict[Attempt, None] = {}
        self._changed: dict[str, None] = {}
        self._networks: list[float] = []
        self._made: set[str] = set()
        self.sessions: dict[int, None] = {}
        """Sessions of processes that it began."""
        self._leave = ExitStack()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiting: list[Future[Any]] = []
        self._waited, self._since = 0.0, 0.0
        watch = workspace.watch_command() if level == "project" else None
        self._keeper: RunWatch | None = watch  # type: ignore[assignment] # see `Workspace.watch_command`
        self._hidden: tuple[Path, ...] = ()

    def __enter__(self) -> Confined:
        return self

    def __exit__(self, *error: object) -> None:
        for pending in self._waiting:
            pending.cancel()
        self._leave.close()

    async def look(self) -> None:
        """Find what the command may not see. Raises ToolFailure."""
        folders = (self._root, self._workspace.folder, *self._workspace.allowed)
        self._hidden = await asyncio.to_thread(unseen, folders)

    def start(self, line: Sequence[str], environment: dict[str, str], **popen: Any) -> subprocess.Popen[bytes]:
        """Start it. Raises OSError, ToolFailure."""
        more = tuple(path for path in self._hidden if path.is_dir())
        veiled = [path for path in self._hidden if path not in more]
        given = sandbox.policy(self._level, self._root, more=map(str, more), veiled=veiled)
        if (found := sandbox.backend(given)) is None:
            raise ToolFailure(f"the command was not run: {sandbox.find().why}")
        policy, environment = self._leave.enter_context(sandbox.temporary(given, environment))
        if self._keeper is not None:
            self._leave.enter_context(self._keeper.beside(self._wait))
        if self._level == "read":
            environment = {**environment, "PYTHONDONTWRITEBYTECODE": "1"}
        self._own = policy.temporary
        self._sees = found.watches
        return found.spawn(line, policy, self._seen, env=environment, **popen)

    def _seen(self, attempt: Attempt) -> bool:
        if attempt.what == "session":
            self.sessions[int(attempt.path)] = None
            return True
        if self._own is not None and Path(attempt.path).is_relative_to(self._own):
            return True
        if attempt.what == "network":
            self._networks.append(time.monotonic())
        if not attempt.allowed:
            self._refused[attempt] = None
            return True
        parts = Path(attempt.path).relative_to(self._root).parts
        if attempt.what == "make" and parts[-1:] == (".git",):
            self._made.add(attempt.path)
        if ".git" in parts[:-1] and not self._git_runs(attempt.path, parts):
            return True
        if self._keeper is None or attempt.what == "make":
            return True
        try:
            self._keeper.changes(attempt.path, _HOW[attempt.what])
        except (Refused, AgentError, CancelledError, asyncio.CancelledError, OSError):
            return False
        self._changed["/".join(parts)] = None
        return True

    def _git_runs(self, path: str, parts: Sequence[str]) -> bool:
        """Whether git runs or obeys it, in a repository that was there before or in one that is made."""
        inner = parts[parts.index(".git") + 1 :]
        new = any(path.startswith(f"{made}/") for made in self._made)
        sample = inner[-1].endswith(".sample") or inner == ("hooks",)
        return any(part in _GIT_RUNS for part in inner) and not (new and sample)

    def _wait(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Wait for the agent thread, from whatever thread."""
        if threading.get_ident() == self._thread:
            work = make()
            try:
                work.send(None)
            except StopIteration as done:
                return done.value
            work.close()
            raise AgentError("nobody can be asked while a command ends; run the cell again")
        pending = asyncio.run_coroutine_threadsafe(make(), self._loop)
        self._waiting.append(pending)
        self._since = time.monotonic()
        try:
            return pending.result()
        finally:
            self._waited += time.monotonic() - self._since
            self._since = 0.0
            self._waiting.remove(pending)

    @property
    def waited(self) -> float:
        """Seconds that it waited for the user: they are no time of the command's."""
        return self._waited + (time.monotonic() - self._since if self._since else 0.0)

    @property
    def stuck(self) -> bool:
        """Whether it tries again and again to reach a network that it does not get."""
        tried, now = self._networks, time.monotonic()
        return len(tried) >= ENOUGH and now - tried[0] > AFTER and now - tried[-1] < AFTER

    # -------------------------------------------------------------- what is said of it

    def needs(self, failed: bool) -> Needed | None:
        """What the command needs beyond its level, where that is why it failed, or where it went on without a change
        that it meant to make in the project."""
        beyond, refused = ("network", "signal"), list(self._refused)  # what it left behind may be refused more
        ours = [attempt for attempt in refused if self._level == "read" and self._is_inside(attempt)]
        outside = [attempt for attempt in refused if attempt.what in beyond or attempt not in ours]
        inside = [attempt for attempt in refused if attempt not in outside]
        git_hidden = any(path.name == "objects" for path in self._hidden)
        if failed and git_hidden and re.search(r"\bgit\b", self._command):
            return Needed(level="open", why="the project has hidden cells, and git keeps what notebooks were")
        work = any(self._is_work(attempt) for attempt in refused if attempt.what not in beyond)
        if not refused or not (failed or work):
            return None
        beyond_it = outside and (failed or not inside)  # at "project": beside a hidden folder
        wants = self._named([*outside, *inside] if beyond_it else inside)
        done = [exact_line(cut(name, LONGEST)) for name in list(self._changed)[:MOST_NAMED]]
        again = f"; it has changed {', '.join(done)} already and runs again" if done else ""
        if beyond_it:
            return Needed(level="open", why=f"it wants to {wants}{again}")
        return Needed(level="project", why=f"it wants to {wants}")

    def told(self, needs: Needed | None) -> list[str]:
        """What the model is told of it."""
        lines = [f"refused: {why}" for why in (self._keeper.refused if self._keeper is not None else ())]
        refused = list(self._refused)
        if needs is not None or any(attempt.what != "network" for attempt in refused):
            lines += [f"not possible at the sandbox level {self._level}: {self._named(refused)}"] * bool(refused)
        if any(attempt.path.startswith(TEMPORARY) and not self._is_inside(attempt) for attempt in refused):
            lines.append("a command's temporary folder is $TMPDIR; it is gone when the command has ended")
        if not self._sees and self._level == "read":
            lines.append("it ran at the sandbox level read; if it failed for that, say what it `needs`")
        return lines

    def _is_inside(self, attempt: Attempt) -> bool:
        return Path(attempt.path).is_relative_to(self._root)

    def _is_work(self, attempt: Attempt) -> bool:
        parts = Path(attempt.path).relative_to(self._root).parts if self._is_inside(attempt) else (".",)
        return not any(part.startswith((".", "__")) for part in parts)

    def _named(self, attempts: Sequence[Attempt]) -> str:
        said: dict[str, None] = {}
        for attempt in attempts:
            path = Path(attempt.path)
            name = path.relative_to(self._root).as_posix() if path.is_relative_to(self._root) else attempt.path
            if attempt.what == "network":
                said["use the network"] = None
            elif attempt.what == "signal":
                said[f"send a signal to process {running(int(attempt.path))}"] = None
            else:
                said[f"{_VERBS[attempt.what]} {exact_line(cut(name, LONGEST))}"] = None
        first = list(said)[:MOST_NAMED]
        return ", ".join(first) + (f" and {len(said) - len(first)} more" if len(said) > len(first) else "")


def running(process: int) -> str:
    """The process with its command line, as far as it can be told."""
    import psutil

    with suppress(psutil.Error):
        program, *rest = psutil.Process(process).cmdline() or [""]
        return f"{process} ({exact_line(cut(' '.join([os.path.basename(program), *rest]), 80))})"
    return str(process)
