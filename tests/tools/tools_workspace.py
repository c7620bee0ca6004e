"""A `Workspace` over a real IPython shell, for tests: everything happens on the calling thread."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from ipyagent.config import IPyAgent
from ipyagent.journal.events import FileChanged, Step
from ipyagent.journal.protocols import Execution, ReadStamp
from ipyagent.sandbox import Level


class ShellWorkspace:
    def __init__(self, root: Path, folder: Path | None = None, allowed: tuple[Path, ...] = ()) -> None:
        self.root = root.resolve()
        self.folder = (folder or root).resolve()
        self.allowed = (self.root, *allowed)
        self.read_stamps: dict[Path, ReadStamp] = {}
        self.cell_ids: dict[Path, Any] = {}
        self.notebook: Path | None = None
        self.pages: dict[Path, str] = {}
        self.changes: list[FileChanged] = []
        self.streamed: list[str] = []
        self.plans: list[tuple[Step, ...]] = []
        self.limits: dict[str, int] = {}
        self.marks: object = None
        self.memory: object = None
        self.skills: object = None
        self.children: object = None
        self.messages: object = None
        self.sessions: object = None
        self.page: object = None
        self.call = ""
        self.beside: dict[Any, Any] = {}
        self.backups = self.root / ".ipyagent" / "backups"
        self._settings = IPyAgent(environ={})

    level: Level = "open"

    def at(self, level: Level) -> ShellWorkspace:
        other = copy(self)
        other.level = level
        return other

    def watch_command(self) -> object:
        return None

    def opened(self, path: Path) -> str:
        return self.pages.get(path, "")

    @property
    def shell(self) -> InteractiveShell:
        return InteractiveShell.instance()

    @property
    def namespace(self) -> dict[str, Any]:
        return self.shell.user_ns

    @property
    def hidden(self) -> Mapping[str, Any]:
        return self.shell.user_ns_hidden

    def record_change(self, path: Path, before: bytes | None, after: bytes | None) -> None:
        name = ""
        if before is not None:
            name = hashlib.sha256(before).hexdigest()
            self.backups.mkdir(parents=True, exist_ok=True)
            (self.backups / name).write_bytes(before)
        digest = "" if after is None else hashlib.sha256(after).hexdigest()
        shown = path.relative_to(self.root).as_posix()
        self.changes.append(FileChanged(call="t", path=shown, backup=name, digest=digest))

    def record_plan(self, steps: tuple[Step, ...]) -> None:
        self.plans.append(steps)

    def stream(self, text: str) -> None:
        self.streamed.append(text)

    async def run_code(self, code: str) -> Execution:
        began = time.monotonic()
        with capture_output() as captured:
            done = self.shell.run_cell(code, store_history=False)
        error = done.error_in_exec or done.error_before_exec
        return Execution(
            # The shell's own display of the result is not output.
            output=re.sub(r"Out\[\d+\]: .*\n", "", captured.stdout + captured.stderr) if error is None else "",
            result=None if done.result is None else repr(done.result),
            error=None if error is None else f"{type(error).__name__}: {error}",
            seconds=time.monotonic() - began,
        )

    async def on_main(self, call: Callable[[], Any]) -> Any:
        return call()

    def limit(self, name: str) -> int:
        return self.limits.get(name, getattr(self._settings, name))
