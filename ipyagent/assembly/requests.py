"""A request of the user on its way: what it may say, what was taken in with it, how it ended."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ipyagent.config import IPyAgent
from ipyagent.context.reminders import EnvironmentSnapshot, element
from ipyagent.errors import ToolFailure, UsageError
from ipyagent.journal.events import Block, Ending, Event, Mode, PermissionAsked
from ipyagent.journal.protocols import PermissionAnswer, Surface, Tool, TurnStatus, Workspace
from ipyagent.kernel.cell_marks import HIDDEN
from ipyagent.kernel.dispatcher import MainThreadExecutor
from ipyagent.kernel.variables import describe
from ipyagent.redaction import mask

# ---- `@name`, `@path`, `@cell:3`, `@out:3` in a request: compact views attached for the model. The words of the
# request stay as they are; a mention that names nothing is plain text.

MENTION = re.compile(r"(?<![\w@.])@(?:(cell|out):(\d+)|\"([^\"\n]+)\"|([^\s@,;:!?()\[\]{}'\"`]+))")
NAME = re.compile(
    r"[^\W\d]\w*(?:[./]\w+)*|(?:~|\.{1,2})?/[\w.\-/]{1,400}|[\w.\-]{1,100}/[\w.\-/]{0,400}|[\w.\-]{1,200}\.[A-Za-z]\w{0,9}"
)
"""What looks like a variable, or like the path of a file."""
ENDS = ".。，、！？"
"""What ends a sentence and belongs to no name."""
FILE_LINES = 60
"""Lines of a mentioned file that is no table, or a small one."""
SMALL_TABLE = 2_000
"""Bytes of a table up to which its rows take no more tokens than what its columns hold."""
CELL_CHARS = 4_000


class Mention(msgspec.Struct, frozen=True):
    """One thing the request names: `kind` is "variable", "file", "cell", "out" or "lesson"; `text` its
    compact view ("" for files, which are read on the agent thread)."""

    kind: str
    name: str
    text: str = ""


def find(
    body: str,
    namespace: Mapping[str, Any],
    folder: Path,
    cells: Sequence[str] = (),
    hidden: Collection[int] = (),
    error_of: Callable[[int], str] = lambda number: "",
) -> tuple[list[Mention], list[str]]:
    """The mentions of a request that name something, each once; and those that look like names or files and name
    nothing ("@nosuch"), for a line to the user. Call it on the main thread.

    `cells` are the sources of the cells run so far as they were typed, by their number, `hidden` the numbers
    of those that their author hides: a mention says so and shows nothing; `error_of` gives the error that one ended in.
    """
    found: dict[tuple[str, str], Mention] = {}
    missing: dict[str, None] = {}
    for match in MENTION.finditer(body):
        kind, number, quoted, bare = match.groups()
        if kind:
            mention = _cell(kind, int(number), namespace, cells, hidden, error_of)
        else:
            mention = _thing(quoted or bare, namespace, folder, exact=bool(quoted))
        if mention is not None:
            found.setdefault((mention.kind, mention.name), mention)
        elif kind or quoted or NAME.fullmatch(bare.rstrip(ENDS)):
            missing[match.group().rstrip(ENDS)] = None
    return list(found.values()), list(missing)


def _cell(
    kind: str,
    number: int,
    namespace: Mapping[str, Any],
    cells: Sequence[str],
    hidden: Collection[int],
    error_of: Callable[[int], str],
) -> Mention | None:
    if number in hidden:
        return Mention(kind, str(number), HIDDEN)
    if kind == "cell":
        if 0 < number < len(cells):
            error = mask(error_of(number))
            failed = f"\n\n[it ended in an error]\n{error}" if error else ""
            return Mention("cell", str(number), mask(cells[number])[:CELL_CHARS] + failed[:CELL_CHARS])
        return None
    outputs = namespace.get("Out")
    if isinstance(outputs, dict) and number in outputs:
        return Mention("out", str(number), describe(f"Out[{number}]", outputs[number]))
    return None


def _thing(name: str, namespace: Mapping[str, Any], folder: Path, *, exact: bool) -> Mention | None:
    """A variable or a file, also with ENDS behind it."""
    for candidate in (name,) if exact else dict.fromkeys((name, name.rstrip(ENDS))):
        if candidate.isidentifier() and candidate in namespace:
            return Mention("variable", candidate, describe(candidate, namespace[candidate]))
        try:
            if candidate and (folder / candidate).expanduser().is_file():
                return Mention("file", candidate)
        except (OSError, ValueError, RuntimeError):
            continue  # too long, a NUL, no such home: not a path
    return None


async def blocks_of(mentions: list[Mention], workspace: Workspace) -> list[Block]:
    """Content blocks for the mentions; files are read as the `read_file` tool reads them: tables by their columns, of
    small ones and other files the first FILE_LINES."""
    # the first turn's imports: not needed to parse a cell
    from ipyagent.assembly.post_compaction import TABLES
    from ipyagent.tools.catalogue import builtin_tools

    read_file = builtin_tools()["read_file"]
    blocks: list[Block] = []
    for mention in mentions:
        if mention.kind != "file":
            tag = mention.kind if mention.kind in ("variable", "lesson") else "cell"
            name = mention.name if mention.kind != "out" else f"Out[{mention.name}]"
            blocks.append(element(tag, name, mention.text))
            continue
        given: dict[str, Any] = {"path": mention.name}
        file = (workspace.folder / mention.name).expanduser()
        if file.suffix.lower() not in TABLES or (file.is_file() and file.stat().st_size <= SMALL_TABLE):
            given["limit"] = FILE_LINES  # without it a table is told by its columns, not by its rows
        try:
            output = await read_file.run(read_file.validate(given), workspace)
        except ToolFailure as failure:
            blocks.append(element("file", mention.name, f"(not attached: {failure})"))
            continue
        texts = [str(block["text"]) for block in output.blocks if block["type"] == "text"]
        blocks.append(element("file", mention.name, "\n".join(texts)))
        blocks.extend(block for block in output.blocks if block["type"] != "text")
    return blocks


_OUR_CELL = re.compile(r"(?:\s*+%%(?:time|timeit|capture|prun)\b.*\n)*+\s*+%%(?:ipyagent|agent|memory)\b")
_OUR_LINES = re.compile(r"(?:\s*+%(?:ipyagent|agent|context|compact|memory|skills|load_ext|reload_ext)\b.*+(?:\n|$))++")


def is_ours(source: str) -> bool:
    """Whether a cell only speaks to us: the model need not be told of it."""
    return _OUR_CELL.match(source) is not None or _OUR_LINES.fullmatch(source) is not None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one request, as on the first line of a `%%agent` cell; an empty value means the setting.

    `model`: the model's name. `max_turns`: maximum number of model calls. `effort`: "low", "medium", "high", "xhigh"
    or "max". `mode`: "ask", "auto" or "read_only". `fresh`: without history; `fork`: with a copy of the history;
    neither is kept in the conversation. `lesson`: the lesson of the practice model that the request belongs to.
    Raises UsageError for an unknown value, and for `fresh` together with `fork`.
    """

    model: str = ""
    max_turns: int = 0
    effort: str = ""
    mode: Mode | None = None
    fresh: bool = False
    fork: bool = False
    lesson: str = ""

    def __post_init__(self) -> None:
        """Refuse what no request can be sent with."""
        for name, value in (("mode", self.mode or ""), ("effort", self.effort)):
            known: tuple[str, ...] = getattr(IPyAgent.class_traits()[name], "values")  # noqa: B009 - an Enum's own
            if value and value not in known:
                raise UsageError(f"{name} is one of {', '.join(filter(None, known))}, not {value!r}")
        if self.max_turns < 0:
            raise UsageError(f"max_turns must be 1 or more, or 0 for the setting, not {self.max_turns}")
        if self.fresh and self.fork:
            raise UsageError("use either fresh (no history) or fork (a copy of the history)")

    def lesson_for(self, model: str) -> list[Mention]:
        """What tells the practice model that the request is one of a lesson. Raises UsageError for another model, and
        for a lesson that is not there."""
        if not self.lesson:
            return []
        from ipyagent.practice.model.lessons import requests

        if model != "practice":
            raise UsageError("--lesson is for the practice model: choose it with %agent model practice")
        try:
            asks = requests(self.lesson)
        except ValueError as problem:
            raise UsageError(str(problem)) from None
        return [Mention("lesson", self.lesson, f"a request of this lesson, which has {len(asks)}")]

    @property
    def aside(self) -> bool:
        """Whether the request runs beside the conversation."""
        return self.fresh or self.fork


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended. A turn that failed is a result too; nothing is raised for it.

    `status`: "finished", "stopped" (by the user), "limit" (of model calls or cost), "refused" (by the model) or
    "failed". `message`: one line for the user, empty if it finished. `text`: the model's last words. `cost`: US dollars
    at list prices (None: no price is known). `seconds`: from the request to its end.
    """

    status: Ending
    message: str
    text: str
    cost: float | None
    seconds: float


class PreparedRequest(msgspec.Struct, frozen=True):
    """A request as it was taken in on the main thread."""

    text: str
    cell: str
    seen: EnvironmentSnapshot
    mentions: list[Mention]
    tools: dict[str, Tool]
    options: Options
    taken: dict[str, Any]
    """What each part took in with it, by the part's name."""
    request: str = ""
    """What parts left of the text ("": all of it)."""
    own: str | None = None
    """What of the text the user typed, where a command wrote the rest; None: all."""

    @property
    def said(self) -> str:
        """The user's own words."""
        return self.text if self.own is None else self.own


