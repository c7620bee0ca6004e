"""The tools of a recording: each call gives what it gave then. Nothing runs, nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Step
from ipyagent.journal.protocols import Execution, Permission, PermissionQuestion, Tool, ToolOutput, Workspace
from ipyagent.replay.recording import NO_RESULT, Recording, Result
from ipyagent.sandbox import Level

RECREATABLE = frozenset(
    (
        "read", "read_file", "bash", "shell", "python", "python_repl", "ipython", "grep", "glob", "find", "ls",
        "search", "webfetch", "fetch", "web_fetch", "edit", "edit_file", "multiedit", "write", "write_file",
        "notebookedit", "variables",
    )
)  # fmt: skip
"""Names, in lower case, of tools whose old results can be had again: reads, shells, code, searches, edits."""


class RecordedTool:
    """A `Tool` by the name that the recording calls; `known` is our own tool of that name, which
    serves background work. `results` are all results by the call's id."""

    parallel = False

    def __init__(self, name: str, arguments: list[str], results: Mapping[str, Result], known: Tool | None) -> None:
        self.name = name
        self.recreatable = name.lower() in RECREATABLE
        self.description = known.description if known is not None else f"The recording's tool {name}."
        properties: dict[str, Any] = {argument: {} for argument in arguments}
        self.input_schema: dict[str, Any] = (
            known.input_schema if known is not None else {"type": "object", "properties": properties}
        )
        self._results = results
        self._known = known

    def __repr__(self) -> str:
        return f"<recorded tool {self.name}>"

    def validate(self, input: dict[str, Any]) -> dict[str, Any]:
        return input

    def permission(self, input: dict[str, Any], workspace: Workspace) -> Permission:
        return "none"

    def writes(self, input: dict[str, Any], workspace: Workspace) -> bool:
        return False

    def destructive(self, input: dict[str, Any], workspace: Workspace) -> str:
        return ""

    def pattern(self, input: dict[str, Any], workspace: Workspace) -> str:
        return self.name

    def question(self, input: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
        return PermissionQuestion(title=self.name, text="")

    async def run(self, input: dict[str, Any], workspace: Workspace) -> ToolOutput:
        call = workspace.call if isinstance(workspace, ReplayWorkspace) else ""
        if not call and self._known is not None:
            return await self._known.run(self._known.validate(input), workspace)
        if isinstance(workspace, ReplayWorkspace):
            workspace.ran()
        found = self._results.get(call)
        if found is None:
            raise ToolFailure(NO_RESULT)
        return ToolOutput(blocks=found.blocks, is_error=found.is_error)


def tools_of(recording: Recording, known: Mapping[str, Tool]) -> dict[str, Tool]:
    """The recording's tools and those of ours that background work needs (`known`), by name."""
    rounds = [made for turn in recording.turns for made in turn.rounds]
    results = {call: result for made in rounds for call, result in made.results.items()}
    tools: dict[str, Tool] = {
        name: RecordedTool(name, arguments, results, known.get(name))
        for name, arguments in sorted(recording.tool_inputs.items())
    }
    return {**dict(known), **tools}


@dataclass(frozen=True)
class ReplayWorkspace:
    """A `Workspace` without a kernel: the folder of the replay, no variables, no code."""

    root: Path
    limits: Callable[[str], int]
    read_stamps: dict[Path, str] = field(default_factory=dict)
    call: str = ""
    page: None = None
    ran: Callable[[], None] = lambda: None
    """Told that a call gave its result."""
    beside: dict[Any, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.root

    @property
    def allowed(self) -> tuple[Path, ...]:
        return (self.root,)

    @property
    def namespace(self) -> dict[str, Any]:
        return {}

    @property
    def hidden(self) -> Mapping[str, Any]:
        return {}

    @property
    def children(self) -> object:
        return None

    @property
    def messages(self) -> object:
        return None

    @property
    def sessions(self) -> object:
        return None

    @property
    def skills(self) -> object:
        return None

    @property
    def marks(self) -> object:
        return None

    @property
    def memory(self) -> object:
        return None

    @property
    def cell_ids(self) -> dict[Path, Any]:
        return {}

    @property
    def notebook(self) -> Path | None:
        return None

    def opened(self, path: Path) -> Literal["", "own", "page"]:
        return ""

    def record_change(self, path: Path, before: bytes | None, after: bytes | None) -> None:
        """Only background work changes files here; there is nothing to undo."""

    def record_plan(self, steps: tuple[Step, ...]) -> None:
        """A recorded plan is in the recording."""

    def stream(self, text: str) -> None:
        """Nobody watches."""

    async def run_code(self, code: str) -> Execution:
        raise ToolFailure("A replay runs no code.")

    async def on_main(self, call: Callable[[], Any]) -> Any:
        return call()

    def limit(self, name: str) -> int:
        return self.limits(name)

    level: Level = "read"

    def at(self, level: Level) -> Workspace:
        return replace(self, level=level)

    def watch_command(self) -> None:
        """Only background work runs commands here, and those read."""

    def for_call(self, call: str, stream: Callable[[str], None]) -> Workspace:
        return replace(self, call=call)
