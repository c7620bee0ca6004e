"""A part is one capability of the agent: memory, skills, sub-agents, … This is all that the agent knows of it.

A part is made for one agent, and never holds a session from one call to the next: what it knows of one it folds from
the journal. Each can be left out, by its setting or by `Agent(parts=…)`, and all else works. Parts of other packages
come by the entry point `ipyagent.parts`: an object that is called with the `Host` and gives a `Part`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from ipyagent.config import IPyAgent
from ipyagent.errors import UsageError
from ipyagent.journal.events import Block, Event
from ipyagent.project import Project, entry_points

if TYPE_CHECKING:
    from ipyagent.journal.protocols import Forked, ForkOrder, ModelInfo, Tool
    from ipyagent.kernel.cell_marks import CellMarks
    from ipyagent.kernel.dispatcher import MainThreadExecutor
    from ipyagent.kernel.workspace import KernelWorkspace
    from ipyagent.loop.session import Session
    from ipyagent.loop.session_state import Folded
    from ipyagent.model.client import AnthropicModel
    from ipyagent.model.client_pool import Connections
    from ipyagent.model.endpoint import Endpoint
    from ipyagent.ui.board import BoardHost, BoardTab

GROUP = "ipyagent.parts"
P = TypeVar("P", bound="Part")
BUILT_IN: Mapping[str, str] = {
    "instructions": "ipyagent.parts.instructions:Instructions",
    "pins": "ipyagent.parts.pins:PinnedCells",
    "skills": "ipyagent.parts.skills:Skills",
    "memory": "ipyagent.parts.memory:MemoryPart",
    "subagents": "ipyagent.parts.subagents:SubagentManager",
    "messages": "ipyagent.parts.messages:MailService",
    "mcp": "ipyagent.parts.mcp:McpManager",
    "files": "ipyagent.parts.files:Files",
    "notebooks": "ipyagent.parts.notebooks:Notebooks",
    "shell": "ipyagent.parts.shell:Shell",
    "plan": "ipyagent.parts.plan:PlanPart",
}
"""Ours: the name and where it is. A part is imported when an agent is made that has it."""


class Surroundings(Protocol):
    """What a part sees of the agent, from inside and from outside."""

    @property
    def project(self) -> Project: ...

    @property
    def settings(self) -> IPyAgent: ...

    @property
    def folder(self) -> Path:
        """Where the user works, absolute."""

    @property
    def shell(self) -> Any:
        """The IPython shell; its namespace is read on the main thread only."""

    @property
    def session(self) -> Session | None:
        """The session that requests go to now; None before the first."""

    @property
    def busy(self) -> bool:
        """Whether a turn runs now."""

    def notice(self, line: str) -> None:
        """Show the user a line before the next turn."""


class Host(Surroundings, Protocol):
    """The agent as a part sees it."""

    @property
    def agent(self) -> RunningAgent:
        """The agent itself, for commands, panels and checks."""


class StoredSessions(Protocol):
    """The project's sessions, as commands of parts see them."""

    @property
    def notebook(self) -> Path | None: ...

    def stored(self) -> list[Path]:
        """Their folders, newest first."""

    def take_up(self) -> Session | None:
        """The session of now, or the one that this notebook had."""


class RunningAgent(Surroundings, Protocol):
    """The agent, as the commands, panels and checks of a part know it; see `ipyagent.agent.Agent`."""

    @property
    def parts(self) -> Parts: ...

    @property
    def sessions(self) -> StoredSessions: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def marks(self) -> CellMarks: ...

    @property
    def model(self) -> str: ...

    @property
    def info(self) -> ModelInfo: ...

    def part(self, kind: type[P]) -> P: ...

    def endpoint(self) -> Endpoint: ...

    def check_free(self) -> None: ...

    def occupied(self) -> AbstractContextManager[MainThreadExecutor]: ...

    def workspace(self, session: Session, main: MainThreadExecutor) -> KernelWorkspace: ...

    def tools_now(self) -> dict[str, Tool]: ...

    def take_notices(self) -> list[str]: ...

    async def connect_now(self, session: Session, model: AnthropicModel) -> None:
        """Give the session what it works with, outside a turn of the conversation."""