class PreparedTurn:
    """A request that was taken in and not begun yet; run it once, on the same thread."""

    def __init__(
        self,
        occupied: Callable[[Surface], AbstractContextManager[MainThreadExecutor]],
        surface: Surface,
        work: Callable[[MainThreadExecutor], Coroutine[object, object, TurnResult]],
    ) -> None:
        self._occupied, self._surface, self._work = occupied, surface, work

    async def run(self) -> TurnResult:
        """Show it and run it, awaited from the cell. Raises KeyboardInterrupt after an interrupt and
        AgentError when it could not begin; every other ending is a value."""
        with self._open() as main:
            return await main.run(lambda: self._work(main))

    def run_blocking(self) -> TurnResult:
        """The same without awaiting."""
        with self._open() as main:
            return main.run_blocking(lambda: self._work(main))

    @contextmanager
    def _open(self) -> Iterator[MainThreadExecutor]:
        with self._occupied(self._surface) as main:
            self._surface.open()
            try:
                yield main
            finally:
                self._surface.close()


# ---- Surfaces for callers that show nothing themselves: scripts and services.

class NullSurface:
    """Shows nothing and answers nothing: what needs a yes is denied before it comes here."""

    can_ask = False

    def open(self) -> None:
        """Nothing appears."""

    def show(self, event: Event) -> None:
        """Nothing is shown."""

    def status(self, status: TurnStatus) -> None:
        """Nothing is shown."""

    async def ask(self, asked: PermissionAsked) -> PermissionAnswer:
        return PermissionAnswer("deny", by="headless")

    def close(self) -> None:
        """Nothing to leave."""


class Listener(NullSurface):
    """Hands every event to the loop of an `async for`; None marks the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def show(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self.queue.put_nowait, event)

    def finish(self) -> None:
        """No more events come; called on the listening loop."""
        self._loop.call_soon(self.queue.put_nowait, None)
