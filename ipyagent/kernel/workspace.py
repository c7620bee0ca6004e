"""What the tools of one session may touch: the project's files and the user's namespace."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from ipyagent.errors import AgentError
from ipyagent.journal.events import FileChanged, PlanWritten, ResultStored, Step
from ipyagent.journal.protocols import Execution, ReadStamp, Workspace
from ipyagent.kernel.audit import How
from ipyagent.kernel.cell_marks import CellMarks
from ipyagent.kernel.dispatcher import MainThreadExecutor, MainThreadProxy
from ipyagent.kernel.frontend import opened, own_notebook
from ipyagent.kernel.interrupts import Waiting, Watching
from ipyagent.kernel.previews import TypeInfo
from ipyagent.kernel.scope import IsolatedNamespace, users_namespace
from ipyagent.kernel.variables import short_types
from ipyagent.nofollow import is_file, write_atomically
from ipyagent.sandbox import Level

BACKUPS = "backups"
"""Folder beside the transcript with the old content of changed files, named by its SHA-256."""


class CodeRunWatch(Protocol):
    """What sees a run of code; `refused` tells what it was not allowed to do, `waited` how many seconds it waited for
    the user."""

    @property
    def refused(self) -> Sequence[str]: ...

    @property
    def waited(self) -> float: ...

    @property
    def around(self) -> Watching:
        """See `MainThreadExecutor.run_code`."""

    def beside(self, wait: Waiting) -> AbstractContextManager[object]:
        """To be entered around a command, with what waits for the agent thread."""

    def changes(self, path: str, how: How) -> None:
        """A file is about to change. Raises Refused."""


class Names:
    """The namespace's names and types as they were when code last ran."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}


@dataclass(frozen=True)
class KernelWorkspace:
    """A `Workspace` over a shell and the main thread's dispatcher; see the protocol."""

    root: Path
    folder: Path
    shell: Any
    main: MainThreadExecutor | MainThreadProxy
    backups: Path
    record: Callable[[FileChanged | PlanWritten], object]
    limits: Callable[[str], int]
    allowed: tuple[Path, ...] = ()
    read_stamps: dict[Path, ReadStamp] = field(default_factory=dict)
    cell_ids: dict[Path, Any] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    marks: CellMarks | None = None
    memory: object = None
    skills: object = None
    children: object = None
    messages: object = None
    sessions: object = None
    page: object = None
    beside: dict[Any, Any] = field(default_factory=dict)
    scope: IsolatedNamespace | None = None
    """A namespace of its own for what runs here; None: the user's."""
    begun: Callable[[], None] = lambda: None
    """Called when code no longer waits for the main thread."""
    call: str = ""
    streamed: Callable[[str], None] = lambda text: None
    level: Level = "read"
    watched: Callable[[KernelWorkspace, str], CodeRunWatch] | None = None
    """Gives the watch of a run of this code ("": of a command); None: nobody looks at what it does."""

    @property
    def namespace(self) -> dict[str, Any]:
        return users_namespace(self.shell) if self.scope is None else self.scope.namespace

    @property
    def hidden(self) -> Mapping[str, Any]:
        hidden: Mapping[str, Any] = self.shell.user_ns_hidden if self.scope is None else self.scope.hidden
        return hidden

    @property
    def notebook(self) -> Path | None:
        found = own_notebook(self.shell)
        return None if found is None else found.resolve()

    def opened(self, path: Path) -> Literal["", "own", "page"]:
        return opened(self.shell, path)

    def for_call(self, call: str, stream: Callable[[str], None]) -> Workspace:
        return replace(self, call=call, streamed=stream)

    def at(self, level: Level) -> Workspace:
        return replace(self, level=level)

    def watch_command(self) -> CodeRunWatch | None:
        return self.watched(self, "") if self.watched is not None else None

    def limit(self, name: str) -> int:
        return self.limits(name)

    def stream(self, text: str) -> None:
        self.streamed(text)

    async def run_code(self, code: str) -> Execution:
        watch = self.watched(self, code) if self.watched is not None else None
        around = watch.around if watch is not None else None
        done = await self.main.run_code(
            code, self.streamed, scope=self.scope, begun=self.begun, after=self.look, watch=around
        )
        if watch is not None:
            done = msgspec.structs.replace(done, seconds=max(0.0, done.seconds - watch.waited))
        if watch is None or not (refused := [why for why in watch.refused if why not in (done.error or "")]):
            return done
        lines = [*([done.output.rstrip("\n")] if done.output else ()), *(f"[refused: {why}]" for why in refused)]
        return msgspec.structs.replace(done, output="\n".join(lines))

    async def on_main(self, call: Callable[[], Any]) -> Any:
        return await self.main.call(call if self.scope is None else self.scope.calling(call))

    def look(self) -> None:
        """Keep names and short types as they are now; main thread only."""
        self.names.types = short_types(self.namespace, hidden=self.hidden)

    def record_plan(self, steps: tuple[Step, ...]) -> None:
        self.record(PlanWritten(steps=steps, call=self.call))

    def record_change(self, path: Path, before: bytes | None, after: bytes | None) -> None:
        backup = ""
        if before is not None:
            backup = hashlib.sha256(before).hexdigest()
            target = self.backups / backup
            if not is_file(target):
                try:
                    write_atomically(target, before)
                except OSError as problem:
                    raise AgentError(
                        f"cannot back up {path} ({problem.strerror}), so it stays as it is: free some space"
                    ) from None
        try:
            shown = path.relative_to(self.root).as_posix()
        except ValueError:
            shown = str(path)
        digest = hashlib.sha256(after).hexdigest() if after is not None else ""
        self.record(FileChanged(call=self.call, path=shown, backup=backup, digest=digest))