class Section(NamedTuple):
    """A section of the system prompt: its `text`, lines for the user (`told`, each shown once), and the paths of
    `memories` that it contains in full."""

    text: str = ""
    told: Sequence[str] = ()
    memories: Sequence[str] = ()


class PromptSpace(NamedTuple):
    """What a section can rely on: names of the session's `tools`, the tokens it may take (`room`), and the model's
    `window` in tokens (0: unknown)."""

    tools: frozenset[str]
    room: float
    window: int


class TakenIn(NamedTuple):
    """What a part took in with a request on the main thread: `value` for its `turn`, `request` what is left of the
    user's words ("": all of them), `notices` for the user."""

    value: Any = None
    request: str = ""
    notices: Sequence[str] = ()


class Grant(NamedTuple):
    """What a sub-agent may have of the parts: the `name` of its type, whether it only `looks`, and where its type keeps
    a `memory` of its own ("user", "project", "local"; "": it has none)."""

    name: str
    looks: bool = False
    memory: str = ""


class Turn:
    """A running request: what a part can read of it, and add to it before it is sent."""

    def __init__(
        self,
        session: Session,
        workspace: KernelWorkspace,
        main: MainThreadExecutor,
        model: AnthropicModel,
        *,
        text: str,
        said: str,
        aside: bool,
        taken: Mapping[str, Any],
    ) -> None:
        self.session, self.workspace, self.main, self.model = session, workspace, main, model
        self.text = text
        """The request as it was sent."""
        self.said = said
        """The user's own words of it."""
        self.aside = aside
        """Whether it runs beside the conversation, which does not know of it."""
        self.blocks: list[Block] = []
        """What parts have put before the request."""
        self._taken = taken

    def __repr__(self) -> str:
        return f"<Turn {self.text[:40]!r}>"

    def taken(self, part: Part) -> Any:
        """The value of the part's `snapshot`; None if there was none."""
        return self._taken.get(part.name)

    def put_before(self, text: str) -> None:
        """Send a text block before the request."""
        self.blocks.append({"type": "text", "text": text})


class Command(NamedTuple):
    """A command `%agent NAME …`: `run` gets the words after the name and returns the text to print; it raises
    UsageError for wrong ones. `about` is its line in the help, `usage` its arguments. `looks`: it changes nothing, so
    it may run during a turn. `tab`: the panel's tab to open instead, if panels are live and no argument follows."""

    run: Callable[[str], str]
    about: str
    usage: str = ""
    looks: bool = False
    tab: str = ""


Beside: TypeAlias = "Callable[[ForkOrder], tuple[ForkOrder, Callable[[Forked], None]]]"
"""Adds to the order of a fork, and gives what is told how it ended."""
Rows: TypeAlias = tuple[str, Sequence[str], list[list[str]], int]
"""One line about it, names of columns, rows, how many rows there are in all."""


class Tab(NamedTuple):
    """A tab of `%agent panel`: its `title`, and `table`, which returns what it shows now: a heading, column names, rows
    of text, and the number of all rows. It is called on the panel's thread."""

    title: str
    table: Callable[[], Rows]


class Check(NamedTuple):
    """A line of `%agent doctor`: `mark` "ok", "note" or "bad", what is so, and what to do about it ("": nothing)."""

    mark: Literal["ok", "note", "bad"]
    words: str
    mend: str = ""


