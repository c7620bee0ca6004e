"""What the tools of one session may touch: the project's files and the user's namespace."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ipyagent.errors import AgentError
from ipyagent.journal.events import FileChanged, PlanWritten, Step
from ipyagent.journal.protocols import Execution, Workspace
from ipyagent.kernel.cell_marks import CellMarks
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.frontend import opened, own_notebook
from ipyagent.kernel.mains import MainThreadProxy
from ipyagent.kernel.scope import IsolatedNamespace, users_namespace
from ipyagent.kernel.variables import short_types
from ipyagent.nofollow import is_file, write_atomically

BACKUPS = "backups"
"""Folder beside the transcript with the old content of changed files, named by its SHA-256."""


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
    read_stamps: dict[Path, str] = field(default_factory=dict)
    cell_ids: dict[Path, Any] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    marks: CellMarks | None = None
    memory: object = None
    skills: object = None
    children: object = None
    messages: object = None
    sessions: object = None
    beside: dict[Any, Any] = field(default_factory=dict)
    scope: IsolatedNamespace | None = None
    """A namespace of its own for what runs here; None: the user's."""
    begun: Callable[[], None] = lambda: None
    """Called when code no longer waits for the main thread."""
    call: str = ""
    streamed: Callable[[str], None] = lambda text: None

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

    def limit(self, name: str) -> int:
        return self.limits(name)

    def stream(self, text: str) -> None:
        self.streamed(text)

    async def run_code(self, code: str) -> Execution:
        done = await self.main.run_code(code, self.streamed, scope=self.scope, begun=self.begun)
        if not done.interrupted:  # a stopped turn must not wait again before the result is journalled
            self.names.types = await self.main.call(self.types)
        return done

    async def on_main(self, call: Callable[[], Any]) -> Any:
        return await self.main.call(call if self.scope is None else self.scope.calling(call))

    def types(self) -> dict[str, str]:
        """Names and short types now; main thread only."""
        return short_types(self.namespace, hidden=self.hidden)

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