# ---- `_agent` in the user's namespace: objects of stored results, alive under their handles. Only the newest are
# kept, bounded in number and estimated bytes; the rest, and everything from an earlier kernel, is gone, and looking
# it up says so and names the file that holds its text. Objects are the user's own, not copies: what changes them
# changes what a handle shows.

NAME = "_agent"
_NUMBER = re.compile(r"\d+")


def handle_of(name: str) -> str:
    """How code says it: `_agent["r12"]`."""
    return f'{NAME}["{name}"]'


class LiveObjects(dict[str, Any]):
    """Objects by short names ("r12"). `most` and `most_bytes` bound what is kept alive.

    One kernel has one; `enter` turns it to another session. Called on the main thread, or while
    that waits for the agent thread.
    """

    def __init__(self, most: int = 20, most_bytes: int = 1_000_000_000) -> None:
        super().__init__()
        self.most, self.most_bytes = most, most_bytes
        self._known: Mapping[str, ResultStored] = {}
        self._place = ""
        self._last = 0
        self._alive: dict[str, tuple[str, Any, int]] = {}
        """By call, oldest first: the handle, the object and its bytes, of all sessions."""

    def __repr__(self) -> str:
        kept = ", ".join(f"{name}: {TypeInfo(type(value)).name}" for name, value in self.items())
        return f"<objects of stored results: {kept or 'none'}>"

    def __missing__(self, name: object) -> Any:
        known = self._known.get(handle_of(str(name)))
        if known is None:
            there = f"; there are {', '.join(self)}" if self else ""
            raise KeyError(f"no stored result {name!r}{there}")
        raise KeyError(
            f"{handle_of(str(name))} is gone: the kernel was restarted or newer results took its place; "
            f"its text is in the file {self._place}/{known.path}: use read_file or grep, or compute it again"
        )

    def enter(self, known: Mapping[str, ResultStored], place: str) -> None:
        """Show the objects of one session: `known` are its stored results by handle, `place` its
        folder as tools name it."""
        self._known, self._place = known, place
        self.clear()
        for event in known.values():
            if event.call in self._alive:
                name, value, _ = self._alive[event.call]
                if handle_of(name) == event.handle:
                    self[name] = value
        self._last = max([self._last, *(int(number) for name in known for number in _NUMBER.findall(name))])

    def install(self, shell: Any) -> bool:
        """Have the name in the user's namespace, not among their variables; False when it is theirs."""
        if users_namespace(shell).setdefault(NAME, self) is not self:
            return False
        shell.user_ns_hidden[NAME] = self
        return True

    def hold(self, call: str, value: Any, handle: str = "") -> str:
        """Keep an object alive, under the `handle` that it had, else a new one; its handle, "" when it is too large to
        be kept."""
        size = _bytes_of(value)
        if size > self.most_bytes or self.most < 1:
            return ""
        if handle:
            name = f"r{_NUMBER.findall(handle)[-1]}"
        else:
            self._last += 1
            name = f"r{self._last}"
        self._alive.pop(call, None)
        self._alive[call] = (name, value, size)
        self[name] = value
        while len(self._alive) > self.most or sum(entry[2] for entry in self._alive.values()) > self.most_bytes:
            gone, *_ = self._alive.pop(next(iter(self._alive)))
            self.pop(gone, None)
        return handle_of(name)


def _bytes_of(value: Any) -> int:
    """About the memory of an object, at once: of arrays and tables their buffers, of anything else
    what Python says of its outermost part and a word for each item."""
    kind = TypeInfo(type(value))
    try:
        if kind.genuine("numpy"):
            return int(value.nbytes)
        if kind.genuine("pandas") and kind.name == "DataFrame":
            return int(value.memory_usage(deep=False).sum())
        if kind.genuine("pandas"):
            return int(value.nbytes)
        if kind.genuine("polars") and kind.name in ("DataFrame", "Series"):
            return int(value.estimated_size())
    except (AttributeError, TypeError, ValueError):
        pass  # another version of the library: as anything else
    try:
        return sys.getsizeof(value, 64)
    except Exception:  # noqa: BLE001 - a foreign __sizeof__ may raise anything; the object counts as small
        return 64