class Part:
    """One capability of the agent. Override what it needs; every method does nothing by default."""

    name: ClassVar[str]
    """Its name, and that of the setting that switches it off."""
    order: ClassVar[int] = 1_000
    """Its place among the parts: of its section, of what stands again after a compaction, of its turn."""
    states: ClassVar[tuple[type[Folded], ...]] = ()
    """What the journal says of it: classes whose instances take in each event, see `Session.folded`."""
    own: ClassVar[tuple[str, ...]] = ()
    """Tools that stand in modules of its folder, by name: what `tools` returns."""
    changing: ClassVar[bool] = False
    """Whether its tools come and go while a session runs: new ones then renew the system prompt."""

    def __init__(self, host: Any = None) -> None:
        """`host` is a `Host`."""

    def tools(self, session: Session | None) -> Mapping[str, Tool]:
        """The tools that the model has of it now, by name, in a session (None: in a new one); on any thread."""
        if not self.own:
            return {}
        from ipyagent.tools.catalogue import builtin_tools

        return {name: builtin_tools()[name] for name in self.own}

    async def offered(self, tools: dict[str, Tool], session: Session, window: int) -> dict[str, Tool]:
        """The tools of a session (all parts'), as it gets them now that the model's window is known."""
        return tools

    def services(self, session: Session, others: Mapping[str, object]) -> Mapping[str, object]:
        """What its tools find in the workspace of a session, by the name of the workspace's attribute; `others` is
        what parts before it gave."""
        return {}

    def services_below(self, session: Session, above: KernelWorkspace, grant: Grant) -> Mapping[str, object]:
        """The same for a sub-agent's session; `above` is the workspace of its parent."""
        return self.services(session, {})

    def granted(self, grant: Grant) -> Section | None:
        """What a type of sub-agents has of it for itself alone, in its prompt; None: nothing."""
        return None

    def folders(self) -> Sequence[Path]:
        """Folders that may be read without a question."""
        return ()

    def prompt_section(self, place: PromptSpace) -> Section | None:
        """Its section of the system prompt: asked for once a session and after a compaction, then frozen."""
        return None

    def prompt_due(self, session: Session, tools: Mapping[str, Tool]) -> str:
        """Why the system prompt of a session has to be rendered again ("": it has not)."""
        return ""

    def prompt_frozen(self, session: Session, tools: frozenset[str]) -> Sequence[Event]:
        """What is journalled with a system prompt that has its section, for a session with these tools."""
        return ()

    def snapshot(self, text: str) -> TakenIn:
        """What it reads of the namespace and of the request; on the main thread."""
        return TakenIn()

    @asynccontextmanager
    async def turn(self, turn: Turn) -> AsyncIterator[None]:
        """Around a turn; begun before the request is put together, which it may add to."""
        yield

    async def turn_stopped(self, session: Session) -> None:
        """The user stopped a turn of the session, or it ran aside and has ended."""

    def after_turn(self, turn: Turn) -> None:
        """A turn of the conversation came to its end."""

    async def beside(self, session: Session) -> Beside | None:
        """Work that goes out with the session's notes, should they be due after a turn; at most one part's does."""
        return None

    async def behind(self, session: Session) -> None:
        """In the background after a turn, once the session's notes are written."""

    async def after_compaction(self, session: Session, workspace: KernelWorkspace, room: int) -> list[tuple[str, str]]:
        """What stands again after a compaction, in `room` tokens: each with its name for the user and its text."""
        return []

    def commands(self) -> Mapping[str, Command]:
        """Its commands of `%agent`, by name."""
        return {}

    def panel(self) -> Tab | None:
        """Its tab of `%agent panel`."""
        return None

    def live_tab(self, host: BoardHost) -> BoardTab | None:
        """The same where a table is not enough: a tab that answers what its page asks, on the board's thread."""
        return None

    def doctor(self) -> Iterable[Check]:
        """What `%agent doctor` says of it."""
        return ()

    def session_closed(self, session: Session) -> bool:
        """The session is let go of; True: the part closes it itself, once its work in it has ended."""
        return False

    def release(self, folder: Path) -> None:
        """Somebody wants to open the session in this folder: what the part still does there ends."""

    def close(self) -> None:
        """The agent ends: what still works comes to its end."""

    def running(self) -> str:
        """What it has running for the session, in a word ("": nothing): `aclose` ends it when another session comes."""
        return ""

    async def aclose(self) -> None:
        """End what runs for the session, within a short time; on the agent thread."""

    def trusted_now(self) -> Sequence[str]:
        """The user has just trusted the project: lines for them about what it brings."""
        return ()

    def closed(self) -> None:
        """Nothing runs any more: let go of what is held."""


