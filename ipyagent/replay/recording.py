"""A recorded conversation in one shape, whatever wrote it: turns of the user, rounds of the model.

Call ids are unique and fit for the wire; thinking has no signature (the server that answers now
signs it); adjacent replies are one round, user words that got no reply belong to the next turn.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from ipyagent.errors import ToolFailure
from ipyagent.journal.events import Block, Step, SystemPromptFrozen, Usage
from ipyagent.journal.protocols import Execution, Permission, PermissionQuestion, ReadStamp, Tool, ToolOutput, Workspace
from ipyagent.sandbox import Level

LEAST_HELD = 4_096
"""Tokens below which some models cache no prompt (the API's documentation, November 2026)."""
NO_RESULT = "(the recording has no result of this call)"
_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")


class Round(msgspec.Struct, frozen=True):
    """One reply of the model and the results of its calls, by the call's id; `at`: when it was asked for, in seconds
    since 1970 (0.0: not recorded); `usage` what it was billed (None: not recorded); `cold`: the provider held hardly
    anything of a prompt that it had read before, and no compaction is why."""

    blocks: tuple[Block, ...]
    results: dict[str, ToolOutput] = {}
    at: float = 0.0
    usage: Usage | None = None
    cold: bool = False

    @property
    def calls(self) -> list[Block]:
        return [block for block in self.blocks if block["type"] == "tool_use"]


class RecordedTurn(msgspec.Struct, frozen=True):
    """What the user said and what the model did about it; `text`: the user's own words alone, where they are told
    apart from what stood beside them ("": all of it)."""

    asked: tuple[Block, ...]
    rounds: tuple[Round, ...]
    text: str = ""


class RecordedText(msgspec.Struct, frozen=True):
    """A summary or the session's notes as the recording's own model wrote them, having seen turns 1 to `turn`."""

    kind: Literal["summary", "notes"]
    turn: int
    text: str


class Recording(msgspec.Struct, frozen=True):
    """A session; `problems` are lines that could not be read, as "line N: why", `left_out` counts what was read and has
    no place in a replay. `head` is its system prompt and tools (None: not recorded), `written` what its model wrote for
    the context engine, in order."""

    source: str
    turns: tuple[RecordedTurn, ...]
    problems: tuple[str, ...] = ()
    head: SystemPromptFrozen | None = None
    written: tuple[RecordedText, ...] = ()
    left_out: dict[str, int] = {}

    @property
    def timed(self) -> bool:
        """Whether the recording says when each reply was asked for."""
        return all(made.at for turn in self.turns for made in turn.rounds)

    @property
    def usage(self) -> Usage:
        """What all replies were billed, as far as it is recorded."""
        return sum((made.usage for turn in self.turns for made in turn.rounds if made.usage), start=Usage())

    def __repr__(self) -> str:
        replies = sum(len(turn.rounds) for turn in self.turns)
        return f"<Recording from {self.source}: {len(self.turns)} turns, {replies} replies>"

    @property
    def tool_inputs(self) -> dict[str, list[str]]:
        """Names of the tools that were called, with the names of their arguments, in order."""
        found: dict[str, dict[str, None]] = {}
        for turn in self.turns:
            for made in turn.rounds:
                for call in made.calls:
                    found.setdefault(call["name"], {}).update(dict.fromkeys(call["input"]))
        return {name: list(inputs) for name, inputs in found.items()}


class Collector:
    """Puts what an importer reads, in order, into turns and rounds."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[str] = []
        self.left_out: Counter[str] = Counter()
        self._now = self._asked = 0.0
        """The time of the line that is read, and of the newest one of the user's side."""
        self._turns: list[tuple[list[Block], list[_Made]]] = []
        self._texts: dict[int, str] = {}
        """The user's own words by turn."""
        self._calls: dict[str, tuple[str, dict[str, ToolOutput]]] = {}
        self._made = 0
        self._message = ""
        self._held = 0
        """Tokens of the prompt that the provider has read last; 0 when what stands now is another."""
        self._joined = False
        """Whether the next reply belongs to the round before: nothing of the user's side came between."""

    def at(self, told: object) -> None:
        """When the next lines were written: seconds since 1970, or date and time as ISO 8601 has it; else not known."""
        self._now = 0.0
        if isinstance(told, int | float):
            self._now = float(told)
        elif isinstance(told, str):
            with suppress(ValueError):
                self._now = datetime.fromisoformat(told).timestamp()

    def user(self, blocks: Iterable[Block], text: str = "") -> None:
        """Words of the user; `text`: these alone, without what stood beside them."""
        kept = [block for block in blocks if block["type"] != "text" or str(block.get("text", "")).strip()]
        if not kept:
            return
        if self._turns and not self._turns[-1][1]:
            self._turns[-1][0].extend(kept)
        else:
            self._turns.append((kept, []))
        self._texts[len(self._turns)] = f"{self._texts.get(len(self._turns), '')}\n{text}".strip()
        self._joined, self._asked = False, self._now

    def beside(self, blocks: Iterable[Block]) -> None:
        """What stood beside words of the user that nobody has answered yet; later it has no place."""
        if self._turns and not self._turns[-1][1]:
            self.user(blocks)

    @property
    def begun(self) -> int:
        """Turns so far."""
        return len(self._turns)

    def reply(self, blocks: Iterable[Block], message: str = "") -> None:
        """Blocks of the model: text, thinking, tool_use (with whatever id). Pieces with one id of a
        `message` are one reply, even when results stand between them."""
        kept = [made for block in blocks if (made := self._admit(block)) is not None]
        if not kept:
            return
        if not self._turns:
            self._turns.append(([{"type": "text", "text": "(the recording begins here)"}], []))
        rounds = self._turns[-1][1]
        if not rounds or not (self._joined or (message and message == self._message)):
            rounds.append(_Made(self._asked))
        self._joined, self._message = True, message
        said, results = rounds[-1].said, rounds[-1].results
        for block in kept:
            if block["type"] == "tool_use":
                self._made += 1
                given, block = block["id"], {**block, "id": f"toolu_{self._made:06}"}
                self._calls[given] = (block["id"], results)
            said.append(block)

    def billed(self, usage: Usage) -> None:
        """What the newest reply was billed."""
        if self._turns and self._turns[-1][1] and usage.prompt:
            made = self._turns[-1][1][-1]
            if made.usage is None:
                made.cold = self._held >= LEAST_HELD and 2 * usage.cache_read < self._held
            made.usage, self._held = usage, usage.prompt

    def compacted(self) -> None:
        """The recording's own agent compacted here: what it sent next was another prompt."""
        self._held = 0

    def result(self, call: str, blocks: Iterable[Block], *, is_error: bool = False) -> None:
        """The result of a call; one whose call is not known is counted."""
        if call not in self._calls:
            self.left_out["results without their call"] += 1
            return
        made, results = self._calls[call]
        results[made] = ToolOutput(blocks=tuple(blocks), is_error=is_error)
        self._joined, self._asked = False, self._now

    @staticmethod
    def _admit(block: Block) -> Block | None:
        match block.get("type"):
            case "text" if str(block.get("text", "")).strip():
                return {"type": "text", "text": str(block["text"])}
            case "thinking" if str(block.get("thinking", "")).strip():
                return {"type": "thinking", "thinking": str(block["thinking"]), "signature": ""}
            case "tool_use":
                given = block.get("input")
                return {
                    "type": "tool_use",
                    "id": str(block.get("id", "")),
                    "name": _BAD_NAME.sub("_", str(block.get("name", "") or "tool"))[:64],
                    "input": given if isinstance(given, dict) else {},
                }
        return None

    def finished(self) -> Recording:
        """The recording; a turn that nobody answered is left out."""
        turns = [
            RecordedTurn(
                tuple(asked), tuple(made.round() for made in rounds), self._texts.get(number, "")
            )
            for number, (asked, rounds) in enumerate(self._turns, 1)
            if rounds
        ]
        self.left_out["requests that nobody answered"] += len(self._turns) - len(turns)
        asked = [(call["id"], made) for turn in turns for made in turn.rounds for call in made.calls]
        self.left_out["calls without a result"] += sum(call not in made.results for call, made in asked)
        counts = {what: count for what, count in self.left_out.items() if count}
        return Recording(self.source, tuple(turns), tuple(self.problems), left_out=counts)


class _Made:
    """A round as far as it is read."""

    def __init__(self, at: float) -> None:
        self.said: list[Block] = []
        self.results: dict[str, ToolOutput] = {}
        self.usage: Usage | None = None
        self.cold = False
        self._at = at

    def round(self) -> Round:
        """The round; thinking goes first in a reply that was put together of several."""
        said = sorted(self.said, key=lambda block: block["type"] != "thinking")
        return Round(tuple(said), self.results, self._at, self.usage, self.cold)


def text_blocks(content: Any) -> list[Block]:
    """Content of a message, a text or a list of blocks, as text and image blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    made: list[Block] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "text":
            made.append({"type": "text", "text": str(block.get("text", ""))})
        elif isinstance(block, dict) and block.get("type") in ("image", "document"):
            made.append(block)
    return made


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

    def __init__(self, name: str, arguments: list[str], results: Mapping[str, ToolOutput], known: Tool | None) -> None:
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
        return found


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
    read_stamps: dict[Path, ReadStamp] = field(default_factory=dict)
    call: str = ""
    page: None = None
    children: None = None
    messages: None = None
    sessions: None = None
    skills: None = None
    marks: None = None
    memory: None = None
    notebook: Path | None = None
    ran: Callable[[], None] = lambda: None
    """Told that a call gave its result."""
    beside: dict[Any, Any] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)
    hidden: Mapping[str, Any] = field(default_factory=dict)
    cell_ids: dict[Path, Any] = field(default_factory=dict)
    level: Level = "read"

    @property
    def folder(self) -> Path:
        return self.root

    @property
    def allowed(self) -> tuple[Path, ...]:
        return (self.root,)

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

    def at(self, level: Level) -> Workspace:
        return replace(self, level=level)

    def watch_command(self) -> None:
        """Only background work runs commands here, and those read."""

    def for_call(self, call: str, stream: Callable[[str], None]) -> Workspace:
        return replace(self, call=call)