Maker: TypeAlias = Callable[[Any], Part]
"""Makes a part for a host."""


class Parts:
    """The parts of one agent, in their order."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = tuple(sorted(parts, key=lambda part: (part.order, part.name)))

    def __repr__(self) -> str:
        return f"<Parts {', '.join(part.name for part in self._parts)}>"

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __contains__(self, name: object) -> bool:
        return any(part.name == name for part in self._parts)

    def get(self, kind: type[P]) -> P | None:
        """The part of a class; None when the agent has none."""
        return next((part for part in self._parts if isinstance(part, kind)), None)

    def __getitem__(self, kind: type[P]) -> P:
        """The same. Raises UsageError for one that was left out."""
        if (found := self.get(kind)) is None:
            raise UsageError(f"{kind.name} was left out of this agent (IPyAgent.without, or Agent(parts=…))")
        return found

    @property
    def states(self) -> tuple[type[Folded], ...]:
        """The states of all of them."""
        return tuple(state for part in self._parts for state in part.states)


@cache
def built_in() -> Mapping[str, Maker]:
    """Ours by name, imported."""
    found: dict[str, Maker] = {}
    for name, where in BUILT_IN.items():
        module, _, attribute = where.partition(":")
        found[name] = getattr(import_module(module), attribute)
    return found


def known_parts(without: Iterable[str], notice: Callable[[str], None]) -> dict[str, Maker]:
    """Ours and those of other packages but for the names in `without`; what is wrong with one is said to `notice`."""
    left = set(without)
    found = {name: make for name, make in built_in().items() if name not in left}
    theirs = entry_points(GROUP)
    for point in theirs:
        told = f"entry point {point.name} = {point.value}"
        if point.name in BUILT_IN or point.name in found:
            notice(f"{told}: there is a part {point.name!r} already; pip uninstall its package, or rename it")
        elif point.name not in left:
            try:
                found[point.name] = point.load()
            except Exception as problem:  # noqa: BLE001 - foreign module code may raise anything; it is reported
                notice(f"{told}: {type(problem).__name__}: {problem}; IPyAgent.without leaves it out")
    if unknown := sorted(left - {*BUILT_IN, *(point.name for point in theirs)}):
        notice(f"IPyAgent.without names unknown parts: {', '.join(unknown)}; there are {', '.join(BUILT_IN)}")
    return found


def make_parts(makers: Iterable[Maker], host: Any) -> Parts:
    """Each made for the host; one that fails is left out, and the user is told why."""
    made: list[Part] = []
    for make in makers:
        try:
            part = make(host)
        except Exception as problem:
            if getattr(make, "__module__", "").startswith("ipyagent."):
                raise
            which, why = getattr(make, "__name__", make), f"{type(problem).__name__}: {problem}"
            host.notice(f"the part {which} was left out: {why}; IPyAgent.without leaves it out permanently")
            continue
        made.append(part)
    return Parts(made)


def is_on(part: Part, settings: IPyAgent) -> bool:
    """Whether the setting of its name is on; a part without one is."""
    return bool(getattr(settings, part.name, True))


__all__ = [
    "Check", "Command", "Event", "Grant", "Host", "Part", "Parts", "PromptSpace", "Rows", "Section", "Tab", "TakenIn",
    "Turn", "is_on", "known_parts", "make_parts",
]  # fmt: skip
